"""What a message may cost as things grow in number: curves, and the slope that each may have. Pure; scale.py
measures them.

A cost that grows as x ** e is a straight line of slope e in a plot with two logarithmic axes. Flat means e =
0. The limit leaves room for what the caches make of more participants: with e = 0.1, ten times as many cost
1.26 times as much.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .harness import Series

FLAT = 0.1
"""Largest exponent of a cost that must not grow."""
AS_BYTES = 1.05
"""Largest exponent of a cost that may grow as the bytes do, and no faster."""
AS_SEGMENTS = 0.5
"""Largest exponent of what looks at one header per segment: it may grow with them, but far slower than the
log."""
AS_WAKES = 1.05
"""Largest exponent of a cost that has a system call in it for each process that sleeps."""
KIB, MIB = 1 << 10, 1 << 20


@dataclass(frozen=True, slots=True)
class Curve:
    """``case``: of the C program, ``{}`` stands for x. Judged from ``judged_from`` on (x)."""

    case: str
    title: str
    limit: float = FLAT
    judged_from: int = 0


@dataclass(frozen=True, slots=True)
class Figure:
    """Curves over one axis. ``points``: the x that are measured. Processes share the cores that there are,
    and each is asked for its own CPU time."""

    name: str
    title: str
    axis: str
    points: tuple[int, ...]
    curves: tuple[Curve, ...]
    in_bytes: bool = False
    disk_bytes: int = 0
    """Bytes of disk for each 1 of x."""

    def xs(self, free: int) -> tuple[int, ...]:
        """What a machine measures that has this many bytes of disk free."""
        return tuple(x for x in self.points if x * self.disk_bytes <= free)


FIGURES = (
    Figure(
        "receivers",
        "Receivers of one source",
        "receiver processes",
        (1, 2, 4, 8, 16, 32, 64),
        (
            Curve("fan:source:receiver:{}", "source, CPU per message"),
            Curve("fan:far:receiver:{}", "each receiver, CPU per message"),
        ),
    ),
    Figure(
        "sleepers",
        "Receivers that block when they have all",
        "receiver processes",
        (1, 2, 4, 8, 16, 32, 64),
        (
            Curve("fan:source:sleeper:{}", "source, CPU per message, waking them", AS_WAKES),
            Curve("fan:far:sleeper:{}", "each receiver, CPU per message"),
        ),
    ),
    Figure(
        "stores",
        "Stores of one source",
        "store processes",
        (1, 2, 3, 4, 5, 10, 25),
        (
            Curve("fan:source:store:{}", "source, CPU per message"),
            Curve("fan:far:store:{}", "each store, CPU per message"),
        ),
    ),
    Figure(
        "sources",
        "Sources in one store",
        "sources",
        (1, 4, 16, 64, 256),
        (
            Curve("drain:{}", "store, CPU per message, all send"),
            Curve("drain:{}:1", "store, CPU per message, one of them sends"),
        ),
    ),
    Figure(
        "rings",
        "Size of the ring",
        "bytes of the ring",
        (64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB),
        (
            Curve("fan:source:receiver:1:128:{}", "source, CPU per message"),
            Curve("fan:far:receiver:1:128:{}", "receiver, CPU per message"),
        ),
        in_bytes=True,
    ),
    Figure(
        "messages",
        "Size of a message",
        "bytes of a message",
        (16, 64, 256, KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB),
        (
            Curve("fan:source:copier:1:{}:67108864", "source, CPU per message", AS_BYTES, 4 * KIB),
            Curve("fan:far:copier:1:{}:67108864", "receiver that copies, CPU per message", AS_BYTES, 4 * KIB),
        ),
        in_bytes=True,
    ),
    Figure(
        "logs",
        "Size of a log",
        "MiB in the log",
        (64, 256, 1024, 4096, 20480),
        (
            Curve("logopen:{}", "a store opens it", AS_SEGMENTS),
            Curve("logseek:{}", "a reader finds a message in it", judged_from=256),
        ),
        disk_bytes=MIB,
    ),
)


@dataclass(frozen=True, slots=True)
class Slope:
    """A curve beside what was measured: the exponent of each run, their median, and x that were not
    measured."""

    figure: Figure
    curve: Curve
    exponents: tuple[float, ...]
    cost: tuple[float, float]
    """Median cost in ns at the first and the last x that were measured."""
    measured: tuple[int, ...]
    missing: tuple[int, ...]

    @property
    def exponent(self) -> float:
        """Of the median run."""
        return statistics.median(self.exponents)

    @property
    def met(self) -> bool:
        """Whether the cost grows no faster than it may."""
        return self.exponent <= self.curve.limit

    def as_json(self) -> dict[str, object]:
        """One row of the table."""
        return {
            "figure": self.figure.name,
            "case": self.curve.case,
            "exponents": self.exponents,
            "exponent": self.exponent,
            "limit": self.curve.limit,
            "measured": self.measured,
            "not_measured": self.missing,
            "met": self.met,
        }


def costs(series: Series) -> list[float]:
    """ns per message of each run, also of a series of rates. Raises ValueError for another unit."""
    unit = series.samples[0].unit
    if unit not in {"ns", "msg/s"}:
        raise ValueError(f"{series.case} is in {unit}: a cost is made of ns or msg/s")
    return series.values if unit == "ns" else [1e9 / value for value in series.values]


def exponent(points: Sequence[tuple[float, float]]) -> float:
    """e of ``y = a * x ** e``: the median of the slopes of all pairs, so that one disturbed point does not
    count (Theil, Sen).

    Raises ValueError for fewer than two different x.
    """
    slopes = [math.log(b[1] / a[1]) / math.log(b[0] / a[0]) for a, b in combinations(points, 2) if a[0] != b[0]]
    if not slopes:
        raise ValueError("a slope needs two points")
    return statistics.median(slopes)


def judge(series: Mapping[str, Series]) -> list[Slope]:
    """All curves with two measured points or more in the range that is judged. ``series``: case -> its
    runs."""
    found = (_judge(figure, curve, series) for figure in FIGURES for curve in figure.curves)
    return [slope for slope in found if slope is not None]


def _judge(figure: Figure, curve: Curve, series: Mapping[str, Series]) -> Slope | None:
    every = figure.points
    measured = {x: costs(series[case]) for x in every if (case := curve.case.format(x)) in series}
    judged = {x: values for x, values in measured.items() if x >= curve.judged_from}
    if len(judged) < 2:
        return None
    runs = min(len(values) for values in judged.values())
    exponents = tuple(exponent([(x, values[run]) for x, values in judged.items()]) for run in range(runs))
    ends = [statistics.median(measured[x]) for x in (min(measured), max(measured))]
    missing = tuple(x for x in every if x not in measured)
    return Slope(figure, curve, exponents, (ends[0], ends[1]), tuple(measured), missing)
