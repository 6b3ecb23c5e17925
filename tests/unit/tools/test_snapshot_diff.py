"""What `holdfast events` tells, from one snapshot to the next."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.engine.tools.snapshot import ReceiverRow, Snapshot, SourceRow, StorePosition, StoreRow
from holdfast.engine.tools.snapshot_diff import Change, changes


def snapshot(*rows: object) -> Snapshot:
    def of(kind: type) -> list[Any]:
        return [row for row in rows if isinstance(row, kind)]

    return Snapshot("d", of(SourceRow), of(ReceiverRow), of(StoreRow))


def example(kind: type, **given: Any) -> Any:
    """A row with these fields, and with nothing in the others."""
    empty: dict[str, Any] = {"str": "", "int": 0, "bool": False, "dict[str, int]": {}, "list[StorePosition]": []}
    names = [field.name for field in msgspec.structs.fields(kind)]
    return kind(**{name: empty.get(kind.__annotations__[name]) for name in names} | given)


def store(state: str = "running", pid: int = 1) -> StoreRow:
    return example(StoreRow, name="a", state=state, pid=pid)  # type: ignore[no-any-return]


def position(state: str = "active", stable: int = 4) -> StorePosition:
    return example(StorePosition, name="a", registration_id=9, stable=stable, state=state)  # type: ignore[no-any-return]


def source(**given: Any) -> SourceRow:
    row = {"topic": "t", "uuid": "f0", "state": "live", "pid": 2, "incarnation": 1, "next": 5, "stable": 4} | given
    return example(SourceRow, **{"stores": [position()], **row})  # type: ignore[no-any-return]


def receiver(**given: Any) -> ReceiverRow:
    row = {"topic": "t", "source_uuid": "f0", "registration_id": 7, "pid": 3, "alive": True, "ack": 4, **given}
    return example(ReceiverRow, **row)  # type: ignore[no-any-return]


def told(before: Snapshot | None, after: Snapshot) -> list[tuple[str, str, int, int]]:
    """Event, state, number and lag of each change."""
    return [(each.event, each.state, each.number, each.behind) for each in changes(before, after, 1)]


def test_what_is_there_at_first_has_come() -> None:
    assert told(None, snapshot(receiver(lag=2), source(unstable=1), store())) == [
        ("store", "running", -1, 0),
        ("source", "live", 4, 1),
        ("copy", "active", 4, 0),
        ("receiver", "live", 4, 2),
    ]


def test_nothing_is_told_when_nothing_has_changed() -> None:
    both = snapshot(store(), source(), receiver())
    assert told(both, snapshot(store(), source(), receiver())) == []


def test_stores_come_and_go() -> None:
    assert told(snapshot(store()), snapshot(store("dead"))) == [("store", "dead", -1, 0)]
    assert told(snapshot(store()), snapshot(store(pid=8))) == [("store", "running", -1, 0)]
    assert told(snapshot(store()), snapshot()) == [("store", "removed", -1, 0)]


def test_sources_come_go_and_begin_again() -> None:
    live = snapshot(source())
    for changed in ({"state": "dead"}, {"pid": 8}, {"incarnation": 2}):
        after = snapshot(source(**changed))
        assert told(live, after) == [("source", changed.get("state", "live"), 4, 0)]
    assert told(live, snapshot()) == [("source", "removed", 4, 0)]


def test_stability_moves() -> None:
    after = snapshot(source(stable=3, unstable=1, stores=[position(stable=2)]))
    assert told(snapshot(source()), after) == [("stability", "", 3, 1)]
    assert told(snapshot(source()), snapshot(source(unstable=2))) == [("stability", "", 4, 2)]


def test_a_store_of_a_source_is_lost_and_comes_back() -> None:
    up, down = snapshot(source()), snapshot(source(stores=[position("down", stable=3)]))
    assert told(up, down) == [("copy", "down", 3, 0)]
    assert told(down, up) == [("copy", "active", 4, 0)]


def test_receivers_come_go_and_fall_behind() -> None:
    here = snapshot(receiver())
    assert told(here, snapshot(receiver(lag=6))) == [("lag", "", 4, 6)]
    assert told(here, snapshot(receiver(ack=5))) == [], "it keeps up"
    gone = snapshot(receiver(alive=False))
    assert told(gone, snapshot(receiver(alive=False, lag=6))) == [], "of who lives"
    assert told(here, snapshot(receiver(alive=False, lag=6))) == [("receiver", "gone", 4, 6)]
    assert told(here, snapshot(receiver(pid=8))) == [("receiver", "live", 4, 0)]
    assert told(here, snapshot()) == [("receiver", "removed", 4, 0)]
    other = receiver(registration_id=8)
    (left,) = changes(snapshot(receiver(), other), snapshot(other), 1)
    assert (left.state, left.registration_id) == ("removed", 7)


def test_every_line_has_every_field() -> None:
    (line,) = changes(None, snapshot(store()), 5)
    assert msgspec.to_builtins(line) == {
        "time_ns": 5, "event": "store", "state": "running", "name": "a", "topic": "", "source": "", "registration_id": 0,
        "session_id": 0, "pid": 1, "number": -1, "behind": 0,
    }  # fmt: skip
    assert isinstance(line, Change)
