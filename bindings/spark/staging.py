"""Rows that wait for their commit: one file per task attempt, written by the task, read by the commit.

A file is an Arrow IPC stream. Each of its record batches has one column, ``value binary``, and names its
topic in its metadata: what is published is taken out of the mapped file as it lies there. The file is synced
before the task reports it, with its size and CRC-32, because the record that a commit makes of it (ledger.py)
is relied upon after a power cut.

Names are ``<batch>-<partition>-<random>.arrow``, so that two attempts of one task never meet, and a sweep
knows what is over.

The directory may lie where other users have theirs. So it is looked at when it is opened, and the files are
reached through its descriptor (private_directory.py).
"""

from __future__ import annotations

import contextlib
import mmap
import os
import secrets
import zlib
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from ..engine.errors import CorruptionError, UsageError
from ..engine.native.private_directory import open_private, open_regular
from ..engine.native.sync import sync_data

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from pathlib import Path

__all__ = [
    "Rows",
    "StagedFile",
    "check",
    "entered",
    "lengths",
    "move",
    "remove",
    "rows_of",
    "stage",
    "sweep",
]

SCHEMA = pa.schema([pa.field("value", pa.binary(), nullable=False)])
TOPIC = b"topic"
SUFFIX = ".arrow"
CHUNK = 1 << 20


class StagedFile(msgspec.Struct, frozen=True):
    """What one attempt has staged. ``topics``: rows per topic; ``largest``: payload bytes of its largest row,
    per topic."""

    name: str
    partition: int
    topics: dict[str, int]
    largest: dict[str, int]
    size: int
    crc: int
    host: str
    """Where it was written: its node name, for messages."""


class Rows(NamedTuple):
    """The directory of staged files, open."""

    path: Path
    fd: int

    def open(self, name: str, flags: int) -> int:
        """A descriptor of one of its files. Raises ForeignOwnerError, OSError: as ``open_regular``."""
        return open_regular(self.path / name, flags, at=self.fd)


@contextlib.contextmanager
def entered(directory: Path, *, make: bool) -> Iterator[Rows]:
    """The rows of the writer whose directory this is. ``make``: both are made where they are missing.

    Raises:
        ForeignOwnerError, ConfigError: one of them is not ours alone to write, or no directory.
        UsageError: they are missing. Spark does not wait for the other tasks of a write that it aborts.
    """
    path = directory / "rows"
    with contextlib.ExitStack() as stack:
        try:
            above = open_private(directory, make=make)
            stack.callback(os.close, above)
            fd = open_private(path, at=above, make=make)
        except FileNotFoundError:
            raise UsageError(f"{path} is gone: the write was aborted", hint="start the write again") from None
        stack.callback(os.close, fd)
        yield Rows(path, fd)


class _Summed:
    """A file that knows the CRC-32 and the size of what was written to it."""

    closed = False

    def __init__(self, fd: int) -> None:
        self._file = open(fd, "wb", buffering=CHUNK)  # noqa: SIM115  (closed by close)
        self.crc = self.size = 0

    def write(self, data: Any) -> int:
        self.crc = zlib.crc32(data, self.crc)
        self.size += len(data)
        return self._file.write(data)

    def flush(self) -> None:
        self._file.flush()

    def sync(self) -> None:
        """Everything that was written is on disk."""
        self._file.flush()
        sync_data(self._file.fileno())

    def close(self) -> None:
        self._file.close()
        self.closed = True


