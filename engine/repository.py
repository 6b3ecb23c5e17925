"""One source at one store: its log, its board line, and the stream that is being drained.

Everything here runs on the store's drain thread (engine/drainer.py): the log and the reader have one thread, and no lock.

Invariants:
 - what the board line calls stable has been published by the log (csrc/drain.c moves the line after the log);
 - the board line's range begins behind the last number that this store knows it never had;
 - a stream is left only when its owner is dead or has closed it, and the log holds everything up to its committed end;
 - a dead stream's name is removed only when a quorum of its stores holds its end (DESIGN 14).
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, NamedTuple

from . import quorum
from .core import CData, ffi, lib
from .domain import Domain, ObjectName, unlink_object
from .errors import CorruptionError, Error
from .segments import Bells, Mapping, UnpublishedError, attach_board, attach_stream, own_board
from .status import check
from .store_info import LogEnd
from .store_state import SourceState, sync_directory

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["LivingStream", "Repository", "unlink_unused"]

_log = logging.getLogger("holdfast.store")


class LivingStream(NamedTuple):
    """An open stream whose owner lives."""

    owner: int
    """Owner word."""
    pid: int
    since_ns: int
    """CLOCK_REALTIME of its creation."""


class Repository:
    """See the module. ``name`` and ``uuid`` are the store's, ``level`` the one that it acknowledges.

    Raises:
        OSError, CorruptionError: the log cannot be opened.
    """

    def __init__(
        self, domain: Domain, bells: Bells, source: SourceState, path: Path, config: CData, name: str, uuid: bytes
    ) -> None:
        self.domain = domain
        self.bells = bells
        self.source = source
        self.path = path
        self.level = int(config.level)
        self._identity = (name, uuid)
        path.mkdir(mode=0o700, exist_ok=True)
        sync_directory(path.parent)
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            out = ffi.new("struct hf_log **")
            ffi.memmove(config.uuid, source.uuid, 16)
            check(lib.hf_log_open(fd, config, out), what=str(path))
        finally:
            os.close(fd)
        self.log: CData = out[0]
        self.board: Mapping | None = None
        self.line = -1
        self.stream: Mapping | None = None
        self.reader: CData = ffi.NULL
        self.item: CData = ffi.new("struct hf_drain_item *")
        self.lost_below = source.lost_below
        """Number behind the last one that the ring lost for this store; the state takes it in."""
        self._left: dict[str, tuple[int, list[bytes]]] = {}
        self._info = ffi.new("struct hf_log_info *")
        self._lines = ffi.new("struct hf_line_view[]", lib.HF_BOARD_LINES)
        begun = int(self.info.incarnation)
        if begun < source.incarnation:  # a memory store after a reboot: the state knows more than the log
            check(lib.hf_log_begin(self.log, source.incarnation, source.start_sqn), what=str(path))
        elif begun > source.incarnation:  # killed between the log's BEGIN and the state
            source.begin(begun, int(self.info.begin_sqn))

    @property
    def info(self) -> CData:
        """``struct hf_log_info *``, read now."""
        lib.hf_log_info(self.log, self._info)
        return self._info

    @property
    def next_sqn(self) -> int:
        """Number behind the last message that this store holds at its level."""
        return max(int(self.info.next_sqn), self.source.start_sqn)

    def end(self) -> LogEnd:
        """How far this store is."""
        return LogEnd(self.source.incarnation, self.next_sqn)

    @property
    def late_join(self) -> bool:
        """Receivers may recover from the source, as the header of the attached stream says."""
        return self.stream is None or not self.stream.stream.flags & lib.HF_STREAM_NO_LATE_JOIN

    @property
    def largest_block(self) -> int:
        """Bytes of the largest message that the attached ring can hold, frames included."""
        return int(self.stream.handle.ring_bytes) // 4 if self.stream else 0

    def close(self) -> None:
        """Syncs and closes the log, lets the line go. The stream stays for the next store process."""
        self._detach()
        if self.board:
            if self.line >= 0:
                lib.hf_board_release(self.board.handle, self.line)
            self.board.close()
            self.board = None
        log, self.log = self.log, ffi.NULL
        if log:
            lib.hf_log_close(log)

    # Streams --------------------------------------------------------------------------------------------------------------

    def streams(self) -> list[ObjectName]:
        """Rings of this source that lie in shared memory, oldest incarnation first."""
        return [item for item in self.domain.objects() if item.uuid == self.source.uuid and item.kind == "stream"]

    def begin(self, incarnation: int, start_sqn: int, stream: str) -> int:
        """BEGIN at this store: durable in the log, then the stream is read. Returns the next number held.

        Repeated for the same incarnation it does nothing. Raises CorruptionError when ``stream`` is not that incarnation's.
        """
        if self.stream and self.stream.name == stream:
            return self.next_sqn
        self._detach()
        if incarnation > self.info.incarnation:
            check(lib.hf_log_begin(self.log, incarnation, start_sqn), what=str(self.path))
        self._take_part(start_sqn)
        if int(self.info.next_sqn) < start_sqn:  # it was away, and others have what was sent meanwhile
            self._lacks_below(start_sqn)
        self._rebase(incarnation, start_sqn)
        self._attach(stream, incarnation)
        return self.next_sqn

    def _rebase(self, incarnation: int, start_sqn: int) -> None:
        assert self.board is not None
        lib.hf_board_rebase(self.board.handle, self.line, incarnation, start_sqn)
        held = self.next_sqn
        lib.hf_board_ack(self.board.handle, self.bells.handle, self.line, held, held)

    def resume(self) -> None:
        """Goes on with the stream of the newest BEGIN, if it is there and not read to its end; called when none is attached.

        Older ones are over: only their names are left to care for. A newer one has not begun here.
        """
        for item in self.streams():
            if item.name in self._left or item.incarnation > self.source.incarnation:
                continue
            if item.incarnation < self.source.incarnation:
                self._pass_over(item)
                continue
            try:
                self._take_part(self.source.start_sqn)
                self._rebase(self.source.incarnation, self.source.start_sqn)
                self._attach(item.name, item.incarnation)
            except (FileNotFoundError, UnpublishedError):
                continue
            return

    def _take_part(self, start_sqn: int) -> None:
        if self.board is not None:
            return
        board = own_board(self.domain, self.source.uuid)
        name, uuid = self._identity
        who = ffi.new("struct hf_identity *")
        ffi.memmove(who.uuid, uuid, 16)
        ffi.memmove(who.name, name.encode()[:31], len(name.encode()[:31]))
        who.role, who.level, who.bell = lib.HF_ROLE_STORE, self.level, self.bells.index
        who.registration_id = self.source.registration_id
        holder = ffi.new("struct hf_line_view *")
        try:
            self.line = int(check(lib.hf_board_claim(board.handle, self.domain.fd, who, holder), what=board.name))
        except Error:
            board.close()
            raise
        self.board = board
        held = self.next_sqn
        line = lib.hf_board_line_at(board.handle, self.line)
        # A line of an earlier process of this store says what that one never had.
        lib.hf_line_range(line, max(int(line.from_sqn), self.lost_below, min(start_sqn, held)), 2**64 - 1)

    def _attach(self, name: str, incarnation: int) -> None:
        assert self.board is not None
        mapping = attach_stream(name)
        if mapping.uuid != self.source.uuid or mapping.preamble.incarnation != incarnation:
            mapping.close()
            raise CorruptionError(f"{name} does not hold incarnation {incarnation} of {self.source.uuid.hex()}")
        out = ffi.new("struct hf_reader **")
        check(lib.hf_reader_open(mapping.handle, self.board.handle, self.bells.handle, self.line, out), what=name)
        self.stream, self.reader = mapping, out[0]
        self.item.reader, self.item.log = self.reader, self.log
        self.item.board, self.item.bells = self.board.handle, self.bells.handle
        self.item.line_index, self.item.status = self.line, lib.HF_OK
        self.item.level, self.item.pending_bytes = self.level, 0
        self._seek()

    def _seek(self) -> None:
        """Stands behind the last message that the log has. What the ring no longer has is declared lost (DESIGN 8)."""
        appended = max(int(self.info.appended_sqn), int(self.stream.stream.start_sqn) if self.stream else 0)
        status = lib.hf_reader_seek(self.reader, appended)
        if status == lib.HF_LAPPED:
            check(lib.hf_reader_seek_oldest(self.reader), what=str(self.path))
            oldest = int(lib.hf_reader_next(self.reader))
            if oldest > appended:
                _log.warning("%s: %d..%d were overwritten before this store read them", self.path, appended, oldest - 1)
                self._lacks_below(oldest)
                self._record_loss(appended, oldest - 1)
        else:
            check(status, what=str(self.path))

    def _record_loss(self, first: int, last: int) -> None:
        status = lib.hf_log_lost(self.log, first, last)
        if status == lib.HF_ROLL:
            check(lib.hf_log_roll(self.log), what=str(self.path))
            status = lib.hf_log_lost(self.log, first, last)
        check(status, what=str(self.path))

    def _lacks_below(self, number: int) -> None:
        """Its line counts for nothing below ``number``: said before the ack can pass what is lost (DESIGN 8)."""
        assert self.board is not None
        self.lost_below = number
        lib.hf_line_range(lib.hf_board_line_at(self.board.handle, self.line), number, 2**64 - 1)

    def catch_up(self) -> None:
        """The ring overtook this store: goes on at the oldest message that is still there."""
        self._seek()
        self.item.status = lib.HF_OK

    def _detach(self) -> None:
        reader, self.reader = self.reader, ffi.NULL
        if reader:
            lib.hf_reader_close(reader)
        if self.stream:
            self.stream.close()
            self.stream = None
        self.item.reader = ffi.NULL

    # What the drain thread asks between two rounds --------------------------------------------------------------------------

    def owner_gone(self) -> bool:
        """The stream's owner has closed it or is proved dead (DESIGN 12)."""
        assert self.stream is not None
        return not _lives(self.domain, self.stream)

    def owner_lives(self) -> bool:
        """A stream is read here, and it is open and its owner not proved dead."""
        return self.stream is not None and not self.owner_gone()

    def living_stream(self) -> LivingStream | None:
        """The open stream of this source whose owner lives; of any incarnation, also of one that has not begun here."""
        if self.stream is not None and self.owner_lives():
            return _living(self.stream)
        for item in self.streams():
            try:
                with attach_stream(item.name, populate=False) as stream:
                    if _lives(self.domain, stream):
                        return _living(stream)
            except (FileNotFoundError, UnpublishedError, Error):  # of another boot or layout: nobody's
                continue
        return None

    def drained(self) -> bool:
        """Nothing attached, or everything up to the stream's committed end is published."""
        if self.stream is None:
            return True
        if self.item.status not in {lib.HF_OK, lib.HF_CLOSED}:
            return False
        tail, end = ffi.new("uint64_t *"), ffi.new("uint64_t *")
        check(lib.hf_stream_end(self.stream.handle, tail, end), what=self.stream.name)
        return int(self.info.next_sqn) >= int(end[0]) or int(end[0]) == int(self.stream.stream.start_sqn)

    def settled(self) -> bool:
        """No living owner, no undrained ring: the next incarnation may be answered. Moves on through old streams."""
        while self.stream is not None:
            if not self.owner_gone() or not self.drained():
                return False
            self.leave()
            self.resume()
        return True

    def leave(self) -> None:
        """Lets the drained stream of a gone owner go; its name goes when a quorum of its stores holds its end."""
        assert self.stream is not None
        self._leave_name(self.stream)
        self._detach()
        self.tidy()

    def _leave_name(self, stream: Mapping) -> None:
        tail, end = ffi.new("uint64_t *"), ffi.new("uint64_t *")
        check(lib.hf_stream_end(stream.handle, tail, end), what=stream.name)
        stores = ffi.new("struct hf_sri_store[]", lib.HF_STORES_MAX)
        version, groups = ffi.new("uint64_t *"), ffi.new("struct hf_sri_groups *")
        # An SRI that never got written belongs to a source that never sent.
        count = max(0, lib.hf_stream_sri(stream.handle, stores, version, groups))
        self._left[stream.name] = int(end[0]), [bytes(ffi.buffer(stores[i].uuid)) for i in range(count)]

    def _pass_over(self, item: ObjectName) -> None:
        """A stream that something newer has begun after: nothing of it is read here any more."""
        try:
            with attach_stream(item.name, populate=False) as stream:
                if not _lives(self.domain, stream):
                    self._leave_name(stream)
        except (FileNotFoundError, UnpublishedError, Error):  # of another boot or layout: `holdfast gc` says so
            return

    def tidy(self) -> None:
        """Removes the names of left streams whose end a quorum holds."""
        if not self._left:
            return
        held = {bytes(ffi.buffer(view.line.uuid)): int(view.line.ack) for view in self.lines()}
        for name, (end, declared) in list(self._left.items()):
            positions = [held.get(uuid, 0) for uuid in declared]
            if not declared or quorum.stable_number(positions, len(declared)) >= end:
                unlink_object(name)
                del self._left[name]

    def lines(self) -> list[CData]:
        """``struct hf_line_view`` of every participant on the board; valid until the next call."""
        if self.board is None:
            try:
                with attach_board(self.domain, self.source.uuid, writable=False) as board:
                    return self._read(board)
            except (FileNotFoundError, UnpublishedError):
                return []
        return self._read(self.board)

    def receiver_lines(self) -> dict[bytes, CData]:
        """Copies of the ``struct hf_line_view`` of every receiver, by its uuid."""
        found = {}
        for view in self.lines():
            if view.line.role == lib.HF_ROLE_RECEIVER:
                copy = found[bytes(ffi.buffer(view.line.uuid))] = ffi.new("struct hf_line_view *")
                ffi.memmove(copy, ffi.addressof(view), ffi.sizeof("struct hf_line_view"))
        return found

    def acks(self) -> tuple[dict[bytes, int], int]:
        """Every receiver's ack by its uuid, and the number behind the last message held."""
        acks = {
            bytes(ffi.buffer(view.line.uuid)): self.source.clamp(int(view.line.ack), int(view.line.ack_stream))
            for view in self.lines()
            if view.line.role == lib.HF_ROLE_RECEIVER
        }
        return acks, self.next_sqn

    def _read(self, board: Mapping) -> list[CData]:
        count = lib.hf_board_read(board.handle, self.domain.fd, 0, self._lines, lib.HF_BOARD_LINES)
        return [self._lines[i] for i in range(count)]


