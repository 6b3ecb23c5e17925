"""Planted bugs: each is found by the seed in killing.json, and that seed holds without it.

A change of the product turns the schedules, so that another seed may find a bug: ``python -m simulator.hunt
BUG`` looks for it.
"""

from __future__ import annotations

import json

import pytest

from simulator.hunt import KILLING, SEEDS_MAX, broken, counted, hunt
from simulator.planted import PLANTED, SOUGHT
from simulator.planting import planted_text

KNOWN: dict[str, int] = json.loads(KILLING.read_text())


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_found(bug: str) -> None:
    seed = KNOWN[bug]
    assert seed < counted(bug, SEEDS_MAX)
    assert broken(bug, seed, 1) or hunt(bug), f"{bug}: nothing in {SEEDS_MAX} seeds notices it"


def test_what_is_sought_can_still_be_planted() -> None:
    for bug, patches in SOUGHT.items():
        for patch in patches:
            assert planted_text(patches, patch.path), bug


def test_the_seeds_that_find_them_hold_without_them() -> None:
    assert [seed for seed in sorted(set(KNOWN.values())) if broken("", seed, 1)] == []
