"""How long calls took: a lower bound, since a busy machine makes all of them longer."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Calls", "median_ns", "timed"]

Calls = list[tuple[tuple[Any, ...], int]]
"""With what each one was called, and the nanoseconds that it took."""


def median_ns(calls: Calls) -> int:
    """Half of them took as long, or longer. Who is interrupted now and then does not look like one who
    sleeps."""
    return sorted(took_ns for _, took_ns in calls)[len(calls) // 2]


def timed(method: Callable[..., None], calls: Calls) -> Callable[..., None]:
    """``method``, which notes each call: all that was given but ``self``."""

    def call(self: object, *given: Any) -> None:
        begun = time.monotonic_ns()
        method(self, *given)
        calls.append((given, time.monotonic_ns() - begun))

    return call
