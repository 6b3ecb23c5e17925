"""A minute of the soak: it works, and finds nothing but the lies that it tells itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from evidence_report import records

TESTS = Path(__file__).resolve().parents[1]


def test_a_minute_of_the_soak_finds_nothing_but_its_own_lies(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(TESTS), "HOLDFAST_EVIDENCE": str(tmp_path)}
    command = [sys.executable, "-m", "soak", "--minutes", "0.7", "--every", "7", "--seed", "1"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    assert "0 findings, planted lies caught 4 of 4" in done.stdout
    (run,) = records(tmp_path)
    assert run.counts["stable messages"] > 0
