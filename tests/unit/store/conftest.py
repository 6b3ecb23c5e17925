"""What tests of the store's parts share: a clock that goes on by hand."""

from __future__ import annotations

import pytest

from holdfast.engine.store import drainer


class Clock:
    """Stands in for the module ``time`` in the drainer."""

    now = 0

    def monotonic_ns(self) -> int:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(drainer, "time", clock)
    return clock
