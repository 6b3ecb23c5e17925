"""When logs are looked through, and how fast (engine/rules/scrub_schedule.py)."""

from __future__ import annotations

import pytest

from holdfast.engine.rules.scrub_schedule import RETRY_MAX_NS, RETRY_NS, WHOLE, Allowance, Plan, Range, Turn

S = 1_000_000_000
A, B = b"a", b"b"


def for_missing(*missing: Range) -> Turn:
    """The turn in which A is looked through for these."""
    return Turn(A, missing, urgent=True, asked=missing)


def test_what_is_within_the_burst_is_not_held_up() -> None:
    allowance = Allowance(100, 10)
    for _ in range(10):
        assert allowance.wait_ns(0) == 0
        allowance.spend(10, 0)
    assert allowance.wait_ns(0) == 0


@pytest.mark.parametrize(("spent", "wait"), [(100, 0), (110, 1), (150, 5), (1100, 100)])
def test_beyond_the_burst_the_rate_holds(spent: int, wait: int) -> None:
    allowance = Allowance(100, 10)
    allowance.spend(spent, 5 * S)
    assert allowance.wait_ns(5 * S) == wait * S
    assert allowance.wait_ns((5 + wait) * S) == 0


def test_what_is_not_used_comes_back_but_never_more_than_the_burst() -> None:
    allowance = Allowance(100, 10)
    allowance.spend(100, 0)
    allowance.spend(100, 10 * S)
    assert allowance.wait_ns(10 * S) == 0
    allowance.spend(101, 1000 * S)
    assert allowance.wait_ns(1000 * S) == S // 10


def test_a_log_is_looked_through_when_it_is_opened_and_by_the_interval() -> None:
    plan = Plan(60 * S)
    assert plan.wait_ns(0) is None
    plan.add(A, 5)
    plan.add(A, 7)
    turn = plan.turn(7)
    assert turn == Turn(A, WHOLE, urgent=True)
    plan.done(turn, (), 10)
    assert plan.turn(10) is None
    assert plan.wait_ns(10) == 60 * S
    assert plan.turn(60 * S + 10) == Turn(A, WHOLE, urgent=False)


def test_without_an_interval_it_is_looked_through_once() -> None:
    plan = Plan(0)
    plan.add(A, 0)
    plan.done(Turn(A, WHOLE, urgent=True), (), 1)
    assert plan.wait_ns(10**18) is None


def test_the_one_that_waits_longest_comes_first() -> None:
    plan = Plan(60 * S)
    plan.add(B, 1)
    plan.add(A, 2)
    assert plan.turn(3) == Turn(B, WHOLE, urgent=True)


def test_what_nobody_has_is_asked_for_again_with_growing_pauses() -> None:
    plan, left, now = Plan(0), (Range(5, 9),), 0
    plan.add(A, now)
    pauses = []
    turn = plan.turn(now)
    for _ in range(9):
        assert turn is not None
        plan.done(turn, left, now)
        wait = plan.wait_ns(now)
        assert wait is not None
        pauses.append(wait)
        now += wait
        turn = plan.turn(now)
        assert turn == for_missing(*left)
    assert pauses == [RETRY_NS << i for i in range(7)] + [RETRY_MAX_NS] * 2


def test_the_pauses_begin_anew_when_something_came() -> None:
    plan = Plan(0)
    plan.add(A, 0)
    plan.done(Turn(A, WHOLE, urgent=True), (Range(5, 9), Range(20, 30)), 0)
    plan.done(for_missing(Range(5, 9), Range(20, 30)), (Range(5, 9), Range(20, 30)), 0)
    assert plan.wait_ns(0) == 2 * RETRY_NS
    plan.done(for_missing(Range(5, 9), Range(20, 30)), (Range(5, 9),), 0)
    assert plan.wait_ns(0) == RETRY_NS
    plan.done(for_missing(Range(5, 9)), (), 0)
    assert plan.wait_ns(0) is None


def test_a_loss_is_asked_for_at_once_and_not_forgotten_over_an_older_turn() -> None:
    plan = Plan(0)
    plan.add(A, 0)
    plan.done(Turn(A, WHOLE, urgent=True), (Range(5, 9),), 0)
    plan.lacks(A, Range(50, 60), 10)
    turn = plan.turn(10)
    assert turn == for_missing(Range(5, 9), Range(50, 60))
    plan.lacks(A, Range(70, 80), 11)
    plan.done(turn, (), 12)
    assert plan.turn(12 + RETRY_NS) == for_missing(Range(70, 80))


def test_a_loss_behind_the_end_of_the_first_look_is_asked_for_when_that_is_over() -> None:
    """The look began when the log ended at 50: what is lost since is no news to it, but must not be taken for
    looked at."""
    plan = Plan(0)
    plan.add(A, 0)
    look = plan.turn(0)
    assert look == Turn(A, WHOLE, urgent=True)
    plan.lacks(A, Range(50, 60), 1)
    plan.done(look, (Range(5, 9),), 2)
    assert plan.turn(2 + RETRY_NS) == for_missing(Range(5, 9), Range(50, 60))


def test_what_the_look_at_a_whole_log_does_not_find_missing_is_not_asked_for_again() -> None:
    plan = Plan(10)
    plan.add(A, 0)
    plan.done(Turn(A, WHOLE, urgent=True), (Range(5, 9),), 0)
    look = plan.turn(RETRY_NS)
    assert look == Turn(A, WHOLE, urgent=False, asked=(Range(5, 9),))
    plan.done(look, (), RETRY_NS)
    assert plan.turn(RETRY_NS + 9) is None


def looked_while_it_lost(found: Range) -> Plan:
    """50 to 59 are lost while somebody looks, who finds this missing."""
    plan = Plan(0)
    plan.add(A, 0)
    look = plan.turn(0)
    assert look is not None
    plan.lacks(A, Range(50, 60), 1)
    plan.done(look, (found,), 2)
    return plan


@pytest.mark.parametrize("found", [Range(40, 70), Range(50, 60), Range(50, 70), Range(40, 60)], ids=str)
def test_what_a_look_finds_missing_or_gives_up_is_not_listed_twice(found: Range) -> None:
    plan = looked_while_it_lost(found)
    assert plan.turn(2 + RETRY_NS) == for_missing(found)
    again = plan.turn(2 + RETRY_NS)
    assert again is not None
    plan.lacks(A, Range(80, 90), 3)
    plan.done(again, WHOLE, 4)
    assert plan.turn(4 + RETRY_NS) == for_missing(*WHOLE)


def test_a_loss_of_which_a_look_finds_a_part_is_asked_for_as_a_whole() -> None:
    for found in (Range(51, 60), Range(50, 59)):
        plan = looked_while_it_lost(found)
        assert plan.turn(2 + RETRY_NS) == for_missing(found, Range(50, 60))


def test_a_log_that_is_removed_is_not_asked_for() -> None:
    plan = Plan(S)
    plan.add(A, 0)
    turn = plan.turn(0)
    assert turn is not None
    plan.remove(A)
    plan.done(turn, (Range(1, 2),), 1)
    plan.lacks(A, Range(1, 2), 1)
    assert plan.known() == []
    assert plan.wait_ns(5 * S) is None
