"""Spark tasks and shared memory, without the way through the JVM: a row that crosses it costs about a
microsecond.

Tasks get descriptors and do the rest where the messages are. Nothing is open when a task begins, and what a
killed one leaves needs nobody: logs are mapped read-only, a source ends with its process, either end of a
channel (:class:`ShmChannel`) may come back.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, StructField, StructType

from ..channel import ShmChannel
from ..engine.errors import UsageError
from .batch_reader import BatchReader, check_place, plan_of, read_range
from .executors import warn_of_executors
from .options import OptionError, parse
from .schema import columns_of
from .worker import spare_modules
from .writing import WritePlan, publish_rows
from .writing import plan_of as write_plan_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from .batch_reader import Plan
    from .splits import Range

    Mapper = (
        Callable[[pa.RecordBatch], pa.RecordBatch | None]
        | Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
    )

__all__ = ["ShmChannel", "map_ranges", "over_ranges", "publish_partitions"]

ANSWER = StructType([StructField("answer", BinaryType())])
VALUE = StructType([StructField("value", BinaryType())])


# Out of the logs --------------------------------------------------------------------------------------------


def map_ranges(
    spark: SparkSession,
    topic: str | None,
    start: str | None,
    end: str | None,
    fn: Mapper,
    schema: str | StructType,
    **options: str,
) -> DataFrame:
    """What ``fn`` makes of a topic's messages, in the tasks: only that crosses into the JVM.

    The ranges are planned now, as ``spark.read.format("holdfast")`` would, and each is a task.

        def total(batch):
            return pa.record_batch([[pc.sum(batch["price"]).as_py()]], ["price"])

        sums = map_ranges(spark, "trades", "earliest", "latest", total, "price DOUBLE",
        valueFormat="struct:price DOUBLE") sums.agg({"price": "sum"}).show()

    Args:
        spark: any session; nothing needs to be registered with it.
        topic: what is read; None: ``options`` say it (subscribe, assign).
        start: where: earliest, or offsets as JSON; None: ``options`` say it (startingTimestamp).
        end: the same, exclusive: latest, or offsets as JSON.
        fn: of a record batch with the columns that ``options`` choose makes a batch with those of ``schema``,
            or None; it is called for each batch of a range. A generator function is called once per range,
            with its batches. It is pickled.
        schema: of what ``fn`` returns: names in this order; types are cast where nothing is lost.
        options: of a batch read; of payloads in Arrow's format ``fn`` gets the bytes.

    Raises:
        OptionError: options that are none, no such topic, or numbers beyond what can be read.
        PythonException: when the frame is computed, a task failed; Spark's, with the task's error, topic and
            numbers in it.
    """
    asked = {"topic": topic, "startingOffsets": start, "endingOffsets": end}
    given = {**{name: text for name, text in asked.items() if text is not None}, **options}
    parsed = parse(given, "batch")
    if parsed.value_format.kind == "arrow":
        raise OptionError(
            "valueFormat=arrow is for spark.read: fn gets the bytes of a payload",
            hint="leave it away, and in fn: pa.ipc.open_stream(value).read_all()",
        )
    columns = columns_of(parsed)
    parts = BatchReader(given, columns).partitions()
    answer = schema if isinstance(schema, StructType) else _struct_of(schema)
    return _frame(spark, parts, _Map(plan_of(parsed, columns), fn, answer), answer)


def over_ranges(spark: SparkSession, parts: Sequence[Range], fn: Callable[[Range], bytes]) -> list[bytes]:
    """What ``fn`` says of each range, in their order; each is a task on its own. ``fn`` is pickled.

    Raises:
        PythonException: a task failed; Spark's, with the task's error, topic and numbers in it.
    """
    return [bytes(row.answer) for row in _frame(spark, parts, _Ask(fn), ANSWER).collect()]


def _frame(
    spark: SparkSession, parts: Sequence[Range], work: Callable[[Range], Iterator[pa.RecordBatch]], schema: StructType
) -> DataFrame:
    """A task per range. Spark gets their numbers alone: the ranges travel with the code, and no row has to be
    made of them."""
    warn_of_executors(spark)
    numbers = spark.range(0, len(parts), 1, max(1, len(parts)))
    return numbers.mapInArrow(_OverRanges(parts, work), schema)


class _OverRanges:
    """What a task runs. Pickled by reference, with the ranges and the work."""

    def __init__(self, parts: Sequence[Range], work: Callable[[Range], Iterator[pa.RecordBatch]]) -> None:
        self._parts, self._work = tuple(parts), work

    def __call__(self, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        spare_modules()
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from self._done(self._parts[number])

    def _done(self, part: Range) -> Iterator[pa.RecordBatch]:
        try:
            check_place(part)
            yield from self._work(part)
        except Exception as error:
            error.add_note(f"in topic {part.topic}, source {part.key}, numbers {part.first}..{part.stop - 1}")
            raise


class _Map:
    """A range read, and ``fn`` over it."""

    def __init__(self, plan: Plan, fn: Mapper, schema: StructType) -> None:
        self._plan, self._schema = plan, schema
        self._fn: Callable[..., Any] = fn

    def __call__(self, part: Range) -> Iterator[pa.RecordBatch]:
        schema = to_arrow_schema(self._schema, timezone="UTC")
        batches = read_range(part, self._plan)
        for made in self._fn(batches) if _is_generator(self._fn) else map(self._fn, batches):
            if made is not None:
                yield _fitted(made, schema)


class _Ask:
    """A range, and ``fn`` over it alone."""

    def __init__(self, fn: Callable[[Range], bytes]) -> None:
        self._fn = fn

    def __call__(self, part: Range) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch([pa.array([self._fn(part)], pa.binary())], names=ANSWER.names)


def _is_generator(fn: object) -> bool:
    """Whether calling it makes a generator: a function, or an object with such a method ``__call__``."""
    return inspect.isgeneratorfunction(fn) or inspect.isgeneratorfunction(type(fn).__call__)


def _fitted(batch: object, schema: pa.Schema) -> pa.RecordBatch:
    """``batch`` with exactly that schema, as the JVM expects it.

    Raises:
        UsageError: other columns, or no record batch at all.
        ArrowInvalid: a cast would lose something.
    """
    if not isinstance(batch, pa.RecordBatch):
        raise UsageError(f"fn returned {type(batch).__name__}, not a pyarrow.RecordBatch", hint="or None, for nothing")
    if batch.schema.names != schema.names:
        raise UsageError(
            f"fn returned the columns {', '.join(batch.schema.names)}; the schema says {', '.join(schema.names)}"
        )
    return pa.RecordBatch.from_arrays(batch.columns, schema=schema)  # which casts


def _struct_of(ddl: str) -> StructType:
    found = StructType.fromDDL(ddl)
    if not isinstance(found, StructType):
        raise UsageError(f"schema {ddl!r} names no columns", hint='such as "price DOUBLE, trades BIGINT"')
    return found


# Into topics ------------------------------------------------------------------------------------------------


def publish_partitions(
    df: DataFrame, topic: str | None, fn: Callable[[pa.RecordBatch], Any] | None = None, **options: str
) -> list[int]:
    """Publishes from the tasks, each partition in its order. Returns how many messages each one was; all are
    stable then.

    At least once: a task that Spark repeats publishes its partition again. For exactly once,
    ``df.write.format("holdfast")``.

    Args:
        df: with a column ``value`` (binary or string); any columns with ``fn``.
        topic: where to; None: a column ``topic`` says it, row by row.
        fn: makes the payloads in the task: a batch of rows in, a pyarrow binary or string array out, of any
            length. Pickled.
        options: as a write's: ``stores``, ``domain``, ``commitTimeout``, ``option.*``.

    Raises:
        OptionError, UsageError: options or columns that cannot be written.
        PythonException: a task failed; Spark's, with the task's error in it.
    """
    given = {**options, "delivery": "at_least_once", **({"topic": topic} if topic is not None else {})}
    if fn is not None and topic is None:
        raise UsageError("fn makes payloads, and nothing says where to", hint="give topic")
    plan = write_plan_of(parse(given, "write"), VALUE if fn is not None else df.schema, overwrite=False)
    warn_of_executors(df.sparkSession)
    counts = df.mapInArrow(_Publish(plan, fn), "messages BIGINT").collect()
    return [int(row.messages) for row in counts]


class _Publish:
    """What a task runs. Pickled by reference, with its plan."""

    def __init__(self, plan: WritePlan, fn: Callable[[pa.RecordBatch], Any] | None) -> None:
        self._plan, self._fn = plan, fn

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        count = publish_rows(self._plan, self._made(batches))
        yield pa.record_batch([pa.array([count], pa.int64())], names=["messages"])

    def _made(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch if self._fn is None else pa.record_batch([self._fn(batch)], names=["value"])
