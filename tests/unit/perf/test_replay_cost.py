"""The verdict of `perf.replay_cost`: neighbours are compared, and one case below the floor is enough."""

from __future__ import annotations

from perf.replay_cost import FLOOR, report


def test_ratios_are_taken_run_by_run_and_their_median_counts() -> None:
    pairs = [((100.0, 200.0), (98.0, 100.0)), ((10.0, 2.0), (9.8, 1.0)), ((1000.0, 1.0), (100.0, 1.0))]
    lines, met = report({"a": pairs})  # a disturbed run moves nothing
    assert met
    assert "| 0.980 [0.100 .. 0.980] | 0.500 |" in lines[-1]


def test_one_case_below_the_floor_is_enough() -> None:
    good, bad = [((1e6, 1e6), (2e6, 2e6))], [((1e6, 1e6), (1e6 * (FLOOR - 0.001), 1e6))]
    lines, met = report({"a": good, "b": bad, "c": good})
    assert not met
    assert [line.rstrip("| ").rsplit(" ", 1)[-1] for line in lines[2:]] == ["yes", "NO", "yes"]
