"""The report of what the harnesses did: it is good only when every one of them ran, did enough, and caught
what was planted."""

from __future__ import annotations

import importlib.util
import re
import sys
import time
from pathlib import Path

import evidence
import evidence_report
import evidence_run
import pytest
from evidence_plan import FUZZ, HARNESSES, Harness, command, parts, run
from evidence_report import WALL_MINUTES, by_night, by_the_clock, judge, records, report
from fuzz.plant import PLANTED
from fuzz.targets import TARGETS
from night import Entry

TESTS = Path(__file__).resolve().parents[2]
KILLS = Harness("kills", "kills things", least={"kills": 100}, planted=1)


def write(directory: Path, monkeypatch: pytest.MonkeyPatch, **facts: object) -> None:
    monkeypatch.setenv(evidence.DIRECTORY, str(directory))
    whole = {"counts": {"kills": 100}, "findings": 0, "planted": (1, 1), "seconds": 2.0, "seed": 7, **facts}
    evidence.record("kills", **whole)  # type: ignore[arg-type]  # a test's table


@pytest.mark.parametrize(
    ("facts", "wrong"),
    [
        ({}, ""),
        ({"counts": {"kills": 99}}, "99 of 100 kills"),
        ({"findings": 2}, "2 findings"),
        ({"planted": (0, 0)}, "0 of 1 bugs planted"),
        ({"planted": (1, 3)}, "2 planted bugs not caught"),
    ],
)
def test_a_row_is_good_only_when_all_of_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, facts: dict[str, object], wrong: str
) -> None:
    write(tmp_path, monkeypatch, **facts)
    (verdict,) = judge([KILLS], records(tmp_path))
    assert verdict.wrong == wrong
    assert ("all rows are good" in report([verdict], {})) == (not wrong)


def test_a_harness_that_was_not_run_is_told(tmp_path: Path) -> None:
    (verdict,) = judge([KILLS], records(tmp_path))
    assert verdict.wrong == "not run"


def test_a_harness_that_is_not_possible_here_is_neither_wrong_nor_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, monkeypatch, counts={}, planted=(0, 0), skipped="no root")
    (verdict,) = judge([KILLS], records(tmp_path))
    assert (verdict.wrong, verdict.skipped) == ("", "no root")
    text = report([verdict], {})
    assert "| skipped: no root |" in text
    assert "all rows are good; 1 could not run on this machine" in text


def test_a_run_that_was_skipped_excuses_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, monkeypatch, counts={"kills": 99})
    monkeypatch.setattr("evidence.os.getpid", lambda: 1)
    write(tmp_path, monkeypatch, counts={}, planted=(0, 0), skipped="no root")
    (verdict,) = judge([KILLS], records(tmp_path))
    assert (verdict.wrong, verdict.skipped) == ("99 of 100 kills", "")


