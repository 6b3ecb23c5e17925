"""What a daemon waits for, put by signal handlers and by any thread.

The main thread sleeps on a pipe, which the C level of a signal writes to in whatever thread it arrives: one
that was sent to a stopped process may arrive in any, and would not wake a main thread that sleeps on a lock.
"""

from __future__ import annotations

import contextlib
import os
import signal
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from ..engine.native.waiting import readable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["ENDED", "EVENTS", "ROLL", "SIGNALS", "STOP", "Events"]

STOP, ROLL, ENDED = "stop", "roll", "ended"
"""End in order; roll the log; a store has ended."""
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGPIPE)
"""Those that a daemon owns."""


class Events:
    """A queue of these. What is put before anybody listens is kept."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[str] = SimpleQueue()
        self._read_end = self._write_end = -1
        self.ready: Callable[[], None] = lambda: None
        """Called by the daemon when all of its stores serve."""

    def put(self, event: str) -> None:
        """Any thread, also a signal handler."""
        self._queue.put(event)
        if self._write_end >= 0:
            with contextlib.suppress(BlockingIOError):  # full: it wakes as it is
                os.write(self._write_end, b"\0")

    def get(self) -> str:
        """The next one; while listening."""
        while True:
            try:
                return self._queue.get_nowait()
            except Empty:
                readable(self._read_end)
            with contextlib.suppress(BlockingIOError):
                os.read(self._read_end, 4096)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Owns SIGNALS meanwhile, and gives them back; the main thread only. A second SIGINT or SIGTERM ends
        the process."""

        def stop(*_: Any) -> None:
            self.put(STOP)
            for again in (signal.SIGINT, signal.SIGTERM):
                signal.signal(again, signal.SIG_DFL)

        def roll(*_: Any) -> None:
            self.put(ROLL)

        self._read_end, self._write_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        woken = signal.set_wakeup_fd(self._write_end, warn_on_full_buffer=False)
        handlers: tuple[Any, ...] = (stop, stop, roll, signal.SIG_IGN)
        before = [signal.signal(number, handler) for number, handler in zip(SIGNALS, handlers, strict=True)]
        try:
            yield
        finally:
            for number, handler in zip(SIGNALS, before, strict=True):
                signal.signal(number, handler)
            signal.set_wakeup_fd(woken)
            self._queue = SimpleQueue()  # what came and was not taken any more is over
            write_end, self._write_end = self._write_end, -1
            os.close(write_end)
            os.close(self._read_end)


EVENTS = Events()
"""Of this process: signals and its end are its own, so there is one daemon in it."""
