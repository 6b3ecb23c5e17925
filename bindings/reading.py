"""What is kept of a topic, for notebooks and tools: read without being anybody (:func:`read`)."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Never, SupportsIndex

from .batch import Batch
from .engine.errors import ConfigError, UsageError
from .engine.log.columns import read_only_bytes
from .engine.log.topic_reader import Sent, TopicReader
from .engine.memory.domain import check_topic
from .engine.printable import printable
from .engine.rules.chosen_start import datetime_ns, whole_number
from .extras import needed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .engine.log.columns import Columns
    from .engine.log.topic_reader import Edge

__all__ = ["read"]

NUMBERS_END = 2**63


class ReadBatch(Batch):
    """A batch of :func:`read`: a copy of its own, so it stays valid for ever and in a forked child, too.

    Nothing is consumed by it: ``release()`` does nothing, and there is nothing to acknowledge.
    """

    __slots__ = ("_columns", "_memory")

    def __init__(self, topic: str, source: str, columns: Columns) -> None:
        self.topic = topic
        self.source = source
        self._columns = columns
        self._memory: Any = read_only_bytes(columns.values)
        self.frames = columns.frames()

    def __len__(self) -> int:
        return self._columns.count

    def _check_owner(self) -> None:
        return

    @property
    def memory(self) -> Any:
        """(m,) uint8 array that offsets count in, read-only. Each message is contiguous."""
        return self._memory

    def payload(self, index: int) -> memoryview:
        """Payload of message ``index``: a view."""
        frame = self.frames[index]
        start = int(frame["offset"])
        return memoryview(self._memory)[start : start + int(frame["length"])]

    def to_arrow(self) -> Any:
        """The payloads as a pyarrow BinaryArray; not copied. Raises MissingExtraError."""
        with needed():
            import pyarrow as pa

        buffers = [None, pa.py_buffer(self._columns.offsets), pa.py_buffer(self._memory)]
        return pa.Array.from_buffers(pa.binary(), len(self), buffers)

    def extract_ack(self) -> Never:
        """Raises UsageError: who reads is not registered."""
        raise UsageError("read() is not registered: it acknowledges nothing", hint="use a receiver of a Context")

    def send_explicit_ack(self) -> None:
        """Raises UsageError, as :meth:`extract_ack`."""
        self.extract_ack()

    def release(self) -> None:
        """Does nothing: nothing is consumed, and the batch stays valid."""

    def __exit__(self, *_: object) -> None:
        return

    def __repr__(self) -> str:
        first, last = int(self.frames["first_sequence_number"][0]), int(self.frames["sequence_number"][-1])
        return printable(f"<Batch {self.topic} {first}..{last}, {len(self)} messages read>")


def read(
    topic: str,
    start: SupportsIndex | datetime | None = None,
    end: SupportsIndex | datetime | None = None,
    domain: str | None = None,
) -> Iterator[Batch]:
    """What is kept of ``topic``: by stores, running or dead, and by rings in shared memory. For notebooks and
    tools.

    Nobody is registered: no store and no source notices it, nothing is written, nothing is consumed. How far
    it reads is settled by the call; what is published later is not read. A topic that has several sources
    gives one after another, in the order of the times of their first messages kept; a source's messages come
    by number, whole.

    ::

        from datetime import UTC, datetime, timedelta
        import holdfast as hf

        for batch in hf.read("quotes", start=datetime.now(UTC) - timedelta(hours=1)):
            print(batch.source, batch.frames["sequence_number"], bytes(batch.payload(0)))

    Args:
        topic: its name.
        start: where each source begins: None, at all that is kept; a number, inclusive (what a source has no
            more below its oldest message is left out); a datetime with a time zone, at the first message that
            was published then or later.
        end: where each source ends, exclusive, in the same ways; None, behind what was published when this
            was called. A message of several fragments belongs to the range that holds its last number.
        domain: its name, or the absolute path of its directory; None is the default one.

    Returns:
        An iterator of :class:`Batch`, at most 16384 messages and 16 MiB of payload each (one larger message
        comes alone). ``frames``: (n,) structured array as of a receiver's batch: numbers, ``timestamp_ns``
        (int64, ns since 1970 UTC, by the clock of the source's host), ``offset`` and ``length`` (bytes),
        ``flags`` (0). ``memory``: (m,) uint8. All of it is a copy that stays valid: ``release()`` does
        nothing, and ``extract_ack()`` and ``send_explicit_ack()`` raise UsageError.

        It is empty where nobody has ever sent on the topic, as far as all stores on record say.

    Raises:
        ConfigError: a topic or a domain that cannot be; ``start`` or ``end`` is negative, a datetime without
            a time zone or neither of them, or ``start`` is behind ``end``.
        NoDomainError: the domain is not there.
        SystemCallError: a store's files are there, and this process may not open them.

    While it is iterated, behind everything that can be read:

    Raises:
        StoresAwayError: numbers that no store in sight has may be at stores on record that cannot be read, or
            the topic may have sources there.
        CorruptionError: numbers that are damaged at every store that has them.
        MessageTooLargeError: a message of 2 GiB or more.
        ForkedHandleError: the iterator is the parent process's.

    What no store has, while all were read, is left out: numbers jump, and the logger "holdfast" warns.
    """
    check_topic(topic)
    first, stop = _edge("start", start), _edge("end", end)
    if first is not None and type(first) is type(stop) and first > stop:  # type: ignore[operator]  # the same type
        raise ConfigError(f"start={start} is behind end={end}", hint="end is exclusive, and at least start")
    return _batches(topic, TopicReader(domain, topic, first, stop))


def _batches(topic: str, reader: TopicReader) -> Iterator[Batch]:
    for uuid, columns in reader.read():
        yield ReadBatch(topic, f"holdfast:{topic}:{uuid[:12]}", columns)


def _edge(name: str, given: object) -> Edge:
    """Raises ConfigError."""
    if given is None:
        return None
    if isinstance(given, datetime):
        return Sent(datetime_ns(name, given))
    number = whole_number(given)
    if number is None:
        raise ConfigError(f"{name}={given!r}", hint="a number, a datetime with a time zone, or None")
    if not 0 <= number < NUMBERS_END:
        raise ConfigError(f"{name}={number} is no sequence number", hint="0 to 2^63 - 1; None for all")
    return number
