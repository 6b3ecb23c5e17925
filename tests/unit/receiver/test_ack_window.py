"""AckWindow: acks follow the contiguous consumed prefix, whatever the order and the thread of consumption."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Callable

from holdfast.engine.errors import UsageError
from holdfast.engine.native import kernels
from holdfast.engine.receiver import ack_window
from holdfast.engine.receiver.ack_window import AckWindow


def window_with(count: int, start: int = 0, slots: int = 8) -> tuple[AckWindow, list[int]]:
    window = AckWindow(start, slots=slots)
    return window, [window.delivered(n, n) for n in range(start, start + count)]


@pytest.mark.parametrize(
    ("start", "count", "steps"),
    [
        (0, 7, [([0, 1, 5, 2, 4], 2), ([3], 5), ([6], 6)]),
        (1, 10, [([1, 2], 2), ([4, 5, 7, 8, 6, 10, 3], 8)]),
        (0, 3, [([2], None), ([1], None), ([0], 2)]),
    ],
)
def test_the_table_of_um(start: int, count: int, steps: list[tuple[list[int], int | None]]) -> None:
    window, slots = window_with(count, start)
    for consumed, highest in steps:
        for number in consumed:
            window.consumed(slots[number - start])
        assert window.advance() == (None if highest is None else highest + 1)
        assert window.advance() is None


def test_an_ack_covers_all_fragments_of_the_last_message() -> None:
    window = AckWindow(10)
    window.consumed(window.delivered(10, 14))
    assert window.advance() == 15
    assert window.ack == 15


def test_a_batch_is_one_record() -> None:
    window = AckWindow(0, slots=1, maximum=1)
    slot = window.delivered(0, 99_999)
    assert window.outstanding == 1
    window.consumed(slot)
    assert window.advance() == 100_000


def test_lost_numbers_hold_nothing_back() -> None:
    window = AckWindow(0)
    first = window.delivered(0, 0)
    window.lost(1, 5)
    second = window.delivered(6, 6)
    window.consumed(second)
    assert window.advance() is None
    window.consumed(first)
    assert window.advance() == 7


def test_consuming_twice_or_late_changes_nothing() -> None:
    window, slots = window_with(2, slots=2)
    window.consumed(slots[0])
    window.consumed(slots[0])
    assert window.advance() == 1
    reused = window.delivered(2, 2)  # in the record of slot 0
    window.consumed(slots[0])
    window.consumed(slots[1])
    assert window.advance() == 2
    window.consumed(reused)
    window.consumed(slots[0])
    assert window.advance() == 3


def test_it_grows_while_the_user_holds_messages_and_loses_nothing() -> None:
    window, slots = window_with(100, slots=4)
    assert window.slots == 128
    for slot in reversed(slots[1:]):
        window.consumed(slot)
    assert window.advance() is None
    window.consumed(slots[0])
    assert window.advance() == 100


def test_it_reuses_consumed_records_instead_of_growing() -> None:
    window = AckWindow(0, slots=4)
    for number in range(1000):
        window.consumed(window.delivered(number, number))
    assert window.slots == 4
    assert window.advance() == 1000


def test_growing_keeps_what_was_consumed_before() -> None:
    window, slots = window_with(4, slots=4)
    window.consumed(slots[2])
    last = window.delivered(4, 4)
    for slot in (slots[0], slots[1], slots[3], last):
        window.consumed(slot)
    assert window.advance() == 5


class Interrupted:
    """A part of a ring; looking at one of its places is interrupted, once, by another thread's work."""

    def __init__(self, part: Any, place: int, work: Callable[[], object]) -> None:
        self.part, self.place, self.work = part, place, [work]

    def __getitem__(self, at: int) -> object:
        if self.work and at == self.place:
            self.work.pop()()
        return self.part[at]

    def __setitem__(self, at: int, value: object) -> None:
        self.part[at] = value


@pytest.mark.parametrize("released", [0, 1])
def test_a_release_while_growing_takes_over_what_was_released_is_not_lost(released: int) -> None:
    window, slots = window_with(2, slots=2)
    ring = window._ring
    ring.tags = Interrupted(ring.tags, 0, lambda: window.consumed(slots[released]))  # type: ignore[assignment]
    window.delivered(2, 2)
    assert window.slots == 4
    window.consumed(slots[1 - released])
    assert window.advance() == 2


@pytest.mark.parametrize("released", [0, 1])
def test_a_release_while_records_move_is_not_lost(monkeypatch: pytest.MonkeyPatch, released: int) -> None:
    window, slots = window_with(2, slots=2)
    ring = window._ring
    ring.records = Interrupted(ring.records, 1, lambda: window.consumed(slots[released]))  # type: ignore[assignment]
    with monkeypatch.context() as patch:
        patch.setattr(window, "_sweep", lambda: None)  # the kernel takes arrays only
        window.delivered(2, 2)
    assert window.slots == 4
    window.consumed(slots[1 - released])
    assert window.advance() == 2


