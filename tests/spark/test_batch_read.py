"""Batch reads, as Spark plans and runs them, without a session: plan here, read there."""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import datasource as f
from pyspark.sql import types as t
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from support.kept_messages import log_of
from support.receiving import of_readers

import holdfast as hf
from holdfast.engine.log.catalog import topic_sources
from holdfast.engine.memory.domain import domain_directory
from holdfast.spark.batch_reader import BatchReader, FilteringBatchReader
from holdfast.spark.errors import DataLossError
from holdfast.spark.losses import losses_in
from holdfast.spark.options import OptionError, parse
from holdfast.spark.schema import columns_of
from holdfast.spark.source import HoldfastSource, filters_are_pushed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from process.conftest import ThreadStore

    from holdfast.spark.splits import Range

SHORT = 90.0
SMALL = {"fragment_size": 1024, "ring_size": 1 << 17}


def reader(*, kind: type[BatchReader] = BatchReader, schema: t.StructType | None = None, **options: Any) -> BatchReader:
    options = (
        options if {"subscribe", "subscribePattern", "assign"} & options.keys() else {"topic": "orders", **options}
    )
    return kind(options, schema or columns_of(parse(options, "schema")))


def rows(read: BatchReader) -> list[dict[str, Any]]:
    return [row for part in read.partitions() for batch in read.read(part) for row in batch.to_pylist()]


def values(read: BatchReader) -> list[bytes]:
    return [row["value"] for row in rows(read)]


