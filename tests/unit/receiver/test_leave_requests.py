"""What a receiver tells its stores when it leaves a source, so that none goes on holding its registration."""

from __future__ import annotations

import socket
from types import SimpleNamespace
from typing import Any

from holdfast.engine.control import wire
from holdfast.engine.receiver.registrar import Registered, Registrar
from holdfast.engine.store.clients import Client, Hold, Key

SOURCE = bytes([1]) * 16
OLD = bytes([2]) * 16
"""The identity that one store knows the session by."""


def test_a_store_that_takes_over_another_identity_holds_nothing_behind_the_leave() -> None:
    """Its answer names the identity before; what it holds when the Leave comes is the one after."""
    registrar = Registrar.__new__(Registrar)
    controller: Any = SimpleNamespace(uuid=SOURCE)
    link: Any = SimpleNamespace(up=True, next_id=lambda: 7)
    answer: Any = SimpleNamespace(uuid=OLD)
    registrar.proposal, registrar.deregistration = bytes([3]) * 16, None
    registrar._controller, registrar._dropped = controller, {}
    registrar.stores = [Registered(link, answer=answer), Registered(link)]
    said = [leave for _, leave in registrar.leave_requests()]
    assert said == [wire.Leave(7, "receiver", SOURCE, name) for name in (OLD, registrar.proposal, registrar.proposal)]
    here, there = socket.socketpair()
    with here, there:
        client = Client(here, 1)
        for identity in (OLD, bytes([4]) * 16):  # it answered on the way, or adopted what it was asked as
            client.holds[Key("receiver", SOURCE, identity)] = Hold(0, registrar.proposal)
            for leave in said[:2]:
                client.leave(leave.role, leave.source, leave.uuid)
            assert client.holds == {}
