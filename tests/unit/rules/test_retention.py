"""When a message leaves the flight, when its memory is let go, and what is given up: docs/semantics.md D.1,
D.2, E.2, row by row."""

from __future__ import annotations

from typing import Any

import pytest
from support.retention_machine import SECOND, Kit

from holdfast.engine.events.source import (
    MessageNotStable,
    MessageReclaimed,
    MessageStable,
    NotStableFlags,
    ReclaimedFlags,
)
from holdfast.engine.rules.notification import Notices
from holdfast.engine.rules.quorum import Groups, Intragroup
from holdfast.engine.rules.retention import RECEIVERS_MAX, Ages, Retention, RetentionConfig

FORCED = ReclaimedFlags.FORCED


def kinds(events: list[Any], kind: type) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


# D.1: the conditions of release -----------------------------------------------------------------------------


def test_d1_condition_1_stable_as_the_stores_agree() -> None:
    kit = Kit(3)
    kit.send(1, 1, 1)
    kit.store(0, 3)
    assert kit.settled_released == (0, 0)
    kit.store(2, 2)
    assert kit.settled_released == (2, 2)


@pytest.mark.parametrize("needed", [1, 2, 3])
def test_d1_condition_2_confirmed_by_so_many_different_receivers(needed: int) -> None:
    kit = Kit(unique_confirmations=needed)
    kit.send(1, 1, 1, 1)
    kit.store(0, 4)
    for i in range(needed):
        assert kit.settled_released == (0, 0)
        kit.confirm(f"r{i}", 3)
        kit.confirm(f"r{i}", 3)  # the same receiver again
    assert kit.settled_released == (3, 3)


def test_d1_condition_2_confirmed_before_it_is_stable_waits_for_that() -> None:
    kit = Kit(unique_confirmations=1)
    kit.send(1, 1)
    kit.confirm("r", 2)
    assert kit.settled_released == (0, 0)
    kit.store(0, 2)
    assert kit.settled_released == (2, 2)


def test_d1_condition_2_a_receiver_that_came_later_did_not_confirm_the_past() -> None:
    kit = Kit(unique_confirmations=2)
    kit.send(1, 1, 1, 1)
    kit.store(0, 4)
    kit.confirm("old", 4)
    kit.confirm("late", 4, since=2)
    assert kit.settled_released == (0, 0)
    kit.confirm("other", 2)
    assert kit.settled_released == (4, 4), "two for each number, though not the same two"


def test_d1_condition_2_counts_whoever_confirmed_though_it_is_gone() -> None:
    kit = Kit(unique_confirmations=2)
    kit.send(1, 1)
    kit.confirm("gone", 2)
    kit.retention.present([])
    kit.store(0, 2)
    kit.confirm("other", 2)
    assert kit.settled_released == (2, 2)


def test_d1_condition_4_at_least_this_old() -> None:
    kit = Kit(age_threshold_ns=10 * SECOND)
    kit.send(1, 1)
    kit.store(0, 2)
    assert kit.settled_released == (2, 0), "it has left the flight, and stays"
    kit.wait(9.9)
    assert kit.settled_released == (2, 0)
    kit.send(1)
    kit.store(0, 3)
    kit.wait(0.2)
    assert kit.settled_released == (3, 2)
    kit.wait(9.9)
    assert kit.settled_released == (3, 3)


def test_d1_condition_4_age_alone_releases_nothing() -> None:
    kit = Kit(age_threshold_ns=SECOND)
    kit.send(1)
    kit.go()
    kit.wait(100)
    assert kit.settled_released == (0, 0)
    kit.store(0, 1)
    assert kit.settled_released == (1, 1)


def test_d1_strictly_the_oldest_first() -> None:
    kit = Kit(2, intragroup="quorum")
    kit.send(1, 1, 1)
    kit.store(0, 3)
    kit.store(1, 3, since=1)  # it never had 0
    assert kit.settled_released == (0, 0)
    assert kit.retention.is_stable(1), "but 1 is stable for whoever asks"
    kit.store(1, 3)
    assert kit.settled_released == (3, 3)


def test_d1_notification_off_changes_nothing_about_release() -> None:
    for notices in ({"stability": 0}, {"events": False}):
        kit = Kit(notices=notices)
        kit.send(1)
        events = kit.store(0, 1)
        assert [type(event) for event in events] == ([MessageReclaimed] if notices == {"stability": 0} else [])
        assert kit.settled_released == (1, 1)


