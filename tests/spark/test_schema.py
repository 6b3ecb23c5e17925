"""Which columns there are, and what of a user's schema is taken."""

from __future__ import annotations

import pytest
from pyspark.sql import types as t

from holdfast.spark.options import OptionError, parse
from holdfast.spark.schema import checked, columns_of

BINARY = "value:binary,topic:string,source_reg_id:bigint,sequence_number:bigint,timestamp:timestamp,timestamp_ns:bigint,flags:int"


def names(**options: str) -> str:
    return (
        columns_of(parse({"topic": "orders", **options}, "schema"))
        .simpleString()
        .removeprefix("struct<")
        .removesuffix(">")
    )


def field(name: str, kind: t.DataType) -> t.StructField:
    return t.StructField(name, kind)


def test_the_columns_of_the_contract() -> None:
    assert names() == BINARY
    assert names(includeStore="true") == f"{BINARY},store:string"
    assert names(includeCrc="true", includeStore="true") == f"{BINARY},store:string,crc:bigint"


def test_columns_selects_in_its_order() -> None:
    assert names(columns="flags,value,crc") == "flags:int,value:binary,crc:bigint"


def test_fields_of_a_record_take_the_place_of_the_value() -> None:
    assert (
        names(valueFormat="struct:price DOUBLE, venue CHAR(4)", columns="venue,price,topic")
        == "venue:string,price:double,topic:string"
    )
    assert names(valueFormat="struct:a TINYINT").startswith("a:tinyint,topic:string,")


def test_a_column_that_is_not_there_is_refused_with_the_list() -> None:
    with pytest.raises(OptionError, match=r"columns names 'val'; the columns are value binary, topic string"):
        names(columns="val")
    with pytest.raises(OptionError, match=r"'value'; the columns are price double"):
        names(valueFormat="struct:price DOUBLE", columns="value")


def test_a_field_that_hides_a_column_is_refused() -> None:
    for name in ("flags", "Topic", "CRC"):
        with pytest.raises(OptionError, match=f"called '{name}'"):
            names(valueFormat=f"struct:{name} INT")


def test_arrow_payloads_need_a_schema() -> None:
    with pytest.raises(OptionError, match=r"give them: \.schema"):
        names(valueFormat="arrow")


@pytest.mark.parametrize(
    ("schema", "options", "said"),
    [
        (t.StructType(), {}, "without columns"),
        (t.StructType([field("value", t.BinaryType()), field("value", t.BinaryType())]), {}, "a column twice"),
        (t.StructType([field("price", t.DoubleType())]), {}, "has a column 'price'; the columns are value binary"),
        (t.StructType([field("value", t.StringType())]), {}, "'value' is string in the schema"),
        (t.StructType([field("flags", t.LongType())]), {}, "'flags' is bigint in the schema"),
        (t.StructType([field("flags", t.IntegerType())]), {"columns": "value"}, "columns says value, the schema flags"),
        (t.StructType([field("flags", t.LongType())]), {"valueFormat": "arrow"}, "'flags' is bigint"),
    ],
)
def test_schemas_that_are_refused(schema: t.StructType, options: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        checked(schema, parse({"topic": "orders", **options}, "batch"))


def test_a_users_schema_is_taken_as_it_is() -> None:
    schema = t.StructType([t.StructField("flags", t.IntegerType(), nullable=False), field("crc", t.LongType())])
    assert checked(schema, parse({"topic": "orders"}, "batch")) is schema
    arrow = t.StructType([field("price", t.DoubleType()), field("topic", t.StringType())])
    assert checked(arrow, parse({"topic": "orders", "valueFormat": "arrow"}, "batch")) is arrow
