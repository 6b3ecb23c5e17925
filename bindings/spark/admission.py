"""How far the next micro-batch goes in each source. Pure.

A record here is a sequence number: a message of several fragments has several, and is delivered with its last
one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Backlog", "Patience", "admitted", "records_for"]

Key = TypeVar("Key")


class Backlog(NamedTuple):
    """Of one source: numbers ``start`` .. ``bound - 1`` are there to be read. A bound below the start counts
    as the start."""

    start: int
    bound: int

    @property
    def records(self) -> int:
        """How many."""
        return max(0, self.bound - self.start)


def admitted(backlogs: Mapping[Key, Backlog], limit: int | None) -> dict[Key, int]:
    """Where the micro-batch stops in each source: never before its start, never behind its bound, ``limit``
    records in all.

    The sources share the limit in proportion to their backlogs (largest remainder first; of equal ones the
    first). Each that has a backlog gets at least one record, also where that is more than the limit: a small
    source does not wait for ever behind a large one. None: everything.
    """
    total = sum(backlog.records for backlog in backlogs.values())
    if limit is None or total <= limit:
        return {key: backlog.start + backlog.records for key, backlog in backlogs.items()}
    waiting = {key: backlog for key, backlog in backlogs.items() if backlog.records}
    shares = {key: max(1, limit * backlog.records // total) for key, backlog in waiting.items()}
    left = limit - sum(shares.values())
    remainders = sorted(waiting, key=lambda key: limit * waiting[key].records % total, reverse=True)
    for key in remainders:
        if left <= 0:
            break
        if shares[key] < waiting[key].records:
            shares[key] += 1
            left -= 1
    for key in sorted(shares, key=lambda key: shares[key], reverse=True):  # what the smallest got beyond their part
        less = min(max(0, -left), shares[key] - 1)
        shares[key] -= less
        left += less
    return {key: backlog.start + shares.get(key, 0) for key, backlog in backlogs.items()}


def records_for(limit_bytes: int, backlogs: Mapping[Key, Backlog], record_bytes: Mapping[Key, float]) -> int:
    """About how many records of these backlogs are ``limit_bytes`` of the stores' logs, 1 at least.

    Args:
        record_bytes: of one record of each source, on average.
    """
    total = sum(backlog.records for backlog in backlogs.values())
    size = sum(backlog.records * record_bytes[key] for key, backlog in backlogs.items() if backlog.records)
    return max(1, int(limit_bytes * total / size)) if size > 0 else max(1, total)


class Patience:
    """``minRecordsPerTrigger``: no micro-batch before this many records wait, or ``delay_ns`` has passed
    since the last one.

    Times are of one monotonic clock, in nanoseconds.
    """

    def __init__(self, least: int, delay_ns: int) -> None:
        self._least, self._delay_ns = least, delay_ns
        self._since_ns: int | None = None

    def waits(self, records: int, now_ns: int) -> bool:
        """There are too few records yet. The clock starts at the first question, and again with each
        micro-batch."""
        if self._since_ns is None:
            self._since_ns = now_ns
        if records < self._least and now_ns - self._since_ns < self._delay_ns:
            return True
        if records:
            self._since_ns = now_ns
        return False
