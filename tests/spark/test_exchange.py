"""Tasks that read shared memory themselves, and channels between tasks and processes, over the deaths of
both."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from holdfast.channel import ShmChannel
from holdfast.engine.memory.domain import Domain
from holdfast.spark import exchange
from holdfast.spark.batch_reader import BatchReader, plan_of, read_range
from holdfast.spark.exchange import map_ranges, over_ranges, publish_partitions
from holdfast.spark.options import OptionError, parse
from holdfast.spark.schema import columns_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from process.conftest import ThreadStore
    from pyspark.sql import DataFrame, SparkSession
    from spark.three_stores import House

    import holdfast as hf
    from holdfast.spark.splits import Range

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]  # the first job of a session is slow on a busy machine

COUNT = 100
RECORD = "struct:number BIGINT"
WAIT = 60.0
TOLD = "first BIGINT, last BIGINT, total BIGINT"


@pytest.fixture
def numbers(run_store: Callable[..., ThreadStore], publish: Callable[..., hf.Source]) -> hf.Source:
    """A hundred messages, 0 .. 99, and nobody alive."""
    store = run_store("a", "disk")
    source = publish("numbers", [number.to_bytes(8, "little") for number in range(COUNT)])
    store.stop()
    return source


def ranges(domain: str, **more: str) -> list[Range]:
    options = {"domain": domain, "topic": "numbers", "maxRecordsPerPartition": "25", **more}
    return list(BatchReader(options, columns_of(parse(options, "batch"))).partitions())


def at(source: hf.Source, number: int) -> str:
    """Offsets as Spark's users write them."""
    (registration_id,) = source.registration_ids.values()
    return json.dumps({"numbers": {str(registration_id): number}})


def sums(
    spark: SparkSession, domain: str, fn: Any = None, start: str = "earliest", end: str = "latest", **more: str
) -> DataFrame:
    options = {"domain": domain, "valueFormat": RECORD, "maxRecordsPerPartition": "25", **more}
    return map_ranges(spark, "numbers", start, end, fn or of_a_batch(), TOLD, **options)


def of_a_batch() -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """A function that is pickled by value, as those of notebooks and of __main__ are."""

    def told(batch: pa.RecordBatch) -> pa.RecordBatch:
        found = batch["number"].to_pylist()
        return pa.record_batch([[found[0]], [found[-1]], [sum(found)]], names=["first", "last", "total"])

    return told


def rows(frame: DataFrame) -> list[tuple[int, ...]]:
    return [tuple(row) for row in frame.collect()]


def objects(domain: str) -> list[str]:
    there = Domain(domain, join=False)
    try:
        return sorted(item.name for item in there.objects())
    finally:
        there.close()


# Ranges -----------------------------------------------------------------------------------------------------


def test_a_task_per_range_reads_it_itself(spark: SparkSession, domain: str, numbers: hf.Source) -> None:
    frame = sums(spark, domain)
    assert frame.rdd.getNumPartitions() == 4
    assert rows(frame) == [(k, k + 24, sum(range(k, k + 25))) for k in range(0, COUNT, 25)]
    assert rows(frame.selectExpr("sum(total)")) == [(sum(range(COUNT)),)]


def test_offsets_are_those_of_a_read(spark: SparkSession, domain: str, numbers: hf.Source) -> None:
    assert rows(sums(spark, domain, None, at(numbers, 10), at(numbers, 20))) == [(10, 19, sum(range(10, 20)))]
    assert rows(sums(spark, domain, None, at(numbers, 7), at(numbers, 7))) == []
    with pytest.raises(OptionError, match="no store keeps topic 'nothing'; kept are: numbers"):
        map_ranges(spark, "nothing", None, None, of_a_batch(), TOLD, domain=domain)
    with pytest.raises(OptionError, match="did you mean minPartitions"):
        sums(spark, domain, minPartition="3")


def test_options_may_say_which_topics_and_from_when(spark: SparkSession, domain: str, numbers: hf.Source) -> None:
    given = {"subscribe": "numbers", "startingTimestamp": "0", "valueFormat": RECORD, "domain": domain}
    frame = map_ranges(spark, None, None, None, of_a_batch(), TOLD, **given)
    assert rows(frame) == [(0, 99, sum(range(COUNT)))]


def test_a_generator_sees_a_whole_range(spark: SparkSession, domain: str, numbers: hf.Source) -> None:
    def halves(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch | None]:
        seen = [number for batch in batches for number in batch["number"].to_pylist()]
        for part in (seen[:10], seen[10:]):
            yield pa.record_batch([[part[0]], [part[-1]], [sum(part)]], names=["first", "last", "total"])
        yield None

    class Object:
        def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch | None]:
            yield from halves(batches)

    expected = [(k, k + 9) for k in range(0, COUNT, 25)] + [(k + 10, k + 24) for k in range(0, COUNT, 25)]
    for fn in (halves, Object()):
        assert sorted(row[:2] for row in rows(sums(spark, domain, fn))) == sorted(expected)


