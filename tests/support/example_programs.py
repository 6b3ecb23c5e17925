"""Runs of the example programs, for the tests of what they do and of how they end."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

SHORT = 90.0
"""Seconds that no wait here needs; a test that gets there has failed."""
LAST_LINES_S = 20.0
"""For the last lines of a program that has ended to be read."""
NAMES = sorted(
    path.stem
    for path in (Path(__file__).resolve().parents[2] / "bindings" / "examples").glob("*.py")
    if "\ndef main(" in path.read_text()
)


class Example:
    """One run of an example program. Its output is read as it comes."""

    def __init__(self, command: str, *more: object) -> None:
        name, *arguments = command.split()
        if name == "umesrc" and "-L" not in arguments:
            arguments = ["-L", "90", *arguments]  # it waits no longer than it must
        whole = [sys.executable, "-m", f"holdfast.examples.{name}", *arguments, *map(str, more)]
        self.process = subprocess.Popen(
            whole, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self.out: list[str] = []
        self.err: list[str] = []
        pairs = (self.process.stdout, self.out), (self.process.stderr, self.err)
        self._readers = [threading.Thread(target=_read, args=pair) for pair in pairs]
        for reader in self._readers:
            reader.start()

    def found(self, pattern: str) -> list[Any]:
        """What ``re.findall`` finds in the output so far, line by line."""
        return [found for line in list(self.out) for found in re.findall(pattern, line.rstrip("\n"))]

    def until(self, pattern: str, count: int = 1) -> list[Any]:
        """Waits until the pattern was found ``count`` times."""
        try:
            wait(f"{count} x {pattern!r}", lambda: len(self.found(pattern)) >= count, self.alive)
        except AssertionError as never:
            raise AssertionError(f"{never}; it said:\n{''.join(self.out)}{''.join(self.err)}") from None
        return self.found(pattern)

    def alive(self) -> bool:
        """It has not ended."""
        return self.process.poll() is None

    def end(self) -> tuple[int, str]:
        """Waits for its end: exit code and stderr."""
        code = self.process.wait(SHORT)
        for reader in self._readers:
            reader.join()
        return code, "".join(self.err)

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        assert self.end()[0] == -signal.SIGKILL


def _read(pipe: IO[str], lines: list[str]) -> None:
    with pipe:
        for line in pipe:
            lines.append(line)  # noqa: PERF402  (somebody looks meanwhile)


def wait(what: str, true: Callable[[], object], alive: Callable[[], bool] = lambda: True) -> None:
    """Waits until ``true()``; fails when the time is over, or soon after ``alive()`` is false."""
    deadline = time.monotonic() + SHORT
    while not true():
        if not alive():
            last = time.monotonic() + LAST_LINES_S
            while not true():
                assert time.monotonic() < last, f"it has ended: {what}"
                time.sleep(0.005)
            return
        assert time.monotonic() < deadline, f"never came: {what}"
        time.sleep(0.005)
