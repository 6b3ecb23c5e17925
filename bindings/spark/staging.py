"""Rows that wait for their commit: one file per task attempt, written by the task, read by the commit.

A file is an Arrow IPC stream. Each of its record batches has one column, ``value binary``, and names its topic in its metadata:
what is published is taken out of the mapped file as it lies there. The file is synced before the task reports it, with its size
and CRC-32, because the record that a commit makes of it (ledger.py) is relied upon after a power cut.

Names are ``<batch>-<partition>-<random>.arrow``, so that two attempts of one task never meet, and a sweep knows what is over.
"""

from __future__ import annotations

import os
import secrets
import zlib
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from ..engine.errors import CorruptionError, UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from pathlib import Path

__all__ = ["StagedFile", "check", "lengths", "move", "remove", "rows_of", "stage", "sweep", "sync_directory"]

SCHEMA = pa.schema([pa.field("value", pa.binary(), nullable=False)])
TOPIC = b"topic"
SUFFIX = ".arrow"
CHUNK = 1 << 20


class StagedFile(msgspec.Struct, frozen=True):
    """What one attempt has staged. ``topics``: rows per topic; ``largest``: payload bytes of its largest row, per topic."""

    name: str
    partition: int
    topics: dict[str, int]
    largest: dict[str, int]
    size: int
    crc: int
    host: str
    """Where it was written: its node name, for messages."""


class _Summed:
    """A file that knows the CRC-32 and the size of what was written to it."""

    closed = False

    def __init__(self, path: Path) -> None:
        self._file = open(path, "xb", buffering=CHUNK)  # noqa: SIM115  (closed by close)
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
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()
        self.closed = True


def stage(directory: Path, batch: int, partition: int, rows: Iterable[tuple[str, Any]]) -> StagedFile | None:
    """Writes rows, (topic, pyarrow binary array) in order, into a file of ``directory``. None: there were no rows.

    On an error, one of ``rows`` included, nothing is left.

    Raises:
        UsageError: the directory is not there. Spark does not wait for the other tasks of a write that it aborts.
    """
    name = f"{batch}-{partition}-{secrets.token_hex(8)}{SUFFIX}"
    path = directory / name
    topics: dict[str, int] = {}
    largest: dict[str, int] = {}
    try:
        file = _Summed(path)
    except FileNotFoundError:
        raise UsageError(f"{directory} is gone: the write was aborted", hint="start the write again") from None
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
        path.unlink(missing_ok=True)
        raise
    file.close()
    if not topics:
        path.unlink()
        return None
    return StagedFile(name, partition, topics, largest, file.size, file.crc, os.uname().nodename)


def sync_directory(directory: Path) -> None:
    """The names in it are on disk, too."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def check(directory: Path, file: StagedFile) -> None:
    """Reads all of a file.

    Raises:
        UsageError: it is not there.
        CorruptionError: it is not what the task reported.
    """
    path = directory / file.name
    if "/" in file.name or file.name.startswith("."):
        raise CorruptionError(f"{file.name!r} is not the name of a staged file")
    crc = size = 0
    try:
        with open(path, "rb", buffering=0) as opened:
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


def rows_of(directory: Path, files: Iterable[StagedFile]) -> Iterator[tuple[str, Any]]:
    """(topic, pyarrow binary array) over the mapped files, in order. They were checked before."""
    for file in files:
        with pa.memory_map(str(directory / file.name)) as mapped, pa.ipc.open_stream(mapped) as reader:
            for record, metadata in reader.iter_batches_with_custom_metadata():
                yield metadata[TOPIC].decode(), record.column(0)


def lengths(directory: Path, files: Iterable[StagedFile], topic: str) -> Any:
    """Payload bytes of each row of a topic: (n,) int64 array, in order."""
    import numpy as np

    parts = [pc.binary_length(values).to_numpy() for each, values in rows_of(directory, files) if each == topic]
    return np.concatenate([np.empty(0, np.int64), *parts]).astype(np.int64)


def move(source: Path, target: Path, files: Iterable[StagedFile]) -> None:
    """Moves checked files into another directory of the same file system, which is made if it is missing."""
    target.mkdir(mode=0o700, parents=True, exist_ok=True)
    for file in files:
        (source / file.name).rename(target / file.name)


def remove(directory: Path, names: Iterable[str]) -> None:
    """Deletes files that may be gone already."""
    for name in names:
        (directory / name).unlink(missing_ok=True)


def sweep(directory: Path, done: int, keep: Collection[str] = ()) -> None:
    """Deletes what attempts of batches up to ``done`` have left, but for the names in ``keep``."""
    if not directory.is_dir():
        return
    for path in directory.iterdir():
        number = path.name.partition("-")[0]
        if path.suffix == SUFFIX and number.isdigit() and int(number) <= done and path.name not in keep:
            path.unlink(missing_ok=True)
