"""The logs of one source at its stores, read in place: a block of messages from whichever store has the number.

No store is asked and none is spared: reading its files costs it nothing. A range that one of them lacks, or that is damaged or
unreadable there, is read from the next. Only the receiving thread reads; any thread may name more logs.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from .core import CData, ffi, lib
from .segments import owned
from .status import check

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Block", "Logs"]

BLOCK_BYTES = 256 * 1024
BLOCK_MAX = 1 << 28
SCAN_MAX = 8192
"""Entries taken from one block at a time."""
FOR_EVER = 2**64 - 1


class Block:
    """Messages in private memory: ``entries[index:count]`` (struct hf_entry[]) are still to be delivered."""

    def __init__(self) -> None:
        self.memory: CData = ffi.NULL
        self.entries: CData = ffi.NULL
        self.index = 0
        self.count = 0
        self.lent = False
        """A view of the memory was handed out: it is not written again."""
        self._consumed = ffi.new("uint64_t *")

    @property
    def left(self) -> int:
        """Messages to deliver."""
        return self.count - self.index

    def room(self, size: int) -> int:
        """Bytes of the memory, ``size`` at least."""
        if self.lent or not self.memory or ffi.sizeof(self.memory) < size:
            self.memory, self.lent = ffi.new("uint8_t[]", max(size, BLOCK_BYTES)), False
        if not self.entries:
            self.entries = ffi.new("struct hf_entry[]", SCAN_MAX)
        return int(ffi.sizeof(self.memory))

    def scan(self, size: int, number: int, stop: int) -> bool:
        """Takes in the messages of ``size`` bytes of frames, from the one that carries ``number``, that end before ``stop``.

        A block starts at a message's first fragment; ``number`` lies inside a message only if a program chose so.
        """
        entries = self.entries
        count = int(check(lib.hf_scan(self.memory, size, entries, SCAN_MAX, self._consumed), what="block"))
        self.index = 0
        while self.index < count and entries[self.index].sequence_number < number:
            self.index += 1
        if stop != FOR_EVER:
            while count > self.index and entries[count - 1].sequence_number >= stop:
                count -= 1
        self.count = count
        return self.index < count

    def clear(self) -> None:
        """Forgets what is left."""
        self.index = self.count = 0

    def free(self) -> None:
        """Lets the memory go; views of it stay valid."""
        self.clear()
        self.memory = self.entries = ffi.NULL


class Logs:
    """See the module. ``paths``: directories of the source's log at its stores, the first to try first."""

    def __init__(self, paths: Sequence[str]) -> None:
        self.paths: tuple[str, ...] = tuple(paths)
        """Replaced as a whole."""
        self.begun = 0, 0
        """The newest BEGIN (incarnation, its first number) that is known: told by the feed, or by a log that was looked into."""
        self.behind: list[int] = []
        """After a :meth:`read` that found nothing: where those logs go on that will never have the number."""
        self.undecided = 0
        """After such a read: logs that may still get it, because they are behind or cannot be read now."""
        self.unreadable = 0
        """Of these, the ones that cannot be read now."""
        self._open: dict[str, tuple[int, CData]] = {}
        """By path: inode of the directory, reader."""
        self._number = ffi.new("uint64_t *")
        self._begin = ffi.new("uint64_t[2]")

    def close(self) -> None:
        """Unmaps; a later read opens them again."""
        self._open.clear()

    def gone(self) -> bool:
        """There were logs, and none of their directories is there any more."""
        return bool(self.paths) and not any(os.path.isdir(path) for path in self.paths)

    def read(self, number: int, block: Block, stop: int = FOR_EVER) -> bool:
        """Fills ``block`` with messages from ``number`` on, below ``stop``. False: no log has it, and the attributes say why."""
        self.behind = []
        self.undecided = self.unreadable = 0
        for path in self.paths:
            log = self._log(path)
            status = self._read(log, number, block, stop) if log else int(lib.HF_AGAIN)
            if status != 1 and log and self._replaced(path):
                log = self._log(path)
                status = self._read(log, number, block, stop) if log else int(lib.HF_AGAIN)
            if status == 1:
                return True
            if status in {lib.HF_GONE, lib.HF_DAMAGED, lib.HF_LOST} and self._number[0] > number:
                self.behind.append(int(self._number[0]))
            else:
                self.undecided += 1
                self.unreadable += not log
        return False

    def _read(self, log: CData, number: int, block: Block, stop: int) -> int:
        size = 0
        while size < BLOCK_MAX:
            size = block.room(4 * size)
            got = lib.hf_logr_read(log, number, block.memory, size, self._number)
            end = min(stop, self._valid_below(log))
            if got > 0 and block.scan(got, number, end):
                return 1
            if got != lib.HF_SMALL:
                block.clear()
                return int(min(got, 0) or lib.HF_AGAIN)
        return int(lib.HF_DAMAGED)

    def _valid_below(self, log: CData) -> int:
        """A store that does not know the newest incarnation yet may hold what that has made void (DESIGN 13)."""
        known = 0, 0
        if lib.hf_logr_begin(log, self._begin, self._begin + 1) > 0:
            known = int(self._begin[0]), int(self._begin[1])
        self.begun = max(self.begun, known)
        return FOR_EVER if known == self.begun else self.begun[1]

    def _replaced(self, path: str) -> bool:
        """The directory that is open is not the one at ``path`` any more: the store was wiped. It is let go."""
        try:
            same = os.stat(path).st_ino == self._open[path][0]
        except OSError:
            same = False
        if not same:
            del self._open[path]
        return not same

    def _log(self, path: str) -> CData:
        known = self._open.get(path)
        if known is not None:
            return known[1]
        log: CData = ffi.NULL
        with contextlib.suppress(OSError):
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                out = ffi.new("struct hf_logr **")
                if lib.hf_logr_open(fd, out) == lib.HF_OK:
                    log = owned(out[0], lib.hf_logr_close)
                    self._open[path] = os.fstat(fd).st_ino, log
            finally:
                os.close(fd)
        return log