def test_the_head_follows_what_is_consumed_in_order_without_a_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    window = AckWindow(0, slots=2)
    monkeypatch.setattr(window, "_sweep", lambda wait_s=-1: pytest.fail("a sweep"))
    for number in range(100):
        slot = window.delivered(number, number)
        assert window.outstanding == 1
        window.consumed(slot)
        assert window.outstanding == 0


@pytest.mark.parametrize("slot", [0, 1, 7, 2**64 - 1])
def test_a_slot_that_was_not_delivered_is_not_consumed(slot: int) -> None:
    window = AckWindow(0)
    window.consumed(slot)
    assert (window.outstanding, window.advance()) == (0, None)
    window.delivered(0, 0)
    assert (window.outstanding, window.advance()) == (1, None)


def test_a_release_while_a_new_incarnation_cuts_a_batch_acknowledges_none_of_it() -> None:
    window = AckWindow(0)
    slot = window.delivered(0, 9)
    ring = window._ring
    ring.firsts = Interrupted(ring.firsts, 0, lambda: window.consumed(slot))  # type: ignore[assignment]
    window.rebase(4)
    assert window.advance() == 4
    window.consumed(window.delivered(4, 4))
    assert window.advance() == 5


def test_records_that_were_worked_on_when_an_exception_came_may_be_released() -> None:
    """The head follows again."""
    window, (before, evicted, behind) = window_with(3)
    ring = window._ring
    ring.firsts = Interrupted(ring.firsts, 1, lambda: None)  # type: ignore[assignment]

    def raises() -> None:
        raise InterruptedError

    ring.firsts.work[:] = [raises]  # type: ignore[attr-defined]
    with pytest.raises(InterruptedError):
        window.rewind(evicted)
    assert window.rewind(evicted) == 1
    for slot in (before, evicted, behind, *[window.delivered(n, n) for n in (1, 2)]):
        window.consumed(slot)
    assert window.advance() == 3
    assert not window.moving


def test_a_rewind_waits_for_the_sweep_of_another_thread() -> None:
    window, slots = window_with(2)
    inside, leave, done = threading.Event(), threading.Event(), threading.Event()

    def sweep() -> None:
        with window._lock:
            window.moving = True
            inside.set()
            leave.wait(90)
            window.moving = False

    def rewind() -> None:
        window.rewind(slots[1])
        done.set()

    threads = [threading.Thread(target=each) for each in (sweep, rewind)]
    threads[0].start()
    assert inside.wait(90)
    threads[1].start()
    leave.set()
    for thread in threads:
        thread.join()
    assert done.is_set()
    assert not window.moving, "as the sweep has left it"


def test_a_delivery_that_is_void_already_is_not_rewound_again() -> None:
    window, (first, second, third) = window_with(3)
    assert window.rewind(second) == 1
    again = [window.delivered(n, n) for n in (1, 2)]
    assert window.rewind(third) is None
    for slot in (first, *again):
        window.consumed(slot)
    assert window.advance() == 3


@pytest.mark.parametrize("has_record", [True, False])
def test_what_the_program_did_not_get_is_taken_back(has_record: bool) -> None:
    window, slots = window_with(2)
    if has_record:
        window.delivered(2, 4)
    window.take_back(2)
    assert window.passed_below == 2
    for slot in (*slots, window.delivered(2, 4)):
        window.consumed(slot)
    assert window.advance() == 5


@pytest.mark.parametrize("memory", [b"", bytes(24), bytearray(72), bytearray(23)])
def test_records_lie_in_memory_that_may_be_written_and_is_a_power_of_two_of_them(memory: bytes) -> None:
    with pytest.raises((ValueError, BufferError)):
        AckWindow(0).use(memory)


def test_too_many_held_messages_are_a_typed_error_that_names_the_oldest() -> None:
    window = AckWindow(7, slots=2, maximum=4)
    slots = [window.delivered(n, n) for n in range(7, 11)]
    with pytest.raises(UsageError, match=r"HF_FULL: 4 messages .* number 7") as raised:
        window.delivered(11, 11)
    assert raised.value.hint
    window.consumed(slots[0])
    window.delivered(11, 11)


@pytest.mark.parametrize(("slots", "maximum"), [(3, 8), (0, 8), (8, 4), (4, 6)])
def test_sizes_are_powers_of_two(slots: int, maximum: int) -> None:
    with pytest.raises(ValueError, match="powers of two"):
        AckWindow(0, slots=slots, maximum=maximum)


