"""``async for`` over a receiver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, Self

if TYPE_CHECKING:
    from .message import Message

__all__ = ["AwaitedMessages"]


class Awaiting(Protocol):
    """The receiver that is awaited."""

    closed: bool

    def leave(self, message: Message) -> None:
        """The loop was left with this message in hand."""

    async def receive_async(self) -> Message | None:
        """The next message."""


class AwaitedMessages:
    """Its messages, for ever; each is consumed when the next is asked for.

    Not a generator: the first wait that is cancelled would end it.
    """

    def __init__(self, receiver: Awaiting) -> None:
        self._receiver = receiver
        self._message: Message | None = None
        """The one that was given last."""

    def __aiter__(self) -> Self:
        return self

    def __del__(self) -> None:
        """The loop was left, or the iterator dropped: its message is in the program's hand until the next
        request."""
        if self._message is not None:
            self._receiver.leave(self._message)

    async def __anext__(self) -> Message:
        message, self._message = self._message, None
        if message is not None:
            message.done()
        del message  # or it would never be free for use again
        while not self._receiver.closed:
            self._message = await self._receiver.receive_async()
            if self._message is not None:
                return self._message
        raise StopAsyncIteration
