"""When a log file is rolled, and what the rolled file is called. Decisions over values: no clock, no file.

``NAME_PID.YYYY-MM-DD.SEQ``: the day of the roll, and SEQ from 1 in each process. A roll happens on the next
write after one of two criteria is met, and neither knows of the other: a size roll at 23:00 does not cancel
the daily one at midnight (docs/semantics.md I.6).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .config import MEGA

if TYPE_CHECKING:
    from datetime import datetime

    from .config import LogConfig

__all__ = ["Rolling"]

_PERIODS = {"daily": "%Y-%m-%d", "hourly": "%Y-%m-%d %H", "test": "%Y-%m-%d %H:%M"}
"""Frequency -> what changes when its period is over."""


class Rolling:
    """One log file of one process, ``size`` bytes long at ``now``. Times are in the zone that the log's dates
    are in."""

    def __init__(self, config: LogConfig, pid: int, size: int, now: datetime) -> None:
        self._name = config.path
        self._pid = pid
        self._limit = config.size * MEGA
        self._period = _PERIODS.get(config.frequency, "")
        self._began = now.strftime(self._period)
        self._size = size
        self._sequence = 0
        self._asked = False

    def ask(self) -> None:
        """The next write rolls, whatever the criteria say."""
        self._asked = True

    def due(self, now: datetime) -> bool:
        """What is about to be written belongs into a new file. An empty file is never rolled."""
        period = now.strftime(self._period)
        over, self._began = period != self._began, period
        due = self._asked or over or 0 < self._limit <= self._size
        self._asked = False
        return due and self._size > 0

    def next_name(self, now: datetime) -> str:
        """Name for the file as it is; asked again where there is such a file, of an earlier process with this
        pid."""
        self._sequence += 1
        return f"{self._name}_{self._pid}.{now:%Y-%m-%d}.{self._sequence}"

    def rolled(self) -> None:
        """The file is empty now."""
        self._size = 0

    def wrote(self, size: int) -> None:
        """This many bytes more are in it."""
        self._size += size
