"""An on_event that remembers."""

from __future__ import annotations

from typing import Any

from support.workers import until


class Events(list[Any]):
    """A recording on_event."""

    def __call__(self, event: object) -> None:
        self.append(event)

    def of(self, name: str) -> list[Any]:
        return [event for event in self if type(event).__name__ == name]

    def wait(self, name: str, count: int = 1) -> Any:
        """The ``count``-th event of this name."""
        until(f"{count} {name}", lambda: len(self.of(name)) >= count)
        return self.of(name)[count - 1]
