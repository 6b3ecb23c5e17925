"""What does a task of an event loop pay, beside a thread that does the same?

    source: rows of 128 B -> [stream] -> receive(), release()       each message
                                      -> for | async for            each message
                                      -> receive_batch | batches()  each batch
    the same backlog, async for, beside a task that sleeps 5 ms again and again: how late is it?

One process and one thread, pinned; the stream holds all of a reading before its first message is taken. No
store.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack
from itertools import repeat
from typing import TYPE_CHECKING

import numpy as np

import holdfast as hf

from .cli import Script, run_one
from .harness import Reading
from .peers import DOMAIN, SPIN, TIMEOUT_S, domain

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from .harness import Bench, Series

SIZE, ROWS = 128, 1000
RING = 128 << 20
MESSAGES = 600_000
"""Most of what the stream holds."""
TICK_S = 0.005


class Backlog:
    """Messages that wait in the ring."""

    def __init__(self, stack: ExitStack) -> None:
        context = stack.enter_context(hf.Context(domain=DOMAIN))
        self._source = context.source("awaiting", options={"ring_size": RING})
        self._source.wait_registered(TIMEOUT_S)
        self.receiver = context.receiver("awaiting", options=SPIN)
        while not self.receiver.stats().sources:
            time.sleep(0.001)
        self._rows = np.full((ROWS, SIZE), 120, dtype=np.uint8)

    def send(self) -> None:
        """MESSAGES more."""
        for _ in repeat(None, MESSAGES // ROWS):
            self._source.send_batch(self._rows)

    def taken(self, take: Callable[[hf.Receiver], None]) -> Reading:
        """The rate at which they are taken."""
        self.send()
        start = time.perf_counter_ns()
        take(self.receiver)
        return _rate(time.perf_counter_ns() - start)

    def awaited(self, take: Callable[[hf.Receiver], Coroutine[None, None, None]]) -> Reading:
        """The same by a task; the event loop runs already."""

        async def main() -> int:
            start = time.perf_counter_ns()
            await take(self.receiver)
            return time.perf_counter_ns() - start

        self.send()
        return _rate(asyncio.run(main()))

    def lateness(self) -> Reading:
        """p99 of how late a task wakes beside one that takes messages without a pause, ns."""
        self.send()
        late = np.array(asyncio.run(self._ticks()), np.int64)
        return Reading(float(np.percentile(late, 99)), "ns", late, bytes=SIZE, count=MESSAGES)

    async def _ticks(self) -> list[int]:
        late: list[int] = []

        async def tick() -> None:
            while True:
                due = time.perf_counter_ns() + int(TICK_S * 1e9)
                await asyncio.sleep(TICK_S)
                late.append(time.perf_counter_ns() - due)

        ticker = asyncio.ensure_future(tick())
        await async_for(self.receiver)
        ticker.cancel()
        return late


def _rate(elapsed_ns: int) -> Reading:
    return Reading(MESSAGES * 1e9 / elapsed_ns, "msg/s", bytes=SIZE, count=MESSAGES)


def plain_for(receiver: hf.Receiver) -> None:
    """Each message."""
    count = 0
    for _ in receiver:  # counted as in async_for
        count += 1  # noqa: SIM113
        if count >= MESSAGES:
            break


def receive(receiver: hf.Receiver) -> None:
    """Each message."""
    for _ in repeat(None, MESSAGES):
        message = receiver.receive(TIMEOUT_S)
        if message is None:
            raise RuntimeError("messages are missing")
        message.release()


async def async_for(receiver: hf.Receiver) -> None:
    """Each message."""
    count = 0
    async for _ in receiver:
        count += 1
        if count >= MESSAGES:
            break


def receive_batch(receiver: hf.Receiver) -> None:
    """In batches."""
    count = 0
    while count < MESSAGES:
        batch = receiver.receive_batch(timeout=TIMEOUT_S)
        if batch is None:
            raise RuntimeError("messages are missing")
        count += len(batch)
        batch.release()


async def batches(receiver: hf.Receiver) -> None:
    """In batches."""
    count = 0
    async for batch in receiver.batches():
        count += len(batch)
        if count >= MESSAGES:
            break


def measure(bench: Bench) -> Iterator[Series]:
    """All rows interleaved."""
    with bench.pinned_to(0), domain(bench), ExitStack() as stack:
        backlog = Backlog(stack)
        yield from bench.interleave(
            {
                "receive": ("receive() and release(), 128 B", lambda: backlog.taken(receive)),
                "for": ("for, 128 B", lambda: backlog.taken(plain_for)),
                "async-for": ("async for, 128 B", lambda: backlog.awaited(async_for)),
                "receive-batch": ("receive_batch, 128 B", lambda: backlog.taken(receive_batch)),
                "batches": ("async for over batches(), 128 B", lambda: backlog.awaited(batches)),
                "lateness": ("lateness of a task that sleeps 5 ms beside async for, p99", backlog.lateness),
            }
        )


SCRIPT = Script("awaiting", "What does a task of an event loop pay, beside a thread that does the same?", measure)

if __name__ == "__main__":
    run_one(SCRIPT)
