"""The processes of the soak through all their lives, and when each was troubled."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["Actor", "Window", "bound", "tail_of"]

AWAY = {"kill", "close", "wipe", "adopt", "exclude", "leave"}
"""Troubles after which no process is there."""
BOUND = Path(__file__).with_name("bound.py")


def bound(command: Sequence[str]) -> list[str]:
    """The command, which then dies with this process."""
    return [sys.executable, "-I", "-S", str(BOUND), str(os.getpid()), *command]


def tail_of(path: Path, size: int = 800) -> str:
    """The last that somebody said."""
    return path.read_bytes()[-size:].decode(errors="replace").strip() if path.exists() else ""


@dataclass
class Window:
    """A time in which somebody was not quite there. ``absent``: until when there was no process that runs;
    ``until``: until it had settled."""

    begin: float
    what: str
    absent: float = float("inf")
    until: float = float("inf")
    pid: int = 0
    """Of the process that runs then, or stands still."""


@dataclass
class Actor:
    """One store, source or receiver. ``command``: of a life, by its number; ``settled``: since this life
    began, it is at work."""

    name: str
    role: str
    command: Callable[[int], list[str]]
    errors: Path
    """What it says on stdout and stderr, all lives."""
    settled: Callable[[Actor], bool]
    life: int = 0
    process: subprocess.Popen[bytes] | None = None
    windows: list[Window] = field(default_factory=list)
    stands: bool = False

    @property
    def pid(self) -> int:
        """Of the life that runs, or 0."""
        return self.process.pid if self.process is not None else 0

    @property
    def troubled(self) -> bool:
        """It is away, stands still, or has not settled."""
        return bool(self.windows) and self.windows[-1].until == float("inf")

    def start(self) -> None:
        """The next life."""
        assert self.process is None
        self.life += 1
        if not self.troubled:
            self.windows.append(Window(time.monotonic(), "start"))
        with self.errors.open("ab") as output:
            self.process = subprocess.Popen(
                bound(self.command(self.life)), stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                start_new_session=True,
            )  # fmt: skip
        self.windows[-1].absent, self.windows[-1].pid = time.monotonic(), self.process.pid

    def strike(self, what: str) -> str:
        """``kill``, ``stop`` or ``close``; says what is wrong with how it ended, or nothing."""
        assert self.process is not None
        self.windows.append(Window(time.monotonic(), what))
        if what == "stop":
            self.windows[-1].pid = self.process.pid
            self.process.send_signal(signal.SIGSTOP)
            self.stands = True
            return ""
        return self._end(signal.SIGKILL if what == "kill" else signal.SIGTERM)

    def _end(self, number: signal.Signals) -> str:
        process, self.process = self.process, None
        if process is None:
            return ""
        if process.poll() is not None:
            return f"{self.name} had ended by itself, status {process.returncode}: {tail_of(self.errors)}"
        process.send_signal(number)
        try:
            status = process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return f"{self.name} does not end within 30 s of {number.name}: {tail_of(self.errors)}"
        if status and number != signal.SIGKILL:
            return f"{self.name} ended with status {status} after {number.name}: {tail_of(self.errors)}"
        return ""

    def go_on(self) -> None:
        """After ``stop``."""
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)
        self.stands = False
        self.windows[-1].absent = time.monotonic()

    def end(self) -> str:
        """A clean end, for good."""
        if self.stands:
            self.go_on()
        self.windows.append(Window(time.monotonic(), "end"))
        return self._end(signal.SIGTERM)

    def discard(self) -> None:
        """Whatever has happened."""
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            process.wait()

    def was_calm(self, begin: float, end: float) -> bool:
        """It was at work the whole time."""
        return all(window.until < begin or window.begin > end for window in self.windows)

    def was_absent(self, begin: float, end: float) -> bool:
        """No process of it ran at any moment of this time, since a kill or a close."""
        return any(window.begin < begin and window.absent > end and window.what in AWAY for window in self.windows)

    def calm_spans(self, begin: float, end: float) -> Iterator[tuple[float, float, int]]:
        """When it was at work, within this time, and as which process."""
        for window, following in zip(self.windows, [*self.windows[1:], Window(end, "over")], strict=True):
            if max(window.until, begin) < min(following.begin, end):
                yield max(window.until, begin), min(following.begin, end), window.pid

    def absences(self) -> Iterator[tuple[float, float]]:
        """When no process was there."""
        yield from ((window.begin, window.absent) for window in self.windows if window.what in AWAY)
