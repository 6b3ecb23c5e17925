"""What does the consumption of a message cost the acknowledgements?

    ring of records --contiguous_prefix--> head                by Numba | the same function in plain Python
    delivered, consumed (per message) + advance (per tick)     what the receiving thread pays, in Python

Everything is in one thread: no other side, no store. The records of a tick of 4096 messages lie in the core's
cache.
"""

from __future__ import annotations

import time
from itertools import repeat
from typing import TYPE_CHECKING

import numpy as np

from holdfast.engine.native import kernels
from holdfast.engine.receiver.ack_window import AckWindow

from .cli import Script, run_one
from .harness import Reading

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from .harness import Bench, Series

TICK = 4096
"""Messages consumed between two ticks."""
COMPILED_TICKS = 2000
PLAIN_TICKS = 20
WINDOW_TICKS = 20


def _consumed() -> Any:
    """A ring of records, all of them consumed."""
    records = np.zeros(TICK, kernels.ack_record())
    records["last"] = np.arange(TICK)
    records["tag"] = 2 * np.arange(TICK) + 1
    return records


def walk(prefix: Callable[..., tuple[int, int]], ticks: int) -> Reading:
    """ns per message of a kernel that walks over full ticks. Raises RuntimeError if it does not get to the
    end."""
    records = _consumed()
    start = time.perf_counter_ns()
    for _ in repeat(None, ticks):
        reached = prefix(records, 0, TICK)
    elapsed = time.perf_counter_ns() - start
    if tuple(reached) != (TICK, TICK - 1):
        raise RuntimeError(f"the kernel went to {reached}")
    return Reading(elapsed / (ticks * TICK), "ns", count=ticks * TICK)


def window(ticks: int = WINDOW_TICKS) -> Reading:
    """ns per message of a window: delivered, consumed, and its share of a tick."""
    acks = AckWindow(0, slots=2 * TICK)
    start = time.perf_counter_ns()
    for tick in range(ticks):
        for number in range(tick * TICK, (tick + 1) * TICK):
            acks.consumed(acks.delivered(number, number))
        acks.advance()
    elapsed = time.perf_counter_ns() - start
    if acks.ack != ticks * TICK:
        raise RuntimeError(f"acknowledged {acks.ack} of {ticks * TICK}")
    return Reading(elapsed / (ticks * TICK), "ns", count=ticks * TICK)


def measure(bench: Bench) -> Iterator[Series]:
    """All rows interleaved."""
    kernels.jit()
    compiled = kernels.best(kernels.contiguous_prefix)
    with bench.pinned_to(0):
        yield from bench.interleave(
            {
                "prefix": (
                    f"contiguous_prefix, Numba, per message of a tick of {TICK}",
                    lambda: walk(compiled, COMPILED_TICKS),
                ),
                "prefix-python": (
                    f"contiguous_prefix, plain Python, per message of a tick of {TICK}",
                    lambda: walk(kernels.contiguous_prefix, PLAIN_TICKS),
                ),
                "window": (f"AckWindow: delivered + consumed + tick of {TICK}, per message", window),
            }
        )


SCRIPT = Script("acks", "What does the consumption of a message cost the acknowledgements?", measure)

if __name__ == "__main__":
    run_one(SCRIPT)
