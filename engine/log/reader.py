"""The logs of one source at its stores, read in place: a block of messages from whichever store has the
number.

No store is asked: reading its files costs it nothing but its disk, and for the disks' sake they take turns,
SHARE_BYTES each (docs/semantics.md F.2). A range that one of them lacks, or that is damaged or unreadable
there, is read from the next. One thread reads; any thread may name more logs.

A store that was away while incarnations began has records that they made void (docs/design.md 13), and does
not know it. So all logs are read by one BEGIN table, the newest that holds (engine/rules/reports.py
readers_tables). As long as logs that cannot be read decide which one that is, nothing is read from the number
on where those that may hold part.
"""

from __future__ import annotations

import contextlib
import errno
from bisect import bisect_left
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from ..errors import CorruptionError, SystemCallError
from ..memory.mapping import owned
from ..native import private_directory
from ..native.core import CData, ffi, lib
from ..native.runtime import Path, os
from ..native.status import check, error_of
from ..rules.reconcile import BEGINS_MAX, FOR_EVER, LogView, Table, after_begin, newest_table, void_from
from ..rules.reports import agreed_below
from .believed import tables_by_logs
from .end import Refusal, open_log
from .undeliverable import MarkFile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .believed import Judge

__all__ = ["FOR_EVER", "ONLY_DECLARED", "Block", "Bounds", "Logs", "check_openable", "known_table", "table_of"]

BLOCK_BYTES = 512 * 1024
"""Read at once: a good half of a core's second cache, where the program finds it warm."""
FRAME_BYTES: int = ffi.sizeof("struct hf_frame")
SHARE_BYTES = 8 << 20
"""Read from one store before it is another's turn: enough for the kernel to read ahead, and for the seek to
cost nothing."""
LACKING = {lib.HF_GONE, lib.HF_DAMAGED, lib.HF_LOST, lib.HF_HOLE}
"""What a log says of a number that it has not, where it has others behind it."""
Bounds = Mapping[str, int]
"""Of logs at stores of earlier lists: path -> the number from which on it has nothing that counts."""
ONLY_DECLARED: Bounds = MappingProxyType({})
SCAN_MAX = 8192
"""Entries taken from one block at a time."""
_new_uncleared = ffi.new_allocator(should_clear_after_alloc=False)


class Block:
    """Messages in private memory: ``entries[index:count]`` (struct hf_entry[]) are still to be delivered."""

    def __init__(self, most: int = BLOCK_BYTES) -> None:
        self._bytes = min(most, BLOCK_BYTES) or BLOCK_BYTES
        self.memory: CData = ffi.NULL
        self.entries: CData = ffi.NULL
        self.index = 0
        self.count = 0
        self.lent = False
        """A view of the memory was handed out: it is not written again."""
        self._consumed = ffi.new("uint64_t *")
        self._scanned = 0

    @property
    def left(self) -> int:
        """Messages to deliver."""
        return self.count - self.index

    @property
    def frames(self) -> tuple[CData, int]:
        """The frames of the messages that are left, as they lie in the memory, and their bytes."""
        begin = self._start(self.index)
        return self.memory + begin, self._start(self.count) - begin

    @property
    def size(self) -> int:
        """Bytes of the memory that were read from a log or a ring; nobody has cleared what lies behind."""
        return int(self._consumed[0])

    def _start(self, index: int) -> int:
        """Where the first frame of a message lies, or the end of the last one."""
        return self.entries[index].offset - FRAME_BYTES if index < self._scanned else self.size

    def room(self, size: int) -> int:
        """Bytes of the memory, ``size`` at least."""
        if self.lent or not self.memory or ffi.sizeof(self.memory) < size:
            self.memory, self.lent = _new_uncleared("uint8_t[]", max(size, self._bytes)), False
        if not self.entries:
            self.entries = ffi.new("struct hf_entry[]", SCAN_MAX)
        return int(ffi.sizeof(self.memory))

    def scan(self, size: int, number: int, stop: int) -> bool:
        """Takes in the messages of ``size`` bytes of frames, from the one that carries ``number``, that end
        before ``stop``.

        A block starts at a message's first fragment; ``number`` lies inside a message only if a program chose
        so.
        """
        entries = self.entries
        count = int(check(lib.hf_scan(self.memory, size, entries, SCAN_MAX, self._consumed), what="block"))
        self._scanned = count
        self.index = 0
        while self.index < count and entries[self.index].sequence_number < number:
            self.index += 1
        self.count = count
        self.end_before(stop)
        return self.index < self.count

    def end_before(self, stop: int) -> None:
        """Leaves out the messages that end at ``stop`` or behind."""
        entries, index, count = self.entries, self.index, self.count
        if index < count and entries[count - 1].sequence_number >= stop:
            self.count = bisect_left(range(count), stop, index, key=lambda i: int(entries[i].sequence_number))

    def clear(self) -> None:
        """Forgets what is left."""
        self.index = self.count = 0

    def free(self) -> None:
        """Lets the memory go; views of it stay valid."""
        self.clear()
        self.memory = self.entries = ffi.NULL


