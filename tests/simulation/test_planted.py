"""Planted bugs: each is found within 4,000 seeds.

CI replays the seed that finds it. A change of the machines may turn the schedules so that another one does:
then it is looked for, and ``python tests/simulation/test_planted.py [BUG...]`` writes new ones to
killing.json.
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
from simulation import planted, planted_features
from simulation.planting import PLANTED, plant
from simulation.run import play

LISTS = planted, planted_features
"""They enter their bugs when they are imported."""
KILLING = Path(__file__).parent / "killing.json"
SEEDS_MAX = 4000


def said(seed: int) -> str:
    """What the seed says; empty: that all is well."""
    try:
        play(seed)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def killed(bug: str, seed: int) -> str:
    """What the seed says of the bug, if that is what it says it of."""
    with plant(bug):
        found = said(seed)
    return found if found and not said(seed) else ""


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_found(bug: str) -> None:
    seed = json.loads(KILLING.read_text())[bug]
    assert seed < SEEDS_MAX
    assert killed(bug, seed) or find(bug), f"{bug}: nothing in {SEEDS_MAX} seeds notices it"


def test_every_hole_that_the_design_closes_is_opened_once() -> None:
    assert {bug.decision for bug in PLANTED.values()} >= {4, 5, 6, 7, 8, 9, 12, 13, 14, 15}
    assert len(PLANTED) >= 20


def find(bug: str) -> tuple[int, str] | None:
    """The first seed that finds the bug, and what it says."""
    for seed in range(SEEDS_MAX):
        if found := killed(bug, seed):
            return seed, found
    return None


def main(bugs: list[str]) -> int:
    """Looks for seeds and writes them down."""
    known = json.loads(KILLING.read_text()) if KILLING.exists() else {}
    wanted, missing = bugs or list(PLANTED), 0
    with ProcessPoolExecutor() as pool:
        for bug, found in zip(wanted, pool.map(find, wanted), strict=True):
            missing += found is None
            if found is not None:
                known[bug] = found[0]
            print(f"{bug:55}", *(found or ("not found",)), flush=True)
    KILLING.write_text(json.dumps({bug: known[bug] for bug in PLANTED if bug in known}, indent=1) + "\n")
    return missing > 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
