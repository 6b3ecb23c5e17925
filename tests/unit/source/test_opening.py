"""What is told of attempts to make a source's ring, and to whom."""

from __future__ import annotations

import errno
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.engine.errors import SharedMemoryFullError, SystemCallError, TurnHeldError
from holdfast.engine.events.source import RegistrationError
from holdfast.engine.rules.registration import REFUSED_RETRY_NS, TELL_AGAIN, Phase, Refusal
from holdfast.engine.source.opening import PUT_OFF, Opening

if TYPE_CHECKING:
    from holdfast.engine.rules.registration import Action

INTERVAL = 3_000_000_000


def test_the_same_failure_is_told_once_and_again_seldom() -> None:
    opening = Opening(INTERVAL)
    (event,) = opening.failed(SharedMemoryFullError(1 << 20, 7), 0)
    assert isinstance(event, RegistrationError)
    assert "shared memory is full: 1048576 bytes needed, 7 free" in event.text
    assert "--shm-size" in event.text
    for number in range(1, TELL_AGAIN):
        assert opening.failed(SharedMemoryFullError(1 << 20, 7 + number), number * INTERVAL) == []
    assert len(opening.failed(SharedMemoryFullError(1 << 20, 7), TELL_AGAIN * INTERVAL)) == 1
    assert len(opening.failed(SystemCallError("no", 24, "EMFILE"), TELL_AGAIN * INTERVAL + 1)) == 1, "another one"
    opening.made()
    assert len(opening.failed(SystemCallError("no", 24, "EMFILE"), TELL_AGAIN * INTERVAL + 2)) == 1, "anew"


def test_what_an_attempt_before_the_call_failed_of_is_not_raised() -> None:
    opening = Opening(INTERVAL)
    error = SharedMemoryFullError(1, 0)
    opening.failed(error, 100)
    assert opening.failed_since(100) is error
    assert opening.failed_since(101) is None, "there may be room now"
    assert opening.error is error
    assert opening.next_ns == 100 + REFUSED_RETRY_NS
    opening.made()
    assert opening.failed_since(0) is None


def test_who_stands_in_the_way_is_named() -> None:
    opening = Opening(INTERVAL)
    (event,) = opening.failed(TurnHeldError("a board", 42), 0)
    assert event.pid == 42


class Machine:
    """One store's entry, and what was said of it."""

    def __init__(self, phase: Phase) -> None:
        self.entries = [SimpleNamespace(phase=phase, pending=0, refusal=None, refusals=0)]

    def refused(self, store: int, refusal: Refusal) -> list[Action]:
        self.entries[store].refusal, self.entries[store].refusals, self.entries[store].phase = refusal, 1, Phase.REFUSED
        return []


def machine(phase: Phase) -> Any:
    return Machine(phase)


LIMIT = SystemCallError("no thread can be started", errno.EAGAIN, "EAGAIN")


def test_a_question_that_was_put_off_leaves_none_unanswered_at_a_store_that_has_lost_its_seat() -> None:
    """It would never be asked again: as if it were about to answer."""
    opening, asked = Opening(INTERVAL), machine(Phase.IDLE)
    opening.not_asked(0, LIMIT, 0)
    assert opening.put_off(asked) == []
    assert asked.entries[0].pending is None
    assert opening.error is None, "nobody is to be asked"


@pytest.mark.parametrize("gone", [False, True])
def test_what_a_question_lacked_is_told_until_that_has_passed(gone: bool) -> None:
    opening, asked = Opening(INTERVAL), machine(Phase.ASKED)
    assert len(opening.not_asked(0, LIMIT, 0)) == 1
    opening.put_off(asked)
    assert (asked.entries[0].refusal, opening.error) == (PUT_OFF, LIMIT)
    if gone:
        asked.entries[0].phase = Phase.DOWN
        opening.put_off(asked)
    else:
        opening.asked(0, asked)
        assert (asked.entries[0].refusal, asked.entries[0].refusals) == (None, 0), "it says itself what it refuses"
    assert opening.error is None


def test_what_a_question_lacked_does_not_hide_why_there_is_no_ring() -> None:
    opening, asked = Opening(INTERVAL), machine(Phase.ASKED)
    opening.not_asked(0, LIMIT, 0)
    full = SharedMemoryFullError(1, 0)
    opening.failed(full, 1)
    opening.asked(0, asked)
    assert opening.error is full
