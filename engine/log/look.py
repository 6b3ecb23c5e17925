"""Looks through one log for what it lacks: read-only, a block at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..native.core import CData, ffi, lib
from ..native.status import check
from ..rules.scrub_schedule import WHOLE, Range

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["Gap", "LogLook"]

BLOCK_BYTES = 1 << 20
"""Read at a time."""
_new_uncleared = ffi.new_allocator(should_clear_after_alloc=False)
KINDS: dict[int, str] = {lib.HF_DAMAGED: "damage", lib.HF_LOST: "lost", lib.HF_GONE: "hole", lib.HF_HOLE: "hole"}


class Gap(NamedTuple):
    """Numbers ``first`` .. ``next - 1`` that a log lacks."""

    first: int
    next: int
    kind: str
    """``damage`` (its bytes do not verify), ``lost`` (recorded as such: no store had them), or ``hole``: they
    were sent while the store was away, or were not to be read anywhere when it caught up."""


class LogLook:
    """See the module. ``log``: the ``struct hf_logr *`` of the log in ``path``; what it has beyond its end of
    now is not looked at.

    Raises:
        OSError, Error: here and in :meth:`step`, it cannot be read.
    """

    def __init__(self, path: Path, log: CData, within: Sequence[Range] = WHOLE) -> None:
        self.read_bytes = 0
        self._path, self._log = path, log
        self._within = list(within)
        self._number = self._stop = 0
        self._memory: CData = ffi.NULL
        self._numbers = ffi.new("uint64_t[2]")
        self._end = self._range()[1]

    @property
    def over(self) -> bool:
        """All was looked at."""
        return self._number >= self._stop and not self._within

    def step(self) -> Gap | None:
        """One block, while it is not over: what is missing there, if anything is."""
        if self._number >= self._stop:
            first, stop = self._within.pop(0)
            self._number, self._stop = first, min(stop, self._end)
            return None
        if not self._memory:
            self._memory = _new_uncleared("uint8_t[]", BLOCK_BYTES)
        following = self._numbers
        got = lib.hf_logr_read(self._log, self._number, self._memory, ffi.sizeof(self._memory), following)
        if got == lib.HF_SMALL:
            self._memory = ffi.new("uint8_t[]", int(following[0]))
        elif got > 0:
            self.read_bytes += int(got)
            self._number = int(following[0])
        elif got in KINDS and following[0] > self._number:
            return self._missing(int(following[0]), KINDS[got])
        elif got == lib.HF_AGAIN:  # a new incarnation has begun below
            self._number = self._stop
        else:
            check(got, what=str(self._path))
        return None

    def _missing(self, following: int, kind: str) -> Gap | None:
        stop = min(following, self._stop)
        first = max(self._number, self._range()[0])  # what is no longer kept is no gap
        self._number = max(stop, first)
        return Gap(first, stop, kind) if first < stop else None

    def _range(self) -> tuple[int, int]:
        check(lib.hf_logr_range(self._log, self._numbers, self._numbers + 1), what=str(self._path))
        return int(self._numbers[0]), int(self._numbers[1])
