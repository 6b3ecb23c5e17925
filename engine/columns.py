"""Arrays over what the C core filled, without copying: the numpy side of batches."""

from __future__ import annotations

from sys import getrefcount
from typing import TYPE_CHECKING, Any

from . import layout
from .core import CData, ffi, lib

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Entries", "entries_array", "mark_retransmissions", "new_entries", "read_only_bytes"]


class Entries:
    """Memory for ``capacity`` entries that is used again: ``cdata`` (struct hf_entry[]) for C, an array over it for Python.

    Every view of the array, and every view of a view, holds a reference to the array itself (numpy leaves out what lies
    between): a reference count above the first one means that the program still looks at it.
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

    def frames(self, count: int, live_from: int) -> NDArray[Any]:
        """(count,) array of layout.ENTRY, read-only; numbers below ``live_from`` get the retransmission flag."""
        return _flagged(self._array[:count], live_from)


def new_entries(count: int) -> CData:
    """Memory for ``count`` entries (struct hf_entry[])."""
    return ffi.new("struct hf_entry[]", count)


def entries_array(entries: CData, count: int, live_from: int) -> NDArray[Any]:
    """As :meth:`Entries.frames`, over entries that nobody will use again."""
    return _flagged(_array(entries, count), live_from)


def mark_retransmissions(entries: CData, count: int) -> None:
    """All of them were read back from a log."""
    _array(entries, count)["flags"] |= lib.HF_ENTRY_RETRANSMIT


def _array(entries: CData, count: int) -> NDArray[Any]:
    import numpy as np

    return np.frombuffer(memoryview(ffi.buffer(entries)), layout.ENTRY, count)


def _flagged(array: NDArray[Any], live_from: int) -> NDArray[Any]:
    if int(array["sequence_number"][0]) < live_from:
        old = array["sequence_number"] < live_from
        array["flags"][old] |= lib.HF_ENTRY_RETRANSMIT
    array.flags.writeable = False
    return array


def read_only_bytes(memory: Any) -> NDArray[np.uint8]:
    """(m,) uint8 array over a buffer, read-only."""
    import numpy as np

    array = np.frombuffer(memory, np.uint8)
    array.flags.writeable = False
    return array
