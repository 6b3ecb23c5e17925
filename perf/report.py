"""What was measured, as JSON and Markdown: every figure with its range and probe, every floor beside its
figure."""

from __future__ import annotations

import json
import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from . import curves
from .floors import judge
from .harness import Series
from .histogram import quantiles

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from .curves import Slope
    from .floors import Floor, Verdict

STEPS = {
    "ns": ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns")),
    "msg/s": ((1e6, "M msg/s"), (1e3, "k msg/s"), (1.0, "msg/s")),
    "B": ((2**20, "MiB"), (2**10, "KiB"), (1.0, "B")),
}
MARKS = {True: "yes", False: "**NO**", None: "not stated here"}


@dataclass(frozen=True, slots=True)
class Section:
    """One script's outcome. ``failed``: why it has no or fewer figures."""

    script: str
    question: str
    series: tuple[Series, ...]
    failed: str = ""

    @property
    def verdicts(self) -> list[Verdict]:
        """Its floors."""
        return judge(self.script, {series.case: series for series in self.series if series.samples})

    @property
    def slopes(self) -> list[Slope]:
        """Its curves."""
        return curves.judge({series.case: series for series in self.series if series.samples})

    def markdown(self) -> str:
        """A heading, the question and a table of its figures."""
        lines = [f"### {self.script}", "", self.question, ""]
        if self.failed:
            lines += [f"Not complete: {self.failed}", ""]
        lines += ["| what | median [min .. max] | p50 / p99 / p99.9 / max | flight | probe |", "|---|---|---|---|---|"]
        return "\n".join([*lines, *(_row(series) for series in self.series if series.samples)])


@dataclass(slots=True)
class Report:
    """All sections of one call, and the machine that they were measured on."""

    machine: dict[str, Any]
    sections: list[Section] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path) -> Self:
        """What ``write`` wrote, without the questions. Raises ValueError for another file."""
        try:
            document = json.loads(path.read_text())
            sections = [
                Section(script, "", tuple(map(Series.from_json, found["series"])), found["failed"])
                for script, found in document["sections"].items()
            ]
            return cls(document["machine"], sections)
        except (IndexError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path} is not a result file of perf ({error!r}): measure anew") from None

    @property
    def verdicts(self) -> list[Verdict]:
        """Of all sections."""
        return [verdict for section in self.sections for verdict in section.verdicts]

    @property
    def probe_ns(self) -> float:
        """Median of the probes of all runs; 0 where nothing was measured."""
        found = [one.probe_ns for section in self.sections for series in section.series for one in series.samples]
        return statistics.median(found) if found else 0.0

    @property
    def slopes(self) -> list[Slope]:
        """Of all sections."""
        return [slope for section in self.sections for slope in section.slopes]

    @property
    def missed(self) -> list[str]:
        """One line for each floor that does not hold, and for each curve that is too steep."""
        floors = [_missed(verdict) for verdict in self.verdicts if verdict.met is False]
        return floors + [_too_steep(slope) for slope in self.slopes if not slope.met]

    def markdown(self) -> str:
        """The table of floors, what was missed, then every section."""
        missed = [f"- **MISSED**: {line}" for line in self.missed] or ["All floors hold."]
        tables = [_floor_table(self.verdicts)] if self.verdicts else []
        tables += [curve_table(self.slopes)] if self.slopes else []
        floors = ["### Floors", "", *(line for table in tables for line in (table, "")), *missed]
        facts = [f"- {name}: {json.dumps(value, ensure_ascii=False)}" for name, value in self.machine.items()]
        sections = [part for section in self.sections for part in ("", section.markdown())]
        return "\n".join([*floors, *sections, "", "### Machine", "", *facts, ""])

    def write(self, folder: Path, name: str) -> Path:
        """Everything as ``name``.json in ``folder``; returns the path."""
        folder.mkdir(parents=True, exist_ok=True)
        document = {
            "machine": self.machine,
            "floors": [verdict.as_json() for verdict in self.verdicts],
            "curves": [slope.as_json() for slope in self.slopes],
            "sections": {
                section.script: {
                    "failed": section.failed,
                    "series": [one.as_json() for one in section.series if one.samples],
                }
                for section in self.sections
            },
        }
        path = folder / f"{name}.json"
        path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
        return path


def load(path: Path) -> tuple[dict[str, Any], dict[str, dict[str, Series]]]:
    """What ``write`` wrote: the machine's facts, and script -> case -> runs. Raises ValueError for another
    file."""
    report = Report.read(path)
    return report.machine, {section.script: {one.case: one for one in section.series} for section in report.sections}