def test_nothing_is_an_answer_and_types_are_cast(spark: SparkSession, domain: str, numbers: hf.Source) -> None:
    def sometimes(batch: pa.RecordBatch) -> pa.RecordBatch | None:
        first = batch["number"][0].as_py()
        if first != 50:
            return None
        return pa.record_batch([pa.array([first], pa.int8())] * 3, names=["first", "last", "total"])

    assert rows(sums(spark, domain, sometimes)) == [(50, 50, 50)]


def test_a_function_of_the_main_program(spark: SparkSession, domain: str, numbers: hf.Source) -> None:
    scope: dict[str, Any] = {"__name__": "__main__", "pa": pa, "pc": pc}
    code = """def total(batch):
        return pa.record_batch([[0], [0], [pc.sum(batch["number"]).as_py()]], ["first", "last", "total"])
    """
    exec(code, scope)
    assert rows(sums(spark, domain, scope["total"]).selectExpr("sum(total)")) == [(sum(range(COUNT)),)]


def test_arrow_payloads_are_bytes_to_a_function() -> None:
    nothing: Any = None
    with pytest.raises(
        OptionError, match=r"fn gets the bytes of a payload; leave it away, and in fn: pa\.ipc"
    ) as caught:
        map_ranges(nothing, "numbers", None, None, lambda batch: batch, "n BIGINT", valueFormat="arrow")
    assert ".schema(" not in str(caught.value)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda _: 1 / 0, "ZeroDivisionError"),
        (lambda _: 7, "fn returned int, not a pyarrow.RecordBatch"),
        (lambda batch: batch, "fn returned the columns number, topic.*; the schema says first, last, total"),
        (lambda _: pa.record_batch([["x"]] * 3, names=["first", "last", "total"]), "ArrowInvalid"),
    ],
)
def test_an_error_names_topic_and_numbers(
    spark: SparkSession, domain: str, numbers: hf.Source, answer: Callable[[Any], Any], message: str
) -> None:
    def wrong(batch: pa.RecordBatch) -> Any:
        return answer(batch) if batch["number"][0].as_py() == 25 else None

    with pytest.raises(Exception, match=rf"(?s){message}.*in topic numbers, source \d+/\w+, numbers 25\.\.49"):
        sums(spark, domain, wrong).collect()


def test_a_function_over_ranges_gets_the_ranges(spark: SparkSession, domain: str, numbers: hf.Source) -> None:
    parts = ranges(domain)
    said = over_ranges(spark, parts[::-1], lambda part: b"%d..%d of %b" % (part.first, part.stop, part.topic.encode()))
    assert said == [b"%d..%d of numbers" % (k, k + 25) for k in (75, 50, 25, 0)]
    assert over_ranges(spark, [], lambda _: b"") == []


def test_workers_do_not_look_through_modules_after_each_task(
    spark: SparkSession, domain: str, numbers: hf.Source
) -> None:
    """Spark's daemon collects garbage between tasks, and would look at every object of every module each
    time."""
    parts = ranges(domain)
    said = over_ranges(spark, parts, lambda _: b"%d" % gc.get_freeze_count())
    assert all(int(count) > 20_000 for count in said)
    options = parse({"topic": "numbers"}, "batch")
    before = gc.get_freeze_count()
    assert [batch.num_rows for batch in read_range(parts[0], plan_of(options, columns_of(options)))] == [25]
    assert gc.get_freeze_count() == before  # nor is it done where a program reads


def test_a_task_that_does_not_see_the_logs_says_so(
    spark: SparkSession, domain: str, numbers: hf.Source, tmp_path: Path
) -> None:
    away = [replace(part, place=replace(part.place, host="node7", boot="5")) for part in ranges(domain)]
    with pytest.raises(
        Exception, match=r"(?s)are on host node7 \(boot 5\); this task runs on .*in topic numbers.*0\.\.24"
    ):
        over_ranges(spark, away[:1], lambda _: b"")
    frame = sums(spark, domain)
    (tmp_path / "store-a").rename(tmp_path / "moved")
    with pytest.raises(Exception, match=r"does not see .*store-a of store a.*--ipc=host"):
        frame.collect()


# Tasks that are killed --------------------------------------------------------------------------------------


