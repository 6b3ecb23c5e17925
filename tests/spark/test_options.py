"""The options of the data source: every one is checked before anything is opened."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from holdfast import ConfigError
from holdfast.spark.options import OPTIONS, OptionError, Options, ValueFormat, parse
from holdfast.spark.record_ddl import Field, record_fields

TOPIC = {"topic": "orders"}


def refused(role: Any, **options: str) -> str:
    with pytest.raises(OptionError) as error:
        parse({**({} if "topic" in options else TOPIC), **options}, role)
    return str(error.value)


def test_the_table_and_the_fields_are_the_same() -> None:
    assert {option.field for option in OPTIONS} | {"engine"} == {field.name for field in dataclasses.fields(Options)}


def test_names_are_matched_without_regard_to_case() -> None:
    assert parse({"TOPIC": "orders", "minpartitions": "3"}, "batch").min_partitions == 3


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("topc", "topic"), ("startingOffset", "startingOffsets"), ("maxRecordPerTriger", "maxRecordsPerTrigger")],
)
def test_an_unknown_option_is_refused_with_the_nearest_name(name: str, nearest: str) -> None:
    assert f"did you mean {nearest}?" in refused("batch", **{name: "1"})


def test_an_option_that_is_like_none_is_refused_with_all_names() -> None:
    assert "subscribePattern" in refused("batch", zzzzzzzz="1")


def test_an_error_is_both_ours_and_a_value_error() -> None:
    for kind in (ConfigError, ValueError):
        with pytest.raises(kind):
            parse({"nothing": "1"}, "batch")


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("subscribe", "a, b", ("a", "b")),
        ("subscribePattern", "^o", "^o"),
        ("assign", '{"orders": ["1", 2]}', {"orders": ("1", "2")}),
    ],
)
def test_ways_to_name_topics(name: str, text: str, value: object) -> None:
    parsed = parse({name: text}, "batch")
    assert next(getattr(parsed, o.field) for o in OPTIONS if o.name == name) == value


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("startingOffsets", " Earliest ", "earliest"),
        ("startingOffsets", '{"orders": {"7": -2, "8/0a1b2c3d": 5}}', {"orders": {"7": -2, "8/0a1b2c3d": 5}}),
        ("startingOffsets", '{"v": 1, "topics": {"orders": {"7": 5}}}', {"orders": {"7": 5}}),
        ("endingOffsets", '{"orders": {"7": -1}}', {"orders": {"7": -1}}),
        ("startingTimestamp", "1700000000000", 1_700_000_000_000),
        ("startingOffsetsByTimestamp", '{"orders": {"7": 17}}', {"orders": {"7": 17}}),
        ("startingOffsetsByTimestampStrategy", "LATEST", "latest"),
        ("failOnDataLoss", "False", False),
        ("maxRecordsPerPartition", "10", 10),
        ("stores", "a,b", ("a", "b")),
        ("directory", "/x,/y", ("/x", "/y")),
        ("readFrom", "Any", "any"),
        ("readFrom", "store:Lab", "store:Lab"),
        ("columns", "value, flags", ("value", "flags")),
        ("includeStore", "true", True),
        ("valueFormat", "arrow", ValueFormat("arrow")),
        ("valueFormat", "struct:a INT", ValueFormat("struct", (Field("a", "int", 0, 4),))),
    ],
)
def test_values_that_are_taken(name: str, text: str, value: object) -> None:
    parsed = parse({**TOPIC, name: text}, "batch")
    assert next(getattr(parsed, o.field) for o in OPTIONS if o.name == name) == value


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("startingOffsets", "newest", "JSON such as"),
        ("startingOffsets", '{"orders": 5}', "a JSON object of sources"),
        ("startingOffsets", '{"orders": {"7": -3}}', "from -2"),
        ("startingOffsets", '{"orders": {"7": true}}', "a whole number"),
        ("startingOffsets", '{"orders": {"7": 9223372036854775808}}', "a whole number"),
        ("startingOffsets", '{"v": 2, "topics": {}}', "version 1"),
        ("startingTimestamp", "-1", "milliseconds"),
        ("startingTimestamp", "2024-01-01", "a whole number"),
        ("startingOffsetsByTimestamp", '{"orders": {"7": -1}}', "from 0"),
        ("failOnDataLoss", "1", "true or false"),
        ("minPartitions", "0", "from 1"),
        ("stores", "a,,b", "names"),
        ("stores", "a,a", "each name once"),
        ("readFrom", "store:", "store:NAME"),
        ("readFrom", "majority", "store:NAME"),
        ("valueFormat", "json", "binary, arrow"),
        ("valueFormat", "struct:", "struct:FIELDS"),
        ("valueFormat", "struct:a DECIMAL", "the types are"),
        ("columns", "", "names"),
    ],
)
def test_values_that_are_refused(name: str, text: str, said: str) -> None:
    error = refused("batch", **{name: text})
    assert error.startswith(f"LBM_EINVAL: option {name} is {text!r}; expected: ")
    assert said in error


@pytest.mark.parametrize("text", ["(", "["])
def test_a_pattern_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match="a regular expression"):
        parse({"subscribePattern": text}, "batch")


@pytest.mark.parametrize(("text", "seconds"), [("500ms", 0.5), ("30s", 30.0), (" 15M ", 900.0), ("1h", 3600.0)])
def test_times(text: str, seconds: float) -> None:
    assert parse({**TOPIC, "maxTriggerDelay": text}, "stream").max_trigger_delay == seconds


@pytest.mark.parametrize("text", ["1", "s", "-1s", "1000001h", "9" * 400 + "h", "9" * 5000 + "ms"])
def test_a_time_that_is_none_or_longer_than_a_century_is_refused(text: str) -> None:
    assert "up to 1000000h" in refused("stream", **TOPIC, maxTriggerDelay=text)


def test_session_ids_are_decimal_or_hexadecimal() -> None:
    assert parse({**TOPIC, "session": "0x2A"}, "stream").session == 42
    assert "from 1" in refused("stream", session="0")


@pytest.mark.parametrize(
    ("role", "options", "said"),
    [
        ("batch", {"topic": "a", "subscribe": "b"}, "given: topic, subscribe"),
        ("batch", {"startingOffsets": "earliest", "startingTimestamp": "5"}, "exclude each other"),
        ("batch", {"endingTimestamp": "5", "endingOffsetsByTimestamp": "{}"}, "exclude each other"),
        ("batch", {"domain": "d", "directory": "/x"}, "exclude each other"),
        ("batch", {"startingOffsets": "latest"}, "nothing to read"),
        ("batch", {"startingOffsets": '{"orders": {"7": -1}}'}, "nothing to read"),
        ("batch", {"endingOffsets": "earliest"}, "nothing to read"),
        ("batch", {"endingOffsets": '{"orders": {"7": -2}}'}, "nothing to read"),
        ("batch", {"session": "5"}, "session is for a stream read, this is a batch read"),
        ("batch", {"delivery": "at_least_once"}, "delivery is for a write, this is a batch read"),
        ("batch", {"option.ring_size": "1"}, "option.ring_size is for a write"),
        ("stream", {"endingOffsets": "latest"}, "endingOffsets is for a batch read, this is a stream read"),
        ("stream", {"ackMode": "progress"}, "no session"),
        ("stream", {"minRecordsPerTrigger": "5", "maxRecordsPerTrigger": "4"}, "more than maxRecordsPerTrigger"),
        ("write", {"subscribe": "a"}, "subscribe is for a read, this is a batch write"),
        ("stream write", {"txnVersion": "1"}, "txnVersion is for a batch write"),
    ],
)
def test_options_that_do_not_go_together(role: Any, options: dict[str, str], said: str) -> None:
    assert said in refused(role, **options)


def test_a_read_without_a_topic_is_refused() -> None:
    with pytest.raises(OptionError, match="a read needs one of topic, subscribe, subscribePattern, assign"):
        parse({}, "batch")


def test_the_schema_is_asked_for_before_spark_says_what_for() -> None:
    assert parse({"delivery": "at_least_once", "columns": "value"}, "schema").columns == ("value",)


def test_a_session_acknowledges_unless_it_is_told_not_to() -> None:
    assert parse({**TOPIC, "session": "5"}, "stream").ack_mode == "progress"
    assert parse({**TOPIC, "session": "5", "ackMode": "none"}, "stream").ack_mode == "none"
    assert parse(TOPIC, "stream").ack_mode == "none"


def test_options_of_the_publishing_source_pass_through() -> None:
    assert parse({"option.ume_flight_size": "10", "topic": "x"}, "write").engine == {"ume_flight_size": "10"}


# Records ----------------------------------------------------------------------------------------------------


def test_fields_lie_one_behind_the_other() -> None:
    assert record_fields(" price DOUBLE, `the size`: long,venue CHAR(4) , raw binary( 3 )") == (
        Field("price", "double", 0, 8),
        Field("the size", "bigint", 8, 8),
        Field("venue", "char", 16, 4),
        Field("raw", "binary", 20, 3),
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("price", "is no field"),
        ("price DOUBLE,", "is no field"),
        ("a INT, A INT", "is there twice"),
        ("a CHAR", "needs a width"),
        ("a CHAR(0)", "needs a width"),
        ("a INT(4)", "the types are BOOLEAN"),
        ("a STRING", "the types are BOOLEAN"),
        ("a BINARY(1048577)", "at most 1048576"),
    ],
)
def test_records_that_are_none(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        record_fields(text)


@pytest.mark.parametrize("location", ["checkpoints/x", "./x", "x", "file:x", "file:"])
@pytest.mark.parametrize("role", ["stream", "stream write"])
def test_relative_checkpoints_are_refused(location: str, role: Any) -> None:
    """Spark resolves one against its own working directory, and a commit against another one."""
    with pytest.raises(OptionError, match=rf"checkpointLocation is '{location}'; expected: an absolute path"):
        parse({**TOPIC, "checkpointLocation": location}, role)


@pytest.mark.parametrize("location", ["/x/y", "file:/x", "file:///x", "hdfs://host/x", "s3a://bucket", "dbfs:/x"])
def test_absolute_checkpoints_are_taken(location: str) -> None:
    assert parse({**TOPIC, "checkpointLocation": location}, "stream write").checkpoint_location == location


def test_a_relative_staging_directory_is_refused() -> None:
    with pytest.raises(OptionError, match="stagingDirectory is 'rows'; expected: an absolute path"):
        parse({**TOPIC, "stagingDirectory": "rows"}, "write")
