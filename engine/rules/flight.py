"""What happens at the flight size: sends wait and a Wakeup follows, or they go on and notifications tell.
Pure.

The C core compares with limits that it was given. In Block mode they stand. In Notify mode they are how a
crossing is noticed: the send that meets one tells OVER, the limits are lifted, and when the flight is below
them again and UNDER was told, they stand once more; so OVER and UNDER alternate. Source: docs/semantics.md
D.6.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

__all__ = ["Flight", "InFlight", "Limits"]


class InFlight(NamedTuple):
    """Sent, and not yet stable and confirmed: messages counted in fragments, and payload bytes."""

    messages: int
    bytes: int


class Limits(NamedTuple):
    """Arguments of hf_source_limits, in its order; 0 = no limit."""

    flight_messages: int
    flight_bytes: int
    retained_bytes: int


class Refused(NamedTuple):
    """A send that raised WouldBlockError. `ring_ns`: when the ring lets it in at the latest, 0 if that was
    not the reason."""

    fragments: int
    size: int
    frames: int
    ring_ns: int


class _State(enum.Enum):
    BELOW = 0
    TELLING_OVER = 1
    OVER = 2
    TELLING_UNDER = 3


class Flight:
    """The flight of one source. `notify`: ume_flight_size_behavior, and somebody listens."""

    def __init__(self, limits: Limits, *, notify: bool = False) -> None:
        self._limits = limits
        self._notify = notify
        self._state = _State.BELOW
        self._refused: Refused | None = None

    @property
    def limits(self) -> Limits:
        """What the core is to compare with now."""
        if self._state is _State.BELOW:
            return self._limits
        return Limits(0, 0, self._limits.retained_bytes)

    # Notify -------------------------------------------------------------------------------------------------

    @property
    def notifies(self) -> bool:
        """Sends never wait at the flight size."""
        return self._notify

    def cross(self, flight: InFlight, fragments: int, size: int) -> bool:
        """A send met a limit. True: it tells OVER, calls `told_over`, and goes on without limits."""
        messages, most, _ = self._limits
        fits = (not messages or flight.messages + fragments <= messages) and (not most or flight.bytes + size <= most)
        if fits or not self._notify or self._state is not _State.BELOW:
            return False
        self._state = _State.TELLING_OVER
        return True

    def told_over(self) -> None:
        """OVER was delivered."""
        self._state = _State.OVER

    def under(self, flight: InFlight) -> bool:
        """True: the flight is below the limits again; deliver UNDER, then call `told_under`."""
        if self._state is not _State.OVER or not self._below(flight):
            return False
        self._state = _State.TELLING_UNDER
        return True

    def told_under(self) -> None:
        """UNDER was delivered: the limits stand again."""
        self._state = _State.BELOW

    def _below(self, flight: InFlight) -> bool:
        messages, size, _ = self._limits
        return (not messages or flight.messages < messages) and (not size or flight.bytes < size)

    # Block --------------------------------------------------------------------------------------------------

    @property
    def waits(self) -> bool:
        """A Wakeup or UNDER is owed."""
        return self._refused is not None or self._state is _State.OVER

    def refuse(self, refused: Refused) -> None:
        """A send raised WouldBlockError."""
        self._refused = refused

    def wakeup(self, flight: InFlight, retained: int, now_ns: int) -> bool:
        """True, once per refusal at most: what was refused would go in now; deliver Wakeup."""
        refused = self._refused
        if refused is None or not self._fits(refused, flight, retained) or now_ns < refused.ring_ns:
            return False
        self._refused = None
        return True

    def _fits(self, refused: Refused, flight: InFlight, retained: int) -> bool:
        messages, size, limit = self._limits
        return (
            (not messages or not flight.messages or flight.messages + refused.fragments <= messages)
            and (not size or flight.bytes + refused.size <= size)
            and (not limit or not retained or retained + refused.frames <= limit)
        )
