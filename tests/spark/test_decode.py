"""Messages as Arrow batches, with exactly the schema that Spark expects."""

from __future__ import annotations

import io
import struct
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import types as t
from pyspark.sql.pandas.types import to_arrow_schema

from holdfast.engine.log.column_reader import Columns
from holdfast.spark.decode import Decoder, bits_of
from holdfast.spark.errors import MalformedError
from holdfast.spark.options import parse
from holdfast.spark.place import Place
from holdfast.spark.schema import columns_of
from holdfast.spark.splits import Range

PART = Range("orders", "7/0a1b2c3d", 2**64 - 7, 0, 100, (), (), Place("here", "5", ""))
SENT = 1_709_294_400_000_007_999


def columns(payloads: list[bytes], store: str = "a") -> Columns:
    count = len(payloads)
    offsets = np.concatenate([[0], np.cumsum([len(payload) for payload in payloads])]).astype(np.int32)
    numbers = np.arange(10, 10 + count)
    return Columns(
        count, numbers, numbers, SENT + np.arange(count), np.zeros(count, np.int32), offsets,
        np.frombuffer(b"".join(payloads), np.uint8), np.arange(count), store,
    )  # fmt: skip


def decoded(payloads: list[bytes], schema: t.StructType | None = None, **options: str) -> list[dict[str, Any]]:
    parsed = parse({"topic": "orders", **options}, "schema")
    expected = to_arrow_schema(schema or columns_of(parsed), timezone="UTC")
    batches = list(Decoder(PART, expected, parsed.value_format).batches(columns(payloads)))
    assert all(batch.schema.equals(expected) for batch in batches)
    for batch in batches:
        batch.validate(full=True)
    return [row for batch in batches for row in batch.to_pylist()]


def test_all_columns() -> None:
    first, second = decoded([b"", b"\x00two"], includeStore="true", includeCrc="true")
    moment = datetime(2024, 3, 1, 12, 0, 0, 7, UTC)
    assert first == {
        "value": b"", "topic": "orders", "source_reg_id": -7, "sequence_number": 10, "timestamp": moment,
        "timestamp_ns": SENT, "flags": 0, "store": "a", "crc": 0,
    }  # fmt: skip
    assert second["value"] == b"\x00two"
    assert second["timestamp"] == moment.replace(microsecond=8), "timestamps are cut down to a microsecond"


def test_only_what_is_asked_for_in_that_order() -> None:
    assert [list(row.items()) for row in decoded([b"x"], columns="flags,value")] == [[("flags", 0), ("value", b"x")]]


def test_constant_text_is_repeated_as_it_is() -> None:
    part = replace(PART, topic="zwölf/ä")
    schema = to_arrow_schema(t.StructType([t.StructField("topic", t.StringType())]), timezone="UTC")
    (batch,) = Decoder(part, schema, parse({"topic": "orders"}, "schema").value_format).batches(columns([b""] * 3))
    batch.validate(full=True)
    assert batch.column("topic").to_pylist() == ["zwölf/ä"] * 3


def test_constants_grow_and_shrink_with_the_batches() -> None:
    schema = to_arrow_schema(t.StructType([t.StructField("topic", t.StringType())]), timezone="UTC")
    decoder = Decoder(PART, schema, parse({"topic": "orders"}, "schema").value_format)
    for count in (3, 1, 5):
        (batch,) = decoder.batches(columns([b""] * count))
        assert batch.to_pylist() == [{"topic": "orders"}] * count


@pytest.mark.parametrize("number", [0, 2**63 - 1, 2**63, 2**64 - 1])
def test_bit_patterns(number: int) -> None:
    assert struct.pack("<q", bits_of(number)) == struct.pack("<Q", number)


RECORD = (
    "flag BOOLEAN, tiny TINYINT, small SMALLINT, whole INT, big BIGINT, real FLOAT, double DOUBLE, day DATE, at TIMESTAMP, "
    "name CHAR(6), raw BINARY(3)"
)
PACKED = struct.Struct("<?bhiqfdiq6s3s")


def test_records_of_every_type() -> None:
    rows = [
        PACKED.pack(True, -1, -2, -3, -(2**40), 0.5, 1e300, 19783, 1_709_294_400_000_007, b"ab\0\0\0\0", b"\0\1\2"),
        PACKED.pack(False, 127, 32767, 2**31 - 1, 2**63 - 1, -0.5, -1e-300, -1, -1, "zäh  ".encode(), b"\xff\xfe\xfd"),
    ]
    names = [part.split()[0] for part in RECORD.split(", ")]
    first, second = decoded(rows, valueFormat=f"struct:{RECORD}", columns=",".join(names))
    moment = datetime(2024, 3, 1, 12, 0, 0, 7, UTC)
    assert list(first.values()) == [
        True, -1, -2, -3, -(2**40), 0.5, 1e300, date(2024, 3, 1), moment, "ab", b"\0\1\2",
    ]  # fmt: skip
    assert list(second.values()) == [
        False, 127, 32767, 2**31 - 1, 2**63 - 1, -0.5, -1e-300, date(1969, 12, 31),
        datetime(1969, 12, 31, 23, 59, 59, 999999, UTC), "zäh", b"\xff\xfe\xfd",
    ]  # fmt: skip


