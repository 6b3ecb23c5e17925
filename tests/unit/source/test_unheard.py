"""What a source finds in censuses while it waits to begin (engine/source/unheard.py)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.engine.errors import LimitReachedError
from holdfast.engine.native.runtime import futures
from holdfast.engine.rules.census import Found
from holdfast.engine.source import unheard
from holdfast.engine.source.unheard import HANGS, PATIENCE_NS, UNREAD, Unheard

LOOK_NS = 500_000_000
WHOLE = Found("c")


class Scene:
    """A source that waits for a store."""

    def __init__(self) -> None:
        self.looks: list[futures.Future[dict[int, Found]]] = []
        self.asked_of_the_dead = 0
        self.register = SimpleNamespace(is_read=True)
        self.machine: Any = SimpleNamespace(found={}, unheard=lambda _: [0], knows_nothing=lambda _: None)
        link: Any = SimpleNamespace(name="c", up=False)
        given: Any = SimpleNamespace(domain=None), self.machine, [link], self.register, "quotes", 2, [0], LOOK_NS
        self.unheard = Unheard(*given)

    def knows_nothing(self, *_: object) -> bool:
        self.asked_of_the_dead += 1
        return False

    def begin(self, *_: object) -> futures.Future[dict[int, Found]]:
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
    scene.looks[0].set_result({0: WHOLE})
    scene.unheard.turn(LOOK_NS + 1)
    assert scene.machine.found == {0: WHOLE}
    scene.register.is_read = False
    scene.unheard.turn(2 * LOOK_NS)
    scene.looks[1].set_result({0: WHOLE})
    scene.unheard.turn(2 * LOOK_NS + 1)
    assert scene.why == [UNREAD]


def test_while_a_look_hangs_the_dead_are_looked_at(scene: Scene) -> None:
    for turn in range(1, 30):
        scene.unheard.turn(turn * LOOK_NS)
    assert scene.asked_of_the_dead == 29
    assert len(scene.looks) == 1
    assert scene.why == [HANGS]


def test_a_look_that_was_late_counts_no_more(scene: Scene) -> None:
    scene.unheard.turn(LOOK_NS)
    scene.looks[0].set_result({0: WHOLE})
    scene.unheard.turn(LOOK_NS + PATIENCE_NS)
    assert scene.why == [HANGS]


def test_a_look_from_before_a_change_counts_no_more(scene: Scene) -> None:
    scene.unheard.turn(LOOK_NS)
    scene.machine.found = {}  # as where a link comes up, or an attempt is given up
    scene.looks[0].set_result({0: WHOLE})
    scene.unheard.turn(LOOK_NS + 1)
    assert scene.machine.found == {}
    scene.unheard.turn(2 * LOOK_NS)
    assert len(scene.looks) == 2


def test_a_look_that_gets_no_thread_proves_nothing_and_ends_no_turn(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: object) -> None:
        raise LimitReachedError("no thread", 11, "EAGAIN", limit="RLIMIT_NPROC", value=7, used=7)

    monkeypatch.setattr(unheard, "in_background", none)
    scene.unheard.turn(LOOK_NS)
    (why,) = scene.why
    assert "no thread" in why
