"""The streaming read: offsets, micro-batches, and acknowledgements of what Spark has made durable.

Spark keeps one object of this in one process for a query's life, and asks it in this order (docs/design.md
S.2): for trigger N ``latestOffset(start = end of N - 1)``, then it writes offsets/N, then ``commit(end of N -
1)``, ``partitions(start, end)``, tasks ``read``, and it writes commits/N. After a crash the first question is
``partitions`` of the batch that was logged and not committed. So

* everything below ``start`` of latestOffset is durable, and is acknowledged there (ackMode ``progress``):
  commit alone leaves the last batch unacknowledged. But not where a new query begins: nothing below its first
  offset was read by it;
* an offset says everything about a batch, so that one that is planned again is the same. Of the first batch
  it also says where that begins: Spark keeps an offset for the end of each batch only, and asks anew where
  the query begins. A source that an offset does not name is read from number 0, the first of every source;
  where that is gone already, the query has lost it (failOnDataLoss), as Kafka's has;
* offsets never go back, whatever the stores' logs say;
* what is at no store in sight is lost when every store on record was read, and not before: until then the
  query ends with StoresAwayError, whatever failOnDataLoss says. A continuous one that has nothing to read of
  an absent source waits for it.

A source keeps the name that the query's offsets have for it as long as its uuid fits: the RegID in it is one
store's, and another one may be the first that knows the source when that store is gone.
"""

from __future__ import annotations

import logging
import secrets
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from ..engine.errors import ConfigError, NoDomainError
from ..engine.log.catalog import cut_points
from ..engine.log.column_reader import Gap, Records
from ..engine.log.sight import stores_away
from .admission import Backlog, Patience, admitted, records_for
from .batch_reader import plan_of, read_range
from .errors import DataLossError, StoresAwayError
from .losses import Losses, query_of
from .offsets import NUMBER_MAX, Lineage, as_offset, lineage_of, positions_of
from .options import parse
from .selection import bound, check_topics, name_of, newest, no_domain, oldest, selected, starting
from .session import Session
from .splits import split

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from ..engine.log.catalog import TopicSource
    from ..engine.log.sight import Away
    from .offsets import Positions
    from .splits import Range, Span

__all__ = ["StreamReader"]

_log = logging.getLogger("holdfast")

