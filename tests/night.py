"""One part of the night: ``python -m night PART [--minutes M]``, again and again, until this release has what
it owes.

A part runs its harness in slices of some minutes. Each slice that has ended is a line of the ledger,
tests/night.jsonl, which is committed; EVIDENCE.md sums the lines of its release (evidence_report.py).
Whatever interrupts a night takes the slice under way, and no other: the next night goes on with what is
missing. Exit status: 0 nothing found, 1 otherwise, 77 not possible here.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from evidence import DIRECTORY, Evidence
from evidence_plan import command, parts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

__all__ = [
    "LEDGER",
    "PARTS",
    "Entry",
    "Part",
    "ledger",
    "night",
    "of_release",
    "release",
    "summary",
    "total",
    "trouble",
]

TESTS = Path(__file__).resolve().parent
LEDGER = TESTS / "night.jsonl"
SKIPPED = 77


@dataclass(frozen=True)
class Part:
    """A harness of the night (evidence_plan.Night). ``command``: of one slice; ``goal``: how many of ``what``
    a release owes."""

    name: str
    command: Sequence[str]
    what: str
    goal: int


PARTS = tuple(Part(name, command(of.command), of.what, of.goal) for name, of in parts().items())


class Entry(msgspec.Struct, forbid_unknown_fields=True):
    """One line of the ledger: a slice of a part."""

    part: str
    release: str
    commit: str
    date: str
    run: Evidence


def release() -> str:
    """The version that is being made: the first of the changelog."""
    found = re.search(r"^## \[(.+?)\]", (TESTS.parent / "CHANGELOG.md").read_text(), re.MULTILINE)
    if found is None:
        raise ValueError("CHANGELOG.md names no version: expected a line that begins with `## [`")
    return found[1]


def ledger(path: Path = LEDGER) -> list[Entry]:
    """All its lines, the oldest first. Raises msgspec.DecodeError for one that is not an entry."""
    return [msgspec.json.decode(line, type=Entry) for line in path.read_bytes().splitlines()] if path.exists() else []


def of_release(entries: Iterable[Entry], of: str) -> list[Entry]:
    """Those of the release ``of``."""
    return [each for each in entries if each.release == of]


def trouble(run: Evidence) -> str:
    """What a slice found, and what it should have; empty: all is well."""
    caught, planted = run.planted
    wrong = [f"{run.findings} findings"] if run.findings else []
    wrong += [f"{planted - caught} planted bugs not caught"] if caught < planted else []
    return ", ".join(wrong)


def total(part: Part, entries: Iterable[Entry], of: str) -> int:
    """What the release ``of`` has done of it."""
    return sum(each.run.counts.get(part.what, 0) for each in of_release(entries, of) if each.part == part.name)


def summary(entries: Iterable[Entry], of: str) -> str:
    """What the nights of a release did, for EVIDENCE.md."""
    ours = of_release(entries, of)
    lines = [
        "",
        f"What nights have done for {of} (`make night`; tests/night.jsonl has every slice):",
        "",
        "| part | done | of | found | planted bugs caught | slices | time | commits |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for part in PARTS:
        slices = [each for each in ours if each.part == part.name]
        runs = [each.run for each in slices]
        caught, planted = (sum(run.planted[i] for run in runs) for i in (0, 1))
        commits = ", ".join(dict.fromkeys(each.commit for each in slices)) or "–"
        lines.append(
            f"| {part.name} | {total(part, ours, of):,} {part.what} | {part.goal:,} | {sum(run.findings for run in runs)} |"
            f" {caught} of {planted} | {len(runs)} | {sum(run.seconds for run in runs) / 60:,.0f} min | {commits} |"
        )
    return "\n".join(lines) + "\n"


def night(part: Part, path: Path, *, minutes: float, clock: Callable[[], float] = time.monotonic) -> int:
    """Slices, until the goal is reached, something is found, or no other one would end in time."""
    begun, longest, of = clock(), 0.0, release()
    while (done := total(part, ledger(path), of)) < part.goal:
        at = clock()
        if at - begun + longest > 60 * minutes:
            break
        code, runs = _slice(part, done)
        longest = max(longest, clock() - at)
        if code == SKIPPED:
            return SKIPPED
        _append(path, [Entry(part.name, of, _commit(), _now(), run) for run in runs])
        if code or any(map(trouble, runs)):
            return 1
    print(f"night: {part.name}: {done:,} of {part.goal:,} {part.what} of {of}", flush=True)
    return 0


def _slice(part: Part, done: int) -> tuple[int, list[Evidence]]:
    """Its exit status, and what it wrote down. One that fails without saying of what is a finding, too."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, DIRECTORY: folder, "PYTHONPATH": str(TESTS)}
        words = [word.replace("{done}", str(done)) for word in part.command]
        code = subprocess.run(words, env=environment, check=False).returncode
        runs = [msgspec.json.decode(file.read_bytes(), type=Evidence) for file in sorted(Path(folder).glob("*.json"))]
    if code not in (0, SKIPPED) and not any(map(trouble, runs)):
        runs.append(Evidence(part.name, {}, 1, (0, 0), 0.0))
    return code, runs


def _append(path: Path, entries: Iterable[Entry]) -> None:
    """One write for all: a line is there, or not."""
    with path.open("ab") as file:
        file.write(b"".join(msgspec.json.encode(each) + b"\n" for each in entries))
        file.flush()
        os.fsync(file.fileno())


def _commit() -> str:
    """What is tested; that the ledger has grown does not count as a change."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=TESTS, stdout=subprocess.PIPE, text=True, check=False).stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", ":/", f":!{LEDGER.name}")
    return (git("rev-parse", "--short", "HEAD") or "unknown") + ("-dirty" if changed else "")


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(prog="night", description=__doc__)
    parser.add_argument("part", choices=[part.name for part in PARTS])
    parser.add_argument("--minutes", type=float, default=150, metavar="M", help="at most (150)")
    given = parser.parse_args()
    return night(next(part for part in PARTS if part.name == given.part), LEDGER, minutes=given.minutes)


if __name__ == "__main__":
    sys.exit(main())
