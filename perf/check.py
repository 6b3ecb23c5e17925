"""Has anything become slower? Measures the main ratios again and compares them with the committed results
(``make perf-check``).

A figure is a cost beside its limit of the same run (a message beside a bare cache line, an append beside a
bare copy), so that what the host does to both falls out. Losses are judged by compare.py. What seems lost is
measured once more, for runs that are neighbours in time are more alike than two sessions are: it counts if it
is lost again.

Compared is only what can be: the results of this machine class, at a probe within the factor that floors.py
allows. A gate that compared nothing has not passed, so its exit status says which of these it was:

0    half of the pairs or more were compared, and none is lost
1    something is lost
3    fewer than half could be compared: nothing is known (2 is a wrong command line)
77   there are no committed results of this machine class: nothing was measured, nothing judged
"""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import holdfast as hf

from . import recovery, throughput
from .cli import RESULTS
from .compare import ALPHA, LOSS, Comparison, Outcome, compare
from .floors import EQUAL_PROBE
from .harness import Bench
from .machine import machine, slug, slug_of
from .peers import DOMAIN, SPIN, domain
from .report import load

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from .harness import Series

RUNS = 10
"""New runs. Beside five committed ones, 1 order of 3003 is as bad as all of them above all committed ones."""
LOST, UNSOUND, SKIPPED = 1, 3, 77
"""Exit statuses. The last one is what automake's and others' test runners take for a skipped test."""
FACTS = ("kernel", "compiler", "python", "packages", "governor", "file_system")
"""What may differ between two measurements of one machine class, and then is told."""


@dataclass(frozen=True, slots=True)
class Pair:
    """``case`` beside ``base``, both of the C program or both in turns with Python, as ``script`` measures
    them."""

    script: str
    case: str
    base: str


PAIRS = (
    Pair("latency", "cping", "line"),
    Pair("latency", "stable:memory", "line"),
    Pair("latency", "stable:disk", "fdatasync"),
    Pair("throughput", "oneway:16:rows:batch:1:262144", "ring:16"),
    Pair("throughput", "oneway:16:single:copy:1:262144", "ring:16"),
    Pair("throughput", "oneway:128:rows:batch:1:1048576", "ring:128"),
    Pair("throughput", "oneway:128:rows:batch:2:1048576", "ring:128"),
    Pair("throughput", "oneway:1024:rows:batch:1:4194304", "ring:1024"),
    Pair("throughput", "py-send", "py-empty-call"),
    Pair("store", "append:memory:128:recycled", "mapped:128"),
    Pair("store", "append:disk:700:recycled", "overwrite"),
    Pair("store", "paced:3", "paced:1"),
    Pair("recovery", "replay:memory:128", "checksum:128"),
    Pair("recovery", "py-late", "py-late-bare"),
)


@dataclass(frozen=True, slots=True)
class Line:
    """What is said about one pair. ``comparison``: None where there is nothing to compare, and ``why`` says
    what is missing."""

    pair: Pair
    comparison: Comparison | None
    why: str = ""

    def __str__(self) -> str:
        name = f"{self.pair.case} beside {self.pair.base}"
        found = self.comparison
        if found is None:
            return f"not comparable  {name}: {self.why}"
        runs = f"{found.new_runs} runs beside {found.old_runs}, p = {found.p:.4f}"
        return f"{found.outcome.value:<14}  {name}: speed {found.change:+.1%} ({runs})"

    @property
    def sound(self) -> bool:
        """Whether it says something about the speed."""
        return self.comparison is not None and self.comparison.outcome is not Outcome.FEW

    @property
    def lost(self) -> bool:
        """Whether it is slower by more than may be."""
        return self.comparison is not None and self.comparison.outcome is Outcome.LOSS


def costs_beside(case: Series, base: Series) -> list[float]:
    """Cost of ``case`` in units of its neighbour of ``base``, run by run at equal probes; greater is
    worse."""
    pairs = zip(case.samples, base.samples, strict=True)
    near = [(a, b) for a, b in pairs if 1 / EQUAL_PROBE < a.probe_ns / b.probe_ns < EQUAL_PROBE]
    return [a.value / b.value if a.unit == "ns" else b.value / a.value for a, b in near]


