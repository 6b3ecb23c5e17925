"""The report of the flights, against a count in plain Python."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import holdfast as hf
from holdfast.cli.demo_data import flights
from holdfast.spark.pipeline.report import LATE_MIN, Delay, report

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from process.conftest import ThreadStore
    from pyspark.sql import SparkSession

    from holdfast.spark.pipeline.progress import Progress

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


def counted(records: list[bytes]) -> list[Delay]:
    """What the report should say."""
    rows = [msgspec.json.decode(record) for record in records]
    found = []
    for by in ("carrier", "origin", "hour"):
        for key in sorted({row[by] for row in rows}):
            group = [row for row in rows if row[by] == key]
            flown = [row["dep_delay"] for row in group if row["dep_delay"] is not None]
            arrived = [row["arr_delay"] for row in group if row["arr_delay"] is not None]
            late = sum(delay > LATE_MIN for delay in flown) / len(flown) if flown else 0.0
            name: Any = by
            found.append(
                Delay(name, f"{key:02}" if by == "hour" else key, len(group), _mean(flown), _mean(arrived), late)
            )
    return found


def _mean(values: list[float]) -> float | None:
    return statistics.fmean(values) if values else None


def rounded(delays: list[Delay]) -> list[tuple[object, ...]]:
    return [
        (each.by, each.key, each.flights, *(None if x is None else round(x, 9) for x in _numbers(each)))
        for each in delays
    ]


def _numbers(each: Delay) -> tuple[float | None, ...]:
    return each.departure_min, each.arrival_min, each.late


def test_the_report_of_a_topic_and_of_its_archive_is_the_same(
    spark: SparkSession, run_store: Callable[..., ThreadStore], publish: Callable[..., hf.Source], domain: str,
    tmp_path: Path,
) -> None:  # fmt: skip
    run_store()
    cancelled = b'{"carrier":"ZZ","origin":"JFK","hour":3,"dep_delay":null,"arr_delay":null}'
    records = [*flights(1500), cancelled]
    publish("flights", records)
    told: list[Progress] = []
    found = report(spark, "flights", options={"domain": domain}, picture=tmp_path / "delays.png", progress=told.append)
    assert rounded(found.delays) == rounded(counted(records))
    assert Delay("carrier", "ZZ", 1, None, None, 0.0) in found.delays
    assert found.flights == len(records)
    assert found.cancelled == sum(msgspec.json.decode(record)["dep_delay"] is None for record in records)
    assert (tmp_path / "delays.png").read_bytes().startswith(b"\x89PNG")
    assert [(each.done, each.total) for each in told] == [(0, 2), (1, 2), (2, 2)]
    folder = tmp_path / "t" / "date=2013-01-01" / "topic=flights"
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"value": pa.array(records, pa.binary())}), folder / "part-0-0.parquet")
    assert report(spark, archive=tmp_path / "t") == found


def test_what_cannot_be_reported_is_told(
    spark: SparkSession, run_store: Callable[..., ThreadStore], publish: Callable[..., hf.Source], domain: str,
    tmp_path: Path,
) -> None:  # fmt: skip
    run_store()
    publish("quotes", [b"1", b'{"origin": "JFK"}'])
    with pytest.raises(hf.CorruptionError, match="are no flights: they have no "):
        report(spark, "quotes", options={"domain": domain})
    for given in ({}, {"topic": "quotes", "archive": tmp_path}):
        wrong: Any = given
        with pytest.raises(hf.ConfigError, match="a topic or an archive"):
            report(spark, **wrong)
    with pytest.raises(hf.ConfigError, match="is no archive"):
        report(spark, archive=tmp_path / "nothing")
    (tmp_path / "t" / "batch=0").mkdir(parents=True)
    pq.write_table(pa.table({"price": [1.5]}), tmp_path / "t" / "batch=0" / "part-0-0.parquet")
    with pytest.raises(hf.ConfigError, match="no column value, only price, batch"):
        report(spark, archive=tmp_path / "t")
