"""Which sources of a domain are finished and may be forgotten: nobody holds one, it has no ring, its last
message is old, and whoever has registered has acknowledged all of it.

To look at a domain costs as much as all that its stores keep. So :func:`candidates` does it once. What may
have changed when a source's turn comes is asked of its stores, and the rest of :func:`changed`, which looks
at nothing whose size grows with the number of sources.

Read-only, from the same files as ``stat``. What cannot be known keeps a source: a store on its record that
does not run, a log or a board that cannot be read, the age of its last message. The operator may give up what
receivers still have to get; what is not known nobody can give up here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ..control.waits import waiting
from ..log.catalog import TopicSource, topic_sources
from ..log.files import taken_bytes
from ..log.info_file import read_info
from ..log.timestamps import last_sent
from ..native.runtime import os, time
from ..rules.exclusions import in_force
from . import snapshot

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..memory.domain import Domain
    from .snapshot import ReceiverRow, SourceRow, StoreFiles

__all__ = ["Candidate", "candidates", "changed"]


class Candidate(msgspec.Struct, frozen=True):
    """One source that stores keep, and whether it may go."""

    topic: str
    uuid: str
    registration_ids: dict[str, int]
    """Store -> its RegID there."""
    incarnation: int
    """The newest that has begun."""
    oldest: int
    next: int
    """The numbers that can be read are ``oldest`` .. ``next - 1``."""
    bytes: int
    """Of its logs on disk or in memory, at all stores together."""
    age_ns: int | None
    """Of its last message, or since nobody holds it where none is left; None: not known."""
    owed: tuple[str, ...]
    """Receivers that have not acknowledged all of it, and how much they lack."""
    keep: str
    """Why it stays; empty: it may go."""
    gone_ns: int = 0
    """CLOCK_REALTIME since which nobody holds it, if that is its age; else 0."""
    stores: frozenset[str] = frozenset()
    """Those that keep it, and those that may."""
    places: frozenset[str] = frozenset()
    """Stores of the domain that have something where its log would be."""


def candidates(domain: Domain, older_ns: int, topic: str | None, *, force: bool) -> list[Candidate]:
    """Every source that a store keeps (of ``topic``), by topic and age, the oldest first.

    ``force``: also one that a receiver still has to get messages of, that nobody has ever registered with, or
    that a living receiver has registered with.

    Raises:
        SystemCallError: a store's directory is there, and this process cannot open it.
    """
    look = _Look(domain, older_ns, topic, force=force)
    return sorted(look.found(), key=lambda each: (each.topic, -(each.age_ns or 0), each.uuid))


def changed(domain: Domain, seen: Iterable[Candidate], *, force: bool) -> dict[str, str]:
    """By uuid, why sources that could go when they were looked at stay now, as far as their stores do not
    know."""
    stores = snapshot.store_files(domain)
    running = {store.name for store in stores if store.runs and store.info is not None and not store.info.read_only}
    waited = {} if force else {each.source: each.pid for each in waiting(domain)}
    found = {}
    for each in seen:
        silent, new = sorted(each.stores - running), sorted(_places(stores, each.uuid) - each.places)
        if silent:
            found[each.uuid] = _silent(silent)
        elif new:
            found[each.uuid] = f"store {', '.join(new)} has it by now, too"
        elif each.uuid in waited:
            found[each.uuid] = _waited_for([waited[each.uuid]])
    return found


class _Look:
    """One look at a domain."""

    def __init__(self, domain: Domain, older_ns: int, topic: str | None, *, force: bool) -> None:
        self._domain, self._older_ns, self._topic, self._force = domain, older_ns, topic, force
        self._now_ns = time.time_ns()
        self._files: list[StoreFiles] = snapshot.store_files(domain)
        self._seen = snapshot.take(domain)
        self._running = {row.name for row in self._seen.stores if row.state == "running" and not row.read_only}
        self._older = {store.name for store in self._files if store.info is not None and store.info.ready is None}
        """Of a release that forgets one source at a time, whatever has changed since somebody looked."""
        wanted = None if topic is None else topic.__eq__
        self._receivers: dict[str, list[ReceiverRow]] = {}
        for receiver in self._seen.receivers:
            self._receivers.setdefault(receiver.source_uuid, []).append(receiver)
        self._waiting: dict[str, list[int]] = {}
        for wait in self._seen.waiting:
            self._waiting.setdefault(wait.source, []).append(wait.pid)
        self._kept = {source.uuid: source for source in topic_sources(str(domain.path), wanted=wanted)}

    def found(self) -> list[Candidate]:
        return [self._candidate(row) for row in self._seen.sources if self._topic in {None, row.topic}]

    def _candidate(self, row: SourceRow) -> Candidate:
        receivers = self._receivers.get(row.uuid, [])
        owed = tuple(_lacks(each) for each in receivers if each.lag)
        kept = self._kept.get(row.uuid)
        concerned = self._concerned(row, kept) if kept is not None else set[str]()
        oldest, following = (kept.oldest, kept.any_next) if kept is not None else (row.next, row.next)
        gone = self._gone(row) if oldest == following else 0
        age = self._age(kept, gone) if kept is not None else None
        why = (
            self._unfinished(row, kept, concerned)
            or self._young(age)
            or ("" if self._force else self._needed(row, receivers, owed))
        )
        size = sum(_taken(log.path) for log in kept.logs) if kept is not None else 0
        return Candidate(
            row.topic, row.uuid, row.registration_ids, row.incarnation, oldest, following, size, age, owed, why, gone,
            frozenset(concerned), frozenset(_places(self._files, row.uuid)),
        )  # fmt: skip

    def _unfinished(self, row: SourceRow, kept: TopicSource | None, concerned: set[str]) -> str:
        """Why nobody can say that it is finished, or forget it everywhere."""
        if row.state in {"live", "nameless"}:
            return f"process {row.pid} holds it"
        if row.state != "stored":
            return f"its ring is there still ({row.state})"
        if row.board_error:
            return f"its board cannot be read: {row.board_error}"
        if kept is None:
            return "no log of it can be read"
        if kept.away:
            return f"not all of its stores can be read: {', '.join(map(str, kept.away))}"
        silent, older = sorted(concerned - self._running), sorted(concerned & self._older)
        if older and not silent:
            return f"store {', '.join(older)} runs, and is of an older release, which cannot be asked: upgrade it"
        return _silent(silent) if silent else ""

    def _concerned(self, row: SourceRow, kept: TopicSource) -> set[str]:
        """The stores that keep it, and those on its record that nobody has given up, by their own names."""
        states = [(store.listed, store.source(bytes.fromhex(row.uuid))) for store in self._files]
        given_up = in_force(source.says(state.excluded) for state, source in states if state and source)
        record = set()
        for name in kept.stores:
            info = read_info(self._domain, name)  # it may have been declared by another name, such as its port
            record.add(info.name if info is not None else name)
        return {*row.registration_ids, *(log.store for log in kept.logs), *(record - given_up)}

    def _gone(self, row: SourceRow) -> int:
        """Since when nobody holds it; 0: a store does not know that."""
        states = [store.source(bytes.fromhex(row.uuid)) for store in self._files]
        gone = [state.gone_ns for state in states if state is not None]
        return max(gone) if gone and all(gone) else 0

    def _age(self, kept: TopicSource, gone: int) -> int | None:
        if kept.oldest < kept.any_next:
            sent = last_sent([log.path for log in kept.logs], kept.any_next)
            return self._now_ns - sent if sent is not None else None
        return self._now_ns - gone if gone else None

    def _young(self, age: int | None) -> str:
        if age is None:
            return "nobody knows how old its last message is"
        return "" if age > self._older_ns else "its last message is not that old"

    def _needed(self, row: SourceRow, receivers: list[ReceiverRow], owed: tuple[str, ...]) -> str:
        """Who may still want it."""
        waiting = self._waiting.get(row.uuid, [])
        living = [f"{_called(each)} of process {each.pid}" for each in receivers if each.alive]
        if owed:
            return "; ".join(owed)
        if waiting:
            return _waited_for(waiting)
        if living:
            return f"it has a receiver that lives: {', '.join(living)}"
        states = [store.source(bytes.fromhex(row.uuid)) for store in self._files]
        met = receivers or any(state.met for state in states if state is not None)
        return "" if met else "no receiver has ever come to it"


def _silent(stores: Iterable[str]) -> str:
    return f"store {', '.join(stores)} may have it too, and takes no request now"


def _waited_for(pids: Iterable[int]) -> str:
    return f"a receiver waits for its stores: {', '.join(f'process {pid}' for pid in pids)}"


def _places(stores: Iterable[StoreFiles], uuid: str) -> set[str]:
    """Names of those that have a log of it, or had one a moment ago."""
    return {store.name for store in stores if store.info is not None and os.path.lexists(f"{store.info.logs}/{uuid}")}


def _called(receiver: ReceiverRow) -> str:
    if receiver.session_id:
        return f"session {receiver.session_id:#x}"
    return f"receiver {receiver.registration_id} without a session"


def _lacks(receiver: ReceiverRow) -> str:
    lacks = f"{_called(receiver)} lacks {receiver.lag:,} numbers"
    return lacks if receiver.known else f"{lacks} (no store knows it)"


def _taken(log: str) -> int:
    try:
        return taken_bytes(log)
    except FileNotFoundError:  # it has gone meanwhile
        return 0
