"""How long does one message take: there and back, and until a store says stable?

C:       core 0: send -> [stream] -> receive, send :core 1              both sides spin; two threads, two mappings
              receive <- [stream] <-
Python:  process A: send -> [stream] -> receive, send :process B        a store drains both streams beside them
                 receive <- [stream] <-
stable:  source: send -> [stream] -> store: append (+ fdatasync) -> board line -> source
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import numpy as np

import holdfast as hf

from .cli import Script, run_one
from .harness import Reading
from .peers import DOMAIN, SPIN, TIMEOUT_S, Far, domain, running_store, store_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.connection import Connection

    from .harness import Bench, Series

CASES = {
    "line": "bare cache-line round trip",
    "cping": "C round trip, 16 B",
    "stable:memory": "C send → stable(memory), 128 B",
    "fdatasync": "4 KiB written over + fdatasync",
    "stable:disk": "C send → stable(disk), 128 B",
}
MEMORY, DISK = "latency-memory", "latency-disk"
ROUND_TRIPS = 20_000
STABLE_TRIPS = {MEMORY: 5_000, DISK: 100}
PAYLOAD = b"0123456789abcdef"
STOP = b"the end of it..."


def echo(connection: Connection, context: hf.Context) -> None:
    """The far side of the Python round trip: returns every message until STOP."""
    source = context.source("back", options=store_options(MEMORY))
    receiver = context.receiver("out")
    source.wait_registered(TIMEOUT_S)
    connection.send("ready")
    while True:
        message = receiver.receive(timeout=1.0)
        if message is None:
            if connection.poll():
                return
            continue
        with message:
            data = bytes(message.data)
        if data == STOP:
            return
        source.send(data)


def _ping(source: hf.Source, receiver: hf.Receiver) -> Reading:
    """Round trips one by one; the value is p50."""
    taken = np.empty(ROUND_TRIPS, dtype=np.int64)
    before = time.perf_counter_ns()
    for i in range(ROUND_TRIPS):
        source.send(PAYLOAD)
        message = receiver.receive(timeout=TIMEOUT_S)
        if message is None:
            raise RuntimeError("the echo did not come back")
        message.release()
        after = time.perf_counter_ns()
        taken[i] = after - before
        before = after
    return Reading(float(np.median(taken)), "ns", taken, bytes=len(PAYLOAD), count=ROUND_TRIPS, flight=len(PAYLOAD))


def _stable(source: hf.Source, trips: int) -> Reading:
    """Send and wait until stable, one by one; the value is p50."""
    taken = np.empty(trips, dtype=np.int64)
    for i in range(trips):
        before = time.perf_counter_ns()
        source.wait_stable(source.send(PAYLOAD), timeout=TIMEOUT_S)
        taken[i] = time.perf_counter_ns() - before
    return Reading(float(np.median(taken)), "ns", taken, bytes=len(PAYLOAD), count=trips, flight=len(PAYLOAD))


def _python(bench: Bench) -> Iterator[Series]:
    with ExitStack() as stack:
        stack.enter_context(domain(bench))
        stack.enter_context(running_store(bench, MEMORY, "memory"))
        stack.enter_context(running_store(bench, DISK, "disk"))
        far = stack.enter_context(Far(bench, echo, SPIN))
        bench.pin(0)
        stack.callback(bench.unpin)
        context = stack.enter_context(hf.Context(domain=DOMAIN, options=SPIN))
        out = context.source("out", options=store_options(MEMORY))
        back = context.receiver("back")
        on_disk = context.source("disk", options=store_options(DISK))
        for source in (out, on_disk):
            source.wait_registered(TIMEOUT_S)
        measures: dict[str, tuple[str, Callable[[], Reading]]] = {
            "py-ping": ("Python round trip, 16 B, two processes", lambda: _ping(out, back)),
            "py-stable-memory": ("Python send → stable(memory)", lambda: _stable(out, STABLE_TRIPS[MEMORY])),
            "py-stable-disk": ("Python send → stable(disk)", lambda: _stable(on_disk, STABLE_TRIPS[DISK])),
        }
        yield from bench.interleave(measures)
        out.send(STOP)
        far.close()


def measure(bench: Bench) -> Iterator[Series]:
    """C rows, then Python rows."""
    yield from bench.cases(CASES)
    yield from _python(bench)


SCRIPT = Script("latency", "How long does one message take: there and back, and until a store says stable?", measure)

if __name__ == "__main__":
    run_one(SCRIPT)
