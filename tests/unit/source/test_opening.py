"""What is told of attempts to make a source's ring, and to whom."""

from __future__ import annotations

from holdfast.engine.errors import SharedMemoryFullError, SystemCallError, TurnHeldError
from holdfast.engine.events.source import RegistrationError
from holdfast.engine.rules.registration import REFUSED_RETRY_NS, TELL_AGAIN
from holdfast.engine.source.opening import Opening

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
