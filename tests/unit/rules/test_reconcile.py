"""BEGIN tables, what a store reports, and the filling of a hole: tables of cases (docs/design.md 13 to
15)."""

from __future__ import annotations

import itertools

import pytest

from holdfast.engine.native.core import ffi, lib
from holdfast.engine.rules.reconcile import (
    BEGINS_MAX,
    DONE,
    FOR_EVER,
    WAIT,
    CatchUpRule,
    Hole,
    LogView,
    Lost,
    StartAt,
    after_begin,
    forgotten_from,
    lost_acknowledged,
    newest,
    newest_table,
    published_end,
    tells_void,
    void_from,
)

ONE = ((1, 0),)
ALONE = ((1, 0), (2, 45))
"""BEGIN(2, 45) reached one store."""
LATER = ((1, 0), (3, 51))
LONG = ((1, 0), (2, 45), (3, 80))
SECOND = 10**9


def test_the_table_has_as_many_entries_as_a_log_remembers() -> None:
    assert BEGINS_MAX == lib.HF_INCARNATIONS


def test_for_ever_is_the_greatest_number_that_a_line_on_the_board_can_say() -> None:
    assert int(ffi.cast("uint64_t", -1)) == FOR_EVER


@pytest.mark.parametrize(
    ("tables", "right"),
    [
        ([], ()),
        ([()], ()),
        ([(), ONE], ONE),
        ([ONE, ALONE], ALONE),
        ([ONE, LONG, ALONE], LONG),
        ([ALONE, LATER], LATER),  # as a whole: (2, 45) is no part of it
        ([((4, 0),), LONG], ((4, 0),)),
        ([((2, 45),), ALONE], ((2, 45),)),  # the same BEGIN: the first
        ([ONE, ((1, 0), (2, 51)), ((1, 0), (2, 3)), ((1, 0), (2, 3))], ((1, 0), (2, 3))),  # one number, two BEGINs
        ([((1, 0), (2, 3)), ((1, 0), (2, 51))], ((1, 0), (2, 51))),  # known as well: the one that makes less void
    ],
)
def test_the_newest_table_is_right_as_a_whole(tables: list[tuple[tuple[int, int], ...]], right: object) -> None:
    assert newest_table(tables) == right


@pytest.mark.parametrize(
    ("table", "incarnation", "number"),
    [
        (ONE, 1, FOR_EVER),
        (LONG, 1, 45),
        (LONG, 2, 80),
        (LONG, 3, FOR_EVER),
        (LONG, 0, 0),
        (((1, 0), (2, 45), (3, 40)), 1, 40),
        (((1, 0), (2, 40), (3, 45)), 1, 40),
        ((), 1, FOR_EVER),
    ],
)
def test_records_are_valid_below_the_lowest_start_of_the_later_incarnations(
    table: tuple[tuple[int, int], ...], incarnation: int, number: int
) -> None:
    assert void_from(table, incarnation) == number


@pytest.mark.parametrize(
    ("table", "logs", "ring", "end"),
    [
        (LONG, [(90, 3)], None, 90),
        (LONG, [(90, 3), (100, 3)], None, 100),  # not every store has all of it
        (LONG, [(60, 3)], (100, 1), 60),  # of the ring that a dead source left: 45 to 99 are void
        (LONG, [(100, 1), (70, 2)], None, 70),
        (LONG, [(30, 3)], (100, 1), 45),  # what it has below BEGIN(2, 45) is good
        ((), [(7, 1)], None, 7),  # no stores, or none that knows a BEGIN
        ((), [], (7, 1), 7),
        ((), [], None, 0),
    ],
)
def test_what_a_begin_has_made_void_is_not_published(
    table: tuple[tuple[int, int], ...], logs: list[tuple[int, int]], ring: tuple[int, int] | None, end: int
) -> None:
    assert published_end(table, logs, ring) == end


@pytest.mark.parametrize(
    ("ring", "end"),
    [
        (None, 58),  # the store that had it is away
        ((100, 1), 58),  # and a dead source has left this one: it says nothing of what came after BEGIN(2, 45)
        ((100, 2), 80),
        ((55, 3), 55),  # nothing is published beyond the newest one
        ((90, 3), 90),
    ],
)
def test_what_was_acknowledged_was_published_unless_the_newest_ring_knows_better(
    ring: tuple[int, int] | None, end: int
) -> None:
    assert published_end(LONG, [(50, 3)], ring, 58) == end


@pytest.mark.parametrize(
    ("own", "told", "incarnation", "start", "after"),
    [
        ((), (), 1, 0, ONE),
        (ONE, ONE, 2, 45, ALONE),
        (ONE, (), 2, 45, ALONE),
        (ONE, ALONE, 3, 80, LONG),  # it missed one
        (ALONE, ONE, 3, 51, LATER),  # it alone had one
        (ALONE, ONE, 2, 51, ((1, 0), (2, 51))),  # and this one's source has taken the same number
        (LONG, ALONE, 3, 80, LONG),  # again: nothing
        (((1, 0), (2, 5), (3, 9)), ((3, 9), (4, 12)), 5, 20, ((1, 0), (2, 5), (3, 9), (4, 12), (5, 20))),
    ],
)
def test_what_a_store_is_told_replaces_what_it_believed(
    own: tuple[tuple[int, int], ...], told: tuple[tuple[int, int], ...], incarnation: int, start: int, after: object
) -> None:
    assert after_begin(own, told, incarnation, start) == after


def test_a_table_keeps_the_newest_and_refuses_what_is_over() -> None:
    full = tuple((number, number) for number in range(1, BEGINS_MAX + 1))
    assert after_begin(full, full, BEGINS_MAX + 1, 99) == (*full[1:], (BEGINS_MAX + 1, 99))
    with pytest.raises(ValueError, match="incarnation 2 is over: 3 has begun"):
        after_begin(LONG, ONE, 2, 45)


