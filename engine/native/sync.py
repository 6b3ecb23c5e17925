"""Making bytes and names durable: the only place in Python that does so, through the core's
(csrc/base/sync.h).

After a sync that failed the next one returns 0 and has written nothing of what the first one dropped. So
whoever is told of a failure writes all of it once more into new files, and remembers until then, for the
processes that come later, in a :class:`Doubt`: a file in the domain's directory, off the device that failed.
It counts in its boot.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
from typing import TYPE_CHECKING

from .core import lib
from .runtime import os

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Doubt", "make_directory", "sync_data", "sync_directory", "sync_log_directory", "sync_way"]


def _raise(status: int, what: str) -> None:
    number = int(lib.HF_ERRNO) - status
    raise OSError(number, os.strerror(number), what)


def sync_data(fd: int) -> None:
    """The bytes of a file. Raises OSError: never ask again for the same ones."""
    status = lib.hf_sync(fd, lib.HF_SYNC_DATA)
    if status < 0:
        _raise(status, f"sync of {os.readlink(f'/proc/self/fd/{fd}')}")


def sync_directory(path: Path) -> None:
    """The names in ``path``. Raises OSError: never ask again for the same ones."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        status = lib.hf_sync(fd, lib.HF_SYNC_NAMES)
    finally:
        os.close(fd)
    if status < 0:
        _raise(status, f"sync of {path}")


def sync_way(path: Path, doubts: Path | None = None) -> None:
    """The names in a directory that has just been made, and those that lead to it from where its file system
    begins. ``doubts``: where Doubts are kept, of one domain.

    Whoever made it may have been killed before it did this. What another user alone may open, another user
    has made. Raises OSError: a sync failed; and ever after in this boot and domain for what lies below,
    because the next sync would say that all is well.
    """
    way = path.resolve()
    device = os.stat(way).st_dev
    for each in (way, *way.parents):
        with contextlib.suppress(PermissionError):
            if os.stat(each).st_dev != device:
                return
            _sync_names(each, doubts)


def _sync_names(path: Path, doubts: Path | None) -> None:
    if doubts is None:
        sync_directory(path)
        return
    # Nothing clears these doubts, and a power cut may keep a name without its bytes: so that has the boot.
    boot = f"names-{int(lib.hf_doubt_word()):016x}-"
    doubt = Doubt(doubts / (boot + hashlib.blake2b(os.fsencode(path), digest_size=8).hexdigest()))
    _refuse(doubt, path)
    try:
        sync_directory(path)
    except PermissionError:
        raise
    except OSError:
        doubt.set()
        with contextlib.suppress(OSError):
            for name in os.listdir(doubts):
                if name.startswith("names-") and not name.startswith(boot):  # of an earlier one
                    os.unlink(doubts / name)
        raise
    _refuse(doubt, path)  # the failure may have been told to another process a moment before


def _refuse(doubt: Doubt, path: Path) -> None:
    try:
        doubts = bool(doubt)
    except PermissionError as refused:  # that is no directory of another user's
        raise OSError(errno.EIO, f"nobody knows whether a sync failed: {refused}", str(path)) from refused
    if doubts:
        raise OSError(errno.EIO, "a sync failed since the machine was started", str(path))


def sync_log_directory(path: Path) -> None:
    """The same for that of a log. Raises OSError: then the log's own names may be in doubt, too, and it is
    poisoned."""
    try:
        sync_directory(path)
    except OSError:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            lib.hf_log_distrust(fd)
        finally:
            os.close(fd)
        raise


class Doubt:
    """A sync failed in this boot, and not all of it was written once more: so says the file at ``path``."""

    def __init__(self, path: Path) -> None:
        self._path = os.fsencode(path)

    def __bool__(self) -> bool:
        """Raises OSError: nobody knows."""
        status = int(lib.hf_doubt_get(self._path))
        if status < 0:
            _raise(status, os.fsdecode(self._path))
        return status > 0

    def set(self) -> None:
        """As far as it can be written: it lies where nothing has failed."""
        lib.hf_doubt_set(self._path)

    def clear(self) -> None:
        """All was written once more."""
        lib.hf_doubt_clear(self._path)


def make_directory(path: Path) -> None:
    """The directory of a log that has no head yet. Its name is on disk when this returns.

    An empty one that is there was made before a sync that failed, or by a process that was killed before it:
    nobody knows whether its name is on disk, and a sync does not tell (csrc/base/sync.h). So it is made
    again.
    """
    with contextlib.suppress(OSError):
        path.rmdir()
    if path.exists():
        return  # it holds a log whose head is lost
    path.mkdir(mode=0o700)
    try:
        sync_directory(path.parent)
    except OSError:
        path.rmdir()
        raise
