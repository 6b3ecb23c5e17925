"""A step that one process at a time may do, under a lock file. A wait for it ends, and says whose turn it is:
nothing is taken from a process that lives, however long it stands still (docs/design.md 3, 12)."""

from __future__ import annotations

import struct

from ..errors import TurnHeldError
from ..native.runtime import Path, fcntl, os, time

__all__ = ["flock_of", "holder_of", "stands_still", "take_turn"]

STANDS_NS = 500_000_000
"""So long a process that is stopped is waited for: it may be let go on."""
PATIENCE_NS = 30_000_000_000
"""One that runs: a busy machine, a large ring."""
NAP_S = 0.002
_FLOCK = struct.Struct("hhqqi4x")


def flock_of(kind: int, first: int = 0, count: int = 0) -> bytes:
    """``struct flock``: what fcntl takes. ``kind``: F_WRLCK or F_UNLCK; ``count`` 0: all bytes from the first
    one on."""
    return _FLOCK.pack(kind, os.SEEK_SET, first, count, 0)


def holder_of(fd: int, first: int = 0, count: int = 0) -> int | None:
    """The process that holds a lock on one of these bytes (:func:`flock_of`); 0: it cannot be named; None: no
    other process does."""
    asked = fcntl.fcntl(fd, fcntl.F_GETLK, flock_of(fcntl.F_WRLCK, first, count))
    kind, _, _, _, pid = _FLOCK.unpack(asked)
    return None if kind == fcntl.F_UNLCK else max(0, pid)


def stands_still(pid: int) -> bool:
    """It lives, and is stopped: by a signal, or by a debugger."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] in b"Tt"
    except (OSError, IndexError):
        return False


def take_turn(fd: int, what: str, *, patient: bool = False) -> None:
    """Locks a whole file for this process; closing a descriptor of it ends that.

    ``patient``: a process that is stopped is waited for as long as one that runs, for who would have to end
    otherwise.

    Raises:
        TurnHeldError: another process has had it for too long.
    """
    start, stands_ns = time.monotonic_ns(), PATIENCE_NS if patient else STANDS_NS
    while True:
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except (BlockingIOError, PermissionError):
            waited = time.monotonic_ns() - start
        if waited >= stands_ns and (pid := holder_of(fd)) is not None and (waited >= PATIENCE_NS or stands_still(pid)):
            raise TurnHeldError(what, pid)
        time.sleep(NAP_S)
