"""Each part of the lab in its tiniest size: the harness works, and finds what is planted."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from evidence_report import records

from torture_lab import clocks, door, garbage, names, peers
from torture_lab.lab import LOST, Lab, Outcome

TESTS = Path(__file__).resolve().parents[1]
SKIPPED = 77


@pytest.mark.parametrize(("part", "planted"), [("matrix", 1), ("power", 1), ("cuts", 5), ("flips", 1), ("peers", 4)])
def test_a_part_finds_nothing_but_what_is_planted(part: str, planted: int) -> None:
    command = [sys.executable, "-m", "torture_lab", part, "--tiny", "--seed", "1"]
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode == SKIPPED:
        pytest.skip(done.stdout.splitlines()[-1])
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"0 findings, planted bugs caught {planted} of {planted}" in done.stdout


def test_a_planted_bug_is_caught_by_what_it_does_not_by_a_machine_that_is_too_slow() -> None:
    outcome = Outcome(findings=["at log.staged: 40 is processed: not within 90 s, a store called 7 slow"])
    assert outcome.times_found(LOST) == 0
    outcome.findings += [
        "store b called 7 stable, its log ends at 5",
        "everything below 7 was called stable, the log ends at 5",
    ]
    outcome.findings += ["the store called everything below 7 stable, readable is 5"]
    assert outcome.times_found(LOST) == 3


def test_a_part_that_is_not_possible_here_leaves_a_record_that_says_why(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(TESTS), "PATH": str(tmp_path), "HOLDFAST_EVIDENCE": str(tmp_path)}
    command = [sys.executable, "-m", "torture_lab", "power", "--tiny"]  # wants root, and mkfs.ext4 in PATH
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == SKIPPED, done.stdout + done.stderr
    (run,) = records(tmp_path)
    assert run.skipped
    assert done.stdout.endswith(f"skipped: {run.skipped}\n")


def test_a_part_that_fails_itself_leaves_a_record_of_a_finding(tmp_path: Path) -> None:
    program = (
        "import sys; from torture_lab import flips, __main__ as lab\n"
        "def fail(_): raise RuntimeError('no such thing')\n"
        "flips.run = fail; sys.argv[1:] = ['flips', '--tiny']; sys.exit(lab.main())"
    )
    environment = {**os.environ, "PYTHONPATH": str(TESTS), "HOLDFAST_EVIDENCE": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "no such thing" in done.stderr
    (run,) = records(tmp_path)
    assert run.findings == 1


def test_troubles_and_controls_that_raise_anything_are_findings_and_the_others_have_their_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("no such thing")

    for trouble in (clocks, garbage, door, names):
        monkeypatch.setattr(trouble, "plant", fail)
    scenes = ((clocks, "steps"), (garbage, "spoilt"), (garbage, "preambles"), (door, "knocked"), (names, "unnamed"))
    for trouble, scene in scenes:
        monkeypatch.setattr(trouble, scene, fail)
    outcome = peers.run(Lab(tmp_path, 1, 0))
    assert len(outcome.findings) == 4 + 3 + 2 * len(garbage.KINDS)
    assert all("ValueError: no such thing" in found for found in outcome.findings)
