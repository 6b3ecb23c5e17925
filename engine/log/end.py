"""Opening a log to read it, and how far it goes where nobody keeps it: such an end is walked to
(csrc/log/beyond.c).

A walk verifies up to a whole segment, 64 MiB. Nobody does that twice: where one reader of this process has
got, the next one of the same log goes on. And no drain thread does it first: a thread of its own walks ahead.
A disk that fails between that walk and the look that it was for is met by who looks: then that thread hangs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..native import private_directory
from ..native.background import in_background
from ..native.core import CData, ffi, lib
from ..native.runtime import OfProcess, futures, os, threading, time

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

__all__ = ["WALK_S", "OpenLog", "Refusal", "Walk", "is_stuck", "open_log"]

STUCK_NS = 5_000_000_000
"""A walk that goes on for longer has met a disk that does not answer, or a log of which nobody waits for the
end."""
WALK_S = 0.2
"""A walk takes less, as a rule. A thread that others wait for waits so long, and looks again later."""
WALKED_MAX = 4096
"""Logs whose walks are remembered; the oldest make room."""
HEADS: dict[int, str] = {
    lib.HF_AGAIN: "it has no head",
    lib.HF_DAMAGED: "its head is damaged",
    lib.HF_LAYOUT: "it is of another layout version",
}


class _Walks:
    """What this process has walked, and walks now: a forked child has its parent's ends, and none of its
    threads."""

    def __init__(self) -> None:
        self.ends: dict[tuple[int, int], CData] = {}
        """By device and inode of a log's directory: struct hf_log_walked *, never changed."""
        self.running: dict[str, list[int]] = {}
        """By directory of logs: since when (CLOCK_MONOTONIC, ns) each walk there goes on."""
        self.lock = threading.Lock()
        """Of ``running``."""


def _keep_ends(left: _Walks) -> None:
    _walks.value.ends.update(left.ends)


_walks: OfProcess[_Walks] = OfProcess(_Walks, _keep_ends)


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
        walked = ffi.new("struct hf_log_walked *")
        lib.hf_logr_walked(self.log, walked)
        if walked.end:
            ends = _walks.value.ends
            ends.pop(self.key, None)
            ends[self.key] = walked
            while len(ends) > WALKED_MAX:
                ends.pop(next(iter(ends)), None)
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
    walked = _walks.value.ends.get(opened.key)
    if walked is not None:
        lib.hf_logr_resume(opened.log, walked)
    return opened


class Walk:
    """Walks to the ends of these logs. Then who looks at them walks only what has come since.

    The logs of one directory have a thread of their own: where a disk does not answer, only its logs are
    waited for.
    """

    def __init__(self, paths: Iterable[str | Path]) -> None:
        of_directory: dict[str, list[str]] = {}
        for path in [os.fspath(each) for each in paths]:
            of_directory.setdefault(os.path.dirname(path), []).append(path)
        self._walks = {
            directory: _start(directory, logs) for directory, logs in of_directory.items() if not is_stuck(logs[0])
        }

    def over(self, timeout: float = 0) -> bool:
        """Each log was walked, or its disk does not answer (:func:`is_stuck`). Waits this many seconds for
        it."""
        futures.wait(self._walks.values(), timeout)
        return all(walk.done() or _hangs(directory) for directory, walk in self._walks.items())


def is_stuck(path: str | Path) -> bool:
    """The disk of this log does not answer: whoever reads there hangs. How far the log goes is unknown, as if
    it were away."""
    return _hangs(os.path.dirname(path))


def _hangs(directory: str) -> bool:
    now = time.monotonic_ns()
    walks = _walks.value
    with walks.lock:
        return any(now - since >= STUCK_NS for since in walks.running.get(directory, ()))


def _start(directory: str, paths: list[str]) -> futures.Future[None]:
    walks, since = _walks.value, time.monotonic_ns()
    left = [since]

    def over() -> None:
        """Once: a start that was interrupted may have started the thread."""
        with walks.lock:
            for each in left:
                walks.running[directory].remove(each)
            left.clear()

    def walk() -> None:
        try:
            _walk(paths)
        finally:
            over()

    with walks.lock:
        walks.running.setdefault(directory, []).append(since)
    try:
        return in_background("holdfast-walk", walk)
    except BaseException:  # nothing hangs there
        over()
        raise


def _walk(paths: list[str]) -> None:
    for path in paths:
        opened = open_log(path)
        if isinstance(opened, OpenLog):
            opened.end()
            opened.close()
