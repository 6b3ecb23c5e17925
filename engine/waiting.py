"""Waiting: the names of the wait strategies (csrc/wait.h), and deadlines from timeouts in seconds."""

from __future__ import annotations

import time

from .core import lib

__all__ = ["STRATEGIES", "deadline_of", "left_of", "nanoseconds"]

STRATEGIES = {
    "busy_spin": lib.HF_WAIT_BUSY_SPIN,
    "yield": lib.HF_WAIT_YIELD,
    "backoff": lib.HF_WAIT_BACKOFF,
    "block": lib.HF_WAIT_BLOCK,
}


LONGEST_S = 1e9


def nanoseconds(timeout: float) -> int:
    """A timeout in seconds, which may be infinite: that is 31 years."""
    return int(min(timeout, LONGEST_S) * 1e9)


def deadline_of(timeout: float | None) -> int | None:
    """CLOCK_MONOTONIC in ns when ``timeout`` is over; None: never."""
    return None if timeout is None else time.monotonic_ns() + nanoseconds(timeout)


def left_of(deadline: int | None) -> float | None:
    """Seconds until then, negative afterwards; None: for ever."""
    return None if deadline is None else (deadline - time.monotonic_ns()) / 1e9
