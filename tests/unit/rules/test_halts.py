"""When a log that has no room is tried again, and when that is over."""

from __future__ import annotations

from holdfast.engine.rules.halts import RETRY_MAX_NS, RETRY_NS, Halt


def test_the_pause_doubles_as_long_as_nothing_is_taken_in_between() -> None:
    halt, now = Halt(), 1000
    pauses: list[int] = []
    for _ in range(8):
        halt.halted(7, now)
        assert halt.waits
        pause = 0
        while not halt.due(now + pause):
            pause += RETRY_NS
        assert not halt.waits
        assert not halt.due(now + 10 * RETRY_MAX_NS), "once per halt"
        pauses.append(pause)
        now += pause
    assert pauses == [RETRY_NS << i for i in range(5)] + [RETRY_MAX_NS] * 3
    halt.halted(8, now)
    assert halt.due(now + RETRY_NS), "it had taken something in"


def test_it_is_over_when_the_log_has_what_was_sent_at_the_first_look() -> None:
    halt = Halt()
    halt.halted(5, 0)
    assert halt.due(RETRY_NS)
    assert not halt.is_over(6, 10)
    assert not halt.is_over(9, 20)
    assert halt.is_over(10, 30), "a busy source is always ahead"
    halt.halted(10, RETRY_NS)
    assert not halt.is_over(10, 30), "what was sent before it halted again does not count"
