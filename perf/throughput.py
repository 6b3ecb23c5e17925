"""How many messages per second go one way?

    C 1→1:      core 0: rows of 64 | single sends -> [stream] -> core 1: batches in place | a copy per message
    C 1→2:      core 0 -> [stream] -> core 1, core 2 (both on core 1 where there are two)
    Python:     core 0: send | send_batch -> [stream] -> core 1: receive | next | receive_batch -> Numba
                                              (rows "with a store": a memory store drains the stream too, on
                                              core 1)

The bare ring of the same payload runs beside the C rows, the empty cffi call beside the Python sends. A
stream of the C rows holds about as many messages as the bare ring has slots, so that both sides keep the same
number under way.
"""

from __future__ import annotations

import time
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count, islice, repeat
from typing import TYPE_CHECKING

import numpy as np

import holdfast as hf

from .cli import Script, run_one
from .consumer import Consumer, numbered_rows
from .empty_call import Paired
from .harness import Reading
from .peers import DOMAIN, SPIN, TIMEOUT_S, Far, domain, running_store, store_options
from .report import quantity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.connection import Connection

    from .harness import Bench, Series

    Measures = dict[str, tuple[str, Callable[[], Reading]]]

KIB, MIB = 1 << 10, 1 << 20
RINGS = (
    (16, "16 B", 4096, 256 * KIB),
    (128, "128 B", 4096, 1 * MIB),
    (1024, "1 KiB", 4096, 4 * MIB),
    (65536, "64 KiB", 64, 8 * MIB),
)
"""Payload, its name, slots of the bare ring, bytes of the stream: a frame is 32 bytes and the payload, up to
a multiple of 32."""
DEFAULT_RING = 32 * MIB


def _c_cases() -> dict[str, str]:
    cases = {}
    for size, name, slots, ring in RINGS:
        stream = f"{name}, ring of {quantity(ring, 'B')}"
        cases[f"ring:{size}"] = f"bare ring, {name}, {slots} slots of {name}"
        cases[f"oneway:{size}:rows:batch:1:{ring}"] = f"C 1→1, rows of 64 → batches, {stream}"
        cases[f"oneway:{size}:single:copy:1:{ring}"] = f"C 1→1, single sends → copies, {stream}"
        cases[f"oneway:{size}:rows:batch:2:{ring}"] = f"C 1→2, rows of 64 → batches, {stream}"
    cases[f"oneway:128:rows:batch:1:{DEFAULT_RING}"] = (
        "C 1→1, rows of 64 → batches, 128 B, ring of 32 MiB (the default)"
    )
    return cases


CASES = _c_cases()
STORE = "throughput"
TO_STORE: dict[str, object] = {**store_options(STORE), "ume_flight_size": 100_000}
"""Far above what is under way at once, so that flow control is the ring's and the bytes'."""
PAYLOAD = b"x" * 128
SENDS = 100_000
SUSTAINED_SENDS = 500_000
RECEIVES = 100_000
BATCH_ROWS = 8192
BATCH_STEPS = 128
"""Readings of the batch rows: a million messages of 16 B, 64 MiB of frames."""
ROOMY_RING = 128 * MIB
"""A ring that no reading fills: without a store nothing holds a source back, and a reader that is overtaken
loses messages."""
ROOMY_WARM_UP = 3
"""Readings that touch all of that ring, in both processes."""
WARM_SENDS = 450_000
"""Twice around the default ring."""
BUSY_S = 0.25
BUSY_MESSAGES = 16


# The far side -----------------------------------------------------------------------------------------------


def take_singles(connection: Connection, context: hf.Context) -> None:
    """Receives what it is told, one by one, and reports when it had the last one (CLOCK_MONOTONIC, ns)."""
    receiver = context.receiver("singles")
    messages = iter(receiver)
    connection.send("ready")
    while True:
        how, wanted = connection.recv()
        connection.send("go")
        if how == "next":
            for _ in islice(messages, wanted):
                pass
        else:
            for _ in repeat(None, wanted):
                message = receiver.receive(TIMEOUT_S)
                if message is None:
                    raise RuntimeError("messages are missing")
                message.release()
        connection.send(time.perf_counter_ns())


