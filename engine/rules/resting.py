"""When a store that reads no stream of a source looks at its peers. No I/O.

One of them may have the end of a ring that this store came too late for, and nobody else would say so. Who
runs says on the board what it holds, which costs next to nothing to read: that is looked at all the time.
What those have who do not run stands in their logs: these are looked into for a while after the last change,
ever less often, since a store may keep a thousand sources that rest.
"""

from __future__ import annotations

__all__ = ["Resting"]

LOOK_NS = 1_000_000_000
"""How often at the lines on the board,"""
REST_NS = 60_000_000_000
"""and for how long into the logs."""


class Resting:
    """See the module. Times are CLOCK_MONOTONIC, ns; ``held``: the number behind the last message that the
    store has."""

    def __init__(self) -> None:
        self._held = -1
        self._since_ns = 0
        """When that changed last."""
        self._look_ns = self._into_logs_ns = 0
        self._told = 0

    def due(self, held: int, now_ns: int) -> bool:
        """It is time to look at the lines."""
        if held != self._held:
            self._held, self._since_ns, self._into_logs_ns = held, now_ns, now_ns
        if now_ns < self._look_ns:
            return False
        self._look_ns = now_ns + LOOK_NS
        return True

    def told(self, number: int) -> bool:
        """The lines say that others hold everything below ``number``: that is news, and more than the store
        has."""
        before, self._told = self._told, number
        return self._held < number != before

    def into_logs(self, now_ns: int) -> bool:
        """It is time to look into the logs, too."""
        if not self._into_logs_ns <= now_ns < self._since_ns + REST_NS:
            return False
        self._into_logs_ns = now_ns + max(LOOK_NS, now_ns - self._since_ns)
        return True
