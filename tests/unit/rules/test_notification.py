"""What a source says of its numbers, in which units and with which flags: docs/semantics.md D.3, D.4, L.1,
row by row."""

from __future__ import annotations

import pytest
from support.retention_machine import Kit, receiver, short, stable

from holdfast.engine.events.info import ForceReclaimInfo
from holdfast.engine.events.source import (
    ConfirmationFlags,
    MessageNotStable,
    MessageReclaimed,
    MessageStable,
    NotStableFlags,
    ReclaimedFlags,
    StableFlags,
)
from holdfast.engine.rules.notification import DROP_AT, Records, Sent, Unit
from holdfast.engine.rules.quorum import Groups, Intergroup
from holdfast.engine.rules.retention import LATE_MAX

STORE, USER, WHOLE = StableFlags.STORE, StableFlags.USER, StableFlags.WHOLE_MESSAGE_STABLE
GROUP = StableFlags.INTRAGROUP_STABLE | StableFlags.INTERGROUP_STABLE | StableFlags.STABLE
INTRAGROUP = StableFlags.INTRAGROUP_STABLE
UNIQUE, WHOLE_CONFIRMED = ConfirmationFlags.UNIQUEACKS, ConfirmationFlags.WHOLE_MESSAGE_CONFIRMED
NONE = ReclaimedFlags(0)
FORCED = ReclaimedFlags.FORCED


def three_fragments(mode: int | None, confirmation: int = 0, unique: int = 0) -> Kit:
    """The example of D.3: a message of three fragments, numbers 7, 8, 9, and a group of three stores."""
    notices = {"stability": mode, "confirmation": confirmation}
    kit = Kit(3, start=7, notices=notices, unique_confirmations=unique)
    kit.send(3, data=["m"])
    return kit


# D.3: MessageStable -----------------------------------------------------------------------------------------


def test_d3_the_flags_have_ums_values() -> None:
    assert [int(flag) for flag in StableFlags] == [0x1, 0x2, 0x4, 0x8, 0x10, 0x20]
    assert [int(flag) for flag in ConfirmationFlags] == [0x1, 0x2, 0x4, 0x8, 0x10]
    assert [int(flag) for flag in NotStableFlags] == [0x8, 0x40, 0x80]
    assert int(FORCED) == 0x1


def test_d3_mode_0_none() -> None:
    kit = three_fragments(0)
    assert stable(kit.store(0, 10) + kit.store(1, 10) + kit.store(2, 10)) == []


def test_d3_mode_1_per_fragment_and_store() -> None:
    kit = three_fragments(1)
    assert stable(kit.store(0, 10)) == [(n, STORE, "A") for n in (7, 8, 9)]
    events = kit.store(1, 10)
    assert stable(events) == [(n, STORE | GROUP, "B") for n in (7, 8, 9)]
    assert {(e.client_data, e.store_index, e.receiver_registration_id) for e in events if e.store} == {("m", 1, 0)}
    assert stable(kit.store(2, 10)) == [(n, STORE | GROUP, "C") for n in (7, 8, 9)], "the bits that are true already"
    assert stable(kit.store(2, 10)) == [], "an acknowledgement that is repeated is no news"


def test_d3_mode_1_all_stores_at_once_is_one_after_the_other() -> None:
    kit = three_fragments(1)
    for store in range(3):
        kit.retention.stored(store, 0, 8)
    assert stable(kit.go()) == [(7, STORE, "A"), (7, STORE | GROUP, "B"), (7, STORE | GROUP, "C")]


def test_d3_mode_2_per_message_without_a_store() -> None:
    kit = three_fragments(2)
    assert stable(kit.store(0, 10)) == []
    assert stable(kit.store(1, 9)) == []
    events = [event for event in kit.store(1, 10) if isinstance(event, MessageStable)]
    assert events == [MessageStable(GROUP, 9, 7, "m", -1, None)]
    assert stable(kit.store(2, 10)) == []


def test_d3_mode_3_marks_the_event_that_completes_the_message() -> None:
    kit = three_fragments(3)
    assert stable(kit.store(0, 10)) == [(n, STORE, "A") for n in (7, 8, 9)]
    assert stable(kit.store(1, 9)) == [(7, STORE | GROUP, "B"), (8, STORE | GROUP, "B")]
    assert stable(kit.store(2, 10)) == [
        (7, STORE | GROUP, "C"), (8, STORE | GROUP, "C"), (9, STORE | GROUP | WHOLE, "C"),
    ]  # fmt: skip
    assert stable(kit.store(1, 10)) == [(9, STORE | GROUP, "B")], "once"


