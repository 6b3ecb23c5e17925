"""Activity timeouts and state lifetimes in real stores (docs/semantics.md A.4)."""

from __future__ import annotations

import logging
import re
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from process.conftest import ThreadStore
from support.leftovers import objects_of
from support.three_stores import everywhere
from support.workers import until

import holdfast as hf
from holdfast.engine.log.state_file import StateFile
from holdfast.engine.native.core import lib

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.engine.log.state_file import ReceiverState, SourceState

SHORT = 90.0
SOURCE = {"ume_store_name": ["a:0:0"], "ring_size": 1 << 17, "fragment_size": 4096}
SOON = {"source-activity-timeout": 20, "receiver-activity-timeout": 20, "source-check-interval": 5}
LOOKS = 10
"""Looks of the store at what it keeps, after which what was to happen has happened."""


def take(rcv: hf.Receiver) -> bytes:
    message = rcv.receive(timeout=SHORT)
    assert message is not None, "no message came"
    with message:
        return bytes(message)


def sources(store: ThreadStore) -> list[SourceState]:
    return list(store.store.state.sources)


def receivers(store: ThreadStore) -> list[ReceiverState]:
    return [receiver for source in sources(store) for receiver in source.receivers]


def names(ctx: hf.Context) -> list[str]:
    """Rings and boards in the context's domain."""
    return [name for name in objects_of(ctx.domain.path) if re.search(r"[0-9a-f]{32}\.(b|s\d+)$", name)]


def looks(store: ThreadStore, count: int = LOOKS) -> None:
    """Waits until the store has looked so often at everything that it keeps."""
    expiry = store.store._expiry
    for _ in range(count):
        due = expiry.due_s
        until("the store looks", lambda: expiry.due_s != due)  # noqa: B023


def one_of_each(ctx: hf.Context, **options: Any) -> tuple[hf.Source, hf.Receiver]:
    """A source with one message, and a receiver that has acknowledged it."""
    src = ctx.source("quotes", options={**SOURCE, **options})
    src.wait_registered(SHORT)
    src.send(b"0")
    src.wait_stable(timeout=SHORT)
    rcv = ctx.receiver("quotes", options=options)
    assert take(rcv) == b"0"
    return src, rcv


@pytest.mark.parametrize("kind", ["disk", "memory"])
@pytest.mark.parametrize(
    ("row", "of_store", "of_client"),
    [
        ("the store's lifetime", {"source-state-lifetime": 30}, {}),
        ("the client's lifetime", {}, {"ume_state_lifetime": 30}),
        ("the shorter one", {"source-state-lifetime": 2**31 - 1}, {"ume_state_lifetime": 30}),
        ("the later of both timers", {"source-state-lifetime": 1}, {"ume_activity_timeout": 60}),
    ],
)
def test_a4_a_source_is_forgotten_with_messages_receivers_and_names(
    run_store: Callable[..., ThreadStore], kind: str, row: str, of_store: dict[str, int], of_client: dict[str, int]
) -> None:
    store = run_store("a", kind, **SOON, **of_store)
    with hf.Context(session_id=5) as ctx:
        src, rcv = one_of_each(ctx, **of_client)
        assert len(names(ctx)) == 2
        rcv.close()
        src.close()
        until(f"{row}: the state is gone", lambda: not sources(store))
        until("its log, too", lambda: list(store.store.logs.iterdir()) == [])
        until("and its names", lambda: names(ctx) == [])
        again = ctx.source("quotes", options=SOURCE)
        again.wait_registered(SHORT)
        assert again.next_sequence_number == 0


def test_a4_without_a_lifetime_state_stays(run_store: Callable[..., ThreadStore]) -> None:
    """docs/semantics.md A.4: state lifetime 0 keeps state, where UM deletes it at the activity timeout."""
    store = run_store("a", **SOON)
    with hf.Context(session_id=5) as ctx:
        src, rcv = one_of_each(ctx, ume_activity_timeout=1)
        rcv.close()
        src.close()
        until("the store has seen it", lambda: sources(store)[0].gone_ns and receivers(store)[0].gone_ns)
        began = time.time_ns()
        until("all timeouts are over", lambda: time.time_ns() - began > 50_000_000)
        looks(store)
        assert len(sources(store)) == len(receivers(store)) == 1


def test_a4_what_lives_is_never_forgotten_however_silent(run_store: Callable[..., ThreadStore]) -> None:
    store = run_store("a", **SOON, **{"source-state-lifetime": 1, "receiver-state-lifetime": 1})
    with hf.Context(session_id=5) as ctx:
        src, rcv = one_of_each(ctx, ume_activity_timeout=1)
        looks(store, 5 * LOOKS)
        assert (sources(store)[0].gone_ns, receivers(store)[0].gone_ns) == (0, 0)
        store.stop()  # nobody is connected now, but ring and line are owned
        until("the source has noticed", lambda: src.stats().stores["a"].state == "down")
        store = run_store("a", **SOON, **{"source-state-lifetime": 1, "receiver-state-lifetime": 1})
        looks(store, 5 * LOOKS)
        src.wait_registered(SHORT)
        src.send(b"1")
        assert take(rcv) == b"1"
        assert len(receivers(store)) == 1


