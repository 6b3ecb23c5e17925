"""Writing with Spark itself: DataFrames and streaming queries whose rows become messages, each once."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as f
from spark.three_stores import NAMES, published
from support.command_line import run

from holdfast.spark.exchange import publish_partitions

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from spark.three_stores import House

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]  # the first job of a session is slow on a busy machine
TOPICS = ("x", "y")


@pytest.fixture
def options(domain: str) -> dict[str, str]:
    return {
        "domain": domain,
        "stores": ",".join(NAMES),
        "option.ume_registration_interval": "3000",
        "commitTimeout": "90s",
    }


def numbered(spark: SparkSession, count: int) -> DataFrame:
    """(topic, value) with values 0 .. count - 1, in three partitions."""
    value = f.col("id").cast("string")
    topic = f.when(f.col("id") % 2 == 0, TOPICS[0]).otherwise(TOPICS[1])
    return spark.range(0, count, 1, 3).select(topic.alias("topic"), value.alias("value"))


def expected(*counts: range) -> dict[str, Counter[bytes]]:
    found: dict[str, Counter[bytes]] = {topic: Counter() for topic in TOPICS}
    for numbers in counts:
        for number in numbers:
            found[TOPICS[number % 2]][b"%d" % number] += 1
    return found


def counted() -> dict[str, Counter[bytes]]:
    return {topic: Counter(payloads) for topic, payloads in published().items()}


def test_what_is_written_can_be_read(spark: SparkSession, house: House, options: dict[str, str], domain: str) -> None:
    numbered(spark, 10_000).write.format("holdfast").options(**options).mode("append").save()
    assert counted() == expected(range(10_000))
    read = spark.read.format("holdfast").option("domain", domain).option("subscribe", "x,y").load()
    back = {(row.topic, bytes(row.value)) for row in read.select("topic", "value").collect()}
    assert back == {(row.topic, row.value.encode()) for row in numbered(spark, 10_000).collect()}


def test_a_binary_column_and_an_option_for_the_topic(
    spark: SparkSession, house: House, options: dict[str, str]
) -> None:
    frame = numbered(spark, 100).select(f.col("value").cast("binary").alias("value"))
    frame.write.format("holdfast").options(**options).option("topic", "z").mode("append").save()
    assert published() == {"z": [b"%d" % i for i in range(100)]}


def test_overwrite_is_refused(spark: SparkSession, house: House, options: dict[str, str]) -> None:
    with pytest.raises(PySparkException, match="a topic cannot be overwritten"):
        numbered(spark, 10).write.format("holdfast").options(**options).mode("overwrite").save()


def test_a_failing_task_publishes_nothing_and_leaves_nothing(
    spark: SparkSession, house: House, options: dict[str, str], tmp_path: Path
) -> None:
    broken = numbered(spark, 10_000).withColumn(
        "value", f.when(f.col("value") == "9999", f.raise_error(f.lit("planted"))).otherwise(f.col("value"))
    )
    writer = broken.write.format("holdfast").options(**options).option("stagingDirectory", str(tmp_path / "staging"))
    with pytest.raises(PySparkException, match="planted"):
        writer.mode("append").save()
    assert published() == {}
    assert list((tmp_path / "staging").rglob("*")) == []


def test_foreach_batch_with_a_version_is_published_once(
    spark: SparkSession, house: House, options: dict[str, str]
) -> None:
    for version in (0, 1, 1):  # the second batch is repeated
        (
            numbered(spark, 1000 * (version + 1))
            .write.format("holdfast").options(**options).option("txnAppId", "q").option("txnVersion", version)
            .mode("append").save()
        )  # fmt: skip
    assert counted() == expected(range(1000), range(2000))


class Feed:
    """A streaming query over a directory of JSON lines, one file a micro-batch, into the topics of its
    rows."""

    def __init__(self, spark: SparkSession, where: Path, options: dict[str, str], name: str = "checkpoint") -> None:
        self._spark, self._options = spark, options
        self.source, self.checkpoint = where / "files", where / name
        self.source.mkdir()
        self._next = 0

    def add(self, count: int) -> range:
        """Another file; returns the numbers that are its rows."""
        numbers = range(self._next, self._next + count)
        self._next += count
        lines = [json.dumps({"topic": TOPICS[n % 2], "value": str(n)}) for n in numbers]
        path = self.source / f"{numbers.start:08}.json"
        path.with_suffix(".new").write_text("\n".join(lines))
        path.with_suffix(".new").rename(path)
        return numbers

    def start(self, scheme: str = "", **more: Any) -> StreamingQuery:
        reader = self._spark.readStream.schema("topic STRING, value STRING").option("maxFilesPerTrigger", 1)
        rows = reader.option("pathGlobFilter", "*.json").json(str(self.source))
        writer = rows.writeStream.format("holdfast").options(**{**self._options, **more})
        query = writer.option("checkpointLocation", f"{scheme}{self.checkpoint}").trigger(availableNow=True).start()
        assert query is not None
        return query

    def drain(self, **more: Any) -> None:
        query = self.start(**more)
        assert query.awaitTermination(240)

    def staged(self) -> list[str]:
        return [path.name for path in self.checkpoint.rglob("*.arrow")]


def test_a_stream_writes_two_topics_over_restarts(
    spark: SparkSession, house: House, options: dict[str, str], tmp_path: Path
) -> None:
    feed = Feed(spark, tmp_path, options)
    numbers = [feed.add(500), feed.add(700)]
    feed.drain()
    assert counted() == expected(*numbers)
    numbers.append(feed.add(300))
    feed.drain()
    assert counted() == expected(*numbers)
    assert feed.staged() == []
    assert (feed.checkpoint / "holdfast" / "ledger").exists()


def test_the_record_is_in_the_checkpoint_that_spark_makes(
    spark: SparkSession, house: House, options: dict[str, str], tmp_path: Path
) -> None:
    feed = Feed(spark, tmp_path, options, "a b%20c#1")
    numbers = feed.add(100)
    feed.drain(scheme="file://")
    for path in (feed.checkpoint / "commits").iterdir():  # killed behind the commit, before Spark wrote it down
        path.unlink()
    assert run("gc")[0] == 0
    feed.drain(scheme="file://")
    assert counted() == expected(numbers)
    assert (feed.checkpoint / "holdfast" / "ledger").exists()


def test_a_write_has_a_keeper_while_it_lasts(
    spark: SparkSession, house: House, options: dict[str, str], tmp_path: Path
) -> None:
    """Spark's planning process need not live that long: the JVM is whom the write belongs to."""
    place = tmp_path / "staging"

    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from holdfast.spark.alive import over

        (directory,) = place.glob("once-*")
        with over(directory) as dead:
            answer = f"dead: {dead}".encode()
        for batch in batches:
            yield pa.record_batch([pa.array([answer] * batch.num_rows, pa.binary())], names=["value"])

    frame = spark.range(0, 2, 1, 1).mapInArrow(look, "value BINARY")
    writer = frame.write.format("holdfast").options(**options).option("topic", "z")
    writer.option("stagingDirectory", str(place)).mode("append").save()
    assert published() == {"z": [b"dead: False"] * 2}
    assert list(place.iterdir()) == []