@pytest.mark.parametrize("start", [0, 5])
def test_what_was_evicted_is_acknowledged_only_after_it_was_delivered_again(start: int) -> None:
    window, (before, evicted, behind) = window_with(3, start)
    window.consumed(behind)
    assert window.rewind(evicted) == start + 1
    window.consumed(before)
    assert window.advance() == start + 1
    window.consumed(behind)  # the user lets go of an old view
    again = [window.delivered(n, n) for n in (start + 1, start + 2)]
    window.consumed(again[1])
    assert window.advance() is None
    window.consumed(again[0])
    assert window.advance() == start + 3


def test_the_very_first_message_may_be_evicted() -> None:
    window, (slot,) = window_with(1)
    assert window.rewind(slot) == 0
    assert window.advance() is None
    window.consumed(window.delivered(0, 0))
    assert window.advance() == 1


def test_nothing_is_rewound_behind_the_acknowledgement() -> None:
    window, slots = window_with(2)
    window.consumed(slots[0])
    window.advance()
    assert window.rewind(slots[0]) is None
    assert window.rewind(99) is None


def test_threads_that_release_while_the_window_grows_lose_nothing() -> None:
    window = AckWindow(0, slots=2)
    count, workers = 4000, 3
    handed: list[list[int]] = [[] for _ in range(workers)]
    done = threading.Event()

    def release(mine: list[int]) -> None:
        while not done.is_set() or mine:  # in this order: the last one comes before done
            if mine:
                window.consumed(mine.pop())
            window.advance()

    threads = [threading.Thread(target=release, args=(mine,)) for mine in handed]
    for thread in threads:
        thread.start()
    for number in range(count):
        handed[number % workers].append(window.delivered(number, number))
    done.set()
    for thread in threads:
        thread.join()
    window.advance()
    assert window.ack == count
    assert window.outstanding == 0


def test_a_release_within_a_sweep_does_not_disturb_it(monkeypatch: pytest.MonkeyPatch) -> None:
    window, slots = window_with(3, slots=4)

    def sweep(records: object, head: int, tail: int) -> tuple[int, int]:
        window.consumed(slots[0])  # a finalizer runs in the middle
        assert window.outstanding == 3, "the head stays where it is"
        assert window.advance() is None
        return 0, 0

    window.consumed(slots[1])
    with monkeypatch.context() as patch:
        patch.setattr(kernels, "contiguous_prefix", sweep)
        assert window.advance() is None
    assert window.advance() == 2


def reference(consumed: set[int], records: list[tuple[int, int]], start: int) -> int:
    ack = start
    for slot, (_, last) in enumerate(records):
        if slot not in consumed:
            break
        ack = last + 1
    return ack


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_interleaving_gives_the_ack_of_the_reference(data: st.DataObject) -> None:
    start = data.draw(st.integers(0, 2**62))
    window = AckWindow(start, slots=2)
    records: list[tuple[int, int]] = []
    open_slots: list[int] = []
    consumed: set[int] = set()
    for step in data.draw(st.lists(st.sampled_from(["deliver", "lose", "consume", "advance"]), max_size=60)):
        if step in ("deliver", "lose"):
            first = records[-1][1] + 1 if records else start
            records.append((first, first + data.draw(st.integers(0, 3))))
            if step == "deliver":
                open_slots.append(window.delivered(*records[-1]))
            else:
                window.lost(*records[-1])
                consumed.add(len(records) - 1)
        elif step == "consume" and open_slots:
            slot = open_slots.pop(data.draw(st.integers(0, len(open_slots) - 1)))
            window.consumed(slot)
            consumed.add(slot)
        elif step == "advance":
            window.advance()
            assert window.ack == reference(consumed, records, start)
    window.advance()
    assert window.ack == reference(consumed, records, start)


def test_a_record_is_as_long_as_the_window_writes_it() -> None:
    assert kernels.ack_record().itemsize == 24
    assert np.zeros(1, kernels.ack_record()).dtype.names == ("first", "last", "tag")


def test_what_was_acknowledged_at_once_is_not_told_again_by_the_timer() -> None:
    window, slots = window_with(3)
    for slot in slots:
        window.consumed(slot)
    window.told(3)
    assert window.ack == 3
    assert window.advance() is None
    window.told(1)
    assert window.ack == 3, "it never goes back"
    assert window.settled


def test_an_acknowledgement_does_not_wait_for_ever_for_another_threads_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sweep may have been interrupted by a finalizer that waits for this very acknowledgement."""
    monkeypatch.setattr(ack_window, "LOOK_S", 0.001)
    window, slots = window_with(1)
    inside, leave = threading.Event(), threading.Event()

    def sweep() -> None:
        with window._lock:
            window.moving = True
            inside.set()
            leave.wait(90)
            window.moving = False

    thread = threading.Thread(target=sweep)
    thread.start()
    assert inside.wait(90)
    window.consumed(slots[0])
    assert window.advance() is None
    leave.set()
    thread.join()
    assert window.advance() == 1
