"""The targets of make: what a developer does daily in the Makefile, the rest beside what it builds (`make
more`)."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DAILY = ROOT / "Makefile"
LISTED = re.compile(r"^([a-z-]+):.*## (.*)$", re.MULTILINE)
SCREEN = 24, 115
"""Lines, and columns, of a list."""


def rules() -> list[Path]:
    """The files that the Makefile includes."""
    (names,) = re.findall(r"^RULES := (.*)$", DAILY.read_text(), re.MULTILINE)
    return [ROOT / name for name in names.split()]


def test_each_list_fits_a_screen() -> None:
    listed = [
        LISTED.findall(DAILY.read_text()),
        [each for path in rules() for each in LISTED.findall(path.read_text())],
    ]
    assert min(map(len, listed)) > 10
    for targets in listed:
        assert len(targets) < SCREEN[0]
        assert all(len(f"  make {name:13} {what}") < SCREEN[1] for name, what in targets)


def test_every_target_that_is_listed_is_no_file() -> None:
    """perf is a folder: without .PHONY `make perf` would do nothing."""
    for path in [DAILY, *rules()]:
        text = path.read_text()
        phony = {name for names in re.findall(r"^\.PHONY: (.*)$", text, re.MULTILINE) for name in names.split()}
        assert {name for name, _ in LISTED.findall(text)} <= phony, path


def test_there_are_no_other_files_of_rules() -> None:
    folders = ("tests", "perf", "csrc", "bindings", "engine", "docs")
    assert sorted(path for folder in folders for path in (ROOT / folder).rglob("*.mk")) == sorted(rules())