def take_batches(topic: str, connection: Connection, context: hf.Context) -> None:
    """Receives batches into a Numba kernel that checks numbers and payload; reports the end and what was out
    of order."""
    receiver = context.receiver(topic)
    consumer = Consumer()
    connection.send("ready")
    while True:
        wanted = connection.recv()
        connection.send("go")
        while wanted > 0:
            batch = receiver.receive_batch(BATCH_ROWS, TIMEOUT_S)
            if batch is None:
                raise RuntimeError(f"{wanted} messages are missing")
            wanted -= consumer.take(batch)
        connection.send((time.perf_counter_ns(), consumer.finish()))


# This side --------------------------------------------------------------------------------------------------


class Batches:
    """send_batch of 16-byte rows into the Numba consumer; each row carries its number."""

    def __init__(self, source: hf.Source, far: Far, flight: int) -> None:
        """``flight``: bytes that may be under way. Warms the stream and both sides up."""
        self._source, self._far, self._flight = source, far, flight
        self._rows = numbered_rows(BATCH_ROWS, 16)
        self._rows[:, 0] = np.arange(BATCH_ROWS, dtype=np.uint64)
        for _ in repeat(None, ROOMY_WARM_UP):
            self.measure()

    def measure(self) -> Reading:
        """The rate from before the first send to the consumer's last message."""
        numbers, octets, send = self._rows[:, 0], self._rows.view(np.uint8), self._source.send_batch
        count = BATCH_STEPS * BATCH_ROWS
        self._far.tell(count)
        self._far.expect("go")
        start = time.perf_counter_ns()
        for _ in repeat(None, BATCH_STEPS):
            send(octets)
            numbers += BATCH_ROWS
        end, bad = self._far.expect()
        if bad:
            raise RuntimeError(f"{bad} messages out of order")
        return Reading(count * 1e9 / (end - start), "msg/s", bytes=16, count=count, flight=self._flight)


