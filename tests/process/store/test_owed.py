"""Sources that somebody still needs when the lifetime of the configuration is over (engine/store/owed.py)."""

from __future__ import annotations

import errno
import logging
import math
import os
import re
import shutil
from typing import TYPE_CHECKING

import pytest
from support.receiving import received, take
from support.shelved_logs import is_shelved, kept, over, shelve_at_once, shelved
from support.three_stores import SOURCE
from support.workers import until

import holdfast as hf
from holdfast.engine.control import wire
from holdfast.engine.store import shelf
from holdfast.engine.store.holdings import Holdings

if TYPE_CHECKING:
    from collections.abc import Callable

    from process.conftest import ThreadStore

    from holdfast.engine.log.state_file import SourceState
    from holdfast.engine.store.repository import Repository

LIFETIME = {"source-state-lifetime": 50, "source-activity-timeout": 20, "source-check-interval": 5}
READER = {"ume_session_id": 9}


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log is shelved as soon as it may be."""
    shelve_at_once(monkeypatch)


def stays(store: ThreadStore, uuid: bytes, why: str) -> None:
    """Its lifetime is over, it is there, and no look looks at it again."""
    expiry = store.store._expiry
    until("the store keeps it", lambda: why in expiry.needed.why.get(uuid, ""))
    until("it rests", lambda: is_shelved(store, uuid) and store.store.holdings.registry.parts.rests(uuid))
    assert kept(store, uuid).uuid == uuid


def is_forgotten(store: ThreadStore) -> bool:
    return store.store.state.sources == [] and not list(store.store.logs.iterdir())


def test_what_a_session_is_owed_stays_until_it_has_acknowledged_all(
    run_store: Callable[..., ThreadStore], caplog: pytest.LogCaptureFixture
) -> None:
    store = run_store("a", "disk")
    with hf.Context() as ctx:
        uuid = over(ctx, 7)
        assert received(ctx, "quotes", 2, **READER) == [b"0", b"1"]
        store.stop()
        with caplog.at_level(logging.INFO, "holdfast.store"):
            store = run_store("a", "disk", **LIFETIME)
            stays(store, uuid, "owed to receiver")
            until("it is said", lambda: "1 sources stay after source-state-lifetime" in caplog.text)
            assert "session ID 0x9" in caplog.text
            assert received(ctx, "quotes", 1, **READER) == [b"2"]
            until("it is forgotten", lambda: is_forgotten(store))
        (said,) = [record for record in caplog.records if "gone for its lifetime" in record.getMessage()]
        assert re.search(
            r"'quotes': gone for its lifetime, with its messages 0\.\.2, \d[\d,]* bytes$", said.getMessage()
        )
        assert said.levelno == logging.WARNING, "also a store that says little says it"


def test_what_no_receiver_has_ever_registered_with_stays(run_store: Callable[..., ThreadStore]) -> None:
    store = run_store("a", "disk", **LIFETIME)
    with hf.Context() as ctx:
        uuid = over(ctx, 7)
        stays(store, uuid, "no receiver has ever come")
        store.stop()
        again = run_store("a", "disk", **LIFETIME)
        stays(again, uuid, "no receiver has ever come")


def test_a_receiver_that_leaves_nothing_has_registered(run_store: Callable[..., ThreadStore]) -> None:
    """Nobody has to get anything of its source any more. The state remembers that it was there."""
    store = run_store("a", "disk")
    with hf.Context() as ctx, ctx.source("quotes", options={**SOURCE, "ume_store_name": ["a"]}) as src:
        src.wait_registered(90)
        src.send(b"0")
        src.wait_stable(timeout=90)
        with ctx.receiver("quotes") as rcv:
            assert take(rcv) == [0]
        until("it has left nothing", lambda: kept(store, src.uuid).receivers == [])
    store.stop()
    again = run_store("a", "disk", **LIFETIME)
    until("its source is forgotten", lambda: is_forgotten(again))


def test_one_that_is_kept_nowhere_has_come_when_it_was_told(run_store: Callable[..., ThreadStore]) -> None:
    """Without a session a receiver reads the files of what is over, and registers with nobody."""
    store = run_store("a", "disk", **LIFETIME)
    with hf.Context() as ctx:
        uuid = over(ctx, 7)
        stays(store, uuid, "no receiver has ever come")
        expiry = store.store._expiry
        expiry._interval_s = math.inf
        until("nobody looks meanwhile", lambda: expiry.due_s == math.inf)
        assert received(ctx, "quotes", 3) == [b"0", b"1", b"2"]
        expiry._interval_s, expiry.due_s = 0.005, 0.0
        until("it is forgotten", lambda: is_forgotten(store))


def test_a_store_that_was_away_believes_its_peers(run_store: Callable[..., ThreadStore]) -> None:
    """Who has read all of it was never here."""
    stores = {name: run_store(name, "disk") for name in "abc"}
    with hf.Context() as ctx:
        uuid = over(ctx, 7, stores="abc")
        shelved(stores["c"], uuid)
        stores["c"].stop()
        assert received(ctx, "quotes", 3, **READER) == [b"0", b"1", b"2"]
        for name in "ab":
            shelved(stores[name], uuid)
        again = run_store("c", "disk", **LIFETIME)
        until("it is forgotten", lambda: is_forgotten(again))
        assert all(kept(stores[name], uuid).receivers for name in "ab")


def test_a_store_that_was_away_keeps_what_its_peers_say_is_owed(run_store: Callable[..., ThreadStore]) -> None:
    """Who has read a part of it has never registered here; another one has read all."""
    stores = {name: run_store(name, "disk") for name in "abc"}
    with hf.Context() as ctx:
        uuid = over(ctx, 7, stores="abc")
        assert received(ctx, "quotes", 3, ume_session_id=8) == [b"0", b"1", b"2"]
        until("c has heard of that", lambda: [each.ack for each in kept(stores["c"], uuid).receivers] == [3])
        shelved(stores["c"], uuid)
        stores["c"].stop()
        assert received(ctx, "quotes", 1, **READER) == [b"0"]
        again = run_store("c", "disk", **LIFETIME)
        stays(again, uuid, "owed to receiver")
        assert received(ctx, "quotes", 2, **READER) == [b"1", b"2"]


def test_a_log_that_cannot_be_opened_now_is_opened_at_the_end(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody has asked for it since. What it holds is known then. Of a log that is gone nothing is kept."""
    monkeypatch.setattr(shelf, "IDLE_NS", 1 << 62)
    store = run_store("a", "disk")
    with hf.Context() as ctx:
        first, second = over(ctx, 7), over(ctx, 8)
    store.stop()
    monkeypatch.setattr(Holdings, "_open", refuse_once(Holdings._open))
    shutil.rmtree(store.store.logs / second.hex())
    again = run_store("a", "disk", **LIFETIME)
    until("the other is forgotten", lambda: [each.uuid for each in again.store.state.sources] == [first])
    until("the first stays", lambda: "no receiver" in again.store._expiry.needed.why.get(first, ""))