def stage(directory: Rows, batch: int, partition: int, rows: Iterable[tuple[str, Any]]) -> StagedFile | None:
    """Writes rows, (topic, pyarrow binary array) in order, into a file of ``directory``. None: there were no
    rows.

    On an error, one of ``rows`` included, nothing is left.

    Raises:
        UsageError: the directory was removed meanwhile.
    """
    name = f"{batch}-{partition}-{secrets.token_hex(8)}{SUFFIX}"
    topics: dict[str, int] = {}
    largest: dict[str, int] = {}
    try:
        file = _Summed(directory.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    except FileNotFoundError:
        raise UsageError(f"{directory.path} is gone: the write was aborted", hint="start the write again") from None
    try:
        with pa.ipc.new_stream(file, SCHEMA) as writer:
            for topic, values in rows:
                topics[topic] = topics.get(topic, 0) + len(values)
                largest[topic] = max(largest.get(topic, 0), int(pc.max(pc.binary_length(values)).as_py()))
                record = pa.record_batch([values], schema=SCHEMA)
                writer.write_batch(record, custom_metadata={TOPIC: topic.encode()})
        if topics:
            file.sync()
    except BaseException:
        file.close()
        remove(directory, [name])
        raise
    file.close()
    if not topics:
        remove(directory, [name])
        return None
    return StagedFile(name, partition, topics, largest, file.size, file.crc, os.uname().nodename)


def check(directory: Rows, file: StagedFile) -> None:
    """Reads all of a file.

    Raises:
        UsageError: it is not there.
        ForeignOwnerError: others may write to it.
        CorruptionError: it is not what the task reported.
    """
    path = directory.path / file.name
    if "/" in file.name or file.name.startswith("."):
        raise CorruptionError(f"{file.name!r} is not the name of a staged file")
    crc = size = 0
    try:
        with open(directory.open(file.name, os.O_RDONLY), "rb", buffering=0) as opened:
            while data := opened.read(CHUNK):
                crc, size = zlib.crc32(data, crc), size + len(data)
    except FileNotFoundError:
        raise UsageError(
            f"{path}, staged on host {file.host}, is not on {os.uname().nodename}",
            hint="run driver and executors on one host: that is where the stores are",
        ) from None
    if (crc, size) != (file.crc, file.size):
        found = f"{size} bytes with CRC {crc:08x}"
        raise CorruptionError(
            f"{path} has {found}; the task wrote {file.size} with {file.crc:08x}",
            hint="look at the disk; staged rows are made again when the batch is repeated",
        )


def rows_of(directory: Rows, files: Iterable[StagedFile]) -> Iterator[tuple[str, Any]]:
    """(topic, pyarrow binary array) over the mapped files, in order. They were checked before."""
    for file in files:
        fd = directory.open(file.name, os.O_RDONLY)
        try:
            mapped = mmap.mmap(fd, 0, access=mmap.ACCESS_READ)  # it goes with the last array
        finally:
            os.close(fd)
        with pa.ipc.open_stream(pa.py_buffer(mapped)) as reader:
            for record, metadata in reader.iter_batches_with_custom_metadata():
                yield metadata[TOPIC].decode(), record.column(0)


def lengths(directory: Rows, files: Iterable[StagedFile], topic: str) -> Any:
    """Payload bytes of each row of a topic: (n,) int64 array, in order."""
    import numpy as np

    parts = [pc.binary_length(values).to_numpy() for each, values in rows_of(directory, files) if each == topic]
    return np.concatenate([np.empty(0, np.int64), *parts]).astype(np.int64)


def move(source: Rows, target: Rows, files: Iterable[StagedFile]) -> None:
    """Moves checked files into another directory of the same file system."""
    for file in files:
        os.rename(file.name, file.name, src_dir_fd=source.fd, dst_dir_fd=target.fd)


def remove(directory: Rows, names: Iterable[str]) -> None:
    """Deletes files that may be gone already."""
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=directory.fd)


def sweep(directory: Rows, done: int, keep: Collection[str] = ()) -> None:
    """Deletes what attempts of batches up to ``done`` have left, except for the names in ``keep``."""
    for name in os.listdir(directory.fd):
        number = name.partition("-")[0]
        if name.endswith(SUFFIX) and number.isdigit() and int(number) <= done and name not in keep:
            remove(directory, [name])
