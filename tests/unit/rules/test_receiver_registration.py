"""The registration machine of a receiver as stories: what happened, and what it asks for."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.registering import INTERVAL, OURS, THEIRS, grant, receiver

from holdfast.engine.rules.quorum import Groups
from holdfast.engine.rules.receiver_registration import ReceiverRegistration
from holdfast.engine.rules.registration import (
    REFUSED_RETRY_NS,
    Ask,
    Complete,
    Grant,
    Granted,
    Refusal,
    Unresponsive,
    Waits,
)


def test_a_receiver_completes_at_its_low_number_once() -> None:
    machine = receiver()
    assert machine.connected(0, 0) == [Ask(0)]
    first = grant(15, old=True)
    assert machine.granted(0, first, 1) == [Granted(0, first), Complete(15, True)]
    assert machine.disconnected(0) == []
    machine.connected(0, 2)
    again = grant(18, old=True)
    assert machine.granted(0, again, 3) == [Granted(0, again)]


def test_a_receiver_of_a_source_that_had_no_third_store_from_the_start_completes_with_a_quorum_and_says_so() -> None:
    machine = receiver(3)
    machine.expect({0, 1}, 0)
    for store in range(3):
        machine.connected(store, 0)
    machine.granted(0, grant(15, old=True), 1)
    assert machine.granted(1, grant(15, old=True), 1)[-1] == Complete(15, False), (
        "at once: who is not there is not asked"
    )


def test_only_the_stores_that_the_source_is_registered_with_are_asked() -> None:
    machine = receiver(3)
    machine.expect({0, 1}, 0)
    assert [machine.connected(store, 0) for store in range(3)] == [[Ask(0)], [Ask(1)], []]
    assert machine.expect({0, 2}, 1) == [Ask(2)]
    machine.disconnected(1)
    assert machine.connected(1, 2) == []


@pytest.mark.parametrize(("position", "told"), [(-1, None), (0, 0), (39, 39), (40, None)])
def test_what_is_acknowledged_is_told_beside_a_start_that_a_rollback_limit_has_raised(
    position: int, told: int | None
) -> None:
    machine = receiver()
    machine.connected(0, 0)
    answer = Grant(7, OURS, 40, True, position=position)
    assert machine.granted(0, answer, 1)[-1] == Complete(40, True, told)


def test_a_receiver_does_not_complete_while_somebody_else_has_as_many_stores() -> None:
    """The last one may still grant that one, which would have more."""
    machine = ReceiverRegistration(Groups((2, 3), (0, 0, 1, 1, 1)), INTERVAL, "majority")
    for store in range(5):
        machine.connected(store, 0)
    for store in (0, 1):
        machine.granted(store, grant(5, old=True), 1)
    for store in (2, 3):
        machine.refused(store, Refusal("reg_id_in_use", "RegID 7 is in use"))
    assert not any(isinstance(action, Complete) for action in machine.tick(INTERVAL))
    assert machine.granted(4, grant(5, old=True), INTERVAL)[-1] == Complete(5, False)


def test_a_receiver_of_a_group_with_a_backup_has_all_stores_with_its_seats() -> None:
    machine = ReceiverRegistration(Groups((2,), (0, 0, 0)), INTERVAL, "majority")
    machine.expect({0, 2}, 0)
    for store in (0, 2):
        machine.connected(store, 0)
    machine.granted(0, grant(15, old=True), 1)
    assert machine.granted(2, grant(15, old=True), 1)[-1] == Complete(15, True)


def test_a_receiver_that_comes_before_the_source_waits_for_it() -> None:
    machine = receiver()
    machine.connected(0, 0)
    machine.refused(0, Refusal("unknown_source", "not yet"))
    assert machine.tick(REFUSED_RETRY_NS) == [Ask(0), Waits(((0, "not yet"),))]


def test_a_store_that_knows_the_receiver_by_another_identity_is_asked_again_with_the_one_that_has_acknowledged() -> (
    None
):
    machine = receiver(2)
    machine.connected(0, 0)
    machine.connected(1, 0)
    assert machine.granted(1, grant(0, uuid=OURS), 1) == [Granted(1, grant(0, uuid=OURS))]
    known = grant(90, uuid=THEIRS, old=True)
    assert machine.granted(0, known, 2) == [Granted(0, known), Ask(1)]
    assert machine.identity == THEIRS
    took_over = grant(90, uuid=THEIRS, old=True)
    assert machine.granted(1, took_over, 3) == [Granted(1, took_over), Complete(90, True)]


def test_what_a_store_has_kept_for_an_earlier_life_outvotes_those_that_never_knew_it() -> None:
    """Of a receiver-paced source: strangers start where it is now. Of those that granted a life, the one that
    did it first has kept the most."""
    groups = Groups((1, 1, 1), (0, 1, 2))
    machine = ReceiverRegistration(groups, INTERVAL, "majority")
    for store in range(3):
        machine.connected(store, 0)
    machine.granted(0, grant(90), 1)
    machine.granted(1, grant(5, kept_for=True), 1)
    assert machine.granted(2, grant(7, kept_for=True), 1)[-1] == Complete(5, True)


def test_what_too_few_stores_have_kept_was_promised_to_nobody() -> None:
    """It asked at one store of three, and was never told that it is registered."""
    machine = receiver(3)
    for store in range(3):
        machine.connected(store, 0)
    machine.granted(0, grant(0, kept_for=True), 1)
    machine.granted(1, grant(90), 1)
    assert machine.granted(2, grant(90), 1)[-1] == Complete(90, True)


def test_what_was_acknowledged_counts_for_more_than_what_was_kept() -> None:
    machine = receiver(2)
    machine.connected(0, 0)
    machine.connected(1, 0)
    machine.granted(0, grant(5, uuid=THEIRS, kept_for=True), 1)
    known = grant(20, uuid=OURS, old=True)
    assert machine.granted(1, known, 2) == [Granted(1, known), Ask(0)]
    assert machine.granted(0, grant(20, uuid=OURS, old=True), 3)[-1] == Complete(20, True)


def test_a_store_that_does_not_know_the_receiver_has_no_say_and_imposes_nothing() -> None:
    machine = receiver(3)
    for store in range(3):
        machine.connected(store, 0)
    machine.granted(0, grant(0, uuid=OURS), 1)
    assert machine.identity == b"", "nobody is asked to take over what it was just given"
    machine.granted(1, grant(90, uuid=THEIRS, old=True), 2)
    machine.granted(0, grant(0, uuid=THEIRS, old=True), 3)
    assert machine.granted(2, grant(80, uuid=THEIRS, old=True), 4)[-1] == Complete(80, True), "not 0"


def test_what_a_life_that_came_to_nothing_left_at_one_store_is_imposed_on_no_other() -> None:
    machine = receiver(3)
    for store in range(3):
        machine.connected(store, 0)
    machine.granted(0, grant(0, uuid=OURS, old=True), 1)
    assert machine.asked_as(1) == b"", "it may know better"
    assert Ask(0) in machine.granted(1, grant(90, uuid=THEIRS, old=True), 2)
    assert machine.asked_as(0) == THEIRS
    machine.granted(0, grant(90, uuid=THEIRS, old=True), 3)
    assert machine.granted(2, grant(80, uuid=THEIRS, old=True), 4)[-1] == Complete(90, True)
    assert [machine.asked_as(store) for store in range(3)] == [THEIRS] * 3, "settled"


def test_the_identity_that_only_stores_which_did_not_know_it_gave_is_imposed_on_who_comes_later() -> None:
    """Else that one waits for acknowledgements of a receiver that nobody is any more, a receiver-paced source
    with it."""
    machine = ReceiverRegistration(Groups((1, 1), (0, 1)), INTERVAL, "majority")
    machine.connected(0, 0)
    machine.connected(1, 0)
    machine.granted(1, grant(0, uuid=OURS), 1)
    assert machine.tick(INTERVAL) == [Complete(0, False)]
    assert machine.identity == OURS
    assert Ask(0) in machine.granted(0, grant(0, uuid=THEIRS, old=True), INTERVAL + 1)
    assert machine.asked_as(0) == OURS


def test_of_two_identities_that_nobody_ever_joined_by_one_stays() -> None:
    machine = receiver(2)
    machine.connected(0, 0)
    machine.connected(1, 0)
    machine.granted(0, grant(3, uuid=THEIRS), 1)
    assert machine.granted(1, grant(3, uuid=OURS), 2) == [Granted(1, grant(3, uuid=OURS)), Complete(3, True), Ask(1)]
    assert machine.asked_as(1) == THEIRS


def test_a_store_that_cannot_take_the_identity_over_is_asked_once() -> None:
    machine = receiver(2)
    machine.connected(0, 0)
    machine.connected(1, 0)
    machine.granted(0, grant(90, uuid=THEIRS, old=True), 1)
    assert machine.granted(1, grant(40, uuid=b"n" * 16, old=True), 2) == [Ask(1)]
    stays = grant(40, uuid=b"n" * 16, old=True)
    assert machine.granted(1, stays, 3) == [Granted(1, stays), Complete(90, True)], "and has no say"


def test_acks_that_a_newer_begin_has_voided_do_not_count_whichever_store_knows_of_it() -> None:
    machine = receiver(3)
    answers = [
        Grant(7, OURS, 12, True, incarnation=1, begins=((1, 0),)),
        Grant(7, OURS, 30, True, incarnation=1, begins=((1, 0),)),
        Grant(7, OURS, 4, True, incarnation=3, begins=((1, 0), (2, 10), (3, 40)), high_sqn=41),
    ]
    for store, answer in enumerate(answers):
        machine.connected(store, 0)
        actions = machine.granted(store, answer, 1)
    assert actions[-1] == Complete(10, True), "the second BEGIN counts, too"


def test_a_receiver_whose_start_depends_on_the_store_that_is_away_says_so() -> None:
    """It is registered with a quorum: that these are too few would be wrong."""
    machine = receiver(3)
    answers = [
        Grant(7, OURS, 18, True, incarnation=2, begins=((1, 0), (2, 10)), high_sqn=20),
        Grant(7, OURS, 18, True, incarnation=2, begins=((1, 0), (2, 10), (3, 15)), high_sqn=15),
    ]
    for store, answer in enumerate(answers):
        machine.connected(store, 0)
        machine.granted(store, answer, 1)
    each = (0, "registered"), (1, "registered"), (2, "cannot be reached")
    said = [action for turn in range(1, 4) for action in machine.tick(turn * INTERVAL) if isinstance(action, Waits)]
    assert said == [Waits(each, disputed=True)]


def test_b3_a_receiver_that_waits_says_for_whom_once_until_it_answers() -> None:
    machine = receiver(3)
    machine.connected(0, 0)
    known = grant(5, old=True)
    machine.granted(0, known, 1)
    assert machine.tick(1) == []
    each = (0, "registered"), (1, "cannot be reached"), (2, "cannot be reached")
    assert machine.tick(INTERVAL) == [Waits(each)]
    silent = [Unresponsive(store, False, 1, 2, answered=False) for store in (1, 2)]
    assert machine.tick(INTERVAL + 1) == silent
    assert machine.tick(9 * INTERVAL) == []
    machine.connected(1, 9 * INTERVAL)
    assert machine.tick(10 * INTERVAL) == silent[:1], "there, and silent"
    assert machine.granted(1, known, 10 * INTERVAL)[-1] == Complete(5, False)
    machine.disconnected(0)
    assert machine.tick(99 * INTERVAL) == [], "delivery goes on"


# An orphan BEGIN: its claimant died when one store had it (docs/semantics.md A.3) ---------------------------

AGAIN, ORPHAN = ((6, 0), (7, 100)), ((6, 0), (7, 100), (8, 100))


def of(begins: tuple[tuple[int, int], ...], acked: int, high: int, *given_up: int) -> Grant:
    """Of a store that knows these BEGINs, where ``acked`` is acknowledged under the newest one."""
    return Grant(7, OURS, acked, True, begins[-1][0], begins, high_sqn=high, given_up=given_up)


def answered(machine: ReceiverRegistration, *grants: Grant) -> list[object]:
    """What the last of these answers, of the stores in order, leads to."""
    actions: list[object] = []
    for store, answer in enumerate(grants):
        machine.connected(store, 0)
        actions = [*machine.granted(store, answer, 1)]
    return actions


def test_an_orphan_voids_no_acknowledgement() -> None:
    """Also where the store that has it sees the receiver's line on the board, which says 150 under 7."""
    machine = receiver(3)
    at_a = Grant(7, OURS, 150, True, 7, ORPHAN, high_sqn=100)
    assert answered(machine, at_a, of(AGAIN, 150, 200), of(AGAIN, 150, 200))[-1] == Complete(150, True)
    assert machine.tables() == [AGAIN]