def test_a_field_in_the_middle_of_a_record() -> None:
    rows = [struct.pack("<bqb", 1, number, 2) for number in range(5)]
    wanted = decoded(rows, valueFormat="struct:a TINYINT, number BIGINT, b TINYINT", columns="number,sequence_number")
    assert [(row["number"], row["sequence_number"]) for row in wanted] == [(n, 10 + n) for n in range(5)]


def test_a_payload_of_another_size_is_named() -> None:
    with pytest.raises(
        MalformedError, match="source 18446744073709551609, message 11: 3 bytes, and a record has 4"
    ) as error:
        decoded([b"four", b"tri", b"fives"], valueFormat="struct:a INT")
    assert error.value.number == 11


def test_sizes_that_add_up_are_still_wrong() -> None:
    with pytest.raises(MalformedError, match="message 10: 5 bytes"):
        decoded([b"fives", b"tri"], valueFormat="struct:a INT")


def test_text_that_is_none_is_named() -> None:
    with pytest.raises(MalformedError, match="message 11: field name is no UTF-8 text"):
        decoded([b"good", b"\xff\xfe\xfd\xfc"], valueFormat="struct:name CHAR(4)")


def test_records_of_which_no_field_is_asked_for_are_not_looked_at() -> None:
    assert decoded([b"any size"], valueFormat="struct:a INT", columns="flags") == [{"flags": 0}]


# Arrow ------------------------------------------------------------------------------------------------------

PRICES = t.StructType(
    [
        t.StructField("price", t.DoubleType()),
        t.StructField("sequence_number", t.LongType()),
        t.StructField("name", t.StringType()),
    ]
)


def ipc(table: pa.Table, *, file: bool = False) -> bytes:
    out = io.BytesIO()
    with (pa.ipc.new_file if file else pa.ipc.new_stream)(out, table.schema) as writer:
        writer.write_table(table)
    return out.getvalue()


@pytest.mark.parametrize("file", [False, True])
def test_arrow_payloads_are_unpacked(file: bool) -> None:
    one = pa.table(
        {"name": pa.array(["a", None], pa.large_string()), "more": [1, 2], "price": pa.array([1, 2], pa.float32())}
    )
    none = one.slice(0, 0)
    rows = decoded([ipc(one, file=file), ipc(none, file=file), ipc(one, file=file)], PRICES, valueFormat="arrow")
    assert rows == [
        {"price": 1.0, "sequence_number": 10, "name": "a"},
        {"price": 2.0, "sequence_number": 10, "name": None},
        {"price": 1.0, "sequence_number": 12, "name": "a"},
        {"price": 2.0, "sequence_number": 12, "name": None},
    ]


@pytest.mark.parametrize(
    "payload",
    [
        b"", b"not arrow at all", b"ARROW1 not either", ipc(pa.table({"price": [1.0]})),
        ipc(pa.table({"price": ["much"], "name": ["a"]})), ipc(pa.table({"price": [1.0], "name": ["a"]}))[:-30],
    ],
)  # fmt: skip
def test_what_is_no_such_arrow_data_is_named(payload: bytes) -> None:
    good = ipc(pa.table({"price": [1.0], "name": ["a"]}))
    with pytest.raises(
        MalformedError, match=r"source 18446744073709551609, message 11: not Arrow data with these columns"
    ):
        decoded([good, payload], PRICES, valueFormat="arrow")


def test_lengths_in_arrow_payloads_are_not_believed() -> None:
    """Whoever looked at such a row would read other memory, or no text."""
    good = ipc(pa.table({"price": [1.0, 2.0, 3.0], "name": ["a" * 1111, "b" * 2222, "c"]}))
    beyond = good.replace(struct.pack("<ii", 1111, 3333), struct.pack("<ii", 1 << 30, 3333))
    for bad in (beyond, good.replace(b"b" * 2222, b"\xff" * 2222)):
        assert len(bad) == len(good)
        assert bad != good
        with pytest.raises(MalformedError, match="message 11: not Arrow data with these columns"):
            decoded([good, bad], PRICES, valueFormat="arrow")


def test_a_null_where_the_schema_says_never_is_named() -> None:
    schema = t.StructType([t.StructField("price", t.DoubleType(), nullable=False)])
    good, hole = (ipc(pa.table({"price": pa.array([1.0, each])})) for each in (2.0, None))
    assert decoded([good], schema, valueFormat="arrow") == [{"price": 1.0}, {"price": 2.0}]
    with pytest.raises(MalformedError, match=r"message 11: .* null in price"):
        decoded([good, hole], schema, valueFormat="arrow")
