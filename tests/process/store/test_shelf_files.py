"""The files of a shelved log, as small as what is in them, are audited and mended like any other."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from support.command_line import run
from support.receiving import received
from support.shelved_logs import is_shelved, over
from support.three_stores import SOURCE, everywhere, send
from support.workers import until

import holdfast as hf
from holdfast.engine.log.check import check_store
from holdfast.engine.log.compare import compare_stores
from holdfast.engine.log.end import OpenLog, open_log
from holdfast.engine.native.core import ffi, lib
from holdfast.engine.store import rounds, shelf

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from process.conftest import ThreadStore

SENT = [b"0", b"1", b"2"]
PAGE = 4096


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log is shelved as soon as it may be, and no round looks at it."""
    monkeypatch.setattr(shelf, "IDLE_NS", 0)
    monkeypatch.setattr(shelf, "LOOK_NS", 10_000_000)
    monkeypatch.setattr(rounds, "LOOKS_MAX", 0)


def shelved(ctx: hf.Context, *stores: ThreadStore) -> list[Path]:
    """A source that is over, and the directories of its log."""
    names = [store.store.holdings.name for store in stores]
    with ctx.source("quotes", options={**SOURCE, "ume_session_id": 7, "ume_store_name": names}) as src:
        everywhere(src)
        send(src, len(SENT))
        uuid = src.uuid
    logs = [store.store.logs / uuid.hex() for store in stores]
    until("all are at rest", lambda: all((log / "head").stat().st_size == PAGE for log in logs))
    return logs


@pytest.mark.parametrize("running", [True, False])
def test_they_are_checked_and_dumped(run_store: Callable[..., ThreadStore], tmp_path: Path, *, running: bool) -> None:
    store = run_store("a", "disk")
    where = str(tmp_path / "store-a")
    with hf.Context() as ctx:
        shelved(ctx, store)
        if not running:
            store.stop()
        assert run("store", "check", where)[0] == 0
        code, out, _ = run("store", "dump", where, "--topic", "quotes")
        assert code == 0
        assert len(out.splitlines()) >= len(SENT)


def test_the_disk_begins_a_look_before_with_what_was_acknowledged_from_memory(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log is closed on the thread that serves the store's clients: it is not to wait for all of it."""
    order: list[str] = []
    closed, begun = shelf.Shelf._close, lib.hf_log_rest_begin

    def begins(log: Any) -> int:
        order.append("begins")
        return int(begun(log))

    def close(self: shelf.Shelf, repository: Any) -> bool:
        order.append("closed")
        return closed(self, repository)

    named = {name: getattr(lib, name) for name in dir(lib)} | {"hf_log_rest_begin": begins}
    monkeypatch.setattr(shelf.Shelf, "_close", close)
    monkeypatch.setattr(shelf, "lib", SimpleNamespace(**named))
    monkeypatch.setattr(shelf, "AT_ONCE", 1)
    with hf.Context() as ctx:
        store = run_store("a", "disk", **{"holdfast-acknowledge": "memory"})
        shelved(ctx, store)
        assert order == ["begins", "closed"]
        del order[:]
        monkeypatch.setattr(shelf, "IDLE_NS", 2**62)
        uuids = [over(ctx, session) for session in range(1, 4)]
        monkeypatch.setattr(shelf, "IDLE_NS", 0)
        until("they are at rest, in turn", lambda: all(is_shelved(store, uuid) for uuid in uuids))
        assert sorted(order) == ["begins"] * 3 + ["closed"] * 3


@pytest.mark.parametrize("level", ["disk", "memory"])
def test_after_a_reboot_all_of_it_is_there_whatever_it_was_acknowledged_from(
    run_store: Callable[..., ThreadStore], level: str
) -> None:
    store = run_store("a", "disk", **{"holdfast-acknowledge": level})
    with hf.Context() as ctx:
        (log,) = shelved(ctx, store)
        store.stop()
        with (log / "head").open("r+b") as head:
            head.seek(ffi.offsetof("struct hf_preamble", "boot_id"))
            head.write(b"another boot")
        opened = open_log(log)
        assert isinstance(opened, OpenLog)
        assert opened.end() == (lib.HF_OK, len(SENT))
        opened.close()
        run_store("a", "disk", **{"holdfast-acknowledge": level})
        assert received(ctx, "quotes", len(SENT)) == SENT


def test_damage_in_them_is_found_and_mended_from_a_peer(
    run_store: Callable[..., ThreadStore], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores = [run_store(name, "disk") for name in "abc"]
    places = [tmp_path / f"store-{name}" for name in "abc"]
    with hf.Context() as ctx:
        log = shelved(ctx, *stores)[0]
        assert not any(found.difference for found in compare_stores(places))
        stores[0].stop()
        file = min(log.glob("seg-*"))
        content = file.read_bytes()
        at = content.index(b"1", 2 * PAGE + 32)
        with file.open("r+b") as segment:
            segment.seek(at)
            segment.write(b"x")
        assert check_store(places[0]).damaged
        monkeypatch.setattr(rounds, "LOOKS_MAX", 4)
        run_store("a", "disk")
        until("its round has mended it", lambda: not check_store(places[0]).damaged)
        assert received(ctx, "quotes", len(SENT)) == SENT
