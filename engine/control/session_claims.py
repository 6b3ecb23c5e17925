"""One receiver of a session at a time (docs/semantics.md A.3), also where no store has its registration: of a
topic whose sources are all over, nobody is registered with anything.

A receiver claims a topic when a store tells it of a source there that is over. One whose sources go on needs
no claim: the stores refuse a second receiver of its session. The claims of a session are a file,
``<domain>/sessions/<session>.json``, which is changed under the domain's lock. Whoever is named there holds
what he claims as long as his object is open and the lock of his process proves that he lives (docs/design.md
12): a dead one's claims are free at once, whatever the stores do. Who is refused asks again and again, and
does not register with a source that comes back before the other one has.

A receiver of single sources claims those, and no topic: two of them may share a topic. Where one of a topic
and one of single sources meet, and where the file cannot be read or written, the stores decide as before:
two are never registered with one source.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ..errors import RegIdInUseError, TurnHeldError
from ..memory.deregistered_lines import receiver_lines
from ..native.core import lib
from ..native.runtime import os, time
from .waits import Wait
from .wire import U32, UNDECODABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from pathlib import Path

    from ..memory.domain import Domain
    from .waits import WaitFile

__all__ = ["Refused", "SessionClaims", "dead_claims"]

_log = logging.getLogger("holdfast")

RETRY_NS = 100_000_000
"""Who is refused asks again so soon: the holder may be dead by then."""
NO_ROOM_NS = 5_000_000_000
"""The same where the claim could not be written."""


class _Claim(msgspec.Struct, frozen=True):
    """What one receiver claims."""

    pid: U32
    start: int
    token: int
    who: str
    """The object: uuid, hexadecimal."""
    since_ns: int
    """CLOCK_REALTIME."""
    names: list[str]
    """Topics, each behind a ``/``; sources, by uuid, hexadecimal."""

    def __post_init__(self) -> None:
        if not (0 <= self.start < 2**64 and 0 <= self.token < 2**64):
            raise ValueError("no receiver writes such a claim")


class Refused(NamedTuple):
    """Somebody else has it."""

    name: str
    """As in a claim."""
    pid: int
    since_ns: int
    asked_ns: int
    """CLOCK_MONOTONIC."""

    def text(self, session_id: int) -> str:
        """What an event says."""
        what = f"topic {self.name[1:]!r}" if self.name.startswith("/") else f"source {self.name}"
        said = f"session ID {session_id:#x} is in use by a different receiver of {what} (pid {self.pid})"
        return f"{said}; {RegIdInUseError.hint}"


class SessionClaims:
    """What one receiver claims, see the module. The context's thread, or under ``Context.turning``.

    Args:
        waits: shows to other processes who waits.
        session_id: 0: nothing is claimed.
        who: names the receiver's object.
        refused: is told once of each holder of each name.
    """

    def __init__(
        self, domain: Domain, waits: WaitFile, session_id: int, who: bytes, refused: Callable[[Refused], object]
    ) -> None:
        self._domain, self._waits, self._session_id = domain, waits, session_id
        self._who, self._refused = who.hex(), refused
        self._path = domain.path / "sessions" / f"{session_id:016x}.json"
        self._held: set[str] = set()
        self._denied: dict[str, Refused] = {}
        self._again: dict[str, int] = {}
        """When a name is asked for again that is denied, or could not be claimed."""
        self._told: set[tuple[str, str]] = set()
        self._closed = not session_id

    def hold(self, *names: str) -> bool:
        """These are this receiver's; it claims what it has not. After :meth:`close` nothing is claimed."""
        if self._closed or self._held.issuperset(names):
            return True
        now, new = time.monotonic_ns(), [name for name in names if name not in self._held]
        if all(now < self._again.get(name, 0) for name in new):
            return self._denied.keys().isdisjoint(new)
        try:
            holder = self._claim(new)
        except (OSError, TurnHeldError) as error:
            if not self._again.keys() >= {*new}:
                _log.warning(
                    "session %#x: a second receiver may be let in: %s: %s", self._session_id, self._path, error
                )
            self._again.update(dict.fromkeys(new, now + NO_ROOM_NS))
            return self._denied.keys().isdisjoint(new)
        if holder is not None:
            self._again.update(dict.fromkeys(new, now + RETRY_NS))
            self._deny(sorted({*new} & {*holder.names}), holder, now)
            return False
        self._held.update(new)
        for name in new:
            self._again.pop(name, None)
            if self._denied.pop(name, None) is not None:
                self._waits.show((self._who, name), None)
        return True

    def _deny(self, names: Collection[str], holder: _Claim, now_ns: int) -> None:
        for name in names:
            said = self._denied[name] = Refused(name, holder.pid, holder.since_ns, now_ns)
            if (name, holder.who) not in self._told:
                self._told.add((name, holder.who))
                topic, source = (name[1:], "") if name.startswith("/") else ("", name)
                wait = Wait(topic, source, self._session_id, time.time_ns(), said.text(self._session_id))
                self._waits.show((self._who, name), wait)
                self._refused(said)

    def awaits(self, topic: str, source: bytes) -> bool:
        """This source of the topic is back, and whoever has the topic is not registered with it yet. Once it
        is, the stores refuse this receiver, and say so."""
        if f"/{topic}" not in self._denied:
            return False
        lines = receiver_lines(self._domain, source)
        return all(line.is_dead or line.session_id != self._session_id for line in lines)

    def turn(self) -> bool:
        """Asks again for what is denied, or could not be claimed. True: more is this receiver's now."""
        before = len(self._held)
        for name in list(self._again):
            self.hold(name)
        return len(self._held) > before

    @property
    def denied(self) -> bool:
        """Another receiver has something that this one is for."""
        return bool(self._denied)

    def refusal(self, since_ns: int = 0) -> RegIdInUseError | None:
        """Who has what this one is for. ``since_ns``: what was found out before is not believed."""
        for said in self._denied.values():
            if said.asked_ns >= since_ns:
                return RegIdInUseError(0, said.pid, said.since_ns / 1e9, self._session_id)
        return None

    def close(self) -> None:
        """Lets go of everything, for good. What cannot be written names an object that is closed: its process
        must end for it."""
        if self._closed:
            return
        self._closed = True
        for name in self._denied:
            self._waits.show((self._who, name), None)
        self._denied.clear()
        if self._held:
            try:
                with self._domain.exclusive():
                    self._write(list(self._others()))
            except (OSError, TurnHeldError):
                _log.warning("session %#x stays claimed until this process ends", self._session_id, exc_info=True)

    # The file, under the domain's lock ----------------------------------------------------------------------

    def _claim(self, new: Collection[str]) -> _Claim | None:
        """Claims these; or who has one of them."""
        with self._domain.exclusive():
            others = list(self._others())
            holder = next((each for each in others if not {*new}.isdisjoint(each.names)), None)
            if holder is None:
                pid = os.getpid()
                names, since_ns = sorted({*self._held, *new}), time.time_ns()
                own = _Claim(pid, lib.hf_process_start(pid), lib.hf_process_token(), self._who, since_ns, names)
                self._write([*others, own])
            return holder

    def _others(self) -> Iterator[_Claim]:
        for each in _read(self._path) or ():
            if each.who != self._who and not _is_dead(self._domain, each):
                yield each

    def _write(self, claims: list[_Claim]) -> None:
        if not claims:
            self._path.unlink(missing_ok=True)
            return
        self._path.parent.mkdir(mode=0o700, exist_ok=True)
        made = self._path.with_suffix(".new")
        made.write_bytes(msgspec.json.encode(claims))
        made.rename(self._path)


def _read(path: Path) -> list[_Claim] | None:
    """None: there is no file, or nobody can tell what it says."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=list[_Claim])
    except (FileNotFoundError, *UNDECODABLE):
        return None


def _is_dead(domain: Domain, claim: _Claim) -> bool:
    return bool(lib.hf_process_alive(domain.fd, claim.token, claim.pid, claim.start) == 0)


def dead_claims(domain: Domain) -> Iterator[Path]:
    """Files that name nobody who may live; for who holds the domain's lock."""
    try:
        names = sorted(os.listdir(domain.path / "sessions"))
    except OSError:
        return
    for name in names:
        path = domain.path / "sessions" / name
        try:
            claims = _read(path)
        except OSError:
            continue
        if name.endswith(".new") or (claims is not None and all(_is_dead(domain, each) for each in claims)):
            yield path
