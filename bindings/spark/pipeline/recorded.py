"""What was sent once, to be sent again: messages of an archive or of stores' logs, in one order that never
changes.

Messages of a source come by their numbers, sources meet by the time of sending. Where a clock stood still or
stepped back, a message counts as sent one nanosecond after the one before it. So the order is a function of
the messages alone, wherever a replay begins again.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from ...engine.errors import ConfigError, CorruptionError
from ...engine.log.catalog import logs_away
from ...engine.log.column_reader import Gap, Records
from ..decode import payloads_of
from ..errors import DataLossError
from ..losses import skip
from ..options import parse
from ..selection import check_topics, ending, name_of, selected, starting, stores_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from ...engine.log.catalog import TopicSource

__all__ = ["ArchiveInput", "Input", "LogInput", "Messages", "Position", "Recording", "merged", "opened"]


COLUMNS = ["source_reg_id", "sequence_number", "timestamp_ns", "value"]
"""What an archive must have; and ``topic``, as a column or in the names of its directories."""


class ArchiveInput(msgspec.Struct, frozen=True, tag="archive"):
    """Parquet files, as they were when the replay began."""

    path: str
    topic: str
    """"" for the only one."""
    files: dict[str, int] = msgspec.field(default_factory=dict)
    """Bytes of each, by its path below ``path``; none: whatever is there."""


class LogInput(msgspec.Struct, frozen=True, tag="logs"):
    """Numbers of a topic's sources, as the stores had them when the replay began."""

    options: dict[str, str]
    """Of a batch read, with ``topic``."""
    ends: dict[str, tuple[int, int]] = msgspec.field(default_factory=dict)
    """First number, and the one behind the last, by key of the source; none: whatever is there."""


Input = ArchiveInput | LogInput


class Position(NamedTuple):
    """How far a source is replayed."""

    number: int
    """The next one is this or behind it."""
    sent_ns: int
    """When the last one counts as sent; one nanosecond before the first possible one at the start."""


class Messages(NamedTuple):
    """Some, in order: arrays of one length."""

    sent_ns: NDArray[np.int64]
    """When each counts as sent; ascending strictly within a source."""
    number: NDArray[np.int64]
    source: NDArray[np.int64]
    """Index in ``Recording.sources``."""
    values: Any
    """pyarrow binary array."""


class _Chunk(NamedTuple):
    """Messages of one source by ascending numbers."""

    number: NDArray[np.int64]
    time_ns: NDArray[np.int64]
    values: Any


class Recording(Protocol):
    """What can be replayed."""

    input: Input
    """With everything that makes a later run read the same."""
    sources: list[str]
    """Names, ascending."""
    total: int
    """In ``unit``."""
    unit: str

    def done(self, positions: Mapping[str, Position], messages: int) -> int:
        """Of ``total``, when this many messages are out."""

    def chunks(self, source: str, number: int) -> Iterator[_Chunk]:
        """Messages of a source with this number and later ones."""


def opened(given: Input) -> Recording:
    """What ``given`` names.

    Raises:
        ConfigError: there is no such thing, or it is not what it was.
    """
    if isinstance(given, LogInput):
        return _StoreLogs(given)
    try:
        return _Archive(given)
    except pa.ArrowInvalid as error:
        raise ConfigError(
            f"{given.path} has a file that is not Parquet: {error}", hint="name an archive alone"
        ) from None


# One order --------------------------------------------------------------------------------------------------


def merged(recording: Recording, positions: Mapping[str, Position]) -> Iterator[Messages]:
    """Everything behind ``positions`` (a source without one is at its beginning)."""
    heads = [
        _Head(recording.chunks(name, at.number if (at := positions.get(name)) else 0), at) for name in recording.sources
    ]
    while True:
        waiting = [(index, head) for index, head in enumerate(heads) if head.fill()]
        if not waiting:
            return
        bound = min(int(head.sent_ns[-1]) for _, head in waiting)
        taken = [(index, head.take(bound)) for index, head in waiting]
        sent_ns = np.concatenate([part.sent_ns for _, part in taken])
        source = np.repeat([index for index, _ in taken], [len(part.sent_ns) for _, part in taken])
        order = np.lexsort((source, sent_ns))
        yield Messages(
            sent_ns[order],
            np.concatenate([part.number for _, part in taken])[order],
            source[order],
            _binary([part.values for _, part in taken]).take(pa.array(order)),
        )


