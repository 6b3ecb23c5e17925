"""The messages of one source, in order: from the stores' logs and from the live ring, with no seam to be seen.

Everything is found by sequence number. ``next`` is the number to deliver next; wherever a ring holds it, the ring serves,
otherwise a log does. So there is no hand-over protocol: catching up, being overtaken by the ring, a source that restarts and a
store that is dead are all the same question, "who has ``next``?". Only the receiving thread runs this.
"""

from __future__ import annotations

import contextlib
import os
from functools import partial
from typing import TYPE_CHECKING, Protocol

from .core import CData, ffi, lib
from .errors import EvictedError, ForkedHandleError
from .segments import Bells, Mapping, UnpublishedError, attach_stream, owned
from .status import check

if TYPE_CHECKING:
    from collections.abc import Callable

    from .slot import Slot

__all__ = ["Feed", "RingReader", "View"]

BLOCK_BYTES = 256 * 1024
BLOCK_MAX = 1 << 28
SCAN_MAX = 8192
"""Entries taken from one block at a time."""

_receive = lib.hf_reader_receive
_receive_wait = lib.hf_reader_receive_wait


class Streams(Protocol):
    """Finds the rings of a source that lie in shared memory: (incarnation, name), oldest first."""

    def streams(self, uuid: bytes) -> list[tuple[int, str]]:
        """See the class."""


class RingReader:
    """One mapped stream and its reader. Lives as long as the feed or a view refers to it."""

    def __init__(self, mapping: Mapping, board: Mapping, bells: Bells, line: int) -> None:
        out = ffi.new("struct hf_reader **")
        check(lib.hf_reader_open(mapping.handle, board.handle, bells.handle, line, out), what=mapping.name)
        self.mapping = mapping
        self.handle = owned(out[0], lib.hf_reader_close, mapping.handle, board.handle, bells)
        self.start_sqn = int(mapping.stream.start_sqn)
        self.incarnation = int(mapping.preamble.incarnation)
        self.receive_wait: Callable[[CData, CData, int, int, int], int] = partial(
            lib.hf_reader_receive_wait, self.handle
        )
        """hf_reader_receive_wait of this reader: (entry, memory, capacity, strategy, timeout_ns)."""
        self._pins: list[int] = []

    def pin(self, start: int) -> None:
        """A view from ring position ``start`` on was handed out."""
        self._pins.append(start)

    def unpin(self, start: int) -> bool:
        """The view ends. False: the ring went over it, and what was read there is void."""
        self._pins.remove(start)
        keep = min(self._pins) if self._pins else 2**64 - 1
        return bool(lib.hf_reader_unpin(self.handle, start, keep) == lib.HF_OK)


class View:
    """Messages in place: ``entries`` (struct hf_entry[], ``count`` of them) over ``memory`` (a Python buffer).

    Offsets count from the memory's start. ``wrap``: ring bytes, 0 for a private block.
    """

    __slots__ = ("base", "count", "entries", "memory", "ring", "start", "wrap")

    def __init__(
        self, entries: CData, count: int, base: CData, memory: object, wrap: int, ring: RingReader | None, start: int
    ) -> None:
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

    def release(self) -> bool:
        """Ends the view. False: it was evicted."""
        ring, self.ring = self.ring, None
        return ring is None or ring.unpin(self.start)


