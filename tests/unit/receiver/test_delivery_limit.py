"""What counts as outstanding: the same whoever consumes it, how often and in what order."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.engine.receiver.delivery_limit import CountedExplicitWindow, CountedWindow, Outstanding


@pytest.fixture
def rings() -> list[None]:
    return []


@pytest.fixture
def out(rings: list[None]) -> Outstanding:
    return Outstanding(3, lambda: rings.append(None))


def test_fragments_are_out_from_delivery_to_consumption(out: Outstanding) -> None:
    window = CountedWindow(0, out)
    slots = [window.delivered(0, 0), window.delivered(1, 2)]
    assert (out.room(), out.count) == (0, 3)
    window.consumed(slots[0])
    assert (out.room(), out.count) == (1, 2)
    window.consumed(slots[0])
    assert out.room() == 1, "a second time counts nothing"
    window.consumed(slots[1])
    assert (out.room(), out.count) == (3, 0)


def test_two_sources_share_one_count(out: Outstanding) -> None:
    one, two = CountedWindow(0, out), CountedWindow(100, out)
    slot = one.delivered(0, 1)
    two.delivered(100, 100)
    assert out.room() == 0
    one.consumed(slot)
    assert out.room() == 2


def test_what_is_lost_is_never_out(out: Outstanding) -> None:
    window = CountedWindow(0, out)
    window.lost(0, 9_999)
    assert (out.room(), out.count) == (3, 0)
    assert window.advance() == 10_000
    explicit = CountedExplicitWindow(0, out)
    explicit.lost(0, 9_999)
    assert out.room() == 3


def test_what_was_evicted_is_out_again_only_when_it_is_delivered_again(out: Outstanding) -> None:
    window = CountedWindow(0, out)
    held, evicted, behind = window.delivered(0, 0), window.delivered(1, 1), window.delivered(2, 2)
    assert window.rewind(evicted) == 1
    assert (out.room(), out.count) == (2, 1)
    window.consumed(behind)  # the program lets go of an old view
    window.consumed(evicted)
    assert out.room() == 2
    window.delivered(1, 1)
    assert out.room() == 1
    window.consumed(held)
    assert out.room() == 2
    assert window.rewind(99) is None
    assert out.count == 1


def test_a_wake_up_comes_only_while_delivery_pauses(out: Outstanding, rings: list[None]) -> None:
    window = CountedWindow(0, out)
    slots = [window.delivered(n, n) for n in range(3)]
    window.consumed(slots[0])
    assert rings == []
    assert not out.pauses(), "one was consumed since"
    assert out.room() == 1
    window.delivered(3, 3)
    assert out.room() == 0
    assert out.pauses()
    window.consumed(slots[1])
    assert len(rings) == 1
    assert out.room() == 1
    window.consumed(slots[2])
    assert len(rings) == 1


def test_explicit_only_acks_and_marks_settle(out: Outstanding) -> None:
    window = CountedExplicitWindow(0, out)
    slots = [window.delivered(0, 0), window.delivered(1, 2), window.delivered(3, 3)]
    for slot in slots:
        window.consumed(slot)
    assert (out.room(), out.count) == (0, 4)
    window.not_outstanding(1)  # within a message: it is not over
    assert out.count == 4 - 0
    assert (out.room(), out.count) == (0, 3)
    window.not_outstanding(2)
    assert (out.room(), out.count) == (2, 1)
    window.not_outstanding(0)
    assert out.room() == 2
    window.not_outstanding(2**62)
    assert out.room() == 3
    window.delivered(4, 4)
    assert out.room() == 2, "marked beforehand is not consumed"


def test_explicit_what_was_evicted_is_out_again_when_it_comes_again(out: Outstanding) -> None:
    window = CountedExplicitWindow(0, out)
    window.delivered(0, 0)
    evicted = window.delivered(1, 2)
    assert window.rewind(evicted) == 1
    assert (out.room(), out.count) == (2, 1)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 3), st.booleans()), max_size=40), st.randoms())
def test_the_count_is_what_was_delivered_and_not_consumed(steps: list[tuple[int, bool]], random: object) -> None:
    out = Outstanding(2**20, lambda: None)
    window = CountedWindow(0, out)
    number, open_slots = 0, {}
    for fragments, consume in steps:
        open_slots[window.delivered(number, number + fragments - 1)] = fragments
        number += fragments
        if consume:
            slot = random.choice(sorted(open_slots))  # type: ignore[attr-defined]
            window.consumed(slot)
            del open_slots[slot]
        assert out.room() == 2**20 - sum(open_slots.values())
        window.advance()


def test_threads_that_consume_lose_nothing(out: Outstanding) -> None:
    window = CountedWindow(0, out)
    slots = [window.delivered(n, n) for n in range(3000)]

    def consume(mine: list[int]) -> None:
        for slot in mine:
            window.consumed(slot)

    threads = [threading.Thread(target=consume, args=(slots[part:],)) for part in (0, 5)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        out.room()
    assert (out.room(), out.count) == (3, 0)


@pytest.mark.parametrize("kind", [CountedWindow, CountedExplicitWindow])
def test_what_a_new_incarnation_voids_is_not_out_any_more(
    out: Outstanding, kind: type[CountedWindow | CountedExplicitWindow]
) -> None:
    window = kind(0, out)
    window.delivered(0, 0)
    window.delivered(1, 2)
    window.rebase(1)
    assert (out.room(), out.count) == (2, 1)
