"""Each bug of planted_lines.py is noticed by its test, which holds without it in its own file."""

from __future__ import annotations

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
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout[-3000:] + done.stderr[-1000:]
    assert " failed" in done.stdout.splitlines()[-1]
    assert "error" not in done.stdout.splitlines()[-1]


@pytest.mark.parametrize("name", LINES)
def test_the_line_is_there(name: str) -> None:
    patch = LINES[name].patch
    assert planted_text([patch], patch.path)
