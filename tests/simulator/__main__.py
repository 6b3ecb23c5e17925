"""``python -m simulator -n 2000``: many seeds. ``python -m simulator 4711``: the story of one."""

from __future__ import annotations

import os
import sys

if os.environ.get("PYTHONHASHSEED") != "0":  # a set's order is part of the schedule
    os.execve(sys.executable, [sys.executable, "-m", "simulator", *sys.argv[1:]], {**os.environ, "PYTHONHASHSEED": "0"})

from simulator import planted, planting

if "--plant" in sys.argv:
    _bug = sys.argv[sys.argv.index("--plant") + 1]
    planting.plant(_bug, planted.PLANTED[_bug])

import simulator.boot  # noqa: F401, I001
import argparse
import gc
import logging
import time
import traceback

from simulator.play import play
from simulator.world import world


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(prog="simulator")
    parser.add_argument("seeds", nargs="*", type=int)
    parser.add_argument("-n", "--number", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--plant", metavar="BUG", help="one of planted.py")
    parser.add_argument("--until-broken", action="store_true")
    parser.add_argument("--digests", action="store_true", help="print what tells two runs of a seed apart")
    asked = parser.parse_args()
    logging.disable(logging.CRITICAL)
    gc.freeze()
    gc.disable()
    if asked.seeds:
        return story(asked.seeds[0])
    broken = []
    begun = time.process_time()
    for seed in range(asked.first, asked.first + asked.number):
        try:
            digest = play(seed)
            if asked.digests:
                print(f"{seed} {digest:016x}")
        except BaseException as error:
            broken.append(seed)
            print(seed, type(error).__name__, str(error)[:200], flush=True)
            if asked.until_broken:
                break
        if seed % 20 == 0:
            gc.collect()
    spent = time.process_time() - begun
    print(f"{asked.number} seeds, {len(broken)} broken, {spent / max(1, asked.number) * 1e3:.1f} ms of CPU each")
    return 1 if broken else 0


class Told(logging.Handler):
    """What the product says is part of the story."""

    def emit(self, record: logging.LogRecord) -> None:
        """As logging."""
        if not world.over:
            who = world.current.process.name if world.current is not None else "world"
            world.note("log", who, record.getMessage(), record.exc_info[1] if record.exc_info else "")


def story(seed: int) -> int:
    """What happens in one seed."""
    lines: list[str] = []
    logging.disable(logging.NOTSET)
    logging.basicConfig(handlers=[Told()], level=logging.INFO)
    try:
        digest = play(seed, story=lines)
    except BaseException:
        print("\n".join(lines))
        traceback.print_exc()
        return 1
    print("\n".join(lines))
    print(f"{digest:016x}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
