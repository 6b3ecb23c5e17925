"""The regression gate on synthetic runs: what is a loss, what is noise, and what cannot be compared."""

from __future__ import annotations

import math
import os
import random
from collections import Counter
from itertools import combinations
from typing import TYPE_CHECKING, ClassVar, cast

import pytest

from perf import check
from perf.check import PAIRS, Pair, costs_beside, differences, judge
from perf.compare import ALPHA, Comparison, Outcome, compare, tail
from perf.harness import Sample, Series
from perf.machine import cpu_model
from perf.report import Report, Section

if TYPE_CHECKING:
    from pathlib import Path

    from perf.harness import Bench

NOISE = 0.03
PAIR = Pair("script", "ours", "bare")


def runs(count: int, cost: float = 2.0, noise: float = NOISE, seed: int = 1) -> list[float]:
    chance = random.Random(seed)
    return [cost * chance.lognormvariate(0, noise) for _ in range(count)]


def series(case: str, values: list[float], unit: str = "ns", probe: float = 130.0) -> Series:
    return Series(case, case, [Sample(value, unit, probe, 0, 0, 0, Counter()) for value in values])


# The test ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("old", "new"), [(1, 1), (2, 3), (3, 3), (4, 2)])
def test_the_tail_is_what_counting_all_orders_gives(old: int, new: int) -> None:
    orders = [set(chosen) for chosen in combinations(range(old + new), new)]
    wins = [sum(a < b for b in order for a in set(range(old + new)) - order) for order in orders]
    for least in range(old * new + 1):
        assert tail(old, new, least) == pytest.approx(sum(w >= least for w in wins) / len(orders))


def test_five_and_ten_runs_can_be_as_improbable_as_one_in_3003() -> None:
    assert tail(5, 10, 50) == pytest.approx(1 / math.comb(15, 5))
    assert tail(5, 10, 0) == 1


def test_the_same_distribution_passes() -> None:
    found = compare(runs(5, seed=1), runs(10, seed=2))
    assert found.outcome is Outcome.SAME
    assert abs(found.change) < 0.05


def test_a_loss_of_15_percent_fails() -> None:
    found = compare(runs(5, noise=0.01), runs(10, cost=2.0 / 0.85, noise=0.01, seed=2))
    assert found.outcome is Outcome.LOSS
    assert found.change == pytest.approx(-0.15, abs=0.02)
    assert found.p <= ALPHA


def test_a_gain_and_a_loss_of_5_percent_pass() -> None:
    for factor in (0.5, 0.85, 1 / 0.95):
        assert compare(runs(5), runs(10, cost=2 * factor, seed=2)).outcome is Outcome.SAME


def test_a_loss_of_30_percent_fails_among_noise_and_one_wild_run() -> None:
    new = [*runs(9, cost=2.0 / 0.7, noise=0.05, seed=2), 0.5]
    assert compare(runs(5, noise=0.05), new).outcome is Outcome.LOSS


@pytest.mark.parametrize("noise", [0.02, 0.1, 0.3])
def test_noise_alone_does_not_fail(noise: float) -> None:
    """The rate of false alarms of a single measurement, far below ALPHA since 10 % are allowed; two are
    needed to fail."""
    alarms = sum(
        compare(runs(5, noise=noise, seed=2 * i), runs(10, noise=noise, seed=2 * i + 1)).outcome is Outcome.LOSS
        for i in range(400)
    )
    assert alarms <= 400 * ALPHA * 1.5


def test_too_few_runs_say_so_and_do_not_fail() -> None:
    found = compare(runs(2), runs(3, cost=20.0))
    assert found.outcome is Outcome.FEW
    assert (found.old_runs, found.new_runs) == (2, 3)
    assert compare(runs(4), runs(5, cost=20.0)).outcome is Outcome.LOSS


@pytest.mark.parametrize(("old", "new"), [([], [1.0]), ([1.0], []), ([0.0], [1.0])])
def test_nothing_to_compare_is_refused(old: list[float], new: list[float]) -> None:
    with pytest.raises(ValueError, match="costs above 0"):
        compare(old, new)


# Pairs ------------------------------------------------------------------------------------------------------


def test_a_cost_is_in_units_of_its_neighbour_for_times_and_for_rates() -> None:
    assert costs_beside(series("a", [300, 200]), series("b", [100, 100])) == [3, 2]
    assert costs_beside(series("a", [50.0, 25.0], "msg/s"), series("b", [100, 100], "msg/s")) == [2, 4]


def test_neighbours_at_another_probe_do_not_count() -> None:
    ours, bare = series("a", [300, 200]), series("b", [100, 100])
    bare.samples[0] = Sample(100, "ns", 900.0, 0, 0, 0, Counter())
    assert costs_beside(ours, bare) == [2]


def both(cost: float, probe: float = 130.0, count: int = 10, seed: int = 1) -> dict[str, Series]:
    return {
        "ours": series("ours", [100 * value for value in runs(count, cost, 0.01, seed)], probe=probe),
        "bare": series("bare", [100.0] * count, probe=probe),
    }


def test_a_pair_is_judged_by_its_ratios_not_by_its_times() -> None:
    old, new = both(2.0, count=5), both(2.0, seed=2)
    for one in new.values():  # everything takes three times as long on that day
        one.samples = [Sample(3 * s.value, "ns", s.probe_ns, 0, 0, 0, Counter()) for s in one.samples]
    line = judge(PAIR, old, new)
    assert not line.lost
    assert str(line).startswith("no loss         ours beside bare: speed ")
    line = judge(PAIR, old, both(2.0 / 0.75, seed=2))
    assert line.lost
    assert "LOSS" in str(line)
    assert "speed -2" in str(line)


