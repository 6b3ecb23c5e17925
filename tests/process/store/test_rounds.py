"""Logs that rest are looked at, and opened only where something is wrong or may be missing
(engine/store/rounds.py)."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest
from support.shelved_logs import is_shelved, kept, over, shelve_at_once, shelved
from support.three_stores import SHORT, SOURCE, send
from support.workers import until

import holdfast as hf
from holdfast.engine.log.end import OpenLog
from holdfast.engine.memory.domain import SHM_DIR
from holdfast.engine.native.core import lib
from holdfast.engine.store import rounds, shelf
from holdfast.engine.store.holdings import Holdings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from process.conftest import ThreadStore

    from holdfast.engine.log.state_file import SourceState
    from holdfast.engine.store.repository import Repository

HEAD_AT_REST, HEAD_OPEN = 4096, 3 * 4096


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log is shelved as soon as it may be."""
    shelve_at_once(monkeypatch)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The sources whose logs were opened since a store had started."""
    found: list[bytes] = []
    open_again = Holdings._open_again

    def noted(holdings: Holdings, source: SourceState, asked: bool) -> Repository:
        found.append(source.uuid)
        return open_again(holdings, source, asked)

    monkeypatch.setattr(Holdings, "_open_again", noted)
    return found


def look_of(store: ThreadStore) -> rounds.Rounds:
    """The rounds of a store that runs."""
    return store.store._shelf._rounds


def files(log: Path) -> dict[str, tuple[int, int]]:
    """Inode and time of the last change of each."""
    return {each.name: (each.stat().st_ino, each.stat().st_mtime_ns) for each in log.iterdir()}


def once_more(ctx: hf.Context, session: int, count: int, stores: str) -> None:
    """Another life of a source, which ends."""
    with ctx.source("quotes", options={**SOURCE, "ume_session_id": session, "ume_store_name": list(stores)}) as src:
        src.wait_registered(SHORT)
        send(src, count)


@pytest.mark.parametrize("kind", ["disk", "memory"])
def test_a_whole_log_is_read_and_nothing_of_it_is_written(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch, opened: list[bytes], kind: str
) -> None:
    stores = {name: run_store(name, kind) for name in "ab"}
    with hf.Context() as ctx:
        uuids = [over(ctx, session, 3, "ab") for session in (7, 8, 9)]
        for store in stores.values():
            shelved(store, *uuids)
        until("the boards have gone", lambda: all(item.kind != "board" for item in ctx.domain.objects()))
        stores["a"].stop()
        before = {uuid: files(stores["a"].store.logs / uuid.hex()) for uuid in uuids}
        opened.clear()
        looked: list[bytes] = []
        look = rounds._is_whole

        def noted(log: rounds._Resting) -> bool:
            looked.append(log.uuid)
            return look(log)

        monkeypatch.setattr(rounds, "_is_whole", noted)
        again = run_store("a", kind)
        until("the round is over", lambda: look_of(again).is_over)
        assert sorted(looked) == sorted(uuids)
        assert opened == []
        assert not look_of(again)._later
        assert {uuid: files(again.store.logs / uuid.hex()) for uuid in uuids} == before


def test_a_log_that_a_kill_has_left_large_rests_again(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = run_store("a", "disk")
    with hf.Context() as ctx:
        uuid = over(ctx, 7)
        shelved(store, uuid)
    head = store.store.logs / uuid.hex() / "head"
    with monkeypatch.context() as killed:
        killed.setattr(store.store._shelf, "turn", lambda: None)
        killed.setattr(store.store.holdings, "save", lambda **_: None)
        assert store.store.holdings.take_down(kept(store, uuid))
        store.stop()
    assert head.stat().st_size == HEAD_OPEN
    again = run_store("a", "disk")
    assert kept(again, uuid).shelved_next == 3
    until("it is small again", lambda: head.stat().st_size == HEAD_AT_REST and is_shelved(again, uuid))


def test_a_large_log_is_opened_to_be_looked_through(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch, opened: list[bytes]
) -> None:
    store = run_store("a", "disk")
    with hf.Context() as ctx:
        uuid = over(ctx, 7)
        shelved(store, uuid)
        store.stop()
        opened.clear()
        monkeypatch.setattr(rounds, "LARGE_BYTES", 0)
        again = run_store("a", "disk")
        until("it was opened", lambda: opened == [uuid])
        shelved(again, uuid)


def test_a_log_whose_state_says_something_else_is_opened(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch, opened: list[bytes]
) -> None:
    monkeypatch.setattr(rounds, "LOOKS_MAX", 0)
    store = run_store("a", "disk")
    with hf.Context() as ctx:
        uuid = over(ctx, 7)
        shelved(store, uuid)
        kept(store, uuid).shelved_next = 2
        store.store.holdings.changes.note(uuid)
        store.store.holdings.registry.parts.wake(kept(store, uuid))
        store.stop()
        opened.clear()
        monkeypatch.setattr(rounds, "LOOKS_MAX", 4)
        again = run_store("a", "disk")
        until("it was opened", lambda: opened == [uuid])
        until("its state is right", lambda: is_shelved(again, uuid) and kept(again, uuid).shelved_next == 3)


def test_a_peer_that_cannot_be_read_is_asked_once_more(
    run_store: Callable[..., ThreadStore], tmp_path: Path, opened: list[bytes]
) -> None:
    """Its volume is mounted late, and it has another life of the source."""
    stores = {name: run_store(name, "disk") for name in "abc"}
    with hf.Context() as ctx:
        uuid = over(ctx, 7, 3, "abc")
        for store in stores.values():
            shelved(store, uuid)
        stores["b"].stop()
        once_more(ctx, 7, 4, "abc")
        for name in "ac":
            shelved(stores[name], uuid)
            stores[name].stop()
            (tmp_path / f"store-{name}").rename(tmp_path / f"away-{name}")
        opened.clear()
        b = run_store("b", "disk")
        until("it was looked at", lambda: look_of(b).is_over and len(look_of(b)._later) == 1)
        assert is_shelved(b, uuid)
        assert opened == []
        for name in "ac":
            (tmp_path / f"away-{name}").rename(tmp_path / f"store-{name}")
        look_of(b)._later[0] = (0, uuid)
        until("b has it", lambda: b.store.holdings.held(kept(b, uuid)) == 7)
        assert opened == [uuid]
        shelved(b, uuid)
        assert not look_of(b)._later


def test_a_look_that_nobody_foresaw_ends_no_round(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch, opened: list[bytes],
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    store = run_store("a", "disk")
    with hf.Context() as ctx:
        uuids = [over(ctx, session) for session in (7, 8)]
        shelved(store, *uuids)
        store.stop()
        opened.clear()
        look = rounds._is_whole

        def fails(log: rounds._Resting) -> bool:
            if log.uuid == uuids[0]:
                raise ZeroDivisionError
            return look(log)

        monkeypatch.setattr(rounds, "_is_whole", fails)
        again = run_store("a", "disk")
        until("the round is over", lambda: look_of(again).is_over)
        shelved(again, *uuids)
        assert opened == uuids[:1]
    assert "the look at this log failed" in caplog.text


def test_the_next_round_comes_with_the_interval(run_store: Callable[..., ThreadStore], opened: list[bytes]) -> None:
    store = run_store("a", "disk")
    with hf.Context() as ctx:
        uuid = over(ctx, 7)
        shelved(store, uuid)
        until("no round goes on", lambda: look_of(store).is_over)
        opened.clear()
        segment = min((store.store.logs / uuid.hex()).glob("seg-*"))
        content = segment.read_bytes()
        with segment.open("r+b") as file:
            file.seek(content.index(b"1", 2 * HEAD_AT_REST + 32))
            file.write(b"x")
        look_of(store)._next_ns = 0
        until("it was opened", lambda: uuid in opened)


def test_a_board_that_a_life_of_the_store_has_left_goes(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch, opened: list[bytes]
) -> None:
    """It may have what receivers have acknowledged: its log is opened, and rests again without it."""
    monkeypatch.setattr(shelf, "BOARD_NS", 1 << 62)
    store = run_store("a", "disk")
    with hf.Context() as ctx:
        uuid = over(ctx, 7)
        shelved(store, uuid)
    board = SHM_DIR / store.store.domain.board_name(uuid)
    store.stop()
    assert board.exists()
    opened.clear()
    monkeypatch.setattr(shelf, "BOARD_NS", 0)
    again = run_store("a", "disk")
    until("the board is gone", lambda: not board.exists())
    shelved(again, uuid)
    assert opened == [uuid]


def test_a_peer_whose_end_is_unknown_may_have_more(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch, opened: list[bytes]
) -> None:
    stores = {name: run_store(name, "disk") for name in "ab"}
    with hf.Context() as ctx:
        uuid = over(ctx, 7, 3, "ab")
        for store in stores.values():
            shelved(store, uuid)
        until("the boards have gone", lambda: all(item.kind != "board" for item in ctx.domain.objects()))
        stores["a"].stop()
        opened.clear()
        monkeypatch.setattr(OpenLog, "end", lambda _: (lib.HF_DAMAGED, 3))
        again = run_store("a", "disk")
        until("it was looked at", lambda: look_of(again).is_over and len(look_of(again)._later) == 1)
        assert opened == []


def test_a_round_waits_where_no_thread_can_be_started(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch, opened: list[bytes]
) -> None:
    store = run_store("a", "disk")
    with hf.Context() as ctx:
        uuid = over(ctx, 7)
        shelved(store, uuid)
    store.stop()
    opened.clear()
    tried: list[str] = []

    def refuse(thread: str, _: object) -> None:
        tried.append(thread)
        raise hf.SystemCallError("no thread can be started", errno.EAGAIN, "EAGAIN")

    with monkeypatch.context() as full:
        full.setattr(rounds, "in_background", refuse)
        again = run_store("a", "disk")
        until("it was tried three times", lambda: len(tried) >= 3)
    until("the round is over", lambda: look_of(again).is_over)
    assert opened == []
