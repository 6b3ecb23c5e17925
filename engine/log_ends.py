"""Opening a log to read it, and how far it goes where nobody keeps it: such an end is walked to (csrc/log_beyond.c).

A walk verifies up to a whole segment, 64 MiB. Nobody does that twice: where one reader of this process has got, the next one of
the same log goes on. And no drain thread does it first: a thread of its own walks ahead.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

from . import private_directory
from .core import CData, ffi, lib

if TYPE_CHECKING:
    from collections.abc import Iterable
    from concurrent.futures import Future
    from pathlib import Path

__all__ = ["OpenLog", "Refusal", "open_log", "walk_ahead"]

MARKS_MAX = 4096
"""Logs whose marks are remembered; the oldest make room."""
HEADS: dict[int, str] = {
    lib.HF_AGAIN: "it has no head",
    lib.HF_DAMAGED: "its head is damaged",
    lib.HF_LAYOUT: "it is of another layout version",
}

_marks: dict[tuple[int, int], CData] = {}
"""By device and inode of a log's directory: struct hf_log_mark *, never changed."""
_walkers: list[ThreadPoolExecutor] = []
"""One, from its first use on."""
os.register_at_fork(after_in_child=_walkers.clear)  # a child has none of the parent's threads


class Refusal(NamedTuple):
    """Why a log cannot be opened: a status of the core."""

    status: int

    @property
    def number(self) -> int:
        """Its errno; not above 0 if it is none."""
        return int(lib.HF_ERRNO) - self.status

    def __str__(self) -> str:
        if self.status <= lib.HF_ERRNO:
            return os.strerror(self.number)
        return HEADS.get(self.status, f"its head cannot be read (status {self.status})")


class OpenLog(NamedTuple):
    """A ``struct hf_logr *``, to be closed by who opened it."""

    log: CData
    inode: int
    """Of its directory."""
    key: tuple[int, int]

    def end(self) -> tuple[int, int]:
        """What hf_logr_end says: its status, and the number. What was walked is remembered."""
        number = ffi.new("uint64_t *")
        status = int(lib.hf_logr_end(self.log, number))
        mark = ffi.new("struct hf_log_mark *")
        lib.hf_logr_mark(self.log, mark)
        if mark.end:
            _marks.pop(self.key, None)
            _marks[self.key] = mark
            while len(_marks) > MARKS_MAX:
                _marks.pop(next(iter(_marks)), None)
        return status, int(number[0])

    def close(self) -> None:
        """Unmaps."""
        lib.hf_logr_close(self.log)


def open_log(path: str | os.PathLike[str]) -> OpenLog | Refusal:
    """The log in this directory, from where its end was walked to before."""
    out = ffi.new("struct hf_logr **")
    try:
        fd = private_directory.open_log(path)
    except OSError as refused:
        return Refusal(int(lib.HF_ERRNO) - (refused.errno or 0))
    try:
        place = os.fstat(fd)
        status = int(lib.hf_logr_open(fd, out))
    finally:
        os.close(fd)
    if status != lib.HF_OK:
        return Refusal(status)
    opened = OpenLog(out[0], place.st_ino, (place.st_dev, place.st_ino))
    mark = _marks.get(opened.key)
    if mark is not None:
        lib.hf_logr_resume(opened.log, mark)
    return opened


def walk_ahead(paths: Iterable[str | Path]) -> Future[None]:
    """Walks to the ends of these logs on a thread of its own. Then who looks at them walks only what has come since."""
    if not _walkers:
        _walkers.append(ThreadPoolExecutor(1, thread_name_prefix="holdfast-walk"))
    return _walkers[0].submit(_walk, [os.fspath(path) for path in paths])


def _walk(paths: list[str]) -> None:
    for path in paths:
        opened = open_log(path)
        if isinstance(opened, OpenLog):
            opened.end()
            opened.close()
