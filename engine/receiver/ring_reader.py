"""A mapped stream and its reader, and messages that are looked at in place."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..errors import EvictedError
from ..log.columns import read_only_bytes
from ..memory.mapping import Bells, Mapping, owned
from ..native.core import CData, Counts, Lane, Served, ffi, lib
from ..native.status import check

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["RingReader", "View"]

SOON_NS = 5000
"""How long a receiver that messages come to looks for the next one before it gives the GIL away, if it spins
anyway."""


def _address(pointer: CData) -> int:
    return int(ffi.cast("uintptr_t", pointer))


_SOON = _address(ffi.addressof(lib, "hf_reader_receive_soon"))
_WAIT = _address(ffi.addressof(lib, "hf_reader_receive_wait"))


class RingReader:
    """One mapped stream and its reader. Lives as long as the feed or a view refers to it.

    ``line`` < 0: a reader without a board line; it copies, and neither pins nor sleeps.
    """

    def __init__(self, mapping: Mapping, board: Mapping, bells: Bells, line: int) -> None:
        out = ffi.new("struct hf_reader **")
        check(lib.hf_reader_open(mapping.handle, board.handle, bells.handle, line, out), what=mapping.name)
        self.mapping = mapping
        self.handle = owned(out[0], lib.hf_reader_close, mapping.handle, board.handle, bells)
        self.start_sqn = int(mapping.stream.start_sqn)
        self.incarnation = int(mapping.preamble.incarnation)
        self.over = False
        """It is read to its end, which its source has closed: nothing more comes from it, so nobody waits for
        it."""
        self._pins: list[int] = []

    @cached_property
    def memory(self) -> tuple[CData, NDArray[np.uint8], int]:
        """The ring's first byte, its two mappings, back to back and read-only, and its bytes."""
        base, size = lib.hf_reader_base(self.handle), int(self.mapping.handle.ring_bytes)
        return base, read_only_bytes(self.mapping.memory(_address(base), 2 * size)), size

    @property
    def next(self) -> int:
        """Number that it will deliver next."""
        return int(lib.hf_reader_next(self.handle))

    def oldest(self) -> int | None:
        """Number of the oldest message that the ring still has; the reader stands there. None when that
        cannot be told."""
        return self.next if lib.hf_reader_seek_oldest(self.handle) == lib.HF_OK else None

    def lane(self, controllers: tuple[Counts, ...], controller: Counts, feed: Served, strategy: int) -> Lane:
        """The messages of this ring one by one, while it is what serves ``feed`` (csrc/python/lane.c). It
        waits as ``strategy`` says."""
        soon_ns = SOON_NS if strategy in {lib.HF_WAIT_BUSY_SPIN, lib.HF_WAIT_BACKOFF} else 0
        return Lane(controllers, controller, feed, (_SOON, _WAIT, _address(self.handle)), strategy, soon_ns)

    def wait(self, strategy: int, timeout_ns: int) -> None:
        """Until there may be something to read, at most so long."""
        lib.hf_reader_wait(self.handle, strategy, timeout_ns)

    def pin(self, start: int) -> None:
        """A view from ring position ``start`` on was handed out."""
        self._pins.append(start)

    def unpin(self, start: int) -> bool:
        """The view ends. False: the ring went over it, and what was read there is void."""
        self._pins.remove(start)
        return self.intact(start)

    def intact(self, start: int) -> bool:
        """False: the ring went over the view. Pins whatever views are left."""
        keep = min(self._pins, default=2**64 - 1)
        return bool(lib.hf_reader_unpin(self.handle, start, keep) == lib.HF_OK)


class View:
    """Messages in place: ``entries`` (struct hf_entry[], ``count`` of them) over ``memory`` ((m,),
    read-only).

    Offsets count from the memory's start, at ``base``. ``wrap``: ring bytes, 0 for a private block.
    """

    __slots__ = ("base", "count", "entries", "memory", "ring", "start", "wrap")

    def __init__(
        self, entries: CData, count: int, base: CData, memory: NDArray[np.uint8], wrap: int, ring: RingReader | None,
        start: int,
    ) -> None:  # fmt: skip
        self.entries, self.count, self.base, self.memory = entries, count, base, memory
        self.wrap, self.ring, self.start = wrap, ring, start

    def gather(self, index: int) -> bytes:
        """Payload of one message, copied together."""
        out = bytearray(int(self.entries[index].length))
        if out:
            status = lib.hf_gather(self.base, self.wrap, self.entries + index, ffi.from_buffer(out))
            if status < 0 and self.ring is not None:
                raise EvictedError
            check(status, what="log block")
        return bytes(out)

    def gather_all(self, out: Any) -> None:
        """Payloads of all messages, back to back, into a writable buffer of just their size. Raises
        EvictedError."""
        values = ffi.from_buffer("uint8_t[]", out, require_writable=True)
        to = ffi.new("struct hf_columns *", {"values": values, "rows_max": self.count, "bytes_max": len(values)})
        status = lib.hf_columns(self.base, self.wrap, self.entries, self.count, to)
        if status == lib.HF_DAMAGED and self.ring is not None:
            raise EvictedError
        check(status, what="log block")

    def intact(self) -> bool:
        """False: it was evicted."""
        return self.ring is None or self.ring.intact(self.start)

    def release(self) -> bool:
        """Ends the view. False: it was evicted."""
        ring, self.ring = self.ring, None
        return ring is None or ring.unpin(self.start)
