"""How long does a store with a large cache take to start?

Store(...), open()      its log on disk: 64 MiB | 2 GiB in segments of up to 64 MiB | 2 GiB, pages dropped |
                        2 GiB, after a kill; an index per segment is read when somebody reads there: nothing
                        but the end is looked at
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import numpy as np

import holdfast as hf
from holdfast.engine.store.store import Store

from .cli import Script, run_one
from .harness import Reading
from .peers import DOMAIN, TIMEOUT_S, domain, store_options

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from .harness import Bench, Series

CASES = {
    "start:small": "store start, 64 MiB in its log",
    "start:large": "store start, 2 GiB in its log",
    "start:cold": "store start, 2 GiB in its log, not in memory",
    "start:killed": "store start, 2 GiB in its log, after kill -9",
}
SMALL, LARGE = 64 << 20, 2 << 30
ROWS, WIDTH = 64, 16 << 10
OPTIONS = {"repository-disk-file-size-limit": LARGE * 2}
UNFINISHED = """
import signal, sys
from perf.store_start import started
store = started(sys.argv[1], sys.argv[2])
print(flush=True)
signal.pause()
"""


def started(name: str, directory: str) -> Store:
    """A store at work on this directory."""
    store = Store(hf.StoreConfig(name, directory, DOMAIN, options=OPTIONS))
    store.open()
    return store


def _fill(name: str, directory: Path, size: int) -> None:
    """Sends this many bytes to a new store, and stops it."""
    with hf.spawn_store(hf.StoreConfig(name, directory, DOMAIN, options=OPTIONS)), hf.Context(domain=DOMAIN) as context:
        source = context.source(f"start-{name}", options=store_options(name))
        source.wait_registered(TIMEOUT_S)
        rows = np.zeros((ROWS, WIDTH), np.uint8)
        for _ in range(size // rows.nbytes):
            source.send_batch(rows)
        source.wait_stable(timeout=60)


def _start(name: str, directory: Path) -> Reading:
    start = time.perf_counter_ns()
    store = started(name, os.fspath(directory))
    elapsed = time.perf_counter_ns() - start
    segments = sum(int(repository.info.segments) for repository in store.drainer.repositories.values())
    store.close()
    return Reading(elapsed, "ns", count=segments)


def _drop_pages(directory: Path) -> None:
    for path in directory.rglob("*"):
        if path.is_file():
            fd = os.open(path, os.O_RDONLY)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)


def _killed(name: str, directory: Path) -> None:
    """Starts a store in a process of its own and kills that."""
    command = [sys.executable, "-c", UNFINISHED, name, os.fspath(directory)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGKILL)


def measure(bench: Bench) -> Iterator[Series]:
    """All starts in turns."""
    with ExitStack() as stack:
        stack.enter_context(domain(bench))
        small, large = bench.disk / "small", bench.disk / "large"
        _fill("small", small, SMALL)
        _fill("large", large, LARGE)

        def cold() -> Reading:
            _drop_pages(large)
            return _start("large", large)

        def killed() -> Reading:
            _killed("large", large)
            return _start("large", large)

        ways = (lambda: _start("small", small), lambda: _start("large", large), cold, killed)
        yield from bench.interleave(
            {case: (title, way) for (case, title), way in zip(CASES.items(), ways, strict=True)}
        )


SCRIPT = Script("store_start", "How long does a store with a large cache take to start?", measure)

if __name__ == "__main__":
    run_one(SCRIPT)
