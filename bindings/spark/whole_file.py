"""A small file that is replaced as a whole: a crash leaves the one before, or the new one.

Who sees the new one does not know whether it is on disk: the sync of its name may have failed, and the next
one would return 0 (engine/native/sync.py); or its writer was killed before it. So a doubt lies beside it,
from before the rename until that sync is done. Whoever finds one writes what is there anew, as a new file,
before it counts.
"""

from __future__ import annotations

import contextlib
import errno
import os
from typing import TYPE_CHECKING

from ..engine.native.private_directory import open_regular
from ..engine.native.sync import Doubt, sync_data, sync_directory

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["WholeFile"]


class WholeFile:
    """The file ``path``, for whoever has its lock.

    Args:
        at: a descriptor of its directory.
        ours: only we may write it, and nobody else may read it. Otherwise its mode is the umask's.
    """

    def __init__(self, path: Path, at: int, *, ours: bool = True) -> None:
        self._path, self._at, self._ours = path, at, ours
        self._doubt = Doubt(path.with_name(f"{path.name}.doubt"))

    def read(self) -> bytes:
        """What is in it, and on disk.

        Raises:
            FileNotFoundError: there is none.
            ForeignOwnerError: it is another user's, or others may write to it (``ours``).
            OSError: it cannot be read, or cannot be made durable.
        """
        if self._ours:
            fd = open_regular(self._path, os.O_RDONLY, at=self._at)
        else:
            fd = os.open(self._path.name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._at)
        with open(fd, "rb") as file:
            data = file.read()
        if self._doubt:
            self.write(data)
        return data

    def write(self, data: bytes) -> None:
        """It is on disk when this returns. Raises OSError: then the file before is there, or this one with a
        doubt."""
        fresh = f"{self._path.name}.new"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(fresh, dir_fd=self._at)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with open(os.open(fresh, flags, 0o600 if self._ours else 0o666, dir_fd=self._at), "wb") as file:
            file.write(data)
            file.flush()
            sync_data(file.fileno())
        self._doubt.set()
        if not self._doubt:
            raise OSError(errno.EIO, "a doubt cannot be written beside it", str(self._path))
        os.rename(fresh, self._path.name, src_dir_fd=self._at, dst_dir_fd=self._at)
        sync_directory(self._path.parent)
        self._doubt.clear()
