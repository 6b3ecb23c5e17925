"""What ``send_batch`` takes: rows of bytes in numpy or Arrow memory, as a function that publishes from some
row on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from ..native.core import CData, ffi, lib

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["BatchInput", "feed_of"]

PIECE_BYTES = 1 << 20
"""Payload published by one call into C, which keeps the GIL: some tens of microseconds."""
PIECE_ROWS = 4096
"""The same for rows of different lengths; flight size in bytes bounds it, too."""


@dataclass(frozen=True, slots=True)
class BatchInput:
    """Rows that can be published."""

    send: Callable[[CData, int], int]
    """Publishes from row ``sent`` on; returns how many, or a status."""
    count: int
    size: Callable[[int], int]
    """Payload of a row in bytes."""
    uniform: bool
    """All rows are of one size."""
    memory: object
    """Kept alive."""


def feed_of(rows: Any) -> BatchInput:
    """What publishes these rows."""
    if hasattr(rows, "buffers") and hasattr(rows, "type"):
        return _arrow_feed(rows)
    shape = getattr(rows, "shape", None)
    if shape is None or len(shape) != 2 or getattr(rows, "dtype", None) != "uint8" or _gaps(rows):
        raise UsageError(
            "send_batch takes a (n, width) uint8 array with contiguous rows, or a pyarrow Binary array",
            hint="np.ascontiguousarray(records).view(np.uint8).reshape(n, -1)",
        )
    count, width = shape
    stride = rows.strides[0]
    if stride < 0 and count > 1:
        raise UsageError("send_batch of rows in reverse order", hint="np.ascontiguousarray(rows)")
    address = ffi.cast("const uint8_t *", rows.ctypes.data)
    piece = max(1, PIECE_BYTES // max(1, width))

    def feed(handle: CData, sent: int) -> int:
        return int(lib.hf_source_send_rows(handle, address + sent * stride, width, stride, min(count - sent, piece)))

    return BatchInput(feed, count, lambda _: int(width), True, rows)


def _gaps(rows: Any) -> bool:
    """The bytes of a row do not lie side by side. An axis of one element or none has any stride."""
    return bool(rows.size and rows.shape[1] > 1 and rows.strides[1] != 1)


def _arrow_feed(array: Any) -> BatchInput:
    name = str(array.type)
    if name not in {"binary", "large_binary", "string", "large_string"}:
        raise UsageError(f"send_batch of a pyarrow {name} array", hint="cast it to pa.binary()")
    if array.null_count:
        raise UsageError(f"send_batch of an array with {array.null_count} nulls", hint="drop_null() first")
    _, offsets, data = array.buffers()
    wide = name.startswith("large")
    at = ffi.cast("const uint8_t *", offsets.address)
    base = ffi.cast("const uint8_t *", data.address if data is not None else 0)

    def feed(handle: CData, sent: int) -> int:
        count = min(len(array) - sent, PIECE_ROWS)
        return int(lib.hf_source_send_binary(handle, base, at, wide, array.offset + sent, count))

    ends = ffi.cast("const int64_t *" if wide else "const int32_t *", offsets.address) + array.offset
    return BatchInput(feed, len(array), lambda row: int(ends[row + 1] - ends[row]), False, array)
