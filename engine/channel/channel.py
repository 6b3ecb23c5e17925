"""A channel: blocks of bytes from one process to another, in place and in order. No store keeps it.

It is a ring as a source has (csrc/stream/stream.h) and a board, used by the same rules: the writer writes
each block once, the reader reads it where it lies, and the reader's line on the board says up to where it has
let go; nothing is overwritten before. Either side may come first, die and come again:

* every life of the writer has a ring of its own. What an earlier one had committed stays there for the
  reader, which removes each ring read to its end whose writer is closed or dead (docs/design.md 12);
* a reader that dies has not let go: the next one gets the blocks again, from the first that was not released.

Numbers: the n-th block of life k has number k * 2^40 + n, so they grow over lives, and the reader's one
position says both. One thread at a time writes, one reads; blocks may be let go by any thread.

Names: a side takes its line, and a writer makes its ring, in one step under the domain's lock. So whoever
holds that lock, and finds no ring, may take the board away: nobody is on it who would not find another one.
"""

from __future__ import annotations

import contextlib
import sys
from collections import deque
from typing import TYPE_CHECKING, Self

from ..errors import (
    ClosedError,
    ConfigError,
    Error,
    ForkedHandleError,
    MessageTooLargeError,
    UsageError,
    WouldBlockError,
)
from ..memory.domain import Domain, open_object, unlink_object, unlink_source
from ..memory.mapping import Bells, Mapping, UnpublishedError, attach_stream, claim_line, own_board, owned, read_lines
from ..native.core import CData, ffi, lib
from ..native.runtime import os, threading, time
from ..native.status import check, error_of
from ..native.waiting import STRATEGIES, deadline_of
from .names import ChannelNames, channel_uuid

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["CAPACITY_MIN", "Block", "ChannelReader", "ChannelWriter"]

CAPACITY_MIN, CAPACITY_MAX = 1 << 16, 1 << 34
"""Bytes. A block takes a quarter, and a frame's length has 32 bits."""
LIFE = 40
"""Bits of a number that count blocks; the life is above."""
SLICE_NS = 50_000_000
"""The longest sleep: signals and a dead peer are noticed in between."""
MAKING_NS = 1_000_000
"""Between two looks at a ring that its writer makes right now."""


class _Side:
    """What both sides have: the domain, its bells, the channel's board, and a line of their own on it."""

    role: int
    what: str
    closed = True

    def __init__(self, name: str, domain: str | None) -> None:
        self.name = name
        self.uuid = channel_uuid(name)
        self.domain = Domain(domain)
        self._token = int(lib.hf_process_token())
        self._names = ChannelNames(self.domain, name, self.uuid, self.what)
        try:
            self.bells = Bells.of(self.domain)
            with self.domain.exclusive():
                self.board = self._names.board = own_board(self.domain, self.uuid)
                self.line = self._claim()
                self._join()
        except BaseException:
            self.domain.close()
            raise
        self.closed = False

    def _join(self) -> None:
        """What else this side does under the domain's lock."""

    def _claim(self) -> int:
        who = ffi.new("struct hf_identity *")
        ffi.memmove(who.uuid, self.uuid, 16)
        who.role, who.bell = self.role, self.bells.index
        holder = ffi.new("struct hf_line_view *")
        status = int(lib.hf_board_claim(self.board.handle, self.domain.fd, who, holder))
        if status == lib.HF_BUSY:
            pid = int(holder.line.owner_pid)
            raise UsageError(f"channel {self.name} has a {self.what}: process {pid}", hint="a channel has one of each")
        return claim_line(self.board, self.domain, who) if status == lib.HF_AGAIN else check(status, what=self.name)

    def _check(self) -> None:
        if self.closed:
            raise ClosedError(f"channel {self.name}")
        if self._is_parents:
            raise ForkedHandleError(f"end of channel {self.name}")
        now_ns = time.monotonic_ns()
        self.domain.look_at_lock(now_ns)
        self._names.look(now_ns)

    def _require_names(self) -> None:
        self._names.require(time.monotonic_ns(), lambda: self.peer)

    @property
    def _is_parents(self) -> bool:
        """This is a forked child: it may look at what it has, and changes nothing."""
        return bool(lib.hf_process_forked(self._token))

    def _release_line(self) -> None:
        with contextlib.suppress(Error):  # a forked child's: the line is its parent's
            check(lib.hf_board_release(self.board.handle, self.line))
            self._names.close()
        self.domain.close()

    def lives(self) -> list[int]:
        """Lives of the writer whose rings are there, oldest first."""
        return sorted(item.incarnation for item in self.domain.objects(self.uuid) if item.kind == "channel")

    def _peer(self) -> CData | None:
        """A view of the other side's line; None: there never was one."""
        views = read_lines(self.board, self.domain, test=True)
        return next((view for view in views if view.line.role == _OTHER[self.role]), None)

    @property
    def peer(self) -> int | None:
        """Process id of the other side; None: there is none that lives."""
        view = self._peer()
        return int(view.line.owner_pid) if view is not None and view.alive == 1 else None

    def close(self) -> None:
        """Ends this side."""
        raise NotImplementedError

    def __del__(self) -> None:  # of an end that was dropped: its line is for the next one
        if not sys.is_finalizing():
            self.close()

    def __enter__(self) -> Self:
        return self


