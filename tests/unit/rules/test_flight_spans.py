"""What is in flight where numbers leave it out of order (docs/semantics.md D.6), against a model of plain
sets; what is remembered."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.retention_machine import SECOND, Kit, receiver, stable

from holdfast.engine.events.source import MessageReclaimed, ReclaimedFlags, StableFlags
from holdfast.engine.rules.intervals import Spans
from holdfast.engine.rules.retention import RECEIVERS_MAX, SPANS_MAX, Retention

START = 7
STORES = 3
RECEIVERS = 3


class Model:
    """Numbers as sets: who has them, who has confirmed them, which have left. No intervals, no prefixes but
    the released one."""

    def __init__(self, needed: int) -> None:
        self.needed = needed
        self.next = self.released = START
        self.stores: list[set[int]] = [set() for _ in range(STORES)]
        self.receivers: list[set[int]] = [set() for _ in range(RECEIVERS)]
        self.marked: set[int] = set()
        self.left: set[int] = set()
        self.forced: set[int] = set()

    def go(self) -> None:
        for number in range(START, self.next):
            stable = number in self.marked or sum(number in store for store in self.stores) >= 2
            if stable and sum(number in receiver for receiver in self.receivers) >= self.needed:
                self.left.add(number)
        while self.released in self.left | self.forced:
            self.released += 1

    def force(self, below: int) -> None:
        self.forced |= set(range(self.released, below)) - self.left
        self.released = max(self.released, below)

    @property
    def in_flight(self) -> set[int]:
        return set(range(START, self.next)) - self.left - self.forced


def flight(kit: Kit) -> set[int]:
    retention = kit.retention
    frontier, holes = retention.left()
    numbers = [number for low, high in holes for number in range(low, high)]
    numbers += range(frontier, retention.next)
    assert len(numbers) == len(set(numbers)) == retention.in_flight
    return set(numbers)


def reclaimed(events: list[Any], flags: ReclaimedFlags) -> set[int]:
    told = [event for event in events if isinstance(event, MessageReclaimed) and event.flags == flags]
    return {number for event in told for number in range(event.first_sequence_number, event.sequence_number + 1)}


LOW = st.integers(START - 2, START + 45)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(1, 9), st.just(0)),
        st.tuples(st.sampled_from(["store", "confirm"]), st.integers(0, 2), st.tuples(LOW, LOW)),
        st.tuples(st.just("mark"), LOW, st.just(0)),
        st.tuples(st.just("force"), LOW, st.just(0)),
    ),
    max_size=60,
)


@settings(max_examples=400)
@given(st.integers(0, 3), STEPS)
def test_the_flight_is_what_is_not_both_stable_and_confirmed(needed: int, steps: list[Any]) -> None:
    follow(needed, steps)


def test_a_flight_that_counts_from_the_first_hole_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    all_have, hole = (START, START + 3), (START + 1, START + 3)
    steps = [("send", 3, 0), ("store", 0, all_have), ("store", 1, all_have), ("confirm", 0, hole)]
    follow(1, steps)
    monkeypatch.setattr(Retention, "_leave", lambda *_: None)
    with pytest.raises(AssertionError):
        follow(1, steps)


def follow(needed: int, steps: list[Any]) -> None:
    """Both do the same, and say the same after each step."""
    kit, model = Kit(STORES, start=START, unique_confirmations=needed, notices={"stability": 0}), Model(needed)
    events = []
    for kind, which, numbers in steps:
        if kind == "send":
            kit.send(*[1] * which)
            model.next += which
        elif kind in {"store", "confirm"}:
            since, ack = sorted(numbers)
            had = (model.stores if kind == "store" else model.receivers)[which]
            had |= set(range(max(since, START), min(ack, model.next)))
            events += kit.store(which, ack, since) if kind == "store" else kit.confirm(f"r{which}", ack, since)
        elif kind == "mark" and START <= which < model.next:
            kit.retention.mark(which)
            model.marked.add(which)
        elif kind == "force" and which < model.next:
            events += kit.force(which)
            model.force(which)
        events += kit.go()
        model.go()
        assert flight(kit) == model.in_flight
        assert kit.retention.released == model.released
        assert {n for n in range(START, model.next) if kit.retention.is_stable(n)} >= model.left
    assert reclaimed(events, ReclaimedFlags.FORCED) == model.forced
    assert kit.retention.forced == len(model.forced)
    assert reclaimed(events, ReclaimedFlags(0)) == set(range(START, model.released)) - model.forced


def test_what_has_left_behind_a_hole_is_released_when_the_hole_was_given_up() -> None:
    """Also where nothing is acknowledged any more."""
    kit = Kit(STORES, start=START)
    kit.send(1, 1, 1)
    kit.store(0, 9, 5)
    kit.store(1, 9, 8)
    kit.go()
    kit.force(8)
    kit.go()
    assert kit.retention.released == 9


def test_what_is_behind_the_hole_goes_with_it_and_not_by_force() -> None:
    kit = Kit(unique_confirmations=1)
    kit.send(*[1] * 10)
    kit.store(0, 10)
    kit.confirm("late", 10, since=2)
    assert (flight(kit), kit.retention.released) == ({0, 1}, 0)
    events = kit.force(5)
    assert (reclaimed(events, ReclaimedFlags.FORCED), reclaimed(events, ReclaimedFlags(0))) == ({0, 1}, {2, 3, 4})
    assert kit.retention.forced == 2
    assert reclaimed(kit.go(), ReclaimedFlags(0)) == {5, 6, 7, 8, 9}
    assert flight(kit) == set()


def test_what_is_too_young_goes_by_force_though_it_has_left() -> None:
    kit = Kit(unique_confirmations=1, age_threshold_ns=100 * SECOND)
    kit.send(*[1] * 4)
    kit.store(0, 4)
    kit.confirm("late", 4, since=2)
    assert reclaimed(kit.force(3), ReclaimedFlags.FORCED) == {0, 1, 2}


def test_what_has_left_does_not_come_back_when_its_store_loses_its_seat() -> None:
    kit = Kit(3)
    kit.send(*[1] * 10)
    kit.store(0, 10, since=5)
    kit.store(1, 10, since=5)
    assert flight(kit) == set(range(5))
    kit.retention.registered({0, 2}, {0, 2})
    kit.go()
    assert flight(kit) == set(range(5))
    assert kit.retention.is_stable(5)
    kit.store(0, 5)
    kit.store(2, 5)
    assert (flight(kit), kit.retention.released, kit.retention.stable) == (set(), 10, 10)


def test_what_has_left_does_not_come_back_when_its_receivers_are_forgotten() -> None:
    kit = Kit(unique_confirmations=1)
    kit.send(*[1] * 10)
    kit.store(0, 10)
    kit.confirm("first", 8, since=3)
    for i in range(2 * RECEIVERS_MAX):
        kit.confirm(str(i), 10, since=9)
        kit.retention.present([])
    assert len(kit.retention._receivers) == RECEIVERS_MAX
    assert flight(kit) == {0, 1, 2, 8}
    kit.confirm("last", 3)
    assert (flight(kit), kit.retention.released) == ({8}, 8)


def test_receivers_whose_confirmations_are_awaited_are_forgotten_last() -> None:
    kit = Kit(unique_confirmations=2)
    kit.send(*[1] * 10)
    kit.store(0, 10)
    kit.confirm("one of two", 10, since=5)
    for i in range(RECEIVERS_MAX + 5):
        kit.confirm(str(i), 2)
        kit.retention.present([])
    assert flight(kit) == set(range(2, 10))
    kit.confirm("the other", 10, since=5)
    assert flight(kit) == {2, 3, 4}


def test_no_set_grows_without_end_and_what_is_forgotten_is_in_flight() -> None:
    count = 4 * SPANS_MAX
    kit = Kit(unique_confirmations=1)
    kit.send(*[1] * count)
    for number in range(1, count, 2):
        kit.retention.stored(0, number, number + 1)
        kit.retention.confirmed(receiver("r"), number, number + 1)
        if number % 256 == 255:
            kit.go()
    remembered = set(range(count - 2 * SPANS_MAX + 1, count, 2))
    assert flight(kit) == set(range(count)) - remembered
    retention = kit.retention
    assert retention.holdings is not None
    for spans in (retention.holdings.stores[0], *retention._receivers.values(), retention._left):
        assert len(list(spans)) <= SPANS_MAX
    kit.store(0, count)
    kit.confirm("other", count)
    assert (flight(kit), retention.released) == (set(), count)


def test_marks_are_remembered_within_the_same_bound() -> None:
    count = 4 * SPANS_MAX
    kit = Kit(unique_confirmations=1)
    kit.send(*[1] * count)
    for number in range(1, count, 2):
        assert kit.retention.mark(number)
    assert not kit.retention.is_stable(1)
    assert kit.retention.is_stable(count - 1)
    assert len(list(kit.retention._marked)) == SPANS_MAX
    assert kit.retention.mark(1)


def test_a_mark_that_is_forgotten_at_once_is_not_told_as_stable() -> None:
    """The lowest of more intervals than are remembered: it is in flight again."""
    kit = Kit(notices={"stability": 1})
    kit.send(*[1] * (2 * SPANS_MAX + 1))
    for number in range(2, 2 * SPANS_MAX + 1, 2):
        kit.retention.mark(number)
    kit.told()
    assert kit.retention.mark(0)
    assert stable(kit.told()) == [(0, StableFlags.USER, None)]
    assert not kit.retention.is_stable(0)


def test_spans_forget_the_lowest_first() -> None:
    spans = Spans()
    spans.forget(0)
    for low in (1, 5, 9):
        spans.add(low, low + 2)
    spans.forget(3)
    assert list(spans) == [(1, 3), (5, 7), (9, 11)]
    spans.forget(2)
    assert list(spans) == [(5, 7), (9, 11)]
    assert spans.last_begin == 9
    spans.forget(0)
    assert (list(spans), spans.last_begin) == ([], 0)
