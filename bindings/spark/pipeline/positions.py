"""How far stores and receivers have come, from shared memory and files: nobody is asked, and none has to
live."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...engine.log.catalog import topic_sources
from ...engine.log.dump import kept_sources
from ...engine.memory.domain import Domain
from ...engine.tools import snapshot
from .findings import Finding, ReceiverStanding, Sample, numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from ...engine.log.catalog import TopicSource
    from .findings import Kind

__all__ = ["Positions", "positions"]


NO_MESSAGES = "no-cache"
"""A repository that keeps numbers alone."""


@dataclass(frozen=True, slots=True)
class _Receiver:
    """A receiver of a source; ``ack``: first number that it has not acknowledged."""

    uuid: str
    registration_id: int
    session_id: int
    name: str
    ack: int
    alive: bool


@dataclass(frozen=True, slots=True)
class Positions:
    """Everybody at one time. Sources by uuid."""

    domain: str
    time_ns: int
    sources: Mapping[str, TopicSource]
    published: Mapping[str, int]
    """Behind the last number that is published."""
    absent: Mapping[str, Sequence[str]]
    """Stores that a source registered with, and that have no log of it."""
    logless: Sequence[Finding]
    """Sources of which no store has a log, although they are registered."""
    running: frozenset[str]
    """Stores that may get what they have not."""
    whole: bool
    """All stores were looked at: those of directories may be some of a quorum."""
    known_receivers: Sequence[_Receiver]

    def target(self, uuid: str, mark: Positions) -> int:
        """What everybody should have: what was published at the mark, except for what a new incarnation made
        void since."""
        return min(mark.published.get(uuid, 0), self.published.get(uuid, 0))

    def behind(self, uuid: str, mark: Positions) -> dict[str, int]:
        """Store -> numbers that it has not got. A source that was deregistered since has none."""
        if uuid not in self.sources:
            return {}
        target = self.target(uuid, mark)
        return {log.store: max(0, target - log.next) for log in self.sources[uuid].logs}

    def receivers(self, mark: Positions) -> list[ReceiverStanding]:
        """By source, as far as stores keep it."""
        return [
            ReceiverStanding(
                source.topic, source.key, receiver.registration_id, receiver.session_id, receiver.name, receiver.ack - 1,
                max(0, self.target(receiver.uuid, mark) - receiver.ack), receiver.alive,
            )
            for receiver in self.known_receivers
            if (source := self.sources.get(receiver.uuid)) is not None
        ]  # fmt: skip

    def may_reach(self, mark: Positions) -> bool:
        """Somebody who lives is behind the mark."""
        stores = {store for uuid in self.sources for store, lag in self.behind(uuid, mark).items() if lag}
        return bool(stores & self.running) or any(each.alive and each.lag for each in self.receivers(mark))

    def sample(self, mark: Positions) -> Sample:
        """Of everybody, also who is not behind."""
        lags: dict[str, int] = {}
        for uuid, source in self.sources.items():
            for store, lag in self.behind(uuid, mark).items():
                lags[f"{source.topic} @ {store}"] = lags.get(f"{source.topic} @ {store}", 0) + lag
        for each in self.receivers(mark):
            name = f"{each.topic} > {each.called}"
            lags[name] = lags.get(name, 0) + each.lag
        return Sample(self.time_ns, lags)

    def findings(self, mark: Positions, max_lag: int) -> Iterator[Finding]:
        """Who is further behind the mark than ``max_lag``, and what that means."""
        yield from self.logless
        for uuid, source in self.sources.items():
            yield from self._of_source(uuid, source, self.target(uuid, mark), max_lag)
        for each in self.receivers(mark):
            yield from self._of_receiver(each, max_lag)

    def _of_source(self, uuid: str, source: TopicSource, target: int, max_lag: int) -> Iterator[Finding]:
        def found(kind: Kind, store: str, first: int, text: str) -> Finding:
            return Finding(kind, source.topic, source.key, store, "", first, target, text)

        for store in self.absent.get(uuid, ()):
            yield found("absent", store, 0, f"store {store} has no log of this source, which is registered with it")
        for log in source.logs:
            if target - log.next > max_lag:
                text = f"store {log.store} has not got {numbers(log.next, target)}"
                if self.whole:
                    text += "; it runs" if log.store in self.running else "; it does not run"
                yield found("behind", log.store, log.next, text)
        if target - source.quorum_next > max_lag and (self.whole or source.quorum_next > source.oldest):
            have = ", ".join(log.store for log in source.logs if log.next > source.quorum_next)
            text = f"no quorum of its stores has {numbers(source.quorum_next, target)}; {have or 'the ring alone'} has"
            yield found("unstable", "", source.quorum_next, text)

    def _of_receiver(self, each: ReceiverStanding, max_lag: int) -> Iterator[Finding]:
        source = next(found for found in self.sources.values() if (found.topic, found.key) == (each.topic, each.source))
        first = each.ack + 1
        alive = "" if each.alive else ", and is not here"
        if each.lag > max_lag:
            text = f"receiver {each.called} has not acknowledged {numbers(first, first + each.lag)}{alive}"
            yield Finding("lag", each.topic, each.source, "", each.called, first, first + each.lag, text)
        if first < source.oldest and each.lag:
            text = f"receiver {each.called} never had {numbers(first, source.oldest)}, which no store retains any more"
            yield Finding("expired", each.topic, each.source, "", each.called, first, source.oldest, text)


def positions(
    domain: str | None, directories: Sequence[Path], wanted: Callable[[str], bool] | None = None
) -> Positions:
    """Where everybody stands in these topics: of a domain, or as far as the stores in ``directories`` know.

    Raises:
        ConfigError, CorruptionError, SystemCallError: as kept_topics.topic_sources.
    """
    found = {source.uuid: source for source in topic_sources(domain, directories, wanted=wanted)}
    if directories:
        ends = {uuid: source.any_next for uuid, source in found.items()}
        receivers = _receivers_of(directories)
        return Positions("", time.time_ns(), found, ends, {}, [], frozenset(), False, receivers)
    place = Domain(domain, join=False, make=False)
    try:
        seen, stores = snapshot.take(place), {store.name: store for store in snapshot.store_files(place)}
    finally:
        place.close()
    rows = {row.uuid: row for row in seen.sources}
    published = {uuid: max(source.any_next, rows[uuid].next if uuid in rows else 0) for uuid, source in found.items()}
    absent = {uuid: _without_log(row, stores, found.get(uuid)) for uuid, row in rows.items()}
    logless = [
        _nowhere(row, absent[row.uuid])
        for row in seen.sources
        if row.uuid not in found and absent[row.uuid] and (wanted is None or wanted(row.topic))
    ]
    known = [
        _Receiver(row.source_uuid, row.registration_id, row.session_id, row.name, row.ack + 1, row.alive)
        for row in seen.receivers
        if row.alive or row.session_id
    ]
    running = frozenset(row.name for row in seen.stores if row.state == "running")
    return Positions(place.name, time.time_ns(), found, published, absent, logless, running, True, known)


def _without_log(
    row: snapshot.SourceRow, stores: Mapping[str, snapshot.StoreFiles], source: TopicSource | None
) -> list[str]:
    """Stores that should have one: the source counts them, or its last BEGIN told of them; and they keep its
    messages."""
    uuid = bytes.fromhex(row.uuid)
    states = {name: kept for name, store in stores.items() if (kept := store.source(uuid)) is not None}
    begun = {name for kept in states.values() if kept.incarnation == row.incarnation for name in kept.peers}
    seated = {at.name for at in row.stores if at.state != "idle"}
    having = {log.store for log in source.logs} if source is not None else set()
    return [
        name
        for name in sorted((begun | seated) & stores.keys() - having)
        if name not in states or (states[name].incarnation and states[name].repository != NO_MESSAGES)
    ]


def _nowhere(row: snapshot.SourceRow, stores: Sequence[str]) -> Finding:
    key = f"{next(iter(row.registration_ids.values()), 0)}/{row.uuid[:8]}"
    text = f"none of its stores has a log of this source: {', '.join(stores)}"
    return Finding("absent", row.topic, key, ",".join(stores), "", 0, row.next, text)


def _receivers_of(directories: Sequence[Path]) -> list[_Receiver]:
    """As their stores' states know them, each by the store that knows the most: they copy acknowledgements
    lazily."""
    best: dict[tuple[str, bytes], _Receiver] = {}
    for directory in directories:
        for kept in kept_sources(directory):
            for each in kept.state.receivers if kept.state is not None else ():
                known = best.get((kept.uuid, each.uuid))
                if each.session_id and (known is None or known.ack < each.ack):
                    best[kept.uuid, each.uuid] = _Receiver(
                        kept.uuid, each.registration_id, each.session_id, "", each.ack, False
                    )
    return list(best.values())