def test_a_source_without_stores_keeps_nothing() -> None:
    kit = Kit(0)
    kit.send(3)
    kit.go()
    assert kit.settled_released == (3, 3)
    assert kit.retention.outlived(2**60) == 0


# D.2: force -------------------------------------------------------------------------------------------------


def test_d2_row_1_the_oldest_go_though_the_conditions_fail() -> None:
    kit = Kit(notices={"stability": 1})
    kit.send(1, 2, 1, data="abc")
    events = kit.force(3)
    assert kit.settled_released == (3, 3), "what is reclaimed by force leaves the flight"
    assert events == [
        MessageReclaimed(FORCED, 0, 0, "a"), MessageReclaimed(FORCED, 1, 1, "b"), MessageReclaimed(FORCED, 2, 2, "b"),
    ]  # fmt: skip
    assert kit.retention.forced == 3
    kit.store(0, 4, since=3)
    assert kit.settled_released == (4, 4), "the rest goes on"


def test_d2_row_1_what_was_stable_and_only_retained_is_forced_too_but_not_unproven() -> None:
    kit = Kit(age_threshold_ns=100 * SECOND)
    kit.send(1, 1, 1, 1)
    kit.store(0, 2)
    assert kit.force(3)[0].flags == FORCED
    assert [kit.retention.is_stable(n) for n in range(4)] == [True, True, False, False]
    assert list(kit.retention.unproven) == [(2, 3)]


def test_d2_row_1_what_nobody_has_confirmed_holds_back_nothing_when_it_is_gone() -> None:
    kit = Kit(unique_confirmations=1)
    kit.send(1, 1, 1, 1)
    kit.store(0, 4)
    kit.force(2)
    kit.confirm("r", 4, since=2)
    assert kit.settled_released == (4, 4)


def test_d2_row_2_unstable_after_its_lifetime() -> None:
    kit = Kit(3, lifetime_ns=20 * SECOND, notices={"stability": 2})
    kit.send(2, data="a")
    kit.store(0, 2)
    kit.wait(10)
    kit.send(1, data="b")
    kit.wait(9.9)
    assert kit.retention.outlived(kit.now_ns) <= kit.retention.stable
    kit.wait(0.2)
    below = kit.retention.outlived(kit.now_ns)
    assert below == 2, "only the first is old enough"
    kit.retention.give_up(below)
    assert kit.told() == [MessageNotStable(NotStableFlags.TIMEOUT, 1, 0, "a")]
    assert kinds(kit.force(below), MessageReclaimed) == [MessageReclaimed(FORCED, 1, 0, "a")]
    assert kit.settled_released == (2, 2)


@pytest.mark.parametrize("lifetime_ns", [0, SECOND])
def test_d2_row_2_no_lifetime_and_what_is_stable_outlives_nothing(lifetime_ns: int) -> None:
    kit = Kit(age_threshold_ns=1000 * SECOND, lifetime_ns=lifetime_ns)
    kit.send(1)
    kit.store(0, 1)
    kit.wait(100)
    assert kit.retention.outlived(kit.now_ns) <= kit.retention.stable
    assert kit.settled_released == (1, 0)


def test_d2_a_lifetime_is_over_only_for_what_no_quorum_has() -> None:
    kit = Kit(2, lifetime_ns=SECOND)
    kit.send(1, 1, 1)
    kit.store(0, 3)
    kit.store(1, 3, since=1)
    kit.told()
    kit.wait(2)
    kit.retention.give_up(kit.retention.outlived(kit.now_ns))
    assert [(e.first_sequence_number, e.sequence_number) for e in kit.told()] == [(0, 0)]


def test_given_up_and_then_a_store_turns_out_to_have_it() -> None:
    kit = Kit(3)
    kit.send(1, 1, 1, 1, 1)
    kit.store(0, 5)
    kit.force(4)
    assert list(kit.retention.unproven) == [(0, 4)]
    assert kit.retention.stable_below == 0, "nothing is stable"
    events = kit.store(1, 2)
    assert [(e.first_sequence_number, e.sequence_number) for e in events] == [(0, 1)], "the quorum has these after all"
    assert list(kit.retention.unproven) == [(2, 4)]
    assert [kit.retention.is_stable(n) for n in range(5)] == [True, True, False, False, False]
    kit.store(1, 5)
    assert not kit.retention.unproven
    assert kit.retention.stable_below == 5


