"""The streaming read: offsets, micro-batches, and acknowledgements of what Spark has made durable.

Spark keeps one object of this in one process for a query's life, and asks it in this order (reference/spark.md §2): for trigger N
``latestOffset(start = end of N - 1)``, then it writes offsets/N, then ``commit(end of N - 1)``, ``partitions(start, end)``, tasks
``read``, and it writes commits/N. After a crash the first question is ``partitions`` of the batch that was logged and not
committed. So

* everything below ``start`` of latestOffset is durable, and is acknowledged there (ackMode ``progress``): commit alone leaves
  the last batch unacknowledged. But not where a new query begins: nothing below its first offset was read by it;
* an offset says everything about a batch, so that one that is planned again is the same. A source that it does not name is read
  from number 0, the first of every source; where that is gone already, the query has lost it (failOnDataLoss), as Kafka's has;
* offsets never go back, whatever the stores' logs say.

A source keeps the name that the query's offsets have for it as long as its uuid fits: the RegID in it is one store's, and another
one may be the first that knows the source when that store is gone.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from ..engine.coverage import Spans
from ..engine.errors import ConfigError, NoDomainError
from ..engine.kept_topics import cut_points
from ..engine.records import Gap, Records
from .admission import Backlog, Patience, admitted, records_for
from .batch_reader import plan_of, read_range
from .errors import DataLossError
from .losses import skip
from .offsets import NUMBER_MAX, as_offset, positions_of
from .options import parse
from .selection import bound, check_topics, name_of, oldest, selected, starting
from .session import Session
from .splits import split

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from ..engine.kept_topics import TopicSource
    from .offsets import Positions
    from .splits import Range, Span

__all__ = ["StreamReader"]

_log = logging.getLogger("holdfast")

Name = tuple[str, str]
SAMPLE = 1024
"""Messages that the size of a record is estimated from."""
LOOK_PAUSE = 9
LOOK_PAUSE_MAX_S = 0.5
"""Pause after a look at the stores' files, in looks: they take a tenth of a core at most. An idle query asks every 10 ms, and a
look takes 0.2 ms for each log."""
HEADER_BYTES = 32
"""Of a frame, before its payload (csrc/README.md)."""


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """See the module. Made in several processes, and pickled into the tasks: nothing is open before the first question.

    Raises:
        OptionError: an option, or a column of ``schema``, is wrong.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options = parse(options, "stream")
        self._plan = plan_of(self._options, schema)
        self._initial: Positions | None = None
        """Where the query begins, if it is a new one. Spark asks several times; ``latest`` must be one place."""
        self._planned = False
        """Spark has asked for an end of a micro-batch. Before that it asks for ``partitions`` of one that a crash left undone."""
        self._drains = False
        """Spark has said AvailableNow."""
        self._target: dict[str, int] | None = None
        """Then: uuid of a source -> number to stop before, as of the first look."""
        self._sources: list[TopicSource] = []
        """As seen at the last look."""
        self._reading: frozenset[Name] = frozenset()
        """Names that were in use then."""
        self._look_s = 0.0
        """When the next look is due (monotonic)."""
        self._told: dict[Name, Spans] = {}
        """Numbers that were left out, and told."""
        self._names: dict[str, Name] = {}
        """uuid of a source -> how this query's offsets name it."""
        self._session: Session | None = None
        least, delay_s = self._options.min_records_per_trigger, self._options.max_trigger_delay
        self._patience = Patience(least, int(delay_s * 1e9)) if least is not None else None

    # Offsets --------------------------------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Where a new query begins: ``startingOffsets`` or its timestamp forms, by default at the end.

        Raises:
            OptionError, NoDomainError: what is read is not there, and the query is to end with what is there. Another one waits.
        """
        if self._initial is None:
            self._look({})
            try:
                check_topics(self._options, self._sources)
            except ConfigError as error:
                if self._drains:
                    raise
                _log.warning("%s; the query waits for it", error)
            self._initial = starting(self._options, self._sources, "latest")
        return as_offset(self._initial)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Where the next micro-batch ends: ``start`` itself when there is nothing for it.

        Raises:
            DataLossError: with failOnDataLoss: what comes next in a source is expired; or its stores have less than the query
                has read, and what they get now comes under numbers that it takes for read.
            RegIdInUseError: another query has this one's session.
        """
        positions = positions_of(start)
        self._planned = True
        self._look(positions)
        if self._options.ack_mode == "progress" and positions != self._initial:
            self._acknowledge(positions)
        backlogs = {}
        for source in self._sources:
            name = self._names[source.uuid]
            begin = positions.get(name, 0)
            if source.any_next < begin:
                self._lost(name, source.any_next, begin, "gone, and the query has read them: its stores were set back")
            stop = self._stop(source)
            backlogs[name] = Backlog(self._behind_expired(name, source, begin, stop), stop)
        stops = self._admitted(backlogs, limit)
        return as_offset(positions | {name: stop for name, stop in stops.items() if name in positions or stop})

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
        """About how many bytes of a log one record takes, of each source with a backlog: by what comes next."""
        return {
            name: _record_bytes(source, backlogs[name])
            for source in self._sources
            if (name := self._names[source.uuid]) in backlogs and backlogs[name].records
        }

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """What Spark passes to latestOffset, but for a trigger that wants everything: only then it is ReadAllAvailable where a
        limit was given. What it cannot say (two limits at once, a least number) latestOffset knows from the options."""
        options = self._options
        if options.max_records_per_trigger is not None:
            return ReadMaxRows(options.max_records_per_trigger)
        if options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        return ReadMaxRows(NUMBER_MAX) if options.min_records_per_trigger is not None else ReadAllAvailable()

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        """The newest that any store has: the query's lag, in its progress. And how many numbers this run has left out, if any:
        Spark knows no other metric of such a source."""
        found = as_offset({self._names[source.uuid]: source.any_next for source in self._sources})
        lost = {name: sum(stop - first for first, stop in spans) for name, spans in self._told.items() if spans}
        if lost:
            found["lost"] = as_offset(lost)["topics"]
        return found

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """What is there at the next look is the target; latestOffset never passes it, and no source comes in later."""
        self._drains = True

    # A micro-batch --------------------------------------------------------------------------------------------------------

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[Range]:
        """The tasks of the micro-batch from ``start`` to ``end``; the same rows whenever it is asked.

        Raises:
            DataLossError: numbers of the batch are expired, or their source is gone, with failOnDataLoss.
            RegIdInUseError: another query has this one's session.
        """
        before, after = positions_of(start), positions_of(end)
        self._look(after)
        sources = {self._names[source.uuid]: source for source in self._sources}
        spans: list[Span] = []
        anew = not self._planned and before == self._initial  # the first batch, of which Spark has kept no start
        behind = anew and all(before.get(name, 0) >= stop for name, stop in after.items())
        for name, stop in after.items():
            first = before.get(name, 0)
            if first > stop or (behind and stop):
                skipped = stop if first > stop else stop - 1  # that one at least, where nothing has come since
                self._lost(
                    name, skipped, first, "left out: the query begins behind its first batch, which was not done"
                )
            elif first < stop and name not in sources:
                self._lost(name, first, stop, "gone: no store keeps this source any more")
            elif first < stop:
                spans.append((sources[name], self._behind_expired(name, sources[name], first, stop), stop))
        return split(spans, self._options, cut_points)

    def _behind_expired(self, name: Name, source: TopicSource, first: int, stop: int) -> int:
        """Where numbers ``first`` .. ``stop - 1`` begin that are not expired; nobody walks through those that are."""
        begin = min(oldest(source, self._options), stop)
        if first < begin:
            self._lost(name, first, begin, "expired")
        return max(first, begin)

    def _lost(self, name: Name, first: int, stop: int, why: str) -> None:
        """Ends the query, or says what of it was not said yet."""
        told = self._told.setdefault(name, Spans())
        for new, end in list(told.gaps(first, stop)):
            skip(self._options, DataLossError(*name, new, end - 1, why))
            told.add(new, end)

    def read(self, partition: Range) -> Iterator[pa.RecordBatch]:  # type: ignore[override]
        """One task's messages."""
        return read_range(partition, self._plan)

    # Acknowledgements -----------------------------------------------------------------------------------------------------

    def commit(self, end: dict[str, Any]) -> None:
        """Spark has made the batch up to ``end`` durable. Never fails: that would end the query."""
        if self._options.ack_mode != "none":
            self._acknowledge(positions_of(end))

    def stop(self) -> None:
        """Frees the session."""
        if self._session is not None:
            self._session.close()

    def _look(self, positions: Positions) -> None:
        """At what there is now; ``positions``: names that are in use. Registers the session with every source."""
        reading = frozenset(positions)
        if time.monotonic() >= self._look_s or reading != self._reading:
            before_s, self._reading = time.thread_time(), reading
            try:
                self._sources = selected(self._options, reading)
            except NoDomainError:  # it may come; its sources may be back
                self._sources = []
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

    def _acknowledge(self, positions: Positions) -> None:
        if self._session is not None:
            uuids = {name: bytes.fromhex(uuid) for uuid, name in self._names.items()}
            self._session.acknowledge({uuids[name]: number for name, number in positions.items() if name in uuids})


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
