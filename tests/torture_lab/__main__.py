"""Runs one part of the lab. Exit status: 0 nothing found and every planted bug caught, 1 otherwise, 77 not
possible here."""

from __future__ import annotations

import os

# Before holdfast and numpy are imported: the build with failpoints, none of them armed; and no threads that a
# fork would lose.
os.environ["HOLDFAST_FAILPOINTS"] = ""
os.environ["OPENBLAS_NUM_THREADS"] = "1"

import argparse
import importlib
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path

from evidence import record
from support.leftovers import remove_objects

from torture_lab.lab import Lab, Outcome, Skip

PARTS = {
    "matrix": "every failpoint, killed, stopped or failed, with one, two and three stores",
    "power": "power cuts of an ext4 image under a store",
    "cuts": "power cuts of whole systems: stores with an image each, backups, groups, source and receivers",
    "flips": "every bit of a store's state; bits of its logs, repaired from another store",
    "peers": "garbage in ring, board, bells, preambles, at a store's socket; names removed, the wall clock stepped, under load",
}
SKIPPED = 77


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(prog="torture_lab", description=__doc__)
    parser.add_argument("part", choices=PARTS, help="; ".join(f"{name}: {what}" for name, what in PARTS.items()))
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--tiny", dest="size", action="store_const", const=0, help="just enough to see that it works")
    size.add_argument("--short", dest="size", action="store_const", const=1, help="the figures of every push")
    parser.set_defaults(size=2)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32), metavar="S")
    given = parser.parse_args()
    print(f"{given.part}: seed {given.seed}", flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that what is in shared memory goes
    root = Path(tempfile.mkdtemp(prefix="hf-lab-", dir="/tmp"))
    os.environ["HOLDFAST_DIR"] = str(root / "run")
    os.environ["XDG_CACHE_HOME"] = str(root / "cache")
    began = time.monotonic()
    try:
        part = importlib.import_module(f"torture_lab.{given.part}")
        outcome = part.run(Lab(root, given.seed, given.size))
    except Skip as why:
        print(f"{given.part}: skipped: {why}")
        record(f"torture_{given.part}", counts={}, findings=0, seconds=0, seed=given.seed, skipped=str(why))
        return SKIPPED
    except Exception:  # the lab's own mistake, too: without a record it would look like a part that nobody has run
        traceback.print_exc()
        outcome = Outcome(findings=["it failed itself"])
    finally:
        for directory in (root / "run").glob("[!.]*"):
            remove_objects(directory.name)
        shutil.rmtree(root, ignore_errors=True)
    seconds = time.monotonic() - began
    counts = ", ".join(f"{count} {what}" for what, count in outcome.counts.items())
    print(
        f"{given.part}: {counts}; {len(outcome.findings)} findings, planted bugs caught {outcome.caught} of"
        f" {outcome.planted}; {seconds:.0f} s, seed {given.seed}"
    )
    record(
        f"torture_{given.part}", counts=outcome.counts, findings=len(outcome.findings),
        planted=(outcome.caught, outcome.planted), seconds=seconds, seed=given.seed,
    )  # fmt: skip
    return int(bool(outcome.findings) or outcome.caught < outcome.planted)


if __name__ == "__main__":
    sys.exit(main())
