"""Whom the operator has excluded (`holdfast store exclude`), by what several stores remember of it. Pure.

An exclusion holds for one start of each source. It is over where any of them has taken in a BEGIN that knew
of it, also for those that have missed that BEGIN: what the store that was excluded has now is of later. BEGIN
says which exclusions it knew, so who takes part can say it, too, where it has not recorded them itself; and
so can the register. A store in which the source has never begun hears of no BEGIN: where others have begun,
it does not say whom the operator has excluded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

__all__ = ["OVER_MAX", "Said", "in_force"]

OVER_MAX = 200
"""Exclusions that are over, as they are remembered of a source: the last ones."""


class Said(NamedTuple):
    """What one store says of a source: stores, and the number of the exclusion of each."""

    excluded: Mapping[str, int]
    """Without these nothing has begun here since."""
    over: Collection[int]
    """Exclusions that are over, as it knows."""
    begun: bool
    """The source has begun here."""


def in_force(said: Iterable[Said], over: Iterable[int] = ()) -> set[str]:
    """Stores that are not waited for. ``over``: exclusions that are, as the register has it."""
    every = list(said)
    ended = {*over, *(number for each in every for number in each.over)}
    speak = [each for each in every if each.begun] or every
    return {name for each in speak for name, number in each.excluded.items() if number not in ended}
