"""A received message and its acknowledgement. Messages are recycled: a pool keeps them with their buffers.

A message goes back to the pool only when nobody else refers to it, and its buffer only when nobody holds a view of it: a view
that a program keeps (``np.frombuffer(msg.data)``) turns the buffer into the program's own, and the pool takes a new one.
"""

from __future__ import annotations

import contextlib
from collections import deque
from sys import getrefcount
from typing import TYPE_CHECKING, Self

from .engine.errors import ClosedError, UsageError
from .engine.slot import FIRST, LENGTH, LENGTH_MASK, Slot

if TYPE_CHECKING:
    from .engine.inbound import Inbound
    from .receiver import Receiver

__all__ = ["Ack", "Message", "MessagePool"]

ITERATED = -1
"""Instead of a slot of the ack window: the current message of an iteration."""
RETRANSMIT = 8
"""enum hf_entry_flag, and UM's LBM_MSG_FLAG_RETRANSMIT."""


class Message(Slot):
    """One message. ``data`` and the numbers are valid until it is released; ``with msg:`` releases it at the end."""

    __slots__ = ("_ack_slot", "_data", "_inbound", "_last", "_live", "_live_from", "_receiver", "_retained")

    def __init__(self, receiver: Receiver) -> None:
        super().__init__()
        self._receiver = receiver
        self._inbound: Inbound | None = None
        self._data: memoryview | None = None
        self._ack_slot = ITERATED
        self._last = -1
        self._live_from = 0
        self._live = False
        self._retained = False

    def arrived(self, inbound: Inbound, ack_slot: int, last: int, live_from: int) -> None:
        """The slot was filled (receiving thread). ``last``: its number."""
        self._inbound = inbound
        self._ack_slot = ack_slot
        self._last = last
        self._live_from = live_from
        self._live = True
        self._retained = False

    def _from(self) -> Inbound:
        if not self._live or self._inbound is None or self._receiver.closed:
            raise ValueError("this message was released, or its receiver closed: its buffer belongs to another one now")
        return self._inbound

    @property
    def data(self) -> memoryview:
        """The payload, a read-only view. Raises ValueError after release."""
        self._from()
        if self._data is None:
            self._data = memoryview(self.base)[: self.entry.length].toreadonly()
        return self._data

    def __bytes__(self) -> bytes:
        if not self._live or self._receiver.closed:
            self._from()
        return self.base[: self.words[LENGTH] & LENGTH_MASK]

    def __len__(self) -> int:
        self._from()
        return int(self.entry.length)

    @property
    def sequence_number(self) -> int:
        """Of its last fragment."""
        self._from()
        return self._last

    @property
    def first_sequence_number(self) -> int:
        """Of its first fragment."""
        self._from()
        return int(self.entry.first_sequence_number)

    @property
    def timestamp_ns(self) -> int:
        """CLOCK_REALTIME at publish, nanoseconds."""
        self._from()
        return int(self.entry.timestamp_ns)

    @property
    def topic(self) -> str:
        """Topic of its source."""
        return self._from().topic

    @property
    def source(self) -> str:
        """Names the source, the same in events."""
        return self._from().source

    @property
    def is_retransmit(self) -> bool:
        """It was published before this receiver was registered, or read back after the ring had overtaken it."""
        self._from()
        return self._last < self._live_from or bool(self.entry.flags & RETRANSMIT)

    @property
    def flags(self) -> int:
        """UM's message flags: LBM_MSG_FLAG_RETRANSMIT (8)."""
        return RETRANSMIT if self.is_retransmit else 0

    @property
    def released(self) -> bool:
        """It was consumed, or the receiver was closed."""
        return not self._live

    def retain(self) -> Self:
        """Keeps the message beyond its callback or iteration, until :meth:`release`. Any thread."""
        self._from()
        self.settle()
        self._retained = True
        return self

    def settle(self) -> None:
        """Gets a record in the ack window, if it has none: something is delivered before this message is consumed."""
        inbound = self._inbound
        if self._live and self._ack_slot == ITERATED and inbound is not None and inbound.window is not None:
            self._ack_slot = inbound.window.delivered(self.words[FIRST], self._last)

    @property
    def retained(self) -> bool:
        """:meth:`retain` was called."""
        return self._retained

    def release(self) -> None:
        """Consumes the message: it counts as acknowledged with the next batch of acks. Twice is a no-op. Any thread."""
        if not self._live:
            return
        self._live = False
        inbound = self._inbound
        if inbound is not None and inbound.window is not None:
            if self._ack_slot == ITERATED:
                inbound.window.passed(self.words[FIRST], self._last)
            else:
                inbound.window.consumed(self._ack_slot)
            if self._receiver.immediate:
                inbound.acknowledge(self._last + 1)
        self.forget()

    def forget(self) -> None:
        """Ends the message without consuming it (close), and gives it back to the pool."""
        self._live = False
        pool = self._receiver.pool
        if self._data is not None:
            data, self._data = self._data, None
            with contextlib.suppress(BufferError):
                data.release()
            del data
        if getrefcount(self.base) > self.resting:  # somebody looks at the memory still: it is theirs now
            pool.kept_views += 1
            self.allocate(self.capacity)
        if len(pool.free) < pool.size:
            pool.free.append(self)

    def send_explicit_ack(self) -> None:
        """Acknowledges every message up to this one, now.

        Raises:
            UsageError: the receiver does not use ``ume_explicit_ack_only``.
        """
        self.extract_ack().send()

    def extract_ack(self) -> Ack:
        """An acknowledgement that outlives the message and its buffer."""
        return Ack(self._receiver, self._from(), self._last)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def __reduce__(self) -> tuple[object, ...]:
        raise UsageError("a message cannot be pickled", hint="send bytes(msg)")

    def __repr__(self) -> str:
        if not self._live:
            return "<Message released>"
        return f"<Message {self.topic} {self.sequence_number} {len(self)} bytes>"


