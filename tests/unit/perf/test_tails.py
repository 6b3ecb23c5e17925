"""perf.tails: quantiles of each run become rows, and the picture has all of them."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from perf import tails
from perf.floors import FLOORS
from perf.harness import Sample, Series
from perf.histogram import at_quantile

if TYPE_CHECKING:
    from pathlib import Path


def runs(*counts: Counter[int]) -> Series:
    return Series("tail:line:40:167000:10000", "bare line", [Sample(1, "ns", 100, 40, 9, 0, each) for each in counts])


@pytest.mark.parametrize(("q", "late"), [(0.5, 10), (0.98, 10), (0.99, 200), (0.9999, 200), (1.0, 200)])
def test_a_quantile_is_the_value_below_which_its_share_lies(q: float, late: int) -> None:
    assert at_quantile(Counter({10: 990, 200: 10}), q) == late


def test_nothing_is_late_where_nothing_was_measured() -> None:
    assert at_quantile(Counter(), 0.5) == 0


def test_each_quantile_of_each_run_is_a_row_of_its_own() -> None:
    counts = Counter({10: 98, 200: 1, 3000: 1}), Counter({20: 99, 400: 1})
    rows = {series.case: series for series in tails._named(runs(*counts), "line:40:167000", "bare line")}
    assert rows["line:40:167000:p50"].values == [10, 20]
    assert rows["line:40:167000:p99"].values == [3000, 400]
    assert rows["line:40:167000:p50"].latencies == counts[0] + counts[1]
    assert not rows["line:40:167000:p99.9"].latencies, "the histogram is kept once"


def test_floors_name_what_is_measured() -> None:
    assert {floor.case for floor in FLOORS if floor.script == "tails"} < tails.CASES
    assert {floor.base for floor in FLOORS if floor.script == "tails"} < tails.CASES


def test_the_schedule_does_not_wait_for_a_message_that_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each message says when it was due, and the next one's moment does not depend on it."""
    now, sent = [0], list[int]()

    class Clock:
        @staticmethod
        def perf_counter_ns() -> int:
            now[0] += 100
            return now[0]

    def send(data: bytes) -> None:
        sent.append(tails.DUE.unpack_from(data)[0])
        now[0] += 1_000_000 if len(sent) == 3 else 0  # the third one takes a while

    monkeypatch.setattr(tails, "time", Clock)
    monkeypatch.setattr(tails, "WARM", 0)
    monkeypatch.setattr(tails, "PYTHON_RATE", 10)
    monkeypatch.setattr(tails, "PYTHON_S", 1)
    tails._scheduled(send, 40)
    assert [after - before for before, after in pairwise(sent)] == [100_000_000] * 9


def test_the_picture_shows_what_was_measured(tmp_path: Path) -> None:
    counts = Counter({1000: 9000, 5000: 990, 90_000: 10})
    series = {
        one.case: one
        for way in ("line", "stream")
        for one in tails._named(runs(counts), f"{way}:40:167000", f"{way}, 40 B")
    }
    written = tails.draw(series, tmp_path / "tails")
    assert [path.suffix for path in written] == [".svg", ".png"]
    picture = written[0].read_text()
    assert "99.99 %" in picture
    assert "line, 40 B" in picture
