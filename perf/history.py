"""The figures that floors are stated for, over releases and machine classes: perf/HISTORY.md.

perf/results/history.jsonl has one line per version and machine class. The line of the version that a result
file is of is written anew from that file; lines of other versions stay as they are. Nothing is measured here.
"""

from __future__ import annotations

import re
import textwrap
from itertools import cycle, pairwise
from typing import TYPE_CHECKING, Any

import msgspec

from .cli import HERE
from .floors import EQUAL_PROBE, FLOORS
from .machine import name_of
from .page import ABSENT, result_files, table
from .plots import STYLES, save
from .report import Report, insert_into, quantity, rule

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from .floors import Floor

PAGE = HERE / "HISTORY.md"
NAME = "history"
"""Of the lines, the sheet, and the generated part of the page."""
COLUMNS = 5


class Figure(msgspec.Struct, frozen=True):
    """What was measured for one floor. ``met``: against the floor of its day; None where none was stated."""

    case: str
    base: str | None
    measured: float
    unit: str
    ratio: float | None
    probe_ns: float
    met: bool | None


class Line(msgspec.Struct, frozen=True):
    """One version on one machine class."""

    version: str
    machine: str
    commit: str
    date: str
    probe_ns: float
    figures: tuple[Figure, ...]

    def of(self, floor: Floor) -> Figure | None:
        """What was measured for it."""
        return next((one for one in self.figures if (one.case, one.base) == (floor.case, floor.base)), None)

    @property
    def place(self) -> tuple[list[int], str]:
        """Where it stands among others: versions in order, then machine classes."""
        return [int(number) for number in re.findall(r"\d+", self.version)], self.machine


def line_of(path: Path) -> Line:
    """The line of a result file. Raises ValueError for another file, and for one without version and date."""
    report = Report.read(path)
    facts = report.machine
    if not (facts.get("version") and facts.get("date")):
        raise ValueError(f"{path} does not say which version was measured, and when: measure anew")
    figures = tuple(
        Figure(
            verdict.floor.case, verdict.floor.base, verdict.series.median, verdict.unit, verdict.ratio,
            verdict.series.probe_ns, verdict.met,
        )
        for verdict in report.verdicts
    )  # fmt: skip
    return Line(facts["version"], name_of(facts), facts["commit"], facts["date"], report.probe_ns, figures)


def read(path: Path) -> list[Line]:
    """All lines; none where there is no file. Raises ValueError, with its number, for a line that is none."""
    lines = []
    for number, text in enumerate(path.read_text().splitlines() if path.exists() else [], 1):
        try:
            lines.append(msgspec.json.decode(text, type=Line))
        except msgspec.DecodeError as error:
            raise ValueError(f"{path}, line {number}, is no line of the history: {error}") from None
    return lines


def updated(lines: Iterable[Line], new: Iterable[Line]) -> list[Line]:
    """In order; a new line replaces the one of the same version and machine class."""
    found = {(line.version, line.machine): line for line in (*lines, *new)}
    return sorted(found.values(), key=lambda line: line.place)


def write(results: Path, page: Path) -> list[Path]:
    """Brings the history up to date with the result files, draws it, and shows it in ``page``. Returns what
    was written."""
    path = results / f"{NAME}.jsonl"
    lines = updated(read(path), map(line_of, result_files(results)))
    path.write_text("".join(f"{msgspec.json.encode(line).decode()}\n" for line in lines))
    sheets = draw(lines, results / NAME)
    insert_into(page, markdown(lines), NAME)
    return [path, *sheets, page]


def markdown(lines: Sequence[Line]) -> str:
    """The sheet, and a table for each machine class with a column per version."""
    text = [f"![The floors over releases](results/{NAME}.png)", "", f"([SVG](results/{NAME}.svg))", ""]
    floors = _measured(lines)
    for name, own in _classes(lines).items():
        text += [f"### {name}", ""]
        text += [f"- {one.version}: commit {one.commit}, {one.date}, probe {one.probe_ns:.0f} ns" for one in own]
        rows = [[floor.path, rule(floor, unit), *(_cell(one.of(floor)) for one in own)] for floor, unit in floors]
        text += ["", *table(["path", "floor today", *(one.version for one in own)], rows), ""]
    return "\n".join(text)


