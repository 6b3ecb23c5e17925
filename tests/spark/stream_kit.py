"""What the tests of the streaming reader share: readers as Spark makes them, and what they read and
acknowledge."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.datasource import ReadAllAvailable

from holdfast.engine.memory.domain import Domain
from holdfast.engine.tools import snapshot
from holdfast.spark import session as session_module
from holdfast.spark import stream_reader as stream_reader_module
from holdfast.spark.offsets import positions_of
from holdfast.spark.options import parse
from holdfast.spark.schema import columns_of
from holdfast.spark.stream_reader import StreamReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pytest

ALL = ReadAllAvailable()
SESSION = 0x51
Offset = dict[str, Any]


def readers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., StreamReader]]:
    """Of a fixture: makes readers, each as Spark makes it in a new process, and stops them at the end. They
    look every time, and their stores answer, however slow the machine is."""
    monkeypatch.setattr(stream_reader_module, "LOOK_PAUSE", 0)
    monkeypatch.setattr(session_module, "STORES_S", 60.0)
    made: list[StreamReader] = []

    def make(**options: object) -> StreamReader:
        given = {"topic": "quotes", "startingOffsets": "earliest", "columns": "sequence_number", **options}
        text = {name: str(value) for name, value in given.items() if value is not None}
        made.append(StreamReader(text, columns_of(parse(text, "stream"))))
        return made[-1]

    yield make
    for each in made:
        each.stop()


def passed(offset: Offset) -> Offset:
    """Through Spark: written to the checkpoint, and read again."""
    found = json.loads(json.dumps(offset))
    assert isinstance(found, dict)
    return found


def numbers(offset: Offset) -> list[int]:
    return list(positions_of(offset).values())


def read(reader: StreamReader, start: Offset, end: Offset) -> list[int]:
    """Sequence numbers of a micro-batch."""
    rows: list[int] = []
    for part in reader.partitions(passed(start), passed(end)):
        for batch in reader.read(part):
            rows += batch.column("sequence_number").to_pylist()
    return rows


def acks() -> list[int]:
    """First number that is not acknowledged, of each receiver with SESSION; as stat shows it."""
    domain = Domain(None, join=False)
    try:
        return [row.ack + 1 for row in snapshot.take(domain).receivers if row.session_id == SESSION]
    finally:
        domain.close()
