"""All that can be read of a topic, without being anybody: its sources one after another, from the stores'
logs and from the rings that are there.

Nobody is registered, joined or asked, and nothing is written. How far is settled when a :class:`TopicReader`
is made: what is published later is not read. Logs are asked first, by the rules of every reader
(engine/log/column_reader.py). What they lack, the ring may have. A ring may lose it in between, and then the
logs have it: so they are asked once more.

A number that nobody has is left out only where nobody else can have it. Else the read ends there with an
error, after all that comes before it:

* a store on record cannot be read (engine/log/sight.py): StoresAwayError. It does not matter where a store in
  sight had the number and let it go, or, behind the last number, where those that are away are too few for
  anything to be stable.
* a store has it, damaged, and no other one has it whole: CorruptionError.
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, NamedTuple

from ..errors import CorruptionError, StoresAwayError
from ..memory.discovery import Discovery
from ..memory.domain import Domain
from ..native.runtime import Path
from ..rules.reconcile import FOR_EVER
from .catalog import TopicSource, logs_away, suffice, topic_sources
from .column_reader import Gap, Records
from .columns import Columns, ColumnsMaker
from .info_file import had, log_range
from .reader import Block, Logs
from .register import entries_of
from .ring_copy import RingCopy
from .sight import Away, Sight, stores_away
from .timestamps import first_sent, first_sent_since

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator

    from ..memory.discovery import Found

__all__ = ["Edge", "Sent", "TopicReader"]

_log = logging.getLogger("holdfast")

ROWS = 16384
BYTES = 16 << 20
OVERTAKEN_MAX = 8
"""Tries to find the first message of a ring whose source overtakes the look."""
"""Of one piece; a single larger message makes one alone."""


class Sent(NamedTuple):
    """The first message that was sent then, or later; CLOCK_REALTIME."""

    timestamp_ns: int


Edge = int | Sent | None
"""Where a read begins or ends: a number, a time, or None for all."""


class TopicReader:
    """See the module.

    Args:
        domain: its name; None is the default one.
        start, end: of each source; ``end`` is exclusive.

    Raises:
        ConfigError: no such domain can be.
        NoDomainError: the domain is not there.
        SystemCallError: a store's directory is there, and this process cannot open it.
    """

    def __init__(self, domain: str | None, topic: str, start: Edge = None, end: Edge = None) -> None:
        self._topic = topic
        with contextlib.closing(Domain(domain, join=False, make=False)) as opened:
            rings = _rings(opened, topic)  # before the logs: what a ring has lost meanwhile is there
            sight = Sight(opened)
            kept = {source.uuid: source for source in topic_sources(domain, wanted=lambda name: name == topic)}
            listed = {source.uuid.hex(): source.topic for store in sight.stores for source in store.state.sources}
            found = {uuid for uuid, name in listed.items() if name == topic} | kept.keys() | rings.keys()
            self._absent = _absent(opened, sight, listed.keys() | found, found)
        sources = [
            _Source(kept.get(uuid) or _unkept(domain, topic, uuid, rings.get(uuid)), rings.get(uuid), start, end)
            for uuid in sorted(found)
        ]
        self._sources = sorted(sources, key=lambda source: source.began_ns)

    def read(self) -> Iterator[tuple[str, Columns]]:
        """The uuid of a source, and its next messages.

        Raises:
            StoresAwayError, CorruptionError: see the module.
            MessageTooLargeError: a message of 2 GiB or more.
            SystemCallError: a log is there, and this process cannot read it (EACCES, EMFILE, ENOMEM).
            ForkedHandleError: this was made in the parent process.
        """
        for source in self._sources:
            for columns in source.read():
                yield source.uuid, columns
        if self._absent:
            raise StoresAwayError(f"topic {self._topic} may have sources that are at no store in sight", self._absent)


def _rings(domain: Domain, topic: str) -> dict[str, tuple[Found, RingCopy]]:
    """By uuid: the newest rings of a topic's sources."""
    discovery = Discovery(domain)
    found = {}
    for source in discovery.sources():
        if source.topic == topic and (rings := discovery.streams(source.uuid)):
            ring = RingCopy.attach(rings[-1][1])
            if ring is not None:
                found[source.uuid.hex()] = source, ring
    return found


