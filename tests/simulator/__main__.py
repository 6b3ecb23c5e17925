"""``python -m simulator -n 2000 -j 2``: many seeds. ``python -m simulator 4711``: the story of one."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

if os.environ.get("PYTHONHASHSEED") != "0":  # a set's order is part of the schedule
    fixed = {"PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1"}
    os.execve(sys.executable, [sys.executable, "-m", "simulator", *sys.argv[1:]], {**os.environ, **fixed})

PIECE = 500
"""Seeds of one process, where several run."""


def options() -> argparse.Namespace:
    """What is asked for."""
    parser = argparse.ArgumentParser(prog="simulator")
    parser.add_argument("seed", nargs="?", type=int, help="tell the story of this one")
    parser.add_argument("-n", type=int, default=0, help="seeds to play")
    parser.add_argument("-j", type=int, help="processes; the run is recorded")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only", nargs="+", type=int, help="play these seeds")
    parser.add_argument("--plant", metavar="BUG", help="one of planted.py; empty for none")
    parser.add_argument("--shrink", action="store_true", help="tell what is left of the seed when nothing is needless")
    parser.add_argument("--plot", help="play only seeds that may have it (plots.py)")
    parser.add_argument("--until-broken", action="store_true")
    parser.add_argument("--digests", action="store_true", help="print what tells two runs of a seed apart")
    return parser.parse_args()


def piece(first: int, count: int) -> str:
    """What another process says of these seeds, without its last line."""
    command = [sys.executable, "-m", "simulator", "--first", str(first), "-n", str(count)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    if done.returncode not in {0, 1} or not lines or " seeds, " not in lines[-1]:
        return f"{first} a process that played from here on has failed: {done.stdout[-500:]}{done.stderr[-2000:]}\n"
    return "".join(f"{line}\n" for line in lines[:-1])


def many(asked: argparse.Namespace) -> int:
    """All seeds, over several processes, and a record of the run."""
    from evidence import record

    begun, failed = time.monotonic(), 0
    firsts = range(asked.first, asked.first + asked.n, PIECE)
    with ThreadPoolExecutor(asked.j) as pool:
        for said in pool.map(lambda first: piece(first, min(PIECE, asked.first + asked.n - first)), firsts):
            failed += len(said.splitlines())
            print(said, end="", flush=True)
    seconds = time.monotonic() - begun
    print(f"{asked.n} seeds from {asked.first}, {failed} broken, {seconds:.0f} s")
    record("simulator", counts={"seeds": asked.n}, findings=failed, seconds=seconds, seed=asked.first)
    return failed > 0


def main() -> int:
    """See the module. Exit code 1: something does not hold."""
    asked = options()
    if asked.j is not None:
        return many(asked)
    if asked.plant:
        from simulator import planted, planting

        planting.plant(asked.plant, planted.PLANTED[asked.plant])
    import simulator.boot  # noqa: F401  # first: what is imported from here on has the simulated world below it
    from simulator import telling

    return telling.story(asked.seed, shrink=asked.shrink) if asked.seed is not None else telling.play_all(asked)


if __name__ == "__main__":
    sys.exit(main())
