"""How many messages per second go one way?

    C 1→1:      core 0: rows of 64 | single sends -> [stream] -> core 1: batches in place | one copy per message
    C 1→2:      core 0 -> [stream] -> core 1, core 2 (both on core 1 where there are two)
    Python:     process A: send | send_batch -> [stream] -> process B: receive | receive_batch -> Numba
                                                \\-> store (memory)

The bare ring of the same payload and as many slots runs beside the C rows, the empty cffi call beside the Python sends.
"""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack, contextmanager
from itertools import repeat
from typing import TYPE_CHECKING

import numpy as np

import holdfast as hf

from .cli import Script, run_one
from .consumer import Consumer, numbered_rows
from .empty_call import empty_call, timed_calls
from .harness import Reading
from .peers import DOMAIN, SPIN, TIMEOUT_S, Far, domain, running_store, store_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.connection import Connection

    from .harness import Bench, Series

SMALL = {
    case: title
    for size, name in ((16, "16 B"), (128, "128 B"), (1024, "1 KiB"), (65536, "64 KiB"))
    for case, title in (
        (f"ring:{size}", f"bare ring, {name}"),
        (f"oneway:{size}:rows:batch:1", f"C 1→1, rows of 64 → batches, {name}"),
        (f"oneway:{size}:single:copy:1", f"C 1→1, single sends → copies, {name}"),
        (f"oneway:{size}:rows:batch:2", f"C 1→2, rows of 64 → batches, {name}"),
    )
}
DEFAULT_RING = 32 << 20
CASES = {
    **SMALL,
    f"oneway:128:rows:batch:1:{DEFAULT_RING}": "C 1→1, rows of 64 → batches, 128 B, ring of 32 MiB (the default)",
}
STORE = "throughput"
FLIGHT = 100_000
"""Messages; far above what is under way at once, so that flow control is the ring's and the bytes'."""
SENDS = 100_000
RECEIVES = 100_000
BATCH_ROWS = 8192
BATCH_MESSAGES = 4_000_000
PAYLOAD = b"x" * 128


def _source(context: hf.Context, topic: str) -> hf.Source:
    source = context.source(topic, options={**store_options(STORE), "ume_flight_size": FLIGHT})
    source.wait_registered(TIMEOUT_S)
    return source


def count_singles(connection: Connection, context: hf.Context) -> None:
    """Far side: receives as many messages as it is told, one by one, and reports the nanoseconds from first to last."""
    receiver = context.receiver("singles")
    connection.send("ready")
    while True:
        wanted = connection.recv()
        start = 0
        for i in range(wanted):
            message = receiver.receive(timeout=TIMEOUT_S)
            if message is None:
                raise RuntimeError(f"message {i} of {wanted} did not come")
            message.release()
            start = start or time.perf_counter_ns()
        connection.send(time.perf_counter_ns() - start)


def count_batches(connection: Connection, context: hf.Context) -> None:
    """Far side: receives batches into a Numba kernel that checks numbers and payload, until it had what it was told."""
    receiver = context.receiver("batches")
    consumer = Consumer()
    connection.send("ready")
    while True:
        wanted = connection.recv()
        seen = 0
        while seen < wanted:
            batch = receiver.receive_batch(max_messages=4096, timeout=TIMEOUT_S)
            if batch is None:
                raise RuntimeError(f"{wanted - seen} of {wanted} messages did not come")
            seen += consumer.take(batch)
        connection.send(consumer.finish())


def _receive(source: hf.Source, far: Far) -> Reading:
    """Per-message receive: fed by send_batch, which is faster."""
    rows = np.full((1000, len(PAYLOAD)), 120, dtype=np.uint8)
    far.tell(RECEIVES)
    for _ in repeat(None, RECEIVES // len(rows)):
        source.send_batch(rows)
    elapsed = far.expect()
    return Reading(RECEIVES * 1e9 / elapsed, "msg/s", bytes=len(PAYLOAD), count=RECEIVES)


def _batch(source: hf.Source, far: Far, first: list[int]) -> Reading:
    """send_batch of 16-byte rows into the Numba consumer; each row carries its number."""
    rows = numbered_rows(BATCH_ROWS, 16)
    octets = rows.view(np.uint8)
    steps = BATCH_MESSAGES // BATCH_ROWS
    far.tell(steps * BATCH_ROWS)
    start = time.perf_counter_ns()
    for _ in repeat(None, steps):
        rows[:, 0] = np.arange(first[0], first[0] + BATCH_ROWS, dtype=np.uint64)
        first[0] += BATCH_ROWS
        source.send_batch(octets)
    bad = far.expect()
    elapsed = time.perf_counter_ns() - start
    if bad:
        raise RuntimeError(f"{bad} messages out of order")
    return Reading(steps * BATCH_ROWS * 1e9 / elapsed, "msg/s", bytes=16, count=steps * BATCH_ROWS)


@contextmanager
def _fed(source: hf.Source) -> Iterator[None]:
    """Another thread of this process feeds a callback receiver: the callbacks compete for the interpreter."""
    stop = threading.Event()
    rows = np.zeros((100, 16), dtype=np.uint8)

    def feed() -> None:
        while not stop.is_set():
            source.send_batch(rows)

    thread = threading.Thread(target=feed)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _sends(context: hf.Context) -> dict[str, tuple[str, Callable[[], Reading]]]:
    source = _source(context, "sends")
    noise = _source(context, "busy")
    context.receiver("busy", on_message=lambda message: bytes(message.data))

    def send() -> object:
        return source.send(PAYLOAD)

    def timed() -> Reading:
        return timed_calls(send, SENDS // 1000, bytes_each=len(PAYLOAD))

    def beside_callbacks() -> Reading:
        with _fed(noise):
            return timed()

    def sustained() -> Reading:
        start = time.perf_counter_ns()
        for _ in repeat(None, SENDS):
            source.send(PAYLOAD)
        return Reading(SENDS * 1e9 / (time.perf_counter_ns() - start), "msg/s", bytes=len(PAYLOAD), count=SENDS)

    return {
        "py-empty-call": ("empty cffi call, API mode", empty_call("nothing")),
        "py-send": ("Python send(bytes), 128 B, median of blocks of 1000", timed),
        "py-send-busy": ("the same beside a busy callback thread", beside_callbacks),
        "py-send-rate": ("Python send(bytes), 128 B, sustained", sustained),
    }


def _python(bench: Bench) -> Iterator[Series]:
    with ExitStack() as stack:
        stack.enter_context(domain(bench))
        stack.enter_context(running_store(bench, STORE, "memory"))
        singles = stack.enter_context(Far(bench, count_singles, SPIN))
        batches = stack.enter_context(Far(bench, count_batches, SPIN))
        bench.pin(0)
        stack.callback(bench.unpin)
        context = stack.enter_context(hf.Context(domain=DOMAIN, options=SPIN))
        to_singles, to_batches = _source(context, "singles"), _source(context, "batches")
        number = [0]
        measures = _sends(context)
        measures["py-receive"] = ("Python receive, 128 B, one by one", lambda: _receive(to_singles, singles))
        measures["py-batch"] = (
            "Python send_batch → Numba consumer, 16 B",
            lambda: _batch(to_batches, batches, number),
        )
        yield from bench.interleave(measures)


def measure(bench: Bench) -> Iterator[Series]:
    """C rows, then Python rows."""
    yield from bench.cases(CASES)
    yield from _python(bench)


SCRIPT = Script("throughput", "How many messages per second go one way?", measure)

if __name__ == "__main__":
    run_one(SCRIPT)
