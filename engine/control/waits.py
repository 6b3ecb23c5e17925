"""Receivers that cannot register yet, shown to other processes: `doctor` and `stat` read what each of them
waits for.

A context that has some writes one file, ``<domain>/waits/<random>.json``, and removes it when nobody waits
any more. What a process leaves that is killed names it: a dead one's file counts for nothing, and `gc`
removes it.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import msgspec

from ..native.core import lib
from ..native.runtime import os, secrets, threading
from .wire import U32, UNDECODABLE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ..memory.domain import Domain

__all__ = ["Wait", "WaitFile", "wait_files", "waiting"]

_SIZE_MAX = 1 << 20


class Wait(msgspec.Struct, frozen=True):
    """One receiver that waits for stores of one source."""

    topic: str
    source: str
    """uuid, hexadecimal; empty: another receiver has the session."""
    session_id: int
    since_ns: int
    """CLOCK_REALTIME."""
    why: str
    """What each store says."""
    pid: int = 0


class _Waits(msgspec.Struct, frozen=True):
    """A file."""

    pid: U32
    start: int
    token: int
    receivers: list[Wait]

    def __post_init__(self) -> None:
        if not (0 <= self.start < 2**64 and 0 <= self.token < 2**64):
            raise ValueError("no context writes such a file")


class WaitFile:
    """The file of one context. Any thread."""

    def __init__(self, domain: Domain) -> None:
        self._path = domain.path / "waits" / f"{secrets.token_hex(8)}.json"
        self._waits: dict[object, Wait] = {}
        self._lock = threading.RLock()  # a signal's handler may close what is shown

    def show(self, who: object, wait: Wait | None) -> None:
        """``who`` waits for this, or for nothing any more. A file that cannot be written is only not seen."""
        with self._lock:
            if self._waits.get(who) == wait:
                return
            self._waits.pop(who, None)
            if wait is not None:
                self._waits[who] = wait
            with contextlib.suppress(OSError):
                self._write()

    def texts(self) -> list[str]:
        """What is waited for, the longest first."""
        with self._lock:
            return [wait.why for wait in sorted(self._waits.values(), key=lambda wait: wait.since_ns)]

    def _write(self) -> None:
        if not self._waits:
            self._path.unlink(missing_ok=True)
            return
        self._path.parent.mkdir(mode=0o700, exist_ok=True)
        pid = os.getpid()
        said = _Waits(pid, lib.hf_process_start(pid), lib.hf_process_token(), list(self._waits.values()))
        made = self._path.with_suffix(".new")
        made.write_bytes(msgspec.json.encode(said))
        made.rename(self._path)


def wait_files(domain: Domain) -> Iterator[tuple[Path, _Waits | None, bool]]:
    """Each file, what it says if it can be read, and whether its process is proved dead."""
    try:
        names = sorted(os.listdir(domain.path / "waits"))
    except OSError:
        return
    for name in names:
        path = domain.path / "waits" / name
        try:
            with path.open("rb") as file:
                said = msgspec.json.decode(file.read(_SIZE_MAX), type=_Waits)
        except FileNotFoundError:
            continue
        except (OSError, *UNDECODABLE):
            yield path, None, False
            continue
        yield path, said, lib.hf_process_alive(domain.fd, said.token, said.pid, said.start) == 0


def waiting(domain: Domain) -> list[Wait]:
    """Who waits now."""
    found = [(said.pid, said.receivers) for _, said, dead in wait_files(domain) if said is not None and not dead]
    every = [msgspec.structs.replace(wait, pid=pid) for pid, receivers in found for wait in receivers]
    return sorted(every, key=lambda wait: (wait.topic, wait.since_ns, wait.pid))