def test_d3_mode_3_two_stores_that_complete_it_in_one_look() -> None:
    kit = three_fragments(3)
    kit.retention.stored(0, 0, 10)
    kit.retention.stored(1, 0, 8)
    kit.retention.stored(2, 0, 10)
    kit.retention.stored(1, 0, 10)
    whole = [event for event in stable(kit.go()) if event[1] & WHOLE]
    assert whole == [(9, STORE | GROUP | WHOLE, "C")]


@pytest.mark.parametrize(
    ("intergroup", "acks", "flags"),
    [
        ("all", (0, 1, 2), [STORE, STORE | INTRAGROUP, STORE | GROUP]),
        ("any", (2, 0, 1), [STORE | GROUP, STORE | GROUP & ~INTRAGROUP, STORE | GROUP]),
    ],
)
def test_d3_an_acknowledgement_says_what_it_means_in_its_group_and_over_the_groups(
    intergroup: Intergroup, acks: tuple[int, ...], flags: list[StableFlags]
) -> None:
    """Stores A and B are one group, C is another."""
    kit = Kit(3, notices={"stability": 1}, groups=Groups((2, 1), (0, 0, 1), "quorum", intergroup))
    kit.send(1)
    assert [flag for store in acks for _, flag, _ in stable(kit.store(store, 1))] == flags


def test_d3_mode_1_a_number_that_a_filled_gap_makes_stable_is_told_without_a_store() -> None:
    kit = Kit(3, notices={"stability": 1})
    kit.send(1, 1, 1)
    kit.store(0, 3)
    assert stable(kit.store(1, 3, since=1)) == [(1, STORE, "B"), (2, STORE, "B")], "0 holds them back"
    assert stable(kit.store(2, 1)) == [(0, STORE | GROUP, "C"), (1, GROUP, None), (2, GROUP, None)]


def test_d3_mode_1_a_store_that_came_later_does_not_speak_for_what_it_never_had() -> None:
    kit = Kit(3, notices={"stability": 1})
    kit.send(1, 1)
    assert stable(kit.store(0, 2)) == [(0, STORE, "A"), (1, STORE, "A")]
    assert stable(kit.store(1, 2, since=1)) == [(1, STORE, "B")]


def test_without_a_mode_stable_numbers_come_as_one_range_with_the_last_messages_data() -> None:
    kit = Kit()
    kit.send(1, 3, data="ab")
    assert short(kit.store(0, 4)) == [
        ("MessageStable", 0, 3, GROUP, "b"), ("MessageReclaimed", 0, 3, NONE, "b"),
    ]  # fmt: skip
    assert kit.go() == []


@pytest.mark.parametrize(
    ("data", "ack", "told"),
    [
        ({2: "x"}, 3, (0, 2, "x")),
        ({2: "x"}, 5, (0, 4, None)),
        ({2: "x"}, 2, (0, 1, None)),
        ({0: "a", 4: "e"}, 5, (0, 4, "e")),
        ({}, 5, (0, 4, None)),
    ],
)
def test_a_range_carries_only_the_data_of_its_last_message(
    data: dict[int, str], ack: int, told: tuple[int, int, object]
) -> None:
    kit = Kit()
    for number in data:  # others are not recorded at all
        kit.retention.sent(number, number, data[number])
    kit.retention.next = 5
    event = kit.store(0, ack)[0]
    assert (event.first_sequence_number, event.sequence_number, event.client_data) == told


def test_half_a_message_carries_no_data_and_its_end_does() -> None:
    kit = Kit()
    kit.send(4, data="m")
    assert short(kit.store(0, 2))[0] == ("MessageStable", 0, 1, GROUP, None)
    assert short(kit.store(0, 4))[0] == ("MessageStable", 2, 3, GROUP, "m")


@pytest.mark.parametrize(("stability", "confirmation", "everything"), [
    (None, 0, False), (0, 0, False), (1, 0, True), (2, 0, True), (3, 0, True), (None, 1, True), (0, 2, True),
])  # fmt: skip
def test_the_sender_records_every_message_only_where_events_need_it(
    stability: int | None, confirmation: int, everything: bool
) -> None:
    config = {"stability": stability, "confirmation": confirmation}
    assert Kit(notices=config).notices.records_all is everything
    deaf = Kit(notices={**config, "events": False}).notices
    assert not deaf.records_all
    assert not deaf.records_any


