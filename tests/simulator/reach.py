"""``python -m simulator.reach``: what seeds alone reach of the product's drivers, in lines and branches.

Plays the first seeds, and some of each plot, of each scene, and of the rarer faults. Below FLOOR of a module
this fails, and says which of its lines and branches no seed has reached.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from coverage import Coverage

from simulator.scenes import SCENES
from simulator.shape import CENSUS_FAULT, LAST_FAULTS, LATER_FAULTS, MORE_PLOTS, PLOTS, draw

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["FLOOR", "MODULES", "Reached", "judged", "seeds"]

TESTS = Path(__file__).resolve().parents[1]
ROOT = TESTS.parent
FLOOR = 80
"""Percent of a module's lines and branches."""
SEEDS, OF_EACH = 150, 8
"""The first seeds; and of each plot."""
SEARCHED = 100_000
"""Seeds among which those of a plot are looked for."""
PIECE = 25
"""Seeds of one process."""
MODULES = tuple(
    f"engine/{each}.py"
    for each in (
        "store/repository", "store/drainer", "store/catch_up", "store/pacer", "store/expiry", "rules/expiry",
        "source/settlement", "source/session", "rules/registration", "rules/source_registration",
        "rules/receiver_registration", "receiver/registrar", "receiver/delivery_controller",
    )
)  # fmt: skip
EACH = (*PLOTS, *MORE_PLOTS, *LATER_FAULTS, *LAST_FAULTS, CENSUS_FAULT, *SCENES)


class Reached(NamedTuple):
    """What was reached of one module. ``lacking``: the lines and branches that were not, as coverage says."""

    module: str
    percent: float
    lacking: str


def seeds(first: int, of_each: int, each: Iterable[str] = EACH) -> list[int]:
    """The first ones, then those of each plot that are not among them."""
    wanted = dict.fromkeys(each, of_each)
    found = list(range(first))
    for seed in range(first):
        for name in _names(seed) & wanted.keys():
            wanted[name] -= 1
    for number in range(first, SEARCHED):
        if not (lacking := {name for name, count in wanted.items() if count > 0}):
            return found
        if lacking & _names(number):
            found.append(number)
            for name in _names(number) & lacking:
                wanted[name] -= 1
    raise LookupError(f"too few among {SEARCHED} seeds: {', '.join(sorted(lacking))}")


def _names(seed: int) -> set[str]:
    shape = draw(seed)
    return {*shape.plots, *shape.faults}


def measured(which: Sequence[int], folder: Path, jobs: int) -> tuple[list[str], Coverage]:
    """What is broken in these seeds, and what they have reached."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("data*"):
        old.unlink()
    settings = folder / "settings"
    include = "".join(f"\n    */{each}" for each in MODULES)
    settings.write_text(
        f"[run]\nbranch = true\nconcurrency = greenlet\nparallel = true\ndata_file = {folder / 'data'}\ninclude ={include}\n"
    )
    pieces = [which[first : first + PIECE] for first in range(0, len(which), PIECE)]
    with ThreadPoolExecutor(jobs) as pool:
        said = [line for lines in pool.map(lambda piece: _piece(piece, settings), pieces) for line in lines]
    found = Coverage(config_file=str(settings))
    found.combine()
    return said, found


def _piece(piece: Sequence[int], settings: Path) -> list[str]:
    """Plays them in a process of its own; a line for each that breaks."""
    command = [sys.executable, "-m", "coverage", "run", f"--rcfile={settings}", "-m", "simulator", "--only"]
    fixed = {"PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1"}  # else it would execute itself, without coverage
    done = subprocess.run(
        [*command, *map(str, piece)],
        cwd=TESTS,
        env={**os.environ, **fixed},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = done.stdout.splitlines()
    if done.returncode not in {0, 1} or not lines or " seeds, " not in lines[-1]:
        raise RuntimeError(
            f"a process that played seeds {piece[0]} to {piece[-1]} has failed: {done.stdout}{done.stderr}"
        )
    return lines[:-1]


def reached(found: Coverage) -> list[Reached]:
    """Of each module. Raises LookupError: nothing of one was measured."""
    every = []
    for module in MODULES:
        files = [each for each in found.get_data().measured_files() if each.endswith(f"/{module}")]
        if len(files) != 1:
            raise LookupError(f"{module} was not measured: it has another name now, or no seed imports it")
        table = StringIO()
        percent = found.report(files, file=table, show_missing=True, skip_covered=False, precision=2)
        row = next(line for line in table.getvalue().splitlines() if line.split(" ")[0].endswith(module))
        every.append(Reached(module, percent, row.partition("%")[2].strip()))
    return every


def judged(every: Iterable[Reached], floor: float = FLOOR) -> list[str]:
    """What is wrong: a line for each module that lies below the floor."""
    return [
        f"{each.module}: {each.percent:.1f} %, and {floor} % are asked for; no seed reaches {each.lacking}"
        for each in every
        if each.percent < floor
    ]


def main() -> int:
    """Exit code 1: a module lies below the floor, or a seed breaks."""
    from evidence import record

    parser = argparse.ArgumentParser(prog="simulator.reach", description=__doc__)
    parser.add_argument("-n", type=int, default=SEEDS, help=f"the first seeds ({SEEDS})")
    parser.add_argument("--each", type=int, default=OF_EACH, help=f"more, of each plot ({OF_EACH})")
    parser.add_argument("-j", type=int, default=os.cpu_count() or 1, help="processes (one per core)")
    parser.add_argument("--folder", type=Path, default=ROOT / "build/reach", help="where the data go")
    asked = parser.parse_args()
    begun, which = time.monotonic(), seeds(asked.n, asked.each)
    broken, found = measured(which, asked.folder.resolve(), asked.j)
    every = reached(found)
    wrong = judged(every)
    print(*broken, sep="\n", end="\n" if broken else "")
    print(*(f"{each.module:40} {each.percent:6.2f} %" for each in every), sep="\n")
    print(*wrong, sep="\n", end="\n" if wrong else "")
    seconds, least = time.monotonic() - begun, min(each.percent for each in every)
    print(f"{len(which)} seeds, {len(broken)} broken; at least {least:.1f} % of each module; {seconds:.0f} s")
    counts = {"seeds": len(which), "modules": len(every), "percent of each module": int(least)}
    record("coverage_seeds", counts=counts, findings=len(broken) + len(wrong), seconds=seconds)
    return len(broken) + len(wrong) > 0


if __name__ == "__main__":
    sys.exit(main())
