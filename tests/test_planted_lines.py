"""Each bug of planted_lines.py is noticed by its test, which holds without it in its own file."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from planted_lines import LINES, TESTS
from simulator.planting import planted_text


@pytest.mark.parametrize("name", LINES)
def test_planted_bug(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "planted_lines", name], cwd=TESTS, capture_output=True, text=True, check=False
    )
    last = done.stdout.splitlines()[-1]
    if os.getuid() and done.returncode == pytest.ExitCode.OK and " skipped" in last:
        pytest.skip("its test wants root")
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout[-3000:] + done.stderr[-1000:]
    assert " failed" in last
    assert "error" not in last


@pytest.mark.parametrize("name", LINES)
def test_the_line_is_there(name: str) -> None:
    patch = LINES[name].patch
    assert planted_text([patch], patch.path)