def insert_into(page: Path, text: str, part: str = "results") -> None:
    """Replace what stands between the two markers of a part of a page. Raises ValueError if they are not
    there."""
    first, last = f"<!-- {part}: begin -->", f"<!-- {part}: end -->"
    head, begin, rest = page.read_text().partition(first)
    _, end, tail = rest.partition(last)
    if not begin or not end:
        raise ValueError(f"{page} has no {first} ... {last}")
    page.write_text(f"{head}{first}\n{text.strip()}\n{last}{tail}")


def quantity(value: float, unit: str) -> str:
    """A figure with three digits and a unit that fits it."""
    steps = STEPS.get(unit, ((1.0, unit),))
    factor, name = next((step for step in steps if abs(value) >= step[0]), steps[-1])
    return f"{value / factor:.3g} {name}"


def spread(series: Series) -> str:
    """`median [min .. max]`."""
    unit = series.samples[0].unit
    middle, low, high = (quantity(value, unit) for value in (series.median, min(series.values), max(series.values)))
    return f"{middle} [{low} .. {high}]"


def tail(series: Series) -> str:
    """`p50 / p99 / p99.9 / max`; nothing without latencies."""
    places = quantiles(series.latencies)
    return " / ".join(quantity(places[name], "ns") for name in ("p50", "p99", "p99.9", "max")) if places else ""


def flight(series: Series) -> str:
    """How many bytes may be under way; nothing where that is not limited."""
    found = series.samples[0].flight
    return quantity(found, "B") if found else ""


def _row(series: Series) -> str:
    return f"| {series.title} | {spread(series)} | {tail(series)} | {flight(series)} | {series.probe_ns:.0f} ns |"


def _floor_table(verdicts: Sequence[Verdict]) -> str:
    lines = [
        "| path | measured | beside it | ratio | floor | met | probe | pairs |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for verdict in verdicts:
        unit = verdict.unit
        base = f"{verdict.base.title}: {quantity(verdict.base.median, unit)}" if verdict.base else ""
        ratio = f"{verdict.ratio:.2f}" if verdict.ratio is not None else ""
        pairs = f"{verdict.pairs}" if verdict.equal else f"{verdict.pairs}, unequal probes"
        lines.append(
            f"| {verdict.floor.path} | {quantity(verdict.series.median, unit)} | {base} | {ratio} | {_rule(verdict)} "
            f"| {MARKS[verdict.met]} | {verdict.series.probe_ns:.0f} ns | {pairs} |"
        )
    return "\n".join(lines)


def curve_table(slopes: Sequence[Slope]) -> str:
    """A row per curve: its cost at both ends, its exponent with the range of the runs, and what it may be."""
    lines = [
        "| as these grow | cost | from .. to | cost there | exponent [min .. max] | limit | met | not measured |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for slope in slopes:
        x = [_x(slope, value) for value in slope.measured]
        ends = " .. ".join(quantity(cost, "ns") for cost in slope.cost)
        spread = f"{slope.exponent:.2f} [{min(slope.exponents):.2f} .. {max(slope.exponents):.2f}]"
        start = slope.curve.judged_from
        limit = f"≤ {slope.curve.limit:g}" + (f", from {_x(slope, start)} on" if start else "")
        missing = ", ".join(_x(slope, value) for value in slope.missing)
        lines.append(
            f"| {slope.figure.title} | {slope.curve.title} | {x[0]} .. {x[-1]} | {ends} | {spread} | {limit} "
            f"| {MARKS[slope.met]} | {missing} |"
        )
    return "\n".join(lines)


def _x(slope: Slope, value: int) -> str:
    return quantity(value, "B") if slope.figure.in_bytes else f"{value}"


def _too_steep(slope: Slope) -> str:
    what = f"{slope.figure.title}, {slope.curve.title}"
    return f"{what}: ten times as many cost {10**slope.exponent:.2f} times as much, the limit is {10**slope.curve.limit:.2f}"


def _missed(verdict: Verdict) -> str:
    measured = quantity(verdict.series.median, verdict.unit)
    return f"{verdict.floor.path}: {measured}, the floor is {_rule(verdict)}"


def _rule(verdict: Verdict) -> str:
    """The floor in words: `≤ 1.3 × + 30 ns (= 210 ns)`."""
    unit = verdict.unit
    limit = "" if verdict.floor.base is None else f" (= {quantity(verdict.limit, unit)})"
    return f"{rule(verdict.floor, unit)}{limit}"


def rule(floor: Floor, unit: str) -> str:
    """The floor in words, whatever was measured: `≤ 1.3 × + 30 ns`."""
    if floor.base is None:
        where = f" where the probe is ≤ {floor.probe_max_ns:.0f} ns" if floor.probe_max_ns else ""
        return f"{floor.side.value} {quantity(floor.plus, unit)}{where}"
    plus = f" + {quantity(floor.plus, unit)}" if floor.plus else ""
    return f"{floor.side.value} {floor.factor:g} ×{plus}"
