"""BEGINs that a store has missed: it takes in those that hold, and no others
(engine/store/missed_begins.py)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
from support.kept_messages import kept
from support.three_stores import SOURCE, everywhere, send
from support.workers import until

import holdfast as hf

if TYPE_CHECKING:
    from collections.abc import Callable

    from process.conftest import ThreadStore


@pytest.mark.parametrize("having", ["b", "ab"])
def test_a_store_does_not_follow_its_peers_while_the_owner_of_the_ring_that_it_reads_lives(
    run_store: Callable[..., ThreadStore], having: str
) -> None:
    """A BEGIN that a claimant got to one store, which voids nothing, or to two. Who lives goes on, and
    somebody must drain that."""
    stores = {name: run_store(name) for name in "abc"}
    with hf.Context(session_id=7) as ctx:
        with ctx.source("quotes", options=SOURCE) as src:
            everywhere(src)
            sent = send(src, 10)
            until("c has it", lambda: kept(stores["c"]) == sent)
            stores["c"].stop()
            sent += send(src, 50_000)
            newer = (1, 0), (2, len(sent))
            for name in having:
                (astray,) = stores[name].store.drainer.repositories.values()
                stores[name].store.drainer.call(partial(astray._adopt, newer))
            stores["c"] = run_store("c")
            (repository,) = stores["c"].store.drainer.repositories.values()
            behind = repository.catch_up
            if having == "b":
                until("c has caught up", lambda: kept(stores["c"]) == sent)
            else:
                assert behind is not None, "it cannot end while the owner lives"
                until("c has seen it", lambda: repository.table == newer or behind.waits)
            assert repository.table == ((1, 0),)
            assert repository.stream is not None
        if having == "b":
            until("c rests", lambda: repository.stream is None and repository.catch_up is None)
            assert repository.table == ((1, 0),)
        else:
            until("c follows", lambda: repository.table == newer)
        until("c has caught up", lambda: kept(stores["c"]) == sent)
