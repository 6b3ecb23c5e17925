"""When a store looks through which of its logs, and how fast. Pure: times are CLOCK_MONOTONIC nanoseconds."""

from __future__ import annotations

from typing import NamedTuple

from .reconcile import FOR_EVER

__all__ = ["WHOLE", "Allowance", "Plan", "Range", "Turn"]

RETRY_NS = 1_000_000_000
"""After this, doubled each time, what no peer could give is asked for again: a peer may have come back."""
RETRY_MAX_NS = 64_000_000_000


class Range(NamedTuple):
    """Numbers ``first`` .. ``next - 1``."""

    first: int
    next: int


WHOLE = (Range(0, FOR_EVER),)
"""Whatever a log has."""


class Turn(NamedTuple):
    """A log to look through."""

    uuid: bytes
    within: tuple[Range, ...]
    urgent: bool
    """Nobody has looked yet, or something is known to be missing."""
    asked: tuple[Range, ...] = ()
    """What was known to be missing when it was given. A look at the whole log, too, ends where the log ends
    when it begins."""


class Allowance:
    """``burst`` bytes at once, then ``rate`` bytes a second; what is not used comes back at that rate."""

    def __init__(self, burst: int, rate: int) -> None:
        self._burst, self._rate = burst, rate
        self._left = burst
        self._at_ns = 0

    def spend(self, amount: int, now_ns: int) -> None:
        """Takes ``amount``, also more than is left: the next one waits then."""
        earned = (now_ns - self._at_ns) * self._rate // 1_000_000_000
        self._left = min(self._burst, self._left + earned) - amount
        self._at_ns = now_ns

    def wait_ns(self, now_ns: int) -> int:
        """How long the next one has to wait; 0: it may go on."""
        short = -self._left - (now_ns - self._at_ns) * self._rate // 1_000_000_000
        return max(0, short * 1_000_000_000 // self._rate)


class _Log:
    def __init__(self, due_ns: int) -> None:
        self.whole_ns: int | None = due_ns
        """When all of it is looked through; None = not again."""
        self.urgent = True
        self.missing: tuple[Range, ...] = ()
        self.missing_ns = 0
        """When these are asked for again."""
        self.pause_ns = RETRY_NS

    def due_ns(self) -> int | None:
        times = [time for time in (self.whole_ns, self.missing_ns if self.missing else None) if time is not None]
        return min(times, default=None)


class Plan:
    """All logs of a store. Each is looked through when it is added and every ``interval_ns`` after that (0 =
    not again).

    What it lacks then and no peer has is asked for again, with growing pauses: no store that comes back is
    waited for.
    """

    def __init__(self, interval_ns: int) -> None:
        self._interval_ns = interval_ns
        self._logs: dict[bytes, _Log] = {}

    def add(self, uuid: bytes, now_ns: int) -> None:
        """A log was opened. One that is known already keeps its time."""
        if uuid not in self._logs:
            self._logs[uuid] = _Log(now_ns)

    def remove(self, uuid: bytes) -> None:
        """A log is not kept any more."""
        self._logs.pop(uuid, None)

    def is_settled(self, uuid: bytes) -> bool:
        """The log was looked through since it was added, and lacks nothing."""
        log = self._logs.get(uuid)
        return log is not None and not log.urgent and not log.missing

    def known(self) -> list[bytes]:
        """The logs that were added."""
        return list(self._logs)

    def lacks(self, uuid: bytes, missing: Range, now_ns: int) -> None:
        """These numbers were just recorded as lost: a peer may have them."""
        log = self._logs.get(uuid)
        if log is not None:
            log.missing = (*log.missing, missing)
            log.missing_ns, log.pause_ns = now_ns, RETRY_NS

    def turn(self, now_ns: int) -> Turn | None:
        """Who is to be looked at now; None: nobody."""
        due = [
            (time, uuid) for uuid, log in self._logs.items() if (time := log.due_ns()) is not None and time <= now_ns
        ]
        if not due:
            return None
        _, uuid = min(due)
        log = self._logs[uuid]
        if log.whole_ns is not None and log.whole_ns <= now_ns:
            return Turn(uuid, WHOLE, log.urgent, log.missing)
        return Turn(uuid, log.missing, urgent=True, asked=log.missing)

    def done(self, turn: Turn, left: tuple[Range, ...], now_ns: int) -> None:
        """That turn is over; ``left``: what the log still lacks in the range of the turn."""
        log = self._logs.get(turn.uuid)
        if log is None:
            return
        if turn.within == WHOLE:
            log.whole_ns = now_ns + self._interval_ns if self._interval_ns else None
            log.urgent = False
        for missing in log.missing:  # numbers that were lost meanwhile are still to be asked for
            if missing not in turn.asked and not any(r.first <= missing.first and missing.next <= r.next for r in left):
                left = (*left, missing)
        fewer = bool(log.missing) and left != log.missing
        log.pause_ns = RETRY_NS if fewer else log.pause_ns
        log.missing = left
        if left:
            log.missing_ns = now_ns + log.pause_ns
            log.pause_ns = min(2 * log.pause_ns, RETRY_MAX_NS)
        else:
            log.pause_ns = RETRY_NS

    def wait_ns(self, now_ns: int) -> int | None:
        """How long nobody is to be looked at; None: until something happens."""
        times = [time for log in self._logs.values() if (time := log.due_ns()) is not None]
        return max(0, min(times) - now_ns) if times else None
