"""0.1.0 beside this version: roles of either, each a process (upgrade_role.py)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from perf.released import NoHistoryError, released

__all__ = ["Role", "version_0_1_0"]

ROLE = Path(__file__).resolve().parent / "upgrade_role.py"


def version_0_1_0() -> Path:
    """What PYTHONPATH must be for it. Built from the history, once per checkout; one without it skips the
    test."""
    try:
        return released()
    except NoHistoryError as error:
        pytest.skip(str(error))


class Role:
    """One role through its lives, of either version."""

    def __init__(self, kind: str, name: str, where: Path) -> None:
        self.kind, self.name, self.where = kind, name, where
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, path: Path | None, failpoints: str | None = None) -> None:
        """The next life; ``path``: of 0.1.0."""
        environment = {
            key: value for key, value in os.environ.items() if key not in {"PYTHONPATH", "HOLDFAST_FAILPOINTS"}
        }
        if path is not None:
            environment["PYTHONPATH"] = str(path)
        if failpoints is not None:
            environment["HOLDFAST_FAILPOINTS"] = failpoints
        command = [sys.executable, str(ROLE), self.kind, self.name, str(self.where)]
        self.process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, start_new_session=True)

    def said(self, word: str) -> list[list[str]]:
        """Its lines that begin with this word, without it; the last one may be half written."""
        file = self.where / f"{self.name}.said"
        lines = file.read_text().split("\n")[:-1] if file.exists() else []
        return [line.split()[1:] for line in lines if line.startswith(word + " ")]

    def alive(self) -> None:
        """It runs, or ends the test."""
        assert self.process is not None
        assert self.process.poll() is None, f"{self.kind} {self.name} ended with {self.process.returncode}"

    def died(self) -> None:
        """A failpoint has killed it."""
        assert self.process is not None
        assert self.process.wait(90) == -signal.SIGKILL

    def kill(self) -> None:
        """-9."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """A clean end."""
        stop = self.where / f"{self.name}.stop"
        stop.touch()
        assert self.process is not None
        assert self.process.wait(90) == 0
        stop.unlink()
