"""Sources that are over: no look looks at them before somebody asks (engine/log/state_parts.py)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
from support.receiving import received
from support.shelved_logs import is_shelved, kept, over, shelve_at_once, shelved
from support.three_stores import SHORT
from support.workers import until

import holdfast as hf
from holdfast.engine.store import rounds
from holdfast.engine.store.expiry import Expiry
from holdfast.engine.store.receivers import ReceiverDesk
from holdfast.engine.tools import doctor

if TYPE_CHECKING:
    from collections.abc import Callable

    from process.conftest import ThreadStore

    from holdfast.engine.log.state_file import ReceiverState, SourceState


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log is shelved as soon as it may be."""
    shelve_at_once(monkeypatch)


def test_the_doctor_finds_a_log_at_rest_well(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "_orphans", list)  # whatever others have left in shared memory
    monkeypatch.setattr(rounds, "LOOKS_MAX", 0)
    store = run_store("a", "disk")
    with hf.Context() as ctx:
        shelved(store, *(over(ctx, session) for session in (7, 8)))
        found = doctor.examine(ctx.domain)
    assert [each for each in found if not each.ok] == []
    (disk,) = [each.found for each in found if "logs take" in each.found]
    assert "2 are of sources that are over, and stay as they are" in disk


def test_no_receiver_is_forgotten_before_its_board_was_looked_at(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of one source: for the first one its log is opened, and the next look sees both lines."""
    lifetimes = {"receiver-state-lifetime": 200, "receiver-activity-timeout": 20, "source-check-interval": 5}
    see, forget = Expiry._see, ReceiverDesk.forget
    open_then: list[set[bytes]] = [set()]
    looked: list[bool] = []

    def noted(expiry: Expiry) -> dict[bytes, Any]:
        found = see(expiry)
        open_then.append(set(found))
        return found

    def watched(desk: ReceiverDesk, source: SourceState, receiver: ReceiverState) -> None:
        looked.append(source.uuid in open_then[-1])
        forget(desk, source, receiver)

    monkeypatch.setattr(Expiry, "_see", noted)
    monkeypatch.setattr(ReceiverDesk, "forget", watched)
    store = run_store("a", "disk", **lifetimes)
    with hf.Context() as ctx:
        uuid = over(ctx, 7)
        for session in (8, 9):
            received(ctx, "quotes", 1, ume_session_id=session)
        until("both are forgotten", lambda: len(looked) == 2 and kept(store, uuid).receivers == [])
    assert looked == [True, True]


def test_no_look_looks_at_what_rests_until_somebody_asks(run_store: Callable[..., ThreadStore]) -> None:
    store = run_store("a", "disk", **{"source-check-interval": 5})
    expiry, registry = store.store._expiry, store.store.holdings.registry

    def rests() -> bool:
        return is_shelved(store, uuid) and registry.parts.rests(uuid)

    with hf.Context() as ctx:
        uuid = over(ctx, 7)
        until("all is known of it, and nothing changes", rests)
        with ctx.receiver("quotes", options={"ume_session_id": 9}) as rcv:
            assert rcv.receive(timeout=SHORT) is not None
            until("it is looked at", lambda: not registry.parts.rests(uuid))
        until("it rests again", rests)
        assert [receiver.gone_ns > 0 for receiver in kept(store, uuid).receivers] == [True]
        assert expiry._due == [], "nothing of it ever goes"


def test_who_comes_and_goes_between_two_looks_is_looked_at(run_store: Callable[..., ThreadStore]) -> None:
    store = run_store("a", "disk", **{"source-check-interval": 5})
    expiry, registry = store.store._expiry, store.store.holdings.registry
    with hf.Context() as ctx:
        uuid = over(ctx, 7)
        until("it rests", lambda: is_shelved(store, uuid) and registry.parts.rests(uuid))
        expiry._interval_s = math.inf
        until("no look comes any more", lambda: expiry.due_s == math.inf)
        assert received(ctx, "quotes", 3, ume_session_id=9) == [b"0", b"1", b"2"]
        shelved(store, uuid)
        assert [receiver.gone_ns for receiver in kept(store, uuid).receivers] == [0]
        expiry._interval_s, expiry.due_s = 0.005, 0.0
        until("it is seen that it has left", lambda: kept(store, uuid).receivers[0].gone_ns)