def table_of(log: CData) -> Table:
    """The BEGIN table of a ``struct hf_logr *``; empty where nothing has begun.

    Raises CorruptionError, SystemCallError: it cannot be read. Then more may have begun than anything shows.
    """
    begins = ffi.new("struct hf_begin[]", BEGINS_MAX)
    return _table(begins, lib.hf_logr_begins(log, begins))


def view_of(log: CData) -> LogView:
    """The BEGIN table and the next number, of one moment; the number is 0 where it cannot be told. Raises as
    :func:`table_of`."""
    begins, number = ffi.new("struct hf_begin[]", BEGINS_MAX), ffi.new("uint64_t *")
    while (count := lib.hf_logr_view(log, begins, number)) == lib.HF_AGAIN:
        pass  # a BEGIN came at each of its looks
    return LogView(_table(begins, count), int(number[0]))


def _table(begins: CData, count: int) -> Table:
    if count == lib.HF_DAMAGED:
        raise CorruptionError("the table of BEGINs in its head is damaged", hint="its store mends it when it starts")
    check(count, what="the head of a log")
    return tuple((int(begin.incarnation), int(begin.start_sqn)) for begin in begins[0:count])


def known_table(log: CData) -> Table:
    """As :func:`table_of`; empty where it cannot be read: for who asks other logs, too."""
    with contextlib.suppress(CorruptionError, SystemCallError):
        return table_of(log)
    return ()


def check_openable(path: str) -> None:
    """Raises SystemCallError when a log's directory is there and this process cannot open it (EACCES,
    EMFILE)."""
    try:
        os.close(private_directory.open_log(path))
    except OSError as refused:
        if refused.errno not in {errno.ENOENT, errno.ENOTDIR}:
            raise error_of(int(lib.HF_ERRNO) - (refused.errno or 0), what=path) from None


