"""Messages as Arrow record batches: the columns that were asked for, the payload decoded or as it is. Nothing
runs per message, except for Arrow payloads, which hold many rows each.

The schema of every batch is exactly the one that Spark expects, order and types (docs/design.md S.2).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .errors import MalformedError
from .record_ddl import record_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from ..engine.log.column_reader import Columns
    from .options import ValueFormat
    from .record_ddl import Field
    from .splits import Range

__all__ = ["Decoder", "bits_of", "payloads_of"]

MICROSECONDS = pa.timestamp("us", "UTC")
NUMBERS = {
    "tinyint": ("<i1", pa.int8()), "smallint": ("<i2", pa.int16()), "int": ("<i4", pa.int32()), "bigint": ("<i8", pa.int64()),
    "float": ("<f4", pa.float32()), "double": ("<f8", pa.float64()), "date": ("<i4", pa.date32()),
    "timestamp": ("<i8", MICROSECONDS),
}  # fmt: skip
"""Kinds of fields whose bytes in a record are what Arrow holds: numpy's type of them, and Arrow's."""
ARROW_FILE = b"ARROW1"
"""An Arrow payload that begins so is a file, else it is a stream."""


def bits_of(number: int) -> int:
    """An unsigned number of 64 bits as the bigint with the same bits: Spark has no unsigned types."""
    return number - (number >> 63 << 64)


def payloads_of(columns: Columns) -> pa.Array:
    """The payloads as an Arrow array, binary; not copied."""
    buffers = [None, pa.py_buffer(columns.offsets), pa.py_buffer(columns.values)]
    return pa.Array.from_buffers(pa.binary(), columns.count, buffers)


class Decoder:
    """Builds the record batches of one range. ``schema``: what Spark expects."""

    def __init__(self, part: Range, schema: pa.Schema, value_format: ValueFormat) -> None:
        self._part = part
        self._schema = schema
        self._format = value_format
        self._constants: dict[Any, pa.Array] = {}

    def batches(self, columns: Columns) -> Iterator[pa.RecordBatch]:
        """The rows of these messages.

        Raises:
            MalformedError: a payload is no record of that size, or no Arrow data with these columns.
        """
        meta = self._metadata(columns)
        if self._format.kind == "arrow":
            for index in range(columns.count):
                yield from self._unpacked(columns, index, meta)
            return
        payload = self._record(columns) if self._format.kind == "struct" else self._value(columns)
        arrays = [payload[name] if name in payload else meta[name] for name in self._schema.names]
        yield pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    # Columns of every message -------------------------------------------------------------------------------

    def _metadata(self, columns: Columns) -> dict[str, pa.Array]:
        count = columns.count
        makers: dict[str, Callable[[], pa.Array]] = {
            "topic": lambda: self._repeated(self._part.topic, pa.string(), count),
            "source_reg_id": lambda: self._repeated(bits_of(self._part.registration_id), pa.int64(), count),
            "sequence_number": lambda: _flat(pa.int64(), columns.sequence_number, count),
            "timestamp": lambda: _flat(MICROSECONDS, _microseconds(columns.timestamp_ns), count),
            "timestamp_ns": lambda: _flat(pa.int64(), columns.timestamp_ns, count),
            "flags": lambda: _flat(pa.int32(), columns.flags, count),
            "store": lambda: self._repeated(columns.store, pa.string(), count),
            "crc": lambda: pa.array(columns.crc, pa.int64()),
        }
        return {name: makers[name]() for name in self._schema.names if name in makers}

    def _repeated(self, value: Any, kind: pa.DataType, count: int) -> pa.Array:
        known = self._constants.get(value)
        if known is None or len(known) < count:
            known = self._constants[value] = _constant(value, kind, count)
        return known[:count]

    def _value(self, columns: Columns) -> dict[str, pa.Array]:
        if "value" not in self._schema.names:
            return {}
        return {"value": payloads_of(columns)}

    # Records of one size ------------------------------------------------------------------------------------

    def _record(self, columns: Columns) -> dict[str, pa.Array]:
        names = set(self._schema.names)
        fields = [field for field in self._format.fields if field.name in names]
        if not fields:
            return {}
        size = record_size(self._format.fields)
        self._check_sizes(columns, size)
        kind = np.dtype(
            {
                "names": [field.name for field in fields],
                "formats": [NUMBERS[field.kind][0] if field.kind in NUMBERS else f"V{field.width}" for field in fields],
                "offsets": [field.offset for field in fields],
                "itemsize": size,
            }
        )
        records = columns.values.view(kind)
        return {field.name: self._field(field, _copied(records[field.name]), columns) for field in fields}

    def _check_sizes(self, columns: Columns, size: int) -> None:
        lengths = np.diff(columns.offsets)
        if not np.all(lengths == size):
            index = int(np.argmax(lengths != size))
            raise self._malformed(columns, index, f"{lengths[index]} bytes, and a record has {size}")

    def _field(self, field: Field, data: NDArray[Any], columns: Columns) -> pa.Array:
        count = len(data)
        if field.kind == "boolean":
            return pa.array(data.view(np.uint8) != 0)
        if field.kind in NUMBERS:
            return _flat(NUMBERS[field.kind][1], data, count)
        offsets = np.arange(0, (count + 1) * field.width, field.width, dtype=np.int32)
        array = pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
        if field.kind == "binary":
            return array
        try:
            return pc.utf8_rtrim(array.cast(pa.string()), characters="\0 ")
        except pa.ArrowInvalid:
            index = next(i for i in range(count) if not _is_text(bytes(data[i])))
            raise self._malformed(columns, index, f"field {field.name} is no UTF-8 text") from None

    # Arrow payloads -----------------------------------------------------------------------------------------

    def _unpacked(self, columns: Columns, index: int, meta: dict[str, pa.Array]) -> Iterator[pa.RecordBatch]:
        payload = columns.values[columns.offsets[index] : columns.offsets[index + 1]]
        opened = pa.ipc.open_file if payload[: len(ARROW_FILE)].tobytes() == ARROW_FILE else pa.ipc.open_stream
        try:
            table = opened(pa.py_buffer(payload)).read_all()
            table.validate(full=True)  # lengths and offsets in it are its writer's
            for batch in table.to_batches():
                arrays = [
                    pa.repeat(meta[field.name][index], batch.num_rows)
                    if field.name in meta
                    else batch.column(field.name)
                    for field in self._schema
                ]
                for field, array in zip(self._schema, arrays, strict=True):
                    if array.null_count and not field.nullable:
                        raise pa.ArrowInvalid(f"null in {field.name}, which the schema says is never null")
                yield pa.RecordBatch.from_arrays(arrays, schema=self._schema)  # which casts
        except (pa.ArrowException, KeyError, OSError) as error:
            raise self._malformed(columns, index, f"not Arrow data with these columns: {error}") from None

    def _malformed(self, columns: Columns, index: int, what: str) -> MalformedError:
        number = int(columns.sequence_number[index])
        return MalformedError(self._part.topic, self._part.registration_id, number, what)


def _room(count: int, kind: np.dtype[Any]) -> NDArray[Any]:
    """(count,) array to be filled, in memory of Arrow's: that is kept for the next batch, where numpy's goes
    back to the kernel and comes again page by page."""
    return np.frombuffer(pa.allocate_buffer(count * kind.itemsize), np.uint8).view(kind)


def _microseconds(nanoseconds: NDArray[np.int64]) -> NDArray[np.int64]:
    made = _room(len(nanoseconds), nanoseconds.dtype)
    np.floor_divide(nanoseconds, 1000, out=made)
    return made


def _copied(field: NDArray[Any]) -> NDArray[Any]:
    """A field of records that lie far apart, back to back."""
    copy = _room(len(field), field.dtype)
    copy[:] = field
    return copy


def _flat(kind: pa.DataType, data: NDArray[Any], count: int) -> pa.Array:
    """An Arrow array over contiguous numbers; not copied."""
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(data)])


def _constant(value: str | int, kind: pa.DataType, count: int) -> pa.Array:
    """An Arrow array of a value again and again, text or bigint. pa.repeat makes one element after the
    other."""
    if not isinstance(value, str):
        return _flat(kind, np.full(count, value, np.int64), count)
    data = value.encode()
    offsets = np.arange(count + 1, dtype=np.int32) * np.int32(len(data))
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(offsets), pa.py_buffer(data * count)])


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
