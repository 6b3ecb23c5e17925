"""When a limit is near: told once from NEAR on, and again only after the use fell below FAR.

Nobody looks by a timer: a look is made when a client comes or a log is opened. Where a look takes long, those
that can pass no bound yet are only counted. Pure.
"""

from __future__ import annotations

__all__ = ["Nearness", "is_near"]

NEAR, FAR = 80, 70
"""Percent of the limit."""
STEP = 16
"""What a client or a log costs at most: descriptors, or mappings."""


def is_near(used: int, most: int) -> bool:
    """``used`` of ``most`` is NEAR or more."""
    return most > 0 and most * NEAR <= used * 100


class Nearness:
    """Of one limit."""

    def __init__(self) -> None:
        self.near = False
        """It is, as far as the last look goes."""
        self._rest = 0
        """Clients and logs that need no look."""

    def due(self) -> bool:
        """A client has come, or a log is opened: whether the use is to be looked at."""
        self._rest -= 1
        return self._rest < 0

    def look(self, used: int, most: int) -> bool:
        """Takes in the use. True: to be told now."""
        tell = not self.near and is_near(used, most)
        self.near = tell or (self.near and used * 100 >= most * FAR)
        bound = most * (FAR if self.near else NEAR) // 100
        self._rest = abs(bound - used) // STEP
        return tell