def refuse_once(open_: Callable[..., Repository]) -> Callable[..., Repository]:
    """The first time that each log is opened."""
    refusals: set[bytes] = set()

    def refused(holdings: Holdings, source: SourceState, *, asked: bool) -> Repository:
        if source.uuid not in refusals:
            refusals.add(source.uuid)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return open_(holdings, source, asked=asked)

    return refused


def test_a_receiver_that_closes_has_no_page_asked_for_behind_its_back(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be here as long as its context is."""
    monkeypatch.setattr(wire, "PAGE_MAX", 1)
    monkeypatch.setattr(wire, "PAGE_BYTES", 0)
    store = run_store("a", "disk")
    with hf.Context() as ctx:
        shelved(store, *(over(ctx, session) for session in (7, 8, 9)))
    with hf.Context(session_id=9) as ctx:
        rcv = ctx.receiver("quotes")
        until("the store has told of some", lambda: rcv.finished)
        rcv.close()
        until("it has left", lambda: not any(client.readers for client in store.store._clients))


def test_a_lifetime_that_the_source_has_set_itself_holds(run_store: Callable[..., ThreadStore]) -> None:
    """As in UM: also for what is owed."""
    store = run_store("a", "disk", **{"source-check-interval": 5})
    with hf.Context() as ctx:
        options = {**SOURCE, "ume_store_name": ["a"], "ume_state_lifetime": 50, "ume_activity_timeout": 20}
        with ctx.source("quotes", options=options) as src:
            src.wait_registered(90)
            src.send(b"0")
            src.wait_stable(timeout=90)
        until("it is forgotten", lambda: is_forgotten(store))


def test_of_a_source_without_messages_nothing_is_needed(run_store: Callable[..., ThreadStore]) -> None:
    store = run_store("a", "disk", **LIFETIME)
    with hf.Context() as ctx:
        with ctx.source("quotes", options={**SOURCE, "ume_store_name": ["a"]}) as src:
            src.wait_registered(90)
        until("it is forgotten", lambda: is_forgotten(store))
