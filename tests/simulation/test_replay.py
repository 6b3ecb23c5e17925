"""A seed is a schedule: it replays bit by bit, in this process and in others that order their sets
differently."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from simulation.run import play

SEEDS = range(40, 52)
CODE = f"""
from simulation.run import play
print(*[play(seed).world.trace() for seed in range({SEEDS.start}, {SEEDS.stop})])
"""


def traces() -> list[str]:
    return [play(seed).world.trace() for seed in SEEDS]


def test_a_seed_replays_bit_by_bit() -> None:
    first = traces()
    assert first == traces()
    assert len(set(first)) == len(SEEDS)


def test_a_seed_replays_in_another_process_with_another_hash_seed() -> None:
    for hash_seed in ("1", "2"):
        environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent.parent), "PYTHONHASHSEED": hash_seed}
        done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True, env=environment)
        assert done.stdout.split() == traces()
