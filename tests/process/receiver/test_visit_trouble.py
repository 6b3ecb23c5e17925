"""Stores that hang, and disks that are full, while a receiver that only acknowledges visits sources that are
over (engine/receiver/visits.py): it tries again, and says why."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, NoReturn

import pytest
from process.receiver.test_visits import (
    FOR_EVER,
    MANY,
    Late,
    acknowledge,
    all_over,
    at_once,
    ctx,
    has_left,
    late,
    positions,
    session,
)
from support.receiving import Told, until

from holdfast.engine.errors import TurnHeldError
from holdfast.engine.events import receiver as events
from holdfast.engine.receiver import delivery_controller, finished_source, visits
from holdfast.engine.store.receivers import ReceiverDesk

if TYPE_CHECKING:
    from collections.abc import Callable

    from process.conftest import ThreadStore

    import holdfast as hf
    from holdfast.engine.receiver.ack_only import AckOnlyReceiver

__all__ = ["at_once", "ctx", "late", "session"]  # fixtures


def full(*_: object, **__: object) -> NoReturn:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def looks(rcv: AckOnlyReceiver) -> None:
    """The context's thread has looked around some times."""
    for _ in range(20):
        asked = rcv._next_ack_ns
        rcv.context.wake()
        until("a turn", lambda asked=asked: rcv._next_ack_ns != asked)  # type: ignore[misc]


def test_a_store_that_hung_is_visited_again_when_it_answers(
    run_store: Callable[..., ThreadStore], ctx: hf.Context, session: Callable[..., AckOnlyReceiver],
    monkeypatch: pytest.MonkeyPatch, late: Late,
) -> None:  # fmt: skip
    """It was linked all the time, so it does not tell of its sources again."""
    stores = {name: run_store(name, "disk") for name in "abc"}
    uuids = all_over(ctx, list(stores.values()))
    late.store = "c"
    monkeypatch.setattr(finished_source, "STANDS_NS", 0)
    rcv = session()
    acknowledge(rcv, uuids)
    until("it has left", lambda: has_left(rcv, *uuids) and rcv.acknowledged() == dict.fromkeys(uuids, 3))
    assert positions(stores["c"], uuids) == [[]] * MANY
    monkeypatch.setattr(finished_source, "STANDS_NS", FOR_EVER)  # its answer may come behind those of the others
    late.store = ""
    until("it is told", lambda: positions(stores["c"], uuids) == [[3]] * MANY)
    until("it has left again, and needs not come back", lambda: has_left(rcv, *uuids) and not rcv.finished._again)


def test_a_visit_that_no_store_has_answered_is_made_again(
    run_store: Callable[..., ThreadStore], ctx: hf.Context, session: Callable[..., AckOnlyReceiver],
    monkeypatch: pytest.MonkeyPatch, late: Late,
) -> None:  # fmt: skip
    store = run_store("a", "disk")
    uuids = all_over(ctx, [store])
    late.store = "a"
    monkeypatch.setattr(finished_source, "STANDS_NS", 0)
    monkeypatch.setattr(visits, "HANGS_NS", 0)
    rcv = session()
    acknowledge(rcv, uuids)
    until("it was there", lambda: rcv.finished._visits.keys() == {*uuids})
    assert rcv.acknowledged() == {}
    monkeypatch.setattr(visits, "HANGS_NS", FOR_EVER)
    late.store = ""
    until("it is acknowledged", lambda: positions(store, uuids) == [[3]] * MANY)


def test_it_is_pending_until_each_store_that_has_told_of_the_source_has_granted(
    run_store: Callable[..., ThreadStore], ctx: hf.Context, session: Callable[..., AckOnlyReceiver], late: Late
) -> None:
    """Whoever ends the process when nothing is pending would leave one that keeps the source for nobody."""
    stores = [run_store(name, "disk") for name in "abc"]
    uuids = all_over(ctx, stores)
    late.store = "c"
    rcv = session()
    acknowledge(rcv, uuids, 2)  # so it stays registered
    until("a quorum has granted", lambda: rcv.acknowledged() == dict.fromkeys(uuids, 2))
    looks(rcv)
    assert rcv.pending == MANY
    late.come(rcv)
    until("all have granted", lambda: not rcv.pending)
    rcv.context.close()  # type: ignore[attr-defined]
    for store in stores:
        until("it is in its state", lambda store=store: positions(store, uuids) == [[2]] * MANY)  # type: ignore[misc]


