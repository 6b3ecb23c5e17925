"""A topic to Parquet: every message once, as they come, or what is there now.

A streaming query of Spark's, whose micro-batches go into a table of files (table.py). Its checkpoint says
which messages are done; with a session the stores keep the others until they are. So it can be killed
anywhere, and goes on when it is started again.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from ...engine.errors import ConfigError, CorruptionError, Error, NoDomainError
from ..offsets import as_offset, positions_of
from ..options import PLACES, parse
from ..selection import check_topics, no_domain, selected
from .committed import committed
from .progress import Progress, Tell, silent
from .table import By, ParquetTable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from .table import Published

__all__ = ["ArchiveError", "Archived", "archive"]

_log = logging.getLogger("holdfast")

LOOK_S = 0.2
"""How often the query is looked at."""
DATE = "date_from_unix_date(cast(timestamp_ns div 86400000000000 as int))"
"""The day when a message was sent, in UTC whatever the session's time zone is."""
ORDER = ("source_reg_id", "sequence_number")


class ArchiveError(Error):
    """Spark has ended the query. The message is the reason as far as it can be told from Spark's."""

    code = "HF_ARCHIVE"
    hint = "start it again: it goes on where its checkpoint is"


@dataclass(frozen=True, slots=True)
class Archived:
    """What a run of :func:`archive` has done."""

    path: str
    checkpoint: str
    batches: int
    """Micro-batches that this run has written."""
    rows: int
    files: int
    bytes: int
    """Of those files."""
    seconds: float
    positions: dict[str, dict[str, int]]
    """topic -> source -> next number, of the whole archive: what lies below is in it for good."""


def archive(
    spark: SparkSession,
    topic: str | None,
    path: str | os.PathLike[str],
    *,
    by: By = "date,topic",
    checkpoint: str | os.PathLike[str] | None = None,
    session: int | None = None,
    once: bool = False,
    every_s: float = 10.0,
    options: Mapping[str, str] | None = None,
    progress: Tell = silent,
) -> Archived:
    """Writes the messages of ``topic`` as Parquet files into the directory ``path``, on this machine.

    A new archive begins at the oldest message that is kept. Started again it goes on behind the last
    committed micro-batch. Whatever is killed, what a reader of Parquet finds has no message twice, and after
    the next run none is missing.

    Args:
        topic: None where ``options`` name the topics (``subscribe``, ``subscribePattern``, ``assign``).
        by: ``date,topic``: a directory for each day (UTC, of the sending) and topic in it; ``batch``: one for
            each micro-batch.
        checkpoint: Spark's checkpoint of this archive, a directory on this machine; by default
            ``path``/_checkpoint.
        session: session ID of the receiver that the archive is: stores keep what it has not archived.
        once: ends when everything that was there at the start is archived; else goes on until an exception
            ends it, such as
            KeyboardInterrupt, which comes out of this function when the query has stopped.
        every_s: a micro-batch begins at most so often. Not with ``once``.
        options: further ones of the data source, such as ``domain`` or ``maxRecordsPerTrigger``.
        progress: told how many numbers of how many are archived.

    Raises:
        ConfigError: the directory or the checkpoint is not that of this archive, or an option is wrong; with
            ``once``, no store keeps the topic of a new archive. Without, the log says so, and the archive
            waits for it.
        CheckpointInUseError: another process archives into ``path``.
        StoresAwayError: an archive that goes on, and whose domain is not there.
        ArchiveError: Spark has ended the query.
        OSError: a file cannot be written.
    """
    began = time.monotonic()
    where = Path(path).absolute()
    points = Path(checkpoint).absolute() if checkpoint is not None else where / "_checkpoint"
    reading = _reading(topic, session, options or {})
    _check_topics(reading, once=once, new=committed(points) is None)
    frame = _stream(spark, reading)
    _check_columns(frame, by)
    with ParquetTable(where, by, points) as table:
        sink = _Sink(table, by)
        writer = frame.writeStream.foreachBatch(sink.write).option("checkpointLocation", f"file://{points}")
        every = f"{round(every_s * 1000)} milliseconds"
        writer = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=every)
        query = writer.start()
        try:
            told = None
            while not _has_ended(query, sink):
                told = _tell(query, progress, told)
            _tell(query, progress, told)
        finally:
            with contextlib.suppress(Exception):  # the JVM may be gone; whatever it is, nothing is written behind this
                query.stop()
            sink.close()
        done = committed(points)
    positions = as_offset(done[1])["topics"] if done is not None else {}
    return Archived(
        str(where), str(points), sink.batches, sink.rows, sink.files, sink.bytes, time.monotonic() - began, positions
    )