def _absent(domain: Domain, sight: Sight, listed: set[str], of_topic: set[str]) -> tuple[Away, ...]:
    """Stores out of sight that may keep sources of the topic which nobody in sight knows.

    These are all of them where nobody knows the topic. Else it is those that are enough for a source which
    the register has, and nobody knows: its file does not tell of which topic that is.
    """
    excluded = sight.called({name for store in sight.stores for name in store.state.excluded})
    unread = {name: why for name, why in sight.unread.items() if name not in excluded}
    if unread and of_topic:
        lists = [entry.configuration for entry in entries_of(domain.path, "") if entry.uuid not in listed]
        seen = {store.name for store in sight.stores} | excluded
        needed = {
            name for each in lists if suffice(each.groups, each.stores, set(each.stores) - seen) for name in each.stores
        }
        unread = {name: why for name, why in unread.items() if name in needed}
    return tuple(Away(name, FOR_EVER, why) for name, why in sorted(unread.items()))


def _unkept(domain: str | None, topic: str, uuid: str, ring: tuple[Found, RingCopy] | None) -> TopicSource:
    """A source of which no store in sight has a log."""
    found = ring[0] if ring is not None else None
    stores = found.stores if found is not None else ()
    away = () if found is not None and not stores else stores_away(domain, topic, uuid, stores)
    session = found.session_id if found is not None else 0
    return TopicSource(topic, uuid, 0, session, (), 0, 0, 0, stores, away)