def _lives(domain: Domain, stream: Mapping) -> bool:
    """Its owner has not closed it, and is not proved dead (DESIGN 12)."""
    owner = stream.preamble
    closed = stream.stream.state == lib.HF_STREAM_CLOSED
    return not closed and bool(lib.hf_process_alive(domain.fd, owner.owner, owner.owner_pid, owner.owner_start))


def _living(stream: Mapping) -> LivingStream:
    preamble = stream.preamble
    return LivingStream(int(preamble.owner), int(preamble.owner_pid), int(preamble.created_ns))


def unlink_unused(domain: Domain, uuid: bytes) -> None:
    """Removes the names of a forgotten source's board and rings, unless somebody who lives is on the board, or sends.

    Under the domain's lock: nobody attaches to the board, or makes one, meanwhile. What stays is `holdfast gc`'s.
    """
    with domain.exclusive():
        objects = [item for item in domain.objects() if item.uuid == uuid]
        if any(_in_use(domain, item) for item in objects):
            return
        for item in objects:
            unlink_object(item.name)


def _in_use(domain: Domain, item: ObjectName) -> bool:
    try:
        if item.kind == "board":
            views = ffi.new("struct hf_line_view[]", lib.HF_BOARD_LINES)
            with attach_board(domain, item.uuid, writable=False) as board:
                count = lib.hf_board_read(board.handle, domain.fd, 1, views, lib.HF_BOARD_LINES)
            lines = [
                views[i] for i in range(count) if views[i].line.role != lib.HF_ROLE_CONTEXT
            ]  # that only shows itself
            return any(view.alive != 0 for view in lines)
        with attach_stream(item.name, populate=False) as stream:
            return _lives(domain, stream)
    except (FileNotFoundError, UnpublishedError):
        return False
    except Error:  # not for this version to judge
        return True
