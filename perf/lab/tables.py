"""The lab's rows as JSON and Markdown: a table per question, a column per product, and holdfast against the fastest of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ..report import quantity

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from ..harness import Series
    from .turns import Row

AGAINST = "holdfast against the fastest"


def write(path: Path, rows: Sequence[Row], machine: dict[str, object]) -> None:
    """Everything that was measured, and what was not and why."""
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {"machine": machine, "rows": [_as_json(row) for row in rows]}
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")


def _as_json(row: Row) -> dict[str, object]:
    return {
        "table": row.table,
        "case": row.case,
        "unit": row.unit,
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
    """The better of holdfast's columns against the fastest product, and against the fastest of what is none, where they are."""
    ours = row.best(row.ours)
    others = [row.fastest(bare=bare) for bare in (False, True)]
    found = [(ours, other, row.times(ours, other)) for other in others if ours and other]
    return [(one, other, times) for one, other, times in found if times is not None]


def markdown(rows: Sequence[Row], machine: dict[str, object]) -> str:
    """Who is ahead of holdfast, what was absent, then all tables and the machine."""
    lines = ["### Where holdfast is behind", "", *(_behind(rows) or ["Nowhere in this run."]), ""]
    if absent := _absent(rows):
        lines += ["### Not measured", "", *absent, ""]
    for table in dict.fromkeys(row.table for row in rows):
        lines += [f"### {table}", "", *_table([row for row in rows if row.table == table]), ""]
    facts = [f"- {name}: {json.dumps(value, ensure_ascii=False)}" for name, value in machine.items()]
    return "\n".join([*lines, "### Machine", "", *facts, ""])


def _behind(rows: Iterable[Row]) -> list[str]:
    return [
        f"- {row.table}, {row.case}: {times:.2f} × {other}"
        for row in rows
        for _, other, times in compared(row)
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
    parts = [
        f"{times:.3g} × {other}" if times >= 1 else f"**{times:.2f} × {other}**" for _, other, times in compared(row)
    ]
    return "; ".join(parts)
