"""The C core as the model test drives it: one source, its readers, one log. Owns every handle and frees
it."""

from __future__ import annotations

import os
import secrets
import shutil
from typing import TYPE_CHECKING

from holdfast.engine.memory.domain import Domain, open_object, unlink_object
from holdfast.engine.memory.mapping import Bells, attach_stream, own_board
from holdfast.engine.native.core import CData, ffi, lib
from holdfast.engine.native.status import check

if TYPE_CHECKING:
    from pathlib import Path

RING = 65536
NONE = 2**64 - 1
BLOCK = 1 << 20


class Reader:
    """A reader with a line of its own, and the views that it has handed out."""

    def __init__(self, world: World, line: int) -> None:
        self.world, self.line = world, line
        self.mapping = attach_stream(world.stream)
        out = ffi.new("struct hf_reader **")
        check(lib.hf_reader_open(self.mapping.handle, world.board.handle, world.bells.handle, line, out))
        self.handle: CData = out[0]
        self.entry = ffi.new("struct hf_entry *")
        self.views: list[tuple[int, list[bytes], CData]] = []
        """(ring position of the pin, payloads, entries)."""

    @property
    def next(self) -> int:
        return int(lib.hf_reader_next(self.handle))

    def receive(self, capacity: int) -> tuple[int, bytes]:
        buffer = ffi.new("uint8_t[]", max(1, capacity))
        status = int(lib.hf_reader_receive(self.handle, self.entry, buffer, capacity))
        return status, bytes(ffi.buffer(buffer, self.entry.length)) if status == 1 else b""

    def batch(self, maximum: int, max_bytes: int) -> tuple[int, CData, int]:
        """Count or status, entries, and the position that is pinned."""
        entries = ffi.new("struct hf_entry[]", maximum)
        span = ffi.new("uint64_t[2]")
        count = int(lib.hf_reader_batch(self.handle, entries, maximum, max_bytes, span, span + 1))
        return count, entries, int(span[0])

    def gather(self, entry: CData) -> bytes:
        out = bytearray(int(entry.length))
        base = lib.hf_reader_base(self.handle)
        if out:
            check(lib.hf_gather(base, RING, entry, ffi.from_buffer(out)))
        return bytes(out)

    def unpin(self, index: int) -> tuple[int, int]:
        """Ends one view; HF_OK or HF_EVICTED, and where it was pinned."""
        pin, _, _ = self.views.pop(index)
        keep = min((other for other, _, _ in self.views), default=NONE)
        return int(lib.hf_reader_unpin(self.handle, pin, keep)), pin

    def close(self) -> None:
        lib.hf_reader_close(self.handle)
        self.mapping.close()


class World:
    """See the module."""

    def __init__(self, domain: Domain, path: Path, level: int, retain: int) -> None:
        self.domain = domain
        self.uuid = secrets.token_bytes(16)
        self.bells = Bells.of(domain)
        self.board = own_board(domain, self.uuid)
        self.path = path
        self.path.mkdir()
        self.incarnation = 0
        self.source: CData = ffi.NULL
        self.readers: list[Reader] = []
        self._lines: list[int] = []
        self.config = ffi.new("struct hf_log_config *")
        ffi.memmove(self.config.uuid, self.uuid, 16)
        self.config.first_segment_bytes, self.config.max_segment_bytes = 16384, 65536
        self.config.retain_bytes, self.config.level = retain, level
        self.log: CData = ffi.NULL
        self.logr: CData = ffi.NULL
        self._reader_of_log: CData = ffi.NULL
        self.open_log()

    def open_log(self) -> None:
        fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            out = ffi.new("struct hf_log **")
            check(lib.hf_log_open(fd, self.config, out))
            self.log = out[0]
            if not self.logr:  # the reader outlives every store
                reader = ffi.new("struct hf_logr **")
                check(lib.hf_logr_open(fd, reader))
                self.logr = reader[0]
        finally:
            os.close(fd)

    def reopen_log(self) -> None:
        lib.hf_log_close(self.log)
        self.log = ffi.NULL
        self.open_log()

    def start_source(self, start: int, position: int, fragment: int, pin_timeout_ms: int, readers: int) -> None:
        """A new incarnation; the old one's readers go with it."""
        self._end_source()
        self.incarnation += 1
        config = ffi.new("struct hf_stream_config *")
        ffi.memmove(config.uuid, self.uuid, 16)
        config.incarnation, config.start_sqn, config.start_position = self.incarnation, start, position
        config.ring_bytes, config.fragment_bytes, config.pin_timeout_ms = RING, fragment, pin_timeout_ms
        config.topic = b"model"
        self.stream = self.domain.stream_name(self.uuid, self.incarnation)
        fd = open_object(self.stream, create=True)
        out = ffi.new("struct hf_source **")
        try:
            check(lib.hf_source_create(fd, config, self.board.handle, self.bells.handle, out))
            self.source = out[0]
            while len(self._lines) < readers + 1:
                self._lines.append(self._claim_line())
            self.readers = [Reader(self, line) for line in self._lines[1:]]
            self.store = Reader(self, self._lines[0])
        finally:
            os.close(fd)
            unlink_object(self.stream)

    def _claim_line(self) -> int:
        who = ffi.new("struct hf_identity *")
        ffi.memmove(who.uuid, secrets.token_bytes(16), 16)
        who.role, who.bell = lib.HF_ROLE_RECEIVER, self.bells.index
        return check(lib.hf_board_claim(self.board.handle, self.domain.fd, who, ffi.NULL))

    @property
    def header(self) -> CData:
        return ffi.cast("struct hf_stream_header *", lib.hf_source_map(self.source).base)

    def log_info(self) -> CData:
        info = ffi.new("struct hf_log_info *")
        lib.hf_log_info(self.log, info)
        return info

    def _end_source(self) -> None:
        if self.source:
            for reader in [*self.readers, self.store]:
                reader.close()
            self.readers = []
            lib.hf_source_destroy(self.source)
            self.source = ffi.NULL

    def close(self) -> None:
        self._end_source()
        for line in self._lines:
            lib.hf_board_release(self.board.handle, line)
        if self.logr:
            lib.hf_logr_close(self.logr)
        if self.log:
            lib.hf_log_close(self.log)
        self.board.close()
        unlink_object(self.board.name)
        shutil.rmtree(self.path)
