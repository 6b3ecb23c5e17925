"""What a store has on its disk, message by message: read-only, with the store running or dead.

A message is what a receiver would get from this log. What it would not get, because it is damaged, lost or
marked by an operator, is a :class:`Hole` in its place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..errors import CorruptionError
from ..native.core import ffi, lib
from ..native.status import check
from .check import StoreFiles, store_files
from .info_file import log_range
from .reader import FOR_EVER, Block, Logs
from .undeliverable import MarkFile

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator
    from pathlib import Path

    from .state_file import SourceState

__all__ = ["Hole", "KeptMessage", "KeptSource", "kept_messages", "kept_sources"]


class KeptSource(NamedTuple):
    """One source of a store: its log, and what the state says of it (None where there is no state of it)."""

    uuid: str
    path: Path
    state: SourceState | None
    oldest: int
    """First number in the log, and the one behind the last; equal when it is empty or cannot be read."""
    next: int


class KeptMessage(NamedTuple):
    """One message."""

    first_sequence_number: int
    sequence_number: int
    """Of its last fragment."""
    timestamp_ns: int
    data: bytes


class Hole(NamedTuple):
    """Numbers ``first`` .. ``next - 1``, which no receiver gets from this log."""

    first: int
    next: int
    marked: bool = False
    """They are here, and the store's operator marked them undeliverable."""


def kept_sources(directory: str | os.PathLike[str]) -> list[KeptSource]:
    """The sources in a store's directory, those without a log included. Raises ConfigError: nothing of a
    store is there."""
    files = store_files(directory)
    logs = {path.name: path for path in files.logs}
    states = {source.uuid.hex(): source for source in files.state.sources} if files.state is not None else {}
    return [_source(files, uuid, logs.get(uuid), states.get(uuid)) for uuid in sorted(logs.keys() | states.keys())]


def _source(files: StoreFiles, uuid: str, log: Path | None, state: SourceState | None) -> KeptSource:
    oldest, following = (log_range(log) if log is not None else None) or (0, 0)
    return KeptSource(uuid, log if log is not None else files.path / "logs" / uuid, state, oldest, following)


def kept_messages(source: KeptSource, first: int = 0, last: int = FOR_EVER) -> Iterator[KeptMessage | Hole]:
    """Messages with numbers from ``first`` to ``last``, and the holes between them.

    Raises:
        CorruptionError: the log cannot be read.
    """
    logs, block, marks = Logs([str(source.path)]), Block(), MarkFile(source.path)
    number, end = max(first, source.oldest), min(last, source.next - 1) + 1
    while number < end:
        if logs.read(number, block):
            for index in range(block.index, block.count):
                message = _message(block, index)
                if message.first_sequence_number >= end:
                    return
                yield message
                number = message.sequence_number + 1
        elif logs.behind:
            following = min(*logs.behind, end)
            yield Hole(number, following, number in marks.spans(logs.table))
            number = following
        elif number < (oldest := (log_range(source.path) or (0, 0))[0]):  # a store that runs has let it go meanwhile
            number = oldest
        else:
            raise CorruptionError(
                f"{source.path} cannot be read at number {number}", hint="holdfast store check says more"
            )


def _message(block: Block, index: int) -> KeptMessage:
    entry = block.entries[index]
    data = bytearray(int(entry.length))
    if data:
        check(lib.hf_gather(block.memory, 0, block.entries + index, ffi.from_buffer(data)), what="log block")
    return KeptMessage(
        int(entry.first_sequence_number), int(entry.sequence_number), int(entry.timestamp_ns), bytes(data)
    )
