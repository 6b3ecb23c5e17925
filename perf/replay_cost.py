"""Does a replay cost more than it did in 0.1.0? Both versions in one run, in turns.

C:       segments -> verified copies of 256 KiB -> entries; both versions' csrc under the same program
Python:  a receiver that comes late, to a source that is closed: segments -> receive_batch -> Numba, to the
         last message; a process per version, each with a store and a log of its own (0.1.0 refuses the heads
         of this version)

A ratio is of two neighbours in time, this version's rate over 0.1.0's; what counts is the median of all runs.
Below FLOOR the exit status is 1. Beside it stands the same ratio by the CPU time of the thread that reads:
other work on the machine moves that one less. Not part of `make perf`: it builds 0.1.0, and wants its history
(else 77).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from .harness import BUILD, COMPILE, ROOT, Bench, compiler
from .released import OLD, NoHistoryError, released

if TYPE_CHECKING:
    from collections.abc import Callable

FLOOR = 0.97
RUNS_MIN = 7
C_CASES = ["replay:disk:128", "replay:memory:128", "replay:disk:1024"]
PY_KINDS = ["disk", "memory"]
SKIPPED = 77
INCLUDED = re.compile(r'#include "(\w+/\w+\.h)"')
MOVED = {"board/bell.h": "board.h"}
"""What has another name in 0.1.0."""
Rate = tuple[float, float]
"""Messages per second: by the clock, and by CPU time."""
Rates = dict[str, list[tuple[Rate, Rate]]]
"""By case: 0.1.0's and this version's, run by run."""


class Replayer:
    """A process of one version with a filled store (perf/replayer.py); ``site``: the path of 0.1.0, or
    None."""

    def __init__(self, bench: Bench, site: Path | None, kind: str) -> None:
        version = "this" if site is None else "old"
        place = (bench.memory if kind == "memory" else bench.disk) / f"replay-{version}"
        home = bench.memory / f"domains-{version}-{kind}"
        home.mkdir(mode=0o700)
        given = {**os.environ, "HOLDFAST_DIR": str(home)}
        if site is not None:
            given["PYTHONPATH"] = os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])
        with bench.pinned_to(0):
            self._process = subprocess.Popen(
                [sys.executable, "-m", "perf.replayer", str(place), kind], cwd=ROOT, env=given, text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            )  # fmt: skip
        self._ask_for(site)

    def _ask_for(self, site: Path | None) -> None:
        """Raises RuntimeError when it runs another version than it is to."""
        where = self._line()
        if where.startswith(str(OLD)) != (site is not None):
            raise RuntimeError(f"the wrong version is measured: {where}")

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the process that replays has ended")
        return line.strip()

    def replay(self) -> Rate:
        """Of one receiver that reads everything."""
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        elapsed, spent = map(float, self._line().split())
        return elapsed, spent

    def __enter__(self) -> Replayer:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()


def _programs(bench: Bench) -> tuple[Path, Path]:
    """The measuring program over 0.1.0's csrc, and over this version's."""
    old, folders = BUILD / "bench-v0.1.0", (ROOT / "perf" / "c", OLD / "csrc")
    BUILD.mkdir(parents=True, exist_ok=True)
    sources = [str(path) for folder in folders for path in sorted(folder.glob("*.c"))]
    include = [f"-I{folder}" for folder in (*folders, _forwarding(folders[0]))]
    subprocess.run([compiler(), *COMPILE, *include, *sources, "-pthread", "-o", str(old)], check=True)
    return old, bench.program


def _forwarding(program: Path) -> Path:
    """Headers under the paths by which the program includes them, each leading to that of 0.1.0, whose csrc
    was one folder."""
    place = BUILD / "include-v0.1.0"
    wanted = {name for path in program.glob("*.[ch]") for name in INCLUDED.findall(path.read_text())}
    for name in wanted:
        header = OLD / "csrc" / MOVED.get(name, Path(name).name)
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(f'#include "{header}"\n')
    return place


def _once(bench: Bench, program: Path, case: str) -> Rate:
    command = [str(program), "--probes", "no", *bench.command(1, f"{case}:time", f"{case}:cpu")[1:]]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=120).stdout
    elapsed, spent = (float(json.loads(line)["value"]) for line in printed.splitlines())
    return elapsed, spent


def _turns(bench: Bench, old: Callable[[], Rate], new: Callable[[], Rate]) -> list[tuple[Rate, Rate]]:
    """One of each to warm up, then in turns; who is first changes, so that neither always follows the
    other."""
    old(), new()
    found = []
    for run in range(bench.runs):
        first = old() if run % 2 == 0 else new()
        second = new() if run % 2 == 0 else old()
        found.append((first, second) if run % 2 == 0 else (second, first))
    return found


def measure(bench: Bench) -> Rates:
    """Everything. Raises NoHistoryError."""
    site = released()
    programs = _programs(bench)
    rates: Rates = {}
    for case in C_CASES:
        old, new = ((lambda program=program, case=case: _once(bench, program, case)) for program in programs)
        rates[f"C {case}"] = _turns(bench, old, new)
    for kind in PY_KINDS:
        with ExitStack() as stack:
            before, now = (stack.enter_context(Replayer(bench, version, kind)) for version in (site, None))
            rates[f"Python late receiver, {kind}"] = _turns(bench, before.replay, now.replay)
    return rates


def report(rates: Rates) -> tuple[list[str], bool]:
    """The table, and whether the floor is met everywhere."""
    lines = [
        "| replay | 0.1.0 | this version | ratio [min .. max] | by CPU time | floor | met |",
        "|---|---|---|---|---|---|---|",
    ]
    met = True
    for case, pairs in rates.items():
        old, new = (statistics.median(rate for rate, _ in side) for side in zip(*pairs, strict=True))
        ratios, spent = ([now[i] / before[i] for before, now in pairs] for i in (0, 1))
        ratio = statistics.median(ratios)
        met &= ratio >= FLOOR
        lines.append(
            f"| {case} | {old / 1e6:.3g} M msg/s | {new / 1e6:.3g} M msg/s | {ratio:.3f} [{min(ratios):.3f} .. "
            f"{max(ratios):.3f}] | {statistics.median(spent):.3f} | >= {FLOOR} | {'yes' if ratio >= FLOOR else 'NO'} |"
        )
    return lines, met


def main() -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(prog="python -m perf.replay_cost", description="Replay beside 0.1.0.")
    parser.add_argument("--runs", type=int, default=9, help=f"runs that count, {RUNS_MIN} or more (default: 9)")
    runs = parser.parse_args().runs
    if runs < RUNS_MIN:
        parser.error(f"--runs {runs}: a median of fewer than {RUNS_MIN} says nothing here")
    print("load before:", *os.getloadavg())
    with Bench(runs) as bench:
        try:
            rates = measure(bench)
        except NoHistoryError as error:
            print(error, file=sys.stderr)
            return SKIPPED
    lines, met = report(rates)
    print(*lines, sep="\n")
    print("load after:", *os.getloadavg())
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
