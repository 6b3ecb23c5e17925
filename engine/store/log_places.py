"""The directories of a store's logs. The log of a memory repository lies in shared memory; then its name
among the others is a symbolic link, so that everybody finds every log in one place."""

from __future__ import annotations

import contextlib
import errno
import logging
from typing import TYPE_CHECKING

from ..errors import CorruptionError, Error
from ..memory.domain import evict
from ..native.private_directory import open_log, open_private
from ..native.runtime import os, shutil
from .news import called

if TYPE_CHECKING:
    from pathlib import Path

    from ..log.state_file import SourceState

__all__ = ["LogPlaces", "LogRemovedError"]

_log = logging.getLogger("holdfast.store")


class LogRemovedError(CorruptionError):
    """Somebody has removed the directory of a log that a store had open, or put another one in its place."""

    hint = (
        "keep what cleans up in /dev/shm, and in the stores' directories, away from them; the store goes on by itself"
    )

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"{path} was removed while its store lives (RemoveIPC, or rm): what it had is gone, and asked from its peers"
        )


class LogPlaces:
    """See the module. ``name``: the store's. ``logs``: where all are found. ``memory``: where those of memory
    repositories lie."""

    def __init__(self, name: str, logs: Path, memory: Path) -> None:
        self._name = name
        self._logs = logs
        self._memory = memory
        self._opened: dict[bytes, tuple[int, int]] = {}
        """Source uuid -> device and inode of the directory of its log, when it was opened."""

    def note(self, uuid: bytes) -> None:
        """This log was opened."""
        with contextlib.suppress(FileNotFoundError):  # removed since: seen at the next look
            self._opened[uuid] = _inode(self._logs / uuid.hex())

    def is_gone(self, uuid: bytes) -> bool:
        """It is not there any more, or another one is."""
        try:
            return _inode(self._logs / uuid.hex()) != self._opened.get(uuid)
        except FileNotFoundError:
            return True
        except OSError:  # it cannot be looked at, which says nothing
            return False

    def make(self, source: SourceState) -> Path:
        """The directory of its log. Of a memory repository it is made here, also after a reboot has emptied
        the memory."""
        path = self._logs / source.uuid.hex()
        if source.repository != "memory":
            return path
        real = self._memory / path.name
        fd = self._open_memory()
        try:
            os.close(open_private(real, at=fd))
        finally:
            os.close(fd)
        self._link(source, path, real)
        return path

    def _link(self, source: SourceState, path: Path, real: Path) -> None:
        """``path`` leads to ``real``, or into another domain of this boot, where the log has begun. A reboot
        may have made the domain's directory anew, and so all names in shared memory: where the old ones led,
        there is nothing then, or what another user has put there."""
        if path.is_symlink() and os.readlink(path) != str(real):
            try:
                os.close(open_log(path))
            except OSError as error:
                if error.errno not in {errno.ENOENT, errno.EPERM, errno.EACCES, errno.ENOTDIR}:
                    raise
                _log.warning(
                    "%s: %s led to %s, where no log of this store is: it begins anew",
                    called(self._name, source), path, os.readlink(path),
                )  # fmt: skip
                path.unlink()
        if not path.is_symlink():
            path.symlink_to(real)

    def _open_memory(self) -> int:
        """Anybody may have made a directory with this name in shared memory, and filled it."""
        try:
            return open_private(self._memory)
        except Error:
            if not evict(self._memory.name):
                raise
            return open_private(self._memory)

    def remove(self, uuid: bytes) -> None:
        """With all that is in it. Raises OSError."""
        self._opened.pop(uuid, None)
        path = self._logs / uuid.hex()
        elsewhere = [path.readlink()] if path.is_symlink() else []  # a store that was moved into this domain
        for place in (self._memory / path.name, path, *elsewhere):
            if place.is_dir() and not place.is_symlink() and place.stat().st_uid == os.geteuid():
                shutil.rmtree(place)
        if path.is_symlink():
            path.unlink()


def _inode(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino
