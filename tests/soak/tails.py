"""How far a program of the soak is, read from the end of its records while it writes them."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from soak.records import parse

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Tail"]


class Tail:
    """Follows one file; from any thread.

    Attributes:
        sent: source: behind the last number whose send has begun.
        got: receiver: highest number it has, was told lost, or stands behind, by topic.
        done: source: all below is sent and stable; 0: not yet.
    """

    def __init__(self, path: Path) -> None:
        self.sent = 0
        self.got: dict[str, int] = {}
        self.done = 0
        self._path = path
        self._at = 0
        self._stable: list[tuple[float, int]] = []
        self._registered = 0.0
        self._lock = threading.Lock()

    def look(self) -> None:
        """Reads what is new."""
        with self._lock:
            try:
                with self._path.open("rb") as file:
                    file.seek(self._at)
                    data = file.read()
            except FileNotFoundError:
                return
            whole = data[: data.rfind(b"\n") + 1]
            self._at += len(whole)
            for line in whole.decode(errors="replace").splitlines():
                self._take(line)

    def _take(self, text: str) -> None:
        line = parse(text)
        match line.kind, line.numbers:
            case "sends", (_, last, *_):
                self.sent = max(self.sent, last + 1)
            case "stable", (_, last):
                self._stable.append((line.at, max(last, self._stable[-1][1] if self._stable else -1)))
            case "done", (end,):
                self.done = end
            case (("got" | "row"), (_, last, *_)):
                self._rise(line.topic, last)
            case (("lost" | "burst"), (number,)):
                self._rise(line.topic, number)
            case "at", (number,):
                self._rise(line.topic, number - 1)
                self._registered = line.at
            case "start", _:
                self._registered = line.at

    def _rise(self, topic: str, number: int) -> None:
        self.got[topic] = max(self.got.get(topic, -1), number)

    def stable_before(self, moment: float) -> int:
        """The highest number that was reported stable by then, or -1."""
        with self._lock:
            return max((number for at, number in self._stable if at <= moment), default=-1)

    def registered_since(self, moment: float) -> bool:
        """The source may send, or the receiver receive."""
        self.look()
        return self._registered > moment
