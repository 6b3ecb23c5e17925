"""The command line of each script and of all together."""

from __future__ import annotations

import argparse
import os
import signal
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
    from typing import NoReturn

    from .harness import Series

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
README = HERE / "README.md"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m perf", description="Measure; see perf/README.md.")
    parser.add_argument("--no-gate", action="store_true", help="exit with 0 although a floor is missed")
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
        """What was measured; a failure ends this script, is told in its section, and leaves the others their
        turn."""
        series: list[Series] = []
        failed = ""
        try:
            series.extend(self.measure(bench))
        except Exception as error:
            traceback.print_exc()
            failed = f"{type(error).__name__}: {error}"
        return Section(self.name, self.question, tuple(series), failed)


def _report(scripts: Sequence[Script], runs: int, disk: Path | None) -> Report:
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # what was made is removed on the way out
    with Bench(runs, disk) as bench:
        report = Report(machine(bench.cores, bench.disk))
        for script in scripts:
            report.sections.append(script.section(bench))
        report.machine["load_after"] = os.getloadavg()
    return report


def run_one(script: Script) -> None:
    """One question: prints its tables. Exits with 1 if a floor is missed, unless ``--no-gate`` is given."""
    options = _parser().parse_args()
    report = _report([script], options.runs, options.disk)
    print(report.markdown())
    sys.exit(verdict(report, gate=not options.no_gate))


def _run(
    scripts: Sequence[Script], options: argparse.Namespace, folder: Path, pages: Callable[[Report], Sequence[Path]]
) -> NoReturn:
    """Measures; writes the result file, then ``pages``; prints the tables, and what was written. Exits as
    run_one."""
    report = _report(scripts, options.runs, options.disk)
    written = [report.write(folder, options.name), *pages(report)]
    print(report.markdown())
    print("written:", *written)
    sys.exit(verdict(report, gate=not options.no_gate))


def _named_parser(name: str) -> argparse.ArgumentParser:
    parser = _parser()
    parser.add_argument("--name", default=name, help="of the result file (default: the machine's)")
    return parser


def run_all(scripts: Sequence[Script], pages: Callable[[], Sequence[Path]]) -> NoReturn:
    """All questions: writes perf/results/<machine>.json, then what shows all machine classes. Exits as
    run_one.

    ``pages``: writes that from the result files; ``--again`` does nothing else.
    """
    parser = _named_parser(slug())
    parser.add_argument(
        "--again", action="store_true", help="measure nothing; write the pages from the committed results"
    )
    options = parser.parse_args()
    if options.again:
        print("written:", *pages())
        sys.exit(0)
    _run(scripts, options, RESULTS, lambda _: pages())


def run_written(scripts: Sequence[Script], folder: Path, name: str, page: Path | None = None) -> NoReturn:
    """Prints the tables, writes ``folder``/``name``.json and, where a page is given, its results. Exits as
    run_one.

    ``name``: of the result file, unless ``--name`` gives another.
    """

    def pages(report: Report) -> list[Path]:
        if page is None:
            return []
        insert_into(page, report.markdown())
        return [page]

    _run(scripts, _named_parser(name).parse_args(), folder, pages)


def verdict(report: Report, *, gate: bool) -> int:
    """The exit status: 1 if a section is not complete or, with ``gate``, a floor is missed. Says which on
    standard error."""
    failed = [f"{section.script}: {section.failed}" for section in report.sections if section.failed]
    for line in (*(f"FLOOR MISSED: {line}" for line in report.missed), *(f"not complete: {why}" for why in failed)):
        print(line, file=sys.stderr)
    return 1 if failed or (gate and report.missed) else 0