def test_what_the_store_lost_stays_unproven() -> None:
    kit = Kit()
    kit.send(*[1] * 10)
    kit.store(0, 2)
    kit.force(6)
    kit.store(0, 10, since=6)
    assert list(kit.retention.unproven) == [(2, 6)]
    assert kit.retention.stable_below == 10, "the highest one that is stable"
    assert kit.settled_released == (10, 10)


# E.2, E.4: who must have it ---------------------------------------------------------------------------------


def test_a_store_that_is_another_one_has_what_it_says_anew_and_nothing_stable_goes_back() -> None:
    kit = Kit(3)
    kit.send(1, 1, 1, 1)
    kit.store(0, 4)
    kit.store(1, 2)
    retention = kit.retention
    retention.replaced(0)
    assert (retention.stable, retention.is_stable(2)) == (2, False)
    kit.store(1, 4)
    assert kit.settled_released == (2, 2), "what was counted for the one before counts no more"
    kit.store(0, 3)
    assert kit.settled_released == (3, 3)


def test_what_was_given_up_is_not_proved_by_a_store_that_is_another_one() -> None:
    kit = Kit(3)
    kit.send(1, 1, 1)
    kit.store(0, 3)
    kit.retention.release(2, forced=True)
    kit.retention.replaced(0)
    kit.store(1, 3)
    assert not kit.retention.is_stable(0)
    kit.store(0, 3)
    assert kit.retention.is_stable(0)


def test_e2_all_active_waits_for_every_registered_store_and_at_least_a_quorum() -> None:
    kit = Kit(3, intragroup="all-active")
    kit.send(1)
    kit.store(0, 1)
    kit.store(1, 1)
    assert kit.settled_released == (0, 0), "the third is registered"
    kit.registered([0, 1])  # it became unresponsive: looked at again at once
    kit.go()
    assert kit.settled_released == (1, 1)


def test_e2_all_active_a_store_that_registers_makes_nothing_unstable() -> None:
    kit = Kit(3, intragroup="all-active")
    kit.registered([0, 1])
    kit.send(1)
    kit.store(0, 1)
    kit.store(1, 1)
    kit.registered([0, 1, 2])
    kit.go()
    assert kit.settled_released == (1, 1)
    kit.send(1)
    kit.store(0, 2)
    kit.store(1, 2)
    assert kit.settled_released == (1, 1)
    kit.store(2, 2)
    assert kit.settled_released == (2, 2)


@pytest.mark.parametrize(
    ("size", "registered", "behavior", "acks"),
    [
        (1, 1, "quorum", 1), (1, 1, "all-active", 1), (1, 1, "all", 1),
        (3, 3, "quorum", 2), (3, 3, "all-active", 3), (3, 3, "all", 3),
        (3, 2, "quorum", 2), (3, 2, "all-active", 2),
        (5, 4, "quorum", 3), (5, 4, "all-active", 4),
        (5, 3, "quorum", 3), (5, 3, "all-active", 3),
    ],
    ids=lambda value: str(value),
)  # fmt: skip
def test_e4_acks_needed_with_n_stores_of_which_r_are_registered(
    size: int, registered: int, behavior: Intragroup, acks: int
) -> None:
    kit = Kit(size, intragroup=behavior)
    kit.registered(range(registered))
    kit.send(1)
    for store in range(registered):
        assert kit.settled_released == ((1, 1) if store >= acks else (0, 0))
        kit.store(store, 1)
    assert kit.settled_released == (1, 1)


def test_e4_all_is_never_stable_with_a_store_down() -> None:
    kit = Kit(3, intragroup="all")
    kit.registered([0, 1])
    kit.send(1)
    kit.store(0, 1)
    kit.store(1, 1)
    assert kit.settled_released == (0, 0)


# Small print ------------------------------------------------------------------------------------------------


def test_numbers_never_go_back_and_never_ahead_of_what_was_sent() -> None:
    kit = Kit(start=10)
    kit.send(1, 1)
    kit.store(0, 2**63)
    assert kit.settled_released == (12, 12)
    kit.store(0, 3)
    kit.send(1)
    kit.store(0, 11)
    assert kit.settled_released == (12, 12)
    assert kit.retention.is_stable(5), "of an earlier incarnation"


def test_an_ack_of_numbers_before_the_start_counts_for_nothing() -> None:
    kit = Kit(start=10, unique_confirmations=1)
    kit.send(1)
    kit.store(0, 8)
    kit.confirm("r", 9)
    assert kit.settled_released == (10, 10)


