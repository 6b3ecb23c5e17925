"""What a source tells about stable and reclaimed numbers, per notification mode, and when it lets go."""

from __future__ import annotations

import pytest

from holdfast.engine.events.source import MessageReclaimed, MessageStable, ReclaimedFlags, StableFlags
from holdfast.engine.retention import Limits, Retention, RetentionConfig, StoreAck

GROUP = StableFlags.INTRAGROUP_STABLE | StableFlags.INTERGROUP_STABLE | StableFlags.STABLE


def made(mode: int | None = None, start: int = 0, *, events: bool = True) -> Retention:
    return Retention(RetentionConfig(1000, 2000, 3000, mode, events), start)


def short(events: list[MessageStable] | list[MessageReclaimed]) -> list[tuple[int, int, object]]:
    return [(event.first_sequence_number, event.sequence_number, event.client_data) for event in events]


def test_limits_are_those_of_the_configuration() -> None:
    assert made().limits() == Limits(1000, 2000, 3000)


def test_without_a_mode_stable_numbers_come_as_one_range_with_the_last_messages_data() -> None:
    r = made()
    r.sent(0, 0, "a")
    r.sent(1, 3, "b")
    assert short(r.advance(4)) == [(0, 3, "b")]
    assert r.release_below == 4
    assert short(r.released(4)) == [(0, 3, "b")]
    assert r.advance(4) == []
    assert r.released(4) == []


@pytest.mark.parametrize(
    ("data", "stable", "told"),
    [
        ({2: "x"}, 3, (0, 2, "x")),
        ({2: "x"}, 5, (0, 4, None)),
        ({2: "x"}, 2, (0, 1, None)),
        ({0: "a", 4: "e"}, 5, (0, 4, "e")),
        ({}, 5, (0, 4, None)),
    ],
)
def test_a_range_carries_only_the_data_of_its_last_message(
    data: dict[int, str], stable: int, told: tuple[int, int, object]
) -> None:
    r = made()
    for number in range(5):
        if number in data:
            r.sent(number, number, data[number])
        else:
            r.next = number + 1
    assert short(r.advance(stable)) == [told]


def test_half_a_message_carries_no_data_and_its_end_does() -> None:
    r = made()
    r.sent(0, 3, "m")
    assert short(r.advance(2)) == [(0, 1, None)]
    assert short(r.advance(4)) == [(2, 3, "m")]


def test_numbers_never_go_back() -> None:
    r = made(start=10)
    r.next = 20
    assert short(r.advance(15)) == [(10, 14, None)]
    assert r.advance(12) == []
    assert r.stable == 15
    assert short(r.released(15)) == [(10, 14, None)]
    assert r.released(11) == []


def test_events_wait_for_the_sender_who_has_not_recorded_yet() -> None:
    r = made()
    assert r.advance(1) == []  # a store was faster than the return of send()
    assert r.pending
    assert r.release_below == 1
    r.sent(0, 0, "late")
    assert short(r.advance(1)) == [(0, 0, "late")]
    assert not r.pending


@pytest.mark.parametrize(("mode", "needed"), [(None, False), (0, False), (1, True), (2, True), (3, True)])
def test_the_sender_records_everything_only_where_events_need_it(mode: int | None, needed: bool) -> None:
    assert made(mode).records_all is needed
    assert not made(mode, events=False).records_all


def test_without_a_listener_nothing_is_kept_and_release_goes_on() -> None:
    r = made(2, events=False)
    r.sent(0, 2, "a")
    assert r.advance(3) == []
    assert r.release_below == 3
    assert r.released(3) == []
    assert not r.pending


def test_mode_0_tells_no_stability_and_still_releases() -> None:
    r = made(0)
    r.sent(0, 2, "a")
    assert r.advance(3) == []
    assert not r.pending
    assert short(r.released(r.release_below)) == [(0, 2, "a")]


def test_mode_2_tells_each_message_once_when_all_of_it_is_stable() -> None:
    r = made(2)
    r.sent(0, 2, "a")
    r.sent(3, 3, "b")
    assert r.advance(2) == []
    events = r.advance(4, [StoreAck(0, "s", 4)])
    assert events == [MessageStable(GROUP, 2, 0, "a"), MessageStable(GROUP, 3, 3, "b")]


def test_mode_2_tells_each_row_of_a_batch() -> None:
    r = made(2)
    r.sent(10, 15, "batch", 2)
    assert short(r.advance(13)) == [(10, 11, "batch")]
    assert short(r.advance(16)) == [(12, 13, "batch"), (14, 15, "batch")]


def test_mode_1_tells_each_fragment_and_store_as_in_the_table_of_um() -> None:
    r = made(1, start=7)
    r.sent(7, 9, "m")
    store = StableFlags.STORE
    first = r.advance(0, [StoreAck(0, "a", 10)])
    assert first == [MessageStable(store, n, n, "m", 0, "a") for n in (7, 8, 9)]
    second = r.advance(10, [StoreAck(0, "a", 10), StoreAck(1, "b", 10)])
    assert second == [MessageStable(GROUP | store, n, n, "m", 1, "b") for n in (7, 8, 9)]
    assert r.advance(10, [StoreAck(0, "a", 10), StoreAck(1, "b", 10)]) == []
    assert short(r.released(10)) == [(7, 7, "m"), (8, 8, "m"), (9, 9, "m")]


def test_mode_3_marks_the_event_that_completes_the_message() -> None:
    r = made(3)
    r.sent(0, 1, "m")
    events = r.advance(2, [StoreAck(0, "a", 2)])
    assert [bool(event.flags & StableFlags.WHOLE_MESSAGE_STABLE) for event in events] == [False, True]


def test_a_store_that_came_later_does_not_speak_for_what_it_never_had() -> None:
    r = made(1)
    r.sent(0, 0)
    r.sent(1, 1)
    events = r.advance(2, [StoreAck(0, "a", 2), StoreAck(1, "late", 2, since=1)])
    assert [(event.sequence_number, event.store) for event in events] == [(0, "a"), (1, "a"), (1, "late")]


def test_a_number_that_became_stable_without_a_new_ack_is_told_without_a_store() -> None:
    r = made(1)
    r.sent(0, 0, "m")
    r.advance(0, [StoreAck(0, "a", 1)])
    assert r.advance(1, [StoreAck(0, "a", 1)]) == [MessageStable(GROUP, 0, 0, "m")]


def test_a_forced_reclaim_says_so_and_is_told_once() -> None:
    r = made()
    r.sent(0, 0, "a")
    r.sent(1, 1, "b")
    assert r.released(1, forced=True) == [MessageReclaimed(ReclaimedFlags.FORCED, 0, 0, "a")]
    r.advance(2)
    assert r.released(2) == [MessageReclaimed(ReclaimedFlags(0), 1, 1, "b")]


def test_records_do_not_pile_up() -> None:
    r = made(2)
    for number in range(5000):
        r.sent(number, number, number)
        if number % 100 == 99:
            r.advance(number + 1)
            r.released(number + 1)
    assert not r._to_stable
    assert not r._to_reclaim
