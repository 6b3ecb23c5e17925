"""How fast does Spark read and write a topic, beside Parquet of the same rows?

segments -> C gather -> Arrow batches                            the reader alone, one process, no JVM
segments -> Arrow batches -> socket -> JVM rows -> aggregate     spark.read.format("holdfast"), two tasks
one Arrow batch, again and again -> socket -> JVM -> aggregate   what the JVM's side takes: nothing is read
segments -> Arrow batches -> aggregate -> a row per task -> JVM  map_ranges
Parquet (snappy) -> JVM rows -> aggregate                        spark.read.parquet
"""

from __future__ import annotations

import itertools
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import numpy as np

import holdfast as hf
import holdfast.spark

from .cli import HERE, RESULTS, Script, run_written
from .harness import ROOT, Reading
from .machine import slug
from .peers import DOMAIN, TIMEOUT_S, domain, store_options
from .spark_stub import StubSource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from .harness import Bench, Series

CASES = {
    "reader": "reader alone, one process, all columns",
    "reader:struct": "reader alone, one process, records decoded",
    "spark:all": "Spark reads the topic, all columns",
    "stub:all": "Spark reads one batch again and again, all columns",
    "parquet:all": "Spark reads Parquet, all columns",
    "spark:two": "Spark reads the topic, two columns",
    "parquet:two": "Spark reads Parquet, two columns",
    "spark:struct": "Spark reads the topic, records decoded",
    "parquet:struct": "Spark reads Parquet, records decoded",
    "map:all": "map_ranges over the topic, all columns, the same aggregate",
    "map:struct": "map_ranges over the topic, records decoded, the same aggregate",
    "spark:noop": "Spark reads the topic, all columns, into nothing",
    "stub:noop": "Spark reads one batch again and again, all columns, into nothing",
    "stream:noop": "Spark streams the topic (AvailableNow), all columns, into nothing",
    "spark:write": "Spark writes to a topic, exactly once, disk-stable",
    "parquet:write": "Spark writes the same rows to Parquet",
}
STORE = "spark"
TOPIC = "rows"
MESSAGES = 8_000_000
WRITTEN = 500_000
"""Enough that what Spark takes for any query of a Python source (half a second here) does not count."""
ROWS = 10_000
WIDTH = 64
RECORD = "at BIGINT, venue INT, side INT, price DOUBLE, size DOUBLE, account BIGINT, note BINARY(24)"
LAYOUT = np.dtype(
    [
        ("at", "<i8"),
        ("venue", "<i4"),
        ("side", "<i4"),
        ("price", "<f8"),
        ("size", "<f8"),
        ("account", "<i8"),
        ("note", "V24"),
    ]
)
STORE_OPTIONS = {"repository-disk-file-size-limit": 2 << 30}
ALL = (
    "count(*), sum(length(value)), max(topic), max(source_reg_id), sum(sequence_number), max(timestamp), "
    "max(timestamp_ns), sum(flags)"
)
COLUMNS = "value,topic,source_reg_id,sequence_number,timestamp,timestamp_ns,flags"
TWO = "count(*), sum(length(value)), sum(sequence_number)"
MAXIMA = frozenset(("topic", "source_reg_id", "timestamp", "timestamp_ns"))
KINDS = {"topic": "STRING", "timestamp": "TIMESTAMP", "price": "DOUBLE", "size": "DOUBLE"}
STRUCT = "count(*), sum(at), sum(venue), sum(side), sum(price), sum(size), sum(account), sum(length(note)), sum(sequence_number)"


