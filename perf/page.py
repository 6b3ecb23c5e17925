"""The results part of perf/README.md: all machine classes whose results are committed, side by side.

It is made of the result files alone, so a run on one class leaves the columns of the others as they were.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from .floors import EQUAL_PROBE, FLOORS
from .machine import name_of
from .report import MARKS, Report, flight, quantity, rule, spread, tail

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from .floors import Floor, Verdict
    from .harness import Series

ABSENT = "–"
"""The cell of a class that has not measured this."""


def result_files(results: Path) -> list[Path]:
    """The newest whole run of each machine class, by the names that machine.slug gives."""
    return sorted(path for path in results.glob("*core.json") if not path.name.startswith("lab-"))


def markdown(results: Path, questions: Mapping[str, str]) -> str:
    """Floors, a table per script, and the machines. ``questions``: script -> its question, in this order.

    Raises ValueError for a result file that cannot be read.
    """
    files = result_files(results)
    reports = [Report.read(path) for path in files]
    if not reports:
        return "Nothing is measured yet: `make perf`."
    lines = ["### Floors", "", *map(_heading, reports, files), "", *_floors(reports, questions), ""]
    lines += [line for report in reports for line in _missed(report)]
    for script, question in questions.items():
        lines += ["", f"### {script}", "", question, "", *_script(reports, script)]
    return "\n".join([*lines, "", "### Machines", "", *_machines(reports), ""])


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a Markdown table."""
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]


def _heading(report: Report, path: Path) -> str:
    facts = report.machine
    return (
        f"- **{name_of(facts)}**: version {facts.get('version', ABSENT)}, commit {facts['commit']}, "
        f"{facts.get('date', ABSENT)}, probe {report.probe_ns:.0f} ns ([all figures](results/{path.name}))"
    )


def _floors(reports: Sequence[Report], questions: Mapping[str, str]) -> list[str]:
    judged = [{verdict.floor: verdict for verdict in report.verdicts} for report in reports]
    rows = []
    for floor in (floor for script in questions for floor in FLOORS if floor.script == script):
        found = [verdicts.get(floor) for verdicts in judged]
        if measured := [verdict for verdict in found if verdict]:
            rows.append([*_floor(floor, measured[0]), *(cell for verdict in found for cell in _verdict(verdict))])
    return table(["path", "floor", "beside it", *(c for one in reports for c in (_name(one), "ratio", "met"))], rows)


def _floor(floor: Floor, verdict: Verdict) -> list[str]:
    return [floor.path, rule(floor, verdict.unit), verdict.base.title if verdict.base else ""]


def _verdict(verdict: Verdict | None) -> list[str]:
    if verdict is None:
        return [ABSENT] * 3
    ratio = "" if verdict.ratio is None else f"{verdict.ratio:.2f}" + ("" if verdict.equal else ", unequal probes")
    return [quantity(verdict.series.median, verdict.unit), ratio, MARKS[verdict.met]]


def _missed(report: Report) -> list[str]:
    name = _name(report)
    return [f"- **MISSED** on {name}: {line}" for line in report.missed] or [f"- All floors hold on {name}."]


def _script(reports: Sequence[Report], script: str) -> list[str]:
    """A row for each case that any class has measured. Latencies and flight have columns where there are
    any."""
    sections = [{section.script: section for section in report.sections}.get(script) for report in reports]
    measured = [{one.case: one for one in section.series} if section else {} for section in sections]
    failed = [
        f"Not complete on {_name(report)}: {section.failed}"
        for report, section in zip(reports, sections, strict=True)
        if section and section.failed
    ]
    first = {case: one for cases in reversed(measured) for case, one in cases.items()}
    order = list(dict.fromkeys(case for cases in measured for case in cases))
    columns: dict[str, list[str]] = {"what": [first[case].title for case in order]}
    for report, cases in zip(reports, measured, strict=True):
        columns[_name(report)] = [_spread(cases.get(case), report.probe_ns) for case in order]
    if any(one.latencies for cases in measured for one in cases.values()):
        for report, cases in zip(reports, measured, strict=True):
            found = [tail(cases[case]) if case in cases else ABSENT for case in order]
            columns[f"{_name(report)}: p50 / p99 / p99.9 / max"] = found
    if any(flight(one) for one in first.values()):
        columns["flight"] = [flight(first[case]) for case in order]
    rows = list(zip(*columns.values(), strict=True))
    return [
        *(line for why in failed for line in (why, "")),
        *(table(list(columns), rows) if rows else ["Not measured."]),
    ]


def _spread(series: Series | None, usual_ns: float) -> str:
    """With the probe, where it is another one than is usual in that run."""
    if series is None:
        return ABSENT
    usual = 1 / EQUAL_PROBE < series.probe_ns / usual_ns < EQUAL_PROBE
    return spread(series) + ("" if usual else f" (probe {series.probe_ns:.0f} ns)")


def _machines(reports: Sequence[Report]) -> list[str]:
    names = dict.fromkeys(name for report in reports for name in report.machine)
    rows = [[name, *(_fact(report, name) for report in reports)] for name in names]
    return table(["fact", *map(_name, reports)], rows)


def _fact(report: Report, name: str) -> str:
    return json.dumps(report.machine[name], ensure_ascii=False) if name in report.machine else ABSENT


def _name(report: Report) -> str:
    return name_of(report.machine)
