"""The simulator, in processes of its own: the engine of this one has the real world below it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
PIECE, PIECES = 200, 5


def simulator(*arguments: str) -> tuple[int, str]:
    """Exit status and output."""
    command = [sys.executable, "-m", "simulator", *arguments]
    done = subprocess.run(command, cwd=TESTS, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("piece", range(PIECES))
def test_seeds_hold(piece: int) -> None:
    status, said = simulator("-n", str(PIECE), "--first", str(piece * PIECE))
    assert status == 0, said


def test_a_seed_is_a_schedule() -> None:
    first, second = (simulator("-n", "8", "--first", "40", "--digests") for _ in range(2))
    assert first[0] == 0, first[1]
    assert first[1].splitlines()[:-1] == second[1].splitlines()[:-1]
    assert len(set(first[1].splitlines())) == 9
