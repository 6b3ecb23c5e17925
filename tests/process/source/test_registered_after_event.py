"""``wait_registered`` returns when the program has been told: what its callback has prepared is there."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

import holdfast as hf

if TYPE_CHECKING:
    from collections.abc import Callable

SHORT = 90.0
STORED = {"ume_store_name": ["a:0:0"], "ring_size": 1 << 16}
Complete = hf.events.source.RegistrationComplete


@pytest.mark.parametrize("mode", ["embedded", "sequential"])
@pytest.mark.parametrize("stores", [STORED, {"ring_size": 1 << 16}], ids=["stores", "streaming"])
def test_the_event_has_been_delivered(run_store: Callable[..., object], mode: str, stores: dict[str, object]) -> None:
    run_store()
    reached, go_on = threading.Event(), threading.Event()
    told: list[object] = []

    def slow(event: object) -> None:
        if isinstance(event, Complete):
            reached.set()
            assert go_on.wait(SHORT)
        told.append(event)

    with hf.Context(options={"operational_mode": mode}) as ctx:
        src = ctx.source("quotes", options=stores, on_event=slow)
        if mode == "sequential":
            go_on.set()
            src.wait_registered(SHORT)
        else:
            assert reached.wait(SHORT)
            with pytest.raises(hf.RegistrationTimeout, match="event"):
                src.wait_registered(0)
            go_on.set()
            src.wait_registered(SHORT)
        assert [type(event) for event in told if isinstance(event, Complete)] == [Complete]
        src.wait_registered(0)


@pytest.mark.parametrize("mode", ["embedded", "sequential"])
def test_a_callback_that_waits_itself_does_not_wait_for_its_own_end(
    run_store: Callable[..., object], mode: str
) -> None:
    run_store()
    done: list[str] = []
    made: list[hf.Source] = []
    ready = threading.Event()

    def waits(event: Any) -> None:
        if isinstance(event, Complete):
            assert ready.wait(SHORT)
            made[0].wait_registered(SHORT)
            made[0].send(b"from the callback")
            done.append("sent")

    with hf.Context(options={"operational_mode": mode, "callback_errors": "raise"}) as ctx:
        made.append(ctx.source("quotes", options=STORED, on_event=waits))
        ready.set()
        made[0].wait_registered(SHORT)
        assert done == ["sent"]
