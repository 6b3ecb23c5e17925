"""An explicit acknowledgement is of what was published; what is still to come cannot be acknowledged
(docs/semantics.md G.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.receiving import SHORT, send, source, take, until

import holdfast as hf

if TYPE_CHECKING:
    from collections.abc import Callable

EXPLICIT: dict[str, object] = {"ume_explicit_ack_only": 1, "ume_session_id": 9}


@pytest.mark.parametrize("closed", [False, True], ids=["source there", "source closed"])
def test_an_ack_of_a_number_that_was_never_published_is_refused_and_changes_nothing(
    run_store: Callable[..., object], closed: bool
) -> None:
    """It would acknowledge messages that are still to come."""
    run_store()
    with hf.Context() as ctx:
        src = source(ctx, 3)
        with ctx.receiver("quotes", options=EXPLICIT) as receiver:
            message = receiver.receive(timeout=SHORT)
            assert message is not None
            ack = message.extract_ack()
            if closed:
                src.close()
            for call in (ack.send, ack.mark_not_outstanding):
                for number in (3, 100, 2**62):
                    with pytest.raises(hf.UsageError, match=rf"{number}.*published.*2"):
                        call(number)
            assert list(receiver.stats().acknowledged.values()) == [-1]
            ack.send(0)
        again = ctx.receiver("quotes", options=EXPLICIT)
        assert take(again) == [1]


def test_an_ack_of_what_was_published_behind_the_registration_is_taken_with_the_ring_gone(
    run_store: Callable[..., object],
) -> None:
    """The stores' answers are older, and nothing but their logs says so."""
    run_store()
    with hf.Context() as ctx, hf.Context() as publisher:
        src = source(publisher, 3)
        with ctx.receiver("quotes", options=EXPLICIT) as receiver:
            message = receiver.receive(timeout=SHORT)
            assert message is not None
            ack = message.extract_ack()
            send(src, 10)
            src.close()
            (controller,) = receiver.controllers
            until("the ring is gone", lambda: ctx.discovery.header(controller.uuid) is None)
            with pytest.raises(hf.UsageError, match=r"13.*published.*12"):
                ack.send(13)
            ack.send(8)
        assert take(ctx.receiver("quotes", options=EXPLICIT)) == [9]
