"""Receiving: by message, in batches, by iterating, by callback, with asyncio. One thread at a time."""

from __future__ import annotations

import contextlib
from collections import deque
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

from .aio import Awaiting
from .batch import Batch
from .counters import ReceiverStats
from .engine.errors import ClosedError, UsageError
from .engine.log.columns import FRAME_MIN
from .engine.memory.message_slot import Flow
from .engine.native.event_loop import Pace
from .engine.native.runtime import time
from .engine.native.waiting import PLAIN, check_timeout, nanoseconds
from .engine.printable import printable
from .engine.receiver.arrival_order import resume
from .engine.shown import Shown
from .pool import EntriesPool, MessagePool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from .engine.client.context import Context
    from .engine.log.columns import Entries
    from .engine.options.resolve import Options
    from .engine.receiver.delivery_controller import DeliveryController
    from .engine.receiver.feed import View
    from .engine.rules.chosen_start import ChosenStart
    from .message import Message

__all__ = ["Receiver", "ReceiverStats"]

Given = TypeVar("Given")
WAIT_NS = 100_000_000
WAIT_S = WAIT_NS / 1e9
LEAVE_S = 0.25
CALLBACKS_PER_TURN = 256
BATCH_BYTES = 4 << 20
"""A batch spans at most this much of a ring."""
BATCH_MAX = BATCH_BYTES // FRAME_MIN
"""More messages than that do not fit in there."""


