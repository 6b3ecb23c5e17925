"""Each part of the lab in its tiniest size: the harness works, and finds what is planted. The real thing: make torture-long."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
SKIPPED = 77


@pytest.mark.parametrize("part", ["matrix", "power", "flips", "peers"])
def test_a_part_finds_nothing_but_what_is_planted(part: str) -> None:
    command = [sys.executable, "-m", "torture_lab", part, "--tiny", "--seed", "1"]
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode == SKIPPED:
        pytest.skip(done.stdout.splitlines()[-1])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 findings, planted bugs caught 1 of 1" in done.stdout
