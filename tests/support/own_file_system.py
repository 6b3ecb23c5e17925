"""A small file system of a test's own."""

from __future__ import annotations

import contextlib
import subprocess
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["own_file_system"]


@contextlib.contextmanager
def own_file_system(place: Path, limits: str) -> Iterator[Path]:
    """Mounts one at ``place``, which is made. ``limits``: as mount -t tmpfs takes them. Skips the test where
    nothing can be mounted."""
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"{limits},mode=0700", "holdfast-test", str(place)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"a file system of its own cannot be mounted here: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", str(place)], check=True)
