"""A store's directory, and the lock that makes it one store's."""

from __future__ import annotations

import errno
import struct
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Self

from ..errors import DirectoryInUseError, FencedError, ReadOnlyError
from ..native.core import lib
from ..native.private_directory import open_private, open_regular
from ..native.runtime import OfProcess, fcntl, os

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["StoreDirectory", "writing"]

_FLOCK = struct.Struct("hhqqi4x")


@contextmanager
def writing(directory: Path) -> Iterator[None]:
    """What the kernel says of a disk that is read-only, in the form of those who are told."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.EROFS:
            raise ReadOnlyError(str(directory)) from error
        raise


def _read_held(fd: int) -> bool:
    asked = fcntl.fcntl(fd, fcntl.F_GETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    return bool(_FLOCK.unpack(asked)[0] == fcntl.F_RDLCK)


def _leave_directories(held: dict[tuple[int, int], StoreDirectory]) -> None:
    """A child that closed its parent's descriptor later would drop a lock that it has taken itself since."""
    for directory in held.values():
        os.close(directory._fd)
        directory._fd = -1


_held: OfProcess[dict[tuple[int, int], StoreDirectory]] = OfProcess(dict, _leave_directories)
"""By device and inode, the directories that stores of this process hold."""


class StoreDirectory:
    """A store's directory, held exclusively.

    ``may_read``: on a disk that is read-only it is held to be read (:attr:`read_only`), under two locks that
    a file which is open for reading can have. A shared fcntl lock excludes who comes to write: a store that
    starts when the disk can be written again, or one that writes through another mount. An flock excludes the
    next reader. Both are of this open file: no other descriptor that is closed drops them.

    Raises:
        ReadOnlyError: its disk is read-only, and it is not to be read, or no store has ever run in it.
        DirectoryInUseError: another store, in this process or another one, holds it.
        ForeignOwnerError: it is another user's, or others may write to it.
    """

    def __init__(self, path: Path, *, may_read: bool = False) -> None:
        self.path = path
        self.read_only = False
        with ExitStack() as opened:
            directory = open_private(path, links=True, hint=f"choose one that uid {os.geteuid()} may write to")
            opened.callback(os.close, directory)
            os.close(open_private(path / "logs", at=directory, links=True))
            found = os.fstat(directory)
            self._key = (found.st_dev, found.st_ino)
            if self._key in _held.value:
                raise DirectoryInUseError(os.getpid(), str(path))
            fd = self._open_lock(directory, may_read=may_read)
        try:
            self._lock(fd)
        except OSError:
            holder = os.pread(fd, 32, 0).split()
            named = not _read_held(fd) and holder and holder[0].isdigit()  # a reader cannot write its pid
            os.close(fd)
            raise DirectoryInUseError(int(holder[0]) if named else 0, str(path)) from None
        if not self.read_only:
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        self._fd = fd
        _held.value[self._key] = self

    def _open_lock(self, directory: int, *, may_read: bool) -> int:
        path = self.path / "lock"
        with writing(self.path):
            try:
                return open_regular(path, os.O_RDWR | os.O_CREAT, at=directory)
            except OSError as error:
                if error.errno != errno.EROFS or not may_read:
                    raise
                with suppress(FileNotFoundError):
                    fd = open_regular(path, os.O_RDONLY, at=directory)
                    self.read_only = True
                    return fd
                raise

    def _lock(self, fd: int) -> None:
        if self.read_only:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0))
        else:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def check_lock(self) -> None:
        """Raises FencedError when the lock is not there any more: another store may be at work here."""
        if not self.read_only and lib.hf_lock_held(self._fd) != 1:
            raise FencedError(str(self.path))

    def close(self) -> None:
        """Lets the next store in. Idempotent."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            _held.value.pop(self._key, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
