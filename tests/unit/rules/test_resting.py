"""When a store that reads nothing looks at its peers."""

from __future__ import annotations

from holdfast.engine.rules.resting import LOOK_NS, Resting

START = 10**18


def seconds_of_looks(resting: Resting, held: int, start: int, seconds: int) -> tuple[list[int], list[int]]:
    """At which seconds it looks at the lines, and into the logs; it is asked five times a second."""
    lines, logs = [], []
    for fifth in range(5 * seconds):
        now = start + fifth * LOOK_NS // 5
        if resting.due(held, now):
            lines.append(fifth // 5)
            if resting.into_logs(now):
                logs.append(fifth // 5)
    return lines, logs


def test_lines_are_looked_at_every_second_and_logs_ever_less_often_for_a_minute() -> None:
    lines, logs = seconds_of_looks(Resting(), 5, START, 200)
    assert lines == list(range(200))
    assert logs == [0, 1, 2, 4, 8, 16, 32]


def test_a_change_begins_it_anew() -> None:
    resting = Resting()
    seconds_of_looks(resting, 5, START, 200)
    assert seconds_of_looks(resting, 6, START + 200 * LOOK_NS, 70)[1] == [0, 1, 2, 4, 8, 16, 32]


def test_lines_that_say_more_are_news_once() -> None:
    resting = Resting()
    assert resting.due(5, START)
    assert not resting.told(4)
    assert not resting.told(5)
    assert resting.told(9)
    assert not resting.told(9), "what could not be had is not asked for again and again"
    assert resting.told(10)