def test_a_killed_task_leaves_nothing_and_harms_nothing(spark: SparkSession, domain: str, numbers: hf.Source) -> None:
    before = objects(domain)

    def deadly(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch["number"][0].as_py() == 50:
                os.kill(os.getpid(), signal.SIGKILL)
            yield of_a_batch()(batch)

    with pytest.raises(Exception, match="exited unexpectedly"):
        sums(spark, domain, deadly).collect()
    assert objects(domain) == before
    assert rows(sums(spark, domain).selectExpr("sum(total)")) == [(sum(range(COUNT)),)]


def test_a_task_that_publishes_is_killed_and_repeated(spark: SparkSession, house: House, domain: str) -> None:
    """Its source's session is free at once, and all is there at least once."""
    options = {"domain": domain, "stores": "a,b,c", "commitTimeout": "90s", "option.ume_registration_interval": "3000"}
    made = spark.range(0, 3000, 1, 3)
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "500")

    def payloads(batch: pa.RecordBatch) -> Any:
        return pc.cast(batch["id"], pa.string())

    def deadly(batch: pa.RecordBatch) -> Any:
        if batch["id"][0].as_py() == 1500:
            os.kill(os.getpid(), signal.SIGKILL)
        return payloads(batch)

    try:
        with pytest.raises(Exception, match="exited unexpectedly"):
            publish_partitions(made, "numbers", deadly, **options)
        assert publish_partitions(made, "numbers", payloads, **options) == [1000, 1000, 1000]
    finally:
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "65536")
    read = spark.read.format("holdfast").options(domain=domain, topic="numbers").load()
    kept = read.selectExpr("count(*)", "count(DISTINCT value)", "count(DISTINCT source_reg_id)")
    ((count, distinct, sources),) = rows(kept)
    assert distinct == 3000
    assert sources in {2, 3, 4}  # two tasks at a time, and maybe two of the failed job that Spark has left to itself
    assert count >= 3500


# Channels ---------------------------------------------------------------------------------------------------

WRITE = """
import sys, pyarrow as pa
from holdfast.channel import ShmChannel
name, first, count, finish = sys.argv[1], *map(int, sys.argv[2:5])
with ShmChannel(name, capacity=1 << 18) as channel:
    for k in range(first, first + count):
        channel.write(pa.record_batch({"number": [k] * 100}))
        print(k, flush=True)
    if finish:
        channel.finish()
    else:
        sys.stdin.read()
"""
READ = """
import sys
from holdfast.channel import ShmChannel
with ShmChannel(sys.argv[1]) as channel:
    for batch in channel:
        print(*batch["number"].to_pylist(), flush=True)
        del batch
"""


@pytest.fixture
def program() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []

    def start(code: str, *arguments: object) -> subprocess.Popen[str]:
        argv = [sys.executable, "-c", code, *map(str, arguments)]
        started.append(subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def lines(process: subprocess.Popen[str], count: int) -> list[list[int]]:
    assert process.stdout is not None
    return [[int(word) for word in process.stdout.readline().split()] for _ in range(count)]


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()


def test_a_channel_is_that_of_every_process() -> None:
    assert exchange.ShmChannel is ShmChannel


def test_tasks_write_to_a_process_and_both_are_killed(
    spark: SparkSession, domain: str, numbers: hf.Source, program: Callable[..., subprocess.Popen[str]]
) -> None:
    def feeding(die_at: int | None) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
        def feed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            with ShmChannel("numbers", domain) as channel:
                for batch in batches:
                    for at in range(0, batch.num_rows, 10):
                        part = batch.select(["number"]).slice(at, 10)
                        if part["number"][0].as_py() == die_at:
                            os.kill(os.getpid(), signal.SIGKILL)
                        channel.write(part, timeout=WAIT)
                    yield of_a_batch()(batch)
                channel.finish(WAIT)

        return feed

    whole = {"maxRecordsPerPartition": "1000"}
    one = program(READ, "numbers")
    with pytest.raises(Exception, match="exited unexpectedly"):
        sums(spark, domain, feeding(50), **whole).collect()
    assert lines(one, 5) == [list(range(k, k + 10)) for k in range(0, 50, 10)]
    kill(one)
    two = program(READ, "numbers")
    assert rows(sums(spark, domain, feeding(None), at(numbers, 50), **whole)) == [(50, 99, sum(range(50, 100)))]
    out, _ = two.communicate(timeout=WAIT)
    found = [int(line.split()[0]) for line in out.splitlines()]
    assert found in ([50, 60, 70, 80, 90], [40, 50, 60, 70, 80, 90])  # killed before it let go of 40
    assert two.returncode == 0
    assert not [name for name in objects(domain) if ".channel" in name]


def test_a_process_writes_to_tasks_and_both_are_killed(
    spark: SparkSession, domain: str, program: Callable[..., subprocess.Popen[str]]
) -> None:
    def task(die_at: int | None) -> list[int]:
        def take(_: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            with ShmChannel("work", domain) as channel:
                for batch in channel:
                    k = batch["number"][0].as_py()
                    if k == die_at:
                        os.kill(os.getpid(), signal.SIGKILL)
                    yield pa.record_batch([[k], [pc.sum(batch["number"]).as_py()]], names=["k", "total"])
                    del batch

        found = spark.range(0, 1, 1, 1).mapInArrow(take, "k BIGINT, total BIGINT").collect()
        assert all(row.total == 100 * row.k for row in found)
        return [row.k for row in found]

    one = program(WRITE, "work", 0, 10, 0)
    assert lines(one, 10) == [[k] for k in range(10)]
    with pytest.raises(Exception, match="exited unexpectedly"):
        task(3)
    kill(one)
    two = program(WRITE, "work", 10, 40, 1)  # more than the ring holds at once
    assert task(None) == list(range(3, 50))
    assert two.wait(WAIT) == 0
    assert not [name for name in objects(domain) if ".channel" in name]
