"""What a query has lost is in the ledger once: under one name, with the right numbers, as soon as that can be
written."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from spark.stream_kit import ALL, numbers, passed, read
from support.receiving import source

import holdfast as hf
from holdfast.engine.log.catalog import TopicSource, topic_sources
from holdfast.engine.memory.domain import domain_directory
from holdfast.spark.batch_reader import BatchReader
from holdfast.spark.errors import DataLossError
from holdfast.spark.losses import losses_in
from holdfast.spark.offsets import as_offset, positions_of
from holdfast.spark.options import parse
from holdfast.spark.schema import columns_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from process.conftest import ThreadStore


@pytest.fixture
def src(run_store: Callable[..., ThreadStore]) -> Iterator[hf.Source]:
    """Of a store that lets the oldest messages go after some 30 large ones."""
    run_store(**{"repository-size-threshold": 1 << 20, "repository-size-limit": 2 << 20})
    with hf.Context() as ctx:
        yield source(ctx)


def one() -> TopicSource:
    (found,) = topic_sources(None)
    return found


def expire(src: hf.Source, below: int) -> int:
    """Sends until numbers below ``below`` are gone, at least; returns which one is the oldest then."""
    while one().oldest < below:
        src.send(bytes(65_000), timeout=90)
        src.wait_stable(timeout=90)
    return one().oldest


def ledger() -> list[tuple[str, int, int]]:
    return [(loss.source, loss.first, loss.last) for loss in losses_in(domain_directory())]


def test_a_loss_has_one_name_whoever_finds_it(src: hf.Source, reader: Any) -> None:
    """The name that the query's offsets have, which a store that was wiped may have given."""
    for _ in range(5):
        src.send(b"x")
    src.wait_stable(timeout=90)
    old = f"99/{one().uuid[:8]}"
    start, end = as_offset({("quotes", old): 0}), as_offset({("quotes", old): 5})
    query = reader(failOnDataLoss="false", queryName="prices")
    (part,) = query.partitions(passed(start), passed(end))
    expire(src, 5)
    assert list(query.read(part)) == [], "lost between planning and reading"
    assert ledger() == [(old, 0, 4)]
    assert "lost" not in query.reportLatestOffset(), "that counts what was found where the query is planned"
    assert reader(failOnDataLoss="false", queryName="prices").partitions(passed(start), passed(end)) == []
    assert ledger() == [(old, 0, 4)], "planned again after a crash"


def test_queries_without_a_name_are_told_apart_by_their_offsets(src: hf.Source, reader: Any) -> None:
    oldest = expire(src, 5)
    begin = json.dumps({"quotes": {str(one().registration_id): 0}})
    options = {"failOnDataLoss": "false", "startingOffsets": begin}
    offsets = []
    for _ in range(2):
        query = reader(**options)
        start = passed(query.initialOffset())
        offsets.append((start, passed(query.latestOffset(start, ALL))))
    assert ledger() == [(one().key, 0, oldest - 1)] * 2
    assert [loss.query for loss in losses_in(domain_directory())] == [f"query {end['query']}" for _, end in offsets]
    for start, end in offsets:
        again = reader(**options)
        assert read(again, again.initialOffset(), end) == read(again, start, end)
        again.latestOffset(end, ALL)
    assert len(ledger()) == 2, "in its next life a query is the same"


def test_a_loss_is_written_when_the_ledger_can_be(
    src: hf.Source, reader: Any, caplog: pytest.LogCaptureFixture
) -> None:
    oldest = expire(src, 5)
    place = domain_directory() / "spark"
    place.mkdir(mode=0o700)
    (place / "losses").write_bytes(b"")
    query = reader(failOnDataLoss="false")
    start = as_offset({("quotes", one().key): 0})
    end = query.latestOffset(passed(start), ALL)
    assert "could not be written" in caplog.text
    query.partitions(passed(start), passed(end))
    (place / "losses").unlink()  # as the error says
    assert ledger() == []
    query.latestOffset(passed(end), ALL)
    assert ledger() == [(one().key, 0, oldest - 1)]
    assert caplog.text.count("are expired") == 1
    assert query.reportLatestOffset()["lost"] == {"quotes": {one().key: oldest}}


@pytest.mark.parametrize("strict", [True, False])
def test_a_batch_read_misses_what_it_was_asked_for_and_no_more(src: hf.Source, strict: bool) -> None:
    oldest = expire(src, 20)

    def plan(first: int, stop: int) -> list[tuple[int, int]]:
        edges = {"startingOffsets": first, "endingOffsets": stop}
        text = {name: json.dumps({"quotes": {one().key: number}}) for name, number in edges.items()}
        options = {"topic": "quotes", "failOnDataLoss": str(strict), **text}
        return [
            (part.first, part.stop) for part in BatchReader(options, columns_of(parse(options, "batch"))).partitions()
        ]

    if strict:
        with pytest.raises(DataLossError, match=r"numbers 0\.\.9 are expired"):
            plan(0, 10)
    else:
        assert plan(0, 10) == []
        assert ledger() == [(one().key, 0, 9)]
        assert plan(5, oldest + 1) == [(oldest, oldest + 1)]
        assert ledger()[1:] == [(one().key, 10, oldest - 1)]


def test_a_first_batch_that_expired_is_named_itself(src: hf.Source, reader: Any) -> None:
    """It was in Spark's checkpoint when the driver died, and retention went on."""
    first = expire(src, 3)
    query = reader()
    start = query.initialOffset()
    end = query.latestOffset(passed(start), ALL)
    (stop,) = numbers(end)
    expire(src, stop + 1)
    strict, lenient = reader(), reader(failOnDataLoss="false")
    with pytest.raises(DataLossError, match=rf"numbers {first}\.\.{stop - 1} are expired"):
        strict.partitions(passed(strict.initialOffset()), passed(end))
    assert lenient.partitions(passed(lenient.initialOffset()), passed(end)) == []
    assert ledger() == [(one().key, first, stop - 1)]
    following = lenient.latestOffset(passed(end), ALL)
    oldest = one().oldest
    assert ledger()[1:] == [(one().key, stop, oldest - 1)]
    assert read(lenient, end, following) == list(range(oldest, *positions_of(following).values()))
