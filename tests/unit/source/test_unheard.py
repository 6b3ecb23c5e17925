"""What a source finds in censuses while it waits to begin (engine/source/unheard.py)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.engine.errors import LimitReachedError
from holdfast.engine.native.runtime import futures, time
from holdfast.engine.rules.census import Found
from holdfast.engine.source import unheard
from holdfast.engine.source.unheard import HANGS, PATIENCE_NS, SHARE, UNREAD, Unheard

if TYPE_CHECKING:
    from collections.abc import Callable

LOOK_NS = 500_000_000
WHOLE = Found("c")


class Scene:
    """A source that waits for a store."""

    def __init__(self) -> None:
        self.looks: list[futures.Future[tuple[dict[int, Found], int]]] = []
        self.asked_of_the_dead = 0
        self.register = SimpleNamespace(is_read=True)
        self.machine: Any = SimpleNamespace(found={}, unheard=lambda _: [0], knows_nothing=lambda _: None)
        link: Any = SimpleNamespace(name="c", up=False)
        given: Any = SimpleNamespace(domain=None), self.machine, [link], self.register, "quotes", 2, [0], LOOK_NS
        self.unheard = Unheard(*given)

    def knows_nothing(self, *_: object) -> bool:
        self.asked_of_the_dead += 1
        return False

    def begin(self, *_: object) -> futures.Future[tuple[dict[int, Found], int]]:
        self.looks.append(futures.Future())
        return self.looks[-1]

    @property
    def why(self) -> list[str]:
        return [each.why for each in self.machine.found.values()]


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    made = Scene()
    monkeypatch.setattr(unheard, "knows_nothing", made.knows_nothing)
    monkeypatch.setattr(unheard, "in_background", made.begin)
    return made


def test_what_a_look_finds_is_handed_on(scene: Scene) -> None:
    scene.unheard.turn(LOOK_NS)
    scene.looks[0].set_result(({0: WHOLE}, 0))
    scene.unheard.turn(LOOK_NS + 1)
    assert scene.machine.found == {0: WHOLE}
    scene.register.is_read = False
    scene.unheard.turn(2 * LOOK_NS)
    scene.looks[1].set_result(({0: WHOLE}, 0))
    scene.unheard.turn(2 * LOOK_NS + 1)
    assert scene.why == [UNREAD]


def test_while_a_look_hangs_the_dead_are_looked_at(scene: Scene) -> None:
    """When it has come back, no other one begins for a while, as long as if it had taken its time."""
    for turn in range(1, 30):
        scene.unheard.turn(turn * LOOK_NS)
    assert scene.asked_of_the_dead == 29
    assert len(scene.looks) == 1
    assert scene.why == [HANGS]
    scene.looks[0].set_result(({0: WHOLE}, 10**15))
    scene.unheard.turn(LOOK_NS + SHARE * PATIENCE_NS - 1)
    assert len(scene.looks) == 1
    scene.unheard.turn(2 * LOOK_NS + SHARE * PATIENCE_NS)
    assert len(scene.looks) == 2


def test_a_look_that_was_late_counts_no_more(scene: Scene) -> None:
    scene.unheard.turn(LOOK_NS)
    scene.looks[0].set_result(({0: WHOLE}, 0))
    scene.unheard.turn(LOOK_NS + PATIENCE_NS)
    assert scene.why == [HANGS]


def test_a_look_from_before_a_change_counts_no_more(scene: Scene) -> None:
    scene.unheard.turn(LOOK_NS)
    scene.machine.found = {}  # as where a link comes up, or an attempt is given up
    scene.looks[0].set_result(({0: WHOLE}, 0))
    scene.unheard.turn(LOOK_NS + 1)
    assert scene.machine.found == {}
    scene.unheard.turn(2 * LOOK_NS)
    assert len(scene.looks) == 2


@pytest.mark.parametrize(("took_ns", "every"), [(0, 1), (LOOK_NS // 20, 1), (LOOK_NS // 10, 2), (LOOK_NS, 20)])
def test_looks_take_a_twentieth_of_the_time_at_most(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, took_ns: int, every: int
) -> None:
    """However long a census is: by the clock of the thread that reads it. A short one is read as often as
    asked for."""
    now, begun = [0], list[int]()

    def read(*_: object) -> Found:
        now[0] += took_ns
        return WHOLE

    def at_once(_: str, look: Callable[[], tuple[dict[int, Found], int]]) -> futures.Future[Any]:
        begun.append(now[0])
        future = futures.Future[Any]()
        future.set_result(look())
        return future

    monkeypatch.setattr(unheard, "in_background", at_once)
    monkeypatch.setattr(unheard, "look_at", read)
    monkeypatch.setattr(time, "monotonic_ns", lambda: now[0])
    for turn in range(1, 101):
        now[0] = turn * LOOK_NS
        scene.unheard.turn(now[0])
    assert begun == [turn * LOOK_NS for turn in range(1, 101, every)]
    assert scene.machine.found == {0: WHOLE}
    assert len(begun) * took_ns * SHARE <= 100 * LOOK_NS


def test_a_look_that_gets_no_thread_proves_nothing_and_ends_no_turn(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: object) -> None:
        raise LimitReachedError("no thread", 11, "EAGAIN", limit="RLIMIT_NPROC", value=7, used=7)

    monkeypatch.setattr(unheard, "in_background", none)
    scene.unheard.turn(LOOK_NS)
    (why,) = scene.why
    assert "no thread" in why
