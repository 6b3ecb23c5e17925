"""Windows beside the table of UM: a new incarnation takes back what was acknowledged of the old one, and an
ExplicitWindow is moved by the program alone."""

from __future__ import annotations

from holdfast.engine.receiver.ack_window import AckWindow, ExplicitWindow


def window_with(count: int) -> tuple[AckWindow, list[int]]:
    window = AckWindow(0, slots=8)
    return window, [window.delivered(n, n) for n in range(count)]


# Explicit ---------------------------------------------------------------------------------------------------


def test_explicit_nothing_but_the_program_acknowledges() -> None:
    window = ExplicitWindow(5)
    slot = window.delivered(5, 7)
    assert not window.settled, "the timer looks once, for the counters"
    window.consumed(slot)
    window.delivered(8, 8)
    window.lost(8, 9)
    assert window.advance() is None
    assert window.settled
    assert window.ack == 5
    window.told(8)
    window.told(6)
    assert window.ack == 8


def test_explicit_what_was_evicted_comes_again_unless_it_is_acknowledged() -> None:
    window = ExplicitWindow(0)
    first, second = window.delivered(0, 9), window.delivered(10, 19)
    window.told(5)
    assert window.rewind(first) == 5, "what the program acknowledged does not come again"
    assert window.rewind(second) is None, "it comes again anyway: nothing is left out"
    window.delivered(5, 19)
    window.told(20)
    assert window.rewind(second) is None


def test_explicit_an_ack_ahead_of_delivery_skips_nothing() -> None:
    window = ExplicitWindow(0)
    slot = window.delivered(0, 9)
    window.told(100)
    assert window.rewind(slot) is None
    assert window.passed_below == 10


def test_a_new_incarnation_takes_back_what_was_acknowledged_of_the_old_one() -> None:
    window, slots = window_with(4)
    for slot in slots[:3]:
        window.consumed(slot)
    assert window.advance() == 3
    window.rebase(2)
    assert window.ack == 2
    window.consumed(slots[3])  # of the old one
    assert window.advance() is None
    window.consumed(window.delivered(2, 2))
    assert window.advance() == 3


def test_a_batch_that_a_new_incarnation_cuts_still_holds_back_its_valid_part() -> None:
    window = AckWindow(0)
    slot = window.delivered(0, 9)
    window.rebase(4)
    again = window.delivered(4, 4)
    window.consumed(again)
    assert window.advance() is None
    window.consumed(slot)
    assert window.advance() == 5


def test_explicit_a_new_incarnation_takes_back_acks() -> None:
    explicit = ExplicitWindow(0)
    explicit.delivered(0, 9)
    explicit.told(10)
    explicit.rebase(4)
    assert (explicit.ack, explicit.passed_below) == (4, 4)


def test_an_ack_at_once_of_what_is_consumed_evicted_or_void_means_nothing() -> None:
    window = AckWindow(0)
    first, second = window.delivered(0, 0), window.delivered(1, 9)
    assert window.valid(first, 1) == 1
    window.consumed(first)
    assert window.valid(first, 1) is None
    window.rebase(4)
    assert window.valid(second, 10) == 4, "cut"
    window.rewind(second)
    assert window.valid(second, 10) is None


def test_explicit_a_slot_says_what_a_new_incarnation_leaves_of_it() -> None:
    window = ExplicitWindow(0)
    old = window.delivered(0, 9)
    window.rebase(4)
    new = window.delivered(4, 4)
    window.rebase(7)
    assert (window.valid(old, 10), window.valid(old, 3)) == (4, 3)
    assert (window.valid(new, 10), window.valid(window.delivered(7, 7), 10)) == (7, 10)


def test_explicit_what_was_evicted_after_a_new_incarnation_comes_again() -> None:
    window = ExplicitWindow(0)
    window.delivered(0, 9)
    window.rebase(4)
    assert window.rewind(window.delivered(4, 8)) == 4


def test_g3_nothing_to_ack_and_nothing_is_sent() -> None:
    window = AckWindow(7)
    assert window.advance() is None
    slot = window.delivered(7, 7)
    assert window.advance() is None
    window.consumed(slot)
    assert window.advance() == 8
    assert window.advance() is None


def test_g2_what_was_acked_before_changes_nothing() -> None:
    window = AckWindow(0)
    slots = [window.delivered(number, number) for number in range(4)]
    for slot in slots[:3]:
        window.consumed(slot)
    assert window.advance() == 3
    window.consumed(slots[0])  # again
    window.told(1)  # an ack that is lower
    assert window.advance() is None
    assert window.ack == 3
    window.consumed(slots[3])
    assert window.advance() == 4
