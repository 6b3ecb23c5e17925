"""What stores record about messages that they have not: the judge hears of it when it is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.engine.rules.reconcile import Lost
from holdfast.engine.store.repository import Repository
from simulator.world import world

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.engine.rules.reconcile import Hole

__all__ = ["heard"]

heard: list[Callable[[str, int, int], object]] = []
"""Called with the name of a store's process and the numbers that it calls lost: by the judge of this seed."""
_lack = Repository.lack


def _records(self: Repository, gap: Lost | Hole) -> None:
    if isinstance(gap, Lost) and not world.over:
        for each in heard:
            each(self.name, gap.first, gap.last)
    _lack(self, gap)


Repository.lack = _records  # type: ignore[method-assign]
