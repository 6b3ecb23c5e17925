"""How a read is cut into tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.engine.log.catalog import StoreLog, TopicSource
from holdfast.spark.options import parse
from holdfast.spark.place import boot_id
from holdfast.spark.splits import ENOUGH, TASKS, Range, split

if TYPE_CHECKING:
    from collections.abc import Sequence


def source(name: str = "orders", oldest: int = 0, following: int = 1000) -> TopicSource:
    log = StoreLog("a", f"/nowhere/{name}", oldest, following)
    return TopicSource(name, "0a1b2c3d" * 4, 7, 0, (log,), oldest, following, following)


def cut(spans: list[tuple[TopicSource, int, int]], at: Sequence[int] = (), **options: str) -> list[Range]:
    return split(
        spans,
        parse({"topic": "orders", **options}, "batch"),
        lambda _, first, stop: [c for c in at if first < c < stop],
    )


def ends(ranges: list[Range]) -> list[tuple[int, int]]:
    return [(part.first, part.stop) for part in ranges]


def with_cores(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(count)))


def test_tasks_end_where_segments_do() -> None:
    assert ends(cut([(source(), 0, 1000)], [300, 700])) == [(0, 300), (300, 700), (700, 1000)]
    assert ends(cut([(source(), 350, 650)], [300, 700])) == [(350, 650)]


@pytest.mark.parametrize(("cores", "total", "tasks"), [(2, 64_000, 8), (4, 64_000, 16), (99, 64_000, TASKS)])
def test_small_segments_share_a_task(cores: int, total: int, tasks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with_cores(cores, monkeypatch)
    ranges = cut([(source(following=total), 0, total)], range(100, total, 100))
    assert len(ranges) == tasks
    assert {part.stop - part.first for part in ranges} == {total // tasks}


def test_few_cores_make_no_huge_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    with_cores(1, monkeypatch)
    total, segment = 32 * ENOUGH, ENOUGH // 4
    ranges = cut([(source(following=total), 0, total)], range(segment, total, segment))
    assert {part.stop - part.first for part in ranges} == {ENOUGH}


def test_a_task_has_no_more_numbers_than_asked_for() -> None:
    assert ends(cut([(source(), 0, 1000)], [300], maxRecordsPerPartition="200")) == [
        (0, 150), (150, 300), (300, 475), (475, 650), (650, 825), (825, 1000),
    ]  # fmt: skip


def test_more_tasks_than_segments() -> None:
    assert len(cut([(source(), 0, 1000)], [300], minPartitions="10")) >= 10
    assert len(cut([(source(), 0, 3)], minPartitions="10")) == 3, "but none without a number"


def test_a_span_without_numbers_has_no_task() -> None:
    assert cut([(source(), 5, 5), (source("other"), 9, 3)]) == []


def test_sources_keep_their_order() -> None:
    ranges = cut([(source("b"), 0, 10), (source("a"), 0, 10)])
    assert [part.topic for part in ranges] == ["b", "a"]


def test_a_range_says_where_it_is() -> None:
    (part,) = cut([(source(), 0, 10)], readFrom="store:a")
    assert (part.key, part.registration_id, part.stores) == ("7/0a1b2c3d", 7, ("a",))
    assert (part.place.boot, [store.name for store in part.place.stores]) == (boot_id(), ["a"])


@given(
    st.lists(st.tuples(st.integers(0, 500), st.integers(0, 500)), max_size=4),
    st.sets(st.integers(1, 499), max_size=20),
    st.one_of(st.none(), st.integers(1, 50)),
    st.one_of(st.none(), st.integers(1, 600)),
)
def test_every_number_is_in_one_task(
    pairs: list[tuple[int, int]], at: set[int], least: int | None, most: int | None
) -> None:
    options = {"minPartitions": least, "maxRecordsPerPartition": most}
    spans = [(source(str(index)), *pair) for index, pair in enumerate(pairs)]
    ranges = cut(spans, sorted(at), **{name: str(value) for name, value in options.items() if value is not None})
    for one, first, stop in spans:
        numbers = [n for part in ranges if part.topic == one.topic for n in range(part.first, part.stop)]
        assert numbers == list(range(first, stop))
    assert all(part.first < part.stop for part in ranges)
    assert most is None or all(part.stop - part.first <= most for part in ranges)
