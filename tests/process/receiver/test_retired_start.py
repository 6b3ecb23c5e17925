"""The segment that a new receiver starts on is retired before its first look: it starts on the next one, and
nothing is told as lost (docs/semantics.md F.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from support.receiving import SHORT, Told

import holdfast as hf
from holdfast.engine.events import receiver as events
from holdfast.engine.receiver.delivery_controller import DeliveryController

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest
    from process.conftest import ThreadStore

LIMIT = 1 << 19
OPTIONS: dict[str, Any] = {"ring_size": 1 << 16, "fragment_size": 4096, "ume_store_name": ["a"]}


def test_a_start_moves_on_with_its_segment(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = run_store("a", "disk", **{"repository-disk-file-size-limit": LIMIT})
    told, opened = Told(), DeliveryController._open
    with hf.Context() as ctx, hf.Context() as reader, ctx.source("quotes", options=OPTIONS) as src:
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
            first = rcv.receive(SHORT)
            assert first is not None
            assert first.sequence_number >= repository.oldest_sqn > starts[0]
            last = first
            while last.sequence_number < src.next_sequence_number - 1:
                last = rcv.receive(SHORT) or last
    assert len(starts) == 1
    assert not told.of(events.UnrecoverableLoss)
