"""What a receiver says of an attempt to begin that failed (engine/receiver/delivery_controller.py): the
reason of the last one, and no older one."""

from __future__ import annotations

import errno
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.engine.errors import LimitReachedError, TurnHeldError
from holdfast.engine.receiver.delivery_controller import DeliveryController

FULL = LimitReachedError("no descriptor", errno.EMFILE, "EMFILE", limit="RLIMIT_NOFILE", value=1, used=1)


@pytest.fixture
def controller() -> DeliveryController:
    controller = DeliveryController.__new__(DeliveryController)
    made: Any = controller
    made.topic, made.source, made.board, made.failure = "quotes", "quotes:1", None, None
    made._lacks, made._tried_ns = None, 5
    made.registrar = SimpleNamespace(refusal=lambda _: None)
    context = SimpleNamespace(waits=SimpleNamespace(show=lambda *_: None))
    made.receiver = SimpleNamespace(
        options=SimpleNamespace(ume_registration_interval=100), tell=lambda _: None, wake=lambda: None,
        failed=lambda *_: None, context=context,
    )  # fmt: skip
    return controller


@pytest.mark.parametrize("later", [TurnHeldError("the board", 7), LookupError("no such table")], ids=["turn", "failed"])
def test_a_limit_of_an_older_attempt_is_not_the_reason_any_more(
    controller: DeliveryController, later: Exception
) -> None:
    action: Any = object()
    controller._not_begun(action, FULL)
    found = controller.refusal()
    assert found is not None
    assert found.code == "EMFILE"
    controller._not_begun(action, later)
    assert controller.refusal() is None