def judge(pair: Pair, old: Mapping[str, Series], new: Mapping[str, Series]) -> Line:
    """``old``, ``new``: case -> runs, committed and measured now."""
    if missing := [case for case in (pair.case, pair.base) if case not in old]:
        return Line(pair, None, f"the committed results have no {' and no '.join(missing)}")
    probes = new[pair.case].probe_ns, old[pair.case].probe_ns
    if not 1 / EQUAL_PROBE < probes[0] / probes[1] < EQUAL_PROBE:
        return Line(pair, None, f"the probe is {probes[0]:.0f} ns, in the committed results {probes[1]:.0f} ns")
    sides = costs_beside(old[pair.case], old[pair.base]), costs_beside(new[pair.case], new[pair.base])
    if not all(sides):
        return Line(pair, None, "no run of it was at the same probe as its neighbour")
    return Line(pair, compare(*sides))


def measure(bench: Bench, pairs: Iterable[Pair]) -> dict[str, Series]:
    """All cases of these pairs, script by script: those of the C program interleaved, then Python's."""
    wanted = list(pairs)
    found: dict[str, Series] = {}
    for script in dict.fromkeys(pair.script for pair in wanted):
        cases = [case for pair in wanted if pair.script == script for case in (pair.base, pair.case)]
        if titles := {case: case for case in cases if not case.startswith("py-")}:
            found |= {series.case: series for series in bench.cases(titles)}
        if any(case.startswith("py-") for case in cases):
            found |= {series.case: series for series in PYTHON[script](bench)}
    return found


def _python_sends(bench: Bench) -> Iterable[Series]:
    with ExitStack() as stack:
        stack.enter_context(domain(bench))
        stack.enter_context(bench.pinned_to(0))
        context = stack.enter_context(hf.Context(domain=DOMAIN, options=SPIN))
        ways = throughput.sends(context)
        return bench.interleave({case: ways[case] for case in ("py-empty-call", "py-send")})


PYTHON = {"throughput": _python_sends, "recovery": recovery.late}
"""What measures a script's cases that begin with py-."""


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """A line for each fact of the machine that is another one than in the committed results."""
    return [
        f"{name}: {new[name]}, in the committed results {old.get(name)}" for name in FACTS if new[name] != old.get(name)
    ]


def run(runs: int, name: str) -> int:
    """Prints a line per pair, and what is wrong on standard error. Returns the exit status, see above."""
    path = RESULTS / f"{name}.json"
    if not path.exists():
        return _skipped(f"there is no {path.name}")
    facts, old = load(path)
    if slug_of(facts) != slug():
        return _skipped(f"{path.name} was measured on {slug_of(facts)}, this is {slug()}")
    with Bench(runs) as bench:
        for line in differences(facts, machine(bench.cores, bench.disk)):
            print(f"note: {line}")
        new = measure(bench, PAIRS)
        lines = [judge(pair, old.get(pair.script, {}), new) for pair in PAIRS]
        if again := [line.pair for line in lines if line.lost]:
            print(f"measured again: {', '.join(pair.case for pair in again)}", flush=True)
            second = measure(bench, again)
            lines = [_looked_at_again(line, old, second) if line.lost else line for line in lines]
    print(*lines, sep="\n")
    return verdict(lines)


def _looked_at_again(line: Line, old: Mapping[str, Any], second: Mapping[str, Any]) -> Line:
    """What the second look says; a look that can be compared with nothing takes no loss back."""
    again = judge(line.pair, old.get(line.pair.script, {}), second)
    return again if again.sound else line


def verdict(lines: Sequence[Line]) -> int:
    """Says in one line what they come to; the exit status."""
    lost = sum(line.lost for line in lines)
    sound = sum(line.sound for line in lines)
    print(f"{sound} of {len(lines)} could be compared; {lost} lost more than {LOSS:.0%} (p <= {ALPHA:g}, twice)")
    if lost:
        return LOST
    if 2 * sound >= len(lines):
        return 0
    print(
        f"NOT JUDGED: {sound} of {len(lines)} pairs could be compared, at least half are needed; why not is said above. "
        "Try again when the machine is quiet; if the probe stays another one, commit new results (`make perf`)",
        file=sys.stderr,
    )
    return UNSOUND


def _skipped(why: str) -> int:
    print(
        f"SKIPPED: nothing was judged: {why}, so this machine class has no committed results; `make perf`",
        file=sys.stderr,
    )
    return SKIPPED


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="python -m perf.check", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=RUNS, help=f"new runs of each case (default: {RUNS})")
    parser.add_argument("--name", default=slug(), help="of the result file (default: the machine's)")
    options = parser.parse_args()
    sys.exit(run(options.runs, options.name))
