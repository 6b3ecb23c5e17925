"""A receiver that takes its line on the board while a slow store has its request is not in its own way
(engine/receiver/registrar.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from support.three_stores import SHORT, SOURCE, everywhere, send
from support.workers import until

import holdfast as hf
from holdfast.engine.control import wire
from holdfast.engine.control.link import StoreLink
from holdfast.engine.receiver.registrar import Registrar

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest
    from process.conftest import ThreadStore

told = hf.events.receiver


def test_a_store_that_is_late_does_not_call_the_receiver_a_different_one(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abc":
        run_store(name)
    with hf.Context() as far, hf.Context(session_id=7) as near:
        src = far.source("quotes", options=SOURCE)
        everywhere(src)
        send(src, 1)
        registered: list[object] = []
        with near.receiver("quotes", on_event=registered.append) as rcv:
            message = rcv.receive(timeout=SHORT)
            assert message is not None
            message.release()
            until("all stores know it", lambda: sum(isinstance(e, told.RegistrationSuccess) for e in registered) == 3)

        held: list[tuple[Any, ...]] = []
        ask, tick = StoreLink.ask, Registrar.tick

        def late(link: StoreLink, request: wire.Request, answered: Callable[[wire.Answer], None]) -> None:
            if link.name == "c" and isinstance(request, wire.RegisterReceiver) and not request.holds_line:
                held.append((link, request, answered))
            else:
                ask(link, request, answered)

        def turn(registrar: Registrar, now_ns: int) -> None:
            if registrar._controller.line >= 0:
                while held:
                    ask(*held.pop(0))
            tick(registrar, now_ns)

        monkeypatch.setattr(StoreLink, "ask", late)
        monkeypatch.setattr(Registrar, "tick", turn)
        events: list[object] = []
        with near.receiver("quotes", options={"ume_registration_interval": 100}, on_event=events.append):
            stores = {"a", "b", "c"}
            until(
                "all have granted",
                lambda: {e.store for e in events if isinstance(e, told.RegistrationSuccess)} == stores,
            )
        refused = [
            event.text for event in events if isinstance(event, told.RegistrationError) and "in use" in event.text
        ]
        assert refused == []
