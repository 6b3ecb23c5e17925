"""Kills processes N times and checks that no stable message is lost, reordered, resurrected, or duplicated
beyond the ack batch.

    PYTHONPATH=tests python tests/torture_lab/kills.py --kills 2000 [--seed S]

Half of the kills are at C level, with one store (core_kills.py). The others are of whole programs that use
the public names, with three stores in a group (group_kills.py): most of them forked, at least 100 in 2000
started by exec. `--core 0` leaves the first half out. A seed fixes the plan; the moments of the kills are the
machine's.
"""

from __future__ import annotations

import os

# Before holdfast and numpy are imported: the build with failpoints, none of them armed; and no threads that a
# fork would lose.
os.environ["HOLDFAST_FAILPOINTS"] = ""
os.environ["OPENBLAS_NUM_THREADS"] = "1"

import argparse
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from evidence import record
from support.forked_workers import preload
from support.leftovers import remove_objects
from support.oracle import Finding, Stuck

from holdfast.engine.memory.domain import Domain
from torture_lab.core_kills import Episode, Tally
from torture_lab.group_kills import GroupKills

if TYPE_CHECKING:
    from collections.abc import Callable

KILLS_PER_EPISODE = 60
"""Kills of one source identity before the next, with other sizes and levels, takes its place."""
EVERY_S = 5.0


def main() -> int:
    """The exit code: 0 nothing was found, 1 something was or the torture failed itself, 2 wrong arguments,
    130 interrupted."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--kills", type=int, default=2000, metavar="N")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32), metavar="S")
    parser.add_argument("--core", type=int, metavar="N", help="of them, at C level with one store (half)")
    parser.add_argument("--exec", type=int, metavar="N", help="of them, of processes started by exec (a twentieth)")
    parser.add_argument(
        "--paced", action="store_true", help="with three stores, receiver-paced sources alone (a third)"
    )
    parser.add_argument("--mutant", default="", metavar="NAME", help="switch a planted bug on; it must be found")
    parser.add_argument(
        "--keep", action="store_true", help="leave files and shared memory behind when something is found"
    )
    given = parser.parse_args()
    if given.kills < 1:
        parser.error("--kills: at least 1")
    core = given.kills // 2 if given.core is None else given.core
    by_exec = given.kills // 20 if given.exec is None else given.exec
    signal.signal(signal.SIGTERM, _interrupt)
    root = Path(tempfile.mkdtemp(prefix="hft", dir="/tmp"))
    os.environ["HOLDFAST_DIR"] = str(root / "run")
    os.environ["XDG_CACHE_HOME"] = str(root / "cache")
    code, caught, tally, begin = 1, False, Tally(), time.monotonic()
    try:
        _torture(given, core, by_exec, root, tally)
        code = 0
    except KeyboardInterrupt:
        print("torture: interrupted", file=sys.stderr)
        code = 130
    except Exception as error:
        found = isinstance(error, Finding)
        caught = found and not isinstance(error, Stuck)
        traceback.print_exc()
        again = f"--kills {given.kills} --core {core} --exec {by_exec} --seed {given.seed}"
        again += f" --mutant {given.mutant}" if given.mutant else ""
        again += " --paced" if given.paced else ""
        print(
            f"torture: {'FOUND' if found else 'it failed itself'}, see above. The same plan again:\n"
            f"  PYTHONPATH=tests {sys.executable} {sys.argv[0]} {again}"
        )
    finally:
        if code == 1 and given.keep:
            print(f"torture: kept {root}")
        else:
            _remove(root)
    if code != 130:
        _record(given, tally, code, time.monotonic() - begin, caught=caught)
    return code


def _record(given: argparse.Namespace, tally: Tally, code: int, seconds: float, *, caught: bool) -> None:
    """With a bug planted only what the judges saw counts: a torture that is stuck or fails in another way has
    caught nothing."""
    counts = {"kills": tally.total, "stops": tally.stops}
    if given.mutant:
        record("torture_planted", counts=counts, findings=0, planted=(int(caught), 1), seconds=seconds, seed=given.seed)
    else:
        record("torture", counts=counts, findings=code, seconds=seconds, seed=given.seed)


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def _torture(given: argparse.Namespace, core: int, by_exec: int, root: Path, tally: Tally) -> None:
    begin = time.monotonic()

    def tell() -> None:
        print(f"torture: {tally.total} kills, {time.monotonic() - begin:.0f} s", flush=True)

    preload()  # once for all children; at C level they need some of it too
    _core_part(given, core, root, tally, tell)
    core = tally.total
    group = GroupKills(given.seed, root / "group", tally, given.mutant, paced=given.paced)
    group.run(given.kills - by_exec, tell, forked=True, keep=given.keep)
    forked = tally.total - core
    group.run(given.kills, tell, forked=False, keep=given.keep)
    parts = f"{core} C-level; with 3 stores: {forked} forked, {tally.total - core - forked} by exec"
    print(
        f"torture: {tally.total} kills ({parts}), seed {given.seed}: 0 lost, 0 reordered, 0 resurrected, 0 duplicated beyond"
        f" the ack batch\n"
        f"         {tally.kills}, {tally.at_failpoints} at failpoints; {tally.stops} stops; {tally.messages} messages compared,"
        f" {tally.repeated} repeated after a kill; {time.monotonic() - begin:.0f} s"
    )


def _core_part(given: argparse.Namespace, kills: int, root: Path, tally: Tally, tell: Callable[[], None]) -> None:
    mutant = f"{given.mutant}=mutant" if given.mutant else ""
    domain, told, number = Domain("core", join=False), time.monotonic(), 0
    while tally.total < kills:
        episode = Episode(given.seed * 100_003 + number, domain, root / "disk", tally, mutant)
        good = False
        try:
            episode.run(min(KILLS_PER_EPISODE, kills - tally.total))
            good = True
        finally:
            episode.close(keep=given.keep and not good)
        number += 1
        if time.monotonic() - told > EVERY_S:
            told = time.monotonic()
            tell()
    domain.close()


def _remove(root: Path) -> None:
    """The files of this run, and the objects in shared memory that its domains name."""
    for directory in (root / "run").glob("[!.]*"):
        remove_objects(directory.name)
    shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
