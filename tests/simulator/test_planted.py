"""Planted bugs: each is found by the seed in killing.json, and that seed holds without it.

A change of the product turns the schedules, so that another seed may find a bug. A test goes on to that one
with a warning, which is in pytest's summary: ``python -m simulator.hunt BUG`` writes it down, and ``python -m
simulator.turned`` lists all that have turned.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from simulator.hunt import SEEDS_MAX, TESTS, counted, known_seeds
from simulator.planted import PLANTED
from simulator.turned import HAS_TURNED, found

KNOWN = known_seeds()


@pytest.mark.filterwarnings(f"default:{HAS_TURNED}:UserWarning")
@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_found(bug: str) -> None:
    seed = KNOWN[bug]
    assert seed < counted(bug, SEEDS_MAX)
    assert found(bug, seed), f"{bug}: nothing in {SEEDS_MAX} seeds notices it"


def test_the_seeds_that_find_them_hold_without_them() -> None:
    seeds = sorted(set(KNOWN.values()))
    command = [sys.executable, "-m", "simulator", "--only", *map(str, seeds)]
    done = subprocess.run(command, cwd=TESTS, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith(f"{len(seeds)} seeds, 0 broken")
