"""``python -m mutants -n 300 [--seed S]``: a sample of all mutants of the rules, each of which must die.
``python -m mutants engine/rules/quorum.py:47``: those of a file, or of one line of it.

A survivor is either in equal.py, with the reason why no input can tell it from the rule, or it shows that a
test is missing: then this fails.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from hashlib import sha256
from typing import TYPE_CHECKING

if os.environ.get("PYTHONHASHSEED") != "0":  # as the simulator: a set's order is part of the schedule
    os.execve(sys.executable, [sys.executable, "-m", "mutants", *sys.argv[1:]], {**os.environ, "PYTHONHASHSEED": "0"})

from evidence import record
from mutants.equal import EQUAL
from mutants.kill import SURVIVES, killed_by
from mutants.mutate import RULES, population
from mutants.verdict import wrong
from simulator.planting import ROOT, Patch

if TYPE_CHECKING:
    from mutants.mutate import Mutant


def options() -> argparse.Namespace:
    """What is asked for."""
    parser = argparse.ArgumentParser(prog="mutants", description=__doc__)
    parser.add_argument("where", nargs="?", default="", help="only those of this file, or of this line")
    parser.add_argument("-n", type=int, default=300, help="mutants in the sample (300)")
    parser.add_argument("--seed", type=int, default=1, help="of the order in which they are taken (1)")
    parser.add_argument("--first", type=int, default=0, help="those before this one are left out")
    return parser.parse_args()


def sample(every: list[Mutant], asked: argparse.Namespace) -> list[Mutant]:
    """Those that are tried, in the order of the text. A change of a rule changes nothing of the rest of a
    sample."""
    if asked.where:
        return [each for each in every if asked.where in {each.path, f"{each.path}:{each.number}"}]
    order = sorted(every, key=lambda each: sha256(repr((asked.seed, *each.name)).encode()).digest())
    chosen = set(order[asked.first : asked.first + asked.n])
    return [each for each in every if each in chosen]


def unchanged() -> Patch:
    """No mutant: if that dies, the tests fail by themselves, and every other death shows nothing."""
    path = f"{RULES}/quorum.py"
    text = (ROOT / path).read_text()
    return Patch(path, text, text)


def main() -> int:
    """See the module. Exit code 1: a mutant survives, or the list of the equal ones is stale."""
    asked = options()
    begun, every = time.monotonic(), population()
    chosen = sample(every, asked)
    folder = os.environ["HOLDFAST_TESTS_IN"] = tempfile.mkdtemp(prefix="hfm")
    try:
        sound = killed_by(unchanged()) == SURVIVES
        tried: dict[Mutant, str] = {}
        for mutant in chosen if sound else ():
            tried[mutant] = killed_by(mutant.patch)
            print(f"{tried[mutant] or 'SURVIVES':8}", mutant, flush=True)
    finally:
        shutil.rmtree(folder)
    found = wrong(tried, every, EQUAL) if sound else ["the tests or the seeds fail without any mutant"]
    seconds, by = time.monotonic() - begun, Counter(tried.values())
    survivors = by.pop(SURVIVES, 0)
    print(*found, sep="\n")
    print(
        f"{len(tried)} of {len(every)} mutants, seed {asked.seed}: {len(tried) - survivors} killed {dict(by)}, "
        f"{survivors} survive, {len(found)} findings, {seconds:.0f} s"
    )
    counts = {"mutants": len(tried), "killed": len(tried) - survivors}
    record("mutants", counts=counts, findings=len(found), planted=(int(sound), 1), seconds=seconds, seed=asked.seed)
    return len(found) > 0


if __name__ == "__main__":
    sys.exit(main())