def test_a_store_that_does_not_grant_in_time_is_not_pending_any_more(
    run_store: Callable[..., ThreadStore], ctx: hf.Context, session: Callable[..., AckOnlyReceiver],
    monkeypatch: pytest.MonkeyPatch, late: Late,
) -> None:  # fmt: skip
    uuids = all_over(ctx, [run_store(name, "disk") for name in "abc"])
    late.store = "c"
    monkeypatch.setattr(finished_source, "STANDS_NS", 0)
    rcv = session()
    acknowledge(rcv, uuids, 2)
    until("it had its time", lambda: rcv.acknowledged() == dict.fromkeys(uuids, 2) and not rcv.pending)


@pytest.mark.parametrize("stands", [0, FOR_EVER])
def test_a_store_whose_disk_is_full_refuses_for_now(
    run_store: Callable[..., ThreadStore], ctx: hf.Context, session: Callable[..., AckOnlyReceiver],
    monkeypatch: pytest.MonkeyPatch, stands: int,
) -> None:  # fmt: skip
    """It is asked again, by the same visit or by another one, which makes room for other sources."""
    store = run_store("a", "disk")
    uuids = all_over(ctx, [store])
    monkeypatch.setattr(finished_source, "STANDS_NS", stands)
    rcv = session(chosen=())
    with monkeypatch.context() as patch:
        patch.setattr(ReceiverDesk, "_record", full)
        rcv.choose(uuids)
        until("it is said", lambda: "is full: no space" in rcv.trouble())
        assert rcv.refusal(uuids) is None, "that passes"
        if not stands:
            until("it has left", lambda: rcv.finished._visits.keys() == {*uuids})
    until("registered", lambda: rcv.acknowledged() == dict.fromkeys(uuids, 0))
    until("nothing is said any more", lambda: not rcv.trouble())


@pytest.mark.parametrize("stands", [0, FOR_EVER])
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "no room of the test"), TurnHeldError("of the test", 0)])
def test_a_board_that_cannot_be_joined_now(
    run_store: Callable[..., ThreadStore], ctx: hf.Context, session: Callable[..., AckOnlyReceiver],
    monkeypatch: pytest.MonkeyPatch, stands: int, error: Exception,
) -> None:  # fmt: skip
    store = run_store("a", "disk")
    uuids = all_over(ctx, [store], 1)
    monkeypatch.setattr(finished_source, "STANDS_NS", stands)
    tried, told = [0], Told()

    def fails(*_: object) -> NoReturn:
        tried[0] += 1
        raise error

    rcv = session(on_event=told)
    with monkeypatch.context() as patch:
        patch.setattr(delivery_controller, "join_board", fails)
        rcv.acknowledge_below(uuids[0], 3)
        until("it is tried again and again", lambda: tried[0] >= 3)
        assert rcv.refusal(uuids) is None
        until("it is said", rcv.trouble)
        if stands:
            said = [each for each in told.of(events.RegistrationError) if "no room of the test" in str(each)]
            assert len(said) == isinstance(error, OSError), "once"
    until("it is acknowledged", lambda: positions(store, uuids) == [[3]])
    assert rcv.acknowledged() == {uuids[0]: 3}


def test_what_is_no_trouble_of_the_system_fails_for_good(
    run_store: Callable[..., ThreadStore], ctx: hf.Context, session: Callable[..., AckOnlyReceiver],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    uuids = all_over(ctx, [run_store("a", "disk")], 1)

    def fails(*_: object) -> NoReturn:
        raise ValueError("a mistake of the test")

    monkeypatch.setattr(delivery_controller, "join_board", fails)
    rcv = session()
    until("it has failed", lambda: "a mistake of the test" in str(rcv.refusal(uuids)))