Name = tuple[str, str]
SAMPLE = 1024
"""Messages that the size of a record is estimated from."""
LOOK_PAUSE = 9
LOOK_PAUSE_MAX_S = 0.5
"""Pause after a look at the stores' files, in looks: they take a tenth of a core at most. An idle query asks
every 10 ms, and a look takes 0.2 ms for each log."""
HEADER_BYTES = 32
"""Of a frame, before its payload (csrc/README.md)."""


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """See the module. Made in several processes, and pickled into the tasks: nothing is open before the first
    question.

    Raises:
        OptionError: an option, or a column of ``schema``, is wrong.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options = parse(options, "stream")
        self._plan = plan_of(self._options, schema)
        self._initial: Positions | None = None
        """Where the query begins, if it is a new one. Spark asks several times; ``latest`` must be one
        place."""
        self._begin: dict[str, Any] = {}
        """That, as an offset."""
        self._identity = ""
        """Of the query, over all its runs: its offsets carry it."""
        self._planned = False
        """Spark has asked for an end of a micro-batch. Before that it asks for ``partitions`` of one that a
        crash left undone."""
        self._drains = False
        """Spark has said AvailableNow."""
        self._target: dict[str, int] | None = None
        """Then: uuid of a source -> number to stop before, as of the first look."""
        self._sources: list[TopicSource] = []
        """As seen at the last look."""
        self._reading: frozenset[Name] = frozenset()
        """Names that were in use then."""
        self._unseen: dict[Name, tuple[Away, ...]] = {}
        """Of these, those whose sources were not in sight, and the stores that may keep them."""
        self._is_there = True
        """So was the domain."""
        self._said = ""
        """What was said last of absent sources."""
        self._look_s = 0.0
        """When the next look is due (monotonic)."""
        self._losses = Losses(self._options)
        self._names: dict[str, Name] = {}
        """uuid of a source -> how this query's offsets name it."""
        self._session: Session | None = None
        least, delay_s = self._options.min_records_per_trigger, self._options.max_trigger_delay
        self._patience = Patience(least, int(delay_s * 1e9)) if least is not None else None

    # Offsets ------------------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Where a new query begins: ``startingOffsets`` or its timestamp forms, by default at the end.

        Raises:
            OptionError, NoDomainError: what is read is not there, and the query is to end with what is there.
                Another one waits.
        """
        if self._initial is None:
            self._look({}, Lineage())
            try:
                check_topics(self._options, self._sources)
            except ConfigError as error:
                if self._drains:
                    raise
                _log.warning("%s; the query waits for it", error)
            self._initial = starting(self._options, self._sources, "latest")
            self._begin = as_offset(self._initial, self._lineage(Lineage(), self._initial))
        return self._begin

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Where the next micro-batch ends: ``start`` itself when there is nothing for it.

        Raises:
            DataLossError: with failOnDataLoss: what comes next in a source is expired; or its stores have
                less than the query has read, and what they get now comes under numbers that it takes for
                read.
            StoresAwayError: that may be at a store that is away; the domain is not there; a source of a query
                that ends with what is there is not in sight.
            RegIdInUseError: another query has this one's session.
        """
        positions, lineage = positions_of(start), lineage_of(start)
        self._planned = True
        self._look(positions, lineage)
        self._check_sight(positions)
        self._losses.write()
        if self._options.ack_mode == "progress" and positions != self._initial:
            self._acknowledge(positions)
        backlogs = {}
        for source in self._sources:
            name = self._names[source.uuid]
            begin = positions.get(name, 0)
            if source.any_next < begin:
                why = "gone, and the query has read them: its stores were set back"
                self._lost(name, source.any_next, begin, why, source.away)
            stop = self._stop(source)
            backlogs[name] = Backlog(self._behind_expired(name, source, begin, stop), stop)
        stops = self._admitted(backlogs, limit)
        following = positions | {name: stop for name, stop in stops.items() if name in positions or stop}
        if following == positions:
            return start
        return as_offset(following, self._lineage(lineage, positions if lineage.began == positions else None))

    def _lineage(self, before: Lineage, began: Positions | None) -> Lineage:
        """What an offset of this query says of it."""
        stores = {store for source in self._sources for store in source.stores}
        return Lineage(self._identity, began, tuple(stores.union(before.stores if self._unseen else ())))

    def _check_sight(self, positions: Positions) -> None:
        """Raises StoresAwayError where a query that has read something, or is to end, would take absent for
        empty."""
        if not self._is_there and (positions or self._drains):
            raise no_domain(self._options)
        for (topic, key), away in self._unseen.items():
            absent = StoresAwayError(f"topic {topic}, source {key} is at no store in sight", away)
            if away and self._drains:
                raise absent
            if away and str(absent) != self._said:
                _log.warning("%s; the query waits for it", absent)
                self._said = str(absent)

    def _stop(self, source: TopicSource) -> int:
        """Number to stop before: nothing newer is read yet."""
        return bound(source, self._options) if self._target is None else self._target.get(source.uuid, 0)

    def _admitted(self, backlogs: dict[Name, Backlog], limit: ReadLimit) -> dict[Name, int]:
        """Where a micro-batch of at most ``limit`` ends in each source."""
        records = sum(backlog.records for backlog in backlogs.values())
        most: int | None = None
        if isinstance(limit, ReadAllAvailable):  # whatever the options say
            return admitted(backlogs, None)
        if self._target is None and self._patience is not None and self._patience.waits(records, time.monotonic_ns()):
            return {name: backlog.start for name, backlog in backlogs.items()}
        if isinstance(limit, ReadMaxRows) and limit.max_rows < records:
            most = limit.max_rows
        limit_bytes = limit.max_bytes if isinstance(limit, ReadMaxBytes) else self._options.max_bytes_per_trigger
        if limit_bytes is not None and records:
            by_bytes = records_for(limit_bytes, backlogs, self._record_bytes(backlogs))
            most = by_bytes if most is None else min(most, by_bytes)
        return admitted(backlogs, most)

    def _record_bytes(self, backlogs: dict[Name, Backlog]) -> dict[Name, float]:
        """About how many bytes of a log one record takes, of each source with a backlog: by what comes
        next."""
        return {
            name: _record_bytes(source, backlogs[name])
            for source in self._sources
            if (name := self._names[source.uuid]) in backlogs and backlogs[name].records
        }

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """What Spark passes to latestOffset, except for a trigger that wants everything: only then it is
        ReadAllAvailable where a limit was given. What it cannot say (two limits at once, a least number)
        latestOffset knows from the options."""
        options = self._options
        if options.max_records_per_trigger is not None:
            return ReadMaxRows(options.max_records_per_trigger)
        if options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        return ReadMaxRows(NUMBER_MAX) if options.min_records_per_trigger is not None else ReadAllAvailable()

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        """The newest that any store has: the query's lag, in its progress. And how many numbers this run has
        left out where it planned, if any: Spark knows no other metric of such a source. What tasks find is in
        the ledger."""
        found = as_offset({self._names[source.uuid]: source.any_next for source in self._sources})
        if lost := self._losses.counts():
            found["lost"] = as_offset(lost)["topics"]
        return found

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """What is there at the next look is the target; latestOffset never passes it, and no source comes in
        later."""
        self._drains = True

    # A micro-batch ------------------------------------------------------------------------------------------

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[Range]:
        """The tasks of the micro-batch from ``start`` to ``end``; the same rows whenever it is asked.

        Raises:
            DataLossError: numbers of the batch are expired, or their source is gone, with failOnDataLoss.
            StoresAwayError: they may be at a store that is away.
            RegIdInUseError: another query has this one's session.
        """
        before, after, lineage = positions_of(start), positions_of(end), lineage_of(end)
        self._look(after, lineage)
        self._check_sight(after)
        self._losses.write()
        if start == end:  # of a source that has nothing new: not its first batch once more
            return []
        if lineage.began is not None:
            before = lineage.began
        else:
            self._check_begin(before, after)
        sources = {self._names[source.uuid]: source for source in self._sources}
        spans: list[Span] = []
        for name, stop in after.items():
            first = before.get(name, 0)
            if first < stop and name in sources:
                spans.append(self._there(name, sources[name], first, stop))
            elif first < stop:
                self._lost(name, first, stop, "gone: no store keeps this source any more", self._unseen.get(name, ()))
        keys = {(source.topic, source.key): self._names[source.uuid][1] for source in self._sources}
        query = query_of(self._options, self._identity)
        parts = split(spans, self._options, cut_points)
        return [replace(part, key=keys[part.topic, part.key], query=query) for part in parts]

    def _check_begin(self, before: Positions, after: Positions) -> None:
        """Says what of a first batch is left out, where its offset has no start, as those of 0.1.0 had none:
        the query may begin behind that batch now. Of each source its last number at least."""
        if self._planned or before != self._initial:
            return
        behind = all(before.get(name, 0) >= stop for name, stop in after.items())
        for name, stop in after.items():
            if stop and (behind or before.get(name, 0) > stop):
                why = "left out, and what came before in its batch: the query begins behind it, and that batch was not done"
                self._lost(name, stop - 1, stop, why, ())

    def _there(self, name: Name, source: TopicSource, first: int, stop: int) -> Span:
        """What can be read of numbers ``first`` .. ``stop - 1``. They were there when their batch was planned
        first."""
        end = max(first, min(stop, newest(source, self._options)))
        if end < stop:
            self._lost(name, end, stop, "gone: its stores were set back", source.away)
        return source, self._behind_expired(name, source, first, end), end

    def _behind_expired(self, name: Name, source: TopicSource, first: int, stop: int) -> int:
        """Where numbers ``first`` .. ``stop - 1`` begin that are not expired; nobody walks through those that
        are."""
        begin = min(oldest(source, self._options), stop)
        if first < begin:
            self._lost(name, first, begin, "expired", source.away)
        return max(first, begin)

    def _lost(self, name: Name, first: int, stop: int, why: str, away: Iterable[Away]) -> None:
        """Ends the query, or says what of it was not said yet."""
        self._losses.tell(query_of(self._options, self._identity), DataLossError(*name, first, stop - 1, why), away)

    def read(self, partition: Range) -> Iterator[pa.RecordBatch]:  # type: ignore[override]
        """One task's messages."""
        return read_range(partition, self._plan)

    # Acknowledgements ---------------------------------------------------------------------------------------

    def commit(self, end: dict[str, Any]) -> None:
        """Spark has made the batch up to ``end`` durable. Never fails: that would end the query."""
        if self._options.ack_mode != "none":
            self._acknowledge(positions_of(end))

    def stop(self) -> None:
        """Frees the session."""
        if self._session is not None:
            self._session.close()

    def _look(self, positions: Positions, lineage: Lineage) -> None:
        """At what there is now; ``positions``: names that are in use. Registers the session with every
        source."""
        self._identity = lineage.query or self._identity or secrets.token_hex(4)
        reading = frozenset(positions)
        if time.monotonic() >= self._look_s or reading != self._reading:
            before_s, self._reading = time.thread_time(), reading
            try:
                self._sources, self._is_there = selected(self._options, reading), True
                self._unseen = self._absent(lineage)
            except NoDomainError:  # it may come; its sources may be back
                self._sources, self._is_there, self._unseen = [], False, {}
            pause_s = LOOK_PAUSE * (time.thread_time() - before_s)
            self._look_s = time.monotonic() + min(pause_s, LOOK_PAUSE_MAX_S)
        if self._drains and self._target is None:
            self._target = {source.uuid: bound(source, self._options) for source in self._sources}
        own = {name_of(source) for source in self._sources}
        others = {(topic, _uuid_part(key)): (topic, key) for topic, key in positions if (topic, key) not in own}
        for source in self._sources:
            name = topic, key = name_of(source)
            if name not in positions:
                name = others.get((topic, _uuid_part(key)), self._names.get(source.uuid, name))
            self._names[source.uuid] = name
        if self._options.session is not None and self._sources:  # without: its context would make the domain
            if self._session is None:
                self._session = Session(self._options)
            self._session.join({bytes.fromhex(source.uuid) for source in self._sources})

    def _absent(self, lineage: Lineage) -> dict[Name, tuple[Away, ...]]:
        """Names in use whose sources are not in sight, and the stores that may keep them."""
        seen = {(source.topic, source.uuid[:8]) for source in self._sources}
        return {
            (topic, key): stores_away(self._options.domain, topic, _uuid_part(key), lineage.stores)
            for topic, key in self._reading
            if (topic, _uuid_part(key)) not in seen
        }

    def _acknowledge(self, positions: Positions) -> None:
        if self._session is not None:
            uuids = {name: bytes.fromhex(uuid) for uuid, name in self._names.items()}
            self._session.acknowledge({uuids[name]: number for name, number in positions.items() if name in uuids})
            if self._drains:  # Spark may end this process as soon as it has its answer
                self._session.settle()


def _uuid_part(key: str) -> str:
    return key.partition("/")[2]


def _record_bytes(source: TopicSource, backlog: Backlog) -> float:
    """Of the first messages of the backlog; 1 where there is nothing but a gap."""
    records = Records(source.logs, backlog.start, min(backlog.bound, backlog.start + SAMPLE))
    try:
        found = records.read(SAMPLE)
        if isinstance(found, Gap):
            found = records.read(SAMPLE)
        if found is None or isinstance(found, Gap) or not found.count:
            return 1.0
        numbers = int(found.sequence_number[-1]) - int(found.first_sequence_number[0]) + 1
        return HEADER_BYTES + len(found.values) / numbers
    finally:
        records.close()
