"""What ``send_batch`` takes: rows of bytes in numpy or Arrow memory, or a list of messages, as a function
that publishes from some row on."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from ..native.core import CData, ffi, lib

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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
    if isinstance(rows, list | tuple):
        return _listed_feed(rows)
    shape = getattr(rows, "shape", None)
    if shape is None or len(shape) != 2 or getattr(rows, "dtype", None) != "uint8" or _gaps(rows):
        raise UsageError(
            "send_batch takes a list of bytes, a (n, width) uint8 array with contiguous rows, or a pyarrow Binary array",
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


def _listed_feed(messages: Sequence[Any]) -> BatchInput:
    """Joined once, then as an Arrow array: one call into C publishes thousands. C believes the offsets, so
    the sizes are those of what is joined: nobody can resize what a view is kept of."""
    parts = [_part(index, message) for index, message in enumerate(messages)]
    sizes = [part.nbytes if isinstance(part, memoryview) else len(part) for part in parts]
    data = b"".join(parts)
    ends = ffi.new("int64_t[]", [0, *accumulate(sizes)])
    base, at = ffi.from_buffer("uint8_t[]", data), ffi.cast("const uint8_t *", ends)

    def feed(handle: CData, sent: int) -> int:
        return int(lib.hf_source_send_binary(handle, base, at, True, sent, min(len(sizes) - sent, PIECE_ROWS)))

    return BatchInput(feed, len(sizes), sizes.__getitem__, False, (data, ends, base))


def _part(index: int, message: Any) -> bytes | memoryview:
    """One message, as bytes or as a view that holds its size. Raises TypeError, BufferError."""
    if type(message) is bytes:
        return message
    if isinstance(message, str):
        raise TypeError(f"message {index} of send_batch is text: text.encode() gives the bytes of a str")
    try:
        view = memoryview(message)
    except TypeError:
        kind = type(message).__name__
        raise TypeError(f"message {index} of send_batch is of type {kind}: a message is bytes-like") from None
    if not view.c_contiguous:
        raise BufferError(f"message {index} of send_batch is not contiguous in memory: bytes(message) makes it so")
    return view