@pytest.mark.parametrize("row", ["receiver-state-lifetime", "ume_state_lifetime"])
def test_a4_a_receiver_is_forgotten_with_its_ack(
    run_store: Callable[..., ThreadStore], caplog: pytest.LogCaptureFixture, row: str
) -> None:
    of_store = {row: 30} if row.startswith("receiver") else {}
    of_client = {row: 30} if row.startswith("ume") else {}
    store = run_store("a", **SOON, **of_store)
    with hf.Context() as ctx:
        src = ctx.source("quotes", options=SOURCE)
        src.wait_registered(SHORT)
        src.send(b"0")
        rcv = ctx.receiver("quotes", options={"ume_session_id": 5, **of_client})
        assert take(rcv) == b"0"
        rcv.close()
        (kept,) = sources(store)
        until("its ack is gone", lambda: kept.receivers == [])
        again = ctx.receiver("quotes", options={"ume_session_id": 5, **of_client})
        assert take(again) == b"0", "from the start"
        src.send(b"1")
        assert take(again) == b"1"
        src.wait_stable(src.send(b"2"), timeout=SHORT)
        again.close()
        until("its ack is gone", lambda: kept.receivers == [])
        lines = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
        said = [line.partition("gone for its lifetime, ")[2] for line in lines if "(session ID 0x5) of RegID" in line]
        assert said == ["with everything acknowledged", "without 2..2"]
        assert sources(store) == [kept], "the source stays"


def test_a4_who_comes_back_in_time_finds_everything_and_the_clock_begins_anew(
    run_store: Callable[..., ThreadStore],
) -> None:
    lifetimes = {"source-state-lifetime": 600_000, "receiver-state-lifetime": 600_000}
    store = run_store("a", "disk", **SOON, **lifetimes)
    began = time.time_ns()
    seen = []
    with hf.Context(session_id=5) as ctx:
        src, rcv = one_of_each(ctx)
        for _ in range(2):
            rcv.close()
            src.close()
            seen.append(gone(store))
            store.stop()
            store = run_store("a", "disk", **SOON, **lifetimes)
            looks(store)
            assert gone(store) == seen[-1], "the clocks survive the store"
            src = ctx.source("quotes", options=SOURCE)
            src.wait_registered(SHORT)
            rcv = ctx.receiver("quotes")
            src.send(b"1")
            assert take(rcv) == b"1", "its ack is there"
            assert (sources(store)[0].gone_ns, receivers(store)[0].gone_ns) == (0, 0)
    assert seen[0] < seen[1]
    assert began <= min(seen[0]) <= max(seen[1]) <= time.time_ns()


def test_a4_a_grant_stops_the_clock_at_once(run_store: Callable[..., ThreadStore]) -> None:
    store = run_store("a", "disk", **SOON)
    with hf.Context(session_id=5) as ctx:
        src, rcv = one_of_each(ctx)
        src.close()
        rcv.close()
        gone(store)
        store.stop()
        store = run_store("a", "disk", **{**SOON, "source-check-interval": 2**31 - 1})
        src = ctx.source("quotes", options=SOURCE)
        src.wait_registered(SHORT)
        rcv = ctx.receiver("quotes")
        src.send(b"1")
        assert take(rcv) == b"1"
        kept = StateFile(store.store.directory.path).load()
        assert kept is not None
        assert [(each.gone_ns, each.receivers[0].gone_ns) for each in kept.sources] == [(0, 0)], "a crash finds it so"


def gone(store: ThreadStore) -> tuple[int, int]:
    """When the source and its receiver were found gone, once they are."""
    until("the clocks run", lambda: sources(store)[0].gone_ns and receivers(store)[0].gone_ns)
    return sources(store)[0].gone_ns, receivers(store)[0].gone_ns


def test_a4_time_goes_on_while_the_store_is_down(run_store: Callable[..., ThreadStore]) -> None:
    store = run_store("a", "disk", **SOON, **{"source-state-lifetime": 600_000})
    with hf.Context(session_id=5) as ctx:
        src, rcv = one_of_each(ctx)
        src.close()
        rcv.close()
        until("the clock runs", lambda: sources(store)[0].gone_ns)
        store.stop()
        store.store.state.sources[0].gone_ns -= 600_000_000_000  # as if it had been down for so long
        store.store.holdings.save()
        store = run_store("a", "disk", **SOON, **{"source-state-lifetime": 600_000})
        until("it is forgotten", lambda: not sources(store) and names(ctx) == [])


