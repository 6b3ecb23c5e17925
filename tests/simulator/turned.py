"""``python -m simulator.turned [BUG...]`` lists planted bugs that their seeds in killing.json find no more.

A change of the product turns the schedules. The list takes about a minute on two cores. Then
``python -m simulator.hunt BUG...`` looks for the seeds that find them now.
"""

from __future__ import annotations

import os
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from simulator.hunt import broken, hunt, known_seeds
from simulator.planted import PLANTED

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

__all__ = ["HAS_TURNED", "found", "turned"]

HAS_TURNED = "its seed has turned"
"""Begins the warning of a test that went on to another seed."""


def found(bug: str, seed: int) -> bool:
    """Some seed notices the bug. Warns where it is not this one, which the mutants and the next push rely
    on."""
    if broken(bug, seed, 1) is not None:
        return True
    other = hunt(bug)
    if other is not None:
        text = f"{HAS_TURNED}: {seed} finds {bug} no more, {other[0]} does: python -m simulator.hunt {bug}"
        warnings.warn(text, UserWarning, stacklevel=2)
    return other is not None


def turned(bugs: Collection[str], known: Mapping[str, int]) -> list[str]:
    """Those that have no seed, or one that finds them no more."""

    def has_turned(bug: str) -> bool:
        return bug not in known or broken(bug, known[bug], 1) is None

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return [bug for bug, is_so in zip(bugs, pool.map(has_turned, bugs), strict=True) if is_so]


def main(bugs: list[str]) -> int:
    """Exit code 1: one has turned."""
    asked, known = bugs or list(PLANTED), known_seeds()
    if unknown := [bug for bug in asked if bug not in PLANTED]:
        print(f"no planted bug: {', '.join(unknown)}; simulator/planted.py has them", file=sys.stderr)
        return 2
    lost = turned(asked, known)
    for bug in lost:
        print(f"{bug:45}", known.get(bug, "has no seed"))
    print(f"{len(asked)} planted bugs, {len(lost)} turned")
    if lost:
        print("python -m simulator.hunt", *lost)
    return len(lost) > 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
