"""How fast does a receiver get back what it missed?

C:       segments -> verified copies of 256 KiB -> entries                              no store takes part
         of a disk store (in the page cache) and of a memory store (tmpfs)
Python:  a receiver that starts late: segments -> receive_batch -> Numba, until it has caught up
beside:  CRC-32C of the same bytes in place, in memory, mapping included; Python's has its own turns of it
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

import holdfast as hf

from .cli import Script, run_one
from .consumer import Consumer, numbered_rows
from .harness import Reading
from .peers import DOMAIN, TIMEOUT_S, domain, running_store, store_options

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .harness import Bench, Series

BARE = "checksum:128"
CASES = {
    BARE: "bare CRC-32C in place, 128 B",
    "replay:disk:128": "C replay into batches, disk, 128 B",
    "replay:memory:128": "C replay into batches, memory, 128 B",
    "checksum:1024": "bare CRC-32C in place, 1 KiB",
    "replay:disk:1024": "C replay into batches, disk, 1 KiB",
    "replay:memory:1024": "C replay into batches, memory, 1 KiB",
}
STORE = "recovery"
MESSAGES = 500_000
ROWS = 1000
WIDTH = 128


def _late_receiver() -> Reading:
    """A new receiver reads everything that the store kept, from its first batch to its last message."""
    consumer = Consumer()
    with hf.Context(domain=DOMAIN) as context, context.receiver("history") as receiver:
        start = time.perf_counter_ns()
        seen = 0
        while seen < MESSAGES:
            batch = receiver.receive_batch(max_messages=4096, timeout=TIMEOUT_S)
            if batch is None:
                raise RuntimeError(f"{MESSAGES - seen} of {MESSAGES} messages did not come")
            if seen == 0:
                start = time.perf_counter_ns()
            seen += consumer.take(batch)
        elapsed = time.perf_counter_ns() - start
    if bad := consumer.finish():
        raise RuntimeError(f"{bad} messages out of order")
    return Reading(seen * 1e9 / elapsed, "msg/s", bytes=WIDTH, count=seen)


def late(bench: Bench) -> Iterator[Series]:
    """Python's receiver that starts late, in turns with the bare checksum."""
    with ExitStack() as stack:
        stack.enter_context(domain(bench))
        stack.enter_context(running_store(bench, STORE, "memory"))
        context = stack.enter_context(hf.Context(domain=DOMAIN))
        source = context.source("history", options=store_options(STORE))
        source.wait_registered(TIMEOUT_S)
        rows = numbered_rows(ROWS, WIDTH)
        for first in range(0, MESSAGES, ROWS):
            rows[:, 0] = np.arange(first, first + ROWS, dtype=np.uint64)
            source.send_batch(rows.view(np.uint8))
        source.wait_stable(timeout=TIMEOUT_S)
        stack.enter_context(bench.pinned_to(0))
        yield from bench.interleave(
            {
                "py-late-bare": ("bare CRC-32C in place, 128 B, in turns with the next row", partial(bench.once, BARE)),
                "py-late": ("Python late receiver → Numba, 128 B", _late_receiver),
            }
        )


def measure(bench: Bench) -> Iterator[Series]:
    """C rows, then Python rows."""
    yield from bench.cases(CASES)
    yield from late(bench)


SCRIPT = Script("recovery", "How fast does a receiver get back what it missed?", measure)

if __name__ == "__main__":
    run_one(SCRIPT)