FULL = tuple((number, 10 * number) for number in range(10, 10 + BEGINS_MAX))


@pytest.mark.parametrize(
    ("table", "own", "below"),
    [
        (FULL, (8, 80), 80),  # 9 is forgotten, and may have made void what it has from 80 on
        (FULL, (9, 90), FOR_EVER),  # the first entry says what that one did
        (FULL, (10, 100), FOR_EVER),
        (FULL[1:], (8, 80), FOR_EVER),  # nothing is forgotten: 9 and 10 never were
    ],
)
def test_behind_a_begin_that_may_be_forgotten_a_log_says_nothing(
    table: tuple[tuple[int, int], ...], own: tuple[int, int], below: int
) -> None:
    assert forgotten_from(table, own) == below
    assert tells_void(table, LogView(((1, 0), own), own[1]))
    assert tells_void(table, LogView(((1, 0), own), own[1] + 1)) is (below == FOR_EVER)
    assert tells_void(table, LogView((), 9))


@pytest.mark.parametrize(
    ("own", "peers", "report"),
    [
        (LogView((), 0), [], LogView((), 0)),
        (LogView(ONE, 50), [LogView(ONE, 40)], LogView(ONE, 50)),
        (LogView(ONE, 40), [LogView(ONE, 50)], LogView(ONE, 50)),
        (LogView(ONE, 61), [LogView(ALONE, 45)], LogView(ALONE, 45)),  # what it has from 45 on is void
        (
            LogView(LONG, 60),
            [LogView(ALONE, 80)],
            LogView(LONG, 80),
        ),  # it catches up: numbering never goes below the BEGIN
        (LogView((), 0), [LogView(LONG, 95), LogView(LONG, 90)], LogView(LONG, 95)),
        (LogView(ALONE, 48), [LogView(LATER, 51)], LogView(LATER, 51)),
    ],
)
def test_a_store_reports_the_farthest_of_the_logs_that_know_the_newest_begin(
    own: LogView, peers: list[LogView], report: LogView
) -> None:
    assert newest(own, peers) == report
    for order in itertools.permutations([own, *peers]):
        assert newest(order[0], order[1:]) == report


@pytest.mark.parametrize(
    ("log", "ack", "ack_stream", "lost"),
    [
        (LogView(ONE, 50), 50, 1, False),
        (LogView(ONE, 49), 50, 1, True),
        (LogView(ALONE, 45), 50, 1, False),  # an older incarnation's: the BEGIN has clamped it
        (LogView(ALONE, 44), 45, 2, True),
        (LogView(ONE, 50), 45, 2, True),  # it knew a BEGIN, and does not any more
        (LogView((), 0), 50, 1, False),  # without state it learns anyway
        (LogView(ONE, 50), 0, 0, False),
    ],
)
def test_a_log_that_ends_below_its_own_lines_ack_has_lost_something(
    log: LogView, ack: int, ack_stream: int, lost: bool
) -> None:
    assert lost_acknowledged(log, ack, ack_stream) == lost


@pytest.mark.parametrize(("held", "goal", "wanted"), [(5, 9, True), (9, 9, False), (5, None, True)])
def test_a_hole_ends_at_the_ring_or_without_one_where_the_peers_end(held: int, goal: int | None, wanted: bool) -> None:
    assert CatchUpRule(empty=False).wants(held, goal) == wanted


@pytest.mark.parametrize(
    ("empty", "goal", "behind", "undecided", "at_once", "after_a_second"),
    [
        (False, 100, [], 0, Lost(10, 99), Lost(10, 99)),  # there are no peers
        (False, 100, [40, 60], 0, Lost(10, 39), Lost(10, 39)),
        (False, 100, [40], 1, WAIT, Hole(10, 39)),
        (False, 100, [], 2, WAIT, Hole(10, 99)),
        (False, 100, [150], 0, Lost(10, 99), Lost(10, 99)),
        (True, 100, [40], 0, StartAt(40), StartAt(40)),
        (True, 100, [40], 1, WAIT, StartAt(40)),
        (True, 100, [], 0, StartAt(100), StartAt(100)),
        (False, None, [], 2, DONE, DONE),  # they have no more
        (False, None, [10, 7], 0, DONE, DONE),  # they end where this one does, or before
        (False, None, [10], 1, DONE, DONE),
        (False, None, [40], 0, Lost(10, 39), Lost(10, 39)),
        (False, None, [40], 1, WAIT, Hole(10, 39)),
        (True, None, [40], 0, StartAt(40), StartAt(40)),
    ],
)
def test_a_number_that_no_peer_gives_is_lost_at_once_and_a_hole_when_the_patience_for_one_is_over(
    empty: bool, goal: int | None, behind: list[int], undecided: int, at_once: object, after_a_second: object
) -> None:
    refill = CatchUpRule(empty=empty)
    assert refill.missing(10, goal, behind, undecided, 5 * SECOND) == at_once
    assert refill.missing(10, goal, behind, undecided, 6 * SECOND - 1) == at_once
    assert refill.missing(10, goal, behind, undecided, 6 * SECOND) == after_a_second


def test_the_patience_begins_anew_with_each_number() -> None:
    refill = CatchUpRule(empty=False)
    assert refill.missing(10, 100, [], 1, 0) == WAIT
    assert refill.missing(11, 100, [], 1, SECOND) == WAIT
    assert refill.missing(11, 100, [], 1, 2 * SECOND) == Hole(11, 99)


def test_a_log_that_has_something_by_now_is_not_begun_again() -> None:
    refill = CatchUpRule(empty=True)
    refill.filled()
    assert refill.missing(10, 100, [], 0, 0) == Lost(10, 99)
