"""A ring that is looked at from outside: messages are copied out of it, and nobody learns of it.

It has no line on the board and no bell, so the source neither waits for it nor wakes it: what the source
writes over while it is copied does not count (csrc/stream/stream.h, rule 4). Nothing is written anywhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..memory.mapping import Mapping, UnpublishedError, attach_stream, owned
from ..native.core import ffi, lib
from ..native.status import check
from .columns import entries_array

if TYPE_CHECKING:
    from .reader import Block

__all__ = ["RingCopy"]

NUMBERS_END = 2**63 - 1
ABSENT = {int(lib.HF_LAPPED), int(lib.HF_AHEAD), int(lib.HF_CLOSED), 0}
"""Why a ring has not what is asked for, and nothing is wrong with it."""


class RingCopy:
    """See the module. One thread. Raises LayoutMismatchError, CorruptionError: it is none that can be
    read."""

    def __init__(self, mapping: Mapping) -> None:
        out = ffi.new("struct hf_reader **")
        check(lib.hf_reader_open(mapping.handle, ffi.NULL, ffi.NULL, -1, out), what=mapping.name)
        self._mapping = mapping
        self._handle = owned(out[0], lib.hf_reader_close, mapping.handle)
        self._span = ffi.new("uint64_t[2]")
        self.start_sqn = int(mapping.stream.start_sqn)
        self.incarnation = int(mapping.preamble.incarnation)

    @classmethod
    def attach(cls, name: str) -> RingCopy | None:
        """The ring of this name in shared memory; None: it is gone, or not made yet."""
        try:
            return cls(attach_stream(name, populate=False))
        except (FileNotFoundError, UnpublishedError):
            return None

    def next(self) -> int:
        """Number behind the last one that is published now. Its source may be dead."""
        span = self._span
        walked = lib.hf_stream_end(self._mapping.handle, span, span + 1) >= 0
        return min(int(span[1]) if walked else int(self._mapping.stream.next_sqn), NUMBERS_END)

    def oldest(self) -> int | None:
        """Number of the oldest message that it still has, as far as its marks say; None: that cannot be
        told."""
        if lib.hf_reader_seek_oldest(self._handle) != lib.HF_OK:
            return None
        return int(lib.hf_reader_next(self._handle))

    def fill(self, number: int, block: Block, stop: int) -> bool | None:
        """Fills ``block`` with messages from ``number`` on that end before ``stop``.

        False: the ring does not have it, now or any more. None: the message that holds it ends at ``stop`` or
        behind.

        Raises:
            CorruptionError: the ring is damaged there.
            ForkedHandleError: the parent process has made this.
        """
        block.clear()
        status = int(lib.hf_reader_seek(self._handle, number)) if number >= self.start_sqn else int(lib.HF_LAPPED)
        size = 0
        while status == lib.HF_OK:
            size = block.room(4 * size)
            got = int(lib.hf_reader_copy(self._handle, block.memory, size, self._span, self._span + 1))
            if got > 0:
                return True if block.scan(got, number, stop) else None
            status = got if got != lib.HF_SMALL else int(lib.HF_OK)
            if got == 0:
                break
        if status not in ABSENT:
            check(status, what=self._mapping.name)
        return False

    def first_since(self, timestamp_ns: int, number: int, block: Block, stop: int) -> int:
        """First number from ``number`` on of a message that was sent at or after ``timestamp_ns``; ``stop``:
        there is none."""
        oldest = self.oldest()
        number = max(number, oldest if oldest is not None else number)
        while number < stop and self.fill(number, block, stop):
            entries = entries_array(block.entries, block.count)[block.index :]
            late = (entries["timestamp_ns"] >= timestamp_ns).nonzero()[0]
            if late.size:
                return int(entries["sequence_number"][late[0]])
            number = int(entries["sequence_number"][-1]) + 1
        return stop

    def first_sent(self, block: Block, stop: int) -> tuple[int, int, int] | None:
        """The oldest message that it still has, below ``stop``: its first number, its last one, and when it
        was sent."""
        oldest = self.oldest()
        if oldest is None or not self.fill(oldest, block, stop):
            return None
        entry = block.entries[block.index]
        return int(entry.first_sequence_number), int(entry.sequence_number), int(entry.timestamp_ns)
