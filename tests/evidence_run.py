"""Runs a command that has no record of its own, and writes one: ``python -m evidence_run NAME [--planted
WORD] -- COMMAND...``.

pytest is asked for its JUnit file: every test that passed counts, those with WORD in their name as planted
bugs, and what a test recorded as a property with a number. Another command may print the record itself, as C
programs do ({"evidence": ...}); else its exit code alone counts. Exit code 77, or tests of which every one
was skipped: the harness is not possible here.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from evidence import record
from lxml import etree

__all__ = ["main"]

SKIPPED = 77


class _Tests(NamedTuple):
    """What a JUnit file tells. ``skipped``: why nothing of it ran."""

    counts: dict[str, int]
    planted: tuple[int, int]
    skipped: str


def main() -> int:
    """The command's exit code."""
    own, command = sys.argv[1:], []
    if "--" in own:
        own, command = own[: own.index("--")], own[own.index("--") + 1 :]
    parser = argparse.ArgumentParser(prog="evidence_run", description=__doc__)
    parser.add_argument("name")
    parser.add_argument("--planted", metavar="WORD", help="tests with WORD in their name have a bug planted")
    given = parser.parse_args(own)
    if not command:
        parser.error("which command?")
    with tempfile.TemporaryDirectory() as folder:
        junit = Path(folder) / "junit.xml"
        begun = time.monotonic()
        # xunit1: the later format has no place for what a test records.
        told_by = [f"--junitxml={junit}", "-o", "junit_family=xunit1"] if "pytest" in command else []
        with subprocess.Popen([*command, *told_by], stdout=subprocess.PIPE, text=True) as process:
            told, last = _passed_on(process)
        seconds, code = time.monotonic() - begun, process.returncode
        counts, planted, skipped = _tally(junit, given.planted)
    if told:
        counts, planted = told["counts"], (told["planted"][0], told["planted"][1])
    if code == SKIPPED:
        skipped = last.removeprefix("skipped: ") or "it did not say why"
    findings = int(code not in (0, SKIPPED))
    record(given.name, counts=counts, findings=findings, planted=planted, seconds=seconds, skipped=skipped)
    return code


def _passed_on(process: subprocess.Popen[str]) -> tuple[dict[str, Any], str]:
    """Prints what the command prints, and returns its record, if there is one, and its last line."""
    told: dict[str, Any] = {}
    line = ""
    for line in process.stdout or ():
        print(line, end="", flush=True)
        if line.startswith('{"evidence"'):
            told = json.loads(line)
    return told, line.strip()


def _tally(junit: Path, word: str | None) -> _Tests:
    """Tests that passed, without the planted ones; of these (passed, all). A test that was skipped shows
    nothing."""
    if not junit.exists():
        return _Tests({}, (0, 0), "")
    passed = caught = planted = 0
    counts: dict[str, int] = {}
    skipped = ""
    for case in etree.parse(str(junit)).iter("testcase"):
        mark = case.find("skipped")
        if mark is not None:
            skipped = mark.get("message", "")
            continue
        for found in case.iter("property"):
            name = found.get("name", "")
            counts[name] = counts.get(name, 0) + int(found.get("value", ""))
        good = case.find("failure") is None and case.find("error") is None
        if word and word in case.get("name", ""):
            planted += 1
            caught += good
        else:
            passed += good
    counts = {"tests": passed, **counts} if passed else {}
    return _Tests(counts, (caught, planted), "" if passed or planted else skipped)


if __name__ == "__main__":
    sys.exit(main())
