"""How far a micro-batch goes: limits, shares, and waiting. Tables; no Spark."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.spark.admission import Backlog, Patience, admitted, records_for

S = 1_000_000_000


@pytest.mark.parametrize(
    ("backlogs", "limit", "stops"),
    [
        pytest.param({}, 5, {}, id="no source"),
        pytest.param({"a": (3, 3)}, 5, {"a": 3}, id="nothing there"),
        pytest.param({"a": (3, 9)}, None, {"a": 9}, id="no limit"),
        pytest.param({"a": (3, 9)}, 6, {"a": 9}, id="as many as the limit"),
        pytest.param({"a": (3, 9)}, 5, {"a": 8}, id="one too many"),
        pytest.param({"a": (9, 3)}, None, {"a": 9}, id="the bound went back: the start stays"),
        pytest.param({"a": (9, 3), "b": (0, 10)}, 4, {"a": 9, "b": 4}, id="and takes no share"),
        pytest.param({"a": (0, 30), "b": (0, 10)}, 8, {"a": 6, "b": 2}, id="in proportion"),
        pytest.param(
            {"a": (0, 10), "b": (0, 10), "c": (0, 10)}, 10, {"a": 4, "b": 3, "c": 3}, id="remainders: the first"
        ),
        pytest.param({"a": (0, 20), "b": (0, 15), "c": (0, 15)}, 9, {"a": 3, "b": 3, "c": 3}, id="largest remainder"),
        pytest.param({"a": (0, 10**9), "b": (5, 6)}, 10, {"a": 9, "b": 6}, id="a small source is not starved"),
        pytest.param({"a": (0, 50), "b": (0, 1), "c": (0, 1)}, 3, {"a": 1, "b": 1, "c": 1}, id="nor many of them"),
        pytest.param(
            {"a": (0, 5), "b": (0, 5), "c": (0, 5)}, 2, {"a": 1, "b": 1, "c": 1}, id="one each, beyond the limit"
        ),
        pytest.param({"a": (0, 5), "b": (7, 7)}, 1, {"a": 1, "b": 7}, id="one"),
    ],
)
def test_where_it_stops(backlogs: dict[str, tuple[int, int]], limit: int | None, stops: dict[str, int]) -> None:
    assert admitted({key: Backlog(*value) for key, value in backlogs.items()}, limit) == stops


SPANS = st.dictionaries(
    st.integers(0, 20), st.builds(Backlog, st.integers(0, 2**62), st.integers(0, 2**62)), max_size=8
)


@given(backlogs=SPANS, limit=st.integers(1, 2**63 - 1))
def test_what_holds_always(backlogs: dict[int, Backlog], limit: int) -> None:
    stops = admitted(backlogs, limit)
    assert list(stops) == list(backlogs)
    shares = {key: stop - backlogs[key].start for key, stop in stops.items()}
    waiting = [key for key, backlog in backlogs.items() if backlog.records]
    assert all(0 <= shares[key] <= backlog.records for key, backlog in backlogs.items())
    assert all(shares[key] >= 1 for key in waiting)
    total = sum(backlog.records for backlog in backlogs.values())
    assert sum(shares.values()) == min(total, max(limit, len(waiting)))


def test_bytes_are_records_of_the_average_size() -> None:
    backlogs = {"a": Backlog(0, 100), "b": Backlog(50, 150), "c": Backlog(3, 3)}
    assert records_for(1000, backlogs, {"a": 10.0, "b": 30.0}) == 50
    assert records_for(1, backlogs, {"a": 10.0, "b": 30.0}) == 1
    assert records_for(1000, {"c": Backlog(3, 3)}, {}) == 1


def test_patience_ends_with_enough_records_or_with_the_delay() -> None:
    patience = Patience(10, 5 * S)
    assert patience.waits(3, 100 * S)
    assert patience.waits(9, 104 * S)
    assert not patience.waits(10, 104 * S), "enough"
    assert patience.waits(9, 108 * S), "the clock starts again with each micro-batch"
    assert not patience.waits(9, 109 * S), "the delay is over"
    assert patience.waits(1, 109 * S)


def test_patience_without_records_keeps_its_clock() -> None:
    patience = Patience(10, 5 * S)
    assert patience.waits(0, 100 * S)
    assert not patience.waits(0, 105 * S), "there is nothing to wait for, and nothing to read"
    assert not patience.waits(1, 106 * S), "a single record has waited long enough"
