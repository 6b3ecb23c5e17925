"""The measuring harness without measuring: histograms, floors, and what a report says about a floor that is
missed."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from holdfast.engine.native import kernels
from perf import acks, floors
from perf.cli import verdict
from perf.floors import FLOORS, Floor, Side, judge
from perf.harness import Sample, Series, build_bench
from perf.histogram import histogram, merged, quantiles
from perf.report import Report, Section, insert_into, quantity

if TYPE_CHECKING:
    from pathlib import Path

PROBE = 200.0
BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"


def series(case: str, values: list[float], unit: str = "ns", probes: list[float] | None = None) -> Series:
    probes = probes or [PROBE] * len(values)
    samples = [Sample(v, unit, p, 0, 0, 0, Counter()) for v, p in zip(values, probes, strict=True)]
    return Series(case, f"title of {case}", samples)


def test_the_c_programs_are_compiled() -> None:
    assert build_bench().exists()


# Histograms -------------------------------------------------------------------------------------------------


def test_a_histogram_is_exact_below_256_and_to_one_part_in_128_above() -> None:
    values = np.array([0, 1, 127, 255, 256, 257, 258, 10**9], dtype=np.int64)
    assert sorted(histogram(values).elements())[:4] == [0, 1, 127, 255]
    assert histogram(values)[256] == 2
    for value in range(1, 10**6, 997):
        (edge,) = histogram(np.array([value], dtype=np.int64))
        assert 0 <= value - edge <= value / 128


def test_a_histogram_counts_negative_values_as_zero_and_any_shape() -> None:
    assert histogram(np.array([[-5, 0], [7, 7]], dtype=np.int64)) == {0: 2, 7: 2}


def test_merged_histograms_have_the_quantiles_of_all_values() -> None:
    first, second = np.arange(1, 101, dtype=np.int64), np.arange(101, 201, dtype=np.int64)
    both = merged([histogram(first), histogram(second)])
    assert both == histogram(np.concatenate([first, second]))
    assert quantiles(both) == {"p50": 101, "p90": 181, "p99": 199, "p99.9": 200, "max": 200}


def test_quantiles_of_nothing_are_nothing() -> None:
    assert quantiles(Counter()) == {}


# Floors -----------------------------------------------------------------------------------------------------

AT_LEAST = Floor("fast enough", "script", "ours", Side.AT_LEAST, "bare", 0.5)
AT_MOST = Floor("soon enough", "script", "ours", Side.AT_MOST, "bare", 2, 100)
PLAIN = Floor("many", "script", "ours", Side.AT_LEAST, plus=50, probe_max_ns=150)


@pytest.mark.parametrize(
    ("floor", "ours", "bare", "met"),
    [
        (AT_LEAST, [50, 50, 50], [100, 100, 100], True),
        (AT_LEAST, [49, 49, 49], [100, 100, 100], False),
        (AT_LEAST, [10, 60, 60], [100, 100, 100], True),  # the median run decides
        (AT_LEAST, [50, 10, 90], [100, 20, 180], True),  # a run is judged beside its neighbour
        (AT_MOST, [300, 300, 300], [100, 100, 100], True),
        (AT_MOST, [301, 301, 301], [100, 100, 100], False),
    ],
)
def test_a_floor_holds_on_its_side_of_the_limit(
    monkeypatch: pytest.MonkeyPatch, floor: Floor, ours: list[float], bare: list[float], met: bool
) -> None:
    monkeypatch.setattr(floors, "FLOORS", (floor,))
    (found,) = judge("script", {"ours": series("ours", ours), "bare": series("bare", bare)})
    assert found.met is met


def test_pairs_at_unequal_probes_are_left_out_while_three_remain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(floors, "FLOORS", (AT_LEAST,))
    bare = series("bare", [100] * 5)
    slow = [PROBE, PROBE, PROBE, 4 * PROBE, 4 * PROBE]
    (found,) = judge("script", {"ours": series("ours", [60, 60, 60, 1, 1], probes=slow), "bare": bare})
    assert (found.pairs, found.equal, found.met) == (3, True, True)
    slow[2] = 4 * PROBE
    (found,) = judge("script", {"ours": series("ours", [60, 60, 1, 1, 1], probes=slow), "bare": bare})
    assert (found.pairs, found.equal, found.met) == (5, False, False)


def test_a_floor_for_faster_probes_is_not_missed_by_a_slower_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(floors, "FLOORS", (PLAIN,))
    assert judge("script", {"ours": series("ours", [40] * 3)})[0].met is None
    assert judge("script", {"ours": series("ours", [60] * 3)})[0].met is True
    monkeypatch.setattr(floors, "FLOORS", (replace(PLAIN, probe_max_ns=PROBE),))
    assert judge("script", {"ours": series("ours", [40] * 3)})[0].met is False


def test_a_floor_is_judged_only_in_its_script_and_with_its_base(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(floors, "FLOORS", (AT_LEAST,))
    assert judge("script", {"ours": series("ours", [1] * 3)}) == []
    assert judge("other", {"ours": series("ours", [1] * 3), "bare": series("bare", [1] * 3)}) == []


def test_every_floor_names_cases_that_its_script_measures() -> None:
    from perf import channel, copies, latency, recovery, spark, store, store_start, tails, throughput

    c_cases = {
        "latency": set(latency.CASES),
        "throughput": set(throughput.CASES),
        "recovery": set(recovery.CASES),
        "store": {*store.MEMORY, *store.DISK, *store.PACED},
        "copies": set(copies.CASES),
        "store_start": set(store_start.CASES),
        "channel": set(channel.CASES),
        "spark": set(spark.CASES),
        "idle": set(),
        "awaiting": set(),
        "tails": tails.CASES,
    }
    python_cases = {"py-send", "py-empty-call", "py-send-events", "py-send-rate", "py-batch", "py-ping", "idle"}
    python_cases |= {"receive", "for", "async-for", "receive-batch", "batches", "lateness"}
    named = {(floor.script, case) for floor in FLOORS for case in (floor.case, floor.base) if case is not None}
    assert {case for script, case in named if case not in c_cases[script]} == python_cases


# Reports ----------------------------------------------------------------------------------------------------


@pytest.fixture
def missed(monkeypatch: pytest.MonkeyPatch) -> Report:
    monkeypatch.setattr(floors, "FLOORS", (AT_LEAST, replace(AT_LEAST, path="slow enough", side=Side.AT_MOST)))
    pair = series("ours", [4e6] * 3, "msg/s"), series("bare", [10e6] * 3, "msg/s")
    return Report({"cpu": "abacus"}, [Section("script", "How fast?", pair)])


def test_a_report_says_loudly_which_floor_is_missed(missed: Report, capsys: pytest.CaptureFixture[str]) -> None:
    text = missed.markdown()
    assert "| fast enough | 4 M msg/s | title of bare: 10 M msg/s | 0.40 | ≥ 0.5 × (= 5 M msg/s) | **NO** |" in text
    assert "| slow enough | 4 M msg/s | title of bare: 10 M msg/s | 0.40 | ≤ 0.5 × (= 5 M msg/s) | yes |" in text
    line = "fast enough: 4 M msg/s, the floor is ≥ 0.5 × (= 5 M msg/s)"
    assert f"- **MISSED**: {line}" in text
    assert missed.missed == [line]
    assert verdict(missed, gate=True) == 1
    assert f"FLOOR MISSED: {line}" in capsys.readouterr().err


def test_no_gate_lets_a_missed_floor_pass_but_not_a_section_that_failed(missed: Report) -> None:
    assert verdict(missed, gate=False) == 0
    missed.sections.append(Section("other", "Why?", (), "RuntimeError: it broke"))
    assert verdict(missed, gate=False) == 1
    assert "Not complete: RuntimeError: it broke" in missed.markdown()


def test_a_report_without_a_missed_floor_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(floors, "FLOORS", (AT_LEAST,))
    pair = series("ours", [6.0] * 3), series("bare", [10.0] * 3)
    report = Report({}, [Section("script", "How fast?", pair)])
    assert "All floors hold." in report.markdown()
    assert verdict(report, gate=True) == 0


def test_the_json_has_every_value_and_verdict(missed: Report, tmp_path: Path) -> None:
    found = json.loads(missed.write(tmp_path / "results", "abacus").read_text())
    assert [row["met"] for row in found["floors"]] == [False, True]
    assert found["sections"]["script"]["series"][0]["values"] == [4e6] * 3
    assert found["machine"] == {"cpu": "abacus"}


def test_tables_replace_what_stands_between_the_markers_of_a_page(tmp_path: Path) -> None:
    page = tmp_path / "README.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    insert_into(page, "new\n")
    assert page.read_text() == f"before\n{BEGIN}\nnew\n{END}\nafter\n"
    page.write_text("no markers")
    with pytest.raises(ValueError, match="has no"):
        insert_into(page, "new")


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (150, "ns", "150 ns"),
        (1500, "ns", "1.5 µs"),
        (2.5e9, "ns", "2.5 s"),
        (0.5, "ns", "0.5 ns"),
        (12.3e6, "msg/s", "12.3 M msg/s"),
        (3.14159, "GB/s", "3.14 GB/s"),
        (262144, "B", "256 KiB"),
    ],
)
def test_a_quantity_has_three_digits_and_a_unit_that_fits(value: float, unit: str, text: str) -> None:
    assert quantity(value, unit) == text


# Acks -------------------------------------------------------------------------------------------------------


def test_the_ack_rows_measure_what_they_say() -> None:
    plain = acks.walk(kernels.contiguous_prefix, 1)
    assert (plain.count, plain.unit) == (acks.TICK, "ns")
    assert plain.value > 0
    assert acks.window(2).count == 2 * acks.TICK
    with pytest.raises(RuntimeError, match="went to"):
        acks.walk(lambda *_: (7, 6), 1)