class Logs:
    """See the module. ``paths``: directories of the source's log at its stores, the first to try first.

    ``until``: of those at stores of earlier lists.
    ``marks``: what a store's operator marked undeliverable counts as lost there.
    ``judge``: which tables may hold, by what the logs say and one that is known to (engine/log/believed.py).
    """

    def __init__(
        self, paths: Sequence[str], until: Bounds = ONLY_DECLARED, *, marks: bool = True, judge: Judge = tables_by_logs
    ) -> None:
        self.paths: tuple[str, ...] = tuple(paths)
        self.until = until
        """Both are replaced as a whole."""
        self.stops: Bounds = {}
        """Path -> the number from which on that log has what is another incarnation's; set by the judge."""
        self.begun = 0, 0
        """The newest BEGIN (incarnation, its first number) that holds: told by the feed, or by a log that was
        looked into."""
        self.table: Table = ()
        """What is valid in all of them: the table that leads to it."""
        self.agreed = FOR_EVER
        """From here on another table may hold as well, and nothing is read."""
        self.disputed = self._crosses = False
        """After a :meth:`read` that found nothing: because of that. And: because a message ends beyond."""
        self.behind: list[int] = []
        """After a :meth:`read` that found nothing: where those logs go on that will never have the number."""
        self.undecided = 0
        """After such a read: logs that may still get it, because they are behind or cannot be read now."""
        self.awaited: list[str] = []
        """Their paths."""
        self.unread: list[str] = []
        """Of these, the ones that cannot be read now."""
        self.marked = False
        """After such a read: the operator of a store has marked the number."""
        self.let_go: list[str] = []
        """After such a read: logs that have let go what is below a later number. Whether their store ever had
        this one, its state says (store_info.had)."""
        self.refused: set[int] = set()
        """After such a read: what the logs answered (HF_GONE, HF_DAMAGED, HF_LOST, HF_HOLE, HF_AGAIN)."""
        self.incarnation = 0
        """After a read that found something: under which the store wrote it,"""
        self.path = ""
        """and from where it was read."""
        self._turn = 0
        """Whose turn it is, counted on and on: that path is read first, ``_share`` bytes of messages more."""
        self._share = SHARE_BYTES
        self._open: dict[str, tuple[int, CData]] = {}
        """By path: inode of the directory, reader."""
        self._judge = judge
        self._guess: Table = ()
        """The table that was made up last of what can be read, and of a newer BEGIN that only a ring has
        told."""
        self._asked: tuple[tuple[str, ...], tuple[int, int]] | None = None
        """The paths that were asked for their tables, and the newest BEGIN that was known then."""
        self._heard: dict[str, tuple[tuple[int, int], bool]] = {}
        """By path, a newer BEGIN that was not taken then, and whether something was sent under it."""
        self._marks: dict[str, MarkFile] | None = {} if marks else None
        self._number = ffi.new("uint64_t *")
        self._begin = ffi.new("uint64_t[2]")

    def close(self) -> None:
        """Unmaps; a later read opens them again."""
        self._open.clear()

    def gone(self) -> bool:
        """There were logs, and none of their directories is there any more. Stores of earlier lists do not
        deregister."""
        declared = [path for path in self.paths if path not in self.until]
        return bool(declared) and not any(os.path.isdir(path) for path in declared)

    def read(self, number: int, block: Block, stop: int = FOR_EVER) -> bool:
        """Fills ``block`` with messages from ``number`` on, below ``stop``. False: no log has it, and the
        attributes say why."""
        self.behind, self.awaited, self.unread, self.let_go = [], [], [], []
        self.undecided = 0
        self.refused, self.marked, self.disputed, self._crosses = set(), False, False, False
        paths = self.paths
        self.learn()
        if number >= self.agreed:
            self._asked = None  # what decides may be readable now
            self.learn()
        if number >= self.agreed:
            return self._dispute(number)
        for turn in range(self._turn, self._turn + len(paths)):
            path = paths[turn % len(paths)]
            if number >= self.until.get(path, FOR_EVER):
                continue
            status = self._try(path, number, block, stop)
            if status == 1:
                self._served(turn, block.frames[1])
                self.path = path
                return True
            self.refused.add(status)
            if status in LACKING and self._number[0] > number:
                self.behind.append(min(int(self._number[0]), self.stops.get(path, FOR_EVER)))
                if status == lib.HF_GONE and lib.hf_logr_let_go(self._open[path][1], number) == 1:
                    self.let_go.append(path)
            else:
                self.undecided += 1
                self.awaited.append(path)
                if path not in self._open or status <= lib.HF_ERRNO:
                    self.unread.append(path)
        if self._crosses and self.agreed < stop:
            self._asked = None
            return self._dispute(number)
        return False

    def _dispute(self, number: int) -> bool:
        """Whose bytes this number has is not known. It is waited for, if there are any."""
        logs = {path: self._log(path) for path in self.paths}
        self.disputed = any(log and self._next(log) > number for log in logs.values())
        self.awaited = [path for path, log in logs.items() if not log]
        self.undecided, self.unread = len(logs), list(self.awaited)
        self.behind = [number + 1] if self.disputed else []
        return False

    def _served(self, turn: int, size: int) -> None:
        """The store that has what others lack goes on with it: they are not asked again for each block."""
        share = self._share if turn == self._turn else SHARE_BYTES
        if share > size:
            self._turn, self._share = turn, share - size
        else:
            self._turn, self._share = turn + 1, SHARE_BYTES

    def _try(self, path: str, number: int, block: Block, stop: int) -> int:
        for _ in range(3):  # once more by a newer table, once more in a directory that replaced this one
            log = self._log(path)
            if not log:
                return int(lib.HF_AGAIN)
            bound = min(stop, self.agreed, self.stops.get(path, FOR_EVER))
            status = self._deliver(path, log, number, block, bound) if number < bound else int(lib.HF_AGAIN)
            if self._knows_newer(path, log):
                block.clear()
                self.learn()
            elif status == 1 or not self._replaced(path):
                return status
            else:
                self.learn()
        return int(lib.HF_AGAIN)

    def learn(self) -> None:
        """Asks all logs for their tables, if there may be a newer one than the one that is known."""
        if self._asked == (self.paths, self.begun):
            return
        paths = self.paths
        logs = {path: self._log(path) for path in paths}
        views = {path: self._view(log) if log else None for path, log in logs.items()}
        known = [view.begins for view in views.values() if view]
        tables = self._judge(views, self._known(known))
        self.table, self.agreed = tables[-1], agreed_below(tables)
        if self.table and self.table[-1][0] > self.begun[0]:
            self.begun = self.table[-1]
        for _, log in self._open.values():
            self._teach(log)
        newer = {path: view for path, view in views.items() if view and view.incarnation > self.begun[0]}
        self._heard = {path: (view.begins[-1], view.next_sqn > view.begins[-1][1]) for path, view in newer.items()}
        # A log that can be read later may have the table that is made up here, and say what is void.
        exact = not self.begun[0] or any(self.begun in table for table in known)
        self._asked = (paths, self.begun) if exact else None
        if exact:
            self._guess = ()
        elif self.table == self._guess and len(self.table) > 1 and self.table[-2][0] + 1 < self.begun[0]:
            # What began in between is not known. It may have made void what was sent under the one before.
            self.agreed = min(self.agreed, self.table[-2][1])

    def void_from(self, incarnation: int) -> int:
        """Records of ``incarnation`` are valid below this number, by what can be read now."""
        self.learn()
        return void_from(self.table, incarnation)

    def _known(self, tables: Sequence[Table]) -> Table:
        """The table that leads to the BEGIN that is known to hold; perhaps only a ring says so yet."""
        if not self.begun[0]:
            return ()
        for table in tables:
            if self.begun in table:
                return table[: table.index(self.begun) + 1]
        base = () if self.table == self._guess else self.table  # no guess is built on another one
        if base[-1:] == (self.begun,):
            return base
        older = [table for table in (base, *tables) if table and table[-1][0] <= self.begun[0]]
        self._guess = after_begin(newest_table(older), (), *self.begun)
        return self._guess

    def _view(self, log: CData) -> LogView | None:
        """What it says of itself; None where it cannot be read."""
        with contextlib.suppress(CorruptionError, SystemCallError):
            return view_of(log)
        return None

    def _next(self, log: CData) -> int:
        numbers = ffi.new("uint64_t[2]")
        return int(numbers[1]) if lib.hf_logr_range(log, numbers, numbers + 1) == lib.HF_OK else 0

    def _teach(self, log: CData) -> None:
        check(lib.hf_logr_learn(log, ffi.new("struct hf_begin[]", self.table), len(self.table)), what="log")

    def _knows_newer(self, path: str, log: CData) -> bool:
        """A BEGIN has come since, or something was sent under one that was not taken: all logs are to be
        asked again."""
        found = lib.hf_logr_begin(log, self._begin, self._begin + 1) > 0
        newest = int(self._begin[0]), int(self._begin[1])
        if not found or newest[0] <= self.begun[0] or self._heard.get(path) == (newest, self._next(log) > newest[1]):
            return False
        self._asked = None
        return True

    def _deliver(self, path: str, log: CData, number: int, block: Block, stop: int) -> int:
        """As :meth:`_read`; what is marked in this log counts as lost there."""
        if self._marks is None:
            return self._read(log, number, block, stop)
        file = self._marks.get(path)
        if file is None:
            file = self._marks[path] = MarkFile(Path(path))
        marks = file.spans(self.table)
        if number in marks:
            self._number[0] = marks.end_of(number)
            self.marked = True
            return int(lib.HF_LOST)
        return self._read(log, number, block, min(stop, marks.bound_behind(number) or stop))

    def _read(self, log: CData, number: int, block: Block, stop: int) -> int:
        size = 0
        while True:
            size = block.room(size)
            got = lib.hf_logr_read(log, number, block.memory, size, self._number)
            if got > 0 and block.scan(got, number, stop):
                self.incarnation = int(lib.hf_logr_incarnation(log))
                return 1
            self._crosses |= got > 0  # the message ends at ``stop`` or behind
            if got != lib.HF_SMALL:
                block.clear()
                return int(min(got, 0) or lib.HF_AGAIN)
            size = int(self._number[0])  # of one message that is there, and does not fit

    def _replaced(self, path: str) -> bool:
        """The directory that is open is not the one at ``path`` any more: the store was wiped. It is let
        go."""
        try:
            same = os.stat(path).st_ino == self._open[path][0]
        except OSError:
            same = False
        if not same:
            del self._open[path]
            self.stops, self._asked = {other: stop for other, stop in self.stops.items() if other != path}, None
            self._heard.pop(path, None)
        return not same

    def _log(self, path: str) -> CData:
        known = self._open.get(path)
        if known is not None:
            return known[1]
        found = open_log(path)
        if isinstance(found, Refusal):
            return ffi.NULL
        log = owned(found.log, lib.hf_logr_close)
        self._teach(log)
        self._open[path] = found.inode, log
        return log