_OTHER = {lib.HF_ROLE_CONTEXT: lib.HF_ROLE_RECEIVER, lib.HF_ROLE_RECEIVER: lib.HF_ROLE_CONTEXT}


class ChannelWriter(_Side):
    """The writing side. ``capacity``: bytes of the ring, a power of two; a block takes a quarter at most.

    Raises:
        UsageError: a live process writes into this channel.
        SharedMemoryFullError: there is no room for the ring.
    """

    role = lib.HF_ROLE_CONTEXT
    what = "writer"

    def __init__(self, name: str, domain: str | None = None, *, capacity: int = 64 << 20) -> None:
        if not CAPACITY_MIN <= capacity <= CAPACITY_MAX:
            raise ConfigError(f"a capacity of {capacity} bytes: it is {CAPACITY_MIN} to {CAPACITY_MAX}")
        self.capacity = 1 << (capacity - 1).bit_length()
        self.block_max = self.capacity // 4 - 64
        """Bytes of the largest block."""
        super().__init__(name, domain)
        self._status = ffi.new("int64_t *")
        self._line = ffi.new("struct hf_board_line *")
        self._reader = -1
        lib.hf_bell_ring_all(self.bells.handle)  # a reader may wait for this ring

    def _join(self) -> None:
        try:
            self._source = self._create()
        except BaseException:
            self._release_line()
            raise

    def _create(self) -> CData:
        config = ffi.new("struct hf_stream_config *")
        ffi.memmove(config.uuid, self.uuid, 16)
        config.ring_bytes, config.fragment_bytes = self.capacity, self.block_max
        config.topic = b"channel"
        peer = self._peer()
        known = [*self.lives(), int(peer.line.ack) >> LIFE if peer is not None else 0]
        config.incarnation = max(known) + 1
        while True:
            ring = self.domain.channel_name(self.uuid, config.incarnation)
            try:
                fd = open_object(ring, create=True)
                break
            except FileExistsError:  # another user has made something there: that is no life of ours
                config.incarnation += 1
        config.start_sqn = config.incarnation << LIFE
        out = ffi.new("struct hf_source **")
        try:
            status = lib.hf_source_create(fd, config, self.board.handle, self.bells.handle, out)
            check(status, what=ring, size=self.capacity)
        except BaseException:
            unlink_object(ring)
            raise
        finally:
            os.close(fd)
        self._names.ring = ring
        return owned(out[0], lib.hf_source_destroy, self.board.handle, self.bells)

    def claim(self, size: int, timeout: float | None = None) -> memoryview:
        """Writable memory for a block of ``size`` bytes in the ring. End with :meth:`commit` or `abort`.

        Args:
            size: bytes, at least 1.
            timeout: seconds to wait for the reader to let go of what it has; None for ever, 0 not at all.

        Raises:
            MessageTooLargeError: more than ``block_max``.
            WouldBlockError: the wait is over.
            RemovedError: the names of the channel were removed, and no reader is left.
        """
        self._check()
        self._require_names()
        if not 0 < size <= self.block_max:
            raise MessageTooLargeError(size, self.block_max, "capacity")
        deadline = deadline_of(timeout)
        while True:
            place = lib.hf_source_claim(self._source, size, self._status)
            if place:
                return memoryview(ffi.buffer(place, size))
            status = int(self._status[0])
            if status not in {lib.HF_RETENTION, lib.HF_PINNED}:
                raise error_of(status, what=f"channel {self.name}", size=size, limit=self.block_max, option="capacity")
            glance = lib.hf_board_glance(self.board.handle)
            self._require_names()
            if not self._let_go() and not self._sleep(glance, deadline):
                raise WouldBlockError("ring")

    def _let_go(self) -> bool:
        """What the reader has released may be overwritten. True: that was something."""
        line, number = self._line, int(lib.hf_source_next(self._source))
        if self._reader < 0 or lib.hf_board_copy(self.board.handle, self._reader, line) != 1:
            peer = self._peer()
            if peer is None:
                return False
            self._reader, line[0] = int(peer.index), peer.line
        if line.role != lib.HF_ROLE_RECEIVER or bytes(ffi.buffer(line.uuid)) != self.uuid:
            self._reader = -1
            return False
        return bool(check(lib.hf_source_release(self._source, min(int(line.ack), number))) > 0)

    def _sleep(self, glance: int, deadline: int | None) -> bool:
        """Until the reader moves on from that glance, 50 ms at most. False: the time was over before."""
        left = SLICE_NS if deadline is None else min(SLICE_NS, deadline - time.monotonic_ns())
        if left <= 0:
            return False
        rung = lib.hf_bell_read(self.bells.handle, self.bells.index)
        lib.hf_board_wait(self.board.handle, self.bells.handle, self.bells.index, glance, rung, lib.HF_WAIT_BLOCK, left)
        return True

    def commit(self) -> int:
        """The claimed block is the reader's from now on. Returns its number."""
        return check(lib.hf_source_commit(self._source), what=f"channel {self.name}")

    def abort(self) -> None:
        """The claimed block never was."""
        check(lib.hf_source_abort(self._source), what=f"channel {self.name}")

    def close(self) -> None:
        """The reader reads on to what was committed last, then waits for another writer. Idempotent."""
        if not self.closed:
            self.closed = True
            lib.hf_source_close(self._source)
            self._release_line()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class Block:
    """One block where it lies. Its memory stays as it is until this object goes, or :meth:`release`."""

    __slots__ = ("_reader", "_ring", "address", "number", "size")

    def __init__(self, reader: ChannelReader, ring: Mapping, number: int, address: int, size: int) -> None:
        self.number, self.address, self.size = number, address, size
        self._ring = ring  # mapped as long as somebody may look
        self._reader: ChannelReader | None = reader

    @property
    def index(self) -> int:
        """How many blocks of its writer's life came before it."""
        return self.number & ((1 << LIFE) - 1)

    def release(self) -> None:
        """Lets go of it; whatever still looks at the memory will see it change. Idempotent; any thread."""
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.let_go(self.number)

    def __del__(self) -> None:
        self.release()


