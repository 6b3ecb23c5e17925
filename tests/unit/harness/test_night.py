"""The ledger of the nights: a slice is a line, the next night goes on, and what is found ends it
(night.py)."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import msgspec
import pytest
from evidence import Evidence
from night import PARTS, Entry, Part, ledger, night, release, summary, total, trouble

DOES = "from evidence import record; record('harness', counts={'cuts': 40}, findings=0, planted=(1, 1), seconds=1)"


def part(program: str = DOES) -> Part:
    return Part("cuts", (sys.executable, "-c", program), "cuts", 100)


def test_a_night_goes_on_until_the_goal_is_reached(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    assert night(part(), path, minutes=1e6) == 0
    assert total(part(), ledger(path), release()) == 120
    assert night(part(), path, minutes=1e6) == 0  # nothing is left to do
    assert len(ledger(path)) == 3


def test_a_slice_is_told_what_is_done(tmp_path: Path) -> None:
    """Else each would begin with the same seed."""
    path, seen = tmp_path / "ledger", tmp_path / "seen"
    program = f"open({str(seen)!r}, 'a').write('{{done}} '); {DOES}"
    assert night(part(program), path, minutes=1e6) == 0
    assert seen.read_text() == "0 40 80 "


def test_a_night_begins_no_slice_that_would_end_too_late(tmp_path: Path) -> None:
    """Each look at the clock is three minutes after the one before: a slice takes as long."""
    path = tmp_path / "ledger"
    assert night(part(), path, minutes=10, clock=(180.0 * n for n in itertools.count()).__next__) == 0
    assert len(ledger(path)) == 1
    assert night(part(), path, minutes=1e6) == 0
    assert len(ledger(path)) == 3


def test_another_release_owes_all_of_it_again(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    old = Entry("cuts", "0.0.1", "c", "d", Evidence("harness", {"cuts": 100}, 0, (0, 0), 1.0))
    path.write_bytes(msgspec.json.encode(old) + b"\n")
    assert total(part(), ledger(path), release()) == 0
    assert night(part(), path, minutes=1e6) == 0
    assert len(ledger(path)) == 4


@pytest.mark.parametrize(
    "program",
    [
        "from evidence import record; record('harness', counts={'cuts': 40}, findings=1, seconds=1)",
        "raise SystemExit(1)",
        DOES + "; raise SystemExit(1)",
    ],
)
def test_a_slice_that_finds_something_ends_the_night_and_stays_in_the_ledger(program: str, tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    assert night(part(program), path, minutes=1e6) == 1
    assert sum(entry.run.findings for entry in ledger(path)) == 1


def test_a_planted_bug_that_is_not_caught_ends_the_night(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    assert night(part(DOES.replace("(1, 1)", "(1, 2)")), path, minutes=1e6) == 1
    (entry,) = ledger(path)
    assert trouble(entry.run) == "1 planted bugs not caught"


def test_a_part_that_is_not_possible_here_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    assert night(part("raise SystemExit(77)"), path, minutes=1e6) == 77
    assert ledger(path) == []


def test_a_line_that_is_no_entry_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    path.write_text('{"part": "cuts"}\n')
    with pytest.raises(msgspec.ValidationError):
        ledger(path)


def test_the_sum_of_a_release_has_all_its_slices_and_no_other() -> None:
    def entry(of: str, commit: str, cuts: int, findings: int = 0) -> Entry:
        return Entry("cuts", of, commit, "d", Evidence("harness", {"cuts": cuts}, findings, (2, 3), 90.0))

    entries = [entry("1.0", "c1", 1000), entry("1.1", "c2", 1000), entry("1.1", "c2", 500, 1), entry("1.1", "c3", 7)]
    assert "| cuts | 1,507 cuts | 2,000 | 1 | 6 of 9 | 3 | 4 min | c2, c3 |\n" in summary(entries, "1.1")
    assert "| kills | 0 kills | 1,000,000 | 0 | 0 of 0 | 0 | 0 min | – |\n" in summary(entries, "1.1")


def test_each_part_has_a_name_of_its_own() -> None:
    assert len({each.name for each in PARTS}) == len(PARTS)


def test_a_busy_run_counts_what_make_busy_prints() -> None:
    """A goal in a word that no record has would never be reached. `make busy` prints its record as its last
    line."""
    busy = next(each for each in PARTS if each.name == "busy")
    assert list(busy.command[:5]) == [sys.executable, "-m", "evidence_run", "busy", "--"]
    rule = (Path(__file__).parents[2] / "evidence.mk").read_text().split("\nbusy:", 1)[1].split("\n\n", 1)[0]
    assert f'"counts": {{"{busy.what}": $(RUNS)}}' in rule
