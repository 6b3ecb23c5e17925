"""Who has nothing to do costs little: a context's thread turns less often, and a ring makes it prompt
again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from support.workers import until

import holdfast as hf
from holdfast.engine.client import turn_loop as module
from holdfast.engine.native.core import lib

if TYPE_CHECKING:
    import pytest


class Hurried:
    """The C library, whose bells are waited for 1 ms at most; it remembers how long they should have been."""

    def __init__(self, real: Any) -> None:
        self._real = real
        self.limits: list[int] = []

    def hf_bell_wait(self, bells: object, bell: int, seen: int, limit: int) -> int:
        self.limits.append(limit)
        return int(self._real.hf_bell_wait(bells, bell, seen, min(limit, 1_000_000)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def test_a_context_without_work_turns_less_often_until_somebody_rings(monkeypatch: pytest.MonkeyPatch) -> None:
    hurried = Hurried(lib)
    monkeypatch.setattr(module, "lib", hurried)
    with hf.Context() as context:
        until("a quiet context", lambda: module.QUIET_NS in hurried.limits)
        first = hurried.limits.index(module.QUIET_NS)
        assert set(hurried.limits[:first]) == {module.SLEEP_NS}
        assert first > module.QUIET_TURNS
        before = len(hurried.limits)
        # Again and again: a ring between two waits is seen by the turn that follows, and none the wiser.
        until("a prompt context", lambda: module.SLEEP_NS in hurried.limits[before:], context.wake)
        until("a quiet context again", lambda: hurried.limits[-1] == module.QUIET_NS)
