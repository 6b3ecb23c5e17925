"""Scale curves and the budget without measuring: exponents, verdicts, what is left out, plots, and how
callgrind is read."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from perf import budget, curves, plots, scale
from perf.cli import README
from perf.curves import FIGURES, Curve, Figure, exponent, judge
from perf.harness import Sample, Series
from perf.report import Report, Section, load

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

POINTS = (1, 2, 4, 8)


def series(case: str, values: list[float], unit: str = "ns") -> Series:
    return Series(case, f"title of {case}", [Sample(value, unit, 130.0, 128, 10, 0, Counter()) for value in values])


def measured(cost: Callable[[int], float], points: tuple[int, ...] = POINTS, runs: int = 5) -> dict[str, Series]:
    """A curve ``many:x``, with 2 % of noise that differs from run to run."""
    noise = [0.98 + 0.01 * (run % 5) for run in range(runs)]
    return {f"many:{x}": series(f"many:{x}", [cost(x) * n for n in noise]) for x in points}


@pytest.fixture(autouse=True)
def one_figure(monkeypatch: pytest.MonkeyPatch) -> Figure:
    figure = Figure("many", "Many of them", "of them", (*POINTS, 64), (Curve("many:{}", "cost of each"),))
    monkeypatch.setattr(curves, "FIGURES", (figure,))
    monkeypatch.setattr(plots, "FIGURES", (figure,))
    return figure


# Curves -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wanted", [-0.5, 0.0, 0.1, 1.0, 2.0])
def test_the_exponent_of_a_power_is_its_exponent(wanted: float) -> None:
    assert exponent([(x, 7 * x**wanted) for x in POINTS]) == pytest.approx(wanted)


def test_one_disturbed_point_does_not_move_an_exponent() -> None:
    points = [(x, 10.0) for x in (1, 2, 4, 8, 16, 32, 64)]
    points[3] = (8, 1000.0)
    assert exponent(points) == pytest.approx(0)


def test_an_exponent_needs_two_points() -> None:
    with pytest.raises(ValueError, match="two points"):
        exponent([(1, 1.0), (1, 2.0)])


@pytest.mark.parametrize(
    ("cost", "met"),
    [
        (lambda _: 20.0, True),
        (lambda x: 20 * x**0.09, True),
        (lambda x: 20 * x**0.12, False),
        (lambda x: 20 + 5 * x, False),
        (lambda x: 20 / x, True),
    ],
)
def test_a_curve_that_grows_faster_than_its_limit_is_missed(cost: Callable[[int], float], met: bool) -> None:
    (slope,) = judge(measured(cost))
    assert slope.met is met
    assert slope.missing == (64,)
    assert len(slope.exponents) == 5


def test_rates_are_costs_upside_down() -> None:
    rates = {case: series(case, [1e9 / v for v in one.values], "msg/s") for case, one in measured(lambda x: x).items()}
    assert judge(rates)[0].exponent == pytest.approx(1)
    with pytest.raises(ValueError, match="GB/s"):
        judge({case: series(case, [1.0], "GB/s") for case in rates})


def test_a_curve_is_judged_from_where_it_says(monkeypatch: pytest.MonkeyPatch, one_figure: Figure) -> None:
    curve = Curve("many:{}", "cost of each", judged_from=2)
    monkeypatch.setattr(curves, "FIGURES", (Figure("many", "Many", "of them", POINTS, (curve,)),))
    (slope,) = judge(measured(lambda x: 1.0 if x == 1 else 100.0))
    assert slope.exponent == pytest.approx(0)
    assert slope.measured == POINTS
    assert one_figure.curves[0].judged_from == 0


def test_a_curve_of_one_point_is_not_judged() -> None:
    assert judge(measured(lambda _: 1.0, points=(1,))) == []


def test_a_small_disk_leaves_out_the_largest_logs() -> None:
    (logs,) = (figure for figure in FIGURES if figure.disk_bytes)
    assert logs.xs(20 << 30) == logs.points
    assert logs.xs((20 << 30) - 1) == logs.points[:-1]
    assert all(figure.xs(0) == figure.points for figure in FIGURES if figure is not logs)


def test_every_case_of_a_figure_is_measured_once() -> None:
    cases = [case for figure in FIGURES for case in scale.cases(figure, 1 << 40)]
    assert len(cases) == len(set(cases))
    assert sum(len(figure.curves) * len(figure.points) for figure in FIGURES) == len(cases)


# Reports and plots ------------------------------------------------------------------------------------------


def test_a_curve_that_is_too_steep_is_missed_loudly_and_its_gaps_are_named() -> None:
    report = Report({}, [Section("scale", "How?", tuple(measured(lambda x: 10.0 * x).values()))])
    (line,) = report.missed
    assert line == "Many of them, cost of each: ten times as many cost 10.00 times as much, the limit is 1.26"
    text = report.markdown()
    assert f"- **MISSED**: {line}" in text
    assert (
        "| Many of them | cost of each | 1 .. 8 | 10 ns .. 80 ns | 1.00 [1.00 .. 1.00] | ≤ 0.1 | **NO** | 64 |" in text
    )


def test_what_is_written_is_read_and_drawn_again(tmp_path: Path) -> None:
    machine: dict[str, object] = {"cpu": "abacus", "cores": 2, "commit": "c0ffee"}
    flat = tuple(measured(lambda _: 10.0).values())
    Report(machine, [Section("scale", "How?", flat)]).write(tmp_path, "abacus-scale")
    found, sections = load(tmp_path / "abacus-scale.json")
    assert found == machine
    assert [one.values for one in sections["scale"].values()] == [one.values for one in flat]
    text = plots.page(tmp_path)
    assert "![Scale curves](results/abacus-scale.png)" in text
    assert "abacus, 2 cores, commit c0ffee" in text
    assert (tmp_path / "abacus-scale.png").read_bytes().startswith(b"\x89PNG")
    first = (tmp_path / "abacus-scale.svg").read_text()
    assert "<svg" in first
    plots.page(tmp_path)
    assert (tmp_path / "abacus-scale.svg").read_text() == first, "the same results give another file"


def test_a_file_that_is_no_result_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x-scale.json"
    for text in ("{", json.dumps({"machine": {}}), json.dumps({"machine": {}, "sections": {"scale": {}}})):
        path.write_text(text)
        with pytest.raises(ValueError, match="not a result file of perf"):
            load(path)


# Budget -----------------------------------------------------------------------------------------------------

COUNTED = f"version: 1\nevents: {' '.join(budget.EVENTS)}\n\nsummary: 1\ntotals: 2000 30 20 10 500 250\n"


def test_callgrinds_totals_are_taken_per_message() -> None:
    assert budget.counted(COUNTED, 100) == budget.Counted(20.0, 5.0, 2.5)


@pytest.mark.parametrize("text", ["", COUNTED.replace("D1mr", "Other"), COUNTED.replace("totals", "parts")])
def test_another_tools_output_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="callgrind counted"):
        budget.counted(text, 100)


FACTS: dict[str, object] = {"cpu": "abacus", "cores": 2, "commit": "1234567"}


def times(**ns: float) -> dict[str, Series]:
    """33 ns a path, and what is given; runs around it."""
    found = {"clock": 24.0, **{name: 33.0 for path in budget.PATHS for name in (path.case, path.bare)}, **ns}
    return {case: series(case, [value - 2, value, value + 2]) for case, value in found.items()}


def test_the_budget_has_a_row_and_an_explanation_per_path() -> None:
    found = times()
    counts = dict.fromkeys(found, budget.Counted(20.0, 5.0, 2.5))
    text = budget.table(found, counts, FACTS)
    row = "| 33 ns [31 ns .. 35 ns] | 33 ns [31 ns .. 35 ns] | 20 | 20 | 5.0 + 2.5 | 5.0 + 2.5 |"
    assert text.count(row) == len(budget.PATHS)
    assert "which by itself costs 24 ns" in text
    assert "Medians of 3 runs with [min .. max]; abacus, 2 cores, probe 130 ns, commit 1234567." in text
    assert "not measured: no valgrind" in budget.table(found, {}, FACTS)


def test_a_part_that_takes_longer_than_the_whole_is_refused() -> None:
    assert budget.checked(times(clock=33.0))
    with pytest.raises(ValueError, match="the clock took 166 ns, a send that reads it once 39 ns"):
        budget.checked(times(clock=166.0, send=39.0))


def test_the_committed_budget_is_not_one_that_is_refused() -> None:
    text = README.read_text()
    send = re.search(r"\| send: `hf_source_send`, one message \| ([0-9.]+) ns ", text)
    clock = re.search(r"which by itself costs ([0-9.]+) ns", text)
    assert send
    assert clock
    assert float(clock[1]) <= float(send[1])
