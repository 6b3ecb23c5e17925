"""A block of a channel: bytes that a peer of this user wrote, read in place as an Arrow record batch
(holdfast.channel).

What is accepted must be fit for use: another reading of the offsets, by numpy and by the format's rules
alone, finds every one of them inside its buffer; then Arrow copies all of it, text included.
"""

from __future__ import annotations

from contextlib import suppress
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa

from holdfast.channel import _batch_of
from holdfast.engine.errors import CorruptionError

if TYPE_CHECKING:
    from holdfast.engine.channel.channel import Block

__all__ = ["WORDS", "run_block", "seeds_block"]

WORDS = (
    *(number.to_bytes(4, "little", signed=True) for number in (-1, 1, 0x7FFFFFFF, -0x80000000, 0x1000)),
    *(number.to_bytes(8, "little", signed=True) for number in (-1, 1 << 40, 0)),
    *(b"\xff\xff\xff\xff", b"ARROW1", b"\x80\xc3"),
)


def run_block(data: bytes) -> None:
    """Raises nothing but CorruptionError."""
    buffer = pa.py_buffer(data)
    block = cast("Block", SimpleNamespace(address=buffer.address, size=buffer.size, index=0, kept=buffer))
    try:
        batch = _batch_of(block, "t") if data else None
    except CorruptionError:
        return
    if batch is None:
        return
    for column in batch.columns:
        _check(column)
    with suppress(pa.ArrowNotImplementedError), pa.ipc.new_stream(pa.MockOutputStream(), batch.schema) as stream:
        stream.write_batch(batch)
    for column in batch.columns:
        with suppress(pa.ArrowNotImplementedError):  # not for every type that a mutant makes of another
            pa.concat_arrays([column, column])


def _check(array: Any) -> None:
    kind, buffers = array.type, array.buffers()
    if pa.types.is_dictionary(kind):
        _check(array.dictionary)
        known = [index for index in array.indices.to_pylist() if index is not None]
        assert all(0 <= index < len(array.dictionary) for index in known)
        return
    wide = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind) or pa.types.is_large_list(kind)
    text = pa.types.is_string(kind) or pa.types.is_binary(kind)
    lists = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    if not (wide or text or lists) or not len(array):
        return
    size = np.dtype(np.int64 if wide else np.int32)
    assert buffers[1] is not None
    assert buffers[1].size >= (array.offset + len(array) + 1) * size.itemsize
    offsets = np.frombuffer(buffers[1], size, len(array) + 1, array.offset * size.itemsize)
    end = len(array.values) if lists else buffers[2].size if buffers[2] is not None else 0
    assert (np.diff(offsets) >= 0).all()
    assert offsets[0] >= 0
    assert offsets[-1] <= end
    if lists:
        _check(array.values)


def seeds_block() -> list[bytes]:
    """One batch for each way in which Arrow leads a reader from one buffer to another, and one without
    any."""
    words = ["one", "two", None, "three"] * 4
    columns: list[dict[str, Any]] = [
        {"s": pa.array(words), "x": pa.array(np.arange(16.0))},
        {"b": pa.array([word.encode() if word else b"" for word in words], pa.large_binary())},
        {"d": pa.array(words).dictionary_encode()},
        {"l": pa.array([["a", "bc"], [], None, ["d"]] * 4)},
        {"v": pa.array([f"a text of more than twelve letters {n}" for n in range(8)], pa.string_view())},
        {"t": pa.StructArray.from_arrays([pa.array(words), pa.array(range(16))], ["s", "n"])},
    ]
    found = []
    for each in columns:
        batch = pa.record_batch(each)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as stream:
            stream.write_batch(batch)
        found.append(sink.getvalue().to_pybytes())
    return found
