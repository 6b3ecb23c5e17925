"""Where a run of the pipeline stands: one small JSON file, replaced as a whole, for one process at a time."""

from __future__ import annotations

import fcntl
import os
from typing import TYPE_CHECKING, Generic, Self, TypeVar

import msgspec

from ...engine.errors import CorruptionError, Error
from ..whole_file import WholeFile

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["CheckpointFile", "CheckpointInUseError"]

T = TypeVar("T", bound=msgspec.Struct)

CHECKPOINT_MAX = 1 << 28
"""Bytes of a file that is believed."""


class CheckpointInUseError(Error):
    """Another process goes on from the same checkpoint. ``pid`` is that process, 0 if unknown."""

    code = "HF_CHECKPOINT_IN_USE"
    hint = "wait for it, or end it"
    retriable = True
    exit_code = 4

    def __init__(self, path: str, pid: int) -> None:
        super().__init__(f"process {pid} goes on from {path}")
        self.pid = pid


class CheckpointFile(Generic[T]):
    """The file ``path``, locked by ``path``.lock; what is in it is a struct of type ``kind`` with a tag.

    Raises:
        CheckpointInUseError: another process has it.
        OSError: it cannot be made there.
    """

    def __init__(self, path: Path, kind: type[T]) -> None:
        self.path = path
        self._kind = kind
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._lock, 20, 0)
            os.close(self._lock)
            raise CheckpointInUseError(str(path), int(holder) if holder.isdigit() else 0) from None
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, b"%d" % os.getpid(), 0)
        self._directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._file = WholeFile(path, self._directory, ours=False)

    def load(self) -> T | None:
        """What is in it; None when there is none yet.

        Raises:
            CorruptionError: it is something else.
        """
        try:
            data = self._file.read()
        except FileNotFoundError:
            return None
        try:
            if len(data) > CHECKPOINT_MAX:
                raise ValueError(f"it has {len(data)} bytes")
            return msgspec.json.decode(data, type=self._kind)
        except (ValueError, msgspec.MsgspecError) as error:
            raise CorruptionError(
                f"{self.path} is no checkpoint of this: {error}", hint="name another file, or remove it to begin anew"
            ) from None

    def save(self, value: T) -> None:
        """It is on disk when this returns, or the one before still is."""
        self._file.write(msgspec.json.encode(value))

    def close(self) -> None:
        """Lets go of the lock."""
        os.close(self._directory)
        os.close(self._lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
