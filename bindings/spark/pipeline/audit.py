"""Whether the stores of a domain have what they should have: every number once, the same at each of them, and
acknowledged.

Everything is read from files and shared memory, beside stores that run or with all of them dead
(engine/log/catalog.py). Each range of numbers is read from every store that has it (evidence.py), in this
process or by the tasks of a Spark session: only ranges, and what was found in them, cross into the JVM.

What was published when the audit began is its mark. Stores and receivers that live are given some time to get
there: what is on its way is no finding. And what was found in the messages is looked at once more before it
is told.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ...engine.log.catalog import cut_points, topic_sources
from ...engine.log.column_reader import Columns, Records
from ..options import Options
from ..selection import unknown_topic
from ..splits import range_of, split
from .checkpoint import CheckpointFile
from .evidence import RangeLook, encoded_look, look
from .findings import Audit, Sample, SourceAudit, StoreAudit
from .positions import positions
from .progress import Progress, Tell, silent
from .verdict import clean_below, content_findings, holes_of, joined

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession

    from ...engine.log.catalog import StoreLog, TopicSource
    from ..splits import Range
    from .positions import Positions

__all__ = ["AuditCheckpoint", "audit"]

LOOK_SECONDS = 0.05
"""How often who lives is looked at, while it is waited for."""
SAVE_SECONDS = 1.0
SAMPLES_MAX = 10_000
WAVE = 4
"""Ranges per core that Spark gets at a time: between two waves progress is told and the checkpoint is
saved."""


class AuditCheckpoint(msgspec.Struct, tag="audit"):
    """What an audit leaves for the next one."""

    clean: dict[str, int] = msgspec.field(default_factory=dict)
    """uuid of a source -> number below which everything was in order."""
    samples: list[Sample] = msgspec.field(default_factory=list)


def audit(
    topics: Sequence[str] = (),
    *,
    domain: str | None = None,
    directories: Sequence[str | os.PathLike[str]] = (),
    spark: SparkSession | None = None,
    checkpoint: Path | None = None,
    max_lag: int = 0,
    patience: float = 5.0,
    progress: Tell = silent,
) -> Audit:
    """Audits these topics, or all.

    Args:
        directories: of stores, instead of a domain. The receivers are then those that have a session ID, as
            the stores know them.
        spark: its tasks read the ranges; without it, this process does.
        checkpoint: a file. The audit goes on behind what was in order at the last one, also at one that was
            killed, and keeps the lags of all of them. Numbers below are not read again: an audit without it
            finds what was damaged there since.
        max_lag: numbers that a store or a receiver may be behind.
        patience: seconds that those that live are given to get to the mark.

    Raises:
        ConfigError: a topic that no store keeps; a domain or a directory that is none.
        CheckpointInUseError, CorruptionError: the checkpoint is another process's, or is none.
        SystemCallError: a log is there, and this process cannot read it.
    """
    began = time.monotonic()
    places, wanted = [Path(directory) for directory in directories], frozenset(topics)
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(CheckpointFile(checkpoint, AuditCheckpoint)) if checkpoint is not None else None

        def stand() -> Positions:
            return positions(domain, places, wanted.__contains__ if wanted else None)

        mark = stand()
        if absent := sorted(wanted - {source.topic for source in mark.sources.values()}):
            raise unknown_topic(absent[0], topic_sources(domain, places))
        options = Options(domain=domain, directory=tuple(map(str, places)), read_from="any")
        reading = _Reading(list(mark.sources.values()), options, file, progress)
        reading.run(spark)
        now = stand()
        deadline = time.monotonic() + patience
        while now.may_reach(mark) and time.monotonic() < deadline:
            time.sleep(LOOK_SECONDS)
            now = stand()
        reading.confirm(now, spark)
        samples = [*reading.known.samples, mark.sample(mark), now.sample(mark)][-SAMPLES_MAX:]
        reading.known.samples = samples
        reading.save()
    sources = [reading.summary(source, now.behind(source.uuid, mark)) for source in reading.sources]
    findings = [
        finding for source in reading.sources for finding in content_findings(source, reading.looks[source.uuid])
    ]
    findings += now.findings(mark, max_lag)
    read = sum(store.messages for source in sources for store in source.stores)
    return Audit(
        mark.domain, read, time.monotonic() - began, sources, now.receivers(mark), findings, samples
    )  # fmt: skip


class _Reading:
    """The part of an audit that reads messages: ``looks`` of each source, in the order of its numbers."""

    def __init__(
        self,
        sources: Sequence[TopicSource],
        options: Options,
        file: CheckpointFile[AuditCheckpoint] | None,
        progress: Tell,
    ) -> None:
        self.sources, self._options = sources, options
        self.known = (file.load() if file is not None else None) or AuditCheckpoint()
        self.looks: dict[str, list[RangeLook]] = {source.uuid: [] for source in sources}
        self._file, self._progress = file, progress
        self._saved = time.monotonic()
        self._begins = {
            source.uuid: max(source.oldest, min(self.known.clean.get(source.uuid, 0), source.any_next))
            for source in sources
        }

    def run(self, spark: SparkSession | None) -> None:
        """Reads everything that was not in order before."""
        cores = spark.sparkContext.defaultParallelism if spark is not None else 1
        spans = [(source, self._begins[source.uuid], source.any_next) for source in self.sources]
        parts = split(spans, replace(self._options, min_partitions=cores), cut_points)
        uuids = {(source.topic, source.key): source.uuid for source in self.sources}
        wave = WAVE * cores if spark is not None else 1
        done, total = 0, sum(part.stop - part.first for part in parts)
        for at in range(0, len(parts), wave):
            self._progress(Progress("reading", done, total, "numbers"))
            for found in _looks(parts[at : at + wave], spark):
                self.looks[uuids[found.topic, found.key]].append(found)
                done += found.stop - found.first
            if time.monotonic() - self._saved >= SAVE_SECONDS:
                self.save()
        self._progress(Progress("reading", done, total, "numbers"))

    def confirm(self, now: Positions, spark: SparkSession | None) -> None:
        """Looks once more at the ranges with findings, in the logs as they are now: meanwhile a source may
        have begun anew and made numbers void, a store may have come back or mended its log, a source may be
        forgotten."""
        self.sources = [now.sources[source.uuid] for source in self.sources if source.uuid in now.sources]
        for source in self.sources:
            looks = self.looks[source.uuid]
            wrong = content_findings(source, looks)
            again = [
                index
                for index, found in enumerate(looks)
                if any(each.first < found.stop and each.next > found.first for each in wrong)
            ]
            parts = [range_of(source, looks[index].first, looks[index].stop, self._options) for index in again]
            for index, found in zip(again, _looks(parts, spark), strict=True):
                looks[index] = found

    def save(self) -> None:
        """A killed audit goes on where this was."""
        self._saved = time.monotonic()
        if self._file is None:
            return
        for source in self.sources:
            self.known.clean[source.uuid] = clean_below(source, self._begins[source.uuid], self.looks[source.uuid])
        self._file.save(self.known)

    def summary(self, source: TopicSource, behind: dict[str, int]) -> SourceAudit:
        """What was read of a source."""
        stores = [self._of_store(source, log, behind.get(log.store, 0)) for log in source.logs]
        begin = self._begins[source.uuid]
        return SourceAudit(
            source.topic, source.key, source.oldest, source.quorum_next, source.any_next, begin, stores
        )  # fmt: skip

    def _of_store(self, source: TopicSource, log: StoreLog, behind: int) -> StoreAudit:
        looks = self.looks[source.uuid]
        messages = sum(each.messages for found in looks for each in found.stores if each.store == log.store)
        lacks = joined((hole.first, hole.next) for hole in holes_of(looks, log.store))
        wrong = (each for found in looks for each in found.divergences if log.store in each.stores)
        diverges = joined((each.first, each.next) for each in wrong)
        sent = _oldest_sent(source, log)
        return StoreAudit(log.store, log.oldest, log.next, behind, messages, sent, lacks, diverges)


def _looks(parts: Sequence[Range], spark: SparkSession | None) -> Iterator[RangeLook]:
    """In the order of ``parts``; the same whoever reads."""
    if spark is None or not parts:
        yield from map(look, parts)
    else:
        from ..exchange import over_ranges

        for answer in over_ranges(spark, parts, encoded_look):
            yield msgspec.msgpack.decode(answer, type=RangeLook)


def _oldest_sent(source: TopicSource, log: StoreLog) -> int | None:
    """When the oldest message in this log was sent."""
    if log.oldest >= log.next:
        return None
    records = Records(source.logs, log.oldest, log.next, values=False, stores=[log.store])
    try:
        while (found := records.read(rows=1)) is not None:
            if isinstance(found, Columns):
                return int(found.timestamp_ns[0])
    finally:
        records.close()
    return None
