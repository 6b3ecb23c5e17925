"""What a store's logs really take on disk, compared with what the guide and the doctor say that they may."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.workers import until

import holdfast as hf
from holdfast.engine.memory.domain import Domain
from holdfast.engine.rules.log_sizes import most_bytes
from holdfast.engine.tools.doctor import examine
from holdfast.engine.tools.doctor_disk import disk_use

if TYPE_CHECKING:
    from collections.abc import Callable

    from process.conftest import ThreadStore

SHORT = 90.0
LIMIT = 1 << 20
SOURCE: dict[str, Any] = {"ume_store_name": ["a:0:0"], "ume_flight_size": 1_000_000}


def test_a_burst_takes_no_more_than_is_said(run_store: Callable[..., ThreadStore], own_domain: str) -> None:
    store = run_store("a", "disk", **{"repository-disk-file-size-limit": LIMIT})
    with hf.Context() as ctx, ctx.source("quotes", options=SOURCE) as src:
        src.wait_registered(SHORT)
        for _ in range(3):
            src.send_batch(np.zeros((12_000, 1000), np.uint8), timeout=SHORT)
            src.wait_stable(timeout=SHORT)
            use = disk_use(store.store.logs, store.store.state.sources, LIMIT)
            assert LIMIT <= use.taken <= use.most == most_bytes(LIMIT, paced=False)
        domain = Domain(own_domain)
        try:
            said = [each.found for each in examine(domain) if "repository-disk-file-size-limit" in each.found]
        finally:
            domain.close()
    assert len(said) == 1
    assert "store a: 1 logs take" in said[0]
    assert "each keeps 1 MiB at most" in said[0]


@pytest.mark.parametrize(("size", "room"), [(16, 64), (32, 64), (1000, 1056)])
def test_the_limit_of_a_receiver_paced_source_counts_payload(
    run_store: Callable[..., ThreadStore], size: int, room: int
) -> None:
    rules = {"repository-allow-receiver-paced-persistence": 1, "repository-disk-file-size-limit": LIMIT}
    store = run_store("a", "disk", **rules)
    paced = {"ume_receiver_paced_persistence": 1}
    flight = {**SOURCE, **paced, "ume_flight_size_bytes": LIMIT // 8}
    with hf.Context(session_id=7) as ctx, ctx.source("quotes", options=flight) as src:
        src.wait_registered(SHORT)
        rcv = ctx.receiver("quotes", options=paced)
        (source,) = store.store.state.sources
        until("the store waits for it", lambda: any(each.paced for each in source.receivers))
        rows = np.zeros((2 * LIMIT // size, size), np.uint8)  # more than fits: nobody acknowledges
        (repository,) = store.store.holdings.open_ones()
        sent, pacer = 0, repository.pacer
        assert pacer is not None

        def is_full() -> bool:
            """The store has all that was sent, and does not acknowledge a flight of it."""
            nonlocal sent
            with pytest.raises(hf.WouldBlockError) as full:
                src.send_batch(rows[sent:], timeout=0)
            sent += full.value.sent or 0
            held = store.store.holdings.held(source)
            withheld = held - store.store.drainer.call(lambda: pacer.allowed(held))
            return held == sent and (withheld + 1) * size > LIMIT // 8

        until("the source is full", is_full)
        assert LIMIT - LIMIT // 8 <= sent * size <= LIMIT
        use = disk_use(store.store.logs, store.store.state.sources, LIMIT)
        assert sent * room <= use.taken <= sent * room + use.most - LIMIT
        rcv.close()
