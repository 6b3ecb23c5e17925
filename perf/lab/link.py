"""A product at work: its sender here, its receivers in processes of their own, and the readings that the
clock takes of them."""

from __future__ import annotations

import mmap
import os
import re
import shutil
import tempfile
import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ..idle import cpu_ns
from .data import NUMBER, WrongMessageError
from .far import Far
from .peer import Place

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..harness import Bench
    from .data import Messages, Taken
    from .peer import Level, Peer, Receiver, Sender

BATCH = 1000
LEAST = 10
"""Messages of a reading, where a product is very slow."""
SETTLE_S = 0.3
TOUCHED_MIN, TOUCHED_TIMES = 64 << 20, 4
"""Bytes, and a multiple of those of the messages: pages that are copied, files that double, a next one that
is made ahead."""


def pss_bytes(pid: int) -> int:
    """Memory of a process, what it shares with others divided among them."""
    found = re.search(r"^Pss:\s+(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
    return int(found[1]) << 10 if found else 0


def touch_memory(size: int) -> None:
    """Have this many bytes of memory touched, and let go of them: what is allocated next is, for the most
    part, these pages.

    The host of a virtual machine may take memory back that nothing uses. The first touch of such a page then
    waits for the host.
    """
    mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE).close()


class Link:
    """One product between this process and its receivers. A context manager; what fails to open raises
    there."""

    def __init__(
        self,
        kind: type[Peer],
        bench: Bench,
        size: int,
        *,
        receivers: int = 1,
        level: Level = "memory",
        roomy: bool = True,
        others: int = 0,
        reading_s: float = 0,
    ) -> None:
        """``size``: of the largest message; ``level``: of a log, which then lies on the bench's disk or in
        its memory.

        ``others``: further ones of the same kind, between the same two processes. ``reading_s``: how long a
        reading lasts, about, where the messages are enough for it.
        """
        self._kind, self._bench, self._size = kind, bench, size
        self._place = (receivers, level, roomy)
        self._wanted, self._reading_s = others, reading_s
        self._count, self._met = 0, False
        self._back: Receiver | None = None

    def __enter__(self) -> Self:
        """Start the product, its receivers, then the sender."""
        with ExitStack() as stack:
            self._peer = self._started(stack)
            self._others = [self._started(stack) for _ in range(self._wanted)]
            indexes = range(self._place[0])
            self._fars = [stack.enter_context(closing(Far(self._peer, index, self._others))) for index in indexes]
            self._sender = self._peer.sender()
            stack.callback(self._sender.close)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        """End all of it, the last thing first."""
        self._stack.close()

    @property
    def _core(self) -> int | None:
        return self._bench.core(1) if self._bench.pinned else None

    def _started(self, stack: ExitStack) -> Peer:
        receivers, level, roomy = self._place
        above = self._bench.disk if level == "disk" else self._bench.memory
        folder = Path(tempfile.mkdtemp(prefix="p", dir=above))  # short: it holds Unix sockets
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        peer = self._kind()
        peer.start(Place(folder, self._size, self._core, receivers, level, roomy))
        stack.callback(peer.stop)
        return peer

    # Readings -----------------------------------------------------------------------------------------------

    def one_way(self, messages: Messages, batch: int, least: int) -> dict[str, float]:
        """From the first send until every receiver has the last message. ``batch``: messages per call;
        ``least``: of a first one.

        Gives ``rate`` (msg/s) and ``cpu`` (ns per message, of both ends and the server).
        """
        if not self._met:  # how long the two take to find each other is not their speed
            self._met = True
            self.one_way(messages, batch, least)
            self._count = 0
        work = self._work(messages, batch, least)
        before = self._cpu_ns()
        self._tell("batches" if batch > 1 else "singles", work.count)
        start = time.perf_counter_ns()
        self._do(work)
        end = max(taken.end_ns for taken in self._done())
        return self._reading(work, end - start, self._cpu_ns() - before)

    def commits(self, messages: Messages, batch: int, least: int, *, live: bool, touched: bool) -> dict[str, float]:
        """A log, from the first commit until the last is acknowledged; then, or meanwhile, the reader reads
        all of it.

        ``live``: meanwhile; the clock stops when the reader has the last one, too. ``touched``: the memory
        that it will take was touched right before. Gives what one_way gives.
        """
        work = self._work(messages, batch, least)
        if touched:
            touch_memory(TOUCHED_MIN + TOUCHED_TIMES * work.count * self._size)
        if self._place[1] == "disk":
            os.sync()  # what others have left for the disk to write is not this product's to wait for
        if live:
            self._tell("batches", work.count)
        before = self._cpu_ns()
        start = time.perf_counter_ns()
        self._do(work)
        end, cpu = time.perf_counter_ns(), self._cpu_ns() - before
        if not live:
            self._tell("batches", work.count)
        read = self._done()[0].end_ns
        if live:
            end, cpu = max(end, read), self._cpu_ns() - before
        return self._reading(work, end - start, cpu)

    def round_trips(self, messages: Messages) -> dict[str, float]:
        """Each message there and back, one by one: ``p50`` and ``p99`` in ns, one reading of the clock in
        each.

        The way back is the first of the others.
        """
        if self._back is None:
            self._back = self._opened_back()
        send, receive, unpack, clock = self._sender.send, self._back.receive, NUMBER.unpack_from, time.perf_counter_ns
        self._fars[0].tell("echo", len(messages))
        self._fars[0].expect("go")
        stamps = [clock()]
        for number, payload in enumerate(messages.payloads):
            send(payload)
            returned = receive()
            if len(returned) != self._size or unpack(returned)[0] != number:
                raise WrongMessageError(f"message {number} came back as another one")
            stamps.append(clock())
        self._done()
        p50, p99 = np.percentile(np.diff(np.array(stamps)), (50, 99))
        return {"p50": float(p50), "p99": float(p99)}

    def _opened_back(self) -> Receiver:
        back = self._others[0].receiver(0)
        self._stack.callback(back.close)
        self._fars[0].tell("back")
        self._fars[0].expect("go")
        self._done()
        return back

    def at_rest(self, messages: Messages, seconds: float) -> dict[str, float]:
        """A receiver that waits for a message that does not come: ``idle``, CPU of both ends and the server
        in % of a core.

        ``memory``: MiB that each of the others takes in both processes, once it has carried a message; what
        they share counts once.
        """
        self._fars[0].tell("singles", self._size, 1)
        self._fars[0].expect("go")
        time.sleep(SETTLE_S)
        before, start = self._cpu_ns(), time.monotonic_ns()
        time.sleep(seconds)
        idle = 100 * (self._cpu_ns() - before) / (time.monotonic_ns() - start)
        self._sender.send(messages.payloads[0])
        self._done()
        memory = self._memory()
        self._fars[0].tell("more")
        self._fars[0].expect("go")
        for other in self._others:
            sender = other.sender()
            self._stack.callback(sender.close)
            sender.send(messages.payloads[0])
        self._done()
        return {"idle": idle, "memory": (self._memory() - memory) / len(self._others) / (1 << 20)}

    def replay(self, count: int) -> dict[str, float]:
        """A new process opens the log and reads ``count`` messages: ``rate``, from the first batch on."""
        with closing(Far(self._peer)) as far:
            far.tell("batches", self._size, count)
            far.expect("go")
            taken: Taken = far.expect("done")
        if taken.first == count:
            raise RuntimeError(f"{count} messages are too few: the first batch had them all")
        return {"rate": (count - taken.first) * 1e9 / (taken.end_ns - taken.first_ns)}

    def fill(self, messages: Messages, seconds: float) -> int:
        """Commit as many as fit into that time, in batches; returns how many."""
        end, sent = time.monotonic() + seconds, 0
        for some in messages.batches(len(messages), BATCH):
            if time.monotonic() > end:
                break
            self._sender.send_many(some)
            sent += len(some)
        self._sender.finish()
        return sent

    def _work(self, messages: Messages, batch: int, least: int) -> Work:
        count = self._count or min(least, len(messages))
        return Work(self._sender, messages, batch, count)

    def _reading(self, work: Work, elapsed_ns: int, cpu_ns: int) -> dict[str, float]:
        """And sets how many messages the next reading takes, after the first one: whole batches."""
        rate = work.count * 1e9 / elapsed_ns
        wanted = int(rate * self._reading_s) // work.batch * work.batch
        self._count = self._count or min(work.most, max(wanted, LEAST))
        return {"rate": rate, "cpu": cpu_ns / work.count}

    # Its processes ------------------------------------------------------------------------------------------

    def _tell(self, what: str, count: int) -> None:
        for far in self._fars:
            far.tell(what, self._size, count)
        for far in self._fars:
            far.expect("go")

    def _do(self, work: Work) -> None:
        """A sender whose receiver has failed fails, too: the receiver's words say why."""
        try:
            work.do()
        except OSError:
            self._done()
            raise

    def _done(self) -> list[Taken]:
        return [far.expect("done") for far in self._fars]

    def _pids(self) -> list[int]:
        return [os.getpid(), *(far.pid for far in self._fars)]

    def _cpu_ns(self) -> int:
        return sum(map(cpu_ns, [*self._pids(), *self._peer.servers]))

    def _memory(self) -> int:
        return sum(map(pss_bytes, self._pids()))


class Work:
    """What a sender does in one reading, laid out before the clock starts."""

    def __init__(self, sender: Sender, messages: Messages, batch: int, count: int) -> None:
        self.batch, self.count, self.most = batch, count, len(messages)
        self._finish = sender.finish
        self._call: Callable[[Any], object] = sender.send_many if batch > 1 else sender.send
        self._things: list[Any] = messages.batches(count, batch) if batch > 1 else messages.payloads[:count]

    def do(self) -> None:
        """Send everything, and have it taken over or acknowledged."""
        call = self._call
        for thing in self._things:
            call(thing)
        self._finish()