def test_a_batch_whose_commit_failed_is_published_once_after_the_restart(
    spark: SparkSession, house: House, options: dict[str, str], tmp_path: Path
) -> None:
    feed = Feed(spark, tmp_path, options)
    numbers = [feed.add(500)]
    feed.drain()
    numbers.append(feed.add(700))
    for name in "ab":
        house.stores[name].stop()
    query = feed.start(commitTimeout="500ms")
    with pytest.raises(PySparkException, match="LBM_ETIMEDOUT"):
        query.awaitTermination(240)
    for name in "ab":
        house.stores[name] = house.start(name)
    feed.drain()
    assert counted() == expected(*numbers)
    assert feed.staged() == []


def test_a_commit_that_is_repeated_by_spark_is_a_no_op(
    spark: SparkSession, house: House, options: dict[str, str], tmp_path: Path
) -> None:
    feed = Feed(spark, tmp_path, options)
    numbers = feed.add(500)
    feed.drain()
    for path in (feed.checkpoint / "commits").iterdir():  # killed behind the commit, before Spark wrote it down
        path.unlink()
    feed.drain()
    assert counted() == expected(numbers)


def test_at_least_once_needs_no_commit(
    spark: SparkSession, house: House, options: dict[str, str], tmp_path: Path
) -> None:
    feed = Feed(spark, tmp_path, options)
    numbers = feed.add(500)
    feed.drain(delivery="at_least_once")
    assert counted() == expected(numbers)
    assert not (feed.checkpoint / "holdfast").exists()


def test_publish_partitions_publishes_from_the_tasks(
    spark: SparkSession, house: House, options: dict[str, str]
) -> None:
    assert sum(publish_partitions(numbered(spark, 1000), None, None, **options)) == 1000
    assert counted() == expected(range(1000))


def test_publish_partitions_makes_payloads_in_the_task(
    spark: SparkSession, house: House, options: dict[str, str]
) -> None:
    def even(batch: pa.RecordBatch) -> Any:
        ids = [n for n in batch.column(0).to_pylist() if n % 2 == 0]
        return pa.array([b"%d" % n for n in ids], pa.binary())

    assert publish_partitions(spark.range(0, 1000, 1, 3), "z", even, **options) == [167, 166, 167]
    assert {topic: sorted(map(int, payloads)) for topic, payloads in published().items()} == {
        "z": list(range(0, 1000, 2))
    }
