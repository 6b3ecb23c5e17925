"""The plan of the evidence: each harness with its commands, what a release asks of it, and what its nights
owe.

``python -m evidence_plan`` runs what a release owes: `make evidence`, whose report (evidence_report.py)
judges by the same plan. `make night PART=...` runs one harness of it again and again (night.py). A harness
that fails does not stop the others. Those that keep at most one core busy run side by side, the longest
first, one more than there are cores: the long ones wait for their processes a third of the time. The others
want the machine.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from evidence import DIRECTORY

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ["FUZZ", "HARNESSES", "Harness", "Night", "command", "parts", "run"]

TESTS = Path(__file__).resolve().parent
MAKE = "make --no-print-directory"
PLAIN = "build/c/plain"
HISTORIES = "tests/model/test_histories.py tests/model/test_censuses.py"
PROPERTIES = "tests/model " + " ".join(f"--ignore={path}" for path in HISTORIES.split())
FUZZ = (
    "segment", "head", "stream", "board", "frames", "state", "wire", "info", "flat", "xml", "store_xml", "offsets", "ddl",
    "block", "census",
)  # fmt: skip
"""The fuzz targets."""
DISK_TESTS = " ".join(
    f"tests/process/{part}/test_{name}.py"
    for part, name in (
        ("faults", "bad_sectors"),
        ("source", "unreadable_peers"),
        ("store", "read_only"),
        ("store", "hung_disk"),
    )
)
"""Tests of disks that give errors; some of them mount, or hide what is mounted."""
LIMIT_TESTS = " ".join(
    f"tests/process/{name}.py"
    for name in ("faults/test_limits", "faults/test_other_users", "client/test_fork", "client/test_liveness")
)
AS_ROOT = "real_disk or in_a_container"
DISK_PROGRAMS = " ".join(f"{PLAIN}/test_log_{name}" for name in ("sectors", "failed_reads", "faults", "calls"))


@dataclass(frozen=True, slots=True)
class Night:
    """A part of the night. ``command``: one slice of some minutes, before which ``{done}`` of ``what`` are
    done. ``goal``: how many a release owes."""

    command: str
    what: str
    goal: int


@dataclass(frozen=True, slots=True)
class Harness:
    """A row of EVIDENCE.md.

    Attributes:
        commands: what a release runs, as a shell reads it; ``{py}`` is this interpreter.
        least: what it must have done.
        planted: this many planted bugs it must have caught.
        beside: it keeps one core busy, or waits, and others may run beside it. Else it runs alone, one
            command at a time.
        nights: by the name of the part.
    """

    name: str
    what: str
    commands: tuple[str, ...] = ()
    least: Mapping[str, int] = field(default_factory=dict)
    planted: int = 0
    beside: bool = False
    nights: Mapping[str, Night] = field(default_factory=dict)


def _recorded(name: str, line: str, planted: str = "") -> str:
    """A command that has no record of its own (evidence_run.py)."""
    word = f" --planted {planted}" if planted else ""
    return f"{{py}} -m evidence_run {name}{word} -- {line}"


def _pytest(name: str, what: str, planted: str = "", profile: str = "") -> str:
    line = _recorded(name, f"{{py}} -m pytest -q -n0 {what}", planted)
    return f"env HYPOTHESIS_PROFILE={profile} {line}" if profile else line


def _litmus(name: str, what: str, least: Mapping[str, int], planted: int) -> Harness:
    """A round of litmus_sleep with membarrier takes 60 us, hence the second figure."""
    run = _recorded(f"litmus_{name}", f"{PLAIN}/litmus_{name} 1000000 100000")
    long = _recorded(f"litmus_{name}", f"{PLAIN}/litmus_{name} 100000000 10000000")
    night = {f"litmus_{name}": Night(long, "rounds", 100_000_000)}
    return Harness(f"litmus_{name}", what, (run,), least, planted, nights=night)


def _lab(
    name: str, what: str, least: Mapping[str, int], planted: int, night: Mapping[str, Night], *, beside: bool = False
) -> Harness:
    run = f"{{py}} -m torture_lab {name} --short"
    return Harness(f"torture_{name}", what, (run,), least, planted, beside, night)


HARNESSES = (
    Harness("c-test", "C tests", (f"{MAKE} c-test",), {"programs": 42}),
    Harness("asan", "C tests under AddressSanitizer and UBSan", (f"{MAKE} asan",), {"programs": 42}, 2),
    Harness("tsan", "C tests under ThreadSanitizer", (f"{MAKE} tsan",), {"programs": 42}, 1),
    Harness(
        "py-asan", "tests of receiving, extension modules under AddressSanitizer and UBSan", (f"{MAKE} py-asan",),
        {"tests": 250}, 2,
    ),
    Harness(
        "fuzz", "files, ring, board, frames, messages, configuration", (f"{MAKE} fuzz S=60",),
        {"targets": len(FUZZ), "mutants": 30_000_000} | {f"mutants of {target}": 25_000 for target in FUZZ}, len(FUZZ),
        nights={"fuzz": Night(f"{MAKE} fuzz S=300", "mutants", 2_000_000_000)},
    ),
    Harness(
        "simulator", "the product itself over a simulated kernel, disks that lie, and a scheduler",
        ("{py} -m simulator -n 10000 -j {jobs}",), {"seeds": 10_000},
        nights={"simulator": Night("{py} -m simulator --first {done} -n 50000 -j {jobs}", "seeds", 1_000_000)},
    ),
    Harness(
        "soak", "half an hour of stores, sources and receivers under kills, stops and wipes, beside every operator's command",
        (f"{MAKE} soak MINUTES=30 SEED=1",), {"minutes": 30, "stable messages": 200_000, "throw-away receivers": 100}, 18,
        beside=True,
    ),
    Harness(  # in two halves, since each waits for its processes a third of its time
        "torture", "kill -9 and SIGSTOP of sources, stores, receivers at random moments; 1 and 3 stores",
        ("{py} tests/torture_lab/kills.py --kills 10000",) * 2, {"kills": 20_000, "stops": 500}, beside=True,
        nights={"kills": Night("{py} tests/torture_lab/kills.py --kills 20000", "kills", 1_000_000)},
    ),
    _lab(
        "matrix", "every failpoint: killed, stopped, failing; 1, 2 and 3 stores", {"cells": 3 * 496}, 1,
        {"cells": Night("{py} -m torture_lab matrix --short", "cells", 30_000)}, beside=True,
    ),
    Harness(
        "simulator_planted", "the same with a bug planted in the product's lines, each found within 2,000 seeds",
        (_pytest("simulator_planted", "tests/simulator/test_planted.py", "planted_bug"),), planted=92, beside=True,
    ),
    Harness(
        "coverage_seeds", "what seeds alone reach of repository, drainer, catch-up, expiry, registrations: lines and branches",
        ("{py} -m simulator.reach -j 1",), {"seeds": 250, "modules": 13, "percent of each module": 80}, beside=True,
    ),
    Harness(
        "lines", "bugs of one line in rules that no seed, model or torture reaches; each is noticed by its test",
        (_pytest("lines", "tests/test_planted_lines.py", "planted_bug"),), planted=34, beside=True,
    ),
    Harness(
        "torn_images", "images of a log with any mixture of sectors since its last sync",
        tuple(_recorded("torn_images", f"{PLAIN}/test_log_power 100000{seed}") for seed in ("", " 1000000")),
        {"images": 200_000}, 2, beside=True,
        nights={"images": Night(_recorded("torn_images", f"{PLAIN}/test_log_power 1000000 {{done}}"), "images", 10_000_000)},
    ),
    Harness(
        "bit_flips", "each bit of a segment of 64 KiB", (_recorded("bit_flips", f"{PLAIN}/torture_flips all"),),
        {"flips": 524_288}, 200, beside=True,
    ),
    Harness(
        "failing_calls",
        "the N-th system call of a log's life fails; or the process dies there, and so do three openings after it",
        (_recorded("failing_calls", f"{PLAIN}/torture_syscalls 1"),), {"calls_failed": 1500, "deaths": 900}, 1,
        beside=True,
        nights={"calls": Night(_recorded("failing_calls", f"{PLAIN}/torture_syscalls 100"), "calls_failed", 150_000)},
    ),
    Harness(
        "properties", "Hypothesis: stream, log and persistence against models",
        (_pytest("properties", PROPERTIES, "planted_bug"),),
        {"tests": 2, "examples": 2000}, 5, beside=True,
        nights={
            "properties": Night(
                _pytest("properties", PROPERTIES, "planted_bug", "long"),
                "examples", 50_000,
            )
        },
    ),
    Harness(
        "histories",
        "lives of one source, with stores away, unreadable, wiped, restored, late, and the register or a census harmed",
        (_pytest("histories", HISTORIES, "planted_bug"),), {"histories": 45_000}, 25, beside=True,
        nights={
            "histories": Night(
                _pytest("histories", HISTORIES, "planted_bug", "long"), "histories", 1_000_000
            )
        },
    ),
    Harness(
        "models", "Spin models of ring, board, BEGIN and register, whole state space, and their mutants",
        (_pytest("models", "tests/models", "broken_protocol"),), {"states": 69_000_000}, 80, beside=True,
    ),
    _lab(
        "power", "power cuts of an ext4 image under a store", {"cuts": 150}, 1,
        {"power": Night("{py} -m torture_lab power --short", "cuts", 5_000)}, beside=True,
    ),
    _lab(
        "cuts",
        "power cuts of whole systems: 1, 2, 3 and 5 stores with an image each, backups, two groups; disks that vanish",
        {"cuts": 150, "systems": 30, "vanished": 20}, 5,
        {"cuts": Night("{py} -m torture_lab cuts --short", "cuts", 2_000)}, beside=True,
    ),
    _lab(
        "flips", "each bit of a store's state; bits of a log, mended from a peer",
        {"bits of state": 12_000, "bits of logs": 500, "mended": 500}, 1,
        {"flips": Night("{py} -m torture_lab flips --short", "bits of logs", 10_000)}, beside=True,
    ),
    Harness(
        "limits",
        "disk or shared memory full, RLIMIT_FSIZE, other users, two stores in one directory, other layouts, fork, pid reuse",
        (_pytest("limits", LIMIT_TESTS),),
        {"tests": 50}, beside=True,
    ),
    Harness(
        "bad_disks",
        "bad sectors, failed reads of every call, peers that cannot be read, disks that hang; C programs and whole systems",
        (f"sh tests/c/run.sh bad_disks {DISK_PROGRAMS}", _pytest("bad_disks", f"{DISK_TESTS} -k 'not ({AS_ROOT})'")),
        {"tests": 17, "programs": 4}, beside=True,
    ),
    Harness(
        "real_disks",
        "an image that is cut or becomes read-only (EROFS) while it is mounted; a store that sees no peer's mount",
        (_pytest("real_disks", f"{DISK_TESTS} -k '{AS_ROOT}'"),), {"tests": 3}, beside=True,
    ),
    _litmus("commit", "payload and commit word, two threads", {"rounds": 1_000_000}, 1),
    _litmus("pin", "pin against eviction (store-load), two threads", {"rounds": 1_000_000}, 2),
    _litmus(
        "sleep", "sleeping flag against commit and ack (store-load), two threads",
        {"rounds": 2_000_000, "rounds with membarrier": 200_000}, 2,
    ),
    _lab(
        "peers", "garbage in ring, board, bells and at the door; under load, names removed and the clock stepped by days",
        {"clock steps under load": 30, "removals under load": 25, "hostile clients": 5_000}, 4,
        {"peers": Night("{py} -m torture_lab peers", "hostile clients", 500_000)},
    ),
    Harness(
        "torture_planted", "kills with a bug planted: at C level, and with 3 stores",
        tuple(
            f"{{py}} tests/torture_lab/kills.py {kills} --seed 1 --mutant drain.publish_early"
            for kills in ("--kills 1000 --core 1000", "--kills 2000 --core 0 --exec 0")
        ),
        planted=2,
    ),
    Harness(
        "mutants", "rules with one operator changed, each of which a unit test or a seed of the simulator must notice",
        nights={"mutants": Night("{py} -m mutants --first {done} -n 300", "mutants", 1_200)},
    ),
    # A slice is `make test`, whose harnesses write no records of their own here: all of it counts as one run.
    Harness(
        "busy", "make test beside stress-ng",
        nights={
            "busy": Night(_recorded("busy", f"env -u {DIRECTORY} -u PYTHONPATH {MAKE} busy RUNS=1"), "runs", 5)
        },
    ),
)  # fmt: skip


def parts() -> dict[str, Night]:
    """Every part of the night, by name."""
    return {name: night for harness in HARNESSES for name, night in harness.nights.items()}


def command(line: str, jobs: int = os.cpu_count() or 1) -> list[str]:
    """What to execute."""
    return [word.replace("{py}", sys.executable).replace("{jobs}", str(jobs)) for word in shlex.split(line)]


def run(harnesses: Iterable[Harness], jobs: int) -> None:
    """All of them, in the plan's order; what each found is in its record."""
    for beside, group in groupby(harnesses, key=lambda harness: harness.beside):
        lines = [line for harness in group for line in harness.commands]
        with ThreadPoolExecutor(jobs + 1 if beside else 1) as pool:
            for _ in pool.map(lambda line: _do(command(line, jobs)), lines):
                pass


def _do(words: Sequence[str]) -> None:
    print("evidence:", shlex.join(words), flush=True)
    subprocess.run(words, env={**os.environ, "PYTHONPATH": str(TESTS)}, check=False)


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(prog="evidence_plan", description=__doc__)
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, metavar="J", help="side by side (one per core)"
    )
    run(HARNESSES, parser.parse_args().jobs)


if __name__ == "__main__":
    main()
