"""The ledger of what queries have left out: each number once per query, whoever finds it."""

from __future__ import annotations

import logging
import os
import re
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.engine.errors import CorruptionError
from holdfast.spark import losses as losses_module
from holdfast.spark.errors import DataLossError
from holdfast.spark.losses import Loss, Losses, losses_in, query_of, record, skip
from holdfast.spark.options import parse

if TYPE_CHECKING:
    from pathlib import Path


def loss(first: int, last: int, source: str = "7/11111111") -> DataLossError:
    return DataLossError("orders", source, first, last, "expired")


def ranges(domain: Path) -> list[tuple[str, str, int, int]]:
    return [(each.query, each.source, each.first, each.last) for each in losses_in(domain)]


def test_each_number_is_told_once_per_query(tmp_path: Path) -> None:
    for first, last in ((0, 9), (0, 9), (5, 14), (20, 29), (0, 31)):
        record(tmp_path, "q", loss(first, last))
    record(tmp_path, "other", loss(0, 9))
    record(tmp_path, "q", loss(0, 9, "8/22222222"))
    own = [("q", "7/11111111", *pair) for pair in ((0, 9), (10, 14), (20, 29), (15, 19), (30, 31))]
    assert ranges(tmp_path) == [*own, ("other", "7/11111111", 0, 9), ("q", "8/22222222", 0, 9)]
    assert sorted(os.listdir(tmp_path / "spark")) == ["losses", "losses.lock"]


def test_writers_take_turns(tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: record(tmp_path, "q", loss(number, number)), range(40)))
    assert sorted(each.first for each in losses_in(tmp_path)) == list(range(40))


def test_the_oldest_entries_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(losses_module, "KEPT", 2)
    for number in (0, 5, 9):
        record(tmp_path, "q", loss(number, number))
    assert [each.first for each in losses_in(tmp_path)] == [5, 9]


@pytest.mark.parametrize("data", [b"", b"{}x", b'{"version": 2}', b'{"losses": [{"first": "x"}]}'])
def test_a_ledger_that_is_none_is_told_and_kept_and_ends_no_query(
    tmp_path: Path, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "spark").mkdir()
    (tmp_path / "spark" / "losses").write_bytes(data)
    record(tmp_path, "q", loss(0, 9))
    assert "could not be written" in caplog.text
    assert (tmp_path / "spark" / "losses").read_bytes() == data
    with pytest.raises(CorruptionError, match="move it away"):
        losses_in(tmp_path)


def test_reading_makes_no_domain(tmp_path: Path) -> None:
    record(tmp_path / "none", "q", loss(0, 9))
    assert losses_in(tmp_path / "none") == []
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("options", "query"),
    [({}, ""), ({"session": "0x51"}, "session 0x51"), ({"queryName": "prices", "session": "5"}, "prices")],
)
def test_how_a_query_is_called(options: dict[str, str], query: str) -> None:
    assert query_of(parse({"topic": "orders", **options}, "stream")) == query


def test_a_loss_ends_the_query_or_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def options(**given: Any) -> Any:
        return parse({"topic": "orders", "domain": str(tmp_path / "d"), **given}, "batch")

    (tmp_path / "d").mkdir()
    with pytest.raises(DataLossError):
        skip(options(), loss(0, 9), ())
    assert losses_in(tmp_path / "d") == []
    with caplog.at_level(logging.WARNING, "holdfast"):
        skip(options(failOnDataLoss="false"), loss(0, 9), ())
    assert "numbers 0..9 are expired" in caplog.text
    (found,) = losses_in(tmp_path / "d")
    assert found == Loss(found.at, "", "orders", "7/11111111", 0, 9, "expired")


def test_who_plans_tells_of_each_number_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "d").mkdir()
    options: Any = parse({"topic": "orders", "domain": str(tmp_path / "d"), "failOnDataLoss": "false"}, "stream")
    losses = Losses(options)
    with caplog.at_level(logging.WARNING, "holdfast"):
        for first, last in ((0, 9), (0, 9), (5, 14)):
            losses.tell("q", loss(first, last), ())
    said = [record.getMessage() for record in caplog.records]
    assert [re.findall(r"numbers (\d+\.\.\d+)", line) for line in said] == [["0..9"], ["10..14"]]
