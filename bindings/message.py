"""A received message and its acknowledgement. Messages are recycled: a pool keeps them with their buffers.

A message goes back to the pool only when nobody else refers to it, and its buffer only when nobody holds a
view of it: a view that a program keeps (``np.frombuffer(msg.data)``) turns the buffer into the program's own,
and the pool takes a new one.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Self

from .engine.errors import ClosedError, UsageError
from .engine.memory.message_slot import Slot
from .engine.printable import printable
from .engine.shown import Shown

if TYPE_CHECKING:
    from .engine.receiver.delivery_controller import DeliveryController
    from .releaser import Releaser

__all__ = ["Ack", "Message"]

NUMBERS = 2**63
"""Sequence numbers are below."""
RETRANSMIT = 8
"""enum hf_entry_flag, and UM's LBM_MSG_FLAG_RETRANSMIT."""


class Message(Shown, Slot):
    """One message. ``data`` and the numbers are valid until it is released; ``with msg:`` releases it at the
    end.

    >>> import holdfast as hf
    >>> with hf.Context() as ctx:
    ...     src, rcv = ctx.source("quotes"), ctx.receiver("quotes")
    ...     src.wait_registered(timeout=10)
    ...     number = src.send(b"payload", timeout=10)
    ...     msg = rcv.receive(timeout=10)
    ...     print(msg.topic, msg.sequence_number, len(msg), bytes(msg.data[:3]))
    ...     msg.release()
    ...     msg.released
    quotes 0 7 b'pay'
    True

    Also when the block raises: to have it again after a restart, leave it unreleased. ``data``,
    ``bytes(msg)``, ``len(msg)``, ``sequence_number``, ``timestamp_ns`` and ``released`` are in
    csrc/python/slot.c, as is ``release()``; ``_from`` gives its source, or raises ValueError.
    """

    _shown = (
        "can_send_explicit_ack", "data", "extract_ack", "first_sequence_number", "flags", "fragments", "is_retransmit",
        "release", "released", "retain", "retained", "send_explicit_ack", "sequence_number", "source", "timestamp_ns",
        "topic",
    )  # fmt: skip
    __slots__ = ()  # no weak references: the object is used again, and one would lead to another message

    if TYPE_CHECKING:

        @property
        def _receiver(self) -> Releaser: ...
        @property
        def _controller(self) -> DeliveryController | None: ...
        @_controller.setter
        def _controller(self, controller: DeliveryController) -> None: ...
        def _from(self) -> DeliveryController: ...

    def allocate(self, capacity: int) -> None:
        """As Slot, and counts it."""
        super().allocate(capacity)
        self._receiver.pool.buffers += 1

    @property
    def first_sequence_number(self) -> int:
        """Of its first fragment."""
        self._from()
        return self.first_number

    @property
    def fragments(self) -> int:
        """How many; each has a sequence number, and together they are one message."""
        self._from()
        return self.entry_fragments

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
        """It was published before this receiver was registered, or read back after the ring had overtaken
        it."""
        self._from()
        return self.last_number < self._live_from or bool(self.entry_flags & RETRANSMIT)

    @property
    def flags(self) -> int:
        """UM's message flags: LBM_MSG_FLAG_RETRANSMIT (8)."""
        return RETRANSMIT if self.is_retransmit else 0

    def retain(self) -> Self:
        """Keeps the message beyond its callback or iteration, until :meth:`release`. Any thread."""
        self._from()
        self._retained = True
        return self

    @property
    def retained(self) -> bool:
        """:meth:`retain` was called."""
        return self._retained

    def consumed_by_call(self) -> None:
        """It is released, and more is to be done than to mark its record: it is acknowledged at once, or its
        window counts."""
        if self._controller is not None:
            self._receiver.was_consumed(self._controller, self._ack_slot, self.last_number)

    def __del__(self) -> None:
        """The program has dropped it unreleased, so nothing behind it will be acknowledged: a leak, like an
        open file."""
        receiver, controller = self._receiver, self._controller
        if not self._live or controller is None or receiver.closed or receiver.context.forked:
            return
        if not receiver.options.ume_explicit_ack_only:  # there releasing means nothing
            text = f"message {self.last_number} of topic {controller.topic!r} was collected without release"
            hint = "it is not acknowledged, nor is what comes behind it: release() it, or use `with`"
            warnings.warn(f"{text}: {hint}", ResourceWarning, stacklevel=2, source=self)

    def renew(self) -> None:
        """Another buffer: the program looks at this one still, so it is the program's now."""
        self._receiver.pool.kept(self._receiver.name)
        self.allocate(self.capacity)

    @property
    def can_send_explicit_ack(self) -> bool:
        """The receiver uses ``ume_explicit_ack_only`` (UM: lbm_msg_ume_can_send_explicit_ack)."""
        self._from()
        return bool(self._receiver.options.ume_explicit_ack_only)

    def send_explicit_ack(self) -> None:
        """Acknowledges every message up to this one, now (docs/semantics.md G.4).

        Raises:
            UsageError: the receiver does not use ``ume_explicit_ack_only``.
        """
        self.extract_ack().send()

    def extract_ack(self) -> Ack:
        """An acknowledgement that outlives the message and its buffer. One for each stream is enough."""
        controller = self._from()
        return Ack(self._receiver, controller, self._ack_slot, self.last_number)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def __reduce__(self) -> tuple[object, ...]:
        raise UsageError("a message cannot be pickled", hint="send bytes(msg)")

    def __repr__(self) -> str:
        if not self._live or self._receiver.closed or self._controller is None:
            return "<Message released>"
        first, last = self.first_number, self.last_number
        numbers = f"{last}" if first == last else f"{first}..{last}"
        again = " retransmission" if self.is_retransmit else ""
        held = " retained" if self._retained else ""
        return printable(f"<Message {self._controller.topic} {numbers}, {len(self)} bytes{again}{held}>")


