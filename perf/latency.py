"""How long does one message take: there and back, and until a store says stable?

C:       core 0: send -> [stream] -> receive, send :core 1       both sides spin; two threads, two mappings
              receive <- [stream] <-
Python:  core 0: send -> [stream] -> next, send :core 1          both sides spin; two processes, no store
                 next <- [stream] <-                   (a third row: a memory store drains both, on core 1)
stable:  source: send -> [stream] -> store: append (+ fdatasync) -> board line -> source
"""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from functools import partial
from itertools import islice
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
TO_STORE: dict[str, object] = {**store_options(MEMORY), "ume_flight_size": 2 * ROUND_TRIPS}
"""The row with a store shows what a store beside the far side costs, not its flow control."""


class Echo:
    """A pair of topics, ``<name>-out`` and ``<name>-back``, and the round trip over them."""

    def __init__(self, bench: Bench, context: hf.Context, name: str, options: dict[str, object]) -> None:
        """Start the far side and make this one. ``options``: of both sources."""
        self.source = context.source(f"{name}-out", options=options)
        self.source.wait_registered(TIMEOUT_S)
        self.far = Far(bench, partial(echo, name, options), SPIN)
        self._receiver = context.receiver(f"{name}-back")
        self._messages = iter(self._receiver)

    def measure(self) -> Reading:
        """Round trips one by one; the value is p50. Raises ClosedError if they take too long: a message was
        lost."""
        guard = threading.Timer(TIMEOUT_S, self._receiver.close)
        guard.start()
        try:
            return self._round_trips()
        finally:
            guard.cancel()

    def _round_trips(self) -> Reading:
        self.far.tell(ROUND_TRIPS)
        self.far.expect("go")
        send, messages, clock = self.source.send, self._messages, time.perf_counter_ns
        stamps = [0] * (ROUND_TRIPS + 1)
        stamps[0] = clock()
        for i in range(1, ROUND_TRIPS + 1):
            send(PAYLOAD)
            next(messages)
            stamps[i] = clock()
        self.far.expect("done")
        times = np.array(stamps, dtype=np.int64)
        taken = times[1:] - times[:-1]
        return Reading(float(np.median(taken)), "ns", taken, bytes=len(PAYLOAD), count=ROUND_TRIPS, flight=len(PAYLOAD))


def echo(name: str, options: dict[str, object], connection: Connection, context: hf.Context) -> None:
    """The far side: returns as many messages as it is told, again and again."""
    source = context.source(f"{name}-back", options=options)
    receiver = context.receiver(f"{name}-out")
    source.wait_registered(TIMEOUT_S)
    messages, send = iter(receiver), source.send
    connection.send("ready")
    while True:
        wanted = connection.recv()
        connection.send("go")
        for message in islice(messages, wanted):
            send(bytes(message))
        connection.send("done")


def _stable(source: hf.Source, trips: int) -> Reading:
    """Send and wait until stable, one by one; the value is p50."""
    taken = np.empty(trips, dtype=np.int64)
    for i in range(trips):
        before = time.perf_counter_ns()
        source.wait_stable(source.send(PAYLOAD), timeout=TIMEOUT_S)
        taken[i] = time.perf_counter_ns() - before
    return Reading(float(np.median(taken)), "ns", taken, bytes=len(PAYLOAD), count=trips, flight=len(PAYLOAD))


def _in_one_call(source: hf.Source, trips: int) -> Reading:
    """The same in one call."""
    send_stable = source.send_stable
    taken = np.empty(trips, dtype=np.int64)
    for i in range(trips):
        before = time.perf_counter_ns()
        send_stable(PAYLOAD, TIMEOUT_S)
        taken[i] = time.perf_counter_ns() - before
    return Reading(float(np.median(taken)), "ns", taken, bytes=len(PAYLOAD), count=trips, flight=len(PAYLOAD))


def _by_hand(source: hf.Source, trips: int) -> Reading:
    """The probe: send, and spin on the store's line in plain Python. Raises TimeoutError."""
    settlement, send = source._session.settlement, source.send
    assert settlement is not None
    line = settlement._watched[0].at
    taken = np.empty(trips, dtype=np.int64)
    end_ns = time.perf_counter_ns() + int(TIMEOUT_S * 1e9)
    for i in range(trips):
        before = time.perf_counter_ns()
        number = send(PAYLOAD)
        while line.ack <= number:
            pass
        taken[i] = time.perf_counter_ns() - before
        if before > end_ns:
            raise TimeoutError(f"{i} of {trips} messages were stable after {TIMEOUT_S} s")
    source.wait_stable(timeout=TIMEOUT_S)  # which settles them
    return Reading(float(np.median(taken)), "ns", taken, bytes=len(PAYLOAD), count=trips, flight=len(PAYLOAD))


def _alone(bench: Bench) -> Iterator[Series]:
    """Two processes and two rings, nothing else that wants a core."""
    with ExitStack() as stack:
        stack.enter_context(domain(bench))
        stack.enter_context(bench.pinned_to(0))
        context = stack.enter_context(hf.Context(domain=DOMAIN, options=SPIN))
        pair = Echo(bench, context, "ping", {})
        stack.callback(pair.far.close)
        title = "Python round trip, 16 B: two processes on two cores, no store"
        yield from bench.interleave({"py-ping": (title, pair.measure)})


def _with_stores(bench: Bench) -> Iterator[Series]:
    """Stores on the far side's core: the source's core stays its own."""
    with ExitStack() as stack:
        stack.enter_context(domain(bench))
        stack.enter_context(running_store(bench, MEMORY, "memory"))
        stack.enter_context(running_store(bench, DISK, "disk"))
        stack.enter_context(bench.pinned_to(0))
        context = stack.enter_context(hf.Context(domain=DOMAIN, options=SPIN))
        pair = Echo(bench, context, "stored", TO_STORE)
        stack.callback(pair.far.close)
        in_memory = context.source("memory", options=store_options(MEMORY))
        on_disk = context.source("disk", options=store_options(DISK))
        for source in (in_memory, on_disk):
            source.wait_registered(TIMEOUT_S)
        measures: dict[str, tuple[str, Callable[[], Reading]]] = {
            "py-ping-store": (
                "Python round trip, 16 B, while a memory store on the far side's core drains both topics",
                pair.measure,
            ),
            "py-stable-memory": (
                "Python send → stable(memory), store on the other core, default wait strategy",
                lambda: _stable(in_memory, STABLE_TRIPS[MEMORY]),
            ),
            "py-one-call-memory": (
                "Python send_stable, in one call, memory store on the other core, default wait strategy",
                lambda: _in_one_call(in_memory, STABLE_TRIPS[MEMORY]),
            ),
            "py-stable-by-hand": (
                "Python send + a loop over the store's acknowledgement, memory store on the other core",
                lambda: _by_hand(in_memory, STABLE_TRIPS[MEMORY]),
            ),
            "py-stable-disk": (
                "Python send → stable(disk), store on the other core, default wait strategy",
                lambda: _stable(on_disk, STABLE_TRIPS[DISK]),
            ),
            "py-one-call-disk": (
                "Python send_stable, in one call, disk store on the other core, default wait strategy",
                lambda: _in_one_call(on_disk, STABLE_TRIPS[DISK]),
            ),
        }
        yield from bench.interleave(measures)


def measure(bench: Bench) -> Iterator[Series]:
    """C rows, then Python rows."""
    yield from bench.cases(CASES)
    yield from _alone(bench)
    yield from _with_stores(bench)


SCRIPT = Script("latency", "How long does one message take: there and back, and until a store says stable?", measure)

if __name__ == "__main__":
    run_one(SCRIPT)
