"""The speed that the design promises, as ratios within one run. Floors are written down here and nowhere
else."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .harness import Sample, Series

EQUAL_PROBE = 1.5
"""Two runs compare when their probes differ by less than this factor ..."""
PAIRS_MIN = 3
"""... as long as this many pairs are left; else all pairs count, and the table says so."""


class Side(Enum):
    """On which side of its limit a figure must lie."""

    AT_LEAST = "≥"
    AT_MOST = "≤"


@dataclass(frozen=True, slots=True)
class Floor:
    """``case`` must be at least / at most ``factor`` x ``base`` + ``plus`` (unit of the case); without base
    ``plus``.

    ``probe_max_ns``: the floor is stated for machines whose bare round trip is no slower; elsewhere it is
    only shown.
    """

    path: str
    script: str
    case: str
    side: Side
    base: str | None = None
    factor: float = 1.0
    plus: float = 0.0
    probe_max_ns: float | None = None

    def limit(self, base: Sample | None) -> float:
        """The limit for one run, given the base's run beside it."""
        return self.plus if base is None else self.factor * base.value + self.plus


FLOORS = (
    Floor("C round trip, 16 B", "latency", "cping", Side.AT_MOST, "line", 1.3, 30),
    Floor("C one way, rows of 64, 16 B", "throughput", "oneway:16:rows:batch:1:262144", Side.AT_LEAST, "ring:16", 0.4),
    Floor(
        "C one way, rows of 64, 128 B", "throughput", "oneway:128:rows:batch:1:1048576", Side.AT_LEAST, "ring:128", 0.8
    ),
    Floor(
        "C one way, rows of 64, 1 KiB",
        "throughput",
        "oneway:1024:rows:batch:1:4194304",
        Side.AT_LEAST,
        "ring:1024",
        0.8,
    ),
    Floor("Python send(bytes), per message", "throughput", "py-send", Side.AT_MOST, "py-empty-call", 5),
    Floor(
        "Python send with events against without", "throughput", "py-send-events", Side.AT_LEAST, "py-send-rate", 0.9
    ),
    Floor("Python batch → Numba consumer, 16 B", "throughput", "py-batch", Side.AT_LEAST, plus=50e6, probe_max_ns=200),
    Floor("Python round trip", "latency", "py-ping", Side.AT_MOST, plus=2000),
    Floor("append, memory, 128 B", "store", "append:memory:128:recycled", Side.AT_LEAST, "mapped:128", 0.5),
    Floor("append, memory, 128 B", "store", "append:memory:128:recycled", Side.AT_LEAST, plus=10e6),
    Floor("disk-stable, 700 B, recycled", "store", "append:disk:700:recycled", Side.AT_LEAST, "overwrite", 0.8),
    Floor("send → stable(memory), spinning", "latency", "stable:memory", Side.AT_MOST, "line", 2, 300),
    Floor("send → stable(disk)", "latency", "stable:disk", Side.AT_MOST, "fdatasync", 1.5, 80e3),
    Floor("recovery read into batches, 128 B", "recovery", "replay:disk:128", Side.AT_LEAST, plus=20e6),
    Floor("source's CPU, 3 stores against 1", "store", "paced:3", Side.AT_MOST, "paced:1", 1.1),
    Floor("stable at 3 disk stores, three copies", "copies", "copies:3", Side.AT_LEAST, "overwrite:3", 0.8),
    Floor("store start, 2 GiB against 64 MiB", "store_start", "start:large", Side.AT_MOST, "start:small", 2, 50e6),
    Floor("the same, after kill -9", "store_start", "start:killed", Side.AT_MOST, "start:small", 2, 50e6),
    Floor("record batches, channel", "channel", "batches:channel", Side.AT_LEAST, "batches:socket", 2),
    Floor("Spark batch read, all columns", "spark", "spark:all", Side.AT_LEAST, "parquet:all", 0.8),
    Floor("map_ranges, an aggregate", "spark", "map:all", Side.AT_LEAST, "parquet:all", 3),
    Floor("reader alone, 64 B", "spark", "reader", Side.AT_LEAST, plus=20e6),
    Floor("idle source + receiver + store", "idle", "idle", Side.AT_MOST, plus=1.0),
    *(
        Floor(
            f"late where it is received, {size} B, {rate:,} a second, {name}",
            "tails",
            f"stream:{size}:{rate}:{name}",
            Side.AT_MOST,
            f"line:{size}:{rate}:{name}",
            1.5,
            100,
        )
        for rate in (167_000, 1_670_000)
        for size in (40, 1024)
        for name in ("p50", "p99", "p99.9")
    ),
    Floor("Python, receive() and release(), 128 B", "awaiting", "receive", Side.AT_LEAST, plus=3e6),
    Floor("Python, for, 128 B", "awaiting", "for", Side.AT_LEAST, plus=6e6),
    Floor("Python, async for beside for", "awaiting", "async-for", Side.AT_LEAST, "for", 0.5),
    Floor("Python, batches() beside receive_batch", "awaiting", "batches", Side.AT_LEAST, "receive-batch", 0.95),
    Floor(
        "Python, 5 ms beside a full-speed backlog, p99 of the lateness", "awaiting", "lateness", Side.AT_MOST, plus=5e6
    ),
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """A floor beside what was measured. ``ratio``: None without a base. ``met``: None where the floor is not
    stated."""

    floor: Floor
    series: Series
    base: Series | None
    ratio: float | None
    limit: float
    pairs: int
    equal: bool
    met: bool | None

    @property
    def unit(self) -> str:
        """Of what was measured."""
        return self.series.samples[0].unit

    def as_json(self) -> dict[str, object]:
        """One row of the table."""
        return {
            "path": self.floor.path,
            "case": self.floor.case,
            "base": self.floor.base,
            "measured": self.series.median,
            "unit": self.unit,
            "ratio": self.ratio,
            "limit": self.limit,
            "side": self.floor.side.value,
            "pairs": self.pairs,
            "pairs_at_equal_probe": self.equal,
            "probe_ns": self.series.probe_ns,
            "met": self.met,
        }


def judge(script: str, series: Mapping[str, Series]) -> list[Verdict]:
    """All floors of one script whose cases were measured, in the order of FLOORS. ``series``: case -> its
    runs."""
    found = [floor for floor in FLOORS if floor.script == script and floor.case in series]
    return [_judge(floor, series) for floor in found if floor.base is None or floor.base in series]


def _judge(floor: Floor, series: Mapping[str, Series]) -> Verdict:
    """A run holds on the right side of the limit that the base's neighbouring run sets; the median run
    decides."""
    measured = series[floor.case]
    base = series[floor.base] if floor.base else None
    pairs: list[tuple[Sample, Sample | None]]
    if base is None:
        pairs, equal = [(sample, None) for sample in measured.samples], True
    else:
        every = list(zip(measured.samples, base.samples, strict=True))
        near = [(a, b) for a, b in every if 1 / EQUAL_PROBE < a.probe_ns / b.probe_ns < EQUAL_PROBE]
        equal = len(near) >= min(PAIRS_MIN, len(every))
        pairs = [*near] if equal else [*every]
    limit = statistics.median(floor.limit(b) for _, b in pairs)
    share = statistics.median(a.value / floor.limit(b) for a, b in pairs)
    ratio = statistics.median(a.value / b.value for a, b in pairs if b is not None) if base else None
    met: bool | None = share >= 1 if floor.side is Side.AT_LEAST else share <= 1
    if floor.probe_max_ns is not None and not met and measured.probe_ns > floor.probe_max_ns:
        met = None
    return Verdict(floor, measured, base, ratio, limit, len(pairs), equal, met)