# MessageStable with USER ------------------------------------------------------------------------------------


def test_a_number_that_the_program_marks_in_order_is_stable_by_that() -> None:
    kit = three_fragments(3)
    assert kit.retention.mark(7)
    assert stable(kit.go()) == [(7, USER | GROUP, None)]
    kit.retention.mark(8)
    kit.retention.mark(9)
    assert stable(kit.go()) == [(8, USER | GROUP, None), (9, USER | GROUP | WHOLE, None)]
    assert not kit.retention.mark(9)
    assert kit.go() == []
    assert kit.settled_released == (10, 10)


def test_a_marked_number_behind_an_unmarked_one_waits() -> None:
    kit = three_fragments(3)
    kit.retention.mark(8)
    assert stable(kit.go()) == [(8, USER, None)]
    assert kit.settled_released == (7, 7)
    assert kit.retention.is_stable(8)
    assert not kit.retention.mark(8)
    kit.retention.mark(7)
    assert stable(kit.go()) == [(7, USER | GROUP, None), (8, GROUP, None)]
    assert kit.settled_released == (9, 9)


@pytest.mark.parametrize(("mode", "told"), [
    (None, [(7, USER, None), (7, GROUP, None)]), (2, [(7, USER, None)]), (0, []),
])  # fmt: skip
def test_marked_where_stability_is_told_in_other_units(mode: int | None, told: list[object]) -> None:
    kit = three_fragments(mode)
    kit.retention.mark(7)
    assert stable(kit.go()) == told


# D.4: DeliveryConfirmation ----------------------------------------------------------------------------------


def test_d4_mode_0_none() -> None:
    kit = three_fragments(0, 0, unique=1)
    kit.store(0, 10)
    kit.store(1, 10)
    assert [type(event) for event in kit.confirm("r", 10)] == [MessageReclaimed]


def test_d4_mode_1_per_fragment_and_receiver() -> None:
    kit = three_fragments(0, 1)
    assert short(kit.confirm("r", 10, registration_id=500)) == [
        ("DeliveryConfirmation", n, n, ConfirmationFlags(0), "m") for n in (7, 8, 9)
    ]
    assert kit.confirm("r", 10, registration_id=500) == [], "the same receiver again"
    events = kit.confirm("s", 8, registration_id=501)
    assert [(e.sequence_number, e.receiver_registration_id, e.store, e.store_index) for e in events] == [
        (7, 501, None, -1)
    ]


def test_d4_mode_2_per_message_and_receiver() -> None:
    kit = three_fragments(0, 2)
    kit.send(1, data="n")
    assert kit.confirm("r", 9) == []
    assert short(kit.confirm("r", 11)) == [
        ("DeliveryConfirmation", 7, 9, ConfirmationFlags(0), "m"),
        ("DeliveryConfirmation", 10, 10, ConfirmationFlags(0), "n"),
    ]


def test_d4_mode_3_marks_the_last_fragment() -> None:
    kit = three_fragments(0, 3)
    assert [e.flags for e in kit.confirm("r", 10)] == [0, 0, WHOLE_CONFIRMED]


@pytest.mark.parametrize("unique", [0, 1, 2])
def test_d4_uniqueacks_from_the_event_on_that_reaches_the_number(unique: int) -> None:
    kit = three_fragments(0, 2, unique=unique)
    flags = [kit.confirm(name, 10)[0].flags for name in ("r", "s", "t")]
    assert flags == [UNIQUE if unique and i + 1 >= unique else 0 for i in range(3)], "never where none are required"


def test_d4_uniqueacks_is_per_number() -> None:
    kit = Kit(notices={"confirmation": 1, "stability": 0}, unique_confirmations=2)
    kit.send(1, 1, 1)
    kit.confirm("r", 2)
    assert [(e.sequence_number, e.flags) for e in kit.confirm("s", 3)] == [(0, UNIQUE), (1, UNIQUE), (2, 0)]


@pytest.mark.parametrize("flag", [ConfirmationFlags.UREGID, ConfirmationFlags.OOD, ConfirmationFlags.EXACK])
def test_d4_what_the_receiver_is(flag: ConfirmationFlags) -> None:
    kit = three_fragments(0, 2)
    (event,) = kit.confirm("r", 10, registration_id=77, flags=flag)
    assert (event.flags, event.receiver_registration_id) == (flag, 77)


