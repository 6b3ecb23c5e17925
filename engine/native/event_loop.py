"""What a task of an asyncio event loop needs to wait for other threads, and to leave room for other tasks.

No descriptor is registered for a wait, and no thread is kept: the other thread calls a :class:`Waker`, once.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Protocol, Self

from .runtime import threading, time
from .threads import start_thread

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["MOST", "SLICE_NS", "AsyncWith", "Pace", "Waker"]

MOST = 1024
"""Steps that a task does in a row before it gives the event loop a turn."""
SLICE_NS = 1_000_000
"""The time after which it does so anyway."""


POLL_S = 0.002
"""How often a task does the work of a context that has no thread."""


class Working(Protocol):
    """A context, whose work makes true what a task waits for."""

    @property
    def sequential(self) -> bool:
        """It has no thread."""

    def poll(self, timeout: float | None = 0) -> int:
        """Does its work on the caller's thread."""

    def wake(self) -> None:
        """Makes its thread look around."""


class Waker:
    """Ends the wait of the task that makes it, from any thread, once."""

    def __init__(self) -> None:
        from .runtime import asyncio

        self._loop = asyncio.get_running_loop()
        self._woken = self._loop.create_future()
        self.called = False

    @property
    def is_over(self) -> bool:
        """Its event loop is closed, so nobody waits."""
        return self._loop.is_closed()

    def __call__(self) -> None:
        """Any thread."""
        self.called = True
        with contextlib.suppress(RuntimeError):  # the event loop is closed, and the task with it
            self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        if not self._woken.done():
            self._woken.set_result(None)

    async def wait(self, context: Working, limit_s: float, crowd: int = 1) -> None:
        """Until somebody calls, or the limit is over; the task that made it. The context's thread looks, and
        listens from now on; where there is none, the task does its work, as one of a ``crowd`` of them."""
        if context.sequential:
            context.poll(0)
            limit_s = min(limit_s, POLL_S * crowd)
        else:
            context.wake()
        timer = self._loop.call_later(limit_s, self._wake)
        try:
            await self._woken
        finally:
            timer.cancel()


class Pace:
    """When a task that finds something to do each time gives its event loop a turn."""

    def __init__(self, most: int = MOST, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._most, self._clock = most, clock
        self._count, self._since_ns = most, 0

    def due(self) -> bool:
        """Before each step: :meth:`turn` comes first."""
        self._count += 1
        return self._count > self._most or self._clock() - self._since_ns >= SLICE_NS

    async def turn(self) -> None:
        """Gives the event loop its turn. A task that is cancelled here has nothing in hand."""
        from .runtime import asyncio

        try:
            await asyncio.sleep(0)
        finally:  # cancelled or not, it has had its turn
            self.waited()

    def waited(self) -> None:
        """The event loop has had its turn."""
        self._count, self._since_ns = 0, self._clock()


class AsyncWith:
    """``async with`` for what has ``with``: its end, which may wait for stores, is another thread's."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: Any) -> None:
        from .runtime import asyncio

        loop = asyncio.get_running_loop()
        ended = loop.create_future()

        def end(error: BaseException | None) -> None:
            if not ended.done():
                ended.set_result(error)

        def close() -> None:
            error: BaseException | None = None
            try:
                self.__exit__(*raised)
            except BaseException as what:
                error = what
            with contextlib.suppress(RuntimeError):  # the event loop is closed: nobody waits any more
                loop.call_soon_threadsafe(end, error)

        # A thread of its own: those of the loop's pool may all wait for what only this ends. A task that is
        # cancelled meanwhile waits no longer, and it is closed all the same.
        start_thread(threading.Thread(target=close, name="holdfast-close"))
        error = await asyncio.shield(ended)
        if error is not None:
            raise error

    def __exit__(self, *raised: Any) -> None:
        raise NotImplementedError
