"""The registration machine of a source as stories: what happened, and what it asks for."""

from __future__ import annotations

import pytest
from support.registering import INTERVAL, OURS, THEIRS, grant, receiver, source

from holdfast.engine.errors import RegistrationError
from holdfast.engine.events.source import RegistrationSuccessFlags
from holdfast.engine.rules.quorum import Groups
from holdfast.engine.rules.receiver_registration import ReceiverRegistration
from holdfast.engine.rules.reconcile import LogView
from holdfast.engine.rules.registration import (
    REFUSED_RETRY_NS,
    Announce,
    Ask,
    Complete,
    GiveUp,
    Grant,
    Granted,
    Open,
    Refusal,
    RefusedBy,
    Unresponsive,
    checked_registration_id,
)
from holdfast.engine.rules.reports import Seen
from holdfast.engine.rules.source_registration import SourceRegistration


def test_one_store_from_the_link_to_the_first_send() -> None:
    machine = source()
    assert machine.connected(0, 0) == [Ask(0)]
    granted = grant(0)
    assert machine.granted(0, granted, 1) == [Granted(0, granted), Open(1, 0)]
    assert not machine.may_send
    assert machine.opened(1, 0, 2) == [Announce(0)]
    assert not machine.may_send, "BEGIN is not durable yet"
    assert machine.begun(0, 0, 3) == [Complete(0, True)]
    assert machine.may_send


@pytest.mark.parametrize(("no_cache", "too_little"), [((), False), ((0,), False), ((0, 2), True), ((0, 1, 2), True)])
def test_a_source_knows_when_too_many_of_its_stores_keep_no_messages(
    no_cache: tuple[int, ...], too_little: bool
) -> None:
    machine = source(3)
    for store in range(3):
        machine.connected(store, 0)
        flags = int(RegistrationSuccessFlags.NOACKS) if store in no_cache else 0
        machine.granted(store, Grant(7, OURS, 0, False, flags=flags), 1)
    assert machine.keeps_too_little() is too_little


def test_a_restarted_source_takes_over_identity_and_numbers() -> None:
    machine = source()
    machine.connected(0, 0)
    old = grant(51, incarnation=3, uuid=THEIRS, old=True)
    assert machine.granted(0, old, 1) == [Granted(0, old), Open(4, 51)]
    assert machine.uuid == THEIRS


def test_a_store_that_returns_is_asked_and_told_again_and_completes_again() -> None:
    machine = source()
    machine.connected(0, 0)
    machine.granted(0, grant(0), 1)
    machine.opened(1, 0, 2)
    machine.begun(0, 0, 3)
    assert machine.disconnected(0, 4) == [Unresponsive(0, True, 0, 1)]
    assert not machine.may_send
    assert machine.connected(0, 5) == [Ask(0)]
    again = grant(20, incarnation=1, old=True)
    assert machine.granted(0, again, 6) == [Granted(0, again), Announce(0)]
    assert machine.begun(0, 23, 3) == [Complete(23, True)]
    assert (machine.incarnation, machine.start_sqn) == (1, 0), "the live object's numbering goes on"


def test_a_refused_claimant_is_told_once_and_asks_again_soon() -> None:
    machine = source()
    machine.connected(0, 0)
    refusal = Refusal("reg_id_in_use", "RegID 7 is in use", pid=12)
    assert machine.refused(0, refusal) == [RefusedBy(0, refusal)]
    assert machine.refusal() == refusal
    assert machine.tick(REFUSED_RETRY_NS - 1) == []
    assert machine.tick(REFUSED_RETRY_NS) == [Ask(0)]
    assert machine.refused(0, refusal) == [], "the same reason is not said twice"
    machine.tick(2 * REFUSED_RETRY_NS)
    granted = grant(0)
    assert machine.granted(0, granted, 3 * REFUSED_RETRY_NS)[-1] == Open(1, 0)
    assert machine.refusal() is None


