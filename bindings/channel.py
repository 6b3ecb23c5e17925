"""Record batches from one process to another on this host, in place: Arrow's IPC format in shared memory.

    # in one process                                # in another
    with ShmChannel("features") as channel:         with ShmChannel("features") as channel:
        channel.write(batch)                            for batch in channel:
        channel.finish()                                    work(batch)

It is how a Spark task exchanges data with a process beside it (holdfast.spark.exchange), and needs neither
Spark nor a Java.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from .engine.channel.channel import ChannelReader, ChannelWriter
from .engine.errors import CorruptionError, MessageTooLargeError, UsageError
from .engine.native.waiting import check_timeout
from .extras import required

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    import pyarrow as pa

    from .engine.channel.channel import Block

__all__ = ["ShmChannel"]


class ShmChannel:
    """One end of a channel: the first :meth:`write` makes it the writing one, the first :meth:`read` the
    reading one.

    Either end may come first. A batch that was read is a view of the channel's memory: it stays as it is as
    long as anything refers to it, and holds its place in the ring; a writer that finds no room waits for that
    (back-pressure). A writer that dies leaves what it has written; the next one goes on behind it. Batches
    that a reader has not let go when it closes or dies are read again by the next one. What nobody came back
    for, ``holdfast gc`` removes.

    Args:
        name: 1 to 200 bytes.
        domain: as of a Context.
        capacity: bytes of the ring, chosen by the writer; a power of two, else rounded up. A batch that takes
            more than a quarter is written in slices.

    Raises:
        MissingExtraError: pyarrow is not installed.
    """

    def __init__(self, name: str, domain: str | None = None, *, capacity: int = 64 << 20) -> None:
        required("pyarrow")
        self.name = name
        self.finished = False
        """The writer has said that there is no more, and all of it is read."""
        self._domain, self._capacity = domain, capacity
        self._writer: ChannelWriter | None = None
        self._reader: ChannelReader | None = None
        self._closed = False
        self._no_more = False

    @property
    def peer(self) -> int | None:
        """Process id of the other end; None: there is none that lives, or this end has neither written nor
        read."""
        side = self._writer or self._reader
        return side.peer if side is not None else None

    # Writing ------------------------------------------------------------------------------------------------

    def write(self, batch: pa.RecordBatch, timeout: float | None = None) -> None:
        """Writes one batch, once, where it will be read.

        Args:
            batch: any schema; it may change from batch to batch.
            timeout: seconds to wait for room, for each slice; None for ever, 0 not at all.

        Raises:
            WouldBlockError: the reader has not let go of enough. Of a batch in slices, the first ones may be
                written.
            MessageTooLargeError: one row takes more than a quarter of the ring.
            UsageError: this end reads, or another process writes into this channel.
        """
        check_timeout(timeout)
        writer = self._writing()
        size = _bytes_of(batch)
        if size <= writer.block_max:
            self._put(writer, batch.schema, batch, size, timeout)
        elif batch.num_rows > 1:
            half = batch.num_rows // 2
            self.write(batch.slice(0, half), timeout)
            self.write(batch.slice(half), timeout)
        else:
            raise MessageTooLargeError(size, writer.block_max, "capacity")

    def finish(self, timeout: float | None = None) -> None:
        """Says that there is no more: the reader's iteration ends there, and nothing can be written here any
        more. Another end that is opened under this name writes for another reading. Raises as
        :meth:`write`."""
        import pyarrow as pa

        check_timeout(timeout)
        writer, schema = self._writing(), pa.schema([])
        self._put(writer, schema, None, _bytes_of(None, schema), timeout)
        self._no_more = True

    def _writing(self) -> ChannelWriter:
        if self._no_more:
            raise UsageError(f"channel {self.name}: this end has said that there is no more")
        if self._reader is not None or self._closed:
            raise UsageError(f"channel {self.name}: this end {'is closed' if self._closed else 'reads'}")
        if self._writer is None:
            self._writer = ChannelWriter(self.name, self._domain, capacity=self._capacity)
        return self._writer

    @staticmethod
    def _put(
        writer: ChannelWriter, schema: pa.Schema, batch: pa.RecordBatch | None, size: int, timeout: float | None
    ) -> None:
        import pyarrow as pa

        view = writer.claim(size, timeout)
        try:
            with pa.FixedSizeBufferWriter(pa.py_buffer(view)) as sink, pa.ipc.new_stream(sink, schema) as stream:
                if batch is not None:
                    stream.write_batch(batch)
        except BaseException:
            writer.abort()
            raise
        writer.commit()

    # Reading ------------------------------------------------------------------------------------------------

    def read(self, timeout: float | None = None) -> pa.RecordBatch | None:
        """The next batch, in place. None: the time is over, or ``finished``.

        Raises:
            CorruptionError: what lies there is no record batch.
            UsageError: this end writes, or another process reads from this channel.
        """
        check_timeout(timeout)
        if self.finished:
            return None
        block = self._reading().read(timeout)
        batch = _batch_of(block, self.name) if block is not None else None
        if block is not None and batch is None:
            self._reading().finish()
            self.finished = True
            self.close()
        return batch

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        while (batch := self.read()) is not None:
            yield batch
            del batch  # while it waits for the next one, it must not hold this one's place

    def _reading(self) -> ChannelReader:
        if self._writer is not None or self._closed:
            raise UsageError(f"channel {self.name}: this end {'is closed' if self._closed else 'writes'}")
        if self._reader is None:
            self._reader = ChannelReader(self.name, self._domain)
        return self._reader

    # The end ------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Ends this end's part; batches that were read stay valid. Idempotent."""
        self._closed = True
        for side in (self._writer, self._reader):
            if side is not None:
                side.close()

    def remove(self) -> None:
        """The reading end: closes, and takes the channel out of shared memory, with what was not read."""
        if self._reader is not None:
            self._reader.remove()
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __reduce__(self) -> tuple[object, ...]:
        raise UsageError("an end of a channel cannot be pickled", hint="send its name, and open it there")


def _bytes_of(batch: pa.RecordBatch | None, schema: pa.Schema | None = None) -> int:
    """Bytes that ``batch`` takes with its schema: written to a sink that only counts."""
    import pyarrow as pa

    sink = pa.MockOutputStream()
    with pa.ipc.new_stream(sink, batch.schema if batch is not None else schema) as stream:
        if batch is not None:
            stream.write_batch(batch)
    return int(sink.size())


def _validate(batch: pa.RecordBatch) -> None:
    """In full: every offset and every index within its buffer, all text UTF-8. Arrow trusts them later, and
    reads where they lead. Of 100,000 rows it takes nothing for numbers, 0.15 ms for bytes, 1 ms for short
    texts."""
    batch.validate(full=True)
    _read_names(batch.schema)


def _read_names(nested: pa.Schema | pa.DataType) -> None:
    """Names are decoded when somebody asks for them. Raises UnicodeDecodeError."""
    for index in range(len(nested) if hasattr(nested, "names") else nested.num_fields):
        field = nested.field(index)
        _ = field.name
        _read_names(field.type)


def _batch_of(block: Block, name: str) -> pa.RecordBatch | None:
    """None: the end."""
    import pyarrow as pa

    memory = pa.foreign_buffer(block.address, block.size, base=block)
    try:
        with pa.ipc.open_stream(memory) as stream:
            batch = next(iter(stream), None)
        if batch is not None:
            _validate(batch)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise CorruptionError(
            f"channel {name}: block {block.index} is no record batch: {error}",
            hint="another program writes into this channel",
        ) from error
    return batch
