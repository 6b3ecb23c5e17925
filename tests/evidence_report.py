"""Writes EVIDENCE.md from what the harnesses wrote down, and judges it: ``python -m evidence_report DIRECTORY
EVIDENCE.md``.

Each row of the report is a harness of the plan (evidence_plan.py). It is good when it did at least what a
release owes, found nothing, and caught every bug that was planted in it. A harness that left no record is a
row, too: it was not run. One that is not possible on this machine says why: that is nobody's fault, and shows
nothing. What the nights of this release found (night.py) counts as well. The whole must be done within
WALL_MINUTES by the clock, from when DIRECTORY/begun was written, in seconds since 1970 (`date +%s`).
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from evidence import Evidence
from evidence_plan import HARNESSES, Harness
from night import ledger, of_release, release, summary, trouble

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from night import Entry

__all__ = ["ROWS", "Verdict", "by_night", "by_the_clock", "judge", "main", "records", "report"]

WALL_MINUTES = 60
ROWS = tuple(harness for harness in HARNESSES if harness.commands)
"""What a release owes."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A row with all that was recorded for it. ``wrong``: why it is not good; ``skipped``: why it did not
    run; neither: good."""

    row: Harness
    counts: Mapping[str, int]
    findings: int
    planted: tuple[int, int]
    seconds: float
    seeds: tuple[int, ...]
    wrong: str
    skipped: str = ""


def records(directory: Path) -> list[Evidence]:
    """All that was written down, a file for each run. Raises msgspec.ValidationError."""
    return [msgspec.json.decode(path.read_bytes(), type=Evidence) for path in sorted(directory.glob("*.json"))]


def judge(rows: Iterable[Harness], found: Iterable[Evidence]) -> list[Verdict]:
    """A verdict for each row; what has no row is one that no row asks for, and is shown as well."""
    runs: dict[str, list[Evidence]] = {}
    for run in found:
        runs.setdefault(run.name, []).append(run)
    known = list(rows)
    known += [Harness(name, "") for name in sorted(set(runs) - {row.name for row in known})]
    return [_judged(row, runs.get(row.name, [])) for row in known]


def _judged(row: Harness, runs: list[Evidence]) -> Verdict:
    counts: dict[str, int] = {}
    for run in runs:
        for what, number in run.counts.items():
            counts[what] = counts.get(what, 0) + number
    findings = sum(run.findings for run in runs)
    skipped = "; ".join(run.skipped for run in runs) if all(run.skipped for run in runs) else ""
    planted = sum(run.planted[0] for run in runs), sum(run.planted[1] for run in runs)
    wrong = []
    if not runs:
        wrong.append("not run")
    elif not skipped:
        wrong += [
            f"{counts.get(what, 0):,} of {number:,} {what}"
            for what, number in row.least.items()
            if counts.get(what, 0) < number
        ]
        if planted[1] < row.planted:
            wrong.append(f"{planted[1]} of {row.planted} bugs planted")
    if findings:
        wrong.append(f"{findings} findings")
    if planted[0] < planted[1]:
        wrong.append(f"{planted[1] - planted[0]} planted bugs not caught")
    seeds = tuple(run.seed for run in runs if run.seed is not None)
    return Verdict(row, counts, findings, planted, sum(run.seconds for run in runs), seeds, "; ".join(wrong), skipped)


def by_the_clock(begun: Path, now: float) -> Verdict:
    """What the whole took, with all that was built for it: a row, too."""
    row = Harness(
        "by the clock", f"all of it, from the first line of make evidence to this one: at most {WALL_MINUTES} minutes"
    )
    if not begun.exists():
        return Verdict(row, {}, 0, (0, 0), 0.0, (), f"when it began is not written in {begun}")
    seconds = now - int(begun.read_text())
    wrong = "" if seconds <= 60 * WALL_MINUTES else f"{seconds / 60:.1f} of {WALL_MINUTES} minutes"
    return Verdict(row, {}, 0, (0, 0), seconds, (), wrong)


def by_night(entries: Iterable[Entry], of: str) -> Verdict:
    """What the nights of the release ``of`` found: a row, too. A line stays until what it found is mended
    (tests/README.md)."""
    ours = of_release(entries, of)
    row = Harness("nights", "what nights have done for this release: the table below")
    counts = {"slices": len(ours)} if ours else {}
    planted = sum(each.run.planted[0] for each in ours), sum(each.run.planted[1] for each in ours)
    found = sum(each.run.findings for each in ours)
    wrong = "; ".join(f"{each.part} at {each.commit}: {trouble(each.run)}" for each in ours if trouble(each.run))
    return Verdict(row, counts, found, planted, sum(each.run.seconds for each in ours), (), wrong)


def report(verdicts: list[Verdict], machine: Mapping[str, str]) -> str:
    """EVIDENCE.md."""
    bad = [verdict for verdict in verdicts if verdict.wrong]
    skipped = [verdict for verdict in verdicts if verdict.skipped and not verdict.wrong]
    lines = [
        "# Evidence",
        "",
        "How do you know that it does not lose my data? By what the harnesses below did to it and what they found.",
        "`make evidence` runs them and writes this file; nothing in it is typed by hand. A row is good when it did at least what",
        "tests/evidence_plan.py asks for, found nothing, and caught every bug that was planted.",
        "",
        *(f"- {what}: {value}" for what, value in machine.items()),
        f"- result: {'**' + str(len(bad)) + ' rows are not good**' if bad else 'all rows are good'}"
        + (f"; {len(skipped)} could not run on this machine" if skipped else ""),
        "",
        "| harness | what it does | done | found | planted bugs caught | time | seeds | good |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for verdict in verdicts:
        done = ", ".join(f"{number:,} {what}" for what, number in verdict.counts.items()) or "–"
        planted = f"{verdict.planted[0]} of {verdict.planted[1]}" if verdict.planted[1] else "–"
        what = verdict.row.what or "–"
        good = (
            f"**NO**: {verdict.wrong}" if verdict.wrong else f"skipped: {verdict.skipped}" if verdict.skipped else "yes"
        )
        seeds = ", ".join(map(str, verdict.seeds[:3])) + (" …" if len(verdict.seeds) > 3 else "") or "–"
        lines.append(
            f"| {verdict.row.name} | {what} | {done} | {verdict.findings} | {planted} |"
            f" {verdict.seconds:,.0f} s | {seeds} | {good} |"
        )
    return "\n".join(lines) + "\n"


def _machine(seconds: float, clock: float) -> dict[str, str]:
    """Commit, processor, kernel, time."""
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], stdout=subprocess.PIPE, text=True, check=False)
    names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    processor = names[0].partition(": ")[2] if names else platform.machine()
    return {
        "commit": commit.stdout.strip() or "unknown",
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": f"{processor}, {os.cpu_count()} cores, Linux {platform.release()}",
        "time of all harnesses": f"{seconds / 60:.1f} minutes one after another; by the clock, with building: {clock / 60:.1f}",
    }


def main() -> int:
    """Exit code 1: something is not good."""
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    directory = Path(sys.argv[1])
    verdicts, clock = judge(ROWS, records(directory)), by_the_clock(directory / "begun", time.time())
    machine = _machine(sum(verdict.seconds for verdict in verdicts), clock.seconds)
    nights, of = ledger(), release()
    verdicts += [by_night(nights, of), clock]
    text = report(verdicts, machine) + summary(nights, of)
    Path(sys.argv[2]).write_text(text)
    for verdict in verdicts:
        if verdict.wrong:
            print(f"evidence: {verdict.row.name}: {verdict.wrong}", file=sys.stderr)
    return int(any(verdict.wrong for verdict in verdicts))


if __name__ == "__main__":
    sys.exit(main())
