"""What a program of the soak writes down, and how it is read again: one line per fact, in a file of its own.

A line is one write to a file opened for appending, so a kill leaves whole lines only. Its first word is the
time (CLOCK_MONOTONIC, in seconds, the same for all processes), its second the kind:

=========  ==============================  ===========================================================
kind       words                           meaning
=========  ==============================  ===========================================================
life       number                          a life of this program begins
start      topic number                    source: its next message carries this number
sends      topic first last length crc     source: the call that sends this message follows
stable     topic first last                source: the product says so
silent     topic index                     source: told that this store does nothing, or is dead
done       topic number                    source: all below this number is sent and stable
got        topic first last length crc rt  receiver: a message; before it is consumed; rt 1: retransmit
row        topic first last length crc rt  receiver: the same, of a batch
whole                                      the rows since the last one were read whole
evicted                                    they were not: nothing of them counts
acked      topic number                    the program's explicit acknowledgement has returned
lost       topic number                    UnrecoverableLoss
burst      topic number                    UnrecoverableLossBurst; its last number
at         topic number                    receiver: registered; where it says that it begins
trouble    text                            what the product refused or complained of
closed                                     the context's close() has returned
=========  ==============================  ===========================================================
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Line", "Log", "parse", "read"]


@dataclass(frozen=True, slots=True)
class Line:
    """One fact."""

    at: float
    kind: str
    topic: str = ""
    numbers: tuple[int, ...] = ()
    text: str = ""


class Log:
    """Writes lines; from any thread."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def say(self, kind: str, *words: object) -> None:
        """One line."""
        self.say_all([(kind, *words)])

    def say_all(self, lines: list[tuple[object, ...]]) -> None:
        """Several lines in one write."""
        now = f"{time.monotonic():.6f}"
        text = "".join(" ".join([now, *map(str, line)]).replace("\n", " | ") + "\n" for line in lines)
        os.write(self._fd, text.encode())


TOPICAL = {"start", "sends", "stable", "silent", "done", "got", "row", "acked", "lost", "burst", "at"}


def read(path: Path) -> list[Line]:
    """All whole lines of a file, none if there is no file. Raises ValueError for a line that nobody
    writes."""
    try:
        text = path.read_bytes().decode(errors="replace")
    except FileNotFoundError:
        return []
    return [parse(line) for line in text.split("\n")[:-1]]


def parse(text: str) -> Line:
    """One line, without its end. Raises ValueError for one that nobody writes."""
    at, kind, *rest = text.split(" ")
    if kind == "trouble":
        return Line(float(at), kind, text=" ".join(rest))
    topic = rest.pop(0) if kind in TOPICAL else ""
    return Line(float(at), kind, topic, tuple(map(int, rest)))