def _binary(arrays: list[Any]) -> Any:
    """As one array of (chunked) arrays."""
    chunks = [chunk for array in arrays for chunk in (array.chunks if isinstance(array, pa.ChunkedArray) else [array])]
    return pa.concat_arrays(chunks) if chunks else pa.array([], pa.binary())


class _Part(NamedTuple):
    sent_ns: NDArray[np.int64]
    number: NDArray[np.int64]
    values: Any


class _Head:
    """The next messages of one source."""

    def __init__(self, chunks: Iterator[_Chunk], at: Position | None) -> None:
        self._chunks = chunks
        self._last = at.sent_ns if at is not None else -(2**62)
        self.sent_ns = np.empty(0, np.int64)
        self._number = np.empty(0, np.int64)
        self._values: Any = None

    def fill(self) -> bool:
        """Whether there is something."""
        while not len(self.sent_ns):
            chunk = next(self._chunks, None)
            if chunk is None:
                return False
            steps = np.arange(1, len(chunk.number) + 1)
            self.sent_ns = steps + np.maximum.accumulate(np.maximum(chunk.time_ns - steps, self._last))
            self._number, self._values = chunk.number, chunk.values
            if len(steps):
                self._last = int(self.sent_ns[-1])
        return True

    def take(self, bound: int) -> _Part:
        """What counts as sent up to ``bound``."""
        at = int(np.searchsorted(self.sent_ns, bound, "right"))
        part = _Part(self.sent_ns[:at], self._number[:at], self._values[:at])
        self.sent_ns, self._number, self._values = self.sent_ns[at:], self._number[at:], self._values[at:]
        return part


# Stores' logs -----------------------------------------------------------------------------------------------


class _StoreLogs:
    """A topic, read as a batch read does it: from whichever store has a number, or from those that are
    named."""

    unit = "numbers"

    def __init__(self, given: LogInput) -> None:
        options = parse(given.options, "batch")
        if not options.topic:
            raise ConfigError("a replay is of one topic", hint="give option topic")
        found = selected(options)
        check_topics(options, found)
        self._options, self._stores = options, stores_of(options)
        self._sources: dict[str, TopicSource] = {source.key: source for source in found}
        ends = given.ends
        if not ends:
            start, end = starting(options, found, "earliest"), ending(options, found)
            ends = {source.key: (start[name_of(source)], end[name_of(source)]) for source in found}
        if gone := sorted(ends.keys() - self._sources.keys()):
            raise ConfigError(f"no store keeps source {gone[0]} of topic {options.topic!r} any more")
        self.input: Input = LogInput(given.options, ends)
        self._ends = ends
        self.sources = sorted(ends)
        self.total = sum(max(0, stop - first) for first, stop in ends.values())

    def done(self, positions: Mapping[str, Position], messages: int) -> int:
        return sum(max(0, positions[key].number - first) for key, (first, _) in self._ends.items() if key in positions)

    def chunks(self, source: str, number: int) -> Iterator[_Chunk]:
        kept, (first, stop) = self._sources[source], self._ends[source]
        records = Records(kept.logs, min(max(first, number), stop), stop, stores=self._stores)
        try:
            while (found := records.read()) is not None:
                if isinstance(found, Gap):
                    loss = DataLossError(kept.topic, kept.key, found.first, found.next - 1, found.why)
                    skip(self._options, loss, [*kept.away, *logs_away(kept.logs)])
                    continue
                yield _Chunk(found.sequence_number, found.timestamp_ns, payloads_of(found))
        finally:
            records.close()


# An archive -------------------------------------------------------------------------------------------------


class _Group(NamedTuple):
    """What a row group has of one source."""

    first: int
    last: int
    path: str
    row_group: int


