"""Sets of numbers as intervals, and how many participants have a number: against plain sets of integers."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from holdfast.engine.rules.intervals import Interval, Spans, first_missing, lacking

if TYPE_CHECKING:
    from collections.abc import Iterable

HIGH = 40


def spans(*intervals: tuple[int, int]) -> Spans:
    made = Spans()
    for low, high in intervals:
        made.add(low, high)
    return made


def numbers(intervals: Iterable[Interval]) -> list[int]:
    return [n for low, high in intervals for n in range(low, high)]


def test_what_grows_at_its_end_stays_one_interval() -> None:
    made = spans((5, 7))
    assert made.add(5, 9) == [(7, 9)]
    assert made.add(9, 12) == [(9, 12)]
    assert made.add(6, 12) == []
    assert list(made) == [(5, 12)]
    assert (made.high, made.end_of(5), made.end_of(11), made.end_of(12), made.end_of(4)) == (12, 12, 12, 12, 4)


def test_a_hole_stays_until_it_is_filled() -> None:
    made = spans((0, 4), (6, 8))
    assert 5 not in made
    assert list(made) == [(0, 4), (6, 8)]
    assert made.add(2, 10) == [(4, 6), (8, 10)]
    assert list(made) == [(0, 10)]
    assert repr(spans((0, 4), (6, 8))) == "Spans(0..3, 6..7)"


@pytest.mark.parametrize(
    ("low", "high", "parts"),
    [
        (1, 9, [(1, 4), (6, 8)]),
        (3, 7, [(3, 4), (6, 7)]),
        (4, 6, []),  # the hole
        (8, 9, []),
    ],
)
def test_of_an_interval_only_what_is_in_the_set_is_a_part(low: int, high: int, parts: list[Interval]) -> None:
    assert spans((1, 4), (6, 8)).parts(low, high) == parts


def test_an_empty_interval_is_nothing() -> None:
    made = spans((7, 3), (4, 4))
    assert not made
    assert made.high == 0
    made.remove(0, 10)
    assert made.gaps(2, 5) == [(2, 5)]
    assert made.gaps(5, 5) == [], "nor does it lack anything"


@pytest.mark.parametrize("seed", range(30))
def test_it_is_a_set_of_numbers(seed: int) -> None:
    rand = random.Random(seed)
    made, model = Spans(), set[int]()
    for _ in range(60):
        low, high = sorted((rand.randrange(HIGH), rand.randrange(HIGH)))
        if rand.random() < 0.6:
            assert numbers(made.add(low, high)) == sorted(set(range(low, high)) - model)
            model |= set(range(low, high))
        else:
            made.remove(low, high)
            model -= set(range(low, high))
        assert numbers(made) == sorted(model)
        bounds = [bound for interval in made for bound in interval]
        assert bounds == sorted(set(bounds)), "they neither meet nor overlap"
        assert [n in made for n in range(HIGH)] == [n in model for n in range(HIGH)]
        low, high = sorted((rand.randrange(HIGH), rand.randrange(HIGH)))
        assert numbers(made.gaps(low, high)) == sorted(set(range(low, high)) - model)
        assert numbers(made.parts(low, high)) == sorted(set(range(low, high)) & model)


def test_one_participant_is_enough_where_one_is_needed() -> None:
    assert first_missing(0, 1, [spans((0, 9))]) == 9
    assert first_missing(3, 1, [spans((0, 9))]) == 9
    assert first_missing(9, 1, [spans((0, 9))]) == 9
    assert first_missing(0, 1, [spans((2, 9))]) == 0
    assert first_missing(0, 2, [spans((0, 9))]) == 0
    assert first_missing(0, 1, []) == 0


def test_holes_of_one_are_filled_by_others() -> None:
    a, b, c = spans((0, 5), (8, 20)), spans((3, 10)), spans((0, 9), (15, 20))
    assert first_missing(0, 2, [a, b, c]) == 10
    assert first_missing(0, 3, [a, b, c]) == 0
    assert first_missing(3, 3, [a, b, c]) == 5
    assert first_missing(0, 1, [a, b, c]) == 20


@pytest.mark.parametrize("seed", range(30))
def test_what_too_few_have(seed: int) -> None:
    rand = random.Random(seed)
    bounds = [sorted((rand.randrange(HIGH), rand.randrange(HIGH))) for _ in range(12)]
    members = [spans(*((low, high) for low, high in bounds[i : i + 3])) for i in range(0, 12, 3)]
    for needed in range(1, 6):
        short = [n for n in range(HIGH + 1) if sum(n in each for each in members) < needed]
        for floor in range(0, HIGH, 3):
            assert first_missing(floor, needed, members) == next(n for n in short if n >= floor)
            found = lacking(floor, HIGH, needed, members)
            assert numbers(found) == [n for n in short if floor <= n < HIGH]
