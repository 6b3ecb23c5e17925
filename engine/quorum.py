"""How many stores must agree, for one group of stores. Pure arithmetic over numbers; several groups combine its
results.

Positions and reports are exclusive: the number behind the last one that a store holds. `size` is the declared size of
the group, not the count of stores that happen to answer. Source: um_semantics E.1, E.2, E.4, E.5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from .coverage import Interval, Spans, first_missing, lacking

if TYPE_CHECKING:
    from collections.abc import Sequence

Consensus = Literal["lowest", "majority", "highest"]
Intragroup = Literal["quorum", "all-active", "all"]


def quorum(size: int) -> int:
    """Return how many stores of a group of `size` are a quorum: more than half."""
    if size < 1:
        raise ValueError(f"a group of {size} stores has no quorum")
    return size // 2 + 1


def may_send(registered: int, size: int) -> bool:
    """Tell whether a source that is registered with `registered` stores of the group may send."""
    return registered >= quorum(size)


def stable_number(positions: Sequence[int], size: int) -> int:
    """Return the first number that is not stable: the q-th largest position. 0 with fewer positions than the quorum."""
    needed = quorum(size)
    return sorted(positions, reverse=True)[needed - 1] if len(positions) >= needed else 0


def consensus(reports: Sequence[int], size: int, behavior: Consensus) -> int:
    """Return the number to start at from what the registered stores of the group report.

    `majority` is the highest number that at least a quorum reports or exceeds. Raises ValueError below a quorum of
    reports: registration is not complete then, and no number is right.
    """
    if not may_send(len(reports), size):
        raise ValueError(f"{len(reports)} reports of {size} stores are not a quorum of {quorum(size)}")
    if behavior == "lowest":
        return min(reports)
    if behavior == "highest":
        return max(reports)
    return stable_number(reports, size)


class Group:
    """Which numbers are stable in one group of stores: `members[i]` is what store i has, `active[i]` that it is registered.

    `behavior` is ume_retention_intragroup_stability_behavior (um_semantics E.2): `quorum`: a quorum of the group has it;
    `all-active`: so has every store that is registered now; `all`: every store of the group has it.
    """

    def __init__(self, size: int, behavior: Intragroup = "quorum") -> None:
        self.members = [Spans() for _ in range(size)]
        self.active = [True] * size
        self._behavior = behavior
        self._needed = size if behavior == "all" else quorum(size)

    def first_unstable(self, floor: int) -> int:
        """Return the first number from `floor` on that is not stable. What lies below `floor` stays what it was."""
        number = first_missing(floor, self._needed, self.members)
        if self._behavior == "all-active" and (active := self._active()):
            number = min(number, first_missing(floor, len(active), active))
        return number

    def unstable(self, low: int, high: int) -> list[Interval]:
        """Return what of [low, high) is not stable."""
        found = lacking(low, high, self._needed, self.members)
        if self._behavior == "all-active" and (active := self._active()):
            both = Spans()
            for begin, end in found + lacking(low, high, len(active), active):
                both.add(begin, end)
            return list(both)
        return found

    def _active(self) -> list[Spans]:
        return [spans for spans, active in zip(self.members, self.active, strict=True) if active]