class Ack:
    """An acknowledgement taken out of its message; ``close`` it when it is done with."""

    __slots__ = ("_inbound", "_receiver", "sequence_number")

    def __init__(self, receiver: Receiver, inbound: Inbound, sequence_number: int) -> None:
        self._receiver = receiver
        self._inbound: Inbound | None = inbound
        self.sequence_number = sequence_number

    def send(self, sequence_number: int | None = None) -> None:
        """Acknowledges everything up to ``sequence_number`` of the same stream (default: the message's own).

        Raises:
            UsageError: the receiver does not use ``ume_explicit_ack_only``.
            ClosedError: this ack, or its receiver, was closed.
        """
        if self._inbound is None or self._receiver.closed:
            raise ClosedError("ack")
        number = self.sequence_number if sequence_number is None else sequence_number
        self._receiver.explicit_ack(self._inbound, number)

    def close(self) -> None:
        """Lets it go. Idempotent."""
        self._inbound = None


class MessagePool:
    """Messages that wait to be used again, the longest waiting first. Its counters show that steady state allocates nothing.

    A message may come back while a variable still refers to it (``for msg in rcv`` binds the next one only when it has it): it
    waits in line, and is free by the time that it is its turn.
    """

    def __init__(self, receiver: Receiver, size: int = 1024) -> None:
        self._receiver = receiver
        self.free: deque[Message] = deque()
        self.size = size
        self.allocated = 0
        """Messages made so far."""
        self.kept_views = 0
        """Buffers that a program kept a view of beyond release."""

    def take(self) -> Message:
        """A message that nobody else refers to."""
        free = self.free
        if free:
            message = free.popleft()
            if getrefcount(message) == 2:  # this variable and the call's argument
                return message
            free.append(message)
        self.allocated += 1
        return Message(self._receiver)

    def give(self, message: Message) -> None:
        """Back from use. A deque's append and popleft are atomic: any thread may release."""
        if len(self.free) < self.size:
            self.free.append(message)
