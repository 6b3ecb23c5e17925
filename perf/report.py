"""What was measured, as JSON and Markdown: every figure with its range and probe, every floor beside its figure."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .floors import judge
from .histogram import quantiles

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from .floors import Verdict
    from .harness import Series

BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"
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

    machine: dict[str, object]
    sections: list[Section] = field(default_factory=list)

    @property
    def verdicts(self) -> list[Verdict]:
        """Of all sections."""
        return [verdict for section in self.sections for verdict in section.verdicts]

    @property
    def missed(self) -> list[str]:
        """One line for each floor that does not hold."""
        return [_missed(verdict) for verdict in self.verdicts if verdict.met is False]

    def markdown(self) -> str:
        """The table of floors, what was missed, then every section."""
        missed = [f"- **MISSED**: {line}" for line in self.missed] or ["All floors hold."]
        floors = ["### Floors", "", _floor_table(self.verdicts), "", *missed]
        facts = [f"- {name}: {json.dumps(value, ensure_ascii=False)}" for name, value in self.machine.items()]
        sections = [part for section in self.sections for part in ("", section.markdown())]
        return "\n".join([*floors, *sections, "", "### Machine", "", *facts, ""])

    def write(self, folder: Path, name: str) -> Path:
        """Everything as ``name``.json in ``folder``; returns the path."""
        folder.mkdir(parents=True, exist_ok=True)
        document = {
            "machine": self.machine,
            "floors": [verdict.as_json() for verdict in self.verdicts],
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


def insert_into(page: Path, text: str) -> None:
    """Replace what stands between the two markers of a Markdown page. Raises ValueError if they are not there."""
    head, begin, rest = page.read_text().partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{page} has no {BEGIN} ... {END}")
    page.write_text(f"{head}{BEGIN}\n{text.strip()}\n{END}{tail}")


def quantity(value: float, unit: str) -> str:
    """A figure with three digits and a unit that fits it."""
    steps = STEPS.get(unit, ((1.0, unit),))
    factor, name = next((step for step in steps if abs(value) >= step[0]), steps[-1])
    return f"{value / factor:.3g} {name}"


def _row(series: Series) -> str:
    unit, flight = series.samples[0].unit, series.samples[0].flight
    middle, low, high = (quantity(value, unit) for value in (series.median, min(series.values), max(series.values)))
    spread = f"{middle} [{low} .. {high}]"
    places = quantiles(series.latencies)
    tail = " / ".join(quantity(places[name], "ns") for name in ("p50", "p99", "p99.9", "max")) if places else ""
    bytes_under_way = quantity(flight, "B") if flight else ""
    return f"| {series.title} | {spread} | {tail} | {bytes_under_way} | {series.probe_ns:.0f} ns |"


def _floor_table(verdicts: Sequence[Verdict]) -> str:
    lines = [
        "| path | measured | beside it | ratio | floor | met | probe | pairs |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for verdict in verdicts:
        unit = verdict.series.samples[0].unit
        base = f"{verdict.base.title}: {quantity(verdict.base.median, unit)}" if verdict.base else ""
        ratio = f"{verdict.ratio:.2f}" if verdict.ratio is not None else ""
        pairs = f"{verdict.pairs}" if verdict.equal else f"{verdict.pairs}, unequal probes"
        lines.append(
            f"| {verdict.floor.path} | {quantity(verdict.series.median, unit)} | {base} | {ratio} | {_rule(verdict)} "
            f"| {MARKS[verdict.met]} | {verdict.series.probe_ns:.0f} ns | {pairs} |"
        )
    return "\n".join(lines)


def _missed(verdict: Verdict) -> str:
    measured = quantity(verdict.series.median, verdict.series.samples[0].unit)
    return f"{verdict.floor.path}: {measured}, the floor is {_rule(verdict)}"


def _rule(verdict: Verdict) -> str:
    """The floor in words: `≤ 1.3 × + 30 ns (= 210 ns)`."""
    floor, unit = verdict.floor, verdict.series.samples[0].unit
    limit = quantity(verdict.limit, unit)
    if floor.base is None:
        where = f" where the probe is ≤ {floor.probe_max_ns:.0f} ns" if floor.probe_max_ns else ""
        return f"{floor.side.value} {limit}{where}"
    plus = f" + {quantity(floor.plus, unit)}" if floor.plus else ""
    return f"{floor.side.value} {floor.factor:g} ×{plus} (= {limit})"