class _Archive:
    """Parquet files, of which it is known which row group has which numbers of which source; no more is held
    than overlaps."""

    unit = "messages"

    def __init__(self, given: ArchiveInput) -> None:
        place = Path(given.path)
        if not place.exists():
            raise ConfigError(f"there is no archive at {place}")
        root = place if place.is_dir() else place.parent
        files = _files(place, root)
        for name, size in given.files.items():
            if name not in files or files[name].size != size:
                there = f"has {files[name].size} bytes" if name in files else "is not there"
                raise ConfigError(
                    f"{root / name} {there}, and had {size} when this replay began", hint="replay it anew"
                )
        chosen = {name: files[name] for name in given.files or files}
        self._groups: dict[str, list[_Group]] = {}
        self.total = 0
        self._topic = self._topic_of(root, chosen, given.topic)
        for name in sorted(chosen):
            self._index(root / name, chosen[name])
        for groups in self._groups.values():
            groups.sort()
        self.sources = sorted(self._groups)
        self.input: Input = ArchiveInput(given.path, given.topic, {name: file.size for name, file in chosen.items()})

    def _topic_of(self, root: Path, files: dict[str, _File], wanted: str) -> str:
        topics: set[str] = set()
        for name, file in files.items():
            if file.topic is not None:
                topics.add(file.topic)
            elif "topic" in pq.read_schema(root / name).names:
                topics.update(pc.unique(pq.read_table(root / name, columns=["topic"])["topic"]).to_pylist())
        if not wanted and len(topics) > 1:
            raise ConfigError(f"the archive has topics {', '.join(sorted(topics))}", hint="say which one")
        if wanted and wanted not in topics:
            raise ConfigError(f"the archive has no topic {wanted!r}, but {', '.join(sorted(topics)) or 'none'}")
        return wanted

    def _index(self, path: Path, file: _File) -> None:
        if self._topic and file.topic not in {None, self._topic}:
            return
        with pq.ParquetFile(path) as parquet:
            if missing := [name for name in COLUMNS if name not in parquet.schema_arrow.names]:
                raise ConfigError(
                    f"{path} has no column {', '.join(missing)}", hint="an archive with valueFormat=binary"
                )
            for index in range(parquet.num_row_groups):
                table = self._rows(parquet, index, ["source_reg_id", "sequence_number"])
                ids = table["source_reg_id"].to_numpy()
                numbers = table["sequence_number"].to_numpy()
                for source in np.unique(ids):
                    mine = numbers[ids == source]
                    group = _Group(int(mine.min()), int(mine.max()), str(path), index)
                    self._groups.setdefault(str(source), []).append(group)
                self.total += len(ids)

    def _rows(self, parquet: Any, index: int, columns: list[str]) -> Any:
        by_row = bool(self._topic) and "topic" in parquet.schema_arrow.names
        table = parquet.read_row_group(index, columns=[*columns, "topic"] if by_row else columns)
        return table.filter(pc.equal(table["topic"], self._topic)) if by_row else table

    def done(self, positions: Mapping[str, Position], messages: int) -> int:
        return messages

    def chunks(self, source: str, number: int) -> Iterator[_Chunk]:
        groups = [group for group in self._groups[source] if group.last >= number]
        held: Any = None
        last = -1
        for at, group in enumerate(groups):
            fresh = self._of_source(group, source, number)
            held = (fresh if held is None else pa.concat_tables([held, fresh])).sort_by("sequence_number")
            numbers = held["sequence_number"].to_numpy()
            bound = groups[at + 1].first if at + 1 < len(groups) else 2**63 - 1
            ready = int(np.searchsorted(numbers, bound))
            again = np.flatnonzero(np.diff(numbers[:ready], prepend=last) == 0)
            if len(again):
                raise CorruptionError(f"the archive has number {numbers[again[0]]} of source {source} twice")
            if ready:
                last = int(numbers[ready - 1])
                out = held.slice(0, ready)
                yield _Chunk(numbers[:ready], out["timestamp_ns"].to_numpy(), out["value"].cast(pa.binary()))
            held = held.slice(ready)

    def _of_source(self, group: _Group, source: str, number: int) -> Any:
        with pq.ParquetFile(group.path) as parquet:
            table = self._rows(parquet, group.row_group, COLUMNS).select(COLUMNS)
        mine = pc.equal(table["source_reg_id"], int(source))
        return table.filter(pc.and_(mine, pc.greater_equal(table["sequence_number"], number)))


class _File(NamedTuple):
    size: int
    topic: str | None
    """As its directory says; None where its rows do."""


def _files(place: Path, root: Path) -> dict[str, _File]:
    """By path below ``root``; as pyarrow finds them: not what begins with ``_`` or a dot."""
    found = ds.dataset(place, format="parquet", partitioning=ds.partitioning(flavor="hive"))
    files = {}
    for fragment in found.get_fragments():
        path = Path(fragment.path)
        keys = ds.get_partition_keys(fragment.partition_expression)
        topic = keys.get("topic")
        files[str(path.relative_to(root))] = _File(path.stat().st_size, None if topic is None else str(topic))
    return files
