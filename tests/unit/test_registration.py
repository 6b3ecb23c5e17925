"""Registration machines as stories: what happened, and what they ask for."""

from __future__ import annotations

import pytest

from holdfast.engine.registration import (
    REFUSED_RETRY_NS,
    Announce,
    Ask,
    Complete,
    Grant,
    Granted,
    Open,
    ReceiverRegistration,
    Refusal,
    RefusedBy,
    SourceRegistration,
    Unresponsive,
)

INTERVAL = 3_000_000_000
OURS, THEIRS = b"o" * 16, b"t" * 16


def grant(next_sqn: int, *, incarnation: int = 0, uuid: bytes = OURS, old: bool = False) -> Grant:
    return Grant(7, uuid, next_sqn, old, incarnation)


def source(stores: int = 1) -> SourceRegistration:
    return SourceRegistration(stores, INTERVAL, "majority", OURS)


def test_one_store_from_the_link_to_the_first_send() -> None:
    machine = source()
    assert machine.connected(0, 0) == [Ask(0)]
    granted = grant(0)
    assert machine.granted(0, granted, 1) == [Granted(0, granted), Open(1, 0)]
    assert not machine.may_send
    assert machine.opened(1, 0) == [Announce(0)]
    assert not machine.may_send, "BEGIN is not durable yet"
    assert machine.begun(0, 0) == [Complete(0, True)]
    assert machine.may_send


def test_a_restarted_source_takes_over_identity_and_numbers() -> None:
    machine = source()
    machine.connected(0, 0)
    old = grant(51, incarnation=3, uuid=THEIRS, old=True)
    assert machine.granted(0, old, 1) == [Granted(0, old), Open(4, 51)]
    assert machine.uuid == THEIRS


def test_a_store_that_returns_is_asked_and_told_again_and_completes_again() -> None:
    machine = source()
    machine.connected(0, 0)
    machine.granted(0, grant(0), 1)
    machine.opened(1, 0)
    machine.begun(0, 0)
    assert machine.disconnected(0) == [Unresponsive(0, True, 0, 1)]
    assert not machine.may_send
    assert machine.connected(0, 5) == [Ask(0)]
    again = grant(20, incarnation=1, old=True)
    assert machine.granted(0, again, 6) == [Granted(0, again), Announce(0)]
    assert machine.begun(0, 23) == [Complete(23, True)]
    assert (machine.incarnation, machine.start_sqn) == (1, 0), "the live object's numbering goes on"


def test_a_refused_claimant_is_told_once_and_asks_again_soon() -> None:
    machine = source()
    machine.connected(0, 0)
    refusal = Refusal("reg_id_in_use", "RegID 7 is in use", pid=12)
    assert machine.refused(0, refusal) == [RefusedBy(0, refusal)]
    assert machine.refusal() == refusal
    assert machine.tick(REFUSED_RETRY_NS - 1) == []
    assert machine.tick(REFUSED_RETRY_NS) == [Ask(0)]
    assert machine.refused(0, refusal) == [], "the same reason is not said twice"
    machine.tick(2 * REFUSED_RETRY_NS)
    granted = grant(0)
    assert machine.granted(0, granted, 3 * REFUSED_RETRY_NS)[-1] == Open(1, 0)
    assert machine.refusal() is None


def test_an_unanswered_request_is_not_repeated_while_the_link_holds() -> None:
    machine = source()
    machine.connected(0, 0)
    assert machine.tick(10 * INTERVAL) == []


def test_without_stores_the_source_streams_at_once() -> None:
    machine = source(0)
    assert machine.start() == [Open(1, 0)]
    assert machine.opened(1, 0) == [Complete(0, True)]


@pytest.mark.parametrize(
    ("answers", "after", "opens"),
    [
        ([50, 50, 50], 0, 50),
        ([50, 50], 0, None),  # the third may still answer in the first interval
        ([50, 50], INTERVAL, 50),
        ([40, 45, 50], 0, 45),
        ([40, 50], INTERVAL, 40),
        ([50], 10 * INTERVAL, None),  # no quorum
    ],
)
def test_three_stores_open_at_the_consensus(answers: list[int], after: int, opens: int | None) -> None:
    machine = source(3)
    actions = []
    for store, next_sqn in enumerate(answers):
        machine.connected(store, 0)
        actions += machine.granted(store, grant(next_sqn, incarnation=2), 1)
    if after:
        actions += machine.tick(after)
    assert [a for a in actions if isinstance(a, Open)] == ([] if opens is None else [Open(3, opens)])


def test_a_minority_that_dies_does_not_stop_the_source() -> None:
    machine = source(3)
    for store in range(3):
        machine.connected(store, 0)
        machine.granted(store, grant(0), 1)
    machine.opened(1, 0)
    for store in range(3):
        machine.begun(store, 0)
    assert machine.disconnected(2) == [Unresponsive(2, False, 2, 2)]
    assert machine.may_send
    assert machine.disconnected(1) == [Unresponsive(1, True, 1, 2)]
    assert not machine.may_send


def test_a_receiver_completes_at_its_low_number_once() -> None:
    machine = ReceiverRegistration(1, INTERVAL, "majority")
    assert machine.connected(0, 0) == [Ask(0)]
    first = grant(15, old=True)
    assert machine.granted(0, first, 1) == [Granted(0, first), Complete(15, True)]
    assert machine.disconnected(0) == []
    machine.connected(0, 2)
    again = grant(18, old=True)
    assert machine.granted(0, again, 3) == [Granted(0, again)]


def test_a_receiver_that_comes_before_the_source_waits_for_it() -> None:
    machine = ReceiverRegistration(1, INTERVAL, "majority")
    machine.connected(0, 0)
    machine.refused(0, Refusal("unknown_source", "not yet"))
    assert machine.tick(REFUSED_RETRY_NS) == [Ask(0)]
