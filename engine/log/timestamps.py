"""When the messages of a log were sent: which ones are younger than others (docs/semantics.md I.1
restore-last, I.3 age threshold)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ..rules import chosen_start
from .info_file import log_range
from .reader import Block, Logs

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["first_kept", "first_sent", "first_sent_since", "first_since", "last_sent"]


def first_since(path: Path, age_ns: int) -> int | None:
    """The first number of this log that is at most so much older than its newest message; None: it holds no
    message.

    By bisection: a log's time stamps ascend, unless the clock was set back meanwhile. What is marked
    undeliverable has its time as before. Any thread, any process.
    """
    found = log_range(path)
    logs, block = Logs([str(path)], marks=False), Block()
    try:
        low, high = found or (0, 0)
        newest = first_sent(logs, block, high - 1, high) if low < high else None
        if newest is None:
            return None
        return first_sent_since(logs, block, low, high, newest[1] - age_ns)
    finally:
        logs.close()


def first_kept(path: Path) -> int | None:
    """When the first message of this log was sent (CLOCK_REALTIME); None: it holds none that can be read."""
    low, high = log_range(path) or (0, 0)
    logs, block = Logs([str(path)]), Block()
    try:
        found = first_sent(logs, block, low, high)
        return found[1] if found is not None else None
    finally:
        logs.close()
        block.free()


def last_sent(paths: Sequence[str], following: int) -> int | None:
    """When the message before number ``following`` was sent (CLOCK_REALTIME), by whichever of these logs has
    it, marked undeliverable or not; None: it can be read in none."""
    logs, block = Logs(list(paths), marks=False), Block()
    try:
        found = first_sent(logs, block, following - 1, following)
        return found[1] if found is not None else None
    finally:
        logs.close()


def first_sent_since(logs: Logs, block: Block, low: int, high: int, time_ns: int) -> int:
    """As :func:`first_since`, in [low, high), for a time (CLOCK_REALTIME); ``high``: there is none."""
    return chosen_start.first_sent_since(partial(first_sent, logs, block), low, high, time_ns)


def first_sent(logs: Logs, block: Block, number: int, stop: int) -> tuple[int, int] | None:
    """Number and time of the first readable message from ``number`` on, below ``stop``; the number is its
    last one."""
    while number < stop:
        if logs.read(number, block):
            entry = block.entries[block.index]
            return int(entry.sequence_number), int(entry.timestamp_ns)
        if not logs.behind:
            return None
        number = max(number + 1, min(logs.behind))
    return None