class ChannelReader(_Side):
    """The reading side.

    Raises:
        UsageError: a live process reads from this channel.
    """

    role = lib.HF_ROLE_RECEIVER
    what = "reader"

    def __init__(self, name: str, domain: str | None = None, *, strategy: str = "backoff") -> None:
        super().__init__(name, domain)
        self._strategy = STRATEGIES[strategy]
        self._entry = ffi.new("struct hf_entry *")
        self._span = ffi.new("uint64_t[2]")
        self._life = 0
        self._ring: Mapping | None = None
        self._handle: CData = ffi.NULL
        self._freed: deque[int] = deque()
        self._lent: set[int] = set()
        self._next = 0
        self._settling = threading.Lock()
        own = ffi.new("struct hf_board_line *")
        if lib.hf_board_copy(self.board.handle, self.line, own) == 1:
            self._next = int(own.ack)
        self._oldest = self._next >> LIFE
        """The oldest life whose ring may still be needed."""

    def read(self, timeout: float | None = None) -> Block | None:
        """The next block; None: the time is over. Waits through deaths of writers. Raises RemovedError."""
        self._check()
        deadline = deadline_of(timeout)
        while True:
            self._settle()
            block = self._take() if self._handle else None
            if block is not None:
                return block
            if not self._handle and self._enter():
                continue
            left = SLICE_NS if deadline is None else min(SLICE_NS, deadline - time.monotonic_ns())
            if left <= 0:
                return None
            self._names.look(time.monotonic_ns())
            if not self._handle:
                self._require_names()
            self._wait(left)

    def _take(self) -> Block | None:
        entry = self._entry
        count = int(lib.hf_reader_batch(self._handle, entry, 1, self._ring_bytes, self._span, self._span + 1))
        if count == 1:
            check(lib.hf_reader_unpin(self._handle, self._span[0], 2**64 - 1), what=f"channel {self.name}")
            number, size = int(entry.sequence_number), int(entry.length)
            base = int(ffi.cast("uintptr_t", lib.hf_reader_base(self._handle)))
            assert self._ring is not None
            with self._settling:
                self._lent.add(number)
                self._next = number + 1
            self._settle()  # what somebody let go meanwhile, and left to us
            return Block(self, self._ring, number, base + int(entry.offset), size)
        if count == lib.HF_CLOSED or (count == 0 and self._ended()):
            self._leave()
            return None
        if count != 0:
            raise error_of(count, what=f"channel {self.name}")
        return None

    @property
    def _ring_bytes(self) -> int:
        assert self._ring is not None
        return int(self._ring.handle.ring_bytes)

    def _ended(self) -> bool:
        """Its writer is proved dead, and nothing more is in it."""
        assert self._ring is not None
        of = self._ring.preamble
        if lib.hf_process_alive(self.domain.fd, of.owner, of.owner_pid, of.owner_start) != 0:
            return False
        return bool(lib.hf_reader_ready(self._handle) in {0, lib.HF_CLOSED})

    def _leave(self) -> None:
        """This ring is read. Its name goes when all of it is let go: the next reader may need it."""
        with self._settling:
            self._next = (self._life + 1) << LIFE
        self._ring, self._handle, self._names.ring = None, ffi.NULL, ""

    def _enter(self) -> bool:
        """Opens the oldest ring that is not read to its end. False: there is none yet."""
        unread = self._unread()
        for life in unread:
            name = self.domain.channel_name(self.uuid, life)
            try:
                ring = attach_stream(name)
            except FileNotFoundError:
                continue
            except UnpublishedError:
                # Its writer makes it right now, or died while it did, as it has if another one came after it.
                if life == unread[-1] and self.peer is not None:
                    return False
                unlink_object(name)
                continue
            self._open(life, ring)
            return True
        return False

    def _unread(self) -> list[int]:
        """Lives that are not read to their end, oldest first. What is not let go yet keeps its name."""
        return [life for life in self.lives() if life >= self._next >> LIFE]

    def _open(self, life: int, ring: Mapping) -> None:
        out = ffi.new("struct hf_reader **")
        opened = lib.hf_reader_open(ring.handle, self.board.handle, self.bells.handle, self.line, out)
        check(opened, what=ring.name)
        handle = owned(out[0], lib.hf_reader_close, ring.handle, self.board.handle, self.bells)
        start = max(self._next, life << LIFE)
        check(lib.hf_reader_seek(handle, start), what=f"{ring.name} at block {start & (1 << LIFE) - 1}")
        self._ring, self._handle, self._life, self._next = ring, handle, life, start
        self._names.ring = ring.name

    def _wait(self, left: int) -> None:
        if self._handle:
            lib.hf_reader_wait(self._handle, self._strategy, left)
            return
        seen = lib.hf_bell_read(self.bells.handle, self.bells.index)
        making = bool(self._unread())
        lib.hf_bell_wait(self.bells.handle, self.bells.index, seen, min(left, MAKING_NS) if making else left)

    # Letting go ---------------------------------------------------------------------------------------------

    def let_go(self, number: int) -> None:
        """Nobody looks at block ``number`` any more. Any thread, also in the garbage collector: no wait."""
        self._freed.append(number)
        self._settle()

    def _settle(self) -> None:
        """Publishes how far everything is let go. Who finds another at it leaves it to that one."""
        while self._settling.acquire(blocking=False):
            try:
                self._publish()
            finally:
                self._settling.release()
            if not self._freed:
                return

    def _publish(self) -> None:
        """Under ``_settling``."""
        while self._freed:
            self._lent.discard(self._freed.popleft())
        if self.closed or self._is_parents:
            return
        ack = min(self._lent, default=self._next)
        lib.hf_board_ack(self.board.handle, self.bells.handle, self.line, ack, self._next)
        if self._oldest < ack >> LIFE:
            self._forget(ack >> LIFE)

    def _forget(self, life: int) -> None:
        """Every ring below this life is read and let go."""
        self._oldest = life
        for old in self.lives():
            if old < life:
                unlink_object(self.domain.channel_name(self.uuid, old))

    def finish(self) -> None:
        """The life that is read is over: all of it is let go, what is held stays readable. Closes.

        The channel leaves shared memory, unless another life has begun: that is the next reader's.
        """
        self._check()
        with self._settling:
            self._lent.clear()
            self._next = (self._life + 1) << LIFE
            self._publish()
        with self.domain.exclusive():
            if not self.lives():
                unlink_object(self.domain.board_name(self.uuid))
        self.close()

    def close(self) -> None:
        """Blocks that are still held stay readable; the next reader gets them again. Idempotent."""
        if not self.closed:
            if self._is_parents:  # whose other threads may have held the lock
                self.closed = True
            else:
                with self._settling:
                    self._publish()
                    self.closed = True
            self._ring, self._handle = None, ffi.NULL
            self._release_line()

    def remove(self) -> None:
        """Removes the channel's names from shared memory, read or not, and closes."""
        if not self.closed and not self._is_parents:
            with self.domain.exclusive():
                unlink_source(self.domain, self.uuid)
        self.close()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
