"""Runs one of the Python targets: replays its corpus, then mutates it; then once more with its planted bug,
which must be found.

PYTHONPATH=tests python -m fuzz.loop TARGET [--runs N] [--seconds S] [--seed N] [--keep DIR] [--finding FILE]
PYTHONPATH=tests python -m fuzz.loop TARGET --seeds DIR
"""

from __future__ import annotations

import argparse
import atexit
import hashlib
import json
import logging
import math
import random
import signal
import sys
import time
import traceback
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fuzz import corpus as kept
from fuzz.mutants import mutants
from fuzz.targets import TARGETS, Target

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

SECONDS_MAX = 2
LOOK_SECONDS = 0.1
PLANTED_RUNS = 5000


class HangError(BaseException):
    """An input took two seconds of processor time. No reader's ``except Exception`` takes it."""


class Watch:
    """Looks now and then, so that an input costs no system call, whether it is still the same one."""

    def __init__(self) -> None:
        self.begun = 0
        """This many inputs."""
        self._last, self._since = 0, 0.0

    def look(self, _: int, __: FrameType | None) -> None:
        """As a handler of a signal. Raises HangError."""
        now = time.process_time()
        if self.begun != self._last:
            self._last, self._since = self.begun, now
        elif now - self._since >= SECONDS_MAX - LOOK_SECONDS:
            self._since = math.inf
            raise HangError(f"no answer within {SECONDS_MAX} s")


WATCH = Watch()


class Reach:
    """Which lines of the product ran, by the interpreter's trace: slow, and only wanted for growing a
    corpus."""

    def __init__(self) -> None:
        self.known: set[tuple[str, int]] = set()
        self._now: set[tuple[str, int]] = set()

    def _trace(self, frame: FrameType, _: str, __: object) -> Any:
        name = frame.f_code.co_filename
        if "/engine/" not in name and "/bindings/" not in name:
            return None
        self._now.add((name, frame.f_lineno))
        return self._trace

    def run(self, target: Target, data: bytes) -> bool:
        """True: it reached a line that none before it did."""
        sys.settrace(self._trace)
        try:
            target.run(data)
        finally:
            sys.settrace(None)
        fresh = not self._now <= self.known
        self.known |= self._now
        self._now.clear()
        return fresh


def finding(target: Target, data: bytes, reach: Reach | None = None) -> tuple[BaseException | None, bool]:
    """What an input brings to light, if anything, and whether it reached something new."""
    fresh = False
    WATCH.begun += 1
    try:
        if reach is not None:
            fresh = reach.run(target, data)
        else:
            target.run(data)
    except (Exception, HangError) as error:
        return error, fresh
    return None, fresh


def inputs(target: Target, corpus: list[bytes], seed: int, runs: int, seconds: float) -> Iterator[bytes]:
    """Mutants, until this many were made and this many seconds are over, whichever comes first; 0: no such
    limit."""
    rng = random.Random(seed)
    end = time.monotonic() + seconds
    done = 0
    while (runs or seconds) and (not runs or done < runs) and (not seconds or time.monotonic() < end):
        for data in mutants(rng, corpus, target.words):
            yield data
            done += 1


def caught(target: Target, corpus: list[bytes], seed: int) -> bool:
    """The planted bug is found by a mutant; not by the corpus as it is."""
    with target.plant():
        return any(finding(target, data)[0] is not None for data in inputs(target, corpus, seed, PLANTED_RUNS, 0))


def main() -> int:
    """0: nothing found, and the planted bug was. The last line of the output is JSON and counts."""
    parser = argparse.ArgumentParser()
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--runs", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--seeds", type=Path)
    parser.add_argument("--finding", type=Path, default=Path("finding"))
    asked = parser.parse_args()
    logging.getLogger("holdfast").setLevel(logging.ERROR)
    target = TARGETS[asked.target]
    if asked.seeds is not None:
        for number, data in enumerate(target.seeds()):
            (asked.seeds / f"seed-{number}").write_bytes(data)
        return 0
    signal.signal(signal.SIGPROF, WATCH.look)
    signal.setitimer(signal.ITIMER_PROF, LOOK_SECONDS, LOOK_SECONDS)
    atexit.register(signal.setitimer, signal.ITIMER_PROF, 0)  # the handler goes before the interpreter does
    corpus = list(kept.inputs(asked.target).values())
    replayed, executions = len(corpus), 0
    reach = Reach() if asked.keep else None
    for data in chain(list(corpus), inputs(target, corpus, asked.seed, asked.runs, asked.seconds)):
        found, fresh = finding(target, data, reach)
        executions += 1
        if found is not None:
            asked.finding.write_bytes(data)
            traceback.print_exception(found)
            print(f"finding: {asked.finding}, {len(data)} bytes", file=sys.stderr)
            return 1
        if fresh:
            corpus.append(data)
            (asked.keep / hashlib.blake2b(data, digest_size=8).hexdigest()).write_bytes(data)
    planted = caught(target, corpus[:replayed], asked.seed)
    print(json.dumps({"replayed": replayed, "executions": executions - replayed, "planted": int(planted)}))
    return 0 if planted else 1


if __name__ == "__main__":
    sys.exit(main())
