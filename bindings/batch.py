"""Many messages at once, in place: for numpy, Arrow and Numba."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Self

from .engine.errors import EvictedError, ForkedHandleError, UsageError
from .engine.printable import printable
from .engine.shown import Shown
from .extras import needed
from .message import Ack

if TYPE_CHECKING:
    from .engine.log.columns import Entries
    from .engine.receiver.delivery_controller import DeliveryController
    from .engine.receiver.feed import View
    from .releaser import Releaser

__all__ = ["Batch"]


class Batch(Shown):
    """Messages of one source. ``frames`` and every payload are views: they are valid until :meth:`release`
    says so.

    >>> import holdfast as hf
    >>> with hf.Context() as ctx:
    ...     src, rcv = ctx.source("prices"), ctx.receiver("prices")
    ...     src.wait_registered(timeout=10)
    ...     numbers = src.send_batch([price.to_bytes(8, "little") for price in (101, 102, 103)], timeout=10)
    ...     with rcv.receive_batch(timeout=10) as batch:
    ...         print(len(batch), batch.frames["length"].tolist(), batch.as_records("<u8").tolist())
    3 [8, 8, 8] [101, 102, 103]

    A forked child has ``frames`` only: the ring is not mapped there, and a view of it that was taken before
    is not to be touched.

    Attributes:
        frames: structured array of shape (n,), read-only: ``sequence_number`` (u8, of the last fragment),
            ``first_sequence_number`` (u8), ``timestamp_ns`` (i8), ``offset`` (u8, of the payload in
            ``memory``), ``length`` (u4, payload bytes), ``flags`` (u2, 8 = retransmission), ``fragments``
            (u2).
        topic: of their source.
        source: its name, as in events.
    """

    _shown = (
        "as_records", "extract_ack", "frames", "memory", "payload", "payloads", "release", "send_explicit_ack", "source",
        "to_arrow", "topic",
    )  # fmt: skip
    __slots__ = (
        "_ack_slot", "_controller", "_entries", "_live", "_receiver", "_view", "frames", "source", "topic",
    )  # fmt: skip

    def __init__(
        self,
        receiver: Releaser,
        controller: DeliveryController,
        view: View,
        entries: Entries,
        frames: Any,
        ack_slot: int,
    ) -> None:
        self.frames = frames
        self.topic = controller.topic
        self.source = controller.source
        self._receiver = receiver
        self._controller = controller
        self._view = view
        self._entries = entries
        self._ack_slot = ack_slot
        self._live = True

    def __len__(self) -> int:
        return int(self._view.count)

    def _check(self) -> None:
        if not self._live:
            raise ValueError("this batch was released: its memory may be written again")
        self._check_owner()

    def _check_owner(self) -> None:
        if self._receiver.context.forked:
            raise ForkedHandleError("batch")

    @property
    def memory(self) -> Any:
        """(m,) uint8 array that offsets count in, read-only. A message of several fragments is not contiguous
        there."""
        self._check_owner()
        return self._view.memory

    def payloads(self) -> list[memoryview]:
        """The payload of each message: views, or copies of those that have several fragments."""
        self._check()
        frames, memory = self.frames, memoryview(self.memory)
        starts = frames["offset"].tolist()
        ends = (frames["offset"] + frames["length"]).tolist()
        found = [memory[start:end] for start, end in zip(starts, ends, strict=True)]
        for index in (frames["fragments"] > 1).nonzero()[0].tolist():
            found[index] = memoryview(self._view.gather(index))
        return found

    def as_records(self, dtype: Any) -> Any:
        """The payloads as an array of shape (n,), read-only: ``batch.as_records("<f8")``.

        A view, valid as ``frames`` is. Where messages do not lie at one distance from each other (several
        fragments, something between them), it is a copy, checked as :meth:`to_arrow` does.

        Raises:
            UsageError: a message is longer or shorter than a record; or no dtype, or one of no bytes, with
                Python objects, or with a shape of its own (give it a field: ``[("values", "<f8", 3)]``).
            EvictedError: the memory was overwritten while it was copied; nothing was consumed.
        """
        import numpy as np

        self._check()
        record = _dtype_of(dtype)
        if record.hasobject or not record.itemsize or record.subdtype is not None:
            raise UsageError(
                f"records of dtype {printable(str(record))}",
                hint='a dtype of some bytes without objects; one with a shape as a field: [("values", "<f8", 3)]',
            )
        frames, size = self.frames, record.itemsize
        other = (frames["length"] != size).nonzero()[0]
        if other.size:
            frame = frames[int(other[0])]
            raise UsageError(
                f"message {int(frame['sequence_number'])} has {int(frame['length'])} bytes, and a record of this dtype {size}",
                hint="payloads() for messages of several lengths",
            )
        starts = frames["offset"].astype(np.int64)
        strides = np.diff(starts)
        stride = int(strides[0]) if strides.size else size
        if stride >= size and bool((strides == stride).all()) and bool((frames["fragments"] == 1).all()):
            return np.ndarray(len(self), record, self.memory, int(starts[0]), (stride,))
        data = self._copied(len(self) * size)
        data.flags.writeable = False
        return data.view(record)

    def payload(self, index: int) -> memoryview:
        """Payload of message ``index``: a view, or a copy when it has several fragments.

        The slow way, for one of them: :meth:`payloads` gives all.
        """
        self._check()
        frame = self.frames[index]
        if frame["fragments"] > 1:
            return memoryview(self._view.gather(index % len(self)))
        start = int(frame["offset"])
        return memoryview(self.memory)[start : start + int(frame["length"])]

    def to_arrow(self) -> Any:
        """The payloads as a pyarrow BinaryArray (LargeBinary above 2 GiB), copied together once.

        Raises:
            EvictedError: the memory was overwritten meanwhile; nothing was consumed.
            MissingExtraError: pyarrow is not installed.
        """
        import numpy as np

        with needed():
            import pyarrow as pa

        self._check()
        lengths = self.frames["length"].astype(np.int64)
        offsets = np.zeros(len(self) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        data = self._copied(int(offsets[-1]))
        wide = offsets[-1] >= 2**31
        kind = pa.large_binary() if wide else pa.binary()
        where = pa.py_buffer(offsets if wide else offsets.astype(np.int32))
        return pa.Array.from_buffers(kind, len(self), [None, where, pa.py_buffer(data)])

    def _copied(self, size: int) -> Any:
        """All payloads, which have this many bytes, back to back."""
        import numpy as np

        data = np.empty(size, np.uint8)
        self._view.gather_all(data)
        if not self._view.intact():  # what is returned outlives the batch
            raise self._evicted()
        return data

    def extract_ack(self) -> Ack:
        """An acknowledgement of the whole batch, and of any number of its stream; it outlives the batch.

        Send it when :meth:`release` has not raised: what was evicted meanwhile was not read.
        """
        self._check()
        return Ack(self._receiver, self._controller, self._ack_slot, self._last)

    def send_explicit_ack(self) -> None:
        """Acknowledges every message up to the last of these, now.

        Raises:
            UsageError: the receiver does not use ``ume_explicit_ack_only``.
            EvictedError: the source went on over it. Nothing is acknowledged; :meth:`release` it, and it is
                delivered again.
        """
        ack = self.extract_ack()
        if not self._view.intact():
            raise self._evicted()
        ack.send()

    @property
    def _last(self) -> int:
        return int(self._view.entries[self._view.count - 1].sequence_number)

    def release(self) -> None:
        """Consumes all of it. Twice is a no-op.

        Raises:
            EvictedError: the source went on over it. Nothing is consumed; the range is delivered again, from
                the stores.
            ForkedHandleError: it belongs to the parent process. Nothing is consumed there.
        """
        if not self._live:
            return
        self._check_owner()
        last = self._last
        if self._end():
            self._receiver.was_consumed(self._controller, self._ack_slot, last)
        else:
            self._receiver.batch_evicted(self._controller, self._ack_slot)
            raise self._evicted()

    def done(self) -> None:
        """An iteration was left at it, and the program asks for more: consumed, or delivered again."""
        with contextlib.suppress(EvictedError):
            self.release()

    def _evicted(self) -> EvictedError:
        return EvictedError(
            f"the source overwrote this batch of {len(self)} messages while it was read; released, it is delivered again"
        )

    def _end(self) -> bool:
        """Lets the memory go. False: it was evicted."""
        self._live = False
        whole = self._view.release()
        self._receiver.entries.give(self._entries)
        return whole

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if (
            self._receiver.context.forked
        ):  # a block that began before the fork ends in the child, too: that says nothing
            return
        if kind is None:
            self.release()
        elif self._live:
            self._end()

    def __reduce__(self) -> tuple[object, ...]:
        raise UsageError("a batch cannot be pickled", hint="send batch.to_arrow()")

    def __repr__(self) -> str:
        if not self._live:
            return f"<Batch of {len(self)} messages released>"
        first = int(self.frames["first_sequence_number"][0])
        return printable(f"<Batch {self.topic} {first}..{self._last}, {len(self)} messages>")


def _dtype_of(dtype: Any) -> Any:
    """As numpy.dtype. Raises UsageError."""
    import numpy as np

    try:
        return np.dtype(dtype)
    except (TypeError, ValueError) as error:
        raise UsageError(f"records of dtype {printable(repr(dtype))}: {error}", hint="what numpy.dtype takes") from None
