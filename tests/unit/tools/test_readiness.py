"""What keeps a store from having its say, as `holdfast store wait` reads it off a snapshot
(engine/tools/readiness.py)."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.engine.tools.readiness import missing
from holdfast.engine.tools.snapshot import Snapshot, SourceRow, StorePosition, StoreRow


def store(name: str = "c", state: str = "running") -> StoreRow:
    return StoreRow(name, state, "disk", "/var/c", 5, 1)


def source(at: str, state: str = "live", name: str = "c", **more: Any) -> SourceRow:
    position = StorePosition(name, 7, 4, 5, at != "down", state=at, **more)
    return SourceRow("quotes", "f0", state, {}, 0x2A, 1, 2, state == "live", 10, 4, 5, 10, 100, 100, [position])


def look(*rows: StoreRow | SourceRow, wanted: Any = "active") -> list[str]:
    stores = [row for row in rows if isinstance(row, StoreRow)]
    sources = [row for row in rows if isinstance(row, SourceRow)]
    return missing(Snapshot("d", sources, [], stores), "c", {"c", "127.0.0.1:14567"}, wanted)


@pytest.mark.parametrize("wanted", ["active", "running"])
@pytest.mark.parametrize("state", ["stopped", "dead", "unknown"])
def test_a_store_that_does_not_run_is_neither(state: str, wanted: str) -> None:
    assert look(store(state=state), wanted=wanted) == [f"the store is {state}"]
    assert look(store("a"), wanted=wanted) == ["the store is unknown"]


def test_one_that_runs_and_catches_up_runs() -> None:
    assert look(store(), source("catching_up"), wanted="running") == []
    assert look(store(), source("catching_up")) == [
        "it is catching up for source RegID 7 (session ID 0x2a) on topic 'quotes', 5 messages behind"
    ]


@pytest.mark.parametrize("at", ["catching_up", "full", "down", "idle", "unknown"])
@pytest.mark.parametrize("state", ["live", "unknown", "nameless"])
def test_of_a_source_that_may_live_it_must_be_active(state: str, at: str) -> None:
    assert len(look(store(), source(at, state))) == 1
    assert look(store(), source("active", state)) == []


@pytest.mark.parametrize(("at", "count"), [("catching_up", 1), ("full", 1), ("down", 0), ("idle", 0), ("active", 0)])
@pytest.mark.parametrize("state", ["closed", "dead"])
def test_of_one_that_has_ended_only_what_the_store_is_about_to_get_is_missing(state: str, at: str, count: int) -> None:
    assert len(look(store(), source(at, state))) == count


def test_what_has_no_ring_and_what_other_stores_lack_is_not_waited_for() -> None:
    assert look(store(), source("down", "stored"), source("down", name="b")) == []


def test_a_spare_store_is_not_missing() -> None:
    assert look(store(), source("idle", spare=True)) == []


def test_a_store_is_known_by_all_of_its_names() -> None:
    assert len(look(store(), source("down", name="127.0.0.1:14567"), source("down"))) == 2
