"""What a source finds in files of stores while it waits to begin (engine/source/unheard.py)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.engine.rules.election import Found
from holdfast.engine.source import unheard
from holdfast.engine.source.unheard import KNOWN, UNREAD, Unheard

LOOK_NS = 500_000_000


class Scene:
    """A source that waits for a store."""

    def __init__(self) -> None:
        self.state: bool | None = None
        """What that one's says, where it is dead."""
        self.looks = 0
        self.empty: list[int] = []
        self.register = SimpleNamespace(is_read=True)
        self.machine: Any = SimpleNamespace(found={}, unheard=lambda _: [0], knows_nothing=self.empty.append)
        self.link: Any = SimpleNamespace(name="c", up=False)
        given: Any = SimpleNamespace(domain=None), self.machine, [self.link], self.register, "quotes", 2, [0], LOOK_NS
        self.unheard = Unheard(*given)

    def look(self, *_: object) -> Found:
        self.looks += 1
        return Found("c")


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    made = Scene()
    monkeypatch.setattr(unheard, "knows", lambda *_: made.state)
    monkeypatch.setattr(unheard, "look_at", made.look)
    return made


def test_it_looks_so_often_and_hands_on_what_it_finds(scene: Scene) -> None:
    for turn in range(LOOK_NS, 4 * LOOK_NS, LOOK_NS // 5):
        scene.unheard.turn(turn)
    assert scene.looks == 3
    assert scene.machine.found == {0: Found("c")}
    scene.machine.unheard = lambda _: []
    scene.unheard.turn(5 * LOOK_NS)
    assert scene.machine.found == {}


@pytest.mark.parametrize(
    ("up", "state", "found", "empty"),
    [
        (False, None, "", []), (False, False, "", [0]), (False, True, KNOWN, []), (True, False, "", []), (True, True, "", []),
    ],
)  # fmt: skip
def test_what_a_dead_store_s_state_says_goes_first(
    scene: Scene, up: bool, state: bool | None, found: str, empty: list[int]
) -> None:
    """Of one that is there nobody asks for it."""
    scene.link.up, scene.state = up, state
    scene.unheard.turn(LOOK_NS)
    assert [each.why for each in scene.machine.found.values()] == [found]
    assert scene.empty == empty


def test_beside_a_register_that_is_not_read_nothing_is_proved(scene: Scene) -> None:
    scene.register.is_read = False
    scene.unheard.turn(LOOK_NS)
    assert scene.machine.found == {0: Found("c", UNREAD)}
    assert not scene.looks
