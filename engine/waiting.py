"""Waiting: the names of the wait strategies (csrc/wait.h), and deadlines from timeouts in seconds."""

from __future__ import annotations

import time

from .core import lib

__all__ = ["STRATEGIES", "deadline_of", "left_of"]

STRATEGIES = {
    "busy_spin": lib.HF_WAIT_BUSY_SPIN,
    "yield": lib.HF_WAIT_YIELD,
    "backoff": lib.HF_WAIT_BACKOFF,
    "block": lib.HF_WAIT_BLOCK,
}


def deadline_of(timeout: float | None) -> int | None:
    """CLOCK_MONOTONIC in ns when ``timeout`` is over; None: never."""
    return None if timeout is None else time.monotonic_ns() + int(timeout * 1e9)


def left_of(deadline: int | None) -> float | None:
    """Seconds until then, negative afterwards; None: for ever."""
    return None if deadline is None else (deadline - time.monotonic_ns()) / 1e9
