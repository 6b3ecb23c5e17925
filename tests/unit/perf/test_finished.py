"""perf/finished.py: bars, and what is written."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from perf import finished
from perf.finished import Row

if TYPE_CHECKING:
    from pathlib import Path

ROWS = [Row("holdfast stat", 0.5, "s", 1), Row("descriptors, at once", 90, "")]


@pytest.mark.parametrize("missed", [True, False])
def test_the_figures_are_written_with_the_machine_that_they_are_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, missed: bool
) -> None:
    rows = [*ROWS, Row("start", 2 if missed else 1, "s", 1)]
    monkeypatch.setattr(finished, "measure", lambda bench, count, recv: rows)
    written = tmp_path / "abacus-finished.json"
    assert finished.main(["-n", "7", "--disk", str(tmp_path), "--json", str(written)]) == int(missed)
    found = json.loads(written.read_text())
    assert found["sources"] == 7
    assert [Row(**row) for row in found["rows"]] == rows
    assert {"cpu", "cores", "commit", "load_before", "load_after"} <= found["machine"].keys()
    assert ("MISSED" in capsys.readouterr().out) == missed


def test_they_go_beside_the_other_results_of_this_kind_of_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert finished.written_to().parent.name == "results"
    monkeypatch.setattr(finished, "RESULTS", tmp_path)
    monkeypatch.setattr(finished, "slug", lambda: "abacus")
    monkeypatch.setattr(finished, "measure", lambda bench, count, recv: ROWS)
    assert finished.main(["--disk", str(tmp_path), "--recv", "--json", "-n", "7"]) == 0
    assert json.loads((tmp_path / "abacus-finished.json").read_text())["sources"] == 7


def test_a_command_that_fails_meets_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finished, "DOMAIN", "no/such/domain")
    with pytest.raises(ValueError, match="holdfast stat ends with"):
        finished.command("stat", good=(0, 1))
