"""The segment that a new receiver starts on is retired before its first look: it starts on the next one,
nothing is told as lost (docs/semantics.md F.4), and it confirms nothing that it never had (docs/design.md
8)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from support.receiving import SHORT, Told, take
from support.workers import until

import holdfast as hf
from holdfast.engine.events import receiver as events
from holdfast.engine.events import source as source_events
from holdfast.engine.receiver.delivery_controller import DeliveryController

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest
    from process.conftest import ThreadStore

LIMIT = 1 << 19
OPTIONS: dict[str, Any] = {
    "ring_size": 1 << 16,
    "fragment_size": 4096,
    "ume_store_name": ["a"],
    "ume_confirmed_delivery_notification": 1,
}


def test_a_start_moves_on_with_its_segment(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = run_store("a", "disk", **{"repository-disk-file-size-limit": LIMIT})
    told, said, opened = Told(), Told(), DeliveryController._open
    with (
        hf.Context() as ctx,
        hf.Context() as reader,
        ctx.source("quotes", options=OPTIONS, on_event=said) as src,
    ):
        src.wait_registered(SHORT)
        (repository,) = store.store.holdings.open_ones()
        starts: list[int] = []

        def send(count: int) -> None:
            for _ in range(count):
                src.send(b"x" * 1024)
            src.wait_stable(timeout=SHORT)

        def held_up(controller: DeliveryController, start: int, live_from: int, *, skips: bool) -> None:
            """Between what the stores have granted and its first look."""
            starts.append(start)
            while repository.oldest_sqn <= start:
                send(64)
            opened(controller, start, live_from, skips=skips)

        send(64)
        monkeypatch.setattr(DeliveryController, "_open", held_up)
        with reader.receiver("quotes", on_event=told) as rcv:
            numbers = take(rcv)
            assert numbers[0] >= repository.oldest_sqn > starts[0]
            numbers += take(rcv, src.next_sequence_number - 1 - numbers[0])

            def confirmed() -> list[int]:
                return [each.sequence_number for each in said.of(source_events.DeliveryConfirmation)]

            until("the last is confirmed", lambda: numbers[-1] in confirmed())
            assert confirmed()[0] == numbers[0], "it never had what is below"
    assert len(starts) == 1
    assert not told.of(events.UnrecoverableLoss)