class _Source:
    """One source, and which of its numbers are read."""

    def __init__(self, kept: TopicSource, found: tuple[Found, RingCopy] | None, start: Edge, end: Edge) -> None:
        self._kept = kept
        self.uuid = kept.uuid
        self._ring = found[1] if found is not None else None
        self._block = Block()
        self._stop = max(kept.any_next, self._ring.next() if self._ring is not None else 0)
        """Behind what was published, as far as it can be seen."""
        oldest, last, self.began_ns = self._first_sent()
        self._first = oldest
        self._head = 0
        """The number that must be accounted for before the first one is read."""
        if isinstance(start, int):
            self._first = self._head = start
        elif start is not None:
            self._first = self._since(start, oldest)
            self._head = 0 if self._first <= last else self._first
        published = self._stop
        if isinstance(end, int):
            self._stop = min(published, end)
        elif end is not None:
            self._stop = min(published, self._since(end, oldest))
        self._open_end = self._stop == published and not (isinstance(end, int) and end <= published)
        self._asked_twice = -1

    def _first_sent(self) -> tuple[int, int, int]:
        """The first message that is kept: its first number, its last one, and when it was sent."""
        kept, found = self._kept, None
        logs = Logs([log.path for log in kept.logs])
        try:
            found = first_sent(logs, self._block, kept.oldest, kept.any_next) if kept.logs else None
        finally:
            logs.close()
        if found is not None:
            return kept.oldest, *found
        if kept.logs and kept.oldest < kept.any_next:
            return kept.oldest, kept.any_next - 1, FOR_EVER  # who reads it is told why it cannot be read
        if self._ring is None:
            return self._stop, self._stop, FOR_EVER
        for _ in range(OVERTAKEN_MAX):
            first = self._ring.first_sent(self._block, self._stop)
            if first is not None:
                return first
        oldest = self._ring.oldest()
        return self._stop if oldest is None else min(oldest, self._stop), self._stop - 1, FOR_EVER

    def _since(self, when: Sent, oldest: int) -> int:
        """The first number that was sent then or later."""
        kept, number = self._kept, oldest
        if kept.logs:
            logs = Logs([log.path for log in kept.logs])
            try:
                number = first_sent_since(logs, self._block, kept.oldest, kept.any_next, when.timestamp_ns)
            finally:
                logs.close()
            if number < kept.any_next or self._ring is None:
                return number
        if self._ring is None:
            return self._stop
        return self._ring.first_since(when.timestamp_ns, number, self._block, self._stop)

    def read(self) -> Iterator[Columns]:
        """See TopicReader.read."""
        if self._head < self._first < self._stop:
            self._missed(Gap(self._head, self._first, "expired"))
        if self._first < self._stop:
            yield from self._messages()
        kept = self._kept
        if self._ring is None and self._open_end and kept.stable_below > max(kept.any_next, self._first):
            self._check_away(max(self._stop, self._first), kept.stable_below - 1, kept.away)

    def _messages(self) -> Iterator[Columns]:
        number, stop, ring = self._first, self._stop, self._ring
        begun = (ring.incarnation, ring.start_sqn) if ring is not None else (0, 0)
        records = Records(self._kept.logs, number, stop, begun=begun) if self._kept.logs else None
        with contextlib.closing(records or contextlib.ExitStack()):
            while number < stop:
                found = records.read(ROWS, BYTES) if records is not None else Gap(number, stop, "missing")
                if found is None:  # the message that has the number ends behind what is asked for
                    return
                if records is not None and ring is not None and records.incarnation > ring.incarnation:
                    ring = None  # its stores have drained it before they let the next one begin
                if isinstance(found, Columns):
                    yield found
                    number = int(found.sequence_number[-1]) + 1
                    continue
                number = yield from self._behind(found, ring)
                if records is not None:
                    records.seek(number)

    def _behind(self, gap: Gap, ring: RingCopy | None) -> Generator[Columns, None, int]:
        """What the ring has of numbers that no log gives. Returns the next number."""
        number, block = gap.first, self._block
        following = gap.next
        if ring is not None:
            has: bool | None = True
            while number < self._stop and (has := ring.fill(number, block, self._stop)):
                while block.left:
                    made = ColumnsMaker(block, min(ROWS, self._stop - number), BYTES, values=True, crc=False)
                    made.take(block)
                    number = made.next
                    yield made.columns("")
            if has is None:
                return self._stop
            if number > gap.first:
                return number
            if number != self._asked_twice:
                self._asked_twice = number
                return number
            oldest = ring.oldest()
            if oldest is not None and oldest > number:
                following = min(following, oldest)
        self._missed(Gap(number, following, gap.why))
        return following

    def _missed(self, gap: Gap) -> None:
        """Returns where nobody else can have these numbers, or needs to be asked."""
        if gap.why == "expired" and self._let_go(gap.first):
            return
        kept = self._kept
        self._check_away(gap.first, gap.next - 1, [*kept.away, *logs_away(kept.logs)])
        what = f"topic {kept.topic}, source {kept.key}: numbers {gap.first}..{gap.next - 1} are"
        if gap.why == "damaged":
            raise CorruptionError(
                f"{what} damaged at every store that has them",
                hint=f"holdfast store check says where; start={gap.next} reads on behind them",
            )
        if gap.why != "expired":
            _log.warning("%s %s, and no store has them", what, gap.why)

    def _let_go(self, number: int) -> bool:
        """A store in sight had it, and retention took it: it is not asked for elsewhere."""
        paths = [Path(log.path) for log in self._kept.logs]
        return any((known := log_range(path)) is not None and number < known[0] and had(path, number) for path in paths)

    def _check_away(self, first: int, last: int, away: Iterable[Away]) -> None:
        may_have = {each.store: each for each in away if first < each.below}
        if may_have:
            numbers = f"{first}..{last}" if last < FOR_EVER - 1 else f"from {first} on"
            what = f"topic {self._kept.topic}, source {self._kept.key}: numbers {numbers} are at no store in sight"
            raise StoresAwayError(what, list(may_have.values()))
