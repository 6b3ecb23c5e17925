"""Receive buffers that are used again, and the counters which show that a steady state allocates nothing."""

from __future__ import annotations

import logging
from collections import deque
from sys import getrefcount
from typing import TYPE_CHECKING, Any, cast

from .engine.log.columns import Entries
from .message import Message

if TYPE_CHECKING:
    from .releaser import Releaser

__all__ = ["EntriesPool", "MessagePool"]

_log = logging.getLogger("holdfast")

MESSAGES = 1024
"""Messages that a pool keeps; what a program holds beyond that is made and thrown away."""
ENTRIES = 8
"""Arrays for batches that are kept."""


def _alone() -> int:
    """What getrefcount says of an object that one variable refers to: 2, and 1 from Python 3.14 on."""
    only = object()
    return getrefcount(only)


ALONE = _alone()


class MessagePool:
    """Messages that wait to be used again, the longest waiting first. Its counters show that steady state
    allocates nothing.

    A message may come back while a variable still refers to it (``for msg in rcv`` binds the next one only
    when it has it): it waits in line, and is free by the time that it is its turn.
    """

    def __init__(self, receiver: Releaser, size: int = MESSAGES) -> None:
        self._receiver = receiver
        self.free: deque[Message] = deque()
        self.size = size
        self.allocated = 0
        """Messages made so far."""
        self.buffers = 0
        """Buffers made so far: with a message, when one must grow, and in place of one that a program keeps a
        view of."""
        self.most_in_use = 0
        """Messages in use at once, at most: it can grow only when one has to be made, and is looked at
        then."""
        self.kept_views = 0
        """Buffers that a program kept a view of beyond release."""

    def take(self) -> Message:
        """A message that nobody else refers to."""
        free = self.free
        if free:
            message = free.popleft()
            if getrefcount(message) == ALONE:
                return message
            free.append(message)
            message = free.popleft()  # the next in line: a program may keep a released message for ever
            if getrefcount(message) == ALONE:
                return message
            free.append(message)
        return self._make()

    def _make(self) -> Message:
        self.allocated += 1
        message = Message(cast("Any", self._receiver))  # a Gate, which C looks into
        self.most_in_use = max(self.most_in_use, self._receiver.slots - len(self.free))
        return message

    def give(self, message: Message) -> None:
        """Back from use. A deque's append and popleft are atomic: any thread may release."""
        if len(self.free) < self.size:
            self.free.append(message)

    def kept(self, name: str) -> None:
        """A view outlived its message's release. Says so once; ``name``: the receiver's."""
        self.kept_views += 1
        if self.kept_views == 1:
            _log.warning(
                "receiver %s: a view of msg.data was kept over the release of its message; the buffer is the program's own now, "
                "and a new one is allocated each time. Copy with bytes(msg), or msg.retain() and release() later",
                name,
            )

    @property
    def bytes(self) -> int:
        """Bytes of the buffers that wait."""
        return sum(message.capacity for message in tuple(self.free))


class EntriesPool:
    """The arrays that describe batches, used again when neither a batch nor a view of its ``frames`` is
    left."""

    def __init__(self) -> None:
        self._free: deque[Entries] = deque()
        self.allocated = 0
        """Arrays made so far."""

    def take(self, count: int) -> Entries:
        """Room for ``count`` entries at least. Receiving thread."""
        free = self._free
        for _ in range(len(free)):
            entries = free.popleft()
            if entries.capacity >= count and not entries.in_use:
                return entries
            if entries.capacity >= count:
                free.append(entries)
        self.allocated += 1
        return Entries(count)

    def give(self, entries: Entries) -> None:
        """Back from use; views of it may still be out. Any thread."""
        if len(self._free) < ENTRIES:
            self._free.append(entries)
