"""The demo's child processes: started, killed, started again; and what they said when they should not have
ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

from ..engine.errors import Error

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["ENDS", "Actor", "DemoError"]

ENDS = (signal.SIGINT, signal.SIGTERM)


class DemoError(Error):
    """The demo could not be played to its end."""

    code = "HF_DEMO"


class Actor:
    """One child process that can be killed and started again. What it says goes to a file, its output to
    ``out`` if given."""

    def __init__(self, name: str, folder: Path, *arguments: object, out: Path | None = None) -> None:
        self.name = name
        self.kills = 0
        self.done = False
        self._errors, self._out = folder / f"{name}.err", out
        self._command = [sys.executable, "-m", f"{__package__}.demo_worker", str(os.getpid()), *map(str, arguments)]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """A fresh interpreter, in a session of its own: ^C is for us, and we see to the children.

        No signal comes between its start and our knowing of it. It takes them again by itself (demo_worker).
        """
        with self._errors.open("ab") as errors, contextlib.ExitStack() as stack:
            stack.callback(signal.pthread_sigmask, signal.SIG_SETMASK, signal.pthread_sigmask(signal.SIG_BLOCK, ENDS))
            out = stack.enter_context(self._out.open("wb")) if self._out is not None else errors
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=out, stderr=errors, start_new_session=True
            )

    @property
    def is_store(self) -> bool:
        """It runs until it is told to stop."""
        return self.name.startswith("store ")

    @property
    def pid(self) -> int:
        """0 when it does not run."""
        return self._process.pid if self._process is not None else 0

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        self.kills += 1
        self.end()

    def end(self) -> None:
        """Kills it if it runs. One that was interrupted in here is ended by the next."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        """SIGTERM; raises DemoError if that is not a clean end."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            raise DemoError(f"{self.name} does not stop") from None
        self._process = None
        if code:
            raise DemoError(f"{self.name} ended with {code}: {self.told()}")

    def check(self) -> None:
        """Notices an end. Raises DemoError if it is not a good one."""
        if self._process is None or (code := self._process.poll()) is None:
            return
        self._process = None
        if code or self.is_store:
            raise DemoError(f"{self.name} ended with {code}: {self.told()}")
        self.done = True

    def told(self) -> str:
        """The last line that it wrote."""
        lines = self._errors.read_text(errors="replace").split("\n") if self._errors.exists() else []
        return next((line for line in reversed(lines) if line.strip()), "it said nothing")
