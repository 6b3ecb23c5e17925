"""One side of `replay_cost`, under either version: ``python -m perf.replayer DIRECTORY disk|memory``.

Fills a store with one source, closes that, and says where its holdfast lies. For each line on its standard
input a new receiver reads everything back; it prints messages per second by the clock, and by the CPU time of
the thread that reads. It uses only what 0.1.0 has, too.
"""

from __future__ import annotations

import importlib
import shutil
import sys
import time
from pathlib import Path

import numpy as np

import holdfast as hf

from .consumer import Consumer, numbered_rows

MESSAGES, ROWS, WIDTH = 500_000, 1000, 128
TIMEOUT_S = 60.0
SHM_DIR = Path("/dev/shm")


def fill() -> None:
    """The messages carry their numbers; all are stable when it returns, and the source is closed."""
    with hf.Context() as context:
        source = context.source("history", options={"ume_store_name": ["replay:0:0"], "ume_store_group": ["0:1"]})
        source.wait_registered(TIMEOUT_S)
        rows = numbered_rows(ROWS, WIDTH)
        for first in range(0, MESSAGES, ROWS):
            rows[:, 0] = np.arange(first, first + ROWS, dtype=np.uint64)
            source.send_batch(rows.view(np.uint8))
        source.wait_stable(timeout=TIMEOUT_S)
    deadline = time.monotonic() + TIMEOUT_S
    while list(
        SHM_DIR.glob(f"{_prefix()}*.s*")
    ):  # the ring goes when the store has all of it: then the log alone serves
        if time.monotonic() > deadline:
            raise RuntimeError("the ring of the closed source stays")
        time.sleep(0.01)


def replay() -> tuple[float, float]:
    """From the first batch to the last message: by the clock, and by the CPU time of this thread."""
    consumer = Consumer()
    with hf.Context() as context, context.receiver("history") as receiver:
        start = cpu = seen = 0
        while seen < MESSAGES:
            batch = receiver.receive_batch(max_messages=4096, timeout=TIMEOUT_S)
            if batch is None:
                raise RuntimeError(f"{MESSAGES - seen} of {MESSAGES} messages did not come")
            if not seen:
                start, cpu = time.perf_counter_ns(), time.thread_time_ns()
            seen += consumer.take(batch)
        elapsed, spent = time.perf_counter_ns() - start, time.thread_time_ns() - cpu
    if bad := consumer.finish():
        raise RuntimeError(f"{bad} messages out of order")
    return seen * 1e9 / elapsed, seen * 1e9 / spent


def main(directory: str, kind: str) -> None:
    """Fills, then replays on demand until its input ends."""
    try:
        with hf.spawn_store(hf.StoreConfig("replay", directory, type=kind)):
            fill()
            print(hf.__file__, flush=True)
            for _ in sys.stdin:
                print(*replay(), flush=True)
    finally:
        _remove()


def _prefix() -> str:
    try:  # where 0.1.0 has it; an editable install adds this version's folders to those of 0.1.0, so it is asked for first
        module = importlib.import_module("holdfast.engine.domain")
    except ModuleNotFoundError:
        module = importlib.import_module("holdfast.engine.memory.domain")
    own = module.Domain(join=False)
    own.close()
    return str(own.prefix)


def _remove() -> None:
    """What outlives its processes on purpose; nothing of this domain runs any more."""
    for path in SHM_DIR.glob(f"{_prefix()}*"):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
