"""Receive buffers that are used again, and the counters which show that a steady state allocates nothing."""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Any, cast

from .engine.log.columns import Entries
from .engine.memory.message_slot import Pool
from .message import Message

if TYPE_CHECKING:
    from .releaser import Releaser

__all__ = ["EntriesPool", "MessagePool"]

_log = logging.getLogger("holdfast")

MESSAGES = 1024
"""Messages that a pool keeps; what a program holds beyond that is made and thrown away."""
ENTRIES = 8
"""Arrays for batches that are kept."""


class MessagePool(Pool):
    """Messages that wait to be used again (csrc/python/pool.c). Its counters show that steady state allocates
    nothing."""

    def __init__(self, receiver: Releaser, size: int = MESSAGES) -> None:
        self._receiver = receiver
        self.size = size
        """Messages that are kept at most."""
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

    def make(self) -> Message:
        """One more, for none that waits is free."""
        self.allocated += 1
        message = Message(cast("Any", self._receiver))  # a Gate, which C looks into
        self.most_in_use = max(self.most_in_use, self._receiver.slots - len(self))
        return message

    def kept(self, name: str) -> None:
        """A view outlived its message's release. Says so once; ``name``: the receiver's."""
        self.kept_views += 1
        if self.kept_views == 1:
            _log.warning(
                "receiver %s: a view of msg.data was kept over the release of its message; the buffer is the program's own now, "
                "and a new one is allocated each time. Copy with bytes(msg), or msg.retain() and release() later",
                name,
            )


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
