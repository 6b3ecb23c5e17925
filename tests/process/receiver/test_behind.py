"""What a receiver makes of stores that have missed a BEGIN, or whose numbers another BEGIN has made void
(docs/design.md 13, 30)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.handmade_feed import PATIENCE_S, Ring, Stage, numbers

from holdfast.engine.log.repair import LogRepair

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.handmade_feed import Log


@pytest.fixture
def stage(tmp_path: Path, domain: str) -> Iterator[Stage]:
    made = Stage(tmp_path, domain)
    yield made
    made.close()


def behind(stage: Stage) -> Log:
    """b has 0..149 of incarnation 1, in three segments, and has heard of no other one."""
    b = stage.kept("b", incarnation=1)
    b.begin(1, 0)
    b.plain(0, 49)
    b.roll()
    b.plain(50, 99)
    b.roll()
    b.plain(100, 149)
    return b


def drained(stage: Stage, turns: int = 0) -> list[object]:
    """What is told, now and after each of some patiences; not that nothing more comes."""
    told = stage.drain()
    for _ in range(turns):
        stage.now_ns += PATIENCE_S * 10**9
        told += stage.drain()
    return [each for each in told if each != "ended"]


def test_what_a_fill_has_is_not_told_as_lost(stage: Stage) -> None:
    """b was away when 2 began at 45. 70 rotted there, and `holdfast store repair` copied it from a. Then it
    rots at a."""
    b = behind(stage)
    b.flip(b"70")
    a = stage.kept("a", incarnation=2)
    a.begin(1, 0)
    a.plain(0, 44)
    a.begin(2, 45)
    a.plain(45, 149)
    with LogRepair(b.path, [a.path]) as repair:
        repair.run()
    assert [tuple(each) for each in repair.filled] == [(70, 71)]
    a.flip(b"70")
    stage.open(60, begun=(2, 45))
    assert drained(stage, 1) == numbers(60, 149)


def test_who_is_two_begins_behind_and_has_void_segments_is_not_waited_for(stage: Stage) -> None:
    """b, a backup without a seat, knows 1 only. 60 of 2 is damaged at a, the only other store. b's 60 is
    void."""
    behind(stage)
    a = stage.kept("a", incarnation=3)
    a.begin(1, 0)
    a.plain(0, 44)
    a.begin(2, 45)
    a.plain(45, 79)
    a.begin(3, 80)
    a.plain(80, 149)
    a.flip(b"60")
    stage.open(50, begun=(3, 80))
    assert drained(stage, 5) == [*numbers(50, 59), ("lost", 60, 60), *numbers(61, 149)]


def test_damage_with_a_damaged_table_is_told(stage: Stage) -> None:
    """The only store is gone for good. The header of its newest segment and both copies of its table are
    rotten."""
    a = stage.kept("a", incarnation=2)
    a.begin(1, 0)
    a.plain(0, 44)
    a.begin(2, 45)
    a.plain(45, 99)
    a.close()
    newest = max(a.path.glob("seg-*"))
    with newest.open("r+b") as file:
        file.write(b"U" * 4096)
    with (a.path / "head").open("r+b") as file:
        for slot in (1, 2):
            file.seek(4096 * slot)
            file.write(b"garbage!")
    ring = stage.open(40, begun=(2, 45))
    made = Ring(stage, 2, 100)
    made.send(3)
    told = stage.drain(ring)
    for _ in range(3):
        stage.now_ns += PATIENCE_S * 10**9
        told += stage.drain(ring)
    assert ("lost", 45, 99) in told, told


def test_what_was_let_go_while_void_is_not_gone(stage: Stage) -> None:
    """b alone drained 0..999 of 1, and its retention let go the first; 2 began at 45. a, which has 45..149 of
    2, is out of reach for a moment."""
    empty = stage.kept("b", incarnation=1)
    empty.close()
    b = stage.log(
        str(empty.path.relative_to(stage.path)), first_segment_bytes=16384, max_segment_bytes=16384, retain_bytes=40000
    )
    b.begin(1, 0)
    for number in range(0, 1000, 10):
        b.append(number, *([b"void %d" % n + b" " * 64] for n in range(number, number + 10)))
    a = stage.kept("a", incarnation=2)
    a.begin(1, 0)
    a.plain(0, 44)
    a.begin(2, 45)
    a.plain(45, 149)
    away = a.path.with_name("away")
    a.path.rename(away)
    stage.open(50, begun=(2, 45))  # 0..49 are acknowledged
    assert drained(stage, 1) == []
    away.rename(a.path)
    assert drained(stage) == numbers(50, 149)
