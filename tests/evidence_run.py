"""Runs a command that has no record of its own, and writes one: ``python -m evidence_run NAME [--planted WORD] -- COMMAND...``.

pytest is asked for its JUnit file: every test that passed counts, those with WORD in their name as planted bugs. Another command
may print the record itself, as C programs do ({"evidence": ...}); else its exit code alone counts.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from evidence import record
from lxml import etree

__all__ = ["main"]


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
        whole = [*command, f"--junitxml={junit}"] if "pytest" in command else command
        with subprocess.Popen(whole, stdout=subprocess.PIPE, text=True) as process:
            told = _passed_on(process)
        seconds, code = time.monotonic() - begun, process.returncode
        tests, planted = _tally(junit, given.planted)
    counts = {"tests": tests} if tests else {}
    if told:
        counts, planted = told["counts"], (told["planted"][0], told["planted"][1])
    record(given.name, counts=counts, findings=int(code != 0), planted=planted, seconds=seconds)
    return code


def _passed_on(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Prints what the command prints, and returns its record, if there is one."""
    told: dict[str, Any] = {}
    for line in process.stdout or ():
        print(line, end="", flush=True)
        if line.startswith('{"evidence"'):
            told = json.loads(line)
    return told


def _tally(junit: Path, word: str | None) -> tuple[int, tuple[int, int]]:
    """Tests that passed, without the planted ones; of these (passed, all). A test that was skipped shows nothing."""
    if not junit.exists():
        return 0, (0, 0)
    passed = caught = planted = 0
    for case in etree.parse(str(junit)).iter("testcase"):
        if case.find("skipped") is not None:
            continue
        good = case.find("failure") is None and case.find("error") is None
        if word and word in case.get("name", ""):
            planted += 1
            caught += good
        else:
            passed += good
    return passed, (caught, planted)


if __name__ == "__main__":
    sys.exit(main())
