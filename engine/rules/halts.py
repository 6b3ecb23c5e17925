"""When a log that takes nothing now is tried again, and when it is well: pure policy over numbers and a clock
that is handed in.

A full disk may stay full for days. Each trial costs an allocation and a look at the other stores' logs, so
the pause doubles as long as nothing was taken in between.
"""

from __future__ import annotations

__all__ = ["RETRY_MAX_NS", "RETRY_NS", "Halt"]

RETRY_NS = 100_000_000
"""First pause, also after a trial that took something in."""
RETRY_MAX_NS = 2_000_000_000
"""Longest pause: room that was made is noticed so soon."""


class Halt:
    """One log, from its first failure until it is well again."""

    def __init__(self) -> None:
        self._pause_ns = 0
        self._held = -1
        self._due_ns: int | None = None
        self._goal: int | None = None

    @property
    def waits(self) -> bool:
        """It is to be tried again, and not yet."""
        return self._due_ns is not None

    def halted(self, held: int, now_ns: int) -> None:
        """It has failed, once more or for the first time. `held`: number behind the last one that it has."""
        again = held == self._held
        self._pause_ns = min(2 * self._pause_ns, RETRY_MAX_NS) if again else RETRY_NS
        self._held, self._due_ns, self._goal = held, now_ns + self._pause_ns, None

    def due(self, now_ns: int) -> bool:
        """Tell whether it is tried again now. True once per halt."""
        if self._due_ns is None or now_ns < self._due_ns:
            return False
        self._due_ns = None
        return True

    def is_over(self, held: int, sent: int) -> bool:
        """Tell whether it is well: it has what had been sent (`sent`) at the first look after the last
        halt."""
        if self._goal is None:
            self._goal = sent
        return held >= self._goal
