"""Where a receiver starts, and where it reads next: rules without I/O (um_semantics F.1; DESIGN 1, "Recovery")."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Start", "limited_low", "start_number"]


@dataclass(frozen=True, slots=True)
class Start:
    """First number that will be delivered."""

    sequence_number: int
    limited: bool
    """``retransmit_request_maximum`` decided (the RXREQMAX flag)."""
    clamped: bool
    """It was beyond the newest number + 1, and was brought back."""


def limited_low(low: int, high: int, maximum: int) -> int:
    """``high - N`` when ``retransmit_request_maximum`` N is set, else ``low``."""
    return max(high - maximum, 0) if maximum > 0 else low


def start_number(low: int, high: int, maximum: int, chosen: int) -> Start:
    """The first number to deliver.

    Args:
        low: consensus number of the stores: highest acknowledged + 1.
        high: highest number seen from the source, -1 for none.
        maximum: ``retransmit_request_maximum``, 0 for no limit.
        chosen: what the callback left in ``low_sequence_number``; equal to ``low`` means that it did not choose.
    """
    start, limited = chosen, False
    if chosen == low and maximum > 0:
        start = max(low, limited_low(low, high, maximum))
        limited = start > low
    clamped = start > high + 1
    return Start(min(start, high + 1), limited, clamped)
