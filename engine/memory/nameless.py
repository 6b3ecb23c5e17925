"""Who lives here, and has shared memory whose name somebody has removed (``rm /dev/shm/hf.*``, RemoveIPC of
systemd-logind).

Traffic goes on through the mappings, but nobody new finds them, and the kernel links no name to a file that
has none. So their owner says so: to its program by an event, and to tools by a line behind the first one of
its own lock file.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING

import msgspec

from ..native.core import ffi, lib
from ..native.runtime import OfProcess, os, threading
from .domain import SHM_DIR

if TYPE_CHECKING:
    from .domain import Domain
    from .mapping import Bells

__all__ = ["LOOK_NS", "REMEDY", "BellsName", "Nameless", "missing", "nameless", "removed", "say"]

_log = logging.getLogger("holdfast")

REMEDY = (
    "receivers and stores that have it go on; new receivers and restarted stores cannot find it. Close this source and make it "
    "again, with the same session ID or RegID; restarting stores does not help"
)
LOOK_NS = 1_000_000_000
"""How often an owner looks."""
NOTES_MAX = 1 << 16
"""Bytes of a lock file that are read."""


class Nameless(msgspec.Struct, frozen=True):
    """One object, and who has it."""

    name: str
    """In /dev/shm, as it was."""
    kind: str
    """``source`` (its ring or its board), ``receiver`` (its line is on a board that nobody else finds),
    ``channel writer`` and ``channel reader`` (the same of a channel's ends), or ``bells`` (the doorbells of
    the domain, which this process waits on)."""
    uuid: str
    """Of the source or the channel; empty of the bells, as ``topic`` is."""
    topic: str
    """Of a channel: its name."""
    pid: int
    participant: str = ""
    """UUID of the receiver."""


def missing(name: str) -> bool:
    """This name is not in /dev/shm."""
    return not os.path.lexists(SHM_DIR / name)


def removed(name: str, kind: str) -> str:
    """What happened to this object of a ``kind`` that lives."""
    return f"{SHM_DIR / name} was removed while its {kind} lives (RemoveIPC, or rm)"


def say(domain: Domain, key: str, note: Nameless | None) -> None:
    """Tools see from now on what is nameless under ``key``, or that nothing is. Best effort: a full disk says
    nothing."""
    said = _said.value
    with said.lock:
        notes = said.of_domain.setdefault(domain.prefix, {})
        if notes.get(key) == note:
            return
        notes.pop(key, None)
        if note is not None:
            notes[key] = note
        text = b"".join(msgspec.json.encode(each) + b"\n" for each in notes.values())
        lib.hf_process_note(domain.fd, ffi.from_buffer("uint8_t[]", text), len(text))


class _Said:
    """By the prefix of a domain's names: what this process's lock file says there, by object."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.of_domain: dict[str, dict[str, Nameless]] = {}


_said = OfProcess(_Said)


class BellsName:
    """The name of the doorbells that one context or store waits on. One thread.

    Without it nothing is lost. Who has started since rings others, so this process wakes at its next look, 50
    ms later at most.
    """

    def __init__(self, domain: Domain, bells: Bells) -> None:
        self._domain = domain
        self._mapping = bells.mapping
        self._key = f"bells {id(self):x}"
        self._due_ns = 0
        self._gone = False  # as this one has said it: another one of this process says it for itself

    def look(self, now_ns: int) -> None:
        """Looks every LOOK_NS at most."""
        if now_ns < self._due_ns:
            return
        self._due_ns = now_ns + LOOK_NS
        gone = not self._mapping.is_named()
        if gone and not self._gone:
            _log.warning(
                "%s: what wakes it comes late; restart it when it may be", removed(self._mapping.name, "process")
            )
        self._gone = gone
        say(self._domain, self._key, Nameless(self._mapping.name, "bells", "", "", os.getpid()) if gone else None)

    def close(self) -> None:
        """This one waits there no more."""
        if self._gone:
            say(self._domain, self._key, None)


def nameless(domain: Domain) -> list[Nameless]:
    """What the living processes of a domain say, this one excepted: its own file must not be opened."""
    folder = domain.path / "processes"
    try:
        names = [name for name in sorted(os.listdir(folder)) if re.fullmatch("[0-9a-f]{12}", name)]
    except OSError:
        return []
    found: list[Nameless] = []
    for name in names:
        token = int(name, 16) << 16
        if not lib.hf_process_forked(token) or lib.hf_process_alive(domain.fd, token, 0, 0) != 1:
            continue
        try:
            with (folder / name).open("rb") as file:
                lines = file.read(NOTES_MAX).splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            try:
                found.append(msgspec.json.decode(line, type=Nameless))
            except msgspec.DecodeError:  # it is being written
                continue
    return list(dict.fromkeys(found))