def _publish() -> None:
    """Rows as a feed has them: numbers that vary a little, and bytes that do not compress."""
    random = np.random.default_rng(5)
    with hf.Context(domain=DOMAIN) as context:
        source = context.source(TOPIC, options=store_options(STORE))
        source.wait_registered(TIMEOUT_S)
        for first in range(0, MESSAGES, ROWS):
            rows = np.zeros(ROWS, LAYOUT)
            rows["at"] = np.arange(first, first + ROWS)
            rows["venue"], rows["side"] = random.integers(0, 20, ROWS), random.integers(0, 2, ROWS)
            rows["price"], rows["size"] = random.normal(100, 5, ROWS).round(2), random.integers(1, 1000, ROWS)
            rows["account"] = random.integers(0, 10_000, ROWS)
            rows["note"] = np.frombuffer(random.bytes(24 * ROWS), "V24")
            source.send_batch(rows.view(np.uint8).reshape(ROWS, WIDTH))
        source.wait_stable(timeout=60)


def _session(bench: Bench) -> SparkSession:
    from pyspark.sql import SparkSession

    settings: dict[str, bool | float | int | str | None] = {
        **holdfast.spark.BUILDER_DEFAULTS,
        "spark.master": "local[2]",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(bench.disk / "warehouse"),
        "spark.local.dir": str(bench.disk / "spark"),
        "spark.executorEnv.PYTHONPATH": str(ROOT),
    }
    spark = SparkSession.builder.config(map=settings).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    holdfast.spark.register(spark)
    spark.dataSource.register(StubSource)
    return spark


def _timed(work: Callable[[], int], rows: int) -> Callable[[], Reading]:
    """A case that says how many rows it saw. Raises RuntimeError when they are not all of them."""

    def measure() -> Reading:
        start = time.perf_counter_ns()
        seen = work()
        elapsed = time.perf_counter_ns() - start
        if seen != rows:
            raise RuntimeError(f"{seen} rows of {rows}")
        return Reading(seen * 1e9 / elapsed, "msg/s", bytes=WIDTH, count=seen)

    return measure


def _aggregate(frame: DataFrame, sums: str) -> Callable[[], int]:
    """Every column of every row is looked at, and one row comes back."""
    return lambda: int(frame.selectExpr(*_split(sums)).first()[0])  # type: ignore[index]


def _split(sums: str) -> list[str]:
    return [part.strip() for part in sums.split(", ")]


def _reduced(batch: pa.RecordBatch) -> pa.RecordBatch:
    """ALL or STRUCT over one batch, in the task: one row."""
    import pyarrow as pa
    import pyarrow.compute as pc

    found = {"count": batch.num_rows}
    for name in batch.schema.names:
        column = pc.binary_length(batch[name]) if name in {"value", "note"} else batch[name]
        found[name] = (pc.max if name in MAXIMA else pc.sum)(column).as_py()
    return pa.record_batch([[value] for value in found.values()], names=list(found))


def _mapped(spark: SparkSession, options: dict[str, str]) -> Callable[[], int]:
    """The same by map_ranges: planned, read and reduced in the tasks, and reduced again over their rows."""
    from holdfast.spark.exchange import map_ranges

    names = ("count", *options["columns"].split(","))
    schema = ", ".join(f"{name} {KINDS.get(name, 'BIGINT')}" for name in names)
    outer = [f"{'max' if name in MAXIMA else 'sum'}({name})" for name in names]

    def work() -> int:
        frame = map_ranges(spark, TOPIC, "earliest", "latest", _reduced, schema, **options)
        return int(frame.selectExpr(*outer).first()[0])  # type: ignore[index]

    return work


def _noop(frame: DataFrame, rows: int) -> Callable[[], int]:
    """Every row is made, and none is looked at. Spark does not say how many there were."""

    def work() -> int:
        frame.write.format("noop").mode("overwrite").save()
        return rows

    return work


def _streamed(spark: SparkSession, options: dict[str, str], bench: Bench) -> Callable[[], int]:
    """A query from its start to its end, with a new checkpoint."""
    points = itertools.count()

    def work() -> int:
        frame = spark.readStream.format("holdfast").options(topic=TOPIC, startingOffsets="earliest", **options).load()
        writer = frame.writeStream.format("noop").option(
            "checkpointLocation", str(bench.disk / f"points-{next(points)}")
        )
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        return sum(progress.numInputRows for progress in query.recentProgress)

    return work