def test_d4_confirmations_of_what_was_let_go_still_bring_the_client_data() -> None:
    kit = three_fragments(2, 1)
    kit.confirm("r", 7)  # it is there, and slow
    kit.store(0, 10)
    kit.store(1, 10)
    assert kit.settled_released == (10, 10)
    assert [e.client_data for e in kit.confirm("r", 10)] == ["m", "m", "m"]


# MessageNotStable -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mode", "told"), [
    (None, [(0, 1, "a")]), (0, []), (1, [(0, 0, "a"), (1, 1, "a")]), (2, [(0, 1, "a")]), (3, [(0, 0, "a"), (1, 1, "a")]),
])  # fmt: skip
def test_l1_row_33_timeout_in_the_units_of_stability(mode: int | None, told: list[tuple[int, int, object]]) -> None:
    kit = Kit(notices={"stability": mode})
    kit.send(2, 1, data="ab")
    kit.retention.give_up(2)
    assert short(kit.told()) == [("MessageNotStable", a, b, NotStableFlags.TIMEOUT, data) for a, b, data in told]


def test_l1_row_33_a_store_lost_what_nobody_else_has() -> None:
    kit = Kit(3, notices={"stability": 1})
    kit.send(1, 1, 1, 1, 1, data="abcde")
    kit.store(0, 1)
    kit.store(1, 2)
    events = [e for e in kit.store(0, 5, since=4) if isinstance(e, MessageNotStable)]
    flags = NotStableFlags.LOSS | NotStableFlags.STORE
    assert short(events) == [("MessageNotStable", n, n, flags, "abcde"[n], "A") for n in (1, 2, 3)]
    assert [e.store_index for e in events] == [0, 0, 0]
    assert not any(isinstance(e, MessageNotStable) for e in kit.store(0, 5, since=4)), "told once"


def test_a_store_that_has_moved_on_and_acknowledges_later_lost_it_once() -> None:
    kit = Kit(notices={"stability": None})
    kit.send(1, 1, 1)
    assert len(kit.store(0, 0, since=2)) == 1
    assert kit.store(0, 0, since=2) == []
    assert not any(isinstance(e, MessageNotStable) for e in kit.store(0, 3, since=2))


def test_what_a_store_lost_and_a_quorum_has_is_stable_all_the_same() -> None:
    kit = Kit(3, notices={"stability": 2})
    kit.send(1, 1, 1)
    kit.store(0, 3)
    kit.store(1, 3)
    assert kit.store(2, 3, since=2) == []


def test_a_store_lost_what_was_reclaimed_by_force() -> None:
    kit = Kit(notices={"stability": None})
    kit.send(1, 1, 1)
    kit.force(2)
    flags = NotStableFlags.LOSS | NotStableFlags.STORE
    assert short(kit.store(0, 3, since=2))[0] == ("MessageNotStable", 0, 1, flags, None, "A")


# MessageReclaimed -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mode", "told"), [
    (None, [(0, 2, "b")]), (0, [(0, 2, "b")]), (1, [(0, 0, "a"), (1, 1, "a"), (2, 2, "b")]), (2, [(0, 2, "b")]),
    (3, [(0, 0, "a"), (1, 1, "a"), (2, 2, "b")]),
])  # fmt: skip
def test_l1_row_30_per_fragment_in_modes_1_and_3_else_per_range(
    mode: int | None, told: list[tuple[int, int, object]]
) -> None:
    kit = Kit(notices={"stability": mode})
    kit.send(2, 1, data="ab")
    events = [event for event in kit.store(0, 3) if isinstance(event, MessageReclaimed)]
    assert short(events) == [("MessageReclaimed", a, b, NONE, data) for a, b, data in told]


def test_l1_row_10_the_old_form_has_no_flags() -> None:
    kit = Kit(notices={"extended": False})
    kit.send(1, 1)
    kit.store(0, 1)
    assert [e.flags for e in kit.force(2)] == [None]


def test_l1_row_cb_the_force_reclaim_function_is_told_of_each_fragment() -> None:
    for events in (True, False):
        kit = Kit(notices={"force": True, "events": events})
        kit.send(1, 2, 1, data="abc")
        kit.store(0, 1)
        kit.told()
        infos = [info for info in kit.force(4) if isinstance(info, ForceReclaimInfo)]
        assert infos == [ForceReclaimInfo("quotes", n, data) for n, data in ((1, "b"), (2, "b"), (3, "c"))]


