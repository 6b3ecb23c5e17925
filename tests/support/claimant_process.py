"""Processes that claim a RegID (claimant.py), as a test sees them."""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

CLAIMANT = Path(__file__).resolve().parent / "claimant.py"
SHORT = 90.0


class Claimant:
    """A claimant.py process. ``said``: its lines so far."""

    def __init__(self, role: str = "source", *, session: int = 0, fork: bool = False, **options: Any) -> None:
        asked = {"role": role, "session": session, "fork": fork, "options": options}
        self.process = subprocess.Popen(
            [sys.executable, str(CLAIMANT), json.dumps(asked)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.said: list[str] = []
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(line.strip())
            self._lines.put(line.strip())

    def expect(self, word: str) -> list[str]:
        """The next line that begins with ``word``, in words."""
        while True:
            line = self._lines.get(timeout=SHORT)
            if line.startswith(word):
                return line.split(" ", 3)

    @property
    def granted(self) -> bool:
        return any(line.startswith("granted") for line in self.said)

    @property
    def refused(self) -> bool:
        return any(line.startswith("refused") for line in self.said)

    def kill(self) -> None:
        """kill -9; the process is dead when this returns. Idempotent."""
        self.process.kill()
        self.process.wait()

    def discard(self) -> None:
        """At the end of a test. A child that it forked must be dead."""
        self.kill()
        self._reader.join()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()

    def close(self) -> None:
        """A clean end."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(SHORT) == 0
