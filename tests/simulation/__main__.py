"""``python -m simulation [-n SEEDS] [-j JOBS] [--first SEED]``, or ``python -m simulation SEED``: its
story."""

from __future__ import annotations

import argparse
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor

from evidence import record
from simulation.machine import Machine
from simulation.run import play
from simulation.world import InvariantError

CHUNK = 500


def search(first: int) -> list[tuple[int, str]]:
    """Plays ``CHUNK`` seeds; those that break something, and what."""
    found = []
    for seed in range(first, first + CHUNK):
        try:
            play(seed)
        except Exception as error:
            found.append((seed, f"{type(error).__name__}: {error}"))
    return found


def tell(seed: int) -> int:
    """One seed, and what happens in it."""
    machine = Machine(seed, verbose=True)
    try:
        play(seed, machine=machine)
        end, status = "everything holds", 0
    except InvariantError as error:
        end, status = f"InvariantError: {error}", 1
    print(machine.config)
    print("\n".join(machine.world.story or ()))
    print(end)
    return status


def main() -> int:
    """See the module. Exit code 1: something does not hold."""
    parser = argparse.ArgumentParser(prog="simulation", description=__doc__)
    parser.add_argument("seed", nargs="?", type=int)
    parser.add_argument("-n", type=int, default=1_000_000)
    parser.add_argument("-j", type=int, default=os.cpu_count())
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    if options.seed is not None:
        return tell(options.seed)
    begun, failed, done = time.monotonic(), 0, 0
    with ProcessPoolExecutor(options.j) as pool:
        for found in pool.map(search, range(options.first, options.first + options.n, CHUNK)):
            done += CHUNK
            failed += len(found)
            for seed, what in found:
                print(f"seed {seed}: {what}", flush=True)
            if done % 50_000 < CHUNK:
                print(f"{done} seeds, {failed} broken, {done / (time.monotonic() - begun):.0f} a second", flush=True)
    print(f"{done} seeds from {options.first}: {failed} broken")
    seconds = time.monotonic() - begun
    record("simulation", counts={"seeds": done}, findings=failed, seconds=seconds, seed=options.first)
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