class Receiver(Shown, Awaiting):
    """The messages of one topic, or of all topics that a pattern matches. Made by ``Context.receiver``.

    >>> import holdfast as hf
    >>> with hf.Context() as ctx:
    ...     src, rcv = ctx.source("quotes"), ctx.receiver("quotes")
    ...     src.wait_registered(timeout=10)
    ...     numbers = [src.send(payload, timeout=10) for payload in (b"1", b"2", b"3", b"4")]
    ...     first = rcv.receive(timeout=10)      # not consumed until it is released; hold any number
    ...     for msg in rcv:                      # each is consumed when the next one is asked for
    ...         print(msg.sequence_number, bytes(msg))
    ...         if msg.sequence_number == 2:
    ...             break
    ...     first.release()
    ...     with rcv.receive_batch(timeout=10) as batch:  # many at once, in place
    ...         print(batch.payloads()[0].tobytes())
    1 b'2'
    2 b'3'
    b'4'

    Also ``async for msg in rcv``, ``async for batch in rcv.batches()``, and a callback that the context's
    thread calls: ``ctx.receiver("quotes", on_message=print)``. One thread at a time receives; ``release`` and
    acknowledgements may come from any.
    """

    _shown = (
        "acknowledge_skipped", "batches", "close", "deregister", "fileno", "name", "receive", "receive_async",
        "receive_batch", "stats",
    )  # fmt: skip

    def __init__(
        self, context: Context, topic: str | None, pattern: str | None, options: Options,
        on_message: Callable[[Message], object] | None, on_event: Callable[[Any], object] | None, chosen: ChosenStart | None,
    ) -> None:  # fmt: skip
        super().__init__(context, topic, pattern, options, on_event, chosen)
        self.pool = MessagePool(self)
        self.entries = EntriesPool()
        self._on_message = on_message
        self.pace = Pace()
        self._turn_of = 0
        self._evicted: deque[tuple[DeliveryController, int]] = deque()
        self._in_hand: deque[Message | Batch] = deque()
        """Of iterations that were left; ``left`` says that there is something. So does ``again`` of
        ``_evicted``."""
        self.immediate = not (options.ume_use_ack_batching or options.ume_explicit_ack_only)
        """Each consumed message is acknowledged at once, with its own number, as UM does."""

    # Pull ---------------------------------------------------------------------------------------------------

    def receive_slowly(self, timeout: float | None) -> Message | None:
        """Gate: the rest of ``receive`` (csrc/python/gate.c), where its lane has no message."""
        if timeout is not None and not (timeout.__class__ in PLAIN and timeout >= 0):
            check_timeout(timeout)
        return self._request(lambda: self._look(timeout))

    def _look(self, timeout: float | None) -> Message | None:
        if len(self.controllers) == 1:
            self.open_lane()  # for the next call, while this one has nothing in its hand
        message = self._try_receive()
        if message is None and (timeout != 0 or not self.controllers):  # a program may poll as fast as it can
            message = self._wait_receive(timeout)
        return message

    def _request(self, look: Callable[[], Given]) -> Given:
        """What ``look`` gives, as the one thread that receives. After any exception what was taken and has no
        record is delivered again."""
        self._enter()
        try:
            if self.left:
                self._consume_left()
            return look()
        except BaseException:
            for controller in () if self.context.forked else self.controllers:
                resume(controller.feed, controller.window)
            raise
        finally:  # no call before the inner one: a signal handler that raises there would leave it receiving
            try:
                if self._eventfd >= 0:
                    self.looked()  # while no close() may close the eventfd
            finally:
                self.receiving = False

    def _enter(self) -> None:
        """Only one thread receives; who has entered sets ``receiving`` to False in the end.

        No call lies between the look, the store and the caller's ``try``: neither another thread nor a signal
        handler that raises comes in between.
        """
        if self.receiving:
            if self.closed:  # a close() that is at work holds it, and leaves it to nobody
                raise ClosedError("receiver")
            self.context.check_usable()
            raise UsageError("another thread is receiving from this receiver", hint="one thread at a time")
        self.receiving = True

    @contextlib.contextmanager
    def not_receiving(self) -> Iterator[None]:
        """Driver: a thread that is receiving leaves first, which takes it 100 ms at most.

        Longer than LEAVE_S: it is this thread, interrupted by the signal handler that closes. It goes on.
        """
        deadline = time.monotonic() + LEAVE_S
        while self.receiving and time.monotonic() < deadline:
            time.sleep(0.001)
        if entered := not self.receiving:
            self.receiving = True
        try:
            yield
        finally:
            if entered:
                self.receiving = False

    def leave(self, message: Message | Batch) -> None:
        """An iteration was left (break, exception, dropped iterator) while this message was its current one.

        The next request, of any form, consumes it, as the iteration would have done. Any thread.
        """
        self._in_hand.append(message)
        self.left = True  # last: who sees it finds the message

    def consume_left(self) -> None:
        """A request that does not come through :meth:`receive` begins."""
        if self.left:
            self._enter()
            try:
                self._consume_left()
            finally:
                self.receiving = False

    def _consume_left(self) -> None:
        """Consumes what is in hand of iterations that were left, unless it is retained. Receiving thread."""
        self.left = False
        while self._in_hand:
            message = self._in_hand.popleft()
            controller = message._controller
            message.done()
            if controller is not None and controller.dozing:
                controller.stir()  # there is something to acknowledge, and perhaps no message behind it

    def _check_pull(self) -> None:
        if self.closed:
            raise ClosedError("receiver")
        if self._on_message is not None:
            raise UsageError("this receiver has a callback", hint="make one without on_message")
        self.context.check_usable()
        self.context.raise_callback_error()

    def _may_wait(self, called_ns: int, timeout: float | None) -> int:
        """How long a call that found nothing waits before it looks again, ns; 0: its time is over."""
        if not self.controllers and (failure := self.failure(called_ns if timeout != 0 else 0)) is not None:
            raise failure
        left = WAIT_NS if timeout is None else min(WAIT_NS, called_ns + nanoseconds(timeout) - time.monotonic_ns())
        if left > 0 and self.context.sequential:
            self.context.poll(0)
        return max(left, 0)

    def _try_receive(self) -> Message | None:
        """A message that is there now."""
        if self.again:
            self._go_back()
        controllers = self.controllers
        message = self.pool.take()
        for _ in range(len(controllers)):
            turn = self._turn_of
            self._turn_of = turn + 1 if turn + 1 < len(controllers) else 0
            controller = controllers[turn if turn < len(controllers) else 0]
            feed = controller.feed
            if feed is not None and feed.receive(message):
                return self._arrived(controller, message)
        self.pool.give(message)
        self._check_pull()
        return None

    def _in_turn(self) -> tuple[DeliveryController, ...]:
        """The sources, each time another one first; what :meth:`_try_receive` does by hand."""
        controllers = self.controllers
        if len(controllers) < 2:
            return controllers
        turn = self._turn_of = (self._turn_of + 1) % len(controllers)
        return controllers[turn:] + controllers[:turn]

    def _arrived(self, controller: DeliveryController, message: Message) -> Message:
        """The slot was filled."""
        assert controller.feed is not None
        return cast("Message", self.arrived(controller, controller.feed.live_from, message))

    def take_back(self, controller: DeliveryController, message: Message) -> None:
        """Gate: an exception, of a signal handler as a rule, came before the program had this message, so it
        is delivered again."""
        self.lane = None
        if controller.window is not None:
            controller.window.take_back(message.first_number)
        message.forget()
        resume(controller.feed, controller.window)

    def _wait_receive(self, timeout: float | None) -> Message | None:
        called_ns = time.monotonic_ns()
        while limit := self._may_wait(called_ns, timeout):
            controller = self._alone()
            if controller is None:
                self._wait_any(limit)
            message = self._try_receive() if controller is None else self._wait_one(controller, limit)
            if message is not None:
                return message
            self._check_pull()
        return None

    def _alone(self) -> DeliveryController | None:
        """The one source, if a wait may look at its ring alone: more may come from it."""
        controllers = self.controllers
        feed = controllers[0].feed if len(controllers) == 1 else None
        ring = feed.ring if feed is not None else None
        return controllers[0] if ring is not None and not ring.over else None

    def _wait_one(self, controller: DeliveryController, limit_ns: int) -> Message | None:
        """In C, on the ring itself: the fastest way to a message."""
        assert controller.feed is not None
        if self.open_lane():
            found = cast("Message | None", self.wait_in_lane(limit_ns))
            return self._try_receive() if found is None and (self.lane is None or controller.feed.newer) else found
        message = self.pool.take()
        if controller.feed.wait(message, self.strategy, limit_ns):
            return self._arrived(controller, message)
        self.pool.give(message)
        return None

    def _wait_any(self, limit_ns: int) -> None:
        """On this process's bell, with every line's flag set."""
        self.context.sleep_on_bell(self.prepare_sleep, limit_ns)
        self.awake()

    def __iter__(self) -> Iterator[Message]:
        """Messages for ever; each is consumed when the next is asked for, unless it is retained or released.

        Also one that the loop was left at (``break``, an exception): the next request consumes it, whatever
        its form. To have it again after a restart, ask for nothing more, or ``retain`` it.
        """
        while True:
            yield from self.live()
            message = self.receive(timeout=WAIT_S)
            if message is not None:
                try:
                    yield message
                except BaseException:  # GeneratorExit: the loop was left
                    self.leave(message)
                    raise
                message.done()
            del message  # or it would never be free for use again

    def live(self) -> Iterable[Message]:
        """As :meth:`__iter__`, while one ring serves: the loop is in C (csrc/python/flow.c)."""
        if self.context.sequential or not self.open_lane():
            return ()
        self.consume_left()
        return cast("Iterable[Message]", Flow(self, WAIT_NS)) if self.lane is not None else ()

    def open_lane(self) -> bool:
        """Whether C may look into the ring alone (csrc/python/lane.c): one source, which it serves."""
        if self.has_lane():
            return True
        controllers = self.controllers  # first: the lane ends where they are other ones
        controller = self._alone()
        if controller is None or self._on_message is not None or self._eventfd >= 0 or self.closed:
            return False
        live, window = controller.live, controller.window
        if live is None or window is None or (ring := live.ring) is None:
            return False
        self.lane = ring.lane(controllers, controller, live, self.strategy)
        if self._eventfd >= 0:  # somebody has asked for it meanwhile
            self.lane = None
        return self.has_lane()

    # Batches ------------------------------------------------------------------------------------------------

    def receive_batch(self, max_messages: int = 4096, timeout: float | None = None) -> Batch | None:
        """Up to ``max_messages`` messages of one source in place, or None when the timeout is over.

        Raises:
            As :meth:`receive`.
        """
        if max_messages < 1:
            raise UsageError(f"receive_batch of {max_messages} messages", hint="at least 1")
        check_timeout(timeout)
        return self._request(lambda: self._look_for_batch(min(max_messages, BATCH_MAX), timeout))

    def _look_for_batch(self, maximum: int, timeout: float | None) -> Batch | None:
        called_ns = time.monotonic_ns()
        while (batch := self._try_batch(maximum)) is None and (limit := self._may_wait(called_ns, timeout)):
            controller = self._alone()
            if controller is not None and (feed := controller.feed) is not None and feed.ring is not None:
                feed.ring.wait(self.strategy, limit)
            else:
                self._wait_any(limit)
        return batch

    def _try_batch(self, maximum: int) -> Batch | None:
        self._check_pull()
        if self.again:
            self._go_back()
        entries = self.entries.take(maximum)
        for controller in self._in_turn():
            if controller.feed is not None:
                view = controller.feed.batch(entries.cdata, maximum, BATCH_BYTES)
                if view is not None:
                    return self._batch(controller, view, entries)
        self.entries.give(entries)
        return None

    def _batch(self, controller: DeliveryController, view: View, entries: Entries) -> Batch:
        feed, window = controller.feed, controller.window
        assert feed is not None
        assert window is not None
        redelivered = entries.mark_retransmitted(view.count, feed.live_from)
        frames = entries.frames(view.count)
        first, last = int(view.entries[0].first_sequence_number), int(view.entries[view.count - 1].sequence_number)
        batch = Batch(self, controller, view, entries, frames, window.delivered(first, last))
        if controller.dozing:
            controller.stir()
        controller.delivered += view.count
        controller.redelivered += redelivered
        return batch

    @property
    def outstanding(self) -> int:
        """Fragments delivered and not consumed; 0 where nobody counts them."""
        return 0

    def was_consumed(self, controller: DeliveryController, ack_slot: int, last: int) -> None:
        """A message or a batch, which ends with number ``last``, was released in time."""
        if self.immediate:
            controller.consumed(ack_slot, last + 1)
        elif controller.window is not None:
            controller.window.consumed(ack_slot)

    def batch_evicted(self, controller: DeliveryController, ack_slot: int) -> None:
        """A batch was overwritten. Any thread; the receiving one goes back before it delivers more."""
        self._evicted.append((controller, ack_slot))
        self.again = True  # last: who sees it finds the batch

    def _go_back(self) -> None:
        """From an evicted batch on all is delivered again. Until then its record holds the acks back."""
        self.again = False
        self.lane = None
        while self._evicted:
            controller, ack_slot = self._evicted.popleft()
            if controller.window is not None and controller.feed is not None:
                again = controller.window.rewind(ack_slot)
                if again is not None:
                    controller.feed.seek(again)

    # Callback -----------------------------------------------------------------------------------------------

    def dispatch(self) -> int:
        """Callback form: the context's thread. Wakes who awaits messages in another form."""
        if self._on_message is None:
            if self.awaited() and self.worth_a_look():
                self.wake()
            return 0
        count = 0
        while count < CALLBACKS_PER_TURN and not self.closed:
            message = self._try_callback()
            if message is None:
                break
            count += 1
            if self._events:  # what happened before this message is told before it
                self.deliver_events()
            self.context.callback(self._on_message, message, self.options)
            message.done()
        return count

    def _try_callback(self) -> Message | None:
        message = self.pool.take()
        for controller in self._in_turn():
            if controller.feed is not None and controller.feed.receive(message):
                return self._arrived(controller, message)
        self.pool.give(message)
        return None

    def wants_messages(self) -> bool:
        """The context's thread must wake for messages."""
        return self._on_message is not None or self.awaited()

    # The end ------------------------------------------------------------------------------------------------

    def acknowledge_skipped(self) -> int:
        """Acknowledges what this receiver's start has skipped, of every source; returns how many numbers.

        A start that begins behind the session's position (``retransmit_request_maximum``, a recovery
        callback, ``use_late_join`` 0) moves nothing: only the next acknowledgement does, and covers what was
        skipped. Where a receiver-paced source waits for that, and no message can come because of it, this
        call is the acknowledgement. Any thread.
        """
        self.context.check_usable()
        if self.closed:
            raise ClosedError("receiver")
        return sum(controller.acknowledge_skipped() for controller in self.controllers)

    def stats(self) -> ReceiverStats:
        """A snapshot of counters."""
        return ReceiverStats.of(self.controllers, self.past, self.pool, self.entries, self.outstanding)

    def close(self, timeout: float | None = None) -> None:
        """Flushes due acks, invalidates unreleased messages unconsumed, frees the RegIDs. Idempotent.

        Raises what a callback raised, if ``callback_errors`` is ``raise`` and nobody has got it yet; it is
        closed then.
        """
        check_timeout(timeout)
        self._close(timeout)
        self.context.child_closed()

    def _close(self, timeout: float | None) -> None:
        with contextlib.ExitStack() as stack:
            stack.callback(self.close_eventfd)  # also where somebody interrupts that
            super().close(timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._close(None)
        if kind is None:  # what ended the block goes before what a callback raised
            self.context.child_closed()

    def __reduce__(self) -> tuple[object, ...]:
        raise UsageError("a receiver cannot be pickled", hint="make one in the other process, with a session ID")

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"sources={len(self.controllers)}"
        return printable(f"<Receiver {self.name} {state}>")
