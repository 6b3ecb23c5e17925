"""Version 0.1.0, built from the history: what runs beside this version, in tests of mixed versions and in
`replay_cost`."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
from pathlib import Path

__all__ = ["OLD", "RELEASED", "NoHistoryError", "released"]

ROOT = Path(__file__).resolve().parent.parent
RELEASED = "1dd4ba7"
"""The commit of 0.1.0."""
OLD = ROOT / "build" / "v0.1.0"
_WHAT = ["bindings", "engine", "csrc", "pyproject.toml", "README.md", "LICENSE"]


class NoHistoryError(Exception):
    """This checkout has no commit of 0.1.0 in it."""


def released() -> Path:
    """What PYTHONPATH must be for 0.1.0; its sources lie in OLD. Built once per checkout.

    Raises:
        NoHistoryError: as it says.
        CalledProcessError: it does not compile.
    """
    site = OLD / "site"
    OLD.parent.mkdir(exist_ok=True)
    with OLD.with_suffix(".lock").open("w") as lock:  # workers of one run of the tests
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not site.is_dir():
            _build(site)
    return site


def _build(site: Path) -> None:
    archive = subprocess.run(["git", "-C", str(ROOT), "archive", RELEASED, *_WHAT], check=False, capture_output=True)
    if archive.returncode:
        raise NoHistoryError(f"this checkout has no history with 0.1.0 ({RELEASED}) in it")
    shutil.rmtree(OLD, ignore_errors=True)
    OLD.mkdir(parents=True)
    subprocess.run(["tar", "x"], cwd=OLD, input=archive.stdout, check=True)
    subprocess.run([sys.executable, "-W", "ignore", "csrc/build_core.py"], cwd=OLD, check=True, capture_output=True)
    shutil.copytree(OLD / "bindings", OLD / "new" / "holdfast")
    shutil.copytree(OLD / "engine", OLD / "new" / "holdfast" / "engine")
    (OLD / "new").rename(site)
