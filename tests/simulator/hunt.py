"""``python -m simulator.hunt [BUG...]`` looks for the seeds that find the planted bugs, and writes them into
killing.json."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from simulator.planted import PLANTED, STAGE
from simulator.scenes import SCENES, SHARE

KILLING = Path(__file__).with_name("killing.json")
TESTS = Path(__file__).resolve().parents[1]
SEEDS_MAX = int(os.environ.get("SEEDS_MAX", "2000"))
"""Seeds that are played for a bug."""
ONE_IN = 12
"""Of this number of seeds, one has the plot of a bug's stage; the others are not played."""
PIECE = 100
"""Seeds of one process."""


def broken(bug: str, first: int, count: int) -> tuple[int, str] | None:
    """The first of these seeds that notices the bug, and what it says."""
    command = [
        sys.executable,
        "-m",
        "simulator",
        "--plant",
        bug,
        "--first",
        str(first),
        "-n",
        str(count),
        "--until-broken",
    ]
    command += ["--plot", STAGE[bug]] if bug in STAGE else []
    done = subprocess.run(command, cwd=TESTS, capture_output=True, text=True, check=False)
    said = done.stdout.splitlines()
    if done.returncode == 0:
        return None
    if not said or not said[0].split()[0].isdigit():
        raise RuntimeError(f"{bug}: {done.stdout}{done.stderr}")
    seed, _, text = said[0].partition(" ")
    return int(seed), text


def counted(bug: str, played: int) -> int:
    """The number of seeds, of which ``played`` are played for this bug."""
    if STAGE.get(bug) in SCENES:
        return int(played / SHARE)
    return played * (ONE_IN if bug in STAGE else 1)


def hunt(bug: str) -> tuple[int, str] | None:
    """The first seed of all that notices the bug."""
    for first in range(0, counted(bug, SEEDS_MAX), counted(bug, PIECE)):
        found = broken(bug, first, counted(bug, PIECE))
        if found is not None:
            return found
    return None


def known_seeds() -> dict[str, int]:
    """What killing.json says."""
    return dict(json.loads(KILLING.read_text())) if KILLING.exists() else {}


def main(bugs: list[str]) -> int:
    """Looks for seeds and writes them down."""
    known = known_seeds()
    wanted, missing = bugs or list(PLANTED), 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for bug, found in zip(wanted, pool.map(hunt, wanted), strict=True):
            missing += found is None
            known.pop(bug, None)
            if found is not None:
                known[bug] = found[0]
            print(f"{bug:45}", *(found or ("not found",)), flush=True)
    KILLING.write_text(json.dumps({bug: known[bug] for bug in PLANTED if bug in known}, indent=1) + "\n")
    return missing > 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
