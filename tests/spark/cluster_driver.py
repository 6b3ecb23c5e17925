"""A driver of a standalone cluster, for tests: ``python cluster_driver.py SETTINGS``, JSON ``{"master",
"scratch", "hosts"}``.

It does everything that tasks do with a domain: first with the executors of its own host alone, then, once it
is told to go on, with those of another host, too. Prints a line of JSON per attempt: its name and phase, what
it counted, or what went wrong.
"""

from __future__ import annotations

import json
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spark.archive_driver import session_settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

ROWS = 4000
STORES = {"stores": "a,b,c"}


def main() -> None:
    """See the module."""
    settings = json.loads(sys.argv[1])
    from pyspark.sql import SparkSession

    import holdfast.spark as hs

    scratch = Path(settings["scratch"])
    given = {
        **session_settings(scratch, settings["master"]),
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.task.maxFailures": "1",
        "spark.locality.wait": "0",
    }
    spark = SparkSession.builder.config(map=given).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    for phase, hosts in enumerate(settings["hosts"]):
        wait_for_executors(spark, set(hosts))
        hs.register(spark)
        for name, attempt in ATTEMPTS.items():
            tell(name, phase, partial(attempt, spark, scratch / f"{phase}"))
        print(f"phase {phase}", flush=True)
        sys.stdin.readline()
    spark.stop()
    print("done", flush=True)


def wait_for_executors(spark: SparkSession, hosts: set[str]) -> None:
    """Until each of these hosts has one, and all of them have run a task at the same time: the next job has a
    task on each."""
    from holdfast.spark.executors import executor_hosts

    while not hosts <= set(executor_hosts(spark)):
        time.sleep(0.1)
    spark.sparkContext.parallelize(range(len(hosts)), len(hosts)).barrier().mapPartitions(list).collect()


def tell(name: str, phase: int, attempt: Callable[[], object]) -> None:
    try:
        found = {"counted": attempt()}
    except Exception as error:
        found = {"error": str(error)}
    print(json.dumps({"attempt": name, "phase": phase, **found}), flush=True)


# What tasks do ----------------------------------------------------------------------------------------------


def rows(spark: SparkSession) -> DataFrame:
    """On every executor."""
    return spark.range(0, ROWS, 1, 4).selectExpr("CAST(id AS STRING) AS value")


def write_once(spark: SparkSession, _: Path) -> int:
    rows(spark).write.format("holdfast").mode("append").options(topic="once", **STORES).save()
    return ROWS


def write_at_least_once(spark: SparkSession, _: Path) -> int:
    options = {"topic": "least", "delivery": "at_least_once", **STORES}
    rows(spark).write.format("holdfast").mode("append").options(**options).save()
    return ROWS


def stream_write(delivery: str) -> Callable[[SparkSession, Path], int]:
    def write(spark: SparkSession, scratch: Path) -> int:
        source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).option("numPartitions", 4)
        frame = source.load().selectExpr("CAST(value AS STRING) AS value").limit(ROWS).repartition(4)
        options = {"topic": f"stream_{delivery}", "delivery": delivery, **STORES}
        checkpoint = str(scratch / f"checkpoint-{delivery}")
        writer = frame.writeStream.format("holdfast").options(**options).option("checkpointLocation", checkpoint)
        return drained(writer)

    return write


def drained(writer: Any) -> int:
    """Rows of a query's first micro-batch."""
    query = writer.start()
    try:
        while query.exception() is None and not query.lastProgress:
            time.sleep(0.1)
        if query.exception() is not None:
            raise query.exception()
        return int(query.recentProgress[0]["numInputRows"])
    finally:
        query.stop()


def read(spark: SparkSession, _: Path) -> int:
    return spark.read.format("holdfast").options(topic="orders", minPartitions="4").load().count()


def read_tuples_of_a_stream(spark: SparkSession, scratch: Path) -> int:
    frame = (
        spark.readStream.format("holdfast")
        .options(topic="orders", minPartitions="4", startingOffsets="earliest")
        .load()
    )
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(scratch / "checkpoint-read"))
    return drained(writer)


def map_in_tasks(spark: SparkSession, _: Path) -> int:
    from holdfast.spark.exchange import map_ranges

    return map_ranges(
        spark, "orders", "earliest", "latest", lambda batch: batch.select(["sequence_number"]), "sequence_number BIGINT",
        minPartitions="4",
    ).count()  # fmt: skip


def publish_from_tasks(spark: SparkSession, _: Path) -> int:
    from holdfast.spark.exchange import publish_partitions

    return sum(publish_partitions(rows(spark), "published", None, **STORES))


ATTEMPTS: dict[str, Callable[[SparkSession, Path], int]] = {
    "write_once": write_once,
    "write_at_least_once": write_at_least_once,
    "stream_write_once": stream_write("exactly_once"),
    "stream_write_at_least_once": stream_write("at_least_once"),
    "read": read,
    "stream_read": read_tuples_of_a_stream,
    "map_ranges": map_in_tasks,
    "publish_partitions": publish_from_tasks,
}


if __name__ == "__main__":
    main()
