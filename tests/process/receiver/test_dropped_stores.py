"""A receiver whose source goes on with other stores, and those that it declares no more (docs/semantics.md
B.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from support.changing_stores import READER, SHORT, received, sent

import holdfast as hf

if TYPE_CHECKING:
    from collections.abc import Callable

    from process.conftest import ThreadStore


def test_a_receiver_leaves_the_stores_of_earlier_lists_too(run_store: Callable[..., ThreadStore]) -> None:
    """They held its registration as long as its process lived, against the next receiver of its session.
    Simulator seed 120530."""
    for name in "abcde":
        run_store(name, "disk")
    told: list[Any] = []
    with hf.Context(session_id=READER) as ctx:
        with ctx.receiver("quotes") as rcv:
            for number, names in enumerate(("abc", "cde")):
                assert sent(names, 1) == number
                with rcv.receive(SHORT) as message:  # type: ignore[union-attr]  # it comes
                    assert message.sequence_number == number
        assert sent("abc", 1) == 2
        received(2, 2, told.append)
    refused = [event for event in told if isinstance(event, hf.events.receiver.RegistrationError)]
    assert not [event for event in refused if "in use" in event.text]
