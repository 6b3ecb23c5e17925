"""Runs fuzz targets: replays each one's corpus, mutates it, and makes sure that it finds its planted bug.

    make fuzz                       every target, 20 s times its share (SHARES); those in C by what the
                                    mutants reach (PARTS)
    make fuzz S=0                   some hundred mutants each: the same ones each time

Prints a line for each; a finding leaves its input in build/fuzz/. Exit status 1: a finding, or a planted bug
that was not found.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from evidence import record
from fuzz.corpus import UNPACKED, unpack
from fuzz.plant import PLANTED
from fuzz.targets import TARGETS

BUILD = Path(__file__).resolve().parents[2] / "build" / "fuzz"
RUNS = {"segment": 250, "head": 250, "stream": 2500, "board": 300, "frames": 1500}
"""Mutants of a run without a time: about a second each on a quiet machine."""
PARTS = (("reach", 0.35), ("asan", 0.1), ("quick", 0.55))
"""What becomes of the seconds of a target in C: a corpus is grown by what mutants reach, this and mutants of
it meet the kernel itself, and then what stands in for it (quick.h), without the cost of telling what they
reach."""
SHARES = {"wire": 4.5, "head": 0.5, "info": 0.5, "offsets": 0.5}
"""How many times the seconds asked for, where not once: most go to what takes most mutants a second."""
PYTHON_RUNS = 1500
PLANTED_RUNS = 20_000
PLANTED_SEEDS = 3
"""How often this many mutants are drawn for a planted bug: which ones they are changes with each input of the
corpus."""
PATIENCE = 240
"""Seconds that a run may take beyond those that it was given, on a machine that is busy with other things."""

TEXT_LINES = 60
"""Of what a target that failed has said."""


class Verdict(NamedTuple):
    """What came of one target."""

    target: str
    ok: bool
    inputs: int = 0
    executions: int = 0
    planted: int = 0
    text: str = ""


def run(command: list[str], scratch: str, seconds: float) -> subprocess.CompletedProcess[str]:
    """One program to its end, with a directory for what it writes; 124: it did not end."""
    environment = {**os.environ, "TMPDIR": scratch}
    try:
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, errors="replace", timeout=seconds + PATIENCE
        )
    except subprocess.TimeoutExpired as late:
        return subprocess.CompletedProcess(command, 124, "", f"{late}\n")


def counts(done: subprocess.CompletedProcess[str]) -> dict[str, int]:
    """The last line of the output."""
    return dict(json.loads((done.stdout.strip() or "{}").splitlines()[-1]))


def limits(target: str, seconds: float, seed: int) -> list[str]:
    """For a run with sanitizers, or in Python: this many mutants, or this many seconds."""
    amount = ["--seconds", str(seconds)] if seconds else ["--runs", str(RUNS.get(target, PYTHON_RUNS))]
    return [*amount, "--seed", str(seed), "--finding", str(BUILD / f"finding-{target}")]


def run_c(target: str, seconds: float, seed: int, scratch: str) -> Verdict:
    """A target in C: clean, then with its planted bug."""
    corpus = [str(UNPACKED / target)]
    executions = replayed = 0
    for number, (kind, part) in enumerate(PARTS if seconds else (("asan", 0.0),)):
        limit = limits(target, seconds * part, seed + number)
        if kind == "reach":
            grown = Path(scratch) / target
            grown.mkdir()
            limit += ["--keep", str(grown)]
        done = run([str(BUILD / kind / target), *limit, *corpus], scratch, seconds)
        if done.returncode != 0:
            return Verdict(target, False, text=done.stderr)
        told = counts(done)
        executions += told["executions"]
        replayed = replayed or told["replayed"]
        if kind == "reach":
            corpus.append(str(grown))
    for kind in ("planted", "planted-quick") if seconds else ("planted",):
        finding = ["--finding", str(BUILD / f"planted-{target}")]
        command = [str(BUILD / kind / target), "--runs", str(PLANTED_RUNS), *finding]
        said = ""
        for number in range(PLANTED_SEEDS):
            caught = run([*command, "--seed", str(number + 1), corpus[0]], scratch, seconds)
            said = caught.stderr
            if caught.returncode == 1 and "finding: " in said:
                break
        else:
            text = f"{kind}: the planted bug was not found\n{said}"
            return Verdict(target, False, replayed, executions, 0, text)
    return Verdict(target, True, replayed, executions, 1)


def run_python(target: str, seconds: float, seed: int, scratch: str) -> Verdict:
    """A target in Python: its loop does both."""
    done = run([sys.executable, "-m", "fuzz.loop", target, *limits(target, seconds, seed)], scratch, seconds)
    told = counts(done)
    planted = told.get("planted", 0)
    text = done.stderr if done.returncode == 0 or not told else "the planted bug was not found\n"
    return Verdict(target, done.returncode == 0, told.get("replayed", 0), told.get("executions", 0), planted, text)


def main() -> int:
    """See above."""
    parser = argparse.ArgumentParser()
    parser.add_argument("targets", nargs="*", choices=[[], *PLANTED, *TARGETS], metavar="TARGET")
    parser.add_argument("--seconds", type=float, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", "-j", type=int, default=os.cpu_count() or 1)
    asked = parser.parse_args()
    started = time.monotonic()
    unpack()
    with (
        tempfile.TemporaryDirectory(prefix="hf-fuzz-", dir="/dev/shm") as scratch,
        ThreadPoolExecutor(asked.jobs) as pool,
    ):
        names = sorted(asked.targets or [*PLANTED, *TARGETS], key=lambda name: -SHARES.get(name, 1))

        def fuzzed(name: str) -> Verdict:
            fuzz = run_c if name in PLANTED else run_python
            return fuzz(name, asked.seconds * SHARES.get(name, 1), asked.seed, scratch)

        done = []
        for verdict in pool.map(fuzzed, names):
            done.append(verdict)
            print(*verdict.text.splitlines()[-TEXT_LINES:], sep="\n", end="\n" if verdict.text else "")
            said = f"{verdict.target}: {verdict.inputs} inputs, {verdict.executions} mutants"
            print(f"  {'ok  ' if verdict.ok else 'FAIL'}  {said}", flush=True)
    failed = sum(not verdict.ok for verdict in done)
    record(
        "fuzz",
        counts={
            "targets": len(done),
            "inputs": sum(verdict.inputs for verdict in done),
            "mutants": sum(verdict.executions for verdict in done),
            **{f"mutants of {verdict.target}": verdict.executions for verdict in done},
        },
        findings=sum(not verdict.ok and not verdict.executions for verdict in done),
        planted=(sum(verdict.planted for verdict in done), len(done)),
        seconds=time.monotonic() - started,
        seed=asked.seed,
    )
    print(f"fuzz: {len(done) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
