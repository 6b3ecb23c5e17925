"""asyncio, and event loops of the program's own: how a task waits for messages.

A task that finds nothing leaves a Waker with the receiver. The context's thread listens as long as there is
one, and calls it once, when there may be something to receive: nobody spins beside a task that is slower than
its source, and no descriptor is registered for a message. Where messages come faster than they are handled,
a task gives its event loop a turn after MOST messages, or after SLICE_NS.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Self

from .engine.errors import ClosedError, UsageError
from .engine.memory.message_slot import Awaited
from .engine.native.event_loop import MOST, SLICE_NS, AsyncWith, Pace, Waker
from .engine.native.runtime import os
from .engine.native.waiting import check_timeout
from .engine.receiver.receiver import Receiver as Driver

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

    from .batch import Batch
    from .message import Message

__all__ = ["AwaitedBatches", "AwaitedMessages", "Awaiting"]

LOOK_S = 0.5
"""A task that waits looks again by then, as a thread does: a store may refuse, or a callback raise."""


class Awaiting(Driver, AsyncWith):
    """The waiting part of a receiver; the receiving part is in receiver.py."""

    _eventfd = -1
    _listens = False
    """Somebody waits at the eventfd, which nobody has signalled since the last look."""
    _task_waits: Waker | None = None
    pace: Pace
    """Of :meth:`receive_async`."""

    if TYPE_CHECKING:

        def receive(self, timeout: float | None = None) -> Message | None:
            """See Gate: csrc/python/gate.c."""

    def receive_batch(self, max_messages: int = 4096, timeout: float | None = None) -> Batch | None:
        """See Receiver."""
        raise NotImplementedError

    def leave(self, message: Any) -> None:
        """See Receiver."""
        raise NotImplementedError

    def live(self) -> Iterable[Message]:
        """See Receiver."""
        raise NotImplementedError

    # asyncio ------------------------------------------------------------------------------------------------

    async def receive_async(self, timeout: float | None = None) -> Message | None:
        """As :meth:`receive`; cancelling it loses no message. One task at a time.

        A task that finds a message each time gives the event loop a turn after 1,024 of them, or 1 ms.
        """
        import asyncio

        check_timeout(timeout)
        self._check_task()
        if self.pace.due():
            await self.pace.turn()
        deadline = asyncio.timeout(timeout)
        try:
            async with deadline:
                while (message := self.receive(timeout=0)) is None and timeout != 0:
                    await self.until_news()
        except TimeoutError:
            if not deadline.expired():
                raise
            return None
        return message

    def __aiter__(self) -> AsyncIterator[Message]:
        """Messages, as :meth:`__iter__`, until the receiver is closed. A wait for one may be cancelled; the
        iterator goes on."""
        return AwaitedMessages(self)

    def batches(self, max_messages: int = 4096) -> AsyncIterator[Batch]:
        """Batches as :meth:`receive_batch` gives them, until the receiver is closed: ``async for batch in
        rcv.batches()``.

        Each is released when the next is asked for, unless the program has done so. Where the source has
        overwritten it by then, that raises EvictedError, and the iterator goes on with the same messages,
        from the stores. One that the loop was left at is released by the next request of any form.
        """
        if max_messages < 1:
            raise UsageError(f"batches of {max_messages} messages", hint="at least 1")
        return AwaitedBatches(self, max_messages)

    async def until_news(self) -> None:
        """Suspends the task until there may be something to receive, or the receiver is closed."""
        self._check_task()
        self._task_waits = waker = Waker()
        try:
            if not self.closed:  # before: who closes from now on wakes it
                await waker.wait(self.context, LOOK_S)
        finally:
            if self._task_waits is waker:
                self._task_waits = None
            self.pace.waited()

    def _check_task(self) -> None:
        if self._task_waits is not None and not self._task_waits.is_over:
            raise UsageError("another task is receiving from this receiver", hint="one task at a time")

    # Other event loops --------------------------------------------------------------------------------------

    def fileno(self) -> int:
        """An eventfd that becomes readable when a message may be there. Read it (8 bytes) before you look."""
        if self.closed:
            raise ClosedError("receiver")
        if self._eventfd < 0:
            self._eventfd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            self.lane = None  # from now on each look is told to it; see open_lane
            self._listens = True
            self.context.wake()
        return self._eventfd

    def looked(self) -> None:
        """The program has looked. Its next wait ends at once where there is more; else the context's thread
        listens again. Receiving thread."""
        if not (self._listens or self.closed):
            if self.worth_a_look():
                self._signal()
            else:
                self._listens = True
                self.context.wake()

    def awaited(self) -> bool:
        """Somebody waits for what comes."""
        waker = self._task_waits
        return self._listens or (waker is not None and not waker.called)

    def wake(self) -> None:
        """Driver: something to look at."""
        self._listens = False
        self._signal()
        waker = self._task_waits
        if waker is not None:
            waker()

    def _signal(self) -> None:
        if self._eventfd >= 0:
            with contextlib.suppress(BlockingIOError):
                os.eventfd_write(self._eventfd, 1)

    def close_eventfd(self) -> None:
        """Also wakes who waits, for it is over."""
        with contextlib.nullcontext() if self.context.forked else self.context.turning():  # nobody else meanwhile
            self.wake()
            if self.closed and self._eventfd >= 0:
                eventfd, self._eventfd = self._eventfd, -1  # first: who closes again must not meet another one's
                os.close(eventfd)


class AwaitedMessages(Awaited):
    """``async for message in receiver``. The steps are in C (csrc/python/await.c).

    Each message is consumed when the next is asked for. Not a generator: the first wait that is cancelled
    would end it.
    """

    __slots__ = ("_receiver",)
    _receiver: Awaiting

    def __new__(cls, receiver: Awaiting, most: int = MOST, clock: Callable[[], int] | None = None) -> Self:
        """``clock``: ns; None: CLOCK_MONOTONIC."""
        self = super().__new__(cls, receiver, most, SLICE_NS, clock)
        self._receiver = receiver
        return self

    def __del__(self) -> None:
        """The loop was left, or the iterator dropped: its message is in the program's hand until the next
        request."""
        self.left()

    def flow(self) -> Iterable[Message]:
        """Messages of the one ring that serves; anything else where that is not so."""
        try:
            return self._receiver.live()
        except ClosedError:  # meanwhile, by another thread: the next step ends
            if not self._receiver.closed:  # it is of something else, that a callback has used
                raise
            return ()

    def now(self) -> Message | None:
        """A message that is there."""
        try:
            return self._receiver.receive(timeout=0)
        except ClosedError:  # as in flow()
            if not self._receiver.closed:
                raise
            return None

    async def pause(self) -> None:
        """A turn for the event loop."""
        from asyncio import sleep

        await sleep(0)

    async def wait(self) -> None:
        """Until there may be a message."""
        await self._receiver.until_news()

    def busy(self) -> None:
        """Another task awaits a message of this iterator."""
        raise UsageError("another task is receiving with this iterator", hint="one task at a time")


class AwaitedBatches:
    """``async for batch in receiver.batches()``."""

    def __init__(self, receiver: Awaiting, max_messages: int, pace: Pace | None = None) -> None:
        self._receiver, self._max_messages = receiver, max_messages
        self._batch: Batch | None = None
        """The one that was given last."""
        self._stepping = False
        self._pace = pace or receiver.pace

    def __aiter__(self) -> Self:
        return self

    def __del__(self) -> None:
        """The loop was left, or the iterator dropped."""
        if self._batch is not None:
            self._receiver.leave(self._batch)

    async def __anext__(self) -> Batch:
        if self._stepping:
            raise UsageError("another task is receiving with this iterator", hint="one task at a time")
        self._stepping = True
        try:
            return await self._step()
        finally:
            self._stepping = False

    async def _step(self) -> Batch:
        receiver = self._receiver
        batch, self._batch = self._batch, None
        if batch is not None:
            batch.release()
        del batch  # or its array would never be free for use again
        if self._pace.due():
            await self._pace.turn()
        while not receiver.closed:
            try:
                self._batch = receiver.receive_batch(self._max_messages, timeout=0)
            except ClosedError:  # as in flow() of the other one
                if not receiver.closed:
                    raise
                break
            if self._batch is not None:
                return self._batch
            await receiver.until_news()
        raise StopAsyncIteration
