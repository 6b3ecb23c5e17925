"""What the demo shows while it runs: a bar for everybody on a terminal, a line per second elsewhere."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TextColumn

from ..engine.printable import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["Screen"]

WHOLE = ("sent", "stable", "receiver 1", "receiver 2")
"""What gets to the end whatever happens."""
LINE_S = 1.0


class Screen:
    """``with Screen(total, names) as screen``, with a bar for each name; positions are counts of records."""

    def __init__(self, total: int, names: Iterable[str]) -> None:
        self.console = Console(highlight=False)
        self._total = total
        self._started = time.monotonic()
        self._next_line = 0.0
        self._told: dict[str, int] = {}
        self._progress: Progress | None = None
        if self.console.is_terminal:
            self._progress = Progress(
                TextColumn("{task.description:<10}"), BarColumn(None), TaskProgressColumn(), MofNCompleteColumn(),
                TextColumn("[red]{task.fields[marks]}"), console=self.console,
            )  # fmt: skip
            self._tasks = {name: self._progress.add_task(name, total=total, marks="") for name in names}
        self._marks: dict[str, str] = dict.fromkeys(names, "")

    def __enter__(self) -> Self:
        if self._progress is not None:
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    def say(self, text: str) -> None:
        """One line that stays."""
        self.console.print(
            printable(f"[{time.monotonic() - self._started:5.1f} s] {text}"), markup=False, soft_wrap=True
        )

    def mark(self, name: str, text: str) -> None:
        """A note behind a bar: a kill."""
        self._marks[name] = f"{self._marks[name]} {text}".strip()

    def update(self, positions: Mapping[str, int]) -> None:
        """Where everything stands."""
        if self._progress is not None:
            for name, at in positions.items():
                self._progress.update(self._tasks[name], completed=at, marks=self._marks[name])
            return
        now = time.monotonic()
        done = min(positions[name] for name in WHOLE) >= self._total
        if positions != self._told and (now >= self._next_line or done):
            self._next_line, self._told = now + LINE_S, dict(positions)
            self.say("  ".join(f"{name} {at:,}" for name, at in positions.items()))