def _written(frame: DataFrame, options: dict[str, str]) -> Callable[[], int]:
    """What Spark takes to publish these rows, until they are on disk."""

    def work() -> int:
        frame.write.format("holdfast").options(**options).mode("append").save()
        return WRITTEN

    return work


def _saved(frame: DataFrame, bench: Bench) -> Callable[[], int]:
    """The same as a Parquet file."""

    def work() -> int:
        frame.write.mode("overwrite").parquet(str(bench.disk / "again.parquet"), compression="snappy")
        return WRITTEN

    return work


def _alone(options: dict[str, str]) -> Callable[[], int]:
    """What a task does, without Spark."""
    from holdfast.spark.batch_reader import BatchReader
    from holdfast.spark.options import parse
    from holdfast.spark.schema import columns_of

    options = {"topic": TOPIC, **options}
    reader = BatchReader(options, columns_of(parse(options, "batch")))
    return lambda: sum(batch.num_rows for part in reader.partitions() for batch in reader.read(part))


def measure(bench: Bench) -> Iterator[Series]:
    """All cases in turns, in one session."""
    with ExitStack() as stack:
        stack.enter_context(domain(bench))
        config = hf.StoreConfig(STORE, bench.disk / "store-spark", DOMAIN, options=STORE_OPTIONS)
        stack.enter_context(hf.spawn_store(config))
        _publish()
        spark = _session(bench)
        stack.callback(spark.stop)
        ways = _ways(spark, bench)
        cases = {
            case: (title, _timed(ways[case], WRITTEN if case.endswith(":write") else MESSAGES))
            for case, title in CASES.items()
        }
        yield from bench.interleave(cases)


def _ways(spark: SparkSession, bench: Bench) -> dict[str, Callable[[], int]]:
    """Case -> what is timed. Makes the Parquet files."""
    options = {"domain": DOMAIN}
    record = {
        **options,
        "valueFormat": f"struct:{RECORD}",
        "columns": ",".join((*(LAYOUT.names or ()), "sequence_number")),
    }
    two = {**options, "columns": "value,sequence_number"}

    def read(**given: str) -> DataFrame:
        return spark.read.format("holdfast").options(topic=TOPIC, **given).load()

    stub = spark.read.format("stub").option("rows", MESSAGES).load()
    ways = {
        "reader": _alone(options),
        "reader:struct": _alone(record),
        "stub:all": _aggregate(stub, ALL),
        "stub:noop": _noop(stub, MESSAGES),
        "spark:noop": _noop(read(**options), MESSAGES),
        "stream:noop": _streamed(spark, options, bench),
        "map:all": _mapped(spark, {**options, "columns": COLUMNS}),
        "map:struct": _mapped(spark, record),
    }
    frames = {"all": (read(**options), ALL), "two": (read(**two), TWO), "struct": (read(**record), STRUCT)}
    for name, (frame, sums) in frames.items():
        path = str(bench.disk / f"{name}.parquet")
        frame.write.parquet(path, compression="snappy")
        ways[f"spark:{name}"] = _aggregate(frame, sums)
        ways[f"parquet:{name}"] = _aggregate(spark.read.parquet(path), sums)
    values = str(bench.disk / "values.parquet")
    read(**two).where(f"sequence_number < {WRITTEN}").select("value").write.parquet(values)
    rows = spark.read.parquet(values)
    ways["spark:write"] = _written(rows, {"domain": DOMAIN, "topic": "written", "stores": STORE})
    ways["parquet:write"] = _saved(rows, bench)
    return ways


SCRIPT = Script("spark", "How fast does Spark read and write a topic, beside Parquet of the same rows?", measure)

if __name__ == "__main__":
    run_written([SCRIPT], RESULTS, f"{slug()}-spark", HERE / "SPARK.md")
