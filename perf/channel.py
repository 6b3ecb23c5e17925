"""How fast do record batches go from one process to another?

process on core 0 --[ ShmChannel | Unix socket, Arrow IPC ]--> process on core 1, which sums a column of each
Batches of 65,536 rows of 28 bytes, made before; the same on both ways.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import numpy as np

from holdfast.channel import ShmChannel

from .cli import Script, run_one
from .harness import Reading
from .peers import DOMAIN, domain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import pyarrow as pa

    from .harness import Bench, Series

CASES = {"batches:socket": "Unix socket, Arrow IPC stream", "batches:channel": "ShmChannel"}
ROWS = 65536
BATCHES = 2400
"""Enough that setting up is not measured: a ring is touched once, page by page, before its first batch."""
FAR = """
import os, socket, sys
import pyarrow as pa, pyarrow.compute as pc
from holdfast.channel import ShmChannel

way, core, place = sys.argv[1], int(sys.argv[2]), sys.argv[3]
os.sched_setaffinity(0, {core})
print(flush=True)
total = 0
if way == "channel":
    with ShmChannel(place, "DOMAIN") as channel:
        for batch in channel:
            total += pc.sum(batch["price"]).as_py()
else:
    near = socket.socket(socket.AF_UNIX)
    near.connect(place)
    with near.makefile("rb", buffering=1 << 20) as file, pa.ipc.open_stream(file) as stream:
        for batch in stream:
            total += pc.sum(batch["price"]).as_py()
print(total, flush=True)
""".replace("DOMAIN", DOMAIN)


def _batch() -> pa.RecordBatch:
    import pyarrow as pa

    numbers = np.arange(ROWS)
    columns = {"number": numbers, "price": numbers * 0.5, "size": numbers * 2, "flags": numbers.astype(np.int32)}
    return pa.record_batch(columns)


def _timed(way: str, core: int, place: str, send: Callable[[], None], batch: pa.RecordBatch) -> Reading:
    """GB/s from the first batch until the far process has summed the last one."""
    command = [sys.executable, "-c", FAR, way, str(core), place]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as far:
        assert far.stdout is not None
        far.stdout.readline()
        start = time.perf_counter_ns()
        send()
        total = float(far.stdout.readline())
        elapsed = time.perf_counter_ns() - start
    if total != BATCHES * float(np.sum(batch["price"].to_numpy())):
        raise RuntimeError(f"{way}: the sum is {total}")
    return Reading(BATCHES * batch.nbytes / elapsed, "GB/s", bytes=batch.nbytes, count=BATCHES)


def _channel(core: int, batch: pa.RecordBatch) -> Reading:
    def send() -> None:
        with ShmChannel("perf", DOMAIN) as channel:
            for _ in range(BATCHES):
                channel.write(batch)
            channel.finish()

    return _timed("channel", core, "perf", send, batch)


def _socket(core: int, batch: pa.RecordBatch, place: Path) -> Reading:
    import pyarrow as pa

    place.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(os.fspath(place))
        door.listen()

        def send() -> None:
            far, _ = door.accept()
            with far, far.makefile("wb", buffering=1 << 20) as file, pa.ipc.new_stream(file, batch.schema) as stream:
                for _ in range(BATCHES):
                    stream.write_batch(batch)

        return _timed("socket", core, os.fspath(place), send, batch)


def measure(bench: Bench) -> Iterator[Series]:
    """Both ways, in turns."""
    batch, core = _batch(), bench.cores[-1]
    with ExitStack() as stack:
        stack.enter_context(domain(bench))
        stack.enter_context(bench.pinned_to(0))
        ways = (lambda: _socket(core, batch, bench.memory / "socket"), lambda: _channel(core, batch))
        yield from bench.interleave({case: (CASES[case], way) for case, way in zip(CASES, ways, strict=True)})


SCRIPT = Script("channel", "How fast do record batches go from one process to another?", measure)

if __name__ == "__main__":
    run_one(SCRIPT)
