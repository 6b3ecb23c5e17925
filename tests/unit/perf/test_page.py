"""Machine classes side by side, from small result files: what is shown, what is missing, what is refused."""

from __future__ import annotations

import re
import sys
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from perf import cli, floors, page
from perf.__main__ import SCRIPTS
from perf.cli import README, RESULTS, Script, run_all
from perf.floors import Floor, Side
from perf.harness import Sample, Series
from perf.machine import name_of, slug_of, version_in
from perf.report import Report, Section

if TYPE_CHECKING:
    from pathlib import Path

QUESTIONS = {"speed": "How fast?", "size": "How large?"}
FLOOR = Floor("ours", "speed", "ours", Side.AT_MOST, "bare", 2)
ABACUS = {"cpu": "Abacus(R) Processor", "cores": 2, "commit": "c0ffee", "version": "0.2.0", "date": "2026-01-02"}
QUIPU = {"cpu": "Quipu", "cores": 2, "commit": "5eed"}


@pytest.fixture(autouse=True)
def one_floor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(floors, "FLOORS", (FLOOR,))
    monkeypatch.setattr(page, "FLOORS", (FLOOR,))


def series(case: str, value: float, probe: float = 100.0, late: Counter[int] | None = None) -> Series:
    samples = [Sample(value + by, "ns", probe, 0, 0, 64, late or Counter()) for by in (-1, 0, 1)]
    return Series(case, f"title of {case}", samples)


def write(folder: Path, facts: dict[str, object], *found: Series, failed: str = "") -> Path:
    return Report(facts, [Section("speed", "How fast?", found, failed)]).write(folder, slug_of(facts))


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Of two classes; the second one has an older run, without the newest case, and no date."""
    late = Counter({10: 99, 500: 1})
    write(tmp_path, ABACUS, series("ours", 30), series("bare", 20), series("new", 7, 400, late), series("free", 9))
    write(tmp_path, QUIPU, series("ours", 90), series("bare", 20), series("free", 8), series("old", 6))
    return tmp_path


def row(text: str, title: str) -> str:
    (found,) = re.findall(rf"^\| {title} \|.*$", text, re.MULTILINE)
    return str(found)


def test_a_floor_has_one_row_with_all_classes(results: Path) -> None:
    text = page.markdown(results, QUESTIONS)
    assert "| path | floor | beside it | Abacus, 2 cores | ratio | met | Quipu, 2 cores | ratio | met |" in text
    assert row(text, "ours") == "| ours | ≤ 2 × | title of bare | 30 ns | 1.50 | yes | 90 ns | 4.50 | **NO** |"
    assert "- All floors hold on Abacus, 2 cores." in text
    assert "- **MISSED** on Quipu, 2 cores: ours: 90 ns, the floor is ≤ 2 × (= 40 ns)" in text


def test_each_class_has_its_commit_its_date_and_its_probe(results: Path) -> None:
    text = page.markdown(results, QUESTIONS)
    assert (
        "- **Abacus, 2 cores**: version 0.2.0, commit c0ffee, 2026-01-02, probe 100 ns "
        "([all figures](results/abacus-2core.json))" in text
    )
    assert "- **Quipu, 2 cores**: version –, commit 5eed, –, probe 100 ns" in text
    assert '| date | "2026-01-02" | – |' in text


def test_a_case_that_a_run_lacks_is_a_dash(results: Path) -> None:
    text = page.markdown(results, QUESTIONS)
    assert row(text, "title of old") == "| title of old | – | 6 ns [5 ns .. 7 ns] | – |  | 64 B |"
    assert row(text, "title of new") == (
        "| title of new | 7 ns [6 ns .. 8 ns] (probe 400 ns) | – | 10 ns / 500 ns / 500 ns / 500 ns | – | 64 B |"
    )
    assert "### size\n\nHow large?\n\nNot measured." in text


def test_a_floor_that_a_run_lacks_is_three_dashes(results: Path) -> None:
    write(results, QUIPU, series("free", 8))
    assert row(page.markdown(results, QUESTIONS), "ours").endswith("| 30 ns | 1.50 | yes | – | – | – |")


def test_one_class_alone_has_the_page_to_itself(results: Path) -> None:
    (results / "quipu-2core.json").unlink()
    text = page.markdown(results, QUESTIONS)
    assert row(text, "ours") == "| ours | ≤ 2 × | title of bare | 30 ns | 1.50 | yes |"
    assert "Quipu" not in text


def test_without_results_it_says_so(tmp_path: Path) -> None:
    assert page.markdown(tmp_path, QUESTIONS) == "Nothing is measured yet: `make perf`."


def test_a_run_on_one_class_leaves_the_others_columns(results: Path) -> None:
    before = page.markdown(results, QUESTIONS)
    assert page.markdown(results, QUESTIONS) == before
    write(results, ABACUS, series("ours", 31), series("bare", 20))
    after = row(page.markdown(results, QUESTIONS), "ours")
    assert after.split("|")[4] != row(before, "ours").split("|")[4]
    assert after.split("|")[7:] == row(before, "ours").split("|")[7:]


def test_a_script_that_failed_says_so_for_its_class(results: Path) -> None:
    write(results, QUIPU, failed="OSError: no room")
    assert "Not complete on Quipu, 2 cores: OSError: no room" in page.markdown(results, QUESTIONS)


def test_results_of_other_questions_are_no_class(results: Path) -> None:
    for name in ("lab-abacus-2core.json", "abacus-2core-scale.json", "history.jsonl"):
        (results / name).write_text("{}")
    assert [path.name for path in page.result_files(results)] == ["abacus-2core.json", "quipu-2core.json"]


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"machine": {}}', '{"machine": {}, "sections": {"speed": {"series": []}}}']
)
def test_a_broken_file_is_refused_by_its_name(results: Path, text: str) -> None:
    (results / "quipu-2core.json").write_text(text)
    with pytest.raises(ValueError, match=r"quipu-2core\.json is not a result file of perf"):
        page.markdown(results, QUESTIONS)


def test_what_is_written_is_read_with_its_latencies(results: Path) -> None:
    report = Report.read(results / "abacus-2core.json")
    assert report.sections[0].series[2].latencies == Counter({10: 297, 500: 3})
    report.write(results, "again")
    assert (results / "again.json").read_text() == (results / "abacus-2core.json").read_text()


def test_again_measures_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], results: Path
) -> None:
    monkeypatch.setattr(cli, "_report", None)  # a call would fail
    monkeypatch.setattr(sys, "argv", ["perf", "--again"])
    with pytest.raises(SystemExit) as left:
        run_all([Script("speed", "How fast?", lambda _: iter(()))], lambda: [results / "page.md"])
    assert left.value.code == 0
    assert capsys.readouterr().out == f"written: {results / 'page.md'}\n"


def test_a_kind_of_machine_has_a_name_for_tables_and_one_for_files() -> None:
    facts = {"cpu": "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz", "cores": 4}
    assert name_of(facts) == "Intel Xeon Platinum 8481C, 4 cores"
    assert slug_of(facts) == "intel-xeon-platinum-8481c-4core"


def test_the_version_is_the_newest_of_the_changelog() -> None:
    assert version_in("# Changelog\n\n## [0.3.0] - unreleased\n\n## [0.2.0] - 2026\n") == "0.3.0"
    assert version_in("nothing\n") == ""


def test_the_committed_page_is_what_the_committed_results_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    text = page.markdown(RESULTS, {script.name: script.question for script in SCRIPTS})
    assert text.strip() in README.read_text(), "run: python -m perf --again"
