"""Runs tests in a process of their own, sectors_shim.c preloaded: there the pages that they spoil are not to
be read."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

__all__ = ["run_scene", "scenes"]

HERE = Path(__file__).parent


def scenes(file: Path) -> list[str]:
    """The tests of a file that pytest does not collect by itself."""
    return re.findall(r"^def (test_\w+)", file.read_text(), re.MULTILINE)


def run_scene(file: Path, scene: str, where: Path) -> None:
    """Raises AssertionError, with what it says, when the test fails."""
    shim, bad = where / "sectors.so", where / "bad"
    bad.touch()
    compiler = os.environ.get("CC", "gcc")
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", str(HERE / "sectors_shim.c"), "-o", str(shim)], check=True)
    given = {**os.environ, "LD_PRELOAD": str(shim), "HF_BAD_SECTORS": str(bad)}
    command = [sys.executable, "-m", "pytest", "-q", "-n0", f"{file}::{scene}", "--basetemp", str(where / "base")]
    done = subprocess.run(command, env=given, cwd=HERE.parents[1], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
