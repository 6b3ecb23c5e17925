"""Where a receiver starts, and when a number is given up: every row of docs/semantics.md F.1, and F.2 and
F.4."""

from __future__ import annotations

import pytest

from holdfast.engine.rules.start_and_gap import Gap, Start, limited_low, start_number


def plain(number: int) -> Start:
    return Start(number, limited=False, clamped=False)


LIMITED = Start(4, limited=True, clamped=False)
ROWS = {
    "specification example: 7 messages, ack 0, N=2": (1, 6, 2, 1, LIMITED),
    "same, the newest one alone": (1, 6, 1, 1, Start(5, limited=True, clamped=False)),
    "same, callback sets 2": (1, 6, 2, 2, plain(2)),
    "same, callback wants the stored position: cannot be expressed": (1, 6, 2, 1, LIMITED),
    "no limit": (1, 6, 0, 1, plain(1)),
    "no callback, N larger than the backlog": (5, 6, 10, 5, plain(5)),
    "skip all": (1, 6, 0, 7, plain(7)),
    "beyond": (1, 6, 0, 20, Start(7, limited=False, clamped=True)),
    "older than stored": (5, 6, 0, 2, plain(2)),
    "older than stored, N is ignored": (5, 6, 1, 2, plain(2)),
    "store files wiped, acked 99, source restarted at 10": (100, 9, 0, 100, Start(10, limited=False, clamped=True)),
    "wiped, with N": (100, 9, 3, 100, Start(10, limited=False, clamped=True)),
    "a source that has never sent": (0, -1, 0, 0, plain(0)),
    "a source that has never sent, with N": (0, -1, 3, 0, plain(0)),
    "a negative choice is the very first number": (5, 6, 0, -3, plain(0)),
    "beyond 2^32": (2**32 + 1, 2**32 + 6, 2, 2**32 + 1, Start(2**32 + 4, limited=True, clamped=False)),
}


@pytest.mark.parametrize(("low", "high", "maximum", "chosen", "expected"), ROWS.values(), ids=ROWS)
def test_start_number(low: int, high: int, maximum: int, chosen: int, expected: Start) -> None:
    assert start_number(low, high, maximum, chosen) == expected


def test_limited_low_is_high_minus_n_and_never_negative() -> None:
    assert limited_low(1, 6, 2) == 4
    assert limited_low(1, 6, 10) == 0
    assert limited_low(1, 6, 0) == 1


def test_a_gap_that_every_store_gave_up_is_lost_at_once_up_to_the_first_that_goes_on() -> None:
    assert Gap(10).verdict(5, [9, 7, 12], 0, 0) == 7


def test_a_number_that_is_simply_not_published_is_awaited_for_ever() -> None:
    gap = Gap(10)
    for now in (0, 1000, 10**12):
        assert gap.verdict(5, [], 0, now) is None
        for undecided in (0, 2):
            assert gap.verdict(5, [3, 5], undecided, now) is None, "what lies below is nothing newer"


def test_a_gap_that_a_store_may_still_fill_is_awaited_for_the_patience_and_no_longer() -> None:
    gap = Gap(10)
    assert gap.verdict(5, [9], 1, 100) is None
    assert gap.verdict(5, [9], 1, 109) is None
    assert gap.verdict(5, [9], 1, 110) == 9


def test_each_number_has_a_patience_of_its_own() -> None:
    gap = Gap(10)
    assert gap.verdict(5, [9], 1, 100) is None
    assert gap.verdict(6, [9], 1, 109) is None
    assert gap.verdict(6, [9], 1, 118) is None
    assert gap.verdict(6, [9], 1, 119) == 9


def test_the_patience_begins_again_when_the_number_was_not_missing_meanwhile() -> None:
    gap = Gap(10)
    assert gap.verdict(5, [9], 1, 100) is None
    assert gap.verdict(5, [], 1, 105) is None
    assert gap.verdict(5, [9], 1, 110) is None
    assert gap.verdict(5, [9], 1, 120) == 9


def test_a_gap_that_is_awaited_again_has_a_patience_of_its_own() -> None:
    gap = Gap(10)
    assert gap.verdict(5, [9], 1, 100) is None
    assert gap.verdict(5, [9], 1, 110) == 9
    gap.again(110)
    assert gap.verdict(5, [9], 1, 119) is None
    assert gap.verdict(5, [9], 1, 120) == 9
    assert gap.verdict(5, [9], 0, 121) == 9