def said(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def the_key(topic: str = "orders") -> str:
    (source,) = [source for source in topic_sources(None) if source.topic == topic]
    return source.key


@pytest.fixture(params=["live", "dead"])
def stand(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Leaves the stores running, or stops them."""

    def leave(*stores: ThreadStore) -> None:
        if request.param == "dead":
            for store in stores:
                store.stop()

    return leave


@pytest.fixture
def task(
    run_store: Callable[..., ThreadStore], publish: Callable[..., hf.Source], own_domain: str
) -> tuple[BatchReader, Range]:
    """The only one of a read of five messages."""
    run_store("a")
    publish("orders", said(5))
    read = reader()
    (part,) = read.partitions()
    return read, part


def test_everything_that_is_stable_is_read(
    run_store: Callable[..., ThreadStore], publish: Callable[..., hf.Source], stand: Callable[..., None]
) -> None:
    store = run_store("a")
    source = publish("orders", said(1000))
    publish("other", said(5))
    stand(store)
    found = rows(reader(includeStore="true", includeCrc="true"))
    assert [row["value"] for row in found] == said(1000)
    assert [row["sequence_number"] for row in found] == list(range(1000))
    assert {row["source_reg_id"] for row in found} == set(source.registration_ids.values())
    assert {(row["topic"], row["store"], row["flags"]) for row in found} == {("orders", "a", 0)}
    assert all(row["timestamp_ns"] // 1000 == int(row["timestamp"].timestamp() * 1e6) for row in found[:10])


def test_a_message_of_many_fragments_is_one_row(
    run_store: Callable[..., ThreadStore], publish: Callable[..., hf.Source]
) -> None:
    run_store("a")
    large = [bytes([index]) * (700 * index) for index in range(12)]
    publish("orders", large, **SMALL)
    assert values(reader()) == large
    assert values(reader(maxRecordsPerPartition="1")) == large, "cut in the middle of messages"


def test_several_topics(run_store: Callable[..., ThreadStore], publish: Callable[..., hf.Source]) -> None:
    run_store("a")
    for topic in ("orders", "trades", "other"):
        publish(topic, [topic.encode()])
    assert values(reader(subscribe="trades,orders")) == [b"orders", b"trades"], "sources come by topic"
    assert values(reader(subscribePattern="^o")) == [b"orders", b"other"]
    assert values(reader(assign=json.dumps({"trades": [the_key("trades")]}))) == [b"trades"]
    assert values(reader(assign=json.dumps({"trades": [the_key("trades").partition("/")[0]]}))) == [b"trades"]


def test_what_is_not_there_is_named(run_store: Callable[..., ThreadStore], publish: Callable[..., hf.Source]) -> None:
    run_store("a")
    publish("orders", said(1))
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"topic": "order"}, r"no store keeps topic 'order'; did you mean 'orders'\?"),
        ({"topic": "orders", "readFrom": "store:b"}, "no store of b keeps topic 'orders'"),
        ({"assign": '{"orders": ["5"]}'}, f"topic 'orders' has no source '5'.*its sources are: {the_key()}"),
        ({"assign": '{"order": ["5"]}'}, "no store keeps topic 'order'"),
        (
            {"topic": "orders", "startingOffsets": '{"orders": {"5": 0}}'},
            f"no source '5'.*its sources are: {the_key()}",
        ),
    ]
    for options, message in wrong:
        with pytest.raises(OptionError, match=message):
            reader(**options).partitions()
    assert rows(reader(subscribePattern="nothing")) == [], "a pattern may find nothing yet"


def test_a_domain_that_is_not_there_is_named_and_not_made(
    run_store: Callable[..., ThreadStore], own_domain: str
) -> None:
    here = Path(os.environ["HOLDFAST_DIR"])
    run_store("a")
    wrong = f"{own_domain}x"
    with pytest.raises(hf.NoDomainError, match=f"there is no domain '{wrong}' in {here}; did you mean '{own_domain}'"):
        reader(domain=wrong).partitions()
    with pytest.raises(hf.NoDomainError, match="domains there: "):
        reader(domain="quite_another_one").partitions()
    assert {path.name for path in here.iterdir()}.isdisjoint({wrong, "quite_another_one"})


def test_from_a_number_to_a_number(run_store: Callable[..., ThreadStore], publish: Callable[..., hf.Source]) -> None:
    run_store("a")
    publish("orders", said(100))
    key = the_key()
    number = key.partition("/")[0]
    start, end = json.dumps({"orders": {key: 10}}), json.dumps({"orders": {number: 20}})
    assert values(reader(startingOffsets=start, endingOffsets=end)) == said(10, 10)
    assert values(reader(startingOffsets=json.dumps({"orders": {key: -2}}), endingOffsets=end)) == said(20)
    assert values(reader(startingOffsets=start, endingOffsets=json.dumps({"orders": {key: -1}}))) == said(90, 10)
    assert values(reader(startingOffsets=end, endingOffsets=start)) == []
    with pytest.raises(OptionError, match=f"names 101 for topic orders, source {key}; .* it has 0..99"):
        reader(endingOffsets=json.dumps({"orders": {key: 101}})).partitions()
    with pytest.raises(OptionError, match="named twice"):
        reader(endingOffsets=json.dumps({"orders": {key: 5, number: 6}})).partitions()


def test_from_a_time_to_a_time(run_store: Callable[..., ThreadStore]) -> None:
    run_store("a")
    with hf.Context() as context:
        source = context.source("orders", options={"ume_store_name": ["a"]})
        source.wait_registered(SHORT)
        for payload in said(3):
            source.send(payload)
        source.wait_stable(timeout=SHORT)
    sent = [row["timestamp_ns"] // 1_000_000 for row in rows(reader())]
    assert values(reader(startingTimestamp=str(sent[0]))) == said(3)
    assert values(reader(endingTimestamp=str(sent[0]))) == []
    assert values(reader(endingTimestamp=str(sent[2] + 1))) == said(3)
    assert values(reader(startingOffsetsByTimestamp=json.dumps({"orders": {the_key(): sent[0]}}))) == said(3)
    assert values(reader(startingOffsetsByTimestamp="{}", endingOffsetsByTimestamp="{}")) == said(3)
    late = str(sent[2] + 1)
    with pytest.raises(OptionError, match=f"no message was sent at {late} ms or later"):
        reader(startingTimestamp=late).partitions()
    assert values(reader(startingTimestamp=late, startingOffsetsByTimestampStrategy="latest")) == []


def test_directories_are_read_without_a_domain(
    run_store: Callable[..., ThreadStore],
    publish: Callable[..., hf.Source],
    store_directory: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stores = [run_store(name, "disk") for name in "abc"]
    publish("orders", said(50), "abc", ume_store_group=["0:3"])
    for store in stores:
        store.stop()
    monkeypatch.setenv("HOLDFAST_DOMAIN", "another")
    two = ",".join(str(store_directory(name)) for name in "ab")
    assert values(reader(directory=two)) == said(50)
    one = str(store_directory("c"))
    with pytest.raises(OptionError, match=r"no quorum of the topic's stores.*readFrom=any"):
        reader(directory=one).partitions()
    assert values(reader(directory=one, readFrom="any")) == said(50)


def test_only_what_a_quorum_has_is_read(
    run_store: Callable[..., ThreadStore], publish: Callable[..., hf.Source]
) -> None:
    stores = {name: run_store(name, "disk") for name in "abc"}
    options = {"ume_store_name": list("abc"), "ume_store_group": ["0:3"], "ume_store_check_interval": 50}
    with hf.Context() as context:
        source = context.source("orders", options=options)
        source.wait_registered(SHORT)
        for payload in said(20):
            source.send(payload)
        source.wait_stable(timeout=SHORT)
        stores["c"].stop()
        for payload in said(20, 20):
            source.send(payload)
        source.wait_stable(timeout=SHORT)
    assert values(reader()) == said(40)
    assert values(reader(readFrom="any")) == said(40)
    assert values(reader(readFrom="store:c")) == said(20), "one that was away has what it had"
    assert {row["store"] for row in rows(reader(stores="b", includeStore="true"))} == {"b"}


def damage(log: Path, word: bytes) -> None:
    """Flips one byte of the payload that holds ``word``."""
    for segment in sorted(log.glob("seg-*")):
        with segment.open("r+b") as file:
            at = file.read().find(word)
            if at >= 0:
                file.seek(at)
                file.write(bytes([word[0] ^ 1]))
                return
    raise AssertionError(f"{word!r} is not in {log}")


def test_what_is_damaged_at_one_store_is_read_from_another(
    run_store: Callable[..., ThreadStore], publish: Callable[..., hf.Source], store_directory: Callable[[str], Path]
) -> None:
    stores = [run_store(name, "disk") for name in "abc"]
    publish("orders", [b"number %06d" % number for number in range(500)], "abc", ume_store_group=["0:3"])
    for store in stores:
        store.stop()
    damage(log_of(store_directory("a")), b"number 000100")
    damage(log_of(store_directory("b")), b"number 000200")
    assert values(reader()) == [b"number %06d" % number for number in range(500)]
    with pytest.raises(DataLossError, match=r"topic orders, source .*: numbers 100\.\.\d+ are damaged"):
        rows(reader(readFrom="store:a"))


def test_what_nobody_has_is_an_error_or_a_warning(
    run_store: Callable[..., ThreadStore],
    publish: Callable[..., hf.Source],
    store_directory: Callable[[str], Path],
    caplog: pytest.LogCaptureFixture,
) -> None:
    run_store("a", "disk").stop()
    store = run_store("a", "disk")
    publish("orders", [b"number %06d" % number for number in range(500)])
    store.stop()
    damage(log_of(store_directory("a")), b"number 000100")
    with pytest.raises(DataLossError, match="failOnDataLoss=false") as error:
        rows(reader())
    assert (error.value.topic, error.value.key, error.value.first) == ("orders", the_key(), 100)
    with caplog.at_level(logging.WARNING, "holdfast"):
        found = values(reader(failOnDataLoss="false"))
    assert found == [b"number %06d" % n for n in range(500) if not error.value.first <= n <= error.value.last]
    assert of_readers(caplog) == [str(error.value)]
    values(reader(failOnDataLoss="false"))
    (loss,) = losses_in(domain_directory())
    assert (loss.first, loss.last, loss.why) == (error.value.first, error.value.last, "damaged")


def test_what_retention_took_is_an_error_where_it_is_named(run_store: Callable[..., ThreadStore]) -> None:
    run_store("a", "disk", **{"repository-disk-file-size-limit": 800_000})
    sent = 0
    with hf.Context() as context:
        publisher = context.source("orders", options={"ume_store_name": ["a"]})
        publisher.wait_registered(SHORT)
        while sent < 400:
            publisher.send(bytes(60_000))
            publisher.wait_stable(timeout=SHORT)
            sent += 1
    (source,) = topic_sources(None)
    assert source.oldest > 0
    assert len(rows(reader())) == sent - source.oldest
    start = json.dumps({"orders": {source.key: 0}})
    with pytest.raises(DataLossError, match=rf"numbers 0\.\.{source.oldest - 1} are expired"):
        reader(startingOffsets=start).partitions()
    assert len(rows(reader(startingOffsets=start, failOnDataLoss="false"))) == sent - source.oldest
    assert [(loss.first, loss.last) for loss in losses_in(domain_directory())] == [(0, source.oldest - 1)]


def test_what_is_gone_when_the_task_runs_is_an_error(task: tuple[BatchReader, Range]) -> None:
    read, part = task
    later = replace(part, first=3, stop=7)
    with pytest.raises(DataLossError, match=r"numbers 5\.\.6 are missing"):
        list(read.read(later))


# Filters ----------------------------------------------------------------------------------------------------


def filtered(filters: Sequence[f.Filter], **options: Any) -> list[bytes]:
    read = reader(kind=FilteringBatchReader, **options)
    assert isinstance(read, FilteringBatchReader)
    assert list(read.pushFilters(list(filters))) == list(filters), "Spark evaluates all of them again"
    return values(read)


def test_filters_narrow_what_is_read(run_store: Callable[..., ThreadStore], publish: Callable[..., hf.Source]) -> None:
    run_store("a")
    publish("orders", said(100))
    publish("trades", said(3))
    both = {"subscribe": "orders,trades"}
    number = int(the_key("trades").partition("/")[0])
    assert filtered([f.EqualTo(("topic",), "trades")], **both) == said(3)
    assert filtered([f.EqualTo(("source_reg_id",), number)], **both) == said(3)
    assert filtered([f.In(("sequence_number",), (5, 7))]) == said(3, 5)
    assert filtered([f.LessThan(("sequence_number",), 2)], **both) == [*said(3), *said(3)]
    assert filtered([f.EqualTo(("topic",), "none")], **both) == []
    sent = [row["timestamp"] for row in rows(reader())]
    assert filtered([f.GreaterThan(("timestamp",), sent[50])]) == said(100), "within the slack"
    assert filtered([f.LessThan(("timestamp_ns",), 5)]) == []
    assert filtered([f.LessThan(("timestamp",), sent[50])]) == said(100), "within the slack"
    assert filtered([f.GreaterThan(("timestamp",), sent[50].replace(year=sent[50].year + 1))]) == []


def test_a_reader_takes_filters_only_where_spark_pushes_them(
    run_store: Callable[..., ThreadStore], publish: Callable[..., hf.Source], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = HoldfastSource({"topic": "orders"})
    assert not filters_are_pushed()
    assert type(source.reader(source.schema())) is BatchReader
    monkeypatch.setitem(__import__("sys").modules, "pyspark.sql.worker.data_source_pushdown_filters", logging)
    assert type(source.reader(source.schema())) is FilteringBatchReader


# Where tasks run --------------------------------------------------------------------------------------------


def test_a_plan_without_tasks_reads_nothing() -> None:
    assert list(reader().read(InputPartition(None))) == []


def child(read: BatchReader, part: InputPartition, out: Any) -> None:
    out.send([row["value"] for batch in read.read(part) for row in batch.to_pylist()])


def test_a_task_runs_in_a_forked_process(
    run_store: Callable[..., ThreadStore], publish: Callable[..., hf.Source]
) -> None:
    """As in pyspark's daemon, but with everything imported and used before the fork."""
    run_store("a")
    publish("orders", said(10))
    read = reader()
    (part,) = read.partitions()
    started = read.read(part)
    next(started)
    ways = multiprocessing.get_context("fork")
    ours, theirs = ways.Pipe()
    process = ways.Process(target=child, args=(read, part, theirs))
    process.start()
    assert ours.poll(SHORT)
    assert ours.recv() == said(10)
    process.join()


def test_a_schema_with_fields_that_are_never_null(
    run_store: Callable[..., ThreadStore], publish: Callable[..., hf.Source]
) -> None:
    run_store("a")
    publish("orders", said(2))
    schema = t.StructType([t.StructField("value", t.BinaryType(), nullable=False)])
    read = reader(schema=schema)
    (part,) = read.partitions()
    (batch,) = read.read(part)
    assert batch.schema.equals(to_arrow_schema(schema, timezone="UTC"))


def test_arrow_payloads_of_which_no_column_is_asked_for(
    run_store: Callable[..., ThreadStore], publish: Callable[..., hf.Source]
) -> None:
    """How many rows a message is, its payload says."""
    run_store("a")
    with pa.BufferOutputStream() as out:
        with pa.ipc.new_stream(out, pa.schema([("price", pa.float64())])) as writer:
            writer.write_table(pa.table({"price": [1.0, 2.0]}))
        publish("orders", [out.getvalue().to_pybytes()] * 2)
    schema = t.StructType([t.StructField("sequence_number", t.LongType())])
    assert [row["sequence_number"] for row in rows(reader(schema=schema, valueFormat="arrow"))] == [0, 0, 1, 1]