class Feed:
    """See the module. ``lost(first, last)`` is told what no one has any more; ``ended()`` when a closed source is read out.

    ``live_from``: messages below it were published before this receiver was registered, or read back after it was
    overtaken; they count as retransmissions.
    """

    def __init__(
        self, uuid: bytes, board: Mapping, bells: Bells, line: int, streams: Streams, logs: list[str], start: int,
        live_from: int, lost: Callable[[int, int], None], ended: Callable[[], None],
    ) -> None:  # fmt: skip
        self.uuid = uuid
        self.live_from = live_from
        self.newer = False
        """Set by the context's thread when a newer incarnation has appeared, or the ring's name is gone."""
        self.ring: RingReader | None = None
        """What serves now; None while a log does. Always the spare one, too."""
        self._spare: RingReader | None = None
        self.lapped = 0
        self._next = start
        self._board, self._bells, self._line = board, bells, line
        self._streams = streams
        self._lost, self._ended = lost, ended
        self._paths = logs
        self._logs: dict[str, CData] = {}
        self._block: CData = ffi.NULL
        self._entries: CData = ffi.NULL
        self._count = 0
        self._index = 0
        self._number = ffi.new("uint64_t *")
        self._span = ffi.new("uint64_t[2]")
        self._bad: set[str] = set()
        self._told_end = False
        self.begun = 0, 0
        """(incarnation, its first number): the newest that anything was read under; acks are true under it."""
        for path in logs:
            self._read_under(self._log(path))

    def _read_under(self, log: CData) -> None:
        if log and lib.hf_logr_begin(log, self._span, self._span + 1) > 0:
            self.begun = max(self.begun, (int(self._span[0]), int(self._span[1])))

    @property
    def next(self) -> int:
        """Number that will be delivered next."""
        return int(lib.hf_reader_next(self.ring.handle)) if self.ring else self._next

    def close(self) -> None:
        """Lets everything go; views that are out stay valid until they are released."""
        self._next = self.next
        self.ring = self._spare = None
        self._logs.clear()
        self._block = self._entries = ffi.NULL
        self._count = self._index = 0

    def seek(self, number: int) -> None:
        """Goes on at ``number``: what was evicted is read again, flagged as retransmission."""
        if self.ring:
            self.live_from = max(self.live_from, int(self.ring.mapping.stream.next_sqn))
            self.ring = None
        self._next = number
        self._count = self._index = 0

    # One message ----------------------------------------------------------------------------------------------------------

    def receive(self, slot: Slot) -> bool:
        """The next message into ``slot``; False when there is none now."""
        while True:
            if self.ring is not None:
                status = _receive(self.ring.handle, slot.entry, slot.memory, slot.capacity)
                if status == 1:
                    return True
                if status == 0 and not self.newer:
                    return False
                if status == lib.HF_SMALL:
                    slot.allocate(_room(slot.entry.length))
                    continue
                if not self._left_ring(status):
                    return False
            elif not self._find():
                return False
            elif self.ring is None:
                self._take(slot)
                return True

    def wait(self, slot: Slot, strategy: int, timeout_ns: int) -> bool:
        """As :meth:`receive`, waiting in C for at most ``timeout_ns``; only while the ring serves."""
        ring = self.ring
        if ring is None:
            return self.receive(slot)
        status = _receive_wait(ring.handle, slot.entry, slot.memory, slot.capacity, strategy, timeout_ns)
        return status == 1 or ((status != 0 or self.newer) and self.receive(slot))

    def ready(self) -> bool:
        """Something is there, or needs a look."""
        if self.ring is not None:
            return self.newer or lib.hf_reader_ready(self.ring.handle) != 0
        return self._index < self._count or self._find()

    def _take(self, slot: Slot) -> None:
        """Copies the block's next message into ``slot``."""
        source = self._entries + self._index
        status = lib.hf_take(self._block, source, slot.entry, slot.memory, slot.capacity)
        if status == lib.HF_SMALL:
            slot.allocate(_room(slot.entry.length))
            status = lib.hf_take(self._block, source, slot.entry, slot.memory, slot.capacity)
        check(status, what="log block")
        self._index += 1
        self._next = slot.entry.sequence_number + 1

    # Many messages --------------------------------------------------------------------------------------------------------

    def batch(self, entries: CData, maximum: int, max_bytes: int) -> View | None:
        """Up to ``maximum`` messages in place, their entries in ``entries``; None when there are none now."""
        while True:
            if self.ring is not None:
                span = self._span
                count = lib.hf_reader_batch(self.ring.handle, entries, maximum, max_bytes, span, span + 1)
                if count > 0:
                    return self._ring_view(entries, int(count), int(span[0]))
                if count == 0 and not self.newer:
                    return None
                if not self._left_ring(int(count)):
                    return None
            elif not self._find():
                return None
            elif self.ring is None:
                return self._block_view(entries, maximum)

    def _ring_view(self, entries: CData, count: int, start: int) -> View:
        assert self.ring is not None
        ring = self.ring
        ring.pin(start)
        size = ring.mapping.handle.ring_bytes
        base = lib.hf_reader_base(ring.handle)
        memory = ring.mapping.memory(int(ffi.cast("uintptr_t", base)), 2 * size)
        return View(entries, count, base, memory, int(size), ring, start)

    def _block_view(self, entries: CData, maximum: int) -> View:
        """Hands the block's messages over; the next block gets memory of its own."""
        count = min(maximum, self._count - self._index)
        ffi.memmove(entries, self._entries + self._index, count * ffi.sizeof("struct hf_entry"))
        for index in range(count):
            entries[index].flags |= lib.HF_ENTRY_RETRANSMIT
        self._index += count
        self._next = int(entries[count - 1].sequence_number) + 1
        block = self._block
        if self._index == self._count:
            self._block = ffi.NULL
        return View(entries, count, block, ffi.buffer(block, ffi.sizeof(block)), 0, None, 0)

    # Who has `next`? ------------------------------------------------------------------------------------------------------

    def _find(self) -> bool:
        """True: a ring serves, or the block has a message. Reports losses on the way. Raises ForkedHandleError."""
        if lib.hf_process_forked(self._board.handle.token):
            raise ForkedHandleError("receiver")
        if self._index < self._count:
            return True
        for _ in range(1000):  # each round reads, moves on over a loss, or ends; bounded all the same
            if self._try_ring():
                return True
            outcome = self._read_logs()
            if outcome is not None:
                return outcome
        return False

    def _try_ring(self) -> bool:
        """Stands in the newest stream that began at or before ``next``, if that still has it."""
        self.newer = False
        for _, name in reversed(self._streams.streams(self.uuid)):
            if name in self._bad:
                continue
            ring = self._mapped(name)
            if ring is None or ring.start_sqn > self._next:
                continue
            status = lib.hf_reader_seek(ring.handle, self._next)
            if status == lib.HF_LAPPED and not self._paths:
                status = self._skip_to_oldest(ring)
            if status == lib.HF_OK:
                self.ring = ring
                self.begun = max(self.begun, (ring.incarnation, ring.start_sqn))
                self._told_end = False
                return True
            if status != lib.HF_DAMAGED:
                return False
            self._bad.add(name)
        return False

    def _mapped(self, name: str) -> RingReader | None:
        """A stream's reader. The last one stays mapped while it is not current: looking again must be cheap."""
        if self._spare is not None:
            if self._spare.mapping.name == name:
                return self._spare
            self._spare = None
        try:
            mapping = attach_stream(name)
        except (FileNotFoundError, UnpublishedError):
            return None
        self._spare = RingReader(mapping, self._board, self._bells, self._line)
        return self._spare

    def _skip_to_oldest(self, ring: RingReader) -> int:
        """No store keeps this source: what the ring has overwritten is gone."""
        status = lib.hf_reader_seek_oldest(ring.handle)
        if status == lib.HF_OK:
            oldest = int(lib.hf_reader_next(ring.handle))
            if oldest > self._next:
                self._lost(self._next, oldest - 1)
        return int(status)

    def _left_ring(self, status: int) -> bool:
        """The ring stopped serving. True: look elsewhere; False: there is nothing elsewhere."""
        assert self.ring is not None
        ring = self.ring
        if status == 0 or status == lib.HF_CLOSED:
            if status == lib.HF_CLOSED and not self._told_end:
                self._told_end = True
                self._ended()
            if not self._superseded(ring):
                self.newer = False
                return False
        elif status == lib.HF_LAPPED:
            self.lapped += 1
            self.live_from = max(self.live_from, int(ring.mapping.stream.next_sqn))
        elif status == lib.HF_DAMAGED:
            self._bad.add(ring.mapping.name)
        else:
            check(status, what=ring.mapping.name)
        self._next = int(lib.hf_reader_next(ring.handle))
        self.ring = None
        return True

    def _superseded(self, ring: RingReader) -> bool:
        """A newer ring is there, or this one's name is gone: then the logs have its end, and all that came after it, also
        a whole incarnation that nobody here has seen."""
        streams = self._streams.streams(self.uuid)
        return not streams or streams[-1][0] > ring.incarnation

    def _read_logs(self) -> bool | None:
        """True: a block was read. False: nobody has ``next`` yet. None: it is lost for ever, and was stepped over."""
        behind = None
        for path in self._paths:
            log = self._log(path)
            if not log:
                continue
            status = self._read_block(log)
            if status > 0:
                return True
            if status in {lib.HF_GONE, lib.HF_DAMAGED, lib.HF_LOST}:
                number = int(self._number[0])
                behind = number if behind is None else min(behind, number)
        if behind is None or behind <= self._next:
            return False
        self._lost(self._next, behind - 1)
        self._next = behind
        return None

    def _read_block(self, log: CData) -> int:
        size = BLOCK_BYTES
        while True:
            if not self._block or ffi.sizeof(self._block) < size:
                self._block = ffi.new("uint8_t[]", size)
            if not self._entries:
                self._entries = ffi.new("struct hf_entry[]", SCAN_MAX)
            size = ffi.sizeof(self._block)
            got = lib.hf_logr_read(log, self._next, self._block, size, self._number)
            if got > 0:
                self._read_under(log)
                consumed = self._number
                self._count = int(check(lib.hf_scan(self._block, got, self._entries, SCAN_MAX, consumed), what="log"))
                self._index = 0
                if self._count:
                    self._skip_known()
                    return int(self._index < self._count)
            elif got != lib.HF_SMALL:
                self._count = self._index = 0
                return int(got)
            if size >= BLOCK_MAX:
                return int(lib.HF_DAMAGED)
            size *= 4

    def _skip_known(self) -> None:
        """A block starts at a message's first fragment; ``next`` may lie inside a message only if a program chose so."""
        while self._index < self._count and self._entries[self._index].sequence_number < self._next:
            self._index += 1

    def _log(self, path: str) -> CData:
        log = self._logs.get(path, ffi.NULL)
        if log:
            return log
        with contextlib.suppress(OSError):
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                out = ffi.new("struct hf_logr **")
                if lib.hf_logr_open(fd, out) == lib.HF_OK:
                    log = self._logs[path] = owned(out[0], lib.hf_logr_close)
            finally:
                os.close(fd)
        return log


def _room(length: int) -> int:
    """Capacity for a message of ``length`` bytes: the next power of two, so that a pool settles."""
    return 1 << max(13, (int(length) - 1).bit_length())