def test_what_cannot_be_compared_is_told_and_not_lost() -> None:
    old = both(2.0, count=5)
    absent = judge(PAIR, {"bare": old["bare"]}, both(9.0))
    elsewhere = judge(PAIR, old, both(9.0, probe=600.0))
    for line, why in ((absent, "have no ours"), (elsewhere, "the probe is 600 ns, in the committed results 130 ns")):
        assert not line.lost
        assert str(line).startswith("not comparable")
        assert why in str(line)


def test_facts_that_differ_are_told() -> None:
    facts = dict.fromkeys(check.FACTS, "same")
    assert differences(facts, facts) == []
    assert differences(facts, facts | {"kernel": "7.0"}) == ["kernel: 7.0, in the committed results same"]


# The whole gate, with measuring replaced --------------------------------------------------------------------


HERE: dict[str, object] = {"cpu": cpu_model(), "cores": os.cpu_count()}


def gate(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, costs: list[float], facts: dict[str, object] = HERE) -> int:
    """The exit status where the first measurement finds the first cost, the second the second."""
    monkeypatch.setattr(check, "RESULTS", tmp_path)
    monkeypatch.setattr(check, "PAIRS", (PAIR,))
    left = iter(costs)
    monkeypatch.setattr(check, "measure", lambda _bench, _pairs: both(next(left), seed=2))
    Report(facts, [Section("script", "?", tuple(both(2.0, count=5).values()))]).write(tmp_path, "abacus")
    return check.run(10, "abacus")


def test_a_loss_counts_if_it_is_measured_twice(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert gate(monkeypatch, tmp_path, [3.0, 3.0]) == 1
    said = capsys.readouterr().out
    assert "measured again: ours" in said
    assert "1 of 1 could be compared; 1 lost more than 10%" in said
    assert gate(monkeypatch, tmp_path, [3.0, 2.0]) == 0
    assert gate(monkeypatch, tmp_path, [2.0]) == 0


def test_a_second_look_that_can_be_compared_with_nothing_takes_no_loss_back(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    looks = iter([both(3.0, seed=2), both(2.0, 600.0)])
    assert gate(monkeypatch, tmp_path, [2.0]) == 0
    monkeypatch.setattr(check, "measure", lambda _bench, _pairs: next(looks))
    assert check.run(10, "abacus") == 1


def test_another_machine_class_is_skipped_visibly(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(check, "RESULTS", tmp_path)
    assert check.run(10, "unknown-1core") == 77
    assert "SKIPPED: nothing was judged: there is no unknown-1core.json" in capsys.readouterr().err
    assert gate(monkeypatch, tmp_path, [], HERE | {"cores": 4711}) == 77  # [] = to measure would fail
    assert "abacus.json was measured on " in capsys.readouterr().err


def line(outcome: Outcome | None) -> check.Line:
    return check.Line(PAIR, outcome and Comparison(outcome, -0.5, 0.001, 5, 10), "the probe is 600 ns")


@pytest.mark.parametrize(
    ("same", "few", "absent", "lost", "status"),
    [(2, 0, 2, 0, 0), (3, 2, 2, 0, 3), (0, 0, 12, 0, 3), (0, 12, 0, 0, 3), (0, 0, 3, 1, 1), (4, 0, 0, 1, 1)],
)
def test_a_gate_that_compared_less_than_half_has_not_passed(
    same: int, few: int, absent: int, lost: int, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    counts = {Outcome.SAME: same, Outcome.FEW: few, None: absent, Outcome.LOSS: lost}
    lines = [line(outcome) for outcome, count in counts.items() for _ in range(count)]
    assert check.verdict(lines) == status
    said = capsys.readouterr()
    assert said.out.startswith(f"{same + lost} of {len(lines)} could be compared; {lost} lost")
    assert said.err.startswith(f"NOT JUDGED: {same} of {len(lines)} pairs could be compared" if status == 3 else "")
    assert bool(said.err) == (status == 3)


def test_a_machine_at_another_probe_is_not_judged(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert gate(monkeypatch, tmp_path, [2.0]) == 0
    monkeypatch.setattr(check, "measure", lambda _bench, _pairs: both(2.0, 600.0))
    assert check.run(10, "abacus") == 3
    assert "the probe is 600 ns, in the committed results 130 ns" in capsys.readouterr().out


def test_each_script_measures_its_python_cases_only_where_they_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    class Program:
        """Instead of the C program."""

        asked: ClassVar[list[list[str]]] = []

        def cases(self, titles: dict[str, str]) -> list[Series]:
            self.asked.append(list(titles))
            return [series(case, [1.0]) for case in titles]

    monkeypatch.setitem(check.PYTHON, "recovery", lambda _: [series("py-late", [1.0]), series("py-late-bare", [1.0])])
    monkeypatch.delitem(check.PYTHON, "throughput")
    wanted = [pair for pair in PAIRS if pair.script == "recovery"] + [Pair("throughput", "oneway", "ring")]
    found = check.measure(cast("Bench", Program()), wanted)
    assert Program.asked == [["checksum:128", "replay:memory:128"], ["ring", "oneway"]]
    assert {"py-late", "py-late-bare"} <= set(found)
    assert set(check.measure(cast("Bench", Program()), wanted[1:2])) == {"py-late", "py-late-bare"}
    assert len(Program.asked) == 2


def test_every_pair_names_cases_that_its_script_measures() -> None:
    from perf import latency, recovery, store, throughput

    cases = {
        "latency": set(latency.CASES),
        "throughput": {*throughput.CASES, "py-send", "py-empty-call"},
        "store": {*store.MEMORY, *store.DISK, *store.PACED},
        "recovery": {*recovery.CASES, "py-late", "py-late-bare"},
    }
    assert [pair for pair in PAIRS if not {pair.case, pair.base} <= cases[pair.script]] == []
