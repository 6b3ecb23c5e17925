"""BEGINs that a store has missed: it takes in those that hold, and no others
(engine/store/missed_begins.py)."""

from __future__ import annotations

import shutil
from functools import partial
from typing import TYPE_CHECKING

import pytest
from support.handmade_feed import Log
from support.kept_messages import kept, log_of
from support.three_stores import SHORT, SOURCE, everywhere, send
from support.workers import until

import holdfast as hf
from holdfast.engine.store.catch_up import CatchUp

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

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
            assert behind is not None
            if having == "b":
                until("c has caught up", lambda: kept(stores["c"]) == sent)
            else:
                until("c has seen it", lambda: repository.table == newer or behind.waits)
            assert repository.table == ((1, 0),)
            assert repository.stream is not None
        if having == "b":
            until("c has asked its peers", lambda: repository.catch_up is not None and repository.catch_up.waits)
            assert repository.table == ((1, 0),)
        else:
            until("c follows", lambda: repository.table == newer)
        until("c has caught up", lambda: kept(stores["c"]) == sent)


def test_a_store_that_cannot_know_which_begin_holds_does_not_ask_all_the_time(
    run_store: Callable[..., ThreadStore], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """b has 10..14 of incarnation 1, a has them of 2, and c, with which either may have been stable, cannot
    be read."""
    stores = {name: run_store(name, "disk") for name in "abc"}
    with hf.Context(session_id=7) as ctx:
        with ctx.source("quotes", options=SOURCE) as src:
            everywhere(src)
            send(src, 10)
        stores["b"].stop()
        with ctx.source("quotes", options=SOURCE) as src:
            src.wait_registered(SHORT)
            sent = send(src, 5)
    for name in "ac":
        stores[name].stop()
    path = log_of(tmp_path / "store-b")
    shutil.rmtree(path)
    log = Log(path, bytes.fromhex(path.name))
    path.chmod(0o700)
    log.begin(1, 0)
    log.plain(0, 14)
    log.close()
    (tmp_path / "store-c").rename(tmp_path / "hidden")
    asked: list[CatchUp] = []
    close = CatchUp.close

    def closed(self: CatchUp) -> None:
        asked.append(self)
        close(self)

    monkeypatch.setattr(CatchUp, "close", closed)
    run_store("a", "disk")
    b = run_store("b", "disk")
    (repository,) = b.store.drainer.repositories.values()
    until("b has seen it", lambda: repository.catch_up is not None and repository.catch_up.newer())
    rounds = 0
    for _ in range(100):
        rounds += b.store.drainer.call(lambda: 1)
    assert (rounds, repository.table) == (100, ((1, 0),))
    assert len(asked) < 10
    (tmp_path / "hidden").rename(tmp_path / "store-c")
    until("b follows", lambda: kept(b)[10:] == sent)
