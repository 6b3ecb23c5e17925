"""What number a restarted source goes on with, when not all stores have seen everything (docs/semantics.md
E.5; docs/design.md 13, 14)."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import msgspec
import pytest
from support.kept_messages import kept
from support.restarted_source import SHORT, SOURCE, has_begun, incarnation, read
from support.three_stores import hide_peers, waits
from support.workers import until

import holdfast as hf
from holdfast.engine.control import wire
from holdfast.engine.log.state_file import State, StateFile
from holdfast.engine.memory.domain import Domain
from holdfast.engine.native.core import lib
from holdfast.engine.store.sources import SourceDesk

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from process.conftest import ThreadStore

    from holdfast.engine.store.clients import Client


def line_of(store: ThreadStore) -> tuple[int, int]:
    """(from, ack) of the store's line on the board of the one source that it keeps."""
    (repository,) = store.store.drainer.repositories.values()

    def look() -> tuple[int, int]:
        assert repository.line.board is not None
        line = lib.hf_board_line_at(repository.line.board.handle, repository.line.index)
        return int(line.from_sqn), int(line.ack)

    return store.store.drainer.call(look)


@pytest.mark.parametrize("kind", ["disk", "memory"])
def test_what_another_declared_store_holds_is_not_numbered_again(
    run_store: Callable[..., ThreadStore], kind: str
) -> None:
    for name in "ab":
        run_store(name, kind)
    with hf.Context(session_id=7) as ctx:
        incarnation(ctx, "ab", range(2))
        incarnation(ctx, "b", range(2, 4))
        incarnation(ctx, "ab", range(4, 6))
    with hf.Context() as ctx:
        assert read(ctx, 6) == [(number, b"%d" % number) for number in range(6)]


@pytest.mark.parametrize("kind", ["disk", "memory"])
def test_a_dead_stores_messages_count_when_the_one_that_missed_them_is_back(
    run_store: Callable[..., ThreadStore], kind: str
) -> None:
    """Stable at a and b; then b and c answer: c, which was away, is not believed."""
    stores = {name: run_store(name, kind) for name in "abc"}
    with hf.Context(session_id=7) as ctx:
        incarnation(ctx, "abc", range(2), ume_registration_interval=60_000)
        until("all have begun", lambda: all(has_begun(store, 1) for store in stores.values()))
        stores["c"].stop()
        incarnation(ctx, "abc", range(2, 10))
        stores["a"].stop()
        stores["c"] = run_store("c", kind)
        incarnation(ctx, "abc", range(10, 12))
    with hf.Context() as ctx:
        assert read(ctx, 12) == [(number, b"%d" % number) for number in range(12)]


@pytest.mark.parametrize("kind", ["disk", "memory"])
def test_a_wiped_store_has_no_say_while_one_that_may_know_more_is_down(
    run_store: Callable[..., ThreadStore], tmp_path: Path, kind: str
) -> None:
    """Two wiped stores of three would be a quorum for beginning anew: it waits, and says for whom and what to
    do (docs/design.md 15)."""
    stores = {name: run_store(name, kind) for name in "abc"}
    with hf.Context(session_id=7) as ctx:
        incarnation(ctx, "abc", range(5), ume_registration_interval=60_000)
        until("a has it", lambda: has_begun(stores["a"], 1) and len(kept(stores["a"])) == 5)
        for name in "abc":
            stores[name].stop()
        for name in "bc":
            shutil.rmtree(tmp_path / f"store-{name}")
            stores[name] = run_store(name, kind)
        with ctx.source("quotes", options={**SOURCE, "ume_store_name": list("abc")}) as src:
            waits(src, "b, c have no state.*; a, which may have.*adopt-empty b")
            with pytest.raises(hf.NotRegisteredError, match="a, which may have"):
                src.send(b"x", timeout=0)
            stores["a"] = run_store("a", kind)
            src.wait_registered(SHORT)
            assert src.next_sequence_number == 5
        incarnation(ctx, "abc", range(5, 7))


