"""A store that has no room for messages, as its source's registration takes it: it keeps its seat, and the
program is told once."""

from __future__ import annotations

import pytest
from support.registering import INTERVAL, OURS, grant

from holdfast.engine.events.source import StoreUnresponsive
from holdfast.engine.rules.quorum import Groups
from holdfast.engine.rules.registration import Action, Full, Phase
from holdfast.engine.rules.source_registration import SourceRegistration
from holdfast.engine.source.registration_events import source_event

LOOK = 100


class Machine(SourceRegistration):
    """Registered with all of its stores; the heartbeat goes on at each look."""

    def __init__(self, size: int, backups: int = 0) -> None:
        groups = Groups((size,), (0,) * (size + backups))
        SourceRegistration.__init__(self, groups, INTERVAL, "majority", OURS, look_ns=LOOK)
        self._now = 0
        for store in range(size + backups):
            self.connected(store, 0)
        for store in range(size + backups):
            self.granted(store, grant(0), 0)
        self.opened(1, 0, 0)
        for store in range(size):
            self.begun(store, 0, 0)
        assert self.may_send

    def sees(self, store: int, *, full: bool, catching_up: bool = False) -> list[Action]:
        self._now += LOOK
        return self.look(store, self._now, 0, self._now, catching_up=catching_up, full=full)


def test_it_is_told_once_and_keeps_its_seat() -> None:
    machine = Machine(3, backups=1)
    assert machine.sees(2, full=True) == [Full(2, 2, 2)]
    assert machine.sees(2, full=True, catching_up=True) == [], "once"
    assert machine.seated == {0, 1, 2}
    assert machine.sees(1, full=True) == [Full(1, 1, 2)], "those that are full are not left"
    assert machine.may_send, "sends wait for room in the flight"
    assert machine.sees(2, full=False) == []
    assert machine.sees(2, full=True) == [Full(2, 1, 2)], "it is news again"


def test_a_backup_that_is_full_is_nobodys_news() -> None:
    machine = Machine(2, backups=1)
    assert machine.entries[2].phase is Phase.IDLE
    assert machine.sees(2, full=True) == []


@pytest.mark.parametrize(("registered", "stalls"), [(2, False), (1, True)])
def test_the_event_names_the_store_and_the_remedy(registered: int, stalls: bool) -> None:
    event = source_event(Full(1, registered, 2), ["a", "b", "c"])
    assert isinstance(event, StoreUnresponsive)
    assert (event.store, event.store_index, event.registered, event.required) == ("b", 1, registered, 2)
    assert (event.reason, event.quorum_lost) == ("full", False)
    assert "store 1 [b] has no room for messages: make room in" in event.text
    assert ("nothing new becomes stable" in event.text) is stalls
