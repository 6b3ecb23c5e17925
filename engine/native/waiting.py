"""Waiting: the names of the wait strategies (csrc/board/wait.h), and deadlines from timeouts in seconds."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

from ..errors import UsageError
from .core import lib
from .runtime import select, time

__all__ = ["PLAIN", "STRATEGIES", "check_timeout", "deadline_of", "left_of", "nanoseconds", "readable"]

STRATEGIES = {
    "busy_spin": lib.HF_WAIT_BUSY_SPIN,
    "yield": lib.HF_WAIT_YIELD,
    "backoff": lib.HF_WAIT_BACKOFF,
    "block": lib.HF_WAIT_BLOCK,
}


LONGEST_S = 1e9
PLAIN = frozenset({int, float})
"""Types whose value can be compared without :func:`check_timeout`: calls of half a microsecond look
themselves."""


def check_timeout(timeout: object) -> None:
    """Raises UsageError for what is no timeout: seconds, a number from 0 on, or None for ever. Every call
    that waits asks."""
    number: Any = timeout  # a Real has no comparison of its own for a type checker
    if timeout is None or (isinstance(timeout, Real) and number >= 0):
        return
    raise UsageError(
        f"timeout={timeout!r}", hint="seconds, a number from 0 on (0: not at all, math.inf), or None for ever"
    )


def nanoseconds(timeout: float) -> int:
    """A timeout in seconds, which may be infinite: that is 31 years."""
    return int(min(timeout, LONGEST_S) * 1e9)


def deadline_of(timeout: float | None) -> int | None:
    """CLOCK_MONOTONIC in ns when ``timeout`` is over; None: never. Raises as :func:`check_timeout`."""
    check_timeout(timeout)
    return None if timeout is None else time.monotonic_ns() + nanoseconds(timeout)


def left_of(deadline: int | None) -> float | None:
    """Seconds until then, negative afterwards; None: for ever."""
    return None if deadline is None else (deadline - time.monotonic_ns()) / 1e9


def readable(descriptor: int, timeout: float | None = None) -> bool:
    """Waits until there is something to read, or the other end has gone; False: not within ``timeout``
    seconds. ``select`` would refuse a descriptor from 1,024 on, and a program may have more."""
    look = select.poll()
    look.register(descriptor, select.POLLIN)
    return bool(look.poll(None if timeout is None else max(0, math.ceil(min(timeout, LONGEST_S) * 1000))))
