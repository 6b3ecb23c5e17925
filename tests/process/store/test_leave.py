"""What a store does when a receiver says that it leaves (engine/store/receivers.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from support.changing_stores import SESSION, SHORT, sent

import holdfast as hf
from holdfast.engine.store import acks
from holdfast.engine.store.receivers import ReceiverDesk

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest
    from process.conftest import ThreadStore


def test_acknowledgements_are_taken_in_once_however_many_names_a_receiver_leaves_under(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = run_store("a", "disk")
    leave, save = ReceiverDesk.leave, acks.save
    saves: list[int] = []
    """For each Leave, how often."""
    leaving: list[bool] = []

    def leaves(self: ReceiverDesk, *given: Any) -> Any:
        saves.append(0)
        leaving.append(True)
        try:
            return leave(self, *given)
        finally:
            leaving.clear()

    def saved(*given: Any, **how: Any) -> None:
        if leaving:
            saves[-1] += 1
        save(*given, **how)

    monkeypatch.setattr(ReceiverDesk, "leave", leaves)
    monkeypatch.setattr(acks, "save", saved)
    sent("a", 3)
    with hf.Context(session_id=SESSION + 1) as ctx, ctx.receiver("quotes") as rcv:
        for _ in range(3):
            with rcv.receive(SHORT) as message:  # type: ignore[union-attr]  # it comes
                assert message is not None
        rcv.close()
        assert len(saves) > 1, "under more than one name"
        assert sum(saves) == 1
        (kept,) = store.store.state.sources[0].receivers
        assert kept.ack == 3