def test_the_whole_is_measured_by_the_clock(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    assert "is not written" in by_the_clock(begun, 0.0).wrong
    begun.write_text("1000\n")
    in_time = by_the_clock(begun, 1000.0 + 60 * WALL_MINUTES)
    assert (in_time.wrong, in_time.seconds) == ("", 60.0 * WALL_MINUTES)
    assert by_the_clock(begun, 1001.0 + 60 * WALL_MINUTES).wrong
    assert by_the_clock(begun, 1060.0 + 60 * WALL_MINUTES).wrong == f"{WALL_MINUTES + 1:.1f} of {WALL_MINUTES} minutes"


@pytest.mark.parametrize(
    ("findings", "planted", "wrong"),
    [
        (0, (2, 2), ""),
        (1, (2, 2), "cuts at c2: 1 findings"),
        (0, (1, 2), "cuts at c2: 1 planted bugs not caught"),
        (2, (0, 2), "cuts at c2: 2 findings, 2 planted bugs not caught"),
    ],
)
def test_what_a_night_of_this_release_found_makes_the_evidence_bad(
    findings: int, planted: tuple[int, int], wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slice_of(of: str, commit: str, found: int, caught: tuple[int, int]) -> Entry:
        return Entry("cuts", of, commit, "d", evidence.Evidence("torture_cuts", {"cuts": 9}, found, caught, 60.0))

    old, good = slice_of("0.0.1", "c0", 5, (0, 9)), slice_of("1.0", "c1", 0, (2, 2))
    ours = slice_of("1.0", "c2", findings, planted)
    verdict = by_night([old, good, ours], "1.0")
    assert (verdict.wrong, verdict.counts, verdict.findings) == (wrong, {"slices": 2}, findings)
    write(tmp_path, monkeypatch)
    (tmp_path / "begun").write_text(str(int(time.time())))
    monkeypatch.setattr(evidence_report, "ROWS", (KILLS,))
    monkeypatch.setattr(evidence_report, "ledger", lambda: [old, good, ours])
    monkeypatch.setattr(evidence_report, "release", lambda: "1.0")
    monkeypatch.setattr(sys, "argv", ["evidence_report", str(tmp_path), str(tmp_path / "EVIDENCE.md")])
    assert evidence_report.main() == bool(wrong)
    assert ("rows are not good" in (tmp_path / "EVIDENCE.md").read_text()) == bool(wrong)


def test_what_the_plan_runs_is_there() -> None:
    """A command whose file or target has another name by now would be a row that was not run, an hour
    later."""
    lines = [
        line
        for harness in HARNESSES
        for line in (*harness.commands, *(night.command for night in harness.nights.values()))
    ]
    assert len(lines) > 40
    targets = "".join(path.read_text() for path in [TESTS.parent / "Makefile", *TESTS.rglob("*.mk")])
    for line in lines:
        words = command(line)
        if "make" in words:
            target = words[words.index("make") + 2]
            assert re.search(rf"^{target}:", targets, re.MULTILINE), line
        for word in words:
            if word.startswith("tests/"):
                assert (TESTS.parent / word).exists(), word
            if word.startswith("build/c/plain/"):
                assert (TESTS / "c" / f"{Path(word).name}.c").exists(), word
        modules = [
            words[place + 1] for place, word in enumerate(words) if word == "-m" and words[place - 1] == sys.executable
        ]
        assert all(importlib.util.find_spec(module) for module in modules), line


def test_every_harness_is_asked_for_something() -> None:
    assert [harness.name for harness in HARNESSES if harness.commands and not (harness.least or harness.planted)] == []
    assert len({harness.name for harness in HARNESSES}) == len(HARNESSES)
    assert all(harness.commands or harness.nights for harness in HARNESSES)
    assert len(parts()) == sum(len(harness.nights) for harness in HARNESSES)


def test_a_harness_that_fails_does_not_stop_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(evidence.DIRECTORY, str(tmp_path))
    says = "from evidence import record; record('{}', counts=dict(it=1), findings=0, seconds=1)"
    good = f'{{py}} -c "{says.format("good")}"'
    plan = [
        Harness("bad", "", ('{py} -c "raise SystemExit(1)"',)),
        Harness("good", "", (good,), beside=True),
        Harness("good too", "", (good, '{py} -c "raise SystemExit(77)"'), beside=True),
        Harness("last", "", (f'{{py}} -c "{says.format("last")}"',)),
    ]
    run(plan, 2)
    assert sorted(found.name for found in records(tmp_path)) == ["good", "good", "last"]


def test_every_fuzz_target_has_a_floor() -> None:
    assert set(FUZZ) == {*PLANTED, *TARGETS}


def test_all_runs_of_a_harness_add_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, monkeypatch, counts={"kills": 40})
    monkeypatch.setattr("evidence.os.getpid", lambda: 1)
    write(tmp_path, monkeypatch, counts={"kills": 60}, planted=(0, 0), seed=8)
    (verdict,) = judge([KILLS], records(tmp_path))
    assert (verdict.counts, verdict.planted, verdict.wrong) == ({"kills": 100}, (1, 1), "")
    assert sorted(verdict.seeds) == [7, 8]


def test_a_program_prints_its_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(evidence.DIRECTORY, str(tmp_path))
    line = '{"evidence": "kills", "counts": {"kills": 60}, "findings": 0, "planted": [1, 1]}'
    monkeypatch.setattr(sys, "argv", ["evidence_run", "kills", "--", "sh", "-c", f"echo hello; echo '{line}'; exit 3"])
    assert evidence_run.main() == 3
    (run,) = records(tmp_path)
    assert (run.counts, run.planted, run.findings) == ({"kills": 60}, (1, 1), 1)


def test_a_program_that_cannot_run_here_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(evidence.DIRECTORY, str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["evidence_run", "kills", "--", "sh", "-c", "echo 'skipped: no root'; exit 77"])
    assert evidence_run.main() == 77
    (run,) = records(tmp_path)
    assert (run.skipped, run.findings) == ("no root", 0)


def test_nothing_is_written_unless_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(evidence.DIRECTORY, raising=False)
    evidence.record("kills", counts={}, findings=0, seconds=0.0)
    assert not list(tmp_path.iterdir())


def test_the_report_is_a_file_and_an_exit_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, monkeypatch)
    (tmp_path / "begun").write_text(str(int(time.time())))
    monkeypatch.setattr(evidence_report, "ROWS", (KILLS,))
    monkeypatch.setattr(sys, "argv", ["evidence_report", str(tmp_path), str(tmp_path / "EVIDENCE.md")])
    assert evidence_report.main() == 0
    assert "| kills | kills things | 100 kills | 0 | 1 of 1 |" in (tmp_path / "EVIDENCE.md").read_text()
    monkeypatch.setattr(evidence_report, "ROWS", (KILLS, Harness("other", "was not run")))
    assert evidence_report.main() == 1
    monkeypatch.setattr(evidence_report, "ROWS", (KILLS,))
    (tmp_path / "begun").write_text("0")
    assert evidence_report.main() == 1
    assert "| by the clock |" in (tmp_path / "EVIDENCE.md").read_text()


def test_a_command_without_a_record_of_its_own_gets_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test that was skipped shows nothing; a planted bug that is not caught is a finding."""
    monkeypatch.setenv(evidence.DIRECTORY, str(tmp_path / "evidence"))
    (tmp_path / "test_some.py").write_text(
        "import pytest\ndef test_good(record_property): record_property('kills', 7)\ndef test_planted_one(): pass\n"
        "def test_planted_two(): assert False\ndef test_planted_three(): pytest.importorskip('no_such_module')\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "-c", "/dev/null", str(tmp_path / "test_some.py")]
    monkeypatch.setattr(sys, "argv", ["evidence_run", "some", "--planted", "planted", "--", *command])
    assert evidence_run.main() == 1
    (run,) = records(tmp_path / "evidence")
    assert (run.counts, run.planted, run.findings) == ({"tests": 1, "kills": 7}, (1, 2), 1)


def test_tests_that_were_all_skipped_say_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(evidence.DIRECTORY, str(tmp_path / "evidence"))
    (tmp_path / "test_some.py").write_text(
        "import pytest\npytestmark = pytest.mark.skipif(True, reason='no spin')\ndef test_one(): pass\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "-c", "/dev/null", str(tmp_path / "test_some.py")]
    monkeypatch.setattr(sys, "argv", ["evidence_run", "some", "--", *command])
    assert evidence_run.main() == 0
    (run,) = records(tmp_path / "evidence")
    assert (run.counts, run.findings, run.skipped) == ({}, 0, "no spin")
