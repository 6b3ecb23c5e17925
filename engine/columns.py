"""Arrays over what the C core filled, without copying: the numpy side of batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import layout
from .core import CData, ffi

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["entries_array", "new_entries", "read_only_bytes"]


def new_entries(count: int) -> CData:
    """Uninitialised-by-convention memory for ``count`` entries (struct hf_entry[])."""
    return ffi.new("struct hf_entry[]", count)


def entries_array(entries: CData, count: int, live_from: int) -> NDArray[Any]:
    """(count,) array of layout.ENTRY over ``entries``; numbers below ``live_from`` get the retransmission flag."""
    import numpy as np

    array: NDArray[Any] = np.frombuffer(memoryview(ffi.buffer(entries)), layout.ENTRY, count)
    if int(array["sequence_number"][0]) < live_from:
        old = array["sequence_number"] < live_from
        array["flags"][old] |= 8
    array.flags.writeable = False
    return array


def read_only_bytes(memory: Any) -> NDArray[np.uint8]:
    """(m,) uint8 array over a buffer, read-only."""
    import numpy as np

    array = np.frombuffer(memory, np.uint8)
    array.flags.writeable = False
    return array
