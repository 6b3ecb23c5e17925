"""The lab's rows as JSON and Markdown: a table per question, a column per product, and holdfast against the
fastest of them."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from ..harness import Sample, Series
from ..report import quantity
from .turns import Row

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

AGAINST = "holdfast against the fastest"


def write(path: Path, rows: Sequence[Row], machine: dict[str, object]) -> None:
    """Everything that was measured, and what was not and why."""
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {"machine": machine, "rows": [_as_json(row) for row in rows]}
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")


def read(path: Path) -> tuple[list[Row], dict[str, object]]:
    """The rows and the machine that ``write`` wrote there."""
    document = json.loads(path.read_text())
    return [_row(found) for found in document["rows"]], document["machine"]


def _row(found: Mapping[str, Any]) -> Row:
    cells = {name: _series(found, name, cell) for name, cell in found["cells"].items()}
    kinds = [found[key] for key in ("ours", "bare", "in_flight")]
    return Row(found["table"], found["case"], found["unit"], found["more_is_better"], cells, *kinds)


def _series(row: Mapping[str, Any], name: str, cell: Mapping[str, Any]) -> Series | str:
    if "absent" in cell:
        return str(cell["absent"])
    runs = zip(cell["values"], cell["probe_ns"], strict=True)
    return Series(row["case"], name, [Sample(value, row["unit"], probe, 0, 0, 0, Counter()) for value, probe in runs])


def _as_json(row: Row) -> dict[str, object]:
    return {
        "table": row.table,
        "case": row.case,
        "unit": row.unit,
        "more_is_better": row.more_is_better,
        "ours": row.ours,
        "bare": row.bare,
        "in_flight": row.in_flight,
        "cells": {
            name: {"absent": cell} if isinstance(cell, str) else _figures(cell) for name, cell in row.cells.items()
        },
        "against": [{"ours": a, "other": b, "times": times} for a, b, times in compared(row)],
    }


def _figures(series: Series) -> dict[str, object]:
    values = series.values
    probes = [sample.probe_ns for sample in series.samples]
    return {"median": series.median, "min": min(values), "max": max(values), "values": values, "probe_ns": probes}


def compared(row: Row) -> list[tuple[str, str, float]]:
    """The better of holdfast's columns against the fastest product, and against the fastest of what is none,
    where they are.

    Like against like: what waits for each commit against what waits, what has many under way against what
    has; where none else has, against what waits.
    """
    found = []
    for names in row.alike():
        ours = row.best(name for name in names if name in row.ours)
        rivals = [name for name in names if name not in row.ours] or [
            name for name in row.cells if name not in row.ours
        ]
        others = [row.best(name for name in rivals if (name in row.bare) == bare) for bare in (False, True)]
        found += [
            (ours, other, times) for other in others if ours and other and (times := row.times(ours, other)) is not None
        ]
    return found


def markdown(rows: Sequence[Row], machine: dict[str, object]) -> str:
    """Of one machine class: who is ahead of holdfast, what was absent, then all tables and the machine."""
    lines = [f"### {machine.get('cpu')}", ""]
    lines += ["#### Where holdfast is behind", "", *(_behind(rows) or ["Nowhere in this run."]), ""]
    if absent := _absent(rows):
        lines += ["#### Not measured", "", *absent, ""]
    for table in dict.fromkeys(row.table for row in rows):
        lines += [f"#### {table}", "", *_table([row for row in rows if row.table == table]), ""]
    facts = [f"- {name}: {json.dumps(value, ensure_ascii=False)}" for name, value in machine.items()]
    return "\n".join([*lines, "#### Machine", "", *facts, ""])


def _behind(rows: Iterable[Row]) -> list[str]:
    return [
        f"- {row.table}, {row.case}: {times:.2f} × {other} ({ours})"
        for row in rows
        for ours, other, times in compared(row)
        if times < 1
    ]


def _absent(rows: Iterable[Row]) -> list[str]:
    """Each reason once; what is missing everywhere has no case beside it."""
    found: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        for name, cell in row.cells.items():
            if isinstance(cell, str):
                found.setdefault((name, cell), []).append(f"{row.table}, {row.case}")
    return [
        f"- {name}: {why}" + (f" ({'; '.join(cases)})" if why.startswith("failed") else "")
        for (name, why), cases in found.items()
    ]


def _table(rows: Sequence[Row]) -> list[str]:
    names = list(dict.fromkeys(name for row in rows for name in row.cells))
    lines = ["| what | " + " | ".join([*names, AGAINST]) + " |", "|---" * (len(names) + 2) + "|"]
    for row in rows:
        cells = [_cell(row.cells.get(name, ""), row.unit) for name in names]
        lines.append("| " + " | ".join([row.case, *cells, _against(row)]) + " |")
    return lines


def _cell(cell: Series | str, unit: str) -> str:
    if isinstance(cell, str):
        return "failed" if cell.startswith("failed") else "missing" if cell else ""
    middle, low, high = (quantity(value, unit) for value in (cell.median, min(cell.values), max(cell.values)))
    return f"{middle} [{low} .. {high}]"


def _against(row: Row) -> str:
    """Names our column where another one of ours stands beside it and does not compare."""
    parts: dict[str, list[str]] = {}
    for ours, other, times in compared(row):
        said = f"{times:.3g} × {other}" if times >= 1 else f"**{times:.2f} × {other}**"
        parts.setdefault(f"{ours}: " if row.in_flight else "", []).append(said)
    return "; ".join(ours + "; ".join(said) for ours, said in parts.items())
