"""Topics to Parquet by a real Spark: everything once, over restarts and kills; and what is acknowledged
meanwhile."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import threading
import time
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds
import pytest
from spark.archive_driver import Settings, command
from support.receiving import of_readers, send, source, until

import holdfast as hf
from holdfast.engine.memory.domain import Domain
from holdfast.engine.tools import snapshot
from holdfast.spark.errors import StoresAwayError
from holdfast.spark.offsets import as_offset
from holdfast.spark.pipeline.archive import Archived, ArchiveError, archive
from holdfast.spark.pipeline.checkpoint import CheckpointInUseError
from holdfast.spark.pipeline.committed import committed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from process.conftest import ThreadStore
    from pyspark.sql import SparkSession

    from holdfast.spark.pipeline.progress import Progress
    from holdfast.spark.pipeline.table import By

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

SESSION = 0x51


def run(spark: SparkSession, path: Path, domain: str, topic: str | None = "quotes", **given: Any) -> Archived:
    options = {"domain": domain, "maxRecordsPerTrigger": "100", **given.pop("options", {})}
    return archive(spark, topic, path, once=given.pop("once", True), options=options, **given)


def rows(path: Path) -> list[tuple[int, bytes]]:
    """What readers find, in the order of the numbers."""
    table = ds.dataset(path, format="parquet", partitioning="hive").to_table(columns=["sequence_number", "value"])
    return sorted(zip(table.column(0).to_pylist(), table.column(1).to_pylist(), strict=True))


def sent(count: int) -> list[tuple[int, bytes]]:
    return [(number, b"%d" % number) for number in range(count)]


def receivers() -> list[snapshot.ReceiverRow]:
    """Of the session: one of each source that it has."""
    with contextlib.closing(Domain(None, join=False)) as domain:
        return [row for row in snapshot.take(domain).receivers if row.session_id == SESSION]


def acknowledged() -> list[int]:
    """First number that is not, of each source that the session has."""
    return sorted(row.ack + 1 for row in receivers())


@pytest.mark.parametrize(("by", "below"), [("date,topic", "date=*/topic=quotes"), ("batch", "batch=*")])
def test_an_archive_goes_on_where_it_was(
    spark: SparkSession, run_store: Callable[..., ThreadStore], domain: str, tmp_path: Path, by: By, below: str
) -> None:
    run_store()
    told: list[Progress] = []
    with hf.Context() as ctx:
        src = source(ctx, 250)
        done = run(spark, tmp_path / "t", domain, by=by, session=SESSION, progress=told.append)
        assert (done.batches, done.rows, sum(done.positions["quotes"].values())) == (3, 250, 250)
        assert (told[-1].what, told[-1].done, told[-1].total) == ("archiving", 250, 250)
        assert rows(tmp_path / "t") == sent(250)
        assert acknowledged() == [250]
        send(src, 10)
        again = run(spark, tmp_path / "t", domain, by=by, session=SESSION)
        assert (again.batches, again.rows, again.files) == (1, 10, 1), "and nothing of what was there"
        nothing = run(spark, tmp_path / "t", domain, by=by, session=SESSION)
        assert (nothing.batches, nothing.positions) == (0, again.positions)
    assert rows(tmp_path / "t") == sent(260)
    files = list((tmp_path / "t").glob(f"{below}/*.parquet"))
    assert len(files) == done.files + 1
    assert sum(path.stat().st_size for path in files) == done.bytes + again.bytes


def test_rows_are_as_the_messages_and_files_in_their_order(
    spark: SparkSession, run_store: Callable[..., ThreadStore], domain: str, tmp_path: Path
) -> None:
    """Two topics, one with a name that no directory can have; the day is that of the sending in UTC."""
    run_store()
    zone = spark.conf.get("spark.sql.session.timeZone")
    assert zone is not None
    spark.conf.set(
        "spark.sql.session.timeZone", "Pacific/Kiritimati"
    )  # it is tomorrow there for fourteen hours of each day
    try:
        with hf.Context() as ctx:
            source(ctx, 20, topic="a/b=c d")
            source(ctx, 30, topic="quotes")
            run(spark, tmp_path / "t", domain, None, options={"subscribe": "a/b=c d,quotes"})
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    found = ds.dataset(tmp_path / "t", partitioning="hive").to_table().to_pylist()
    assert sorted((row["topic"], row["sequence_number"], row["value"]) for row in found) == [
        *(("a/b=c d", *row) for row in sent(20)),
        *(("quotes", *row) for row in sent(30)),
    ]
    for row in found:
        assert row["timestamp"].strftime("%Y-%m-%d") == str(row["date"])
        assert round(row["timestamp"].timestamp() * 1e6) == row["timestamp_ns"] // 1000
    for path in (tmp_path / "t").rglob("part-*.parquet"):
        numbers = ds.dataset(path).to_table(columns=["sequence_number"]).column(0).to_pylist()
        assert numbers == sorted(numbers)


@pytest.mark.parametrize(
    ("by", "kill", "there"),
    [
        pytest.param("date,topic", (2, 1), 250, id="between two files"),
        # The same kill with the other partitioning; each takes two Spark starts.
        pytest.param("batch", (2, -1), 300, id="before the commit", marks=pytest.mark.long),
    ],
)
def test_a_driver_killed_in_a_micro_batch_loses_and_repeats_nothing(
    spark: SparkSession, run_store: Callable[..., ThreadStore], domain: str, tmp_path: Path, by: By,
    kill: tuple[int, int], there: int,
) -> None:  # fmt: skip
    """Of what is in the table at any time nothing is there twice; nothing is acknowledged that is not
    committed."""
    run_store()
    options = {"domain": domain, "maxRecordsPerTrigger": "100", "minPartitions": "2"}  # two tasks, two files
    table, scratch = tmp_path / "t", str(tmp_path / "scratch")
    settings = Settings("quotes", str(table), scratch, by=by, session=SESSION, kill=kill, options=options)
    with hf.Context() as ctx:
        source(ctx, 500)
        log = tmp_path / "driver.log"
        with log.open("wb") as said:  # a file: what is left of Spark would keep a pipe open
            killed = subprocess.run(command(settings), stdout=said, stderr=said, timeout=240)
        assert killed.returncode == -signal.SIGKILL, log.read_text()[-2000:]
        until("nobody has its session any more", lambda: not any(row.alive for row in receivers()))
        before = committed(table / "_checkpoint")
        assert before is not None
        assert (before[0], list(before[1].values())) == (1, [200])
        assert acknowledged() == [200]
        assert len(rows(table)) == there
        assert rows(table) == sorted(set(rows(table)))
        done = run(spark, table, domain, by=by, session=SESSION, options={"minPartitions": "2"})
        assert (done.batches, done.rows) == (3, 300)
    assert rows(table) == sent(500)
    assert acknowledged() == [500]


def test_a_running_archive_keeps_others_out_and_stops_when_it_is_told(
    spark: SparkSession, run_store: Callable[..., ThreadStore], domain: str, tmp_path: Path
) -> None:
    """By an exception from outside, as ^C is."""
    run_store()

    class Stop(BaseException):
        pass

    enough = threading.Event()

    def look(now: Progress) -> None:
        if enough.is_set() and now.done == now.total == 160:
            raise Stop

    with hf.Context() as ctx:
        src = source(ctx, 150)
        ended: list[BaseException] = []

        def goes_on() -> None:
            try:
                run(spark, tmp_path / "t", domain, once=False, every_s=0.0, progress=look)
            except BaseException as error:
                ended.append(error)

        thread = threading.Thread(target=goes_on)
        thread.start()
        try:
            deadline = time.monotonic() + 120
            while not list((tmp_path / "t").glob("date=*/*/*")) and thread.is_alive():
                assert time.monotonic() < deadline
                time.sleep(0.05)
            with pytest.raises(CheckpointInUseError):
                run(spark, tmp_path / "t", domain)
        finally:
            enough.set()
            send(src, 10)
            thread.join(120)
        assert [type(error) for error in ended] == [Stop]
        assert spark.streams.active == [], "the query has ended with it"
        run(spark, tmp_path / "t", domain)
    assert rows(tmp_path / "t") == sent(160)


class _ReachedError(Exception):
    pass


class _NoSpark:
    @property
    def readStream(self) -> object:  # noqa: N802  (Spark's name)
        raise _ReachedError


def test_a_topic_that_nobody_keeps(
    run_store: Callable[..., ThreadStore], domain: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """With once it was mistyped; else it may come; and of one that is in the archive already nothing may be
    left."""
    run_store()
    with hf.Context() as ctx:
        source(ctx, 5)
    said = "no store keeps topic 'quota'; did you mean 'quotes'"
    nothing: Any = _NoSpark()
    with pytest.raises(hf.ConfigError, match=said):
        run(nothing, tmp_path / "t", domain, "quota")
    with pytest.raises(hf.NoDomainError, match=f"did you mean '{domain}'"):
        run(nothing, tmp_path / "t", f"{domain}x")
    assert not (tmp_path / "t").exists()
    assert not of_readers(caplog)
    with pytest.raises(_ReachedError):
        run(nothing, tmp_path / "t", domain, "quota", once=False)
    assert [said in told for told in of_readers(caplog)] == [True]
    for name, text in (("commits", "v1"), ("offsets", json.dumps(as_offset({("quota", "7/11111111"): 5})))):
        (tmp_path / "t" / "_checkpoint" / name).mkdir(parents=True)
        (tmp_path / "t" / "_checkpoint" / name / "0").write_text(text)
    with pytest.raises(_ReachedError):
        run(nothing, tmp_path / "t", domain, "quota")
    for once in (True, False):
        with pytest.raises(StoresAwayError, match=f"there is no domain /.*/{domain}x, .*start its stores"):
            run(nothing, tmp_path / "t", f"{domain}x", "quota", once=once)


def test_what_is_wrong_is_told_in_one_line(
    spark: SparkSession, run_store: Callable[..., ThreadStore], domain: str, tmp_path: Path
) -> None:
    run_store()
    with hf.Context() as ctx:
        source(ctx, 5)
    with pytest.raises(hf.ConfigError, match="there is no option 'maxRecord'"):
        run(spark, tmp_path / "t", domain, options={"maxRecord": "1"})
    with pytest.raises(hf.ConfigError, match="not there: timestamp_ns"):
        run(spark, tmp_path / "t", domain, options={"columns": "value,topic"})
    with pytest.raises(hf.ConfigError, match="a column date"):
        run(spark, tmp_path / "t", domain, options={"valueFormat": "struct:date BIGINT"})
    with pytest.raises(hf.ConfigError, match="a column batch"):
        run(spark, tmp_path / "t", domain, by="batch", options={"valueFormat": "struct:batch BIGINT"})
    assert not (tmp_path / "t").exists()
    with pytest.raises(ArchiveError, match=r"HF_MALFORMED: topic quotes, source \d+, message 0") as caught:
        run(spark, tmp_path / "t", domain, options={"valueFormat": "struct:price DOUBLE"})
    assert "\n" not in str(caught.value)


def test_a_file_that_cannot_be_written_ends_it_and_the_batch_comes_again(
    spark: SparkSession, run_store: Callable[..., ThreadStore], domain: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    run_store()
    with hf.Context() as ctx:
        source(ctx, 150)

    def full(*_: object) -> None:
        raise OSError(28, "no space left for the test")

    with monkeypatch.context() as patch:
        patch.setattr("holdfast.spark.pipeline.table.sync_directory", full)
        with pytest.raises(OSError, match="no space left for the test"):
            run(spark, tmp_path / "t", domain)
    assert committed(tmp_path / "t" / "_checkpoint") is None
    run(spark, tmp_path / "t", domain)
    assert rows(tmp_path / "t") == sent(150)
