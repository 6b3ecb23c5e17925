"""The numpy side of messages: arrays over what the C core filled, without copying, and columns that it copies
together."""

from __future__ import annotations

from dataclasses import dataclass
from sys import getrefcount
from typing import TYPE_CHECKING, Any

from ..errors import MessageTooLargeError
from ..native import layout
from ..native.core import CData, ffi, lib
from ..native.status import check

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from .reader import Block

__all__ = [
    "FRAGMENTED", "FRAME_MIN", "VALUES_MAX", "Columns", "ColumnsMaker", "Entries", "entries_array", "new_entries",
    "read_only_bytes",
]  # fmt: skip

FRAGMENTED: int = lib.HF_ENTRY_FRAGMENTED
"""In ``Columns.flags``: the message has several fragments, so numbers jump at it. No other flag is set: a log
knows no retransmission."""
VALUES_MAX = 2**31 - 1
"""Bytes of payload that one Columns can hold: its offsets are int32, as Arrow's binary has them."""
FRAME_MIN: int = lib.HF_GRANULE
"""Bytes of a ring that the smallest message takes."""
VALUES_MIN = 1 << 18
"""Bytes that there is room for in any case, whatever the first messages are like."""


class Entries:
    """Memory for ``capacity`` entries that is used again: ``cdata`` (struct hf_entry[]) for C, an array over
    it for Python.

    Every view of the array, and every view of a view, holds a reference to the array itself (numpy leaves out
    what lies between): a reference count above the first one means that the program still looks at it.
    """

    __slots__ = ("_array", "_resting", "capacity", "cdata")

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.cdata = new_entries(capacity)
        self._array = _array(self.cdata, capacity)
        self._resting = getrefcount(self._array)

    @property
    def in_use(self) -> bool:
        """A view of the array is left somewhere."""
        return getrefcount(self._array) > self._resting

    def mark_retransmitted(self, count: int, live_from: int) -> int:
        """Numbers below ``live_from`` get the retransmission flag. Returns how many of the first ``count``
        have it."""
        return int(lib.hf_mark_retransmitted(self.cdata, count, live_from))

    def frames(self, count: int) -> NDArray[Any]:
        """(count,) array of layout.ENTRY, read-only."""
        return self._array[:count]


def new_entries(count: int) -> CData:
    """Memory for ``count`` entries (struct hf_entry[])."""
    return ffi.new("struct hf_entry[]", count)


def entries_array(entries: CData, count: int) -> NDArray[Any]:
    """As :meth:`Entries.frames`, over entries that nobody will use again."""
    return _array(entries, count)


def _array(entries: CData, count: int) -> NDArray[Any]:
    import numpy as np

    return np.frombuffer(memoryview(ffi.buffer(entries)).toreadonly(), layout.ENTRY, count)


def read_only_bytes(memory: Any) -> NDArray[np.uint8]:
    """(m,) uint8 array over a buffer. Read-only for good: numpy lets nobody take back what the buffer itself
    forbids."""
    import numpy as np

    return np.frombuffer(memoryview(memory).toreadonly(), np.uint8)


@dataclass(frozen=True, slots=True)
class Columns:
    """``count`` messages of one store, n = count. Arrays of their own, C-contiguous, which nobody writes any
    more."""

    count: int
    sequence_number: NDArray[np.int64]
    """(n,) of the last fragment."""
    first_sequence_number: NDArray[np.int64]
    """(n,)"""
    timestamp_ns: NDArray[np.int64]
    """(n,) CLOCK_REALTIME at publish."""
    flags: NDArray[np.int32]
    """(n,) FRAGMENTED or 0."""
    offsets: NDArray[np.int32]
    """(n + 1,): payload i is ``values[offsets[i]:offsets[i + 1]]``. (0,) without values."""
    values: NDArray[np.uint8]
    """(m,) payloads, back to back. (0,) without values."""
    crc: NDArray[np.int64] | None
    """(n,) CRC-32C of the payload, 0 .. 2^32 - 1; the same at every store. None when it was not asked for."""
    store: str
    """Name of the store whose log they come from; empty: they come from a ring."""

    def frames(self) -> NDArray[Any]:
        """(n,) array of layout.ENTRY, read-only; offsets count in ``values``, and no flag is set. With
        values."""
        import numpy as np

        made = np.zeros(self.count, layout.ENTRY)
        made["sequence_number"] = self.sequence_number
        made["first_sequence_number"] = self.first_sequence_number
        made["timestamp_ns"] = self.timestamp_ns
        made["offset"] = self.offsets[:-1]
        made["length"] = np.diff(self.offsets)
        made["fragments"] = self.sequence_number - self.first_sequence_number + 1
        made.flags.writeable = False
        return made


class ColumnsMaker:
    """Columns while they are filled, from block after block. As large as the first block lets expect: they
    may be full early.

    Args:
        block: the first one; it has messages.
        rows: at most this many messages.
        max_bytes: at most so much payload, unless the first message alone is larger.
        values, crc: make them.

    Raises:
        MessageTooLargeError: the first message is larger than VALUES_MAX.
    """

    def __init__(self, block: Block, rows: int, max_bytes: int, *, values: bool, crc: bool) -> None:
        import numpy as np

        lengths = _array(block.entries, block.count)["length"][block.index :]
        first, room = int(lengths[0]), 0
        if values:
            if first > VALUES_MAX:
                raise _too_large(first)
            expected = -(-int(lengths.sum(dtype=np.int64)) * rows // block.left)
            room = max(first, min(max(expected, VALUES_MIN), max_bytes, VALUES_MAX))
        self.next = 0
        """Number behind the last message that was taken."""
        self._numbers = np.empty((3, rows), np.int64)
        self._flags = np.empty(rows, np.int32)
        self._offsets = np.zeros(rows + 1 if values else 0, np.int32)
        self._data = np.empty(room, np.uint8)
        self._crc = np.empty(rows, np.int64) if crc else None
        to = self._to = ffi.new("struct hf_columns *")
        to.rows_max, to.bytes_max = rows, room
        to.sequence_number, to.first_sequence_number, to.timestamp_ns = (
            _start("int64_t[]", row) for row in self._numbers
        )
        to.flags = _start("int32_t[]", self._flags)
        if values:
            to.offsets, to.values = _start("int32_t[]", self._offsets), _start("uint8_t[]", self._data)
        if self._crc is not None:
            to.crc = _start("int64_t[]", self._crc)

    def take(self, block: Block) -> bool:
        """Takes messages off the front of ``block``. False: no more go in."""
        entries = block.entries + block.index
        taken = int(check(lib.hf_columns(block.memory, 0, entries, block.left, self._to), what="log block"))
        block.index += taken
        if taken:
            self.next = int(entries[taken - 1].sequence_number) + 1
        return not block.left and self._to.rows < self._to.rows_max

    def columns(self, store: str) -> Columns:
        """What is there; nothing is taken any more."""
        count, numbers = int(self._to.rows), self._numbers
        return Columns(
            count, numbers[0, :count], numbers[1, :count], numbers[2, :count], self._flags[:count],
            self._offsets[: count + 1], self._data[: int(self._to.bytes)],
            None if self._crc is None else self._crc[:count], store,
        )  # fmt: skip


def _start(kind: str, array: NDArray[Any]) -> CData:
    """Where C writes an array; whoever holds what is returned holds the array."""
    return ffi.from_buffer(kind, array, require_writable=True)


def _too_large(size: int) -> MessageTooLargeError:
    error = MessageTooLargeError(size, VALUES_MAX)
    error.hint = "leave the values out; holdfast store dump shows them"
    return error