class Ack:
    """An acknowledgement taken out of its message or batch (docs/semantics.md G.5); ``close`` it when it is
    done with.

    It knows its stream only: the message and its buffer may be released, used again and forgotten. Any
    thread.
    """

    __slots__ = ("_controller", "_receiver", "_slot", "sequence_number")

    def __init__(self, receiver: Releaser, controller: DeliveryController, slot: int, sequence_number: int) -> None:
        self._receiver = receiver
        self._controller: DeliveryController | None = controller
        self._slot = slot
        self.sequence_number = sequence_number
        """Of the message that it was taken out of."""

    def _checked(self, sqn: int | None) -> tuple[DeliveryController, int]:
        """What may be acknowledged now."""
        controller, receiver = self._controller, self._receiver
        if controller is None or receiver.closed:
            raise ClosedError("this ack" if controller is None else "this ack's receiver")
        receiver.context.check_usable()
        if not receiver.options.ume_explicit_ack_only:
            raise UsageError(
                "an explicit ack on a receiver that acknowledges by itself", hint="ume_explicit_ack_only=1"
            )
        number = self.sequence_number if sqn is None else int(sqn)
        if not 0 <= number < NUMBERS:
            raise UsageError(f"an explicit ack of number {number}", hint="a sequence number of this stream")
        end = controller.published(number) if number > self.sequence_number else number + 1
        if number >= end:
            raise UsageError(
                f"an explicit ack of number {number}, which is not known to be published: the last one is {end - 1}",
                hint="the number of a message that came; it would acknowledge what is still to come",
            )
        return controller, number

    def send(self, sqn: int | None = None) -> None:
        """Acknowledges everything up to number ``sqn`` of the same stream (default: the message's own).

        A number that is acknowledged already, or a lower one, has no effect. One that was published and not
        received yet is taken too. Where the source has begun anew at a number below, the ack ends there: the
        numbers from there on are other messages now.

        Raises:
            UsageError: the receiver does not use ``ume_explicit_ack_only``; not a number that was published.
            ClosedError: this ack, or its receiver, was closed.
            ForkedHandleError: it belongs to the parent process.
        """
        controller, number = self._checked(sqn)
        controller.acknowledge(self._slot, number + 1)
        if controller.window is not None:
            controller.window.not_outstanding(number)

    def mark_not_outstanding(self, sqn: int | None = None) -> None:
        """Everything up to number ``sqn`` no longer counts for ``ume_application_outstanding_maximum``.

        Nothing is acknowledged. Sending the ack does it too.

        Raises:
            UsageError, ClosedError, ForkedHandleError: as :meth:`send`.
        """
        controller, number = self._checked(sqn)
        if controller.window is not None:
            controller.window.not_outstanding(number)

    def close(self) -> None:
        """Lets it go. Idempotent."""
        self._controller = None

    def __reduce__(self) -> tuple[object, ...]:
        raise UsageError("an ack cannot be pickled", hint="send its sequence_number to who receives")

    def __repr__(self) -> str:
        if self._controller is None or self._receiver.closed:
            return f"<Ack {self.sequence_number} closed>"
        return printable(f"<Ack {self._controller.topic} {self.sequence_number}>")
