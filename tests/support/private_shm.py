"""A mount namespace with a /dev/shm of its own, and without the domains of whoever tests: what a test removes
there is nobody else's. Wants root."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from holdfast.engine.memory.domain import volatile_bases

__all__ = ["PrivateShm"]

SHORT = 90.0
TESTS = Path(__file__).resolve().parents[1]
MAKE = """
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
for base; do if [ -d "$base" ]; then mount -t tmpfs -o mode=700 tmpfs "$base"; fi; done
echo made
exec sleep infinity
"""


class PrivateShm:
    """Lasts until it is closed."""

    def __init__(self) -> None:
        self._holder = subprocess.Popen(
            ["unshare", "--mount", "--propagation", "private", "sh", "-ec", MAKE, "sh", *map(str, volatile_bases())],
            stdout=subprocess.PIPE,
        )
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == b"made\n"

    def inside(self, *command: str) -> list[str]:
        """The command that runs a command there."""
        return ["nsenter", "-t", str(self._holder.pid), "--mount", "--wd=.", "--", *command]

    def holdfast(self, *arguments: str, before: tuple[str, ...] = ()) -> tuple[int, str, str]:
        """Runs ``holdfast``, behind ``before``: exit code, stdout, stderr."""
        return self.python("-m", "holdfast", *arguments, before=before)

    def python(self, *arguments: str, before: tuple[str, ...] = ()) -> tuple[int, str, str]:
        """Runs Python, which finds what tests have."""
        done = subprocess.run(
            self.inside(*before, sys.executable, *arguments), env={**os.environ, "PYTHONPATH": str(TESTS)},
            capture_output=True, text=True, check=False, timeout=SHORT,
        )  # fmt: skip
        return done.returncode, done.stdout, done.stderr

    def sh(self, script: str) -> str:
        """Output of a shell's."""
        done = subprocess.run(
            self.inside("sh", "-ec", script), capture_output=True, text=True, check=True, timeout=SHORT
        )
        return done.stdout

    def names(self) -> list[str]:
        """What is in shared memory."""
        return sorted(self.sh("ls -A /dev/shm").split())

    def close(self) -> None:
        """The namespace goes with what is in it, when nobody lives there any more."""
        self._holder.kill()
        self._holder.communicate()
