"""What is wrong with a run over mutants: survivors, and a stale list of the equal ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from mutants.equal import Equal
    from mutants.mutate import Mutant

__all__ = ["KILLED_MIN", "wrong"]

KILLED_MIN = 0.98
"""Of a sample, this share must die at least; the rest must be shown to be equal."""


def wrong(tried: Mapping[Mutant, str], every: Collection[Mutant], equal: Collection[Equal]) -> list[str]:
    """A line for each finding. ``tried``: who killed a mutant, empty for one that survives."""
    listed = {(each.path, each.function, each.line, each.mutation, each.nth) for each in equal}
    known = {mutant.name for mutant in every}
    survivors = [mutant for mutant, by in tried.items() if not by]
    found = [f"survives: {mutant} | {mutant.line}" for mutant in survivors if mutant.name not in listed]
    found += [f"is listed as equal, and dies: {mutant}" for mutant, by in tried.items() if by and mutant.name in listed]
    found += [f"is listed as equal, and is no mutant of the text: {each}" for each in sorted(listed - known)]
    if len(survivors) > (1 - KILLED_MIN) * len(tried):
        found.append(f"{len(survivors)} of {len(tried)} survive: at least {KILLED_MIN:.0%} must die")
    return found
