"""Messages of one source as columns: a range of numbers, from whichever store's log has them, with every
process alive or dead.

Reading costs no store anything but its disk (engine/log/reader.py): a number that is damaged or missing at
one is read from another, and what a newer incarnation made void is not read at all. Nothing here runs per
message: C verifies a block, walks it once and writes the columns (csrc/stream/ring_walk.c hf_columns).

A message belongs to the range that holds the number of its last fragment. So ranges that meet give each
message once, wherever they are cut.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Literal, NamedTuple

from ..errors import UsageError
from ..native.core import lib
from ..native.runtime import Path
from ..native.status import error_of
from .columns import FRAGMENTED, Columns, ColumnsMaker
from .info_file import log_range
from .reader import Block, Logs, check_openable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .catalog import StoreLog

__all__ = ["FRAGMENTED", "Columns", "Gap", "Records", "Why"]

EIO = int(lib.HF_ERRNO) - errno.EIO
ANSWERS = {lib.HF_GONE, lib.HF_DAMAGED, lib.HF_LOST, lib.HF_HOLE, lib.HF_AGAIN, EIO}
"""Of a log, about a number."""
TRIES = 8
"""Reads of a number that a log should have and does not give, because its segments change meanwhile."""

Why = Literal["damaged", "expired", "lost", "missing"]


class Gap(NamedTuple):
    """Numbers ``first`` .. ``next - 1``, which no log gives."""

    first: int
    next: int
    why: Why
    """``damaged``: at a store that has them, and nowhere whole. ``expired``: retention took them. ``lost``:
    recorded as had by nobody, or marked undeliverable by an operator. ``missing``: no log that can be read
    has them."""


class Records:
    """Messages of one source with numbers ``first`` .. ``stop - 1``, ascending. One thread; opened at the
    first read.

    Args:
        logs: of one source (kept_topics.TopicSource.logs).
        values, crc: which of the columns that cost something are made.
        stores: read only from the logs of these, and still nothing that another one of ``logs`` knows to be
            void.
        begun: a BEGIN (incarnation, its first number) that holds, as a ring says: what it makes void is not
            read.

    Raises:
        UsageError: a range that is none, or no log that may be read.
    """

    def __init__(
        self, logs: Sequence[StoreLog], first: int, stop: int, *, values: bool = True, crc: bool = False,
        stores: Sequence[str] = (), begun: tuple[int, int] = (0, 0),
    ) -> None:  # fmt: skip
        if not 0 <= first <= stop < 2**63:
            raise UsageError(f"numbers {first}..{stop - 1} are no range", hint="0 <= first <= stop < 2^63")
        self._stores = {log.path: log.store for log in logs}
        paths = tuple(path for path, name in self._stores.items() if not stores or name in stores)
        if not paths:
            have = ", ".join(sorted(self._stores.values())) or "none"
            raise UsageError(
                f"no log of {', '.join(stores) or 'any store'} to read", hint=f"stores that have one: {have}"
            )
        self._number, self._stop = first, stop
        self._values, self._crc = values, crc
        self._block = Block()
        self._gap: Gap | None = None
        """Found, and not told yet: what was read before it comes first."""
        self._logs = Logs(list(self._stores))
        self._logs.begun = begun
        if len(paths) < len(self._stores):
            self._logs.learn()
            self._logs.paths = paths

    @property
    def number(self) -> int:
        """The next one to be read."""
        return self._number

    @property
    def incarnation(self) -> int:
        """The newest that has begun, as far as it is known; 0: none."""
        return self._logs.begun[0]

    def seek(self, number: int) -> None:
        """Goes on at ``number``, in the range: what lies before it was read elsewhere."""
        self._number, self._gap = number, None
        self._block.clear()

    def close(self) -> None:
        """Unmaps the logs; what was read stays. A later read opens them again."""
        self._logs.close()
        self._block.free()

    def read(self, rows: int = 65536, max_bytes: int = 16 << 20) -> Columns | Gap | None:
        """The next messages, at most ``rows`` of them; a gap that lies before them; None at the end of the
        range.

        Their payloads are at most ``max_bytes`` together. A single message that is larger comes alone.

        Raises:
            MessageTooLargeError: a message of 2 GiB or more.
            SystemCallError: a log is there, and this process cannot read it (EACCES, EMFILE, ENOMEM).
            ForkedHandleError: the parent process has read from this one.
            UsageError: rows or max_bytes below 1.
        """
        if rows < 1 or max_bytes < 1:
            raise UsageError(f"rows={rows}, max_bytes={max_bytes}", hint="both are at least 1")
        if not self._fetch():
            gap, self._gap = self._gap, None
            return gap
        block, path = self._block, self._logs.path
        made = ColumnsMaker(block, min(rows, self._stop - self._number), max_bytes, values=self._values, crc=self._crc)
        more = True
        while more:
            more = made.take(block)
            self._number = made.next
            more = more and self._fetch() and self._logs.path == path
        return made.columns(self._stores[path])

    def _fetch(self) -> bool:
        """Makes sure that the block has messages. False: the range ends here, or ``_gap`` is here."""
        block = self._block
        if block.left:
            return True
        if self._gap is not None or self._number >= self._stop:
            return False
        for _ in range(TRIES):
            if self._logs.read(self._number, block):
                block.end_before(self._stop)
                if not block.left:  # the message that holds the number ends in the next range
                    self._number = self._stop
                return block.left > 0
            if self._decided():
                break
        self._gap = self._found_gap()
        return False

    def _decided(self) -> bool:
        """The logs' answer will not be another one by itself."""
        if not self._logs.undecided:
            return True
        ranges = [log_range(Path(path)) for path in self._logs.paths]
        return not any(known is not None and known[0] <= self._number < known[1] for known in ranges)

    def _found_gap(self) -> Gap:
        """What the logs said. Raises what is no answer: a process without file descriptors has lost no
        message."""
        number, refused = self._number, self._logs.refused
        for status in refused - ANSWERS:
            raise error_of(status, what="log")
        for path in self._logs.paths if self._logs.unread else ():
            check_openable(path)
        following = min([*self._logs.behind, self._stop])
        why: Why = "missing"
        if not refused.isdisjoint({lib.HF_DAMAGED, EIO}):
            why = "damaged"
        elif any(known is not None and number < known[0] for known in map(log_range, map(Path, self._logs.paths))):
            why = "expired"
        elif lib.HF_LOST in refused:
            why = "lost"
        self._number = following
        return Gap(number, following, why)
