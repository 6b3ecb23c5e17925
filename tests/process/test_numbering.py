"""What number a restarted source goes on with, when not all stores have seen everything (um_semantics E.5; DESIGN 13, 14)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
from process.spawn import until

import holdfast as hf
from holdfast.engine.core import lib
from holdfast.engine.store_state import State, StateFile

if TYPE_CHECKING:
    from collections.abc import Callable

    from process.conftest import ThreadStore

SHORT = 30.0
SOURCE = {"ring_size": 1 << 17, "fragment_size": 4096, "ume_registration_interval": 100}


def incarnation(ctx: hf.Context, stores: str, numbers: range) -> None:
    """A source that goes on at the first of ``numbers``, sends them, and closes when they are stable."""
    with ctx.source("quotes", options={**SOURCE, "ume_store_name": list(stores)}) as src:
        src.wait_registered(SHORT)
        assert src.next_sequence_number == numbers[0]
        for number in numbers:
            src.send(b"%d" % number)
        src.wait_stable(timeout=SHORT)


def has_begun(store: ThreadStore, number: int) -> bool:
    return any(source.incarnation == number for source in store.store.state.sources)


def read(ctx: hf.Context, count: int) -> list[tuple[int, bytes]]:
    """What a receiver without state gets."""
    found: list[tuple[int, bytes]] = []
    with ctx.receiver("quotes", options={"ume_registration_interval": 100}) as rcv:
        for _ in range(count):
            message = rcv.receive(timeout=SHORT)
            assert message is not None, found
            with message:
                found.append((message.sequence_number, bytes(message)))
    return found


def line_of(store: ThreadStore) -> tuple[int, int]:
    """(from, ack) of the store's line on the board of the one source that it keeps."""
    (repository,) = store.store.drainer.repositories.values()

    def look() -> tuple[int, int]:
        assert repository.board is not None
        line = lib.hf_board_line_at(repository.board.handle, repository.line)
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
@pytest.mark.parametrize("known", [True, False])
def test_a_dead_stores_messages_count_when_the_one_that_missed_them_is_back(
    run_store: Callable[..., ThreadStore], kind: str, known: bool
) -> None:
    """Stable at a and b; then b and c answer: c, which was away or never had anything, is not believed."""
    stores = {name: run_store(name, kind) for name in ("abc" if known else "ab")}
    with hf.Context(session_id=7) as ctx:
        incarnation(ctx, "abc", range(2))
        if known:
            until("c has begun", lambda: has_begun(stores["c"], 1))
            stores["c"].stop()
        incarnation(ctx, "abc", range(2, 10))
        stores["a"].stop()
        stores["c"] = run_store("c", kind)
        incarnation(ctx, "abc", range(10, 12))
    with hf.Context() as ctx:
        assert read(ctx, 12) == [(number, b"%d" % number) for number in range(12)]


@pytest.mark.parametrize("kind", ["disk", "memory"])
def test_the_files_of_a_dead_store_are_asked_when_all_that_answer_have_missed_something(
    run_store: Callable[..., ThreadStore], kind: str
) -> None:
    stores = {name: run_store(name, kind) for name in "abc"}
    with hf.Context(session_id=7) as ctx:
        incarnation(ctx, "abc", range(2))
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


def test_a_store_that_was_away_counts_for_nothing_that_it_missed(run_store: Callable[..., ThreadStore]) -> None:
    stores = {name: run_store(name) for name in "abc"}
    with hf.Context(session_id=7) as ctx:
        incarnation(ctx, "abc", range(2))
        until("c has begun", lambda: has_begun(stores["c"], 1))
        stores["c"].stop()
        incarnation(ctx, "abc", range(2, 10))
        stores["c"] = run_store("c")
        incarnation(ctx, "abc", range(10, 13))
        until("c has the newest", lambda: line_of(stores["c"])[1] == 13)
        assert [line_of(stores[name])[0] for name in "abc"] == [0, 0, 10]


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
