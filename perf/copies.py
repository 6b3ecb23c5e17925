"""How fast is a message stable on three disk stores?

source -> [stream] -> 1 | 3 disk stores -> segments, recycled      a process each, on whatever core is free
beside it: bare overwrite + fdatasync per 8 MiB of the same disk, 1 | 3 files at once
What a message costs is its frame, once per store.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import numpy as np

import holdfast as hf

from .cli import Script, run_one
from .harness import Reading
from .peers import DOMAIN, TIMEOUT_S, domain

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from .harness import Bench, Series

CASES = {
    "overwrite:1": "bare overwrite + fdatasync per 8 MiB, 1 file",
    "overwrite:3": "bare overwrite + fdatasync per 8 MiB, 3 files at once",
    "copies:1": "stable at 1 disk store, 700 B (log bytes)",
    "copies:3": "stable at 3 disk stores, 700 B (log bytes of all three)",
}
WIDTH, FRAME = 700, 736
"""Payload of a message, and its bytes in a log: header and padding."""
ROWS = 1000
RUN_BYTES = 384 << 20
"""In the logs of all stores, per run."""
RETAIN = 128 << 20
FILL = 768 << 20
"""Into each log before it counts: by then the small first segments have been recycled, too, and all are
written files."""
RING = 128 << 20
RETAINED = 96 << 20


class Copies:
    """One source and its stores, which stay for all runs."""

    def __init__(self, stack: ExitStack, context: hf.Context, place: Path, stores: int) -> None:
        names = [f"copy-{stores}-{index}" for index in range(stores)]
        for name in names:
            options: dict[str, object] = {"repository-disk-file-size-limit": RETAIN}
            stack.enter_context(hf.spawn_store(hf.StoreConfig(name, place / name, DOMAIN, options=options)))
        self._stores = stores
        self._rows = np.zeros((ROWS, WIDTH), np.uint8)
        self._source = context.source(
            f"copies-{stores}",
            options={
                "ume_store_name": [f"{name}:0:0" for name in names],
                "ume_store_group": [f"0:{stores}"],
                "ume_flight_size": RETAINED // FRAME,
                "ume_retention_intragroup_stability_behavior": "all",  # a ring that overtakes a store would flatter the others
                "retransmit_retention_size_limit": RETAINED,
                "ring_size": RING,
            },
        )
        self._source.wait_registered(TIMEOUT_S)
        self._send(FILL)

    def _send(self, size: int) -> None:
        """This many bytes of frames; returns when every store has made all of them stable."""
        for _ in range(size // (FRAME * ROWS)):
            self._source.send_batch(self._rows)
        last = self._source.next_sequence_number - 1
        self._source.wait_stable(last, timeout=TIMEOUT_S)
        while any(store.stable_sequence_number < last for store in self._source.stats().stores.values()):
            time.sleep(0.001)

    def run(self) -> Reading:
        """Bytes that the stores together wrote per ns until all was stable everywhere."""
        size = RUN_BYTES // self._stores
        start = time.perf_counter_ns()
        self._send(size)
        elapsed = time.perf_counter_ns() - start
        count = size // (FRAME * ROWS) * ROWS
        return Reading(count * FRAME * self._stores / elapsed, "GB/s", bytes=WIDTH, count=count, flight=RETAINED)


def measure(bench: Bench) -> Iterator[Series]:
    """Bare files and stores, one and three, in turns."""
    with ExitStack() as stack:
        stack.enter_context(domain(bench))
        context = stack.enter_context(hf.Context(domain=DOMAIN))
        one, three = (Copies(stack, context, bench.disk, stores) for stores in (1, 3))
        ways = (lambda: bench.once("overwrite:1"), lambda: bench.once("overwrite:3"), one.run, three.run)
        yield from bench.interleave({case: (CASES[case], way) for case, way in zip(CASES, ways, strict=True)})


SCRIPT = Script("copies", "How fast is a message stable on three disk stores?", measure)

if __name__ == "__main__":
    run_one(SCRIPT)
