"""A process stands still in its turn on a board that a store wants to join: the ring is not given up
(engine/store/drainer.py)."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from holdfast.engine.errors import TurnHeldError
from holdfast.engine.log.state_file import SourceState
from holdfast.engine.native.core import lib
from holdfast.engine.store.drainer import TEND_NS, TURN_NS, Drainer

if TYPE_CHECKING:
    from unit.store.conftest import Clock

QUOTES = SourceState(b"u" * 16, "quotes", 7, 0)


class Log:
    """A repository that attaches the ring of its source, which is dead, when nobody holds the turn."""

    def __init__(self) -> None:
        self.source, self.called = QUOTES, "store a: RegID 7 on topic 'quotes'"
        self.item = SimpleNamespace(status=lib.HF_OK, rolls=0)
        self.line = SimpleNamespace(say_full=lambda _: None)
        self.stream: object = None
        self.catch_up, self.losses = None, list[tuple[int, int]]()
        self.next_sqn, self.held, self.trials = 5, True, 0

    def resume(self) -> None:
        self.trials += 1
        if self.held:
            raise TurnHeldError("the board", 7)
        self.stream = object()

    def look_again(self, _: int) -> None:
        raise AssertionError("it waits for peers, and the ring is there")

    def drained(self) -> bool:
        return self.stream is None

    def owner_gone(self) -> bool:
        return False

    def tidy(self) -> None:
        pass

    look_for_lost = tidy

    def beat(self, _: int) -> None:
        pass


def test_a_ring_is_attached_when_the_turn_is_free_again(clock: Clock) -> None:
    bells: Any = None
    drainer, log = Drainer("a", bells, 0, 0.0), Log()
    drainer.repositories[QUOTES.uuid] = log  # type: ignore[assignment]
    drainer.say(QUOTES, TurnHeldError("the board", 7))
    for _ in range(3 * TURN_NS // TEND_NS):
        clock.now += TEND_NS
        drainer._tend(clock.now)
        assert QUOTES.uuid in drainer.failures
    assert 3 <= log.trials <= 4, "all sources wait with it: not often"
    log.held = False
    for _ in itertools.takewhile(lambda _: log.stream is None, range(TURN_NS // TEND_NS + 1)):
        clock.now += TEND_NS
        drainer._tend(clock.now)
    assert log.stream is not None
