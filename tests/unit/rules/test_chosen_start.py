"""What ``start`` and ``reset`` of a receiver ask for, and which number that is (docs/semantics.md F.1)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import pytest

from holdfast import ConfigError
from holdfast.engine.rules.chosen_start import (
    ChosenStart,
    chosen_number,
    first_sent_since,
    latest_number,
    parsed_start,
)

NOON = datetime(2026, 3, 1, 12, 0, 0, 123456, UTC)
NOON_NS = 1_772_366_400_123_456_000


@pytest.mark.parametrize(
    ("start", "place", "time_ns"),
    [
        ("earliest", "earliest", 0),
        ("latest", "latest", 0),
        (0, 0, 0),
        (7, 7, 0),
        (np.uint64(7), 7, 0),
        (NOON, "time", NOON_NS),
        (NOON.astimezone(timezone(timedelta(hours=-5))), "time", NOON_NS),
        (datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC), "time", -(10**9)),
    ],
)
@pytest.mark.parametrize("reset", [False, True])
def test_a_start(start: object, place: str | int, time_ns: int, reset: bool) -> None:
    assert parsed_start(start, reset=reset) == ChosenStart(place, time_ns, reset)  # type: ignore[arg-type]


def test_no_start() -> None:
    assert parsed_start(None, reset=False) is None


@pytest.mark.parametrize("start", [-1, True, 1.5, "first", "7", b"latest", [7], NOON.date()])
def test_what_is_no_start_is_refused_with_what_is_one(start: object) -> None:
    with pytest.raises(ConfigError) as raised:
        parsed_start(start, reset=False)
    assert '"earliest", "latest", a sequence number, or a datetime with a time zone' in str(raised.value.hint)


def test_a_time_without_a_zone_is_refused_with_the_remedy() -> None:
    with pytest.raises(ConfigError, match="no time zone") as raised:
        parsed_start(NOON.replace(tzinfo=None), reset=False)
    assert "start.astimezone()" in str(raised.value.hint)


def test_a_reset_to_nowhere_is_refused() -> None:
    with pytest.raises(ConfigError, match="reset=True without start"):
        parsed_start(None, reset=True)


def place(place: object) -> ChosenStart:
    return ChosenStart(place, 50, False)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("asked", "number"),
    [
        ("earliest", 10),
        ("latest", 27),
        (15, 15),
        (9, 10),
        (27, 27),
        pytest.param(28, 27, id="ahead of what was published when it was made: as latest"),
        pytest.param(30, 27, id="the end, since it was made: as latest"),
        pytest.param(31, 27, id="ahead: as latest"),
        ("time", 20),
    ],
)
def test_the_number_of_a_start(asked: object, number: int) -> None:
    since = {50: 20}
    assert chosen_number(place(asked), 10, 30, 27, lambda: 27, lambda time_ns: since[time_ns]) == number


@pytest.mark.parametrize("first", [28, 30])
def test_a_time_at_which_nothing_was_published_yet_is_as_latest(first: int) -> None:
    assert chosen_number(place("time"), 10, 30, 27, lambda: 27, lambda _: first) == 27


def test_a_time_at_which_nothing_is_published_yet_is_as_latest_by_the_clock_where_no_number_says_it() -> None:
    assert chosen_number(place("time"), 10, 30, 30, lambda: 27, lambda _: 30) == 27


@pytest.mark.parametrize(("asked", "number"), [(15, 15), (30, 30), pytest.param(31, 12, id="ahead of all")])
def test_a_number_that_is_published_is_not_measured_by_a_clock(asked: int, number: int) -> None:
    """No number says what came later: the clock, which was set back, would say 12."""
    assert chosen_number(place(asked), 10, 30, 30, lambda: 12, lambda _: 12) == number


@pytest.mark.parametrize("asked", ["earliest", "latest", "time", 0, 15, 99])
def test_a_start_is_within_what_there_is(asked: object) -> None:
    assert chosen_number(place(asked), 10, 10, 10, lambda: 3, lambda _: 3) == 10
    assert chosen_number(place(asked), 12, 10, 10, lambda: 99, lambda _: 99) == 10, "all is gone"


def never() -> int:
    raise AssertionError("the clock is asked where a number says it")


@pytest.mark.parametrize(
    ("table", "number"),
    [
        pytest.param((), 20, id="nothing has begun since: no store, or none that knows"),
        pytest.param(((1, 0), (2, 8)), 20, id="the same incarnation"),
        pytest.param(((1, 0), (2, 8), (3, 20)), 20, id="the next one, behind it"),
        pytest.param(((1, 0), (2, 8), (3, 17)), 17, id="the next one, which made void what was not stable"),
        pytest.param(((2, 8), (3, 25), (4, 18)), 18, id="the one after that, too"),
    ],
)
def test_latest_of_a_source_that_had_a_ring(table: tuple[tuple[int, int], ...], number: int) -> None:
    assert latest_number((2, 20), table, 8, never) == number


def test_latest_of_a_source_without_a_ring_goes_by_the_clock() -> None:
    assert latest_number(None, ((1, 0),), None, lambda: 12) == 12


def test_latest_never_skips_what_a_ring_has_that_came_later_whatever_the_clock_says() -> None:
    assert latest_number(None, ((1, 0), (2, 8)), 8, lambda: 12) == 8
    assert latest_number(None, ((1, 0), (2, 8)), 8, lambda: 5) == 5, "another one that came and went"


MESSAGES = {2: 100, 5: 110, 6: 110, 9: 130}
"""Number of the last fragment -> time. 0 and 1 are gone, 3 to 5 are one message, 7 to 9, too."""


def sent(number: int, stop: int) -> tuple[int, int] | None:
    return next(((last, time) for last, time in MESSAGES.items() if number <= last < stop), None)


@pytest.mark.parametrize(
    ("time_ns", "number"), [(0, 0), (100, 0), (101, 3), (110, 3), (111, 7), (130, 7), (131, 10), (999, 10)]
)
def test_the_first_that_was_sent_at_a_time_or_later_is_the_start_of_its_message(time_ns: int, number: int) -> None:
    assert first_sent_since(sent, 0, 10, time_ns) == number
    assert first_sent_since(sent, 10, 10, time_ns) == 10, "there is nothing"


@pytest.mark.parametrize("unread", range(100))
def test_what_cannot_be_read_counts_as_later(unread: int) -> None:
    def some(number: int, _: int) -> tuple[int, int] | None:
        return (number, number) if number < unread else None

    assert first_sent_since(some, 0, 100, 60) == min(unread, 60)