def draw(lines: Sequence[Line], target: Path) -> list[Path]:
    """A panel for each floor, as ``target``.png and .svg. Returns both paths."""
    from matplotlib.figure import Figure as Sheet
    from matplotlib.lines import Line2D

    floors, versions = _measured(lines), list(dict.fromkeys(line.version for line in lines))
    rows = max(1, -(-len(floors) // COLUMNS))
    sheet = Sheet(figsize=(3.5 * COLUMNS, 2.7 * rows + 0.6), layout="constrained")
    panels = sheet.subplots(rows, COLUMNS, squeeze=False).flat
    styles = dict(zip(_classes(lines), cycle(STYLES), strict=False))
    for (floor, unit), panel in zip(floors, panels, strict=False):
        panel.set_title("\n".join([*textwrap.wrap(floor.path, 36), rule(floor, unit)]), fontsize="medium")
        for name, own in _classes(lines).items():
            _curve(panel, [(versions.index(one.version), one.of(floor)) for one in own], styles[name])
        if floor.base is None or not floor.plus:  # else the floor is another one in each run
            panel.axhline(floor.factor if floor.base else floor.plus, color="0.7", lw=0.7)
        panel.set_xticks(range(len(versions)), versions)
        panel.set(xlim=(-0.5, len(versions) - 0.5), ylim=(0, 1.1 * panel.dataLim.y1))
        panel.yaxis.set_major_formatter(
            lambda value, _, unit=unit if floor.base is None else "×": quantity(value, unit)
        )
        panel.grid(color="0.9", axis="y")
    for panel in list(panels):  # of the last row, those without a floor
        panel.set_axis_off()
    marks = [Line2D([], [], color=c, marker=m, ls=ls, label=name) for name, (c, m, ls) in styles.items()]
    marks.append(Line2D([], [], color="black", marker="o", mfc="white", ls="", label="missed the floor of its day"))
    marks.append(Line2D([], [], color="0.7", lw=0.7, label="floor of today"))
    sheet.legend(handles=marks, loc="outside upper center", ncols=len(marks), frameon=False)
    return save(sheet, target)


def _curve(panel: Any, points: Sequence[tuple[int, Figure | None]], style: tuple[str, str, str]) -> None:
    """A mark for each version; a line joins two whose probes are close enough to be compared."""
    colour, marker, line = style
    found = [(x, one) for x, one in points if one]
    for (x0, before), (x1, after) in pairwise(found):
        if 1 / EQUAL_PROBE < after.probe_ns / before.probe_ns < EQUAL_PROBE:
            panel.plot([x0, x1], [_value(before), _value(after)], color=colour, ls=line)
    for x, one in found:
        panel.plot(x, _value(one), color=colour, marker=marker, mfc="white" if one.met is False else colour)


def _measured(lines: Sequence[Line]) -> list[tuple[Floor, str]]:
    """The floors of today that any line has a figure for, with its unit."""
    found = [(floor, next((one for line in lines if (one := line.of(floor))), None)) for floor in FLOORS]
    return [(floor, one.unit) for floor, one in found if one]


def _classes(lines: Sequence[Line]) -> dict[str, list[Line]]:
    return {name: [line for line in lines if line.machine == name] for name in sorted({line.machine for line in lines})}


def _value(figure: Figure) -> float:
    return figure.measured if figure.ratio is None else figure.ratio


def _cell(figure: Figure | None) -> str:
    if figure is None:
        return ABSENT
    measured = quantity(figure.measured, figure.unit)
    said = measured if figure.ratio is None else f"{figure.ratio:.2f} × ({measured})"
    return f"**{said}**" if figure.met is False else said
