"""Programs of tests that mount an image: as root, each in a mount namespace of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def run_mounted(program: str, where: Path, *more: str) -> list[str]:
    """What ``program`` of this directory prints, given ``where`` and ``more``. Skips where nothing can be
    mounted."""
    if os.getuid() != 0:
        pytest.skip("mounting an image needs root")
    missing = [tool for tool in ("unshare", "mkfs.ext4", "losetup") if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"missing: {', '.join(missing)}")
    command = ["unshare", "-m", "--propagation", "private"]
    probe = subprocess.run([*command, "losetup", "-f"], capture_output=True, text=True)
    if probe.returncode:
        pytest.skip(f"no mount namespace or loop device: {probe.stderr.strip()}")
    command += [sys.executable, str(HERE / program), str(where), *more]
    given = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(command, env=given, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()