@pytest.mark.parametrize(("refused", "cannot"), [([], False), ([1], False), ([0, 1], True), ([0, 1, 2], True)])
def test_a_refusal_is_the_reason_only_if_it_leaves_no_quorum(refused: list[int], cannot: bool) -> None:
    machine = source(3)
    refusal = Refusal("topic_mismatch", "RegID 7 belongs to topic 'x'")
    for store in range(3):
        machine.connected(store, 0)
    for store in refused:
        machine.refused(store, refusal)
    assert machine.refusal() == (refusal if cannot else None)


@pytest.mark.parametrize(("code", "told"), [("topic_not_kept", True), ("busy", False), ("reg_id_in_use", False)])
def test_a_refusal_is_the_reason_where_those_that_grant_may_not_decide_without_that_store(
    code: str, told: bool
) -> None:
    machine = source(3)
    refusal = Refusal(code, "this store does not keep topic 'x'")
    for store in range(3):
        machine.connected(store, 0)
    machine.granted(0, grant(0), 1)
    machine.refused(1, refusal)
    assert machine.refusal() is None, "store 2 may know enough"
    machine.granted(2, grant(0), 2)
    assert machine.refusal() == (refusal if told else None)
    assert machine.why(["a", "b", "c"]) == "b refuses: this store does not keep topic 'x'"


def test_a_refusal_is_no_reason_where_the_others_have_the_state_and_only_the_interval_is_waited_for() -> None:
    machine = source(3)
    for store in range(3):
        machine.connected(store, 0)
    machine.refused(1, Refusal("topic_not_kept", "this store does not keep topic 'x'"))
    for store in (0, 2):
        machine.granted(store, grant(5, incarnation=1, old=True), 1)
    assert machine.refusal() is None
    assert machine.tick(INTERVAL + 1)[-1] == Open(2, 5)


def test_an_unanswered_request_is_not_repeated_while_the_link_holds() -> None:
    machine = source()
    machine.connected(0, 0)
    machine.tick(INTERVAL)
    assert machine.tick(2 * INTERVAL) == [Unresponsive(0, False, 0, 1, answered=False)]
    assert machine.tick(10 * INTERVAL) == [], "said once"


@pytest.mark.parametrize(
    ("granted", "in_use", "gives_up"),
    [
        ([0], [1, 2], [0]),
        ([], [0, 1, 2], []),
        ([0, 1], [2], []),  # a quorum: it completes without the third
        ([0], [1], []),  # the third may still grant
    ],
)
def test_a_claimant_that_cannot_reach_a_quorum_leaves_what_it_has(
    granted: list[int], in_use: list[int], gives_up: list[int]
) -> None:
    for machine in (source(3), receiver(3)):
        actions = []
        for store in range(3):
            machine.connected(store, 0)
        for store in granted:
            actions += machine.granted(store, grant(0), 1)
        for store in in_use:
            actions += machine.refused(store, Refusal("reg_id_in_use", "RegID 7 is in use", pid=12))
        assert [a for a in actions if isinstance(a, GiveUp)] == [GiveUp(store, OURS) for store in gives_up]
        again = [a for a in machine.tick(REFUSED_RETRY_NS) if isinstance(a, Ask)]
        assert again == [Ask(store) for store in sorted(in_use + gives_up)]


def test_of_two_claimants_with_as_many_stores_none_keeps_them() -> None:
    """Each has a group of its own, and one group would do."""
    groups = Groups((2, 2), (0, 0, 1, 1))
    for machine in (
        SourceRegistration(groups, INTERVAL, "majority", OURS),
        ReceiverRegistration(groups, INTERVAL, "majority"),
    ):
        for store in range(4):
            machine.connected(store, 0)
        for store in (0, 1):
            machine.granted(store, grant(0), 1)
        assert GiveUp not in map(type, machine.refused(2, Refusal("reg_id_in_use", "RegID 7 is in use")))
        said = machine.refused(3, Refusal("reg_id_in_use", "RegID 7 is in use"))
        assert said[1:] == [GiveUp(0, OURS), GiveUp(1, OURS)]


