"""Marks: messages in a log that its operator declared undeliverable (docs/semantics.md I.4; unlike UM's, they
are durable).

A mark takes nothing away. It lies in the file ``marks`` beside the segments, and whoever delivers from the
log (engine/log/reader.py) steps over what is marked, as over what is lost. So the logs of a group stay equal
in content, and nobody repairs a mark away; each store has its own. What is still in the ring is delivered
from there.

The file is a header, a CRC-32C and one record. It is replaced as a whole: a crash leaves the old one or the
new one. The store writes it; anybody reads it, with the store dead too. A number is never an identity
(docs/design.md 13): a mark carries the incarnation that was current, and is void from the start of every
later one.
"""

from __future__ import annotations

import logging
import struct
from typing import TYPE_CHECKING

import msgspec

from ..control.wire import UNDECODABLE
from ..native.core import lib
from ..native.private_directory import read_regular
from ..native.runtime import os
from ..native.sync import sync_data, sync_log_directory
from ..rules.intervals import Spans

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

__all__ = ["RANGES_MAX", "MarkFile", "marked_numbers"]

_log = logging.getLogger("holdfast")

NAME = "marks"
RANGES_MAX = 10_000
"""Of one log."""
_HEADER = struct.Struct("<8sII")
_MAGIC = b"HFMARKS1"
_BYTES_MAX = 1 << 20

_NONE = Spans()


class _Marks(msgspec.Struct):
    source: str
    """Name of the log's directory: a file that was copied from another log marks nothing."""
    ranges: list[tuple[int, int, int]]
    """(incarnation, first, number behind the last)."""


def marked_numbers(ranges: Iterable[tuple[int, int, int]], begins: Sequence[tuple[int, int]]) -> Spans:
    """The numbers that are marked under these BEGINs (incarnation, start). Pure."""
    spans = Spans()
    for incarnation, first, behind in ranges:
        spans.add(first, min([behind, *(start for later, start in begins if later > incarnation)]))
    return spans


class MarkFile:
    """The marks of the log in the directory ``path``."""

    def __init__(self, path: Path) -> None:
        self._path = path / NAME
        self._source = path.name
        self._seen: tuple[int, int] = (0, 0)
        self._ranges: list[tuple[int, int, int]] = []

    def ranges(self) -> list[tuple[int, int, int]]:
        """(incarnation, first, number behind the last); read again when the file was replaced. Empty where it
        is damaged."""
        try:
            found = os.stat(self._path)
        except OSError:
            self._seen, self._ranges = (0, 0), []
            return self._ranges
        seen = found.st_ino, found.st_mtime_ns
        if seen != self._seen:
            self._seen, self._ranges = seen, self._load()
        return self._ranges

    def spans(self, begins: Sequence[tuple[int, int]]) -> Spans:
        """The numbers that are marked now, under these BEGINs (incarnation, start)."""
        ranges = self.ranges()
        if not ranges:
            return _NONE
        return marked_numbers(ranges, begins)

    def _load(self) -> list[tuple[int, int, int]]:
        try:
            data = read_regular(self._path, _BYTES_MAX + 1)
            magic, length, crc = _HEADER.unpack_from(data)
            body = data[_HEADER.size :]
            if magic == _MAGIC and length == len(body) and crc == lib.hf_crc32c(0, body, length):
                marks = msgspec.msgpack.decode(body, type=_Marks)
                if marks.source == self._source:
                    return marks.ranges[:RANGES_MAX]
        except (OSError, struct.error, *UNDECODABLE):
            pass
        _log.warning("%s is damaged: nothing counts as marked in this log; mark again", self._path)
        return []

    def add(self, incarnation: int, ranges: Iterable[tuple[int, int]]) -> bool:
        """Marks these (first, last) for good: on disk when it returns. False: they would be more than
        RANGES_MAX.

        Raises OSError.
        """
        known = self.ranges()
        kept = Spans()
        for first, last in ranges:
            kept.add(first, last + 1)
        for own, first, behind in known:
            if own == incarnation:
                kept.add(first, behind)
        merged = [each for each in known if each[0] != incarnation] + [(incarnation, *each) for each in kept]
        if len(merged) > RANGES_MAX:
            return False
        body = msgspec.msgpack.encode(_Marks(self._source, merged))
        temporary = self._path.with_suffix(".new")
        temporary.unlink(missing_ok=True)
        with temporary.open("xb") as file:
            file.write(_HEADER.pack(_MAGIC, len(body), lib.hf_crc32c(0, body, len(body))) + body)
            file.flush()
            sync_data(file.fileno())
        temporary.rename(self._path)
        sync_log_directory(self._path.parent)
        return True
