"""Writers, driven as Spark drives them: what they publish, what they refuse, what stays open between
commits."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, IntegerType, StructField, StructType
from spark.three_stores import House, published
from spark.writes import (
    OPTIONS,
    TOPIC_VALUE,
    Query,
    by_topic,
    commit_and_die,
    rows,
    staged,
    write,
)
from support.receiving import until

import holdfast as hf
from holdfast.engine.errors import UsageError
from holdfast.spark import source_cache
from holdfast.spark.batch_writer import BatchWriter
from holdfast.spark.ledger import Ledger
from holdfast.spark.options import OptionError, parse
from holdfast.spark.publishing import slot
from holdfast.spark.stream_writer import StreamWriter
from holdfast.spark.writing import spark_directory, writer_directory


@pytest.fixture
def query(tmp_path: Path) -> Query:
    return Query(OPTIONS, tmp_path)


# What is published ------------------------------------------------------------------------------------------


def test_a_stream_publishes_every_row_in_the_order_of_partitions(house: House, query: Query) -> None:
    parts = [[rows(batch, partition) for partition in range(3)] for batch in range(3)]
    for batch, partitions in enumerate(parts):
        query.run(batch, partitions)
    assert published() == by_topic(*(part for partitions in parts for part in partitions))
    assert staged(query.place) == []


def test_a_batch_write_leaves_nothing_beside_its_rows(house: House) -> None:
    parts = [rows(0, partition) for partition in range(2)]
    write(OPTIONS, parts)
    assert published() == by_topic(*parts)
    write(OPTIONS, parts)
    assert published() == by_topic(*parts, *parts)  # another write, from the same sources
    place = spark_directory(parse(OPTIONS, "write"))
    assert [path.name for path in place.iterdir()] == ["slot-0"]


def test_a_write_with_a_version_is_published_once(house: House) -> None:
    options = {**OPTIONS, "txnAppId": "night", "txnVersion": "7"}
    write(options, [rows(7, 0)])
    write(options, [rows(7, 0)])
    write({**options, "txnVersion": "8"}, [rows(8, 0)])
    write({**options, "txnVersion": "7"}, [rows(7, 0)])
    assert published() == by_topic(rows(7, 0), rows(8, 0))


def test_the_option_topic_wins_over_the_column(house: House) -> None:
    write({**OPTIONS, "topic": "z"}, [rows(0, 0)])
    assert published() == {"z": [value for _, value in rows(0, 0)]}


def test_strings_empty_values_and_large_rows(house: House, query: Query) -> None:
    values = ["", "ä", "z" * 1_000_000, "end"]
    schema = pa.schema([("topic", pa.string()), ("value", pa.string())])
    message = query.task(0, 0, [pa.record_batch([["x"] * len(values), values], schema=schema)])
    query.writer().commit([message], 0)
    assert published() == {"x": [value.encode() for value in values]}


def test_at_least_once_publishes_from_the_task(house: House, query: Query) -> None:
    query.options["delivery"] = "at_least_once"
    tasks = query.tasks(0, [rows(0, 0)])
    assert published() == by_topic(rows(0, 0))
    query.writer().commit(tasks, 0)
    query.tasks(0, [rows(0, 0)])  # the task is repeated
    assert published() == by_topic(rows(0, 0), rows(0, 0))
    assert not query.place.exists()


def test_where_a_writer_keeps_its_record(tmp_path: Path, own_domain: str) -> None:
    query = Query(OPTIONS, tmp_path)
    named = tmp_path / "a b%20c#1?d;e"  # all of it a name, in a URI, too: as Spark takes it
    query.checkpoint.rename(named)
    domain = Path(os.environ["HOLDFAST_DIR"]) / own_domain / "spark" / query.name
    for location, expected in [
        (str(named), named / "holdfast"),
        (f"file://{named}", named / "holdfast"),
        (f"file:{named}", named / "holdfast"),
        (f"hdfs://host{named}", domain),
        (f"file://host{named}", domain),
        (str(query.checkpoint), domain),  # nothing of Spark's is there
        ("", domain),
    ]:
        options = {"checkpointLocation": location} if location else {}
        assert writer_directory(parse(options, "stream write"), query.name) == expected
    given = parse({"checkpointLocation": str(named), "stagingDirectory": str(tmp_path)}, "stream write")
    assert writer_directory(given, query.name) == tmp_path / query.name
    assert (
        writer_directory(parse({"checkpointLocation": str(named)}, "stream write"), "another")
        == domain.parent / "another"
    )


def test_a_query_stays_with_the_record_that_it_has(house: House, query: Query) -> None:
    """0.1.0 took %20 in a file: URI for a space, found no checkpoint, and kept the record with the domain."""
    metadata = query.checkpoint / "metadata"
    kept = metadata.read_bytes()
    metadata.unlink()
    query.run(0, [rows(0, 0)])
    metadata.write_bytes(kept)
    query.run(0, [rows(0, 0)])  # Spark repeats it
    query.run(1, [rows(1, 0)])
    assert published() == by_topic(rows(0, 0), rows(1, 0))
    assert not query.place.exists()


def test_a_checkpoint_that_cannot_be_used_is_no_reason_for_another_record(tmp_path: Path, own_domain: str) -> None:
    """What is published is known there alone: elsewhere a repeated commit would publish it again."""
    query = Query(OPTIONS, tmp_path)
    given = parse({"checkpointLocation": str(query.checkpoint)}, "stream write")
    metadata = query.checkpoint / "metadata"
    whole = metadata.read_bytes()
    metadata.write_bytes(whole[:-1])
    with pytest.raises(UsageError, match=re.escape(str(query.checkpoint))):
        writer_directory(given, query.name)
    metadata.unlink()
    metadata.mkdir()  # a read of it fails, whoever asks
    with pytest.raises(UsageError, match="Is a directory"):
        writer_directory(given, query.name)


def test_writers_that_nobody_goes_on_with_use_sources_again(tmp_path: Path) -> None:
    with slot(tmp_path) as first, slot(tmp_path) as second:
        assert first != second
    with slot(tmp_path) as again:
        assert again == first


# Between commits --------------------------------------------------------------------------------------------


def opened(house: House, topic: str, times: int) -> None:
    """So often has a source been opened for it. One store may hear it later than the others."""
    registry = house.stores["a"].store.holdings.registry
    until("the store has heard of each time", lambda: [each.incarnation for each in registry.sources(topic)] >= [times])
    assert [each.incarnation for each in registry.sources(topic)] == [times]


def test_one_process_opens_its_sources_once(house: House, query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_cache, "KEEP_SECONDS", 3600)
    for batch in range(3):
        query.run(batch, [rows(batch, 0)])
    opened(house, "x", 1)
    query.options["option.fragment_size"] = "4096"  # the query starts again, with another option
    query.run(3, [rows(3, 0)])
    opened(house, "x", 2)
    assert published() == by_topic(*(rows(batch, 0) for batch in range(4)))


def test_sources_that_another_process_wants_are_let_go(
    house: House, query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_cache, "KEEP_SECONDS", 3600)
    query.run(0, [rows(0, 0)])
    commit_and_die(query, 1, query.tasks(1, [rows(1, 0)]), "done_not_swept")
    assert source_cache._kept == {}
    query.run(2, [rows(2, 0)])
    opened(house, "x", 3)
    assert published() == by_topic(*(rows(batch, 0) for batch in range(3)))
    assert sorted(path.name for path in query.place.iterdir()) == ["ledger", "lock", "rows"]


def test_sources_are_not_kept_for_ever(house: House, query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_cache, "KEEP_SECONDS", 0.1)
    query.run(0, [rows(0, 0)])
    until("they are let go", lambda: not source_cache._kept)
    query.run(1, [rows(1, 0)])
    opened(house, "x", 2)


# What is refused --------------------------------------------------------------------------------------------


def _schema(**types: Any) -> StructType:
    return StructType([StructField(name, kind()) for name, kind in types.items()])


@pytest.mark.parametrize(
    ("schema", "options", "said"),
    [
        (_schema(topic=BinaryType), {}, "the column value is missing"),
        (_schema(value=BinaryType), {}, "neither an option topic nor a column topic"),
        (_schema(value=IntegerType), {"topic": "x"}, "column value is int, not binary or string"),
        (_schema(value=BinaryType, key=BinaryType, n=IntegerType), {"topic": "x"}, "columns key, n cannot be written"),
    ],
)
def test_columns_that_cannot_be_written_are_refused(schema: StructType, options: dict[str, str], said: str) -> None:
    if "value" not in schema.fieldNames():
        schema = StructType([field for field in schema.fields if field.name != "topic"])
    with pytest.raises(hf.UsageError, match=said):
        StreamWriter({**OPTIONS, **options}, schema, overwrite=False)


def test_overwriting_says_what_to_do_instead() -> None:
    with pytest.raises(hf.UsageError, match=r"cannot be overwritten.*mode\(\"append\"\)"):
        BatchWriter(OPTIONS, TOPIC_VALUE, overwrite=True)


@pytest.mark.parametrize("row", [("x", None), (None, b"1")])
def test_a_row_without_topic_or_value_fails_its_task_and_leaves_nothing(query: Query, row: Any) -> None:
    with pytest.raises(hf.UsageError, match="is null in 1 rows"):
        query.tasks(0, [[("x", b"0")] * 2000 + [row]])
    assert staged(query.place) == []


@pytest.mark.parametrize("name", ["ume_session_id", "ume_flight_size_behavior", "ume_message_stability_lifetime"])
def test_options_that_would_break_the_promise_are_refused(house: House, query: Query, name: str) -> None:
    query.options[f"option.{name}"] = "1"
    with pytest.raises(OptionError, match=f"option.{name} cannot be given"):
        query.run(0, [rows(0, 0)])


def test_a_flight_that_would_be_given_up_is_refused(house: House, query: Query) -> None:
    query.options["option.ume_flight_size_bytes"] = str(23 << 20)
    with pytest.raises(hf.ConfigError, match="can outgrow retransmit_retention_size_limit"):
        query.run(0, [rows(0, 0)])


def test_without_stores_the_error_names_those_of_the_domain(house: House, query: Query) -> None:
    del query.options["stores"]
    with pytest.raises(OptionError, match=r'needs the stores.*option\("stores", "a,b,c"\)'):
        query.run(0, [rows(0, 0)])


def test_a_row_that_can_never_be_sent_fails_the_commit_before_anything_is_published(house: House, query: Query) -> None:
    query.options["option.ring_size"] = str(32 << 20)
    with pytest.raises(hf.MessageTooLargeError):
        query.run(0, [[("x", b"small"), ("x", b"." * (9 << 20))]])
    assert published() == {"x": []}
    with Ledger(query.place, 0) as ledger:
        assert ledger.record.intent is None