def test_a_grant_that_comes_too_late_to_reach_a_quorum_is_left_at_once() -> None:
    machine = source(3)
    for store in range(3):
        machine.connected(store, 0)
    for store in (0, 1):
        machine.refused(store, Refusal("reg_id_in_use", "RegID 7 is in use", pid=12))
    assert machine.granted(2, grant(0), 1)[-1] == GiveUp(2, OURS)


def test_the_identity_is_the_one_under_which_most_incarnations_have_begun() -> None:
    machine = source(3)
    for store, answer in enumerate([grant(0), grant(9, incarnation=2, uuid=THEIRS), grant(0, uuid=b"n" * 16)]):
        machine.connected(store, 0)
        actions = machine.granted(store, answer, 1)
    assert actions[-1] == Open(3, 9), "where one store knows the source, those without state do not vote"
    assert machine.uuid == THEIRS
    machine.opened(3, 0, 2)
    for store in range(3):
        machine.begun(store, 0, 3)
        held = machine.entries[store].grant
        assert held is not None
        assert held.uuid == THEIRS, "every store that has begun keeps it by this one"


@pytest.mark.parametrize(
    ("stores", "answers", "start"),
    [
        (3, [(0, 0), (1, 50), (1, 50)], 50),
        (3, [(0, 0), (1, 50)], None),  # the third, which is down, may know more
        (3, [(0, 0), (0, 0), (1, 50)], 50),
        (3, [(0, 0), (1, 40), (1, 50)], 50),  # the one that has forgotten may have had 40..49, too
        (3, [(1, 40), (1, 45), (1, 50)], 45),
        (5, [(1, 10), (1, 20), (1, 30)], 30),  # with the two that have not answered, 29 may be stable
        (3, [(0, 0), (0, 0), (0, 0)], 0),
    ],
)
def test_stores_without_state_do_not_vote_where_another_knows_the_source(
    stores: int, answers: list[tuple[int, int]], start: int | None
) -> None:
    machine, actions = source(stores), []
    for store, (incarnation, next_sqn) in enumerate(answers):
        actions += machine.connected(store, 1)
        actions += machine.granted(store, grant(next_sqn, incarnation=incarnation), 1)
    if not any(isinstance(action, Open) for action in actions):
        actions += machine.tick(INTERVAL + 1)
    assert [action.start_sqn for action in actions if isinstance(action, Open)] == [start][: start is not None]


def test_under_identities_that_never_began_the_own_proposal_holds() -> None:
    machine = source(3)
    for store, uuid in enumerate([OURS, THEIRS, b"n" * 16]):
        machine.connected(store, 0)
        machine.granted(store, grant(0, uuid=uuid), 1)
    assert machine.uuid == OURS


def test_one_that_is_complete_leaves_nothing() -> None:
    machine = source(3)
    for store in range(2):
        machine.connected(store, 0)
        machine.granted(store, grant(0), 1)
    machine.tick(INTERVAL)
    machine.opened(1, 0, 2)
    for store in range(2):
        machine.disconnected(store, INTERVAL)
        machine.connected(store, INTERVAL)
        assert machine.refused(store, Refusal("reg_id_in_use", "RegID 7 is in use")) != []
        assert not [a for a in machine.refused(store, Refusal("reg_id_in_use", "other")) if isinstance(a, GiveUp)]


