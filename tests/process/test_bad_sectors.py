"""Pages that the disk does not give, under stores and readers: sectors.py, each test of it with its own preloaded shim."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from process.mounted import run_mounted

HERE = Path(__file__).parent
SCENES = re.findall(r"^def (test_\w+)", (HERE / "sectors.py").read_text(), re.MULTILINE)


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("shim") / "sectors.so"
    compiler = os.environ.get("CC", "gcc")
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", str(HERE / "sectors_shim.c"), "-o", str(built)], check=True)
    return built


@pytest.mark.parametrize("scene", SCENES)
def test_over_bad_sectors(scene: str, shim: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad"
    bad.touch()
    given = {**os.environ, "LD_PRELOAD": str(shim), "HF_BAD_SECTORS": str(bad)}
    command = [sys.executable, "-m", "pytest", "-q", "-n0", f"{HERE / 'sectors.py'}::{scene}"]
    command += ["--basetemp", str(tmp_path / "base")]
    done = subprocess.run(command, env=given, cwd=HERE.parents[1], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_real_disk_that_ends_in_the_middle_of_a_segment(tmp_path: Path) -> None:
    """Through a map each of these reads was a SIGBUS."""
    assert run_mounted("real_sectors.py", tmp_path) == [
        "disk 5", "read True -9", "check True unreadable", "open True 0", "new True",
    ]  # fmt: skip
