"""What filters rule out: never a row that they let pass."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import datasource as f

from holdfast.spark.pushdown import EVERYTHING, SLACK_NS, Narrowing, narrowed

NUMBER = ("sequence_number",)
MOMENT = datetime(2024, 3, 1, 12, 0, 0, 7, UTC)
MOMENT_NS = 1_709_294_400_000_007_000


def numbers(*filters: f.Filter) -> tuple[int, int]:
    return narrowed(filters).numbers


END = EVERYTHING.numbers[1]


@pytest.mark.parametrize(
    ("filters", "span"),
    [
        ([f.EqualTo(NUMBER, 5)], (5, 5)),
        ([f.EqualNullSafe(NUMBER, 5)], (5, 5)),
        ([f.In(NUMBER, (9, 5, 7))], (5, 9)),
        ([f.GreaterThanOrEqual(NUMBER, 5)], (5, END)),
        ([f.LessThanOrEqual(NUMBER, 5)], (0, 5)),
        ([f.GreaterThan(NUMBER, 5), f.LessThan(NUMBER, 9)], (5, 9)),
        ([f.LessThan(NUMBER, 5), f.GreaterThan(NUMBER, 9)], (9, 5)),
        ([f.Not(f.EqualTo(NUMBER, 5))], (0, END)),
        ([f.IsNotNull(NUMBER)], (0, END)),
        ([f.EqualNullSafe(NUMBER, None)], (0, END)),
        ([f.In(NUMBER, (5, None))], (0, END)),
        ([f.EqualTo(("value",), 5)], (0, END)),
        ([f.EqualTo(("sequence_number", "deeper"), 5)], (0, END)),
    ],
)
def test_numbers(filters: list[f.Filter], span: tuple[int, int]) -> None:
    assert numbers(*filters) == span


def test_topics_and_sources_that_are_listed() -> None:
    found = narrowed([f.In(("topic",), ("a", "b")), f.EqualTo(("topic",), "b"), f.EqualTo(("source_reg_id",), -3)])
    assert found == Narrowing(frozenset("b"), frozenset([-3]))


@pytest.mark.parametrize(
    "each",
    [
        f.GreaterThan(("topic",), "a"),
        f.StringStartsWith(("topic",), "a"),
        f.Not(f.EqualTo(("topic",), "a")),
        f.IsNull(("topic",)),
    ],
)
def test_filters_that_list_no_topics(each: f.Filter) -> None:
    assert narrowed([each]) == EVERYTHING


def test_a_time_covers_its_microsecond_and_some_slack() -> None:
    assert narrowed([f.EqualTo(("timestamp",), MOMENT)]).sent_ns == (MOMENT_NS - SLACK_NS, MOMENT_NS + 999 + SLACK_NS)
    later = f.GreaterThan(("timestamp",), MOMENT.astimezone())
    assert narrowed([later]).sent_ns == (MOMENT_NS - SLACK_NS, END)
    assert narrowed([f.LessThan(("timestamp_ns",), MOMENT_NS)]).sent_ns == (0, MOMENT_NS + SLACK_NS)


def test_a_clock_may_have_been_set_back_by_a_minute() -> None:
    low, high = narrowed([f.EqualTo(("timestamp_ns",), MOMENT_NS)]).sent_ns
    assert low <= MOMENT_NS - 60 * 10**9
    assert high >= MOMENT_NS + 60 * 10**9


def test_a_time_without_a_zone_rules_nothing_out() -> None:
    assert narrowed([f.EqualTo(("timestamp",), MOMENT.replace(tzinfo=None))]) == EVERYTHING


KINDS: dict[Any, Any] = {
    f.EqualTo: lambda number, value: number == value,
    f.GreaterThan: lambda number, value: number > value,
    f.GreaterThanOrEqual: lambda number, value: number >= value,
    f.LessThan: lambda number, value: number < value,
    f.LessThanOrEqual: lambda number, value: number <= value,
    f.In: lambda number, value: number in value,
}


@given(st.data(), st.integers(0, 20))
def test_no_row_that_passes_is_ruled_out(data: st.DataObject, number: int) -> None:
    filters, passes = [], True
    for kind in data.draw(st.lists(st.sampled_from(list(KINDS)), max_size=4)):
        value: Any = data.draw(st.integers(0, 20))
        if kind is f.In:
            value = (value, data.draw(st.integers(0, 20)))
        filters.append(kind(NUMBER, value))
        passes = passes and KINDS[kind](number, value)
    low, high = numbers(*filters)
    assert not passes or low <= number <= high


@given(st.integers(0, 10**6), st.sampled_from(["GreaterThan", "LessThan", "EqualTo"]), st.integers(-5, 5))
def test_no_time_that_passes_is_ruled_out(nanoseconds: int, kind: str, microseconds: int) -> None:
    value = MOMENT + timedelta(microseconds=microseconds)
    sent = MOMENT_NS + nanoseconds - 10**5
    shown = MOMENT + timedelta(microseconds=(sent - MOMENT_NS) // 1000)
    low, high = narrowed([getattr(f, kind)(("timestamp",), value)]).sent_ns
    assert not KINDS[getattr(f, kind)](shown, value) or low <= sent <= high
