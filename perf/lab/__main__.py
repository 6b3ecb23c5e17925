"""``python -m perf.lab``: all products in turns, in a quarter of an hour; ``--quick``: fewer cases, in less
than two."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..cli import HERE, RESULTS
from ..harness import BUILD, ROOT, Bench
from ..machine import machine, slug
from ..peers import domain
from ..report import insert_into
from .first_screen import first_screen
from .peers.aeron import Aeron
from .tables import markdown, read, write
from .workloads import FULL, QUICK, all_rows

if TYPE_CHECKING:
    from .turns import Row

PAGE = HERE / "LAB.md"


def main() -> int:
    """Measure; write perf/results/lab-<machine>.json, and from all such files perf/LAB.md and README's
    rows. ``--quick`` writes under build/perf only. ``--again`` measures nothing: it writes all of it anew
    from the files, as ``compared`` compares now.

    Returns 1 if a product failed (a missing one has not).
    """
    parser = argparse.ArgumentParser(prog="python -m perf.lab", description="Measure; see perf/LAB.md.")
    parser.add_argument("--quick", action="store_true", help="fewer sizes and runs: a look, not a measurement")
    parser.add_argument(
        "--again", action="store_true", help="measure nothing; write the pages from the committed results"
    )
    parser.add_argument("--runs", type=int, help="runs that count, after one of warm-up (default: 5; --quick: 2)")
    parser.add_argument("--disk", type=Path, help="a directory on the disk to be measured (default: under build/)")
    parser.add_argument("--name", default=slug(), help="of the result file, after lab- (default: the machine's)")
    parser.add_argument("--aeron", type=Path, metavar="DIR", help="a build of Aeron with its C samples")
    options = parser.parse_args()
    path = (BUILD if options.quick else RESULTS) / f"lab-{options.name}.json"
    rows, facts = read(path) if options.again else _measured(options)
    text = markdown(rows, facts)
    write(path, rows, facts)
    if not options.quick:
        write_pages()
    print(text)
    print("written:", path)
    failed = any(str(cell).startswith("failed") for row in rows for cell in row.cells.values())
    return int(failed and not options.again)


def write_pages() -> None:
    """LAB.md's tables and README's rows, of every machine class whose results are there."""
    found = [read(path) for path in sorted(RESULTS.glob("lab-*.json"))]
    insert_into(PAGE, "\n".join(markdown(rows, facts) for rows, facts in found))
    insert_into(ROOT / "README.md", first_screen([rows for rows, _ in found]), "speed")


def _measured(options: argparse.Namespace) -> tuple[list[Row], dict[str, object]]:
    Aeron.build = options.aeron
    plan = QUICK if options.quick else FULL
    plan = replace(plan, runs=options.runs or plan.runs)
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # what was made is removed on the way out
    with Bench(plan.runs, options.disk) as bench, domain(bench), bench.pinned_to(0):
        facts = machine(bench.cores, bench.disk)
        rows = []
        for row in all_rows(bench, plan):
            print(f"{row.table}: {row.case}", file=sys.stderr)
            rows.append(row)
    facts["load_after"] = os.getloadavg()
    return rows, facts


if __name__ == "__main__":
    sys.exit(main())
