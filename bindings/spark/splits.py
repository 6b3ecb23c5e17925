"""What one Spark task reads: a range of one source, small and with nothing open in it. And how a read is cut
into such ranges.

A message belongs to the range that holds its last number, so that a cut between any two numbers loses and
repeats nothing.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import InputPartition

from .place import place_of_logs
from .selection import stores_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ..engine.log.catalog import StoreLog, TopicSource
    from ..engine.log.sight import Away
    from .options import Options
    from .place import Place

__all__ = ["Range", "Span", "range_of", "split"]

Span = tuple["TopicSource", int, int]
"""A source, the first number to read and the one to stop before."""

TASKS = 64
"""A read is cut at the ends of segments, into about this many tasks at most where nobody asked for more: each
one costs Spark some 20 ms of a core, in which it could read 100,000 messages."""
TASKS_PER_CORE = 4
"""Enough where there are few cores, which are all of this host ..."""
ENOUGH = 2_000_000
"""... unless that would make tasks of more messages than these: what fails, or ends last, should not be half
of the read."""


@dataclass(frozen=True)
class Range(InputPartition):
    """Messages of one source whose last number is in ``first`` <= number < ``stop``. Pickled into the
    task."""

    topic: str
    key: str
    registration_id: int
    first: int
    stop: int
    logs: tuple[StoreLog, ...]
    stores: tuple[str, ...]
    """Names of those that are read; none for all. Which numbers are valid the other logs say, too."""
    place: Place
    """Where the logs are, as the process that planned the read has found them."""
    away: tuple[Away, ...] = ()
    """Stores on record that it could not read: they may have what these logs lack."""
    query: str = ""
    """What the ledger of losses calls a query that reads a stream."""

    @property
    def value(self) -> Any:
        """For Spark's own messages."""
        return self.key, self.first, self.stop


def range_of(source: TopicSource, first: int, stop: int, options: Options) -> Range:
    """Numbers of a source that these options have found, for one task."""
    place = place_of_logs(options.domain, options.directory, source.logs)
    stores = stores_of(options)
    return Range(source.topic, source.key, source.registration_id, first, stop, source.logs, stores, place, source.away)


def split(
    spans: Iterable[Span], options: Options, cut_points: Callable[[TopicSource, int, int], Sequence[int]]
) -> list[Range]:
    """The tasks of a read, source by source in the order of their numbers; none for a span without numbers.

    Ranges end where segments do, as far as they are small enough: ``maxRecordsPerPartition`` and
    ``minPartitions`` cut them evenly. ``cut_points(source, first, stop)`` gives the numbers in between at
    which segments begin, in order.
    """
    wanted = [span for span in spans if span[1] < span[2]]
    total = sum(stop - first for _, first, stop in wanted)
    least = _least(total)
    most = total or 1
    if options.min_partitions is not None:
        most = max(1, total // options.min_partitions)
    if options.max_records_per_partition is not None:
        most = min(most, options.max_records_per_partition)
    found = []
    for source, first, stop in wanted:
        whole, begin = range_of(source, first, stop, options), first
        for end in _pieces(first, stop, cut_points(source, first, stop), min(least, most), most):
            found.append(replace(whole, first=begin, stop=end))
            begin = end
    return found


def _least(total: int) -> int:
    """Numbers that a task has at least, where segments end often enough."""
    few = TASKS_PER_CORE * len(os.sched_getaffinity(0))
    return max(1, total // TASKS, min(ENOUGH, total // few))


def _pieces(first: int, stop: int, cuts: Sequence[int], least: int, most: int) -> list[int]:
    """Ends of the pieces: at those cuts that leave ``least`` numbers, and evenly within what is longer than
    ``most``."""
    ends = []
    begin = first
    for end in (*cuts, stop):
        if end - begin < least and end < stop:
            continue
        parts = -((begin - end) // most)
        ends += [begin + (end - begin) * part // parts for part in range(1, parts + 1)]
        begin = end
    return ends