def test_a_begin_that_is_complete_voids_them() -> None:
    machine = receiver(3)
    assert answered(machine, of(ORPHAN, 100, 100), of(ORPHAN, 100, 100), of(AGAIN, 150, 200))[-1] == Complete(100, True)
    assert machine.tables() == [ORPHAN]


def test_a_receiver_waits_where_a_store_that_does_not_answer_decides_whether_it_has_acknowledged() -> None:
    machine = receiver(3)
    at_a = Grant(7, OURS, 150, True, 7, ORPHAN, high_sqn=100)
    assert answered(machine, at_a, of(AGAIN, 150, 200)) == [Granted(1, of(AGAIN, 150, 200))]
    machine.connected(2, 0)
    assert Complete not in map(type, machine.tick(INTERVAL + 1)), "no interval decides that"
    assert not machine.complete
    told = [action for action in machine.tick(11 * INTERVAL) if isinstance(action, Waits)]
    assert [text for _, text in told[0].said] == ["registered", "registered", "has not answered"]
    assert machine.granted(2, of(AGAIN, 150, 200), 12 * INTERVAL)[-1] == Complete(150, True)
    assert not machine.waiting or machine.tick(12 * INTERVAL) == []


def test_it_does_not_wait_where_nothing_depends_on_that_or_the_operator_gave_that_store_up() -> None:
    machine = receiver(3)
    answered(machine, of(ORPHAN, 90, 100), of(AGAIN, 90, 200))
    assert machine.tick(INTERVAL + 1)[0] == Complete(90, False), "all that may hold leave 90 as it is"
    machine = receiver(3)
    at_a = Grant(7, OURS, 150, True, 7, ORPHAN, high_sqn=100)
    answered(machine, at_a, of(AGAIN, 150, 200, 2))
    assert machine.tick(INTERVAL + 1)[0] == Complete(150, False)
    machine = receiver(3)
    answered(machine, replace(at_a, readmitted=(2,)), of(AGAIN, 150, 200, 2))
    assert Complete not in map(type, machine.tick(INTERVAL + 1)), "the first one knows that it is over"
