"""A log that knows less than its store's state: its directory was restored from an older copy. The store
counts as held what the log has by the BEGINs of the state, and nothing else."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest
from support.kept_messages import kept
from support.receiving import options, send, until
from support.shelved_logs import kept as state_of
from support.three_stores import everywhere

import holdfast as hf
from holdfast.engine.log.state_file import StateFile
from holdfast.engine.native.core import ffi
from holdfast.engine.store.holdings import Holdings
from holdfast.engine.store.repository import Repository
from holdfast.engine.store.still_log import StillLog

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from process.conftest import ThreadStore

    from holdfast.engine.rules.reconcile import Table

SENT = 10
BEGAN = 5


def began_since(directory: Path) -> None:
    """Another incarnation began at BEGAN, as the state has it."""
    file = StateFile(directory)
    state = file.load()
    assert state is not None
    (source,) = state.sources
    source.take((*source.begins, (source.begins[-1][0] + 1, BEGAN)))
    file.save(state)


@pytest.mark.parametrize("kind", ["disk", "memory"])
def test_it_holds_no_number_that_the_state_has_for_void(
    run_store: Callable[..., ThreadStore], own_domain: str, kind: str
) -> None:
    store = run_store("a", kind)
    with hf.Context() as ctx, ctx.source("quotes", options=options(ume_session_id=1)) as src:
        everywhere(src)
        uuid = src.uuid
        send(src, SENT)
    store.stop()
    began_since(store.store.directory.path)
    store = run_store("a", kind)
    holdings, source = store.store.holdings, state_of(store, uuid)
    repository = holdings.ensure_repository(source)
    view = holdings.drain_thread(repository.view)
    assert (view.begins, view.next_sqn) == (tuple(source.begins), BEGAN)
    assert source.learner, "it has no say before it has caught up"
    assert len(kept(store)) == BEGAN
    until("it reads nothing that is not there", lambda: repository.catch_up is None)


@pytest.mark.parametrize("refusals", [0, 1])
def test_that_it_has_lost_something_is_on_disk_before_its_log_looks_whole(
    run_store: Callable[..., ThreadStore], own_domain: str, monkeypatch: pytest.MonkeyPatch, refusals: int
) -> None:
    """A crash in between leaves nothing else that tells. Nor is it believed to be there where there was no
    room."""
    store = run_store("a", "disk")
    with hf.Context() as ctx, ctx.source("quotes", options=options(ume_session_id=1)) as src:
        everywhere(src)
        send(src, SENT)
    store.stop()
    directory = store.store.directory.path
    began_since(directory)
    adopt, said = Repository._adopt, list[bool]()

    def adopts(self: Repository, table: Table) -> None:
        state = StateFile(directory).load()
        assert state is not None
        said.append(state.sources[0].learner)
        adopt(self, table)

    save, left = Holdings.save, [refusals]

    def saves(self: Holdings, **how: bool) -> None:
        if left[0] and self.state.sources[0].learner:
            left[0] -= 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        save(self, **how)

    monkeypatch.setattr(Repository, "_adopt", adopts)
    monkeypatch.setattr(Holdings, "save", saves)
    store = run_store("a", "disk")
    store.store.holdings.ensure_repository(store.store.state.sources[0])
    assert said[0]
    assert not left[0]


def test_on_a_disk_that_is_read_only_it_offers_what_counts(
    run_store: Callable[..., ThreadStore], own_domain: str
) -> None:
    store = run_store("a", "disk")
    with hf.Context() as ctx:
        with ctx.source("quotes", options=options(ume_session_id=1)) as src:
            everywhere(src)
            send(src, SENT)
        store.stop()
        began_since(store.store.directory.path)
        state = StateFile(store.store.directory.path).load()
        assert state is not None
        (source,) = state.sources
        log, config = store.store.logs / source.uuid.hex(), ffi.new("struct hf_log_config *")
        still = StillLog(ctx.domain, ctx.bells, source, log, config, "a", state.uuid)
        assert (still.view().next_sqn, source.learner) == (BEGAN, True)
        still.close()


def test_it_catches_up_from_where_its_numbers_count(run_store: Callable[..., ThreadStore], own_domain: str) -> None:
    """Else it would ask its peers for what comes behind the void numbers, and could append none of it."""
    stores = {name: run_store(name, "disk") for name in "abc"}
    given = options(ume_session_id=1, ume_store_name=list("abc"))
    with hf.Context() as ctx, ctx.source("quotes", options=given) as src:
        everywhere(src)
        uuid = src.uuid
        send(src, SENT)
    stores["b"].stop()
    began_since(stores["b"].store.directory.path)
    holdings = run_store("b", "disk").store.holdings
    repository = holdings.ensure_repository(next(each for each in holdings.state.sources if each.uuid == uuid))
    held = holdings.drain_thread(lambda: repository.catch_up.held if repository.catch_up else repository.next_sqn)
    assert held == BEGAN
