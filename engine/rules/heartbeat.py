"""Whether somebody has fallen silent, by a heartbeat that another process writes: pure, and nobody is
declared dead by it.

Silence is counted in looks, not read off a clock: at most two steps count from one look to the next. So a
pause of the whole machine, or of the process that looks, is nobody's silence.
"""

from __future__ import annotations

__all__ = ["Heartbeat"]


class Heartbeat:
    """One heartbeat. `timeout_ns`: so long it may stand still. `step_ns`: how often it is looked at."""

    def __init__(self, timeout_ns: int, step_ns: int) -> None:
        self._timeout_ns, self._most_ns = timeout_ns, 2 * step_ns
        self._beat = -1
        self._looked_ns = 0
        self._silent_ns = 0

    def look(self, beat: int, now_ns: int) -> bool:
        """Take in the heartbeat as it is now. True: it has stood still for the timeout, or longer."""
        if beat != self._beat:
            self._beat, self._silent_ns = beat, 0
        else:
            self._silent_ns += min(now_ns - self._looked_ns, self._most_ns)
        self._looked_ns = now_ns
        return self._silent_ns >= self._timeout_ns
