"""What a user of Spark sees: formats, views, filters, errors. Everything else is tested without a session."""

from __future__ import annotations

import re
import struct
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from support.kept_messages import log_of

from holdfast.spark import SESSION_DEFAULTS

if TYPE_CHECKING:
    from collections.abc import Callable

    from process.conftest import ThreadStore
    from pyspark.sql import DataFrame, SparkSession

    import holdfast as hf

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
SHORT = 180.0
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
BINARY = (
    "value binary, topic string, source_reg_id bigint, sequence_number bigint, timestamp timestamp, timestamp_ns bigint, "
    "flags int"
)


def said(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def read(spark: SparkSession, domain: str, schema: str | None = None, **options: str) -> DataFrame:
    reader = spark.read.format("holdfast").options(domain=domain, **{"topic": "orders", **options})
    return (reader.schema(schema) if schema else reader).load()


def values(frame: DataFrame) -> list[bytes]:
    return [bytes(row.value) for row in frame.orderBy("sequence_number").collect()]


@pytest.fixture
def orders(run_store: Callable[..., ThreadStore], publish: Callable[..., hf.Source]) -> hf.Source:
    """A hundred messages, and nobody alive."""
    store = run_store("a")
    source = publish("orders", said(100))
    store.stop()
    return source


def test_the_example_of_the_readme_runs_as_it_stands(
    run_store: Callable[..., ThreadStore], publish: Callable[..., hf.Source]
) -> None:
    """In a process of its own: Spark's workers take the domain from their environment, as a user's do."""
    run_store("a")
    publish("flights", [b"UA1545 EWR IAH"])
    _, code, *_ = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=SHORT, check=False)
    assert done.returncode == 0, done.stderr
    assert re.findall(r"\|(\w+ \w+ \w+)\|", done.stdout) == ["UA1545 EWR IAH"]


def test_a_topic_is_a_table(spark: SparkSession, domain: str, orders: hf.Source) -> None:
    frame = read(spark, domain)
    assert ", ".join(f"{name} {kind}" for name, kind in frame.dtypes) == BINARY
    assert values(frame) == said(100)
    (row,) = frame.selectExpr("max(timestamp)", "max(timestamp_ns)", "min(source_reg_id)", "sum(flags)").collect()
    assert int(row[0].timestamp() * 1e6) == row[1] // 1000
    assert [row[2], row[3]] == [*orders.registration_ids.values(), 0]


def test_the_format_is_found_without_being_registered(spark: SparkSession, domain: str, orders: hf.Source) -> None:
    fresh = spark.newSession()
    assert values(read(fresh, domain)) == said(100)


def test_a_view_in_sql(spark: SparkSession, domain: str, orders: hf.Source) -> None:
    spark.sql(f"CREATE TEMPORARY VIEW flow USING holdfast OPTIONS (topic 'orders', domain '{domain}', columns 'value')")
    try:
        (row,) = spark.sql("SELECT count(*), min(CAST(value AS STRING)) FROM flow WHERE length(value) = 2").collect()
        assert tuple(row) == (90, "10")
    finally:
        spark.catalog.dropTempView("flow")


def test_registering_sets_the_defaults(spark: SparkSession) -> None:
    assert {name: spark.conf.get(name) for name in SESSION_DEFAULTS} == SESSION_DEFAULTS


@pytest.mark.parametrize(("pushed", "tasks"), [("true", 1), ("false", 10)])
def test_filters_are_pushed_down_where_spark_does(
    spark: SparkSession, domain: str, orders: hf.Source, pushed: str, tasks: int
) -> None:
    spark.conf.set(PUSHDOWN, pushed)
    try:
        frame = read(spark, domain, maxRecordsPerPartition="10").where("sequence_number > 40 AND sequence_number < 45")
        assert values(frame) == said(45)[41:]
        assert frame.rdd.getNumPartitions() == tasks
        assert read(spark, domain).where("topic = 'trades' OR flags = 5").count() == 0
    finally:
        spark.conf.set(PUSHDOWN, "true")


def test_only_the_columns_that_are_asked_for(spark: SparkSession, domain: str, orders: hf.Source) -> None:
    assert read(spark, domain, columns="flags,value", includeStore="true").columns == ["flags", "value"]
    frame = read(spark, domain, schema="store STRING, sequence_number BIGINT NOT NULL, crc BIGINT")
    (row,) = frame.selectExpr("count(*)", "max(sequence_number)", "max(store)", "count(DISTINCT crc)").collect()
    assert tuple(row) == (100, 99, "a", 100)


def test_records_are_columns(
    spark: SparkSession, domain: str, run_store: Callable[..., ThreadStore], publish: Callable[..., hf.Source]
) -> None:
    run_store("a")
    publish("orders", [struct.pack("<dq4s", number / 2, number, b"XY") for number in range(50)])
    record = "struct:price DOUBLE, size BIGINT, venue CHAR(4)"
    frame = read(spark, domain, valueFormat=record, columns="price,size,venue,sequence_number")
    (row,) = frame.selectExpr("sum(price)", "sum(size)", "min(venue)", "max(venue)", "sum(sequence_number)").collect()
    assert tuple(row) == (612.5, 1225, "XY", "XY", 1225)
    with pytest.raises(PySparkException, match="message 0: 20 bytes, and a record has 8"):
        read(spark, domain, valueFormat="struct:price DOUBLE").collect()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topic": "order"}, r"no store keeps topic 'order'; did you mean 'orders'\?"),
        ({"topc": "orders"}, r"there is no option 'topc'; did you mean topic\?"),
        (
            {"subscribe": "orders"},
            "a read needs one of topic, subscribe, subscribePattern, assign; given: topic, subscribe",
        ),
        ({"columns": "valu"}, "option columns names 'valu'; the columns are value binary"),
    ],
)
def test_errors_reach_the_user(spark: SparkSession, domain: str, orders: hf.Source, options: Any, message: str) -> None:
    with pytest.raises(PySparkException, match=message):
        read(spark, domain, **options).collect()


def test_a_log_that_is_damaged_at_one_store(
    spark: SparkSession, domain: str, run_store: Callable[..., ThreadStore], publish: Callable[..., hf.Source],
    store_directory: Callable[[str], Path],
) -> None:  # fmt: skip
    stores = [run_store(name, "disk") for name in "ab"]
    publish("orders", [b"number %06d" % number for number in range(500)], "ab")
    for store in stores:
        store.stop()
    for segment in log_of(store_directory("a")).glob("seg-*"):
        content = segment.read_bytes()
        segment.write_bytes(content.replace(b"number 000100", b"number 00x100"))
    assert values(read(spark, domain)) == [b"number %06d" % number for number in range(500)]
    with pytest.raises(PySparkException, match=r"numbers 100\.\.\d+ are damaged; failOnDataLoss=false"):
        read(spark, domain, readFrom="store:a").collect()
    assert read(spark, domain, readFrom="store:a", failOnDataLoss="false").count() < 500
