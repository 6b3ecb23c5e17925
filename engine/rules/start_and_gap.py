"""Where a receiver starts, and when it gives a number up: rules without I/O (docs/semantics.md F.1, F.2, F.4;
docs/design.md 1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Gap", "Start", "limited_low", "start_number"]


@dataclass(frozen=True, slots=True)
class Start:
    """First number that will be delivered."""

    sequence_number: int
    limited: bool
    """``retransmit_request_maximum`` decided (the RXREQMAX flag)."""
    clamped: bool
    """It was beyond the newest number + 1, and was brought back: nothing is recovered."""


def limited_low(low: int, high: int, maximum: int) -> int:
    """``high - N`` when ``retransmit_request_maximum`` N is set, else ``low``."""
    return max(high - maximum, 0) if maximum > 0 else low


def start_number(low: int, high: int, maximum: int, chosen: int) -> Start:
    """The first number to deliver.

    Args:
        low: consensus number of the stores: highest acknowledged + 1.
        high: highest number seen from the source, -1 for none.
        maximum: ``retransmit_request_maximum``, 0 for no limit.
        chosen: what the callback left in ``low_sequence_number``; equal to ``low`` means that it did not
            choose.
    """
    start, limited = max(chosen, 0), False
    if chosen == low:
        start = max(low, limited_low(low, high, maximum))
        limited = start > low
    clamped = start > high + 1
    return Start(min(start, high + 1), limited, clamped)


class Gap:
    """A number that nobody has: is it to be waited for?

    No longer when every store says that it will never have it, nor after ``patience_ns``
    (``retransmit_request_message_timeout``) when some may still get it. Whoever asks decides what it is then:
    lost only where nobody can have it. As long as nothing newer can be read, it is not missing: it has not
    been published.
    """

    def __init__(self, patience_ns: int) -> None:
        self.patience_ns = patience_ns
        self._number = -1
        self._since_ns = 0

    def verdict(self, number: int, newer: Sequence[int], undecided: int, now_ns: int) -> int | None:
        """The number behind what is missing when ``number`` was awaited long enough, None to wait.

        Args:
            number: the one that is due.
            newer: where the rings and the logs go on.
            undecided: stores that may still get it.
            now_ns: CLOCK_MONOTONIC.
        """
        behind = min((other for other in newer if other > number), default=None)
        if behind is None:
            self._number = -1
            return None
        if undecided == 0:
            return behind
        if number != self._number:
            self._number, self._since_ns = number, now_ns
        return behind if now_ns - self._since_ns >= self.patience_ns else None

    def again(self, now_ns: int) -> None:
        """The number is waited for once more, as long."""
        self._since_ns = now_ns
