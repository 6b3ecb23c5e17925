"""The command line of each script and of all together."""

from __future__ import annotations

import argparse
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .harness import Bench
from .machine import machine, slug
from .report import Report, Section, insert_into

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from .harness import Series

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
README = HERE / "README.md"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m perf", description="Measure; see perf/README.md.")
    parser.add_argument("--runs", type=int, default=5, help="runs that count, after one of warm-up (default: 5)")
    parser.add_argument("--disk", type=Path, help="a directory on the disk to be measured (default: under build/)")
    return parser


@dataclass(frozen=True, slots=True)
class Script:
    """One question and the function that answers it, series by series."""

    name: str
    question: str
    measure: Callable[[Bench], Iterator[Series]]

    def section(self, bench: Bench) -> Section:
        """What was measured; a failure ends this script, is told in its section, and leaves the others their turn."""
        series: list[Series] = []
        failed = ""
        try:
            series.extend(self.measure(bench))
        except Exception as error:
            traceback.print_exc()
            failed = f"{type(error).__name__}: {error}"
        return Section(self.name, self.question, tuple(series), failed)


def _report(scripts: Sequence[Script], runs: int, disk: Path | None) -> Report:
    with Bench(runs, disk) as bench:
        report = Report(machine(bench.cores, bench.disk))
        for script in scripts:
            report.sections.append(script.section(bench))
    return report


def run_one(script: Script) -> None:
    """One question: prints its table and its floors. Exits with 1 if a floor is missed."""
    options = _parser().parse_args()
    report = _report([script], options.runs, options.disk)
    print(report.markdown())
    sys.exit(_missed(report))


def run_all(scripts: Sequence[Script]) -> None:
    """All questions: writes perf/results/<machine>.json and .md, prints the tables. Exits with 1 on a missed floor."""
    parser = _parser()
    parser.add_argument("--name", default=slug(), help="of the two result files (default: the machine's)")
    parser.add_argument("--readme", action="store_true", help="also put the tables into perf/README.md")
    options = parser.parse_args()
    report = _report(scripts, options.runs, options.disk)
    paths = report.write(RESULTS, options.name)
    if options.readme:
        insert_into(README, report.markdown())
    print(report.markdown())
    print("written:", *paths)
    sys.exit(_missed(report))


def _missed(report: Report) -> int:
    """1 if a floor is missed or a section is not complete."""
    unmet = [verdict.floor.path for verdict in report.verdicts if verdict.met is False]
    failed = [f"{section.script}: {section.failed}" for section in report.sections if section.failed]
    for line in (*(f"floor missed: {path}" for path in unmet), *(f"not complete: {why}" for why in failed)):
        print(line, file=sys.stderr)
    return 1 if unmet or failed else 0
