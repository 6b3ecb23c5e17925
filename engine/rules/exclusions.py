"""Whom the operator has excluded (`holdfast store exclude`), by what several stores remember of it. Pure.

An exclusion holds for one start of each source. It is over where any of them has taken in a BEGIN since, also
for those that have missed it, or that never keep this source: what the store that was excluded has now is of
later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["Said", "in_force"]


class Said(NamedTuple):
    """What one store says of a source: stores, and the number of the exclusion of each."""

    excluded: Mapping[str, int]
    """Without these nothing has begun here since."""
    exclusions: Mapping[str, int]
    """All that it remembers."""


def in_force(said: Iterable[Said]) -> set[str]:
    """Stores that are not waited for."""
    every = list(said)
    over = {(name, n) for each in every for name, n in each.exclusions.items() if each.excluded.get(name) != n}
    return {name for each in every for name, n in each.excluded.items() if (name, n) not in over}