def test_receivers_that_come_and_go_do_not_pile_up() -> None:
    kit = Kit(unique_confirmations=1)
    for i in range(5 * RECEIVERS_MAX):
        kit.send(1)
        kit.store(0, i + 1)
        kit.confirm(str(i), i + 1)
        kit.retention.present([str(i).encode().ljust(16)])
    assert kit.settled_released == (5 * RECEIVERS_MAX,) * 2
    assert len(kit.retention._receivers) <= RECEIVERS_MAX + 2


def test_ages_are_told_late_by_less_than_one_percent_and_take_little_memory() -> None:
    ages = Ages(1000 * SECOND)
    for second in range(3000):
        below = ages.below(second * SECOND, second)
        assert below <= max(0, second - 1000 + 1), "never early"
        assert below >= second - 1000 - 10
    assert len(ages._samples) < 300
    assert Ages(0).below(10**18, 5) == 0


def test_a_message_sent_in_silence_ages_from_the_first_look_on() -> None:
    ages = Ages(10 * SECOND)
    assert ages.below(0, 1) == 0
    assert ages.below(60 * SECOND, 2) == 1
    assert ages.below(70 * SECOND, 2) == 2


def test_an_age_is_measured_to_one_part_in_256() -> None:
    ages = Ages(256 * SECOND)
    assert ages.below(0, 1) == 0
    ages.below(SECOND, 2)
    assert ages.below(257 * SECOND - 1, 2) == 1
    assert ages.below(257 * SECOND, 2) == 2
    ages = Ages(256 * SECOND)
    ages.below(0, 1)
    ages.below(SECOND - 1, 2)
    assert ages.below(257 * SECOND - 1, 2) == 1, "too soon after the first one for a time of its own"


def test_looks_between_two_messages_do_not_make_the_second_one_younger() -> None:
    ages = Ages(256 * SECOND)
    ages.below(0, 1)
    ages.below(SECOND, 1)
    ages.below(3 * SECOND // 2, 2)
    assert ages.below(3 * SECOND // 2 + 256 * SECOND, 2) == 2


def test_the_fields_of_a_new_source_are_its_start() -> None:
    retention = Retention(RetentionConfig(Groups.single(3)), Notices(Kit().notices._config, ("A", "B", "C")), 7)
    assert (retention.next, retention.stable, retention.settled, retention.released) == (7, 7, 7, 7)
    assert retention.is_stable(6)
    assert not retention.is_stable(7)


@pytest.mark.parametrize("mode", [1, 3])
def test_what_was_given_up_and_is_proven_without_an_ack_of_it_is_told_too(mode: int) -> None:
    kit = Kit(groups=Groups((1, 1), (0, 1), "quorum", "all-active"), stores=2, notices={"stability": mode})
    kit.send(1, 1, 1)
    kit.store(0, 2)
    kit.force(2)
    assert 0 in kit.retention.unproven
    kit.registered({0})  # group 1 is not active any more: what store 0 has is enough
    told = [event.sequence_number for event in kinds(kit.go(), MessageStable)]
    assert told == [0, 1]
    assert not kit.retention.unproven


def test_what_the_stores_have_behind_a_hole_is_stable_when_the_hole_is_released_by_force() -> None:
    """Nobody acknowledges it once more."""
    kit = Kit(unique_confirmations=1, notices={"stability": 1})
    kit.send(1, 1, 1, 1)
    kit.store(0, 4, since=2)
    kit.go()
    kit.force(2)
    assert kit.retention.stable == 4
    kit.confirm("r", 4, since=2)
    assert kit.settled_released == (4, 4)
    assert kit.retention.in_flight == 0


def test_the_first_of_several_that_is_not_stable() -> None:
    """As `is_stable` says of each: stable in order, behind a hole, by the program's word, or given up."""
    kit = Kit()
    kit.send(*[1] * 12)
    kit.store(0, 2)
    kit.store(0, 7, since=5)
    kit.go()
    assert kit.retention.mark(8)
    for forced in (False, True):
        if forced:
            kit.force(4)
        stable = [kit.retention.is_stable(number) for number in range(12)]
        assert stable == [number < 2 or number in {5, 6, 8} for number in range(12)]
        for first in range(12):
            for last in range(first, 12):
                expected = next((number for number in range(first, last + 1) if not stable[number]), None)
                assert kit.retention.first_open(first, last) == expected
    assert kit.retention.stable == 4
