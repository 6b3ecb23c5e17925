"""What Spark's readers do over pages that the disk does not give; test_bad_sectors.py runs it, sectors_shim.c
preloaded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
from process.faults.sectors import COUNT, SENT, kept, spoil_page
from spark.stream_kit import ALL, read, readers

from holdfast.engine.log.column_reader import Records
from holdfast.spark.batch_reader import BatchReader
from holdfast.spark.errors import DataLossError
from holdfast.spark.options import parse
from holdfast.spark.schema import columns_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from process.conftest import ThreadStore

    from holdfast.engine.log.catalog import StoreLog
    from holdfast.spark.stream_reader import StreamReader

    Run = Callable[..., ThreadStore]

TOPIC = {"topic": "quotes"}
make_reader = pytest.fixture(readers)


def values() -> Iterator[bytes]:
    reader = BatchReader(TOPIC, columns_of(parse(TOPIC, "batch")))
    for part in reader.partitions():
        for batch in reader.read(part):
            yield from batch.column("value").to_pylist()


@pytest.fixture
def directories(run_store: Run, tmp_path: Path) -> list[Path]:
    """Stores that have stopped, each with a bad page of its own."""
    found = kept(run_store, tmp_path)
    for number, directory in zip((500, 1500, 2500), found, strict=True):
        spoil_page(directory, number)
    return found


def test_a_batch_goes_to_another_store(directories: list[Path]) -> None:
    assert len(directories) == 3
    assert list(values()) == SENT


def test_a_stream_goes_to_another_store(directories: list[Path], make_reader: Callable[..., StreamReader]) -> None:
    assert len(directories) == 3
    reader = make_reader()
    start = reader.initialOffset()
    assert read(reader, start, reader.latestOffset(start, ALL)) == list(range(COUNT))


def test_a_reader_that_asks_one_store_is_caught(directories: list[Path]) -> None:
    """Planted: the other stores are left out."""
    assert len(directories) == 3

    def one(logs: Sequence[StoreLog], *more: Any, **named: Any) -> Records:
        return Records(logs[:1], *more, **named)

    with mock.patch("holdfast.spark.batch_reader.Records", one), pytest.raises(DataLossError):
        assert list(values()) == SENT


def test_what_no_store_gives_is_said(directories: list[Path]) -> None:
    for directory in directories:
        spoil_page(directory, 2000)
    found: list[bytes] = []
    with pytest.raises(DataLossError) as raised:
        found.extend(values())
    assert raised.value.first <= 2000 <= raised.value.last
    assert found == SENT[: len(found)]