def _reading(topic: str | None, session: int | None, options: Mapping[str, str]) -> dict[str, str]:
    """The options of the query, checked."""
    given, names = dict(options), {name.lower() for name in options}
    if topic is not None:
        given["topic"] = topic
    if session is not None:
        given["session"] = str(session)
    if not any(name.lower() in names for name in PLACES):
        given["startingOffsets"] = "earliest"
    if "domain" not in names and (domain := os.environ.get("HOLDFAST_DOMAIN")):
        given["domain"] = domain  # of this process, not of the one that started the JVM
    parse(given, "stream")
    return given


def _check_topics(reading: Mapping[str, str], *, once: bool, new: bool) -> None:
    """A name that was mistyped would make an archive of nothing. One that goes on had its topics; they may be
    at rest."""
    options = parse(reading, "stream")
    try:
        found = selected(options)
        if new:
            check_topics(options, found)
    except NoDomainError as error:
        if not new:
            raise no_domain(options) from error
        if once:
            raise
        _log.warning("%s; the archive waits for it", error)
    except ConfigError as error:
        if once:
            raise
        _log.warning("%s; the archive waits for it", error)


def _stream(spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
    return spark.readStream.format("holdfast").options(**options).load()


def _check_columns(frame: DataFrame, by: By) -> None:
    needed, made = (set(), "batch") if by == "batch" else ({"topic", "timestamp_ns"}, "date")
    if missing := needed - set(frame.columns):
        raise ConfigError(f"by={by} needs the columns topic and timestamp_ns; not there: {', '.join(sorted(missing))}")
    if made in frame.columns:
        raise ConfigError(f"by={by} makes a column {made}, and the payloads have one", hint="name that one otherwise")


class _Sink:
    """Writes micro-batches. Spark calls it in a thread of its own, one at a time."""

    def __init__(self, table: ParquetTable, by: By) -> None:
        self._table, self._by = table, by
        self._writing = threading.Lock()
        self._closed = False
        self.batches = self.rows = self.files = self.bytes = 0
        self.error: Exception | None = None
        """What has ended the query here, not in Spark."""

    def write(self, frame: DataFrame, batch: int) -> None:
        """One micro-batch, for good."""
        with self._writing:
            if self._closed:
                raise ArchiveError("the archive was closed")
            staged = self._table.stage(batch)
            _write(frame, staged, self._by)
            try:
                published = self._table.publish(batch, staged)
            except pa.ArrowInvalid as error:
                self.error = CorruptionError(f"Spark left a broken file in {staged}: {error}")
                raise self.error from error
            except (OSError, Error) as error:
                self.error = error
                raise
            self._count(published)

    def _count(self, published: Published) -> None:
        self.batches += 1
        self.files += published.files
        self.rows += published.rows
        self.bytes += published.bytes

    def close(self) -> None:
        """Waits for what is being written. From then on nothing is."""
        with self._writing:
            self._closed = True


def _write(frame: DataFrame, staged: Path, by: By) -> None:
    """The files in the order of the numbers, so that their statistics tell what is where."""
    frame.sparkSession.conf.set(
        "spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS"
    )  # of the query's own session
    order = [name for name in ORDER if name in frame.columns]
    if by == "date,topic":
        from pyspark.sql.functions import expr

        frame = frame.withColumn("date", expr(DATE)).sortWithinPartitions("date", "topic", *order)
        frame.write.partitionBy("date", "topic").option("compression", "zstd").parquet(f"file://{staged}")
    else:
        frame = frame.sortWithinPartitions(*order) if order else frame
        frame.write.option("compression", "zstd").parquet(f"file://{staged}")


def _has_ended(query: StreamingQuery, sink: _Sink) -> bool:
    """Waits a little for that. Raises what has ended it, if it is not the end of its work."""
    try:
        return bool(query.awaitTermination(LOOK_S))  # type: ignore[arg-type]  # it takes parts of a second
    except Exception as error:
        if sink.error is not None:
            raise sink.error from error
        raise _reason(str(error)) from error


def _tell(query: StreamingQuery, progress: Tell, told: Progress | None) -> Progress | None:
    """How far it is, by Spark's last report; ``told``: what was said last."""
    last = query.lastProgress
    source = last["sources"][0] if last is not None and last["sources"] else {}
    try:
        done, total = (sum(positions_of(source[name]).values()) for name in ("endOffset", "latestOffset"))
    except (LookupError, TypeError, ValueError):  # Spark has not asked for one of them yet
        return told
    now = Progress("archiving", done, max(done, total), "numbers")
    if now != told:
        progress(now)
    return now


def _reason(text: str) -> ArchiveError:
    """Of an error that came through Spark: what holdfast said in it, with its own hint; else its first
    line."""
    said = re.findall(r"^holdfast[\w.]+: (\S.*)$", text, re.MULTILINE)
    return ArchiveError(said[-1], hint="") if said else ArchiveError(text.split("\n", 1)[0])
