"""A backup that takes a seat while it is asked a second time: the program is told when it grants
(docs/semantics.md E.1). And what a source waits for that has a seat's grant, and may not open."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.engine.rules.quorum import Groups
from holdfast.engine.rules.reconcile import LogView
from holdfast.engine.rules.registration import Announce, Ask, GiveUp, Grant, Granted, Open, Seated
from holdfast.engine.rules.reports import Seen
from holdfast.engine.rules.source_registration import SourceRegistration

INTERVAL = 3_000_000_000
OURS = b"o" * 16
FILES = tuple(Seen(str(store), "", LogView(((1, 0),), 4)) for store in range(2))
LESS = Grant(7, OURS, 4, old=True, incarnation=1, begins=((1, 0),), promised=1, seen=FILES)
ENOUGH = replace(LESS, promised=2)


@pytest.fixture
def machine() -> SourceRegistration:
    """Store 0 has the seat and 1 is a backup. Both have granted, and are asked again for their promise."""
    made = SourceRegistration(Groups((1,), (0, 0), "quorum", "any"), INTERVAL, "majority", OURS)
    for store in (1, 0):
        made.connected(store, 0)
    assert made.granted(1, LESS, 0) == [], "it has no seat: nothing is told"
    assert made.granted(0, LESS, 0) == [Granted(0, LESS), GiveUp(0, OURS), Ask(0), GiveUp(1, OURS), Ask(1)]
    return made


def test_it_takes_the_seat_before_the_opening(machine: SourceRegistration) -> None:
    assert machine.disconnected(0, INTERVAL) == [Seated(1, 0)]
    assert machine.granted(1, ENOUGH, INTERVAL) == [Granted(1, ENOUGH), Open(2, 4)]


def test_it_takes_the_seat_behind_the_opening(machine: SourceRegistration) -> None:
    assert machine.granted(0, ENOUGH, INTERVAL) == [Open(2, 4)], "told already"
    assert machine.opened(2, 4, INTERVAL) == [Announce(0)]
    machine.begun(0, 4, INTERVAL)
    assert Seated(1, 0) in machine.disconnected(0, INTERVAL)
    assert machine.granted(1, ENOUGH, INTERVAL) == [GiveUp(1, OURS), Ask(1)], "an answer from before the opening"
    assert machine.granted(1, ENOUGH, INTERVAL) == [Granted(1, ENOUGH), Announce(1)]


def test_what_it_waits_for_before_the_opening_is_what_the_answers_lack() -> None:
    """Store 1 is down, and may have what is stable: nobody can read its log."""
    made = SourceRegistration(Groups((1,), (0, 0), "quorum", "any"), INTERVAL, "majority", OURS)
    unread = Seen("b", "b", None, "no such directory")
    made.connected(0, 0)
    made.granted(0, replace(LESS, name="a", seen=(Seen("a", "a", LogView(((1, 0),), 4)), unread)), 0)
    assert not made.is_open
    assert made.why("ab").startswith("b (no such directory) may hold stable messages")
    made.opened(2, 4, 0)
    assert made.why("ab") == "waiting for a", "it has begun: only BEGIN is missing"
