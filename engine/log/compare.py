"""Compares the logs of stores, source by source: read-only, and safe beside stores that run.

Two logs are equal over a range of numbers when a reader gets the same from both: the same messages with the
same numbers, flags, times and bytes. Where they lie in a log, and whether in a segment or a fill, does not
matter.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import msgspec

from ..errors import ConfigError, CorruptionError
from ..native.core import CData, ffi, lib
from ..native.status import check
from ..rules.reconcile import newest_table
from .check import StoreFiles, store_files
from .info_file import log_reader
from .reader import table_of

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["Comparison", "Difference", "compare_stores"]

BLOCK_BYTES = 1 << 20
TRIES = 8
"""Ranges that are let go as a whole before anything of them was read."""
LACKS: dict[int, str] = {
    lib.HF_DAMAGED: "is damaged",
    lib.HF_LOST: "is recorded as lost",
    lib.HF_GONE: "is missing",
    lib.HF_HOLE: "is missing",
}


class Difference(msgspec.Struct, frozen=True):
    """The first one of a source."""

    number: int
    directory: str
    """Where it is."""
    text: str


class Comparison(msgspec.Struct, frozen=True):
    """One source. ``first`` .. ``next - 1``: the numbers that all of them retained when they were read.

    What a store lets go meanwhile is no difference. Logs that share no number, and do not end alike, are not
    equal.
    """

    source: str
    topic: str
    first: int
    next: int
    difference: Difference | None


def compare_stores(directories: Sequence[str | os.PathLike[str]]) -> list[Comparison]:
    """Compares each source that one of the stores in these directories keeps. A store that has no log of it
    differs.

    Raises:
        ConfigError: fewer than two, or one is no store's directory.
        CorruptionError: a log has no readable head.
    """
    if len(directories) < 2:
        raise ConfigError("one directory cannot be compared", hint="give two or more: --compare DIR DIR...")
    stores = [store_files(directory) for directory in directories]
    found: dict[str, str] = {}
    for store in stores:
        for log in store.logs:
            found[log.name] = found.get(log.name) or store.topic(log)
    return [_compare(stores, source, topic) for source, topic in sorted(found.items())]


def _compare(stores: list[StoreFiles], source: str, topic: str) -> Comparison:
    with contextlib.ExitStack() as stack:
        sides = []
        for store in stores:
            path = next((log for log in store.logs if log.name == source), None)
            if path is None:
                return Comparison(source, topic, 0, 0, Difference(0, str(store.path), "it has no log of this source"))
            log = stack.enter_context(log_reader(path))
            if log is None:
                raise CorruptionError(
                    f"{path} is not a readable log", hint="its store writes a new head when it starts"
                )
            sides.append(_Side(store.path, log))
        # Also where its newest BEGIN never completed: that log ends where it begins, and so does what all of
        # them share.
        table = newest_table(table_of(side.log) for side in sides)
        for side in sides:
            side.learn(table)
        for _ in range(TRIES):
            ranges = [side.range() for side in sides]
            first, following = max(oldest for oldest, _ in ranges), min(end for _, end in ranges)
            if first >= following:
                return Comparison(source, topic, first, first, _apart(sides, ranges))
            first, following, difference = _walk(sides, first, following)
            if first < following or difference is not None:
                break  # else all that they shared was let go before it was read
        return Comparison(source, topic, first, following, difference)


def _apart(sides: list[_Side], ranges: list[tuple[int, int]]) -> Difference | None:
    """They share no number. That is none where all end alike: who has nothing there has let it go."""
    shortest = min(range(len(sides)), key=lambda i: ranges[i][1])
    latest = max(range(len(sides)), key=lambda i: ranges[i][0])
    ends = {end for _, end in ranges}
    if len(ends) == 1:
        return None
    end, oldest = ranges[shortest][1], ranges[latest][0]
    behind = f"its log ends before number {end}, and the one in {sides[latest].path} begins with {oldest}"
    if shortest == latest:
        behind = f"its log has nothing below {end}, and nothing behind"
    return Difference(oldest, str(sides[shortest].path), f"{behind}: they share no number")


def _walk(sides: list[_Side], number: int, stop: int) -> tuple[int, int, Difference | None]:
    """Returns the first number that all retained, the one behind the last, and the first difference."""
    first = number
    while number < stop:
        for side in sides:
            side.fetch(number)
        oldest = max(side.range()[0] for side in sides) if any(side.status == lib.HF_GONE for side in sides) else 0
        if oldest > number:  # let go since the range was read: a difference of retention, and not of messages
            for side in sides:
                side.data = memoryview(b"")
            if oldest >= stop:
                return first, number, None
            first = number = oldest
            continue
        lacking = [side for side in sides if not side.data]
        ended = [side for side in lacking if side.ended]
        if ended:  # what lies behind is void there: it is not retained
            return first, number, None
        if len(lacking) == len(sides):
            number = min(side.number for side in sides)
        elif lacking:
            lacks = LACKS[lacking[0].status]
            return (
                first,
                stop,
                Difference(number, str(lacking[0].path), f"it {lacks} there, and not in all of the others"),
            )
        else:
            size = min(len(side.data) for side in sides)
            for side in sides[1:]:
                if side.data[:size] != sides[0].data[:size]:
                    at = _differs(sides[0].data, side.data, number)
                    return first, stop, Difference(at, str(side.path), f"it differs from the one in {sides[0].path}")
            number = min(side.number for side in sides if len(side.data) == size)
            for side in sides:
                side.data = side.data[size:]
    return first, stop, None


def _differs(one: memoryview, other: memoryview, number: int) -> int:
    """Number of the first frame that is not the same in both; ``number`` is that of their first."""
    header = ffi.sizeof("struct hf_frame")
    at = 0
    while one[at : at + header] == other[at : at + header]:
        frame = ffi.from_buffer("struct hf_frame *", one[at : at + header])
        room = (int(frame.commit) + lib.HF_GRANULE - 1) // lib.HF_GRANULE * lib.HF_GRANULE
        if one[at : at + room] != other[at : at + room]:
            break
        at += room
        number = int(frame.sequence_number) + 1
    return number


class _Side:
    """One log, read block by block."""

    def __init__(self, path: Path, log: CData) -> None:
        self.path = path
        self.log = log
        self.data = memoryview(b"")
        """Messages that are read and not compared yet, position and checksum taken out."""
        self.number = 0
        """Behind them; or, without any, where the log goes on."""
        self.status = 0
        self.ended = False
        """It has nothing more that is valid."""
        self._numbers = ffi.new("uint64_t[2]")
        self._size = BLOCK_BYTES

    def learn(self, table: tuple[tuple[int, int], ...]) -> None:
        """Reads by this BEGIN table, which a store that was away may not know yet."""
        check(lib.hf_logr_learn(self.log, ffi.new("struct hf_begin[]", table), len(table)), what=str(self.path))

    def range(self) -> tuple[int, int]:
        """Oldest and next published number."""
        check(lib.hf_logr_range(self.log, self._numbers, self._numbers + 1), what=str(self.path))
        return int(self._numbers[0]), int(self._numbers[1])

    def fetch(self, number: int) -> None:
        """Fills ``data`` from ``number`` on, unless something is left there."""
        if self.data:
            return
        while True:
            block = ffi.new("uint8_t[]", self._size)
            got = int(lib.hf_logr_read(self.log, number, block, self._size, self._numbers))
            if got != lib.HF_SMALL:
                break
            self._size = int(self._numbers[0])
        self.status, self.number = got, int(self._numbers[0])
        self.ended = got == lib.HF_AGAIN or (got == lib.HF_GONE and self.number >= self.range()[1])
        if got > 0:
            lib.hf_frames_plain(block, got)
            self.data = memoryview(ffi.buffer(block, got))
        elif got not in LACKS and not self.ended:
            check(got, what=str(self.path))
