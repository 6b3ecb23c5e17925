"""A store returns with messages under a BEGIN that the newest table does not have, and cannot say which of
them hold (docs/design.md 13, 15)."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from support.changing_stores import SESSION, SHORT, options, waited
from support.command_line import run
from support.handmade_feed import frames
from support.leftovers import remove_objects
from support.workers import until

import holdfast as hf
from holdfast.engine.log.reader import Block, Logs
from holdfast.engine.native.core import ffi, lib
from holdfast.engine.rules.reconcile import BEGINS_MAX
from holdfast.engine.store.repository import Repository

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from process.conftest import ThreadStore

ANY = {
    "ume_store_name": ["a:0:0", "b:0:1"], "ume_store_group": ["0:1", "1:1"],
    "ume_retention_intergroup_stability_behavior": "any",
}  # fmt: skip


def life(names: str, payloads: list[bytes], **more: Any) -> int:
    """A life of the source on these stores; returns its first number."""
    with hf.Context(session_id=SESSION) as ctx, ctx.source("quotes", options={**options(names), **more}) as src:
        src.wait_registered(SHORT)
        first = src.next_sequence_number
        for each in payloads:
            src.send(each)
        src.wait_stable(timeout=SHORT)
    return first


def kept(store: ThreadStore) -> Repository:
    (source,) = store.store.state.sources
    repository = store.store.holdings.repository(source.uuid)
    assert repository is not None
    return repository


def first_in(path: Path, number: int, payloads: list[bytes]) -> list[bytes]:
    """Which of these the log of a store has under this number."""
    (log,) = (path / "logs").iterdir()
    logs, block = Logs([str(log)]), Block(1 << 16)
    assert logs.read(number, block)
    data, size = block.frames
    raw = bytes(ffi.buffer(data, size))
    return sorted((each for each in payloads if each in raw), key=raw.index)[:1]


@pytest.mark.parametrize("reads", [True, False])
def test_a_store_that_missed_forgotten_begins_does_not_offer_what_they_made_void(
    run_store: Callable[..., ThreadStore],
    wipe: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    reads: bool,
) -> None:
    """a alone has 5 to 9 as incarnation 1 sent them. Incarnation 2 sends other ones, and nobody remembers any
    more that it began with 5. ``reads``: a can read its peers' logs, and would take over their table."""
    stores = {name: run_store(name, "disk") for name in "abc"}
    life("abc", [b"stable"] * 5, ume_registration_interval=60_000)
    until("all have them", lambda: [kept(store).next_sqn for store in stores.values()] == [5, 5, 5])
    for name in "bc":  # who looks into the log of a would take over what is put there
        stores[name].stop()
    data = frames(5, *([b"old"] for _ in range(5)))
    block, log = ffi.new("uint8_t[]", data), kept(stores["a"])
    stores["a"].store.holdings.drain_thread(lambda: log.append(block, len(data)))
    assert stores["a"].store.holdings.drain_thread(lambda: lib.hf_log_sync(log.log)) == lib.HF_OK
    assert log.next_sqn == 10
    stores["a"].stop()
    wipe("a")
    remove_objects(os.environ["HOLDFAST_DOMAIN"])
    for name in "bc":
        stores[name] = run_store(name, "disk")
    assert life("abc", [b"new"]) == 5
    assert life("abc", [b"new"] * 4) == 6
    for _ in range(BEGINS_MAX):
        life("abc", [])
    wipe("a")
    if not reads:
        places = Repository._places
        monkeypatch.setattr(Repository, "_places", lambda self, *more: places(self, *more) if self.name != "a" else [])
    stores["a"] = run_store("a", "disk")
    with hf.Context(session_id=SESSION) as ctx, ctx.source("quotes", options=options("abc")) as src:
        until("b and c let it send", lambda: src._session.may_send)  # a may refuse before they have answered
        entry = src._session.machine.entries[0]
        until("a says what helps", lambda: entry.refusal is not None and entry.refusal.code == "unusable_log")
        assert kept(stores["a"]).table == ((1, 0),)
    for store in stores.values():
        store.stop()
    said = {name: first_in(tmp_path / f"store-{name}", 5, [b"old", b"new"]) for name in "bc"}
    assert said == {"b": [b"new"], "c": [b"new"]}


def test_what_one_store_made_stable_is_not_void_by_a_begin_that_another_one_returns_with(
    run_store: Callable[..., ThreadStore],
    wipe: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    registers: Path,
) -> None:
    """Each is a group, and one group is enough. b returns with an empty incarnation 3, after it was excluded
    and a made messages of incarnation 2 stable: the host had lost its register. a cannot read b's log; the
    source learns of both."""
    stores = {name: run_store(name, "disk") for name in "ab"}
    life("ab", [b"stable"] * 5, **ANY, ume_registration_interval=60_000)
    until("both have them", lambda: [kept(store).next_sqn for store in stores.values()] == [5, 5])
    stores["a"].stop()
    more = {**options("ab"), **ANY}
    slow = {**more, "ume_registration_interval": 60_000}
    with hf.Context(session_id=SESSION) as ctx, ctx.source("quotes", options=slow):
        until("b promises 2, which never begins", lambda: stores["b"].store.state.sources[0].promised == 2)
    assert life("ab", [], **ANY) == 5
    assert kept(stores["b"]).table == ((1, 0), (3, 5))
    stores["b"].stop()
    wipe("b")
    remove_objects(os.environ["HOLDFAST_DOMAIN"])
    shutil.rmtree(registers)
    stores["a"] = run_store("a", "disk")
    with hf.Context(session_id=SESSION) as ctx, ctx.source("quotes", options=more) as src:
        until("it says whom it waits for", lambda: "holdfast store exclude b" in str(waited(src)))
        assert run("store", "exclude", "b")[0] == 0
        src.wait_registered(SHORT)
        for _ in range(5):
            src.send(b"kept")
        src.wait_stable(timeout=SHORT)
    assert (kept(stores["a"]).table, kept(stores["a"]).next_sqn) == (((1, 0), (2, 5)), 10)
    wipe("b")
    places = Repository._places
    monkeypatch.setattr(Repository, "_places", lambda self, *more: places(self, *more) if self.name != "a" else [])
    stores["b"] = run_store("b", "disk")
    with hf.Context(session_id=SESSION) as ctx, ctx.source("quotes", options=more) as src:
        src.wait_registered(SHORT)  # a refuses what makes its messages void, and b may begin alone
    assert kept(stores["a"]).table[:2] == ((1, 0), (2, 5))
    for store in stores.values():
        store.stop()
    assert first_in(tmp_path / "store-a", 5, [b"kept"]) == [b"kept"]
