"""README's rows: what the lab found on every machine class whose results are committed, as ranges of
medians.

The last row is one that others win. No figure in it is typed by hand: ``python -m perf.lab --again`` writes
it from the results.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..report import quantity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .turns import Row

__all__ = ["LINES", "Line", "first_screen"]


@dataclass(frozen=True, slots=True)
class Line:
    """``what`` a reader understands, of the lab's row ``case`` in ``table``; ``ours``: its column."""

    what: str
    table: str
    case: str
    ours: str = "holdfast"


LINES = (
    Line("messages of 128 B, each sent and received alone", "One way, message by message", "128 B"),
    Line("round trip of 128 B, median", "Round trip, median", "128 B"),
    Line("read back by a new process, 128 B", "Replay by a new process", "128 B"),
    Line(
        "commits of 1,000 × 128 B, each waited for until synced", "Persistent, synced",
        "128 B, 1,000 messages per commit", "holdfast, waiting for each",
    ),
    Line(
        "a commit per message of 128 B, each waited for, in memory", "Persistent, no sync per commit",
        "128 B, a message per commit", "holdfast, waiting for each",
    ),
    Line("round trip of 1 MiB, median, read in place", "Round trip, median", "1 MiB", "holdfast, in place"),
)  # fmt: skip


def first_screen(machines: Sequence[Sequence[Row]]) -> str:
    """The table. ``machines``: the rows of each machine class. Raises KeyError where one lacks a line's
    row."""
    lines = ["| | holdfast | the fastest other | × |", "|---|---|---|---|"]
    for line in LINES:
        rows = [_row(rows, line) for rows in machines]
        ours = [row.median(line.ours) for row in rows]
        others = [_fastest(row) for row in rows]
        names = " or ".join(dict.fromkeys(name for name, _ in others))
        times = [row.times(line.ours, name) or 0.0 for row, (name, _) in zip(rows, others, strict=True)]
        unit = rows[0].unit
        lines.append(
            f"| {line.what} | {_span(ours, unit)} | {names}: {_span([value for _, value in others], unit)} | {_times(times)} |"
        )
    return "\n".join(lines)


def _row(rows: Sequence[Row], line: Line) -> Row:
    for row in rows:
        if (row.table, row.case) == (line.table, line.case):
            return row
    raise KeyError(f"{line.table}, {line.case}")


def _fastest(row: Row) -> tuple[str, float]:
    name = row.best(name for name in row.cells if name not in row.ours and name not in row.bare)
    assert name is not None, f"nobody else was measured: {row.table}, {row.case}"
    return name, row.median(name)


def _span(values: Sequence[float], unit: str) -> str:
    low, high = quantity(min(values), unit), quantity(max(values), unit)
    return low if low == high else f"{low} .. {high}"


def _times(values: Sequence[float]) -> str:
    low, high = f"{min(values):.2g}", f"{max(values):.2g}"
    said = low if low == high else f"{low} .. {high}"
    return f"**{said}**" if max(values) < 1 else said