class Singles:
    """Per-message receiving: fed by send_batch, which is faster."""

    def __init__(self, source: hf.Source, far: Far) -> None:
        self._source, self._far = source, far
        self._rows = np.full((1000, len(PAYLOAD)), 120, dtype=np.uint8)
        for _ in repeat(None, 2 * ROOMY_WARM_UP):
            self.measure("next")

    def measure(self, how: str) -> Reading:
        """``how``: ``receive`` or ``next``. The rate from before the first send to the last message."""
        self._far.tell((how, RECEIVES))
        self._far.expect("go")
        start = time.perf_counter_ns()
        for _ in repeat(None, RECEIVES // len(self._rows)):
            self._source.send_batch(self._rows)
        end = self._far.expect()
        return Reading(RECEIVES * 1e9 / (end - start), "msg/s", bytes=len(PAYLOAD), count=RECEIVES, flight=ROOMY_RING)


class Busy:
    """A callback thread that never rests: each message that it receives makes it send the next one on the
    same topic."""

    def __init__(self, context: hf.Context) -> None:
        self._source = context.source("busy")
        self._source.wait_registered(TIMEOUT_S)
        self._on = False
        context.receiver("busy", on_message=self._again)

    def _again(self, message: hf.Message) -> None:
        if self._on:
            self._source.send(bytes(message))

    @contextmanager
    def running(self) -> Iterator[None]:
        """The thread is busy inside the block."""
        self._on = True
        for _ in repeat(None, BUSY_MESSAGES):
            self._source.send(PAYLOAD)
        try:
            yield
        finally:
            self._on = False


def sends(context: hf.Context) -> Measures:
    """Case -> (title, function) of the sends out of one process, and of the empty call beside them."""
    source = _source(context, "sends", {})
    send = partial(source.send, PAYLOAD)
    for _ in repeat(None, WARM_SENDS):
        send()
    paired = Paired(send, SENDS // 1000, bytes_each=len(PAYLOAD))
    busy = Busy(context)

    def beside_callbacks() -> Reading:
        """The mean, not a median: most blocks lie between two turns of the other thread."""
        count = 0
        with busy.running():
            start = now = time.perf_counter_ns()
            while now - start < BUSY_S * 1e9:
                for _ in repeat(None, 100):
                    send()
                count += 100
                now = time.perf_counter_ns()
        return Reading((now - start) / count, "ns", bytes=len(PAYLOAD), count=count)

    return {
        "py-empty-call": ("empty cffi call, API mode, in turns with the next row", paired.empty),
        "py-send": ("Python send(bytes), 128 B, no store, median of blocks of 1000", paired.call),
        "py-send-busy": ("Python send(bytes), 128 B, no store, beside a busy callback thread, mean", beside_callbacks),
    }


def _source(context: hf.Context, topic: str, options: dict[str, object]) -> hf.Source:
    source = context.source(topic, options=options)
    source.wait_registered(TIMEOUT_S)
    return source


def _sustained(source: hf.Source) -> Reading:
    """From the first send until everything is stable."""
    send = source.send
    start = time.perf_counter_ns()
    for _ in repeat(None, SUSTAINED_SENDS):
        send(PAYLOAD)
    source.wait_stable(timeout=TIMEOUT_S)
    elapsed = time.perf_counter_ns() - start
    return Reading(SUSTAINED_SENDS * 1e9 / elapsed, "msg/s", bytes=len(PAYLOAD), count=SUSTAINED_SENDS)


def _alone(bench: Bench) -> Iterator[Series]:
    """Two processes on two cores, no store."""
    with ExitStack() as stack:
        stack.enter_context(domain(bench))
        stack.enter_context(bench.pinned_to(0))
        context = stack.enter_context(hf.Context(domain=DOMAIN, options=SPIN))
        roomy: dict[str, object] = {"ring_size": ROOMY_RING}
        sources = _source(context, "singles", roomy), _source(context, "batches", roomy)
        singles = Singles(sources[0], stack.enter_context(Far(bench, take_singles, SPIN)))
        far = stack.enter_context(Far(bench, partial(take_batches, "batches"), SPIN))
        batches = Batches(sources[1], far, ROOMY_RING)
        measures = sends(context)
        measures |= {
            "py-receive": ("Python receive, 128 B, one by one, no store", partial(singles.measure, "receive")),
            "py-next": ("Python iteration, 128 B, no store", partial(singles.measure, "next")),
            "py-batch": ("Python send_batch → Numba consumer, 16 B, no store", batches.measure),
        }
        yield from bench.interleave(measures)


def _with_store(bench: Bench) -> Iterator[Series]:
    """A memory store on the far side's core drains what is sent."""
    with ExitStack() as stack:
        stack.enter_context(domain(bench))
        stack.enter_context(running_store(bench, STORE, "memory"))
        stack.enter_context(bench.pinned_to(0))
        context = stack.enter_context(hf.Context(domain=DOMAIN, options=SPIN))
        rate = _source(context, "rate", TO_STORE)
        told = count()
        heard = context.source("heard", options=TO_STORE, on_event=lambda _: next(told))
        heard.wait_registered(TIMEOUT_S)
        stored = _source(context, "stored", TO_STORE)
        far = stack.enter_context(Far(bench, partial(take_batches, "stored"), SPIN))
        batches = Batches(stored, far, DEFAULT_RING)
        yield from bench.interleave(
            {
                "py-send-rate": (
                    "Python send(bytes), 128 B, sustained until all is stable, memory store on the other core",
                    partial(_sustained, rate),
                ),
                "py-send-events": (
                    "Python send(bytes), as the row before, stability told to on_event in coalesced ranges",
                    partial(_sustained, heard),
                ),
                "py-batch-store": (
                    "Python send_batch → Numba consumer, 16 B, a memory store shares the consumer's core",
                    batches.measure,
                ),
            }
        )
        if next(told) < bench.runs:
            raise RuntimeError("no events came")


def measure(bench: Bench) -> Iterator[Series]:
    """C rows, then Python rows."""
    yield from bench.cases(CASES)
    yield from _alone(bench)
    yield from _with_store(bench)


SCRIPT = Script("throughput", "How many messages per second go one way?", measure)

if __name__ == "__main__":
    run_one(SCRIPT)
