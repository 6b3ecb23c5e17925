"""What a commit that died has published counts when a quorum has it, and when it is what was staged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pytest
from support.handmade_stores import Shelves

import holdfast as hf
from holdfast.engine.log.catalog import TopicSource, topic_sources
from holdfast.spark.readback import read_back

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FIRST, STOP = 10, 50


@pytest.fixture
def shelves(tmp_path: Path) -> Iterator[Shelves]:
    """Three stores with messages that say their number; 30 is two of one byte each, and nobody has 40 and
    41."""
    made = Shelves(tmp_path, stores=list("abc"))
    for name in "abc":
        log = made.store(name)
        assert log is not None
        log.begin(1, 5)
        log.plain(5, 29)
        log.append(30, [b"3", b"0"])
        log.plain(32, 39)
        log.lost(40, 41)
        log.plain(42, 60)
    yield made
    made.close()


def source(shelves: Shelves) -> TopicSource:
    (found,) = topic_sources(None, shelves.directories)
    return found


def rows(*numbers: int, at: int = 7) -> Iterator[Any]:
    """Payloads as they were staged, in arrays of this size."""
    for begin in range(0, len(numbers), at):
        yield pa.array([b"%d" % number for number in numbers[begin : begin + at]], pa.binary())


def test_what_was_staged_is_there(shelves: Shelves) -> None:
    kept = source(shelves)
    read_back(lambda: kept, 10, 40, rows(*range(10, 31), *range(32, 99)), 0)
    read_back(lambda: kept, 42, 61, rows(*range(42, 61), at=100), 0)
    with pytest.raises(hf.CorruptionError, match="from number 25 on there are other messages than the rows"):
        read_back(lambda: kept, 10, 40, rows(*range(10, 25), *range(26, 99)), 0)


def test_what_no_store_has_is_told_and_what_retention_took_is_not(shelves: Shelves) -> None:
    kept = source(shelves)
    with pytest.raises(hf.CorruptionError, match=r"topic 'quotes', source 7/\w+, .* numbers 40\.\.41 are lost"):
        read_back(lambda: kept, 35, 61, rows(*range(35, 61)), 0)
    read_back(lambda: kept, 0, 40, rows(*range(40)), 0)


def test_a_quorum_is_waited_for(shelves: Shelves) -> None:
    kept = source(shelves)
    looks = [msgspec.structs.replace(kept, quorum_next=number) for number in (20, 39, 40, 61)]
    with pytest.raises(hf.StabilityTimeout, match="number 39 is not stable yet, only those up to 19"):
        read_back(lambda: looks[0], 10, 40, rows(), 0)
    read_back(lambda: looks.pop(0), 10, 40, rows(*range(10, 31), *range(32, 40)), 60)
    assert [look.quorum_next for look in looks] == [61]
    read_back(lambda: None, 10, 40, rows(), 0)
