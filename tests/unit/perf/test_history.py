"""Figures over releases: lines are replaced or kept, drawn and shown, and what is none is refused."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from perf import floors, history
from perf.cli import RESULTS
from perf.floors import Floor, Side
from perf.harness import Sample, Series
from perf.history import Figure, Line
from perf.page import result_files
from perf.report import Report, Section

if TYPE_CHECKING:
    from pathlib import Path

RATIO = Floor("ours beside bare", "speed", "ours", Side.AT_MOST, "bare", 2)
PLUS = Floor("ours beside bare and more", "speed", "ours", Side.AT_MOST, "bare", 1, 30)
ALONE = Floor("free, whose title is longer than a panel of the sheet is wide", "speed", "free", Side.AT_MOST, plus=9)
FACTS: dict[str, object] = {"cpu": "Abacus", "cores": 2, "commit": "c0ffee", "version": "0.9.0", "date": "2026-01-02"}


@pytest.fixture(autouse=True)
def own_floors(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (floors, history):
        monkeypatch.setattr(module, "FLOORS", (RATIO, ALONE))


def write(folder: Path, ours: float = 30, **facts: str) -> Path:
    found = [Series(case, case, [Sample(value, "ns", 100, 0, 0, 0, Counter())]) for case, value in
             {"ours": ours, "bare": 20.0, "free": 7.0}.items()]  # fmt: skip
    return Report({**FACTS, **facts}, [Section("speed", "How fast?", tuple(found))]).write(folder, "abacus-2core")


def line(version: str, machine: str = "Abacus, 2 cores", ratio: float = 1.5, probe: float = 100, **found: Any) -> Line:
    figure = Figure("ours", "bare", 20 * ratio, "ns", ratio, probe, ratio <= 2)
    return Line(version, machine, "c0ffee", "2026-01-02", probe, found.get("figures", (figure,)))


def test_a_line_has_what_its_result_file_says(tmp_path: Path) -> None:
    assert history.line_of(write(tmp_path)) == Line(
        "0.9.0", "Abacus, 2 cores", "c0ffee", "2026-01-02", 100,
        (Figure("ours", "bare", 30, "ns", 1.5, 100, True), Figure("free", None, 7, "ns", None, 100, True)),
    )  # fmt: skip


@pytest.mark.parametrize("missing", ["version", "date"])
def test_a_file_that_does_not_say_its_version_is_refused(tmp_path: Path, missing: str) -> None:
    with pytest.raises(ValueError, match=r"abacus-2core\.json does not say which version"):
        history.line_of(write(tmp_path, 30, **{missing: ""}))


def test_a_new_line_replaces_the_one_of_its_version_and_class_alone() -> None:
    old = [line("0.9.0"), line("0.9.0", "Quipu, 2 cores"), line("0.10.0")]
    new = line("0.9.0", ratio=3)
    assert history.updated(old, [new]) == [new, *old[1:]]
    assert history.updated(history.updated(old, [new]), [new]) == [new, *old[1:]]


def test_versions_stand_in_their_order_not_in_that_of_their_letters() -> None:
    found = history.updated([line("0.10.0")], [line("0.9.1", "Quipu, 2 cores"), line("0.9.1")])
    assert [(one.version, one.machine[0]) for one in found] == [("0.9.1", "A"), ("0.9.1", "Q"), ("0.10.0", "A")]


@pytest.mark.parametrize("text", ["{", "[]", '{"version": "0.1.0"}'])
def test_a_broken_line_is_refused_by_its_number(tmp_path: Path, text: str) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text(f"{msgspec.json.encode(line('0.1.0')).decode()}\n{text}\n")
    with pytest.raises(ValueError, match=r"history\.jsonl, line 2, is no line of the history: "):
        history.read(path)


def test_the_page_has_a_table_per_class_and_a_column_per_version() -> None:
    bare = Figure("ours", "bare", 60, "ns", 3, 100, False)
    alone = Figure("free", None, 7, "ns", None, 100, None)
    text = history.markdown([line("0.1.0", figures=(bare,)), line("0.2.0", figures=(alone,)), line("0.2.0", "Quipu")])
    assert "- 0.1.0: commit c0ffee, 2026-01-02, probe 100 ns" in text
    assert "| path | floor today | 0.1.0 | 0.2.0 |" in text
    assert "| ours beside bare | ≤ 2 × | **3.00 × (60 ns)** | – |" in text
    assert f"| {ALONE.path} | ≤ 9 ns | – | 7 ns |" in text
    assert "### Quipu\n" in text


def test_a_run_writes_its_line_and_keeps_the_others(tmp_path: Path) -> None:
    results, page = tmp_path / "results", tmp_path / "HISTORY.md"
    page.write_text("before\n<!-- history: begin -->\n<!-- history: end -->\nbehind\n")
    write(results, version="0.1.0")
    history.write(results, page)
    write(results, 50)
    written = history.write(results, page)
    assert [path.name for path in written] == ["history.jsonl", "history.png", "history.svg", "HISTORY.md"]
    assert [one.version for one in history.read(written[0])] == ["0.1.0", "0.9.0"]
    assert "| ours beside bare | ≤ 2 × | 1.50 × (30 ns) | **2.50 × (50 ns)** |" in page.read_text()
    assert page.read_text().startswith("before\n")
    assert page.read_text().endswith("behind\n")
    before = [path.read_bytes() for path in written]
    history.write(results, page)
    assert [path.read_bytes() for path in written] == before, "the same results give other files"


def test_floors_of_all_kinds_are_drawn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(history, "FLOORS", (RATIO, PLUS, ALONE))
    alone = Figure("free", None, 7, "ns", None, 100, False)
    png, svg = history.draw([line("0.1.0"), line("0.2.0", "Quipu", figures=(alone,))], tmp_path / "history")
    assert png.read_bytes().startswith(b"\x89PNG")
    assert "<svg" in svg.read_text()


def test_a_history_of_nothing_is_drawn(tmp_path: Path) -> None:
    assert all(path.exists() for path in history.draw([], tmp_path / "history"))
    assert history.read(tmp_path / "history.jsonl") == []


class Panel:
    """Instead of matplotlib's."""

    def __init__(self) -> None:
        self.lines = list[Any]()
        self.marks = list[Any]()

    def plot(self, x: Any, y: Any, **style: Any) -> None:
        if "marker" in style:
            self.marks.append((x, y, style["mfc"]))
        else:
            self.lines.append((x, y))


def test_only_what_was_measured_at_equal_probes_is_joined() -> None:
    panel = Panel()
    found = [line("0.1.0", probe=100), line("0.2.0", ratio=1, probe=149), line("0.3.0", ratio=3, probe=300)]
    points = [(x, one.of(RATIO)) for x, one in enumerate(found)]
    history._curve(panel, [*points, (3, None)], ("black", "o", "-"))
    assert panel.lines == [([0, 1], [1.5, 1])]
    assert panel.marks == [(0, 1.5, "black"), (1, 1, "black"), (2, 3, "white")]


def test_the_committed_page_is_what_the_committed_results_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    lines = history.read(RESULTS / "history.jsonl")
    assert history.updated(lines, map(history.line_of, result_files(RESULTS))) == lines
    assert history.markdown(lines).strip() in history.PAGE.read_text(), "run: python -m perf --again"
