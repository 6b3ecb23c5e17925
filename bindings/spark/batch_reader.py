"""A batch read: planned into ranges where Spark plans, read as Arrow batches where Spark's tasks run.

:func:`read_range` is a plain function of values that can be pickled; streams read by it, too. Nothing is open
between its calls.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema

from ..engine.log.catalog import cut_points, first_number_since, logs_away
from ..engine.log.column_reader import Gap, Records
from .decode import Decoder, bits_of
from .errors import DataLossError
from .losses import check_away, query_of, record, skip
from .options import parse
from .pushdown import EVERYTHING, narrowed
from .schema import ASKED, METADATA, checked
from .selection import check_topics, ending, name_of, oldest, selected, starting
from .splits import Range, split
from .worker import spare_modules

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType

    from ..engine.log.catalog import TopicSource
    from .options import Options, ValueFormat
    from .pushdown import Narrowing
    from .splits import Span

__all__ = ["BatchReader", "FilteringBatchReader", "Plan", "check_place", "plan_of", "read_range"]

_log = logging.getLogger("holdfast")

BATCH_ROWS = 16384
BATCH_BYTES = 16 << 20
"""Of a record batch; a single larger message makes one alone."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What tasks make of their ranges."""

    schema: StructType
    value_format: ValueFormat
    fail_on_data_loss: bool
    query: str = ""
    """What the ledger of losses calls it."""

    @property
    def values(self) -> bool:
        """Whether payloads are looked at: how many rows an Arrow payload is, it says itself."""
        return self.value_format.kind == "arrow" or not {*METADATA, *ASKED}.issuperset(self.schema.names)


def plan_of(options: Options, schema: StructType) -> Plan:
    """The plan of a query whose columns are ``schema``.

    Raises:
        OptionError: the schema is none that these options can give.
    """
    return Plan(checked(schema, options), options.value_format, options.fail_on_data_loss, query_of(options))


def read_range(part: InputPartition, plan: Plan) -> Iterator[pa.RecordBatch]:
    """The rows of a range, in the order of their numbers. What is damaged at one store is read from another.

    Raises:
        PlacementError: the logs are on another host, or not in sight of this process. Nothing was read then.
        DataLossError: numbers that no store has, with failOnDataLoss; without, they are skipped, and told.
        StoresAwayError: numbers that no store in sight has, while others are away.
        MalformedError: a payload is not what valueFormat says.
    """
    if not isinstance(part, Range):  # what Spark makes of a plan without ranges
        return
    spare_modules()
    check_place(part)
    schema = to_arrow_schema(plan.schema, timezone="UTC")
    decoder = Decoder(part, schema, plan.value_format)
    records = Records(
        part.logs, part.first, part.stop, values=plan.values, crc="crc" in plan.schema.names, stores=part.stores
    )
    try:
        while (found := records.read(BATCH_ROWS, BATCH_BYTES)) is not None:
            if isinstance(found, Gap):
                _lost(part, found, plan)
            else:
                yield from decoder.batches(found)
            del found  # its memory serves the next ones
    finally:
        records.close()


def check_place(part: Range) -> None:
    """Raises PlacementError where the logs of a range are not: they are files of one host, and may be in its
    memory."""
    part.place.check(f"the logs of topic {part.topic}, source {part.key} are")


def _lost(part: Range, gap: Gap, plan: Plan) -> None:
    error = DataLossError(part.topic, part.key, gap.first, gap.next - 1, gap.why)
    check_away(error, [*part.away, *logs_away(part.logs)], part.stores)
    if plan.fail_on_data_loss:
        raise error
    _log.warning("%s", error)
    if part.place.has_domain():
        record(Path(part.place.domain), part.query or plan.query, error)


class BatchReader(DataSourceReader):
    """Reads what the stores have when Spark plans the query; later messages are not in it."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options = parse(options, "batch")
        self._plan = plan_of(self._options, schema)
        self._narrowing = EVERYTHING

    def partitions(self) -> Sequence[Range]:
        """The tasks, by source and number.

        Raises:
            OptionError: no such topic, or numbers beyond what can be read.
            DataLossError: numbers that were asked for are expired, with failOnDataLoss.
            StoresAwayError: they may be at a store that is away.
        """
        options = self._options
        sources = selected(options)
        check_topics(options, sources)
        start, end = starting(options, sources, "earliest"), ending(options, sources)
        spans = [self._there(source, start[name_of(source)], end[name_of(source)]) for source in sources]
        return split((_narrow(span, self._narrowing) for span in spans), options, cut_points)

    def _there(self, source: TopicSource, first: int, stop: int) -> Span:
        """Without the numbers that were asked for and are expired."""
        begin = min(oldest(source, self._options), stop)
        if first < begin:
            skip(self._options, DataLossError(source.topic, source.key, first, begin - 1, "expired"), source.away)
        return source, max(first, begin), stop

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """See :func:`read_range`."""
        return read_range(partition, self._plan)


class FilteringBatchReader(BatchReader):
    """The same where Spark pushes filters down: a reader that can take them is refused where it does not."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  (Spark's name)
        """Keeps in mind what they rule out, and leaves all of them to Spark."""
        self._narrowing = narrowed(filters)
        return filters


def _narrow(span: Span, narrowing: Narrowing) -> Span:
    """What of a span a query can need. The stores are asked for times only where a filter is about them."""
    source, first, stop = span
    if narrowing.topics is not None and source.topic not in narrowing.topics:
        return source, first, first
    ids = narrowing.registration_ids
    if ids is not None and bits_of(source.registration_id) not in ids:
        return source, first, first
    first = max(first, narrowing.numbers[0])
    stop = min(stop, narrowing.numbers[1] + 1)
    since, until = narrowing.sent_ns
    if since > EVERYTHING.sent_ns[0] and first < stop:
        first = max(first, first_number_since(source, since))
    if until < EVERYTHING.sent_ns[1] and first < stop:
        stop = min(stop, first_number_since(source, until + 1))
    return source, first, stop
