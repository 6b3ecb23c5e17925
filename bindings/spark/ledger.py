"""What one writer has published: the record that makes a repeated commit a no-op, and lets a half-done one go
on.

One small file per query, replaced as a whole (whole_file.py), with the number of the last batch that is
published and, while one is being published, the *intent*: which staged files it is made of, and for each
topic at which sequence number its rows begin. The messages themselves carry no mark. How far a commit got
before it died is known from the number at which its source goes on: a row is published if its numbers lie
below (docs/semantics.md C; docs/design.md 14).

The directory is locked while it is held (flock): of two processes that commit for one query the second one
waits. It is ours alone to write, or it is refused, and what is in it is reached through its descriptor
(private_directory.py).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import os
import time
import zlib
from typing import TYPE_CHECKING, Any, Self

import msgspec

from ..engine.errors import CorruptionError, Error, SystemCallError
from ..engine.native.private_directory import open_private, open_regular
from ..engine.native.sync import Doubt, sync_directory
from .staging import Rows, StagedFile
from .whole_file import WholeFile
from .written_place import WrittenPlace  # noqa: TC001  (msgspec reads it)

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Intent", "Ledger", "LedgerInUseError", "Piece", "Record", "Share", "rows_below"]

VERSION = 1
RECORD_MAX = 1 << 28
"""Bytes of a record that is believed."""


class LedgerInUseError(Error):
    """Another process commits for the same query. ``pid`` is its process, 0 if unknown."""

    code = "HF_COMMIT_IN_USE"
    hint = "end that process; the commit is repeated when the query starts again"
    retriable = True
    exit_code = 4

    def __init__(self, directory: str, pid: int, seconds: float) -> None:
        super().__init__(f"process {pid} holds {directory} for longer than {seconds:g} s")
        self.pid = pid


class Piece(msgspec.Struct, frozen=True):
    """From row ``row`` of a share on, rows have the numbers from ``number`` on, one per ``fragment``
    bytes."""

    row: int
    number: int
    fragment: int


class Share(msgspec.Struct):
    """What a batch has for one topic. ``pieces``: ascending rows; more than one after a commit that went on
    otherwise."""

    topic: str
    rows: int
    pieces: list[Piece]


class Intent(msgspec.Struct):
    """A batch that is being published: what of it, from which files, in their order, and where. ``place``:
    None in 0.1.0."""

    batch: int
    files: list[StagedFile]
    shares: list[Share]
    place: WrittenPlace | None = None


class Record(msgspec.Struct):
    """Batches up to ``done`` are published; ``intent``: the one that is under way."""

    version: int = VERSION
    done: int = -1
    intent: Intent | None = None
    checkpoint: str = ""
    """Of the query, as it names it: without that the record is of no use (leftovers.py)."""
    topics: dict[str, int] | None = None
    """The last batch of each topic, where each has its own (transactions.py)."""


def rows_below(share: Share, number: int, lengths: Any) -> int:
    """How many rows of a share are published, when its source goes on at ``number``; pieces that this
    disproves are dropped.

    ``lengths``: payload bytes of each of its rows, (n,) int64 array. A number below the first piece says that
    the stores have lost what they had: no row is there any more.

    Raises:
        CorruptionError: the source goes on inside a row, or behind the last one.
    """
    import numpy as np

    while len(share.pieces) > 1 and share.pieces[-1].number > number:
        share.pieces.pop()
    piece = share.pieces[-1]
    if number <= piece.number:
        return piece.row if number == piece.number else 0
    fragments = np.maximum(1, -(-lengths[piece.row :] // piece.fragment))
    ends = piece.number + np.cumsum(fragments)
    row = int(np.searchsorted(ends, number))
    if row == len(ends) or ends[row] != number:
        last = int(ends[-1]) if len(ends) else piece.number
        raise CorruptionError(
            f"topic {share.topic!r}: the source of this query goes on at {number}, and its batch has {piece.number}..{last - 1}",
            hint="another program has published with its session ID; a copy of the checkpoint that runs, too, would do so",
        )
    return piece.row + row + 1


class Ledger:
    """The record in ``directory``, locked: ``with Ledger(...) as ledger``.

    Raises:
        LedgerInUseError: it is locked for longer than ``timeout`` seconds.
        CorruptionError: the file is not one of ours.
        ForeignOwnerError, ConfigError: the directory is not ours alone to write, or none.
        OSError, SystemCallError: the disk fails.
    """

    def __init__(self, directory: Path, timeout: float) -> None:
        self.directory = directory
        self.path = directory / "ledger"
        with contextlib.ExitStack() as stack:
            self._fd = open_private(directory)
            stack.callback(os.close, self._fd)
            self._lock = open_regular(directory / "lock", os.O_RDWR | os.O_CREAT, at=self._fd)
            stack.callback(os.close, self._lock)
            self._take(timeout)
            self._file = WholeFile(self.path, self._fd)
            self.record = self._read()
            self._open = stack.pop_all()

    @functools.cached_property
    def rows(self) -> Rows:
        """Where the rows of an intent lie; made if it is missing."""
        path = self.directory / "rows"
        fd = open_private(path, at=self._fd)
        self._open.callback(os.close, fd)
        return Rows(path, fd)

    def _take(self, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while True:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    pid = os.pread(self._lock, 20, 0)
                    raise LedgerInUseError(str(self.directory), int(pid) if pid.isdigit() else 0, timeout) from None
            time.sleep(0.02)
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, b"%d" % os.getpid(), 0)

    def _read(self) -> Record:
        try:
            data = self._file.read()
        except FileNotFoundError:
            self._sync_above()
            return Record()
        try:
            crc, body = data[:8], data[9:]
            if len(data) > RECORD_MAX or int(crc, 16) != zlib.crc32(body):
                raise ValueError("its checksum is wrong")
            record = msgspec.json.decode(body, type=Record)
            if record.version != VERSION:
                raise ValueError(f"its version is {record.version}, not {VERSION}")
        except (ValueError, msgspec.MsgspecError) as error:
            raise CorruptionError(
                f"{self.path} cannot be read: {error}",
                hint="without it, what a commit has published before is not known; remove it to publish the batch once more",
            ) from None
        return record

    def _sync_above(self) -> None:
        """The names that lead to the first record are on disk, too.

        They are not all ours to make anew. So after a sync that failed there is no first record here in this
        boot.
        """
        doubt = Doubt(self.directory / "above.doubt")
        if doubt:
            raise SystemCallError(
                f"since this host was booted a sync of the directories above {self.directory} has failed, and no later one tells "
                "whether they are on disk: name another stagingDirectory, or boot it anew", errno.EIO, "EIO",
            )  # fmt: skip
        device = self.directory.stat().st_dev
        for above in self.directory.parents:
            with contextlib.suppress(PermissionError):
                if above.stat().st_dev == device:
                    try:
                        sync_directory(above)
                    except OSError:
                        doubt.set()
                        raise

    def save(self) -> None:
        """The record is on disk when this returns, or the one before still is."""
        body = msgspec.json.encode(self.record)
        self._file.write(b"%08x " % zlib.crc32(body) + body)

    def close(self) -> None:
        """Lets go of the lock."""
        self._open.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
