"""Streaming queries in a real Spark session: what they read, what they acknowledge, and what a killed driver
leaves behind."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds
import pytest
from support.command_line import stat
from support.receiving import send, source

import holdfast as hf
from holdfast.engine.log.catalog import topic_sources
from holdfast.engine.memory.domain import Domain, domain_directory
from holdfast.engine.tools import snapshot
from holdfast.spark.losses import losses_in

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from process.conftest import ThreadStore
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

SESSION = 0x51
COLUMNS = "sequence_number,value"


def stream(spark: SparkSession, domain: str, **options: object) -> DataFrame:
    given = {"domain": domain, "topic": "quotes", "startingOffsets": "earliest", "columns": COLUMNS, **options}
    reader = spark.readStream.format("holdfast")
    for name, value in given.items():
        reader = reader.option(name, str(value))
    return reader.load()


def to_parquet(frame: DataFrame, where: Path, **trigger: Any) -> StreamingQuery:
    """Each micro-batch in a directory of its own, written over when it is repeated."""

    def write(batch: DataFrame, number: int) -> None:
        batch.write.mode("overwrite").parquet(str(where / "out" / f"batch_id={number}"))

    writer = frame.writeStream.foreachBatch(write).option("checkpointLocation", str(where / "checkpoint"))
    return writer.trigger(**trigger).start()


def rows(where: Path) -> list[tuple[int, bytes]]:
    """What is in the table now, by number."""
    table = ds.dataset(where / "out", partitioning="hive", exclude_invalid_files=True).to_table(
        columns=COLUMNS.split(",")
    )
    return sorted(zip(table.column(0).to_pylist(), table.column(1).to_pylist(), strict=True))


def sent(count: int) -> list[tuple[int, bytes]]:
    return [(number, b"%d" % number) for number in range(count)]


def receivers() -> list[snapshot.ReceiverRow]:
    """Of the session, one for each source."""
    domain = Domain(None, join=False)
    try:
        return [row for row in snapshot.take(domain).receivers if row.session_id == SESSION]
    finally:
        domain.close()


def acks() -> list[int]:
    """Highest number that is acknowledged, of each source."""
    return sorted(row.ack for row in receivers())


def until(what: str, true: Callable[[], object]) -> None:
    """Waits; Spark takes its time on a machine that has much to do."""
    deadline = time.monotonic() + 120
    while not true():
        assert time.monotonic() < deadline, f"the time is over: {what}; acknowledged: {acks()}"
        time.sleep(0.05)


def checkpointed(where: Path) -> int:
    """Next number of the last batch that Spark has committed; of the only source."""
    last = max(int(path.name) for path in (where / "checkpoint" / "commits").glob("[0-9]*"))
    offset = json.loads((where / "checkpoint" / "offsets" / str(last)).read_text().splitlines()[-1])
    (number,) = offset["topics"]["quotes"].values()
    assert isinstance(number, int)
    return number


def test_available_now_drains_acknowledges_everything_and_goes_on(
    spark: SparkSession, run_store: Callable[..., ThreadStore], domain: str, tmp_path: Path
) -> None:
    run_store()
    with hf.Context() as ctx:
        src = source(ctx, 1000)
        frame = stream(spark, domain, session=SESSION, maxRecordsPerTrigger=400)
        query = to_parquet(frame, tmp_path, availableNow=True)
        assert query.awaitTermination(120)
        assert [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]] == [
            400,
            400,
            200,
        ]
        assert rows(tmp_path) == sent(1000)
        (seen,) = [row for row in stat()["receivers"] if row["session_id"] == SESSION]
        assert (seen["ack"], seen["lag"]) == (999, 0), "also the last batch, which Spark's commit never covers"
        send(src, 10)
        again = to_parquet(frame, tmp_path, availableNow=True)
        assert again.awaitTermination(120)
        assert rows(tmp_path) == sent(1010), "exactly what had come since"
        assert acks() == [1009]


@pytest.mark.parametrize(
    ("options", "trigger", "batches"),
    [
        pytest.param({"minRecordsPerTrigger": 1000, "maxTriggerDelay": "1h"}, {"availableNow": True}, [60], id="least"),
        pytest.param({"maxBytesPerTrigger": 1000}, {"availableNow": True}, [29, 29, 2], id="bytes"),
        pytest.param({"maxRecordsPerTrigger": 7}, {"once": True}, [60], id="a trigger that wants everything"),
    ],
)
def test_limits_as_spark_passes_them(
    spark: SparkSession, run_store: Callable[..., ThreadStore], domain: str, tmp_path: Path,
    options: dict[str, object], trigger: dict[str, Any], batches: list[int],
) -> None:  # fmt: skip
    run_store()
    with hf.Context() as ctx:
        source(ctx, 60)
    query = to_parquet(stream(spark, domain, **options), tmp_path, **trigger)
    assert query.awaitTermination(120)
    assert [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]] == batches
    assert rows(tmp_path) == sent(60)


@pytest.mark.long  # the refused query waits 20 s for the holder; test_stream_session.py has the refusal without Spark
def test_a_running_query_shows_its_lag_and_refuses_another(
    spark: SparkSession, run_store: Callable[..., ThreadStore], domain: str, tmp_path: Path
) -> None:
    run_store()
    with hf.Context() as ctx:
        src = source(ctx, 50)
        frame = stream(spark, domain, session=SESSION, maxRecordsPerTrigger=20)
        query = to_parquet(frame, tmp_path, processingTime="0 seconds")
        try:
            until("all read", lambda: query.lastProgress and acks() == [49])
            (seen,) = receivers()
            assert seen.alive
            send(src, 7)
            until("the rest", lambda: acks() == [56])
            (told,) = query.recentProgress[-1]["sources"]
            assert list(json.loads(told["latestOffset"])["topics"]["quotes"].values()) == [57]
            second = to_parquet(frame, tmp_path / "second", processingTime="0 seconds")
            with pytest.raises(Exception, match=rf"session id {SESSION:#x}\) is held by process {seen.pid} "):
                second.awaitTermination(120)
            assert query.isActive, "the first goes on"
        finally:
            query.stop()
        assert rows(tmp_path) == sent(57)
        until("its session is free", lambda: not receivers()[0].alive)


def test_stores_that_go_down_and_come_back_under_a_query(
    spark: SparkSession, run_store: Callable[..., ThreadStore], domain: str, tmp_path: Path
) -> None:
    store = run_store(kind="disk")
    with hf.Context() as ctx:
        source(ctx, 30)
    query = to_parquet(
        stream(spark, domain, session=SESSION, maxRecordsPerTrigger=10), tmp_path, processingTime="0 seconds"
    )
    try:
        until("registered", lambda: acks() == [29])
        store.stop()
        store = run_store(kind="disk")
        with hf.Context() as ctx:
            source(ctx, 5)
            until("both sources", lambda: acks() == [4, 29])
        assert query.isActive
    finally:
        query.stop()


def test_a_query_that_retention_has_passed(
    spark: SparkSession, run_store: Callable[..., ThreadStore], domain: str, tmp_path: Path
) -> None:
    """It ends, and says what is gone; or it goes on behind it, and tells it once: in the ledger and in its
    progress."""
    run_store(**{"repository-size-threshold": 1 << 20, "repository-size-limit": 2 << 20})
    with hf.Context() as ctx:
        src = source(ctx, 5)
        frame = stream(spark, domain, session=SESSION)
        assert to_parquet(frame, tmp_path, availableNow=True).awaitTermination(120)
        for _ in range(60):
            src.send(bytes(65_000), timeout=90)
        src.wait_stable(timeout=90)
        until("retention", lambda: topic_sources(domain)[0].oldest > 5)
        oldest = topic_sources(domain)[0].oldest
        query = to_parquet(frame, tmp_path, availableNow=True)
        with pytest.raises(Exception, match=rf"HF_DATA_LOSS.*numbers 5\.\.{oldest - 1} are expired"):
            query.awaitTermination(120)
        assert losses_in(domain_directory(domain)) == []
        for _ in range(2):
            lenient = to_parquet(
                stream(spark, domain, session=SESSION, failOnDataLoss=False), tmp_path, availableNow=True
            )
            assert lenient.awaitTermination(120)
            if lenient.recentProgress and lenient.recentProgress[0]["numInputRows"]:
                (told,) = lenient.recentProgress[0]["sources"]
        assert list(json.loads(told["latestOffset"])["lost"]["quotes"].values()) == [oldest - 5]
        assert [number for number, _ in rows(tmp_path)] == [*range(5), *range(oldest, 65)]
    (loss,) = losses_in(domain_directory(domain))
    assert (loss.query, loss.first, loss.last) == (f"session {SESSION:#x}", 5, oldest - 1)


DRIVER = """
import os, signal, sys
from pathlib import Path
import holdfast.spark as hs
from pyspark.sql import SparkSession

