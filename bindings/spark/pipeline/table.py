"""A directory of Parquet files that micro-batches are put into, each of them once, whoever is killed and
whenever.

Spark writes a micro-batch into a new directory below ``_staging``. When it is whole and on disk, its files
are renamed into place, and their names tell the batch: ``date=2013-01-01/topic=flights/part-7-0.parquet``. No
reader of Parquet looks at what begins with ``_``. So a kill leaves at most a batch of which some files are
missing yet; it is not committed, and is written again.

What a process writes first was not committed before, and nothing behind it was. So it takes away all files of
that batch and of later ones before its own come in; not earlier than that: if the batch cannot be read again,
its files stay.

A staging directory is never used twice: a Spark whose driver was killed writes into its own for some seconds
more. And the process that renames holds the lock of ``_archive.json`` until it is dead.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
from typing import TYPE_CHECKING, Literal, NamedTuple, Self, get_args

import msgspec
import pyarrow.parquet as pq

from ...engine.errors import ConfigError
from ...engine.native.sync import sync_data, sync_directory
from .checkpoint import CheckpointFile
from .committed import committed, query_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

__all__ = ["By", "ParquetTable", "Published"]

By = Literal["date,topic", "batch"]
"""How the files are partitioned."""
STAGING = "_staging"
NAME = re.compile(r"part-(\d+)-(\d+)\.parquet")
HIDDEN = ("_", ".")
"""No reader of Parquet looks at what begins so."""


class TableState(msgspec.Struct, tag="archive"):
    """Whose table it is. Written before its first file."""

    by: By
    query: str
    """Id of the streaming query that writes it: batch numbers mean something in that query alone."""
    checkpoint: str


class Published(NamedTuple):
    """What a micro-batch has put into the table."""

    files: int
    rows: int
    bytes: int


class ParquetTable:
    """The table in ``path``, for the query whose checkpoint is in ``checkpoint``. One process has it at a
    time.

    Raises:
        ConfigError: the directory holds something else, or the table of another query, or one that is
            partitioned otherwise.
        CheckpointInUseError: another process archives into it.
        OSError: it cannot be made there.
    """

    def __init__(self, path: Path, by: By, checkpoint: Path) -> None:
        if by not in get_args(By):
            raise ConfigError(f"by is {by!r}", hint=f"it is {' or '.join(get_args(By))}")
        self.path = path
        self._by: By = by
        self._checkpoint = checkpoint
        self._next: int | None = None
        """The batch that this process has to write next; None before the first."""
        path.mkdir(parents=True, exist_ok=True)
        self._file = CheckpointFile(path / "_archive.json", TableState)
        try:
            self._state = self._file.load()
            self._check()
            shutil.rmtree(path / STAGING, ignore_errors=True)  # what still writes there is in nobody's way
        except BaseException:
            self._file.close()
            raise

    def _check(self) -> None:
        state, checkpoint = self._state, self._checkpoint
        if state is None:
            if any(not entry.name.startswith(HIDDEN) for entry in self.path.iterdir()):
                raise ConfigError(
                    f"{self.path} holds other files than an archive's", hint="name a directory of its own"
                )
            if (done := committed(checkpoint)) is not None:
                raise ConfigError(
                    f"{self.path} is a new archive, and the query of {checkpoint} has done {done[0] + 1} batches already",
                    hint="name another checkpoint, or remove this one to begin anew",
                )
        elif state.by != self._by:
            raise ConfigError(
                f"{self.path} is partitioned by {state.by}, not by {self._by}", hint=f"give by={state.by}"
            )
        elif state.query != query_id(checkpoint):
            raise ConfigError(
                f"{checkpoint} is not the checkpoint of the archive {self.path}: that was {state.checkpoint}",
                hint="name that one; without it, archive into a new directory",
            )

    def stage(self, batch: int) -> Path:
        """A directory for Spark to make and write into. With ``date,topic``, by partitions of these."""
        return self.path / STAGING / f"{batch}-{secrets.token_hex(8)}"

    def publish(self, batch: int, staged: Path) -> Published:
        """Puts the files of a batch into the table: they are there, and on disk, when this returns.

        Raises:
            OSError: the disk is full or fails; a repetition is as the first time.
            pyarrow.ArrowInvalid: Spark has left a file that is not whole.
        """
        found = [(path, pq.read_metadata(path).num_rows) for path in sorted(_data_files(staged))]
        whole = [(path, rows) for path, rows in found if rows]
        for path, _ in whole:
            _sync(path)
        self._own()
        touched = set(self._take_away(batch)) if batch != self._next else set()
        size = 0
        for number, (path, _) in enumerate(whole):
            size += path.stat().st_size
            folder = self.path / (f"batch={batch}" if self._by == "batch" else path.parent.relative_to(staged))
            folder.mkdir(parents=True, exist_ok=True)
            os.rename(path, folder / f"part-{batch}-{number}.parquet")
            touched.add(folder)
        for folder in self._with_parents(touched):
            sync_directory(folder)
        shutil.rmtree(staged, ignore_errors=True)
        self._next = batch + 1
        return Published(len(whole), sum(rows for _, rows in whole), size)

    def _own(self) -> None:
        """The table is that query's from the first file on."""
        if self._state is None:
            self._state = TableState(self._by, query_id(self._checkpoint), str(self._checkpoint))
            self._file.save(self._state)

    def _take_away(self, batch: int) -> Iterator[Path]:
        """Removes the files of ``batch`` and of those behind it. Yields their directories."""
        for path in _data_files(self.path):
            name = NAME.fullmatch(path.name)
            if name is not None and int(name[1]) >= batch:
                path.unlink()
                yield path.parent

    def _with_parents(self, folders: Iterable[Path]) -> set[Path]:
        """These and what is above them, up to the table."""
        inside = {above for folder in folders for above in (folder, *folder.parents) if above.is_relative_to(self.path)}
        return inside | {self.path}

    def close(self) -> None:
        """Lets another process have it."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _data_files(folder: Path) -> Iterator[Path]:
    """The Parquet files in a directory and below, as readers find them."""
    for entry in folder.iterdir():
        if entry.name.startswith(HIDDEN):
            continue
        if entry.is_dir():
            yield from _data_files(entry)
        elif entry.suffix == ".parquet":
            yield entry


def _sync(path: Path) -> None:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        sync_data(file)
    finally:
        os.close(file)
