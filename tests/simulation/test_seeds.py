"""1,500 schedules: the invariants of truth.py, all the way and at the end. ``make simulate``: a million."""

from __future__ import annotations

import pytest
from simulation.run import play


@pytest.mark.parametrize("first", range(0, 1500, 300))
def test_what_is_stable_is_kept_whatever_fails(first: int) -> None:
    for seed in range(first, first + 300):
        try:
            play(seed)
        except Exception as error:
            raise AssertionError(f"python -m simulation {seed}: {error}") from error