def test_l1_expected_order() -> None:
    kit = three_fragments(2, 2)
    kit.retention.stored(0, 0, 10)
    kit.retention.stored(1, 0, 10)
    kit.retention.confirmed(receiver("r"), 0, 10)  # in the same look
    kinds = [type(event).__name__ for event in kit.go()]
    assert sorted(kinds[:2]) == ["DeliveryConfirmation", "MessageStable"]
    assert kinds[2:] == ["MessageReclaimed"]


# Records ----------------------------------------------------------------------------------------------------


def test_a_batch_is_as_many_messages_as_it_has_rows() -> None:
    records = Records()
    records.append(Sent(10, 15, 2, "batch"))
    assert [t[:2] for t in records.told(10, 16, "message")] == [(10, 11), (12, 13), (14, 15)]
    assert [t[:2] for t in records.told(11, 13, "message")] == [(10, 11)]
    assert [t[:2] for t in records.told(12, 15, "message")] == [(12, 13)]
    assert [t.ends for t in records.told(10, 14, "fragment")] == [False, True, False, True]


def test_numbers_without_a_record_are_told_as_one_range() -> None:
    records = Records()
    records.append(Sent(5, 5, 1, "x"))
    records.append(Sent(9, 10, 2, "y"))
    assert [t[:2] + t[3:] for t in records.told(2, 13, "fragment")] == [
        (2, 4, None), (5, 5, "x"), (6, 8, None), (9, 9, "y"), (10, 10, "y"), (11, 12, None),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("count", "below", "left"),
    [
        (DROP_AT, DROP_AT, DROP_AT),  # so few may stay
        (DROP_AT + 500, (DROP_AT + 500) // 2, DROP_AT + 500),
        (DROP_AT + 500, (DROP_AT + 500) // 2 + 1, (DROP_AT + 500) // 2 - 1),
        (5 * DROP_AT, DROP_AT, 5 * DROP_AT),
        (5 * DROP_AT, DROP_AT + 1, 4 * DROP_AT - 1),
    ],
)
def test_records_are_forgotten_when_they_are_half_of_all_or_many(count: int, below: int, left: int) -> None:
    """What is moved up then is no more than what goes, or comes once in many messages."""
    records = Records()
    for number in range(count):
        records.append(Sent(number, number, 1, None))
    records.drop(below)
    assert len(records) == left


def test_records_do_not_pile_up() -> None:
    kit = Kit(notices={"stability": 2})
    for number in range(5 * DROP_AT):
        kit.send(1, data=[number])
        kit.store(0, number + 1)
    assert len(kit.notices.records) <= DROP_AT + 1


@pytest.mark.parametrize("unit", ["fragment", "message", "range"])
def test_of_no_numbers_nothing_is_told(unit: Unit) -> None:
    records = Records()
    records.append(Sent(5, 5, 1, "x"))
    for low in (5, 6, 9):
        assert list(records.told(low, low, unit)) == []


@pytest.mark.parametrize(("confirmation", "there", "waits"), [(1, True, True), (1, False, False), (0, True, False)])
def test_records_wait_for_a_receiver_that_is_there_and_whose_confirmations_are_told(
    confirmation: int, there: bool, waits: bool
) -> None:
    kit = Kit(notices={"confirmation": confirmation})
    kit.confirm("r", 0)
    kit.retention.present([receiver("r").uuid] if there else [])
    kit.send(*[1] * (2 * DROP_AT))
    kit.store(0, kit.next)
    assert len(kit.notices.records) == (2 * DROP_AT if waits else 0)


def test_a_store_or_receiver_that_stands_still_keeps_so_many_records_and_no_more() -> None:
    kit = Kit(3, notices={"stability": 1, "confirmation": 1})
    kit.confirm("r", 0)
    step = LATE_MAX // 4
    for i in range(1, 9):
        for _ in range(step):
            kit.retention.sent(kit.next, kit.next)
            kit.next += 1
        kit.retention.next = kit.next
        kit.retention.stored(0, 0, i * step)
        kit.retention.stored(1, 0, i * step)
        kit.go()
    assert LATE_MAX <= len(kit.notices.records) <= LATE_MAX + 2 * DROP_AT
    late = stable(kit.store(2, kit.next))
    assert late[0] == (late[0][0], STORE | GROUP, "C")
    assert len(late) <= LATE_MAX + 2 * DROP_AT + 1, "one range for what is forgotten, one event for each of the rest"