domain, where, kill_in, session = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
settings = {
    **hs.BUILDER_DEFAULTS, "spark.master": "local[2]", "spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1", "spark.driver.memory": "1g", "spark.local.dir": str(where / "local"),
    "spark.sql.warehouse.dir": str(where / "warehouse"),
}
spark = SparkSession.builder.config(map=settings).getOrCreate()
spark.sparkContext.setLogLevel("OFF")
hs.register(spark)

def write(batch, number):
    batch.write.mode("overwrite").parquet(str(where / "out" / f"batch_id={number}"))
    if number == kill_in:
        os.kill(os.getpid(), signal.SIGKILL)

frame = (
    spark.readStream.format("holdfast").option("domain", domain).option("topic", "quotes").option("session", session)
    .option("startingOffsets", "earliest").option("columns", "sequence_number,value").option("maxRecordsPerTrigger", "100")
    .load()
)
query = frame.writeStream.foreachBatch(write).option("checkpointLocation", str(where / "checkpoint"))
query.trigger(availableNow=True).start().awaitTermination()
"""


@pytest.mark.long  # two Spark starts; test_archive.py kills a driver there in make test
def test_a_driver_killed_in_a_micro_batch_loses_and_repeats_nothing(
    spark: SparkSession, run_store: Callable[..., ThreadStore], domain: str, tmp_path: Path
) -> None:
    """Killed when the batch is written and not committed; the next run takes its session over and writes it
    again."""
    run_store()
    with hf.Context() as ctx:
        source(ctx, 500)
        killed = subprocess.run(
            [sys.executable, "-c", DRIVER, domain, str(tmp_path), "2", str(SESSION)], capture_output=True, timeout=240
        )
        assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()[-2000:]
        assert checkpointed(tmp_path) == 200
        assert acks() == [199], "what is durable, and nothing of the batch that was not committed"
        frame = stream(spark, domain, session=SESSION, maxRecordsPerTrigger=100)
        query = to_parquet(frame, tmp_path, availableNow=True)
        assert query.awaitTermination(120)
        assert [row["numInputRows"] for row in query.recentProgress if row["numInputRows"]] == [100, 100, 100]
        assert rows(tmp_path) == sent(500)
        assert (acks(), checkpointed(tmp_path)) == ([499], 500)
