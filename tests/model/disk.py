"""What a store has, as the histories model it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from holdfast.engine.rules.reconcile import LogView, Table, void_from

if TYPE_CHECKING:
    from holdfast.engine.log.state_file import SourceState


class Kept(NamedTuple):
    """A message in a log."""

    incarnation: int
    content: int


@dataclass
class Disk:
    """The directory of a store."""

    lives: list[int]
    state: SourceState | None = None
    """None: it has never heard of the source."""
    log: dict[int, Kept] = field(default_factory=dict)
    end: int = 0
    wiped: bool = False
    """It is not the first one of its store."""
    excluded: dict[str, int] = field(default_factory=dict)
    """As State.excluded: whom the operator has excluded, and the number of that exclusion."""

    @property
    def known_lives(self) -> list[int]:
        """Those that it has had, and those that it has taken over for the source."""
        return sorted({*self.lives, *(self.state.taken if self.state is not None else ())})

    def view(self) -> LogView:
        """What the log says of itself."""
        return LogView(tuple(self.state.begins) if self.state is not None else (), self.end)

    def holding(self, table: Table) -> dict[int, Kept]:
        """What the product takes for valid by ``table``: at a BEGIN a store keeps this, and what it lacks it
        reads of this."""
        return {number: kept for number, kept in self.log.items() if number < void_from(table, kept.incarnation)}