def test_a4_a_clock_that_is_set_back_deletes_neither_early_nor_never(run_store: Callable[..., ThreadStore]) -> None:
    store = run_store("a", "disk", **SOON, **{"source-state-lifetime": 600_000})
    with hf.Context(session_id=5) as ctx:
        src, rcv = one_of_each(ctx)
        src.close()
        rcv.close()
        until("the clock runs", lambda: sources(store)[0].gone_ns)
        store.stop()
        store.store.state.sources[0].gone_ns += 10**18  # it was written under a clock that was 30 years ahead
        store.store.holdings.save()
        began = time.monotonic()
        store = run_store("a", "disk", **SOON, **{"source-state-lifetime": 300})
        until("it is forgotten", lambda: not sources(store))
        assert time.monotonic() - began >= 0.29


def test_a4_the_timers_of_the_first_registration_are_kept(run_store: Callable[..., ThreadStore]) -> None:
    store = run_store("a", "disk", **SOON)
    for lifetime in (600_000, 1):
        with hf.Context(session_id=5) as ctx:
            options = {"ume_state_lifetime": lifetime, "ume_activity_timeout": lifetime + 1}
            src = ctx.source("quotes", options={**SOURCE, **options})
            src.wait_registered(SHORT)
            src.send(b"x")
            rcv = ctx.receiver("quotes", options=options)
            take(rcv)
        until("it is closed", lambda: sources(store)[0].gone_ns)
        looks(store)
        (kept,) = sources(store)
        assert (kept.activity_timeout, kept.state_lifetime) == (600_001, 600_000)
        assert (kept.receivers[0].activity_timeout, kept.receivers[0].state_lifetime) == (600_001, 600_000)


def test_a4_the_names_stay_while_another_store_takes_part(run_store: Callable[..., ThreadStore]) -> None:
    stores = {name: run_store(name, **SOON, **({"source-state-lifetime": 20} if name == "a" else {})) for name in "abc"}
    with hf.Context(session_id=5) as ctx:
        src = ctx.source("quotes", options={**SOURCE, "ume_store_name": list("abc"), "ume_registration_interval": 100})
        everywhere(src)
        src.send(b"x")
        src.wait_stable(timeout=SHORT)
        with ctx.receiver("quotes") as rcv:
            assert take(rcv) == b"x"
        src.close()
        until("a has forgotten it", lambda: not sources(stores["a"]) and not stores["a"].store.state.going)
        assert len(sources(stores["b"])) == len(sources(stores["c"])) == 1
        assert any(name.endswith(".b") for name in names(ctx)), "the board is b's and c's, too"
        assert [list(stores[name].store.logs.iterdir()) == [] for name in "abc"] == [True, False, False]


# What a store knows that it never had (docs/design.md 8) ----------------------------------------------------


def line_of(store: ThreadStore) -> tuple[int, int, int]:
    """(from, to, ack) of the store's line on the board of the one source that it keeps."""
    (repository,) = store.store.drainer.repositories.values()

    def look() -> tuple[int, int, int]:
        if repository.line.board is None:
            return 0, 0, 0
        line = lib.hf_board_line_at(repository.line.board.handle, repository.line.index)
        return int(line.from_sqn), int(line.to_sqn), int(line.ack)

    return store.store.drainer.call(look)


def test_a_store_that_the_ring_lapped_counts_for_nothing_that_it_lost(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "holdfast.engine.store.repository.Repository.peers", lambda *_: []
    )  # its peers' logs cannot be read
    stores = {name: run_store(name, "disk") for name in "abc"}
    options = {
        **SOURCE, "ume_store_name": list("abc"), "ume_registration_interval": 100, "ring_size": 1 << 16, "fragment_size": 1024
    }  # fmt: skip
    with hf.Context(session_id=5) as ctx:
        src = ctx.source("quotes", options=options)
        everywhere(src)
        for _ in range(10):
            src.send(bytes(1000))
        until("c has it", lambda: line_of(stores["c"])[2] == 10)
        stores["c"].stop()
        for _ in range(300):
            src.send(bytes(1000))
        src.wait_stable(timeout=SHORT)
        lost_below = 0
        for level in ("disk", "disk", "memory"):  # with another level it starts with a blank line: the state knows
            stores["c"] = ThreadStore(replace(stores["c"].store.config, acknowledge=level))
            until("c goes on", lambda: line_of(stores["c"])[2] == 310)
            first, to, _ = line_of(stores["c"])
            assert to == 2**64 - 1
            assert 200 < first < 310, "behind what was overwritten before it came back"
            assert lost_below in {0, first}, "and a restart does not give it back"
            lost_below = first
            until("the state says so, too", lambda: sources(stores["c"])[0].lost_below == lost_below)  # noqa: B023
            stores["c"].stop()
        assert line_of(stores["a"])[0] == line_of(stores["b"])[0] == 0