def test_claimants_with_another_stagger_ask_again_at_another_time() -> None:
    machine = SourceRegistration(Groups.single(1), INTERVAL, "majority", OURS, stagger=0.5)
    machine.connected(0, 0)
    machine.refused(0, Refusal("reg_id_in_use", "RegID 7 is in use"))
    assert machine.tick(REFUSED_RETRY_NS * 3 // 2 - 1) == []
    assert machine.tick(REFUSED_RETRY_NS * 3 // 2) == [Ask(0)]


@pytest.mark.parametrize("stores", [0, 1])
def test_a_stream_that_could_not_be_created_is_tried_again_after_the_interval(stores: int) -> None:
    machine = source(stores)
    machine.connected(0, 0) if stores else None
    first = machine.granted(0, grant(0), 5) if stores else machine.tick(5)
    assert first[-1] == Open(1, 0)
    assert machine.tick(6) == []
    assert machine.tick(4 + INTERVAL) == []
    assert machine.tick(5 + INTERVAL) == [Open(1, 0)]
    machine.opened(1, 0, 6 + INTERVAL)
    assert machine.tick(7 + INTERVAL) == []


@pytest.mark.parametrize("value", [-1, 2**32, "7", None, 7.0])
def test_a2_what_a_program_asks_for_is_a_32_bit_number(value: object) -> None:
    with pytest.raises(RegistrationError, match="RegID"):
        checked_registration_id(value)
    assert checked_registration_id(2**32 - 1) == 2**32 - 1
    assert checked_registration_id(0) == 0


def test_without_stores_the_source_streams_at_once() -> None:
    machine = source(0)
    assert machine.start() == [Open(1, 0)]
    assert machine.opened(1, 0, 2) == [Complete(0, True)]


@pytest.mark.parametrize(
    ("answers", "after", "opens"),
    [
        ([50, 50, 50], 0, 50),
        ([50, 50], 0, None),  # the third may still answer in the first interval
        ([50, 50], INTERVAL, 50),
        ([40, 45, 50], 0, 45),
        ([40, 50], INTERVAL, 50),  # the third may have 40..49, too: then they are stable
        ([50], 10 * INTERVAL, None),  # no quorum
    ],
)
def test_three_stores_open_at_the_consensus(answers: list[int], after: int, opens: int | None) -> None:
    machine = source(3)
    actions = []
    for store, next_sqn in enumerate(answers):
        machine.connected(store, 0)
        actions += machine.granted(store, grant(next_sqn, incarnation=2), 0)
    if after:
        actions += machine.tick(after)
    assert [a for a in actions if isinstance(a, Open)] == ([] if opens is None else [Open(3, opens)])


def test_an_answer_that_is_older_than_a_greater_one_is_asked_for_again() -> None:
    """The store could not read the other's log yet: by what it said then, stable messages would be numbered
    again (docs/design.md 14)."""
    machine = source(3)
    machine.connected(0, 0)
    machine.granted(0, grant(9, incarnation=1), 1)
    machine.connected(1, 5)
    machine.granted(1, grant(14, incarnation=1), 6)
    assert machine.tick(INTERVAL) == [GiveUp(0, OURS), Ask(0)]
    assert machine.tick(INTERVAL + 1) == []
    assert machine.granted(0, grant(14, incarnation=1), INTERVAL + 2)[-1] == Open(2, 14)


def test_an_answer_that_was_asked_for_behind_the_first_of_the_greatest_ones_is_new_enough() -> None:
    """Two stores report 50. The third was asked between them, when it could read the log of the first one."""
    machine = source(3)
    machine.connected(0, 0)
    machine.connected(1, 0)
    machine.granted(0, grant(50, incarnation=1), 1)
    machine.connected(2, 2)
    machine.granted(2, grant(45, incarnation=1), 3)
    assert machine.granted(1, grant(50, incarnation=1), 5)[-1] == Open(2, 50)


def test_a_promise_of_the_incarnation_that_is_opened_is_enough() -> None:
    machine = source()
    machine.connected(0, 0)
    assert machine.granted(0, Grant(7, OURS, 5, True, incarnation=2, promised=3), 1)[-1] == Open(3, 5)


def test_an_incarnation_that_somebody_has_had_is_not_opened_nor_any_below_it() -> None:
    machine = source()
    machine.connected(0, 0)
    assert machine.granted(0, grant(0), 1)[-1] == Open(1, 0)
    assert machine.beyond(7, 2) == [Open(7, 0)]
    assert machine.beyond(5, 3) == [Open(7, 0)], "an older ring says nothing new"


def test_begin_tells_the_lives_of_the_stores_that_it_is_asked_for() -> None:
    machine = source(3)
    for store, name in enumerate("abc"):
        machine.connected(store, 0)
        machine.granted(store, Grant(7, OURS, 0, False, name=name, opened=store + 4), 1)
    assert machine.lives() == {"a": 4, "b": 5, "c": 6}
    assert machine.lives({0, 2}) == {"a": 4, "c": 6}


def test_an_answer_to_a_question_from_before_the_opening_is_asked_for_again() -> None:
    """It may promise this claimant a later incarnation than the one that it has opened meanwhile, and then
    BEGIN is refused."""
    machine = source(3)
    for store in range(3):
        machine.connected(store, 0)
    for store in range(2):
        machine.granted(store, grant(5, incarnation=1), 1)
    assert machine.tick(INTERVAL)[-1] == Open(2, 5)
    machine.opened(2, 5, INTERVAL)
    for store in range(2):
        machine.begun(store, 5, INTERVAL)
    late = Grant(7, OURS, 5, True, incarnation=2, promised=3)
    assert machine.granted(2, late, INTERVAL + 1) == [GiveUp(2, OURS), Ask(2)]
    again = grant(5, incarnation=2, old=True)
    assert machine.granted(2, again, INTERVAL + 2) == [Granted(2, again), Announce(2)]


def test_what_stays_less_when_it_is_asked_for_again_counts() -> None:
    machine = source(3)
    for store, number in enumerate([40, 50, 45]):
        machine.connected(store, store)
        actions = machine.granted(store, grant(number, incarnation=1), store)
    assert actions[1:] == [GiveUp(0, OURS), Ask(0)], "the third was asked when the second had answered"
    assert machine.granted(0, grant(40, incarnation=1), 9)[-1] == Open(2, 45)


def test_a_minority_that_dies_does_not_stop_the_source() -> None:
    machine = source(3)
    for store in range(3):
        machine.connected(store, 0)
        machine.granted(store, grant(0), 1)
    machine.opened(1, 0, 2)
    for store in range(3):
        machine.begun(store, 0, 3)
    assert machine.disconnected(2, 4) == [Unresponsive(2, False, 2, 2)]
    assert machine.may_send
    assert machine.disconnected(1, 4) == [Unresponsive(1, True, 1, 2)]
    assert not machine.may_send


def test_b1_in_the_first_interval_also_a_store_that_refuses_is_waited_for() -> None:
    """It may grant yet; the specification's completion test asks for every store as long as that interval
    lasts."""
    machine = SourceRegistration(Groups.single(3), INTERVAL, "majority", OURS, anonymous=True)
    for store in range(3):
        machine.connected(store, 0)
    machine.refused(2, Refusal("topic_not_kept", "this store does not keep topic 'x'"))
    for store in range(2):
        assert not [each for each in machine.granted(store, grant(0), 1) if isinstance(each, Open)]
    assert machine.refusal() is None
    assert [each for each in machine.tick(INTERVAL - 1) if isinstance(each, Open)] == []
    assert machine.tick(INTERVAL)[-1] == Open(1, 0)


def seen(name: str, *begins: tuple[int, int]) -> Seen:
    return Seen(str("abc".index(name)), name, LogView(begins, 9))


def test_begin_says_which_logs_decided_it() -> None:
    """Store 2 answered after the opening: nobody has counted what it has."""
    machine = source(3)
    views = (seen("a", (1, 0), (3, 5)), seen("b", (1, 0)), seen("c", (1, 0)))
    for store in (0, 1, 2):
        machine.connected(store, 0)
    for store, name in ((0, "a"), (1, "b")):
        machine.granted(store, Grant(7, OURS, 9, True, 3, begins=((1, 0), (3, 5)), name=name, seen=views), 1)
    opened = [action for action in machine.tick(INTERVAL + 1) if isinstance(action, Open)]
    assert opened
    machine.opened(4, 9, INTERVAL + 2)
    machine.granted(2, Grant(7, OURS, 9, True, 3, begins=((1, 0), (3, 5)), name="c", seen=views), INTERVAL + 3)
    assert machine.counted == {0: 3, 1: 1}, "each one's own log, not the farthest that it has read"


def test_a_store_that_knows_the_source_by_another_identity_is_not_counted() -> None:
    machine = source(2)
    views = (seen("a", (1, 0)), seen("b", (1, 0)))
    for store in (0, 1):
        machine.connected(store, 0)
    machine.granted(0, Grant(7, OURS, 9, True, 1, begins=((1, 0),), name="a", seen=views), 1)
    other = Grant(7, THEIRS, 9, True, 0, name="b", seen=(seen("b", (1, 0)),), empty_votes=True)
    assert [each for each in machine.granted(1, other, 2) if isinstance(each, Open)]
    assert machine.counted == {0: 1}


def test_where_somebody_waits_the_next_attempt_to_open_is_made_sooner() -> None:
    machine = SourceRegistration(None, INTERVAL, "majority", OURS)
    assert machine.start() == [Open(1, 0)]
    machine.tick(0)  # it fails
    assert machine.tick(REFUSED_RETRY_NS) == []
    machine.open_by(REFUSED_RETRY_NS)
    assert machine.tick(REFUSED_RETRY_NS - 1) == []
    assert machine.tick(REFUSED_RETRY_NS) == [Open(1, 0)]
    machine.open_by(10 * INTERVAL)
    assert machine.tick(REFUSED_RETRY_NS + INTERVAL) == [Open(1, 0)], "never later"


def opened_by_two(*ends: int) -> SourceRegistration:
    """Two stores of three, one of which is enough, have decided the opening: a knows incarnation 2, b 3."""
    groups = Groups((1, 1), (0, 1), "quorum", "any")
    machine = SourceRegistration(groups, INTERVAL, "majority", OURS)
    tables = ((1, 0), (2, 5)), ((1, 0), (3, 5))
    views = tuple(Seen(name, name, LogView(table, end)) for name, table, end in zip("01", tables, ends, strict=True))
    for store in (0, 1):
        machine.connected(store, 0)
    for store in (0, 1):
        found = Grant(7, OURS, 9, True, 3, begins=tables[1], name="01"[store], seen=views)
        actions = machine.granted(store, found, 1)
    assert [each for each in actions if isinstance(each, Open)]
    return machine


@pytest.mark.parametrize(("end", "counted"), [(5, {0: 2, 1: 3}), (9, {1: 3})])
def test_messages_that_may_be_stable_do_not_count_for_a_begin_that_makes_them_void(
    end: int, counted: dict[int, int]
) -> None:
    """Store 0 alone makes stable what it has from 5 on; the table of store 1, alone as well, is newer. One of
    the two is lost, and that is not for a claimant to say: store 0 refuses."""
    machine = opened_by_two(end, 5)
    assert machine.begins == ((1, 0), (3, 5))
    assert machine.counted == counted


def test_a_store_that_was_away_since_the_opening_is_not_counted() -> None:
    """Its directory may be another one by now, with more under the same incarnation."""
    machine = opened_by_two(5, 5)
    machine.opened(4, 5, 2)
    assert machine.counted == {0: 2, 1: 3}
    machine.disconnected(0, 3)
    machine.connected(0, 4)
    assert machine.granted(0, Grant(7, OURS, 50, True, 2, begins=((1, 0), (2, 5)), name="0"), 5)[-1] == Announce(0)
    assert machine.counted == {1: 3}