def test_a_begin_that_comes_too_late_leaves_no_ring_and_the_source_starts_over(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else has begun since the stores granted: what was opened is empty, and in nobody's way."""
    run_store("a")
    refused: list[str] = []
    begin = SourceDesk.begin

    def busy_once(self: SourceDesk, client: Client, request: wire.Begin) -> wire.Answer:
        if refused:
            return begin(self, client, request)
        refused.append(request.stream)
        return wire.Refused(request.id, "busy", "another incarnation has begun")

    with hf.Context(session_id=7) as ctx:
        incarnation(ctx, "a", range(2))
        monkeypatch.setattr(SourceDesk, "begin", busy_once)
        with ctx.source("quotes", options={**SOURCE, "ume_store_name": ["a"]}) as src:
            src.wait_registered(SHORT)
            assert src.next_sequence_number == 2
            assert refused[0] not in os.listdir("/dev/shm") or refused[0] == src._session.name
            assert src.send(b"2") == 2
            src.wait_stable(timeout=SHORT)


def test_a_store_that_renamed_what_it_granted_before_it_refused_begin_is_free_again(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """b learns with BEGIN what a has called this source: it is left under either name, or it holds the source
    for nobody."""
    run_store("a")
    refused: list[bytes] = []
    begin = SourceDesk.begin

    def busy_once(self: SourceDesk, client: Client, request: wire.Begin) -> wire.Answer:
        if refused or request.granted in {b"", request.uuid}:
            return begin(self, client, request)
        refused.append(request.granted)
        self._adopt(client, request)
        return wire.Refused(request.id, "busy", "another incarnation has begun")

    with hf.Context(session_id=7) as ctx:
        incarnation(ctx, "a", range(2))
        monkeypatch.setattr(SourceDesk, "begin", busy_once)
        store = run_store("b")
        with ctx.source("quotes", options={**SOURCE, "ume_store_name": ["b", "c"]}):
            until("b has named it", lambda: store.store.state.sources)
        with ctx.source("quotes", options={**SOURCE, "ume_store_name": ["a", "b"]}) as src:
            src.wait_registered(SHORT)
            assert refused
            until("b has it", lambda: len(src.registration_ids) == 2)
            assert src.send(b"2") == 2
            src.wait_stable(timeout=SHORT)


def test_a_source_that_closes_before_it_could_send_leaves_no_ring(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    run_store("a")
    asked: list[str] = []
    monkeypatch.setattr(SourceDesk, "begin", lambda _self, _client, request: asked.append(request.stream))
    with hf.Context(session_id=7) as ctx:
        with ctx.source("quotes", options={**SOURCE, "ume_store_name": ["a"]}):
            until("BEGIN was sent", lambda: asked)
            assert asked[0] in os.listdir("/dev/shm")
        assert asked[0] not in os.listdir("/dev/shm")


@pytest.mark.parametrize("kind", ["disk", "memory"])
def test_the_files_of_a_dead_store_are_asked_when_all_that_answer_have_missed_something(
    run_store: Callable[..., ThreadStore], kind: str
) -> None:
    stores = {name: run_store(name, kind) for name in "abc"}
    with hf.Context(session_id=7) as ctx:
        incarnation(ctx, "abc", range(2), ume_registration_interval=60_000)
        until("all have begun", lambda: all(has_begun(store, 1) for store in stores.values()))
        stores["b"].stop()
        stores["c"].stop()
        incarnation(ctx, "a", range(2, 10))
        stores["a"].stop()
        for name in "bc":
            stores[name] = run_store(name, kind)
        incarnation(ctx, "abc", range(10, 12))
    with hf.Context() as ctx:
        assert read(ctx, 12) == [(number, b"%d" % number) for number in range(12)]


def test_a_store_that_was_away_counts_for_what_it_missed_when_it_has_caught_up(
    run_store: Callable[..., ThreadStore],
) -> None:
    stores = {name: run_store(name) for name in "abc"}
    with hf.Context(session_id=7) as ctx:
        incarnation(ctx, "abc", range(2), ume_registration_interval=60_000)
        until("all have begun", lambda: all(has_begun(store, 1) for store in stores.values()))
        stores["c"].stop()
        incarnation(ctx, "abc", range(2, 10))
        stores["c"] = run_store("c")
        incarnation(ctx, "abc", range(10, 13))
        until("c has the newest", lambda: line_of(stores["c"])[1] == 13)
        assert [line_of(stores[name])[0] for name in "abc"] == [0, 0, 0]
    assert kept(stores["c"]) == [(number, b"%d" % number) for number in range(13)]


def test_a_store_counts_for_nothing_that_it_missed_and_nobody_has(
    run_store: Callable[..., ThreadStore], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores = {name: run_store(name) for name in "abc"}
    with hf.Context(session_id=7) as ctx:
        incarnation(ctx, "abc", range(2), ume_registration_interval=60_000)
        until("all have begun", lambda: all(has_begun(store, 1) for store in stores.values()))
        stores["c"].stop()
        incarnation(ctx, "abc", range(2, 10))
        domain = Domain()
        until("no ring is left", lambda: all(item.kind != "stream" for item in domain.objects()))
        domain.close()
        hide_peers(monkeypatch, stores["c"].store.state.uuid, tmp_path / "hidden")
        stores["c"] = run_store("c")
        (repository,) = stores["c"].store.drainer.repositories.values()
        until("c has looked", lambda: repository.catch_up is None)
        # By two of three alone, c being one, it would go on at 2 (docs/semantics.md E.5): c can copy nothing.
        incarnation(ctx, "abc", range(10, 13), ume_registration_interval=60_000)
        until("c has the newest", lambda: line_of(stores["c"])[1] == 13)
        assert line_of(stores["c"])[0] == 10


def test_a_store_that_was_killed_between_the_logs_begin_and_its_state_goes_on_with_the_log(
    run_store: Callable[..., ThreadStore],
) -> None:
    store = run_store("a", "disk")
    with hf.Context(session_id=7) as ctx:
        incarnation(ctx, "a", range(2))
        before = msgspec.msgpack.encode(store.store.state)
        incarnation(ctx, "a", range(2, 4))
        store.stop()
        StateFile(store.store.directory.path).save(msgspec.msgpack.decode(before, type=State))  # as its crash left it
        (store.store.directory.path / "state.0").unlink()
        store = run_store("a", "disk")
        (kept,) = store.store.state.sources
        assert (kept.incarnation, kept.start_sqn) == (2, 2)
        incarnation(ctx, "a", range(4, 6))
        assert kept.incarnation == 3
    with hf.Context() as ctx:
        assert read(ctx, 6) == [(number, b"%d" % number) for number in range(6)]
