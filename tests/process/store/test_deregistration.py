"""Deregistration by sources and receivers, with real stores (docs/semantics.md F.7, L.1, L.2, B.6)."""

from __future__ import annotations

import dataclasses
import re
import threading
from typing import TYPE_CHECKING

import pytest
from support.leftovers import objects_of
from support.recorded_events import Events
from support.three_stores import everywhere
from support.workers import until

import holdfast as hf
from holdfast.engine.control import deregistration
from holdfast.engine.control.deregistration import SourceDeregistration
from holdfast.engine.errors import ReadOnlyError
from holdfast.engine.memory.mapping import attach_board, join_board, read_lines
from holdfast.engine.native.core import ffi, lib

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from process.conftest import ThreadStore

    from holdfast.engine.memory.domain import Domain
    from holdfast.engine.memory.mapping import Mapping

SHORT = 90.0
SOURCE = {"ume_store_name": ["a:0:0"], "ring_size": 1 << 17, "fragment_size": 4096}
THREE = {**SOURCE, "ume_store_name": ["a", "b", "c"], "ume_registration_interval": 100}


def names_of(ctx: hf.Context) -> list[str]:
    """Rings and boards in the context's domain."""
    return [name for name in objects_of(ctx.domain.path) if re.search(r"[0-9a-f]{32}\.(b|s\d+)$", name)]


def take(rcv: hf.Receiver) -> bytes:
    message = rcv.receive(timeout=SHORT)
    assert message is not None, "no message came"
    with message:
        return bytes(message)


def kept(store: ThreadStore) -> list[str]:
    """Topics of the sources in the store's state."""
    return [source.topic for source in store.store.state.sources]


def logs(store: ThreadStore) -> list[Path]:
    return sorted(store.store.logs.iterdir())


# Sources ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["disk", "memory"])
def test_f7_a_source_is_forgotten_with_its_messages(run_store: Callable[..., ThreadStore], kind: str) -> None:
    store = run_store("a", kind)
    with hf.Context(session_id=5) as ctx:
        events, seen = Events(), Events()
        src = ctx.source("quotes", options=SOURCE, on_event=events)
        other = ctx.source("trades", options=SOURCE)
        src.wait_registered(SHORT)
        other.wait_registered(SHORT)
        rcv = ctx.receiver("quotes", on_event=seen)
        for i in range(4):
            src.send(b"%d" % i)
        assert take(rcv) == b"0"
        src.wait_stable(timeout=SHORT)
        number = src.registration_ids["a"]
        src.deregister()
        with pytest.raises(hf.NotRegisteredError, match="deregistered"):
            src.send(b"no more")
        with pytest.raises(hf.NotRegisteredError, match="deregistered"):
            src.wait_registered(SHORT)
        events.wait("DeregistrationComplete")
        assert [type(event).__name__ for event in events][-2:] == ["DeregistrationSuccess", "DeregistrationComplete"]
        (success,) = events.of("DeregistrationSuccess")
        assert success == hf.events.source.DeregistrationSuccess(hf.events.NoFlags.NONE, number, 3, 0, "a"), (
            "the last number that was stored"
        )
        assert kept(store) == ["trades"]
        assert len(logs(store)) == 1
        assert len(names_of(ctx)) == 2, "ring and board of the other source"
        assert [take(rcv) for _ in range(3)] == [b"1", b"2", b"3"], "a receiver reads the ring that it has to its end"
        until("the end of the stream", lambda: rcv.receive(timeout=0.01) is None and seen.of("EndOfStream"))
        assert src.next_sequence_number == 4
        other.send(b"undisturbed")
        other.wait_stable(timeout=SHORT)
        again = ctx.source("quotes", options=SOURCE)
        again.wait_registered(SHORT)
        assert again.next_sequence_number == 0, "nothing is left of the old one"
        src.close()
        again.send(b"new")
        again.wait_stable(timeout=SHORT)


def test_f7_a_source_that_was_deregistered_stays_forgotten_after_a_restart_of_the_store(
    run_store: Callable[..., ThreadStore],
) -> None:
    store = run_store("a", "disk")
    with hf.Context(session_id=5) as ctx:
        events = Events()
        src = ctx.source("quotes", options=SOURCE, on_event=events)
        src.wait_registered(SHORT)
        src.send(b"x")
        src.deregister()
        events.wait("DeregistrationComplete")
        store.stop()
        store = run_store("a", "disk")
        again = ctx.source("quotes", options=SOURCE)
        again.wait_registered(SHORT)
        assert kept(store) == ["quotes"]
        assert len(logs(store)) == 1
        assert again.next_sequence_number == 0


def test_f7_a_store_whose_disk_is_read_only_is_told_of_once_and_asked_again(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its refusal counted as somebody else's RegID: all was said to be done, and the store had everything."""
    tries = []

    def fail(*_: object) -> None:
        tries.append(1)
        raise ReadOnlyError("/srv/a")

    store = run_store("a", "disk")
    with hf.Context(session_id=5) as ctx:
        events = Events()
        src = ctx.source("quotes", options=SOURCE, on_event=events)
        src.wait_registered(SHORT)
        monkeypatch.setattr(deregistration, "RETRY_NS", 10_000_000)
        with monkeypatch.context() as patch:
            patch.setattr(store.store.sources, "deregister", fail)
            src.deregister()
            until("it was asked three times", lambda: len(tries) >= 3)
        events.wait("DeregistrationComplete")
        (told,) = events.of("RegistrationError")
        assert "store a takes nothing in: " in told.text
        assert kept(store) == []


def test_f7_what_a_crash_left_of_a_forgotten_source_goes_at_the_next_start(
    run_store: Callable[..., ThreadStore],
) -> None:
    store = run_store("a", "disk")
    with hf.Context() as ctx:
        src = ctx.source("quotes", options=SOURCE)
        src.wait_registered(SHORT)
        src.send(b"x")
        src.wait_stable(timeout=SHORT)
    (source,) = store.store.state.sources
    store.stop()
    store.store.holdings.registry.remove(source)  # the first step of forgetting, and nothing after it
    store.store.state.going.append(source.uuid)
    store.store.holdings.save()
    assert logs(store) != []
    store = run_store("a", "disk")
    assert logs(store) == []
    assert store.store.state.going == []


def test_f7_a_store_that_is_down_is_asked_when_it_is_back(run_store: Callable[..., ThreadStore]) -> None:
    stores = {name: run_store(name) for name in "abc"}
    with hf.Context(session_id=5) as ctx:
        events = Events()
        src = ctx.source("quotes", options=THREE, on_event=events)
        everywhere(src)
        src.send(b"x")
        src.wait_stable(timeout=SHORT)
        stores["b"].stop()
        events.wait("StoreUnresponsive")
        src.deregister()
        events.wait("DeregistrationSuccess", 2)
        assert sorted(event.store for event in events.of("DeregistrationSuccess")) == ["a", "c"]
        assert events.of("DeregistrationComplete") == []
        assert names_of(ctx) != [], "b may still want to drain the ring"
        stores["b"] = run_store("b")
        events.wait("DeregistrationComplete")
        assert sorted(event.store for event in events.of("DeregistrationSuccess")) == ["a", "b", "c"]
        assert [kept(store) for store in stores.values()] == [[], [], []]
        assert names_of(ctx) == []
        assert len(events.of("RegistrationSuccess")) == 3, "it did not register with b again"


def test_f7_errors_of_a_source(run_store: Callable[..., ThreadStore]) -> None:
    with hf.Context() as ctx:
        src = ctx.source("quotes", options=SOURCE)
        with pytest.raises(hf.UsageError, match="not registered with any stores"):
            src.deregister()
        streaming = ctx.source("quotes")
        streaming.wait_registered(SHORT)
        with pytest.raises(hf.UsageError, match="not registered with any stores"):
            streaming.deregister()
        run_store("a")
        src.wait_registered(SHORT)
        src.deregister()
        with pytest.raises(hf.UsageError, match="already deregistering"):
            src.deregister()
        src.close()
        with pytest.raises(hf.UsageError, match="closed"):
            src.deregister()


def test_f7_a_send_that_waits_for_room_ends(run_store: Callable[..., ThreadStore]) -> None:
    run_store("a")
    raised: list[BaseException] = []
    with hf.Context() as ctx:
        src = ctx.source("quotes", options={**SOURCE, "ume_flight_size": 1, "ume_retention_unique_confirmations": 1})
        src.wait_registered(SHORT)
        src.send(b"x")

        def work() -> None:
            try:
                src.send(b"waits for a receiver's confirmation")
            except hf.Error as error:
                raised.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        src.deregister()
        thread.join(SHORT)
        assert [type(error) for error in raised] == [hf.NotRegisteredError]


# Receivers --------------------------------------------------------------------------------------------------


def test_f7_a_receiver_is_forgotten_and_goes_on_without_acks(run_store: Callable[..., ThreadStore]) -> None:
    store = run_store("a", "disk")
    with hf.Context() as ctx:
        events = Events()
        src = ctx.source("quotes", options=SOURCE)
        src.wait_registered(SHORT)
        rcv = ctx.receiver("quotes", options={"ume_session_id": 5}, on_event=events)
        for i in range(4):
            src.send(b"%d" % i)
        assert [take(rcv) for _ in range(3)] == [b"0", b"1", b"2"]
        got = events.wait("RegistrationSuccess")
        src.wait_stable(timeout=SHORT)  # an acknowledgement counts as far as the store has the messages
        rcv.deregister()
        complete = events.wait("DeregistrationComplete")
        (success,) = events.of("DeregistrationSuccess")
        assert (complete.topic, complete.source) == (success.topic, success.source) == ("quotes", got.source)
        assert success.source_registration_id == src.registration_ids["a"]
        assert success.receiver_registration_id == got.receiver_registration_id
        assert (success.sequence_number, success.store_index, success.store) == (2, 0, "a"), "its highest ack"
        (source,) = store.store.state.sources
        assert source.receivers == []
        src.send(b"4")
        assert [take(rcv) for _ in range(2)] == [b"3", b"4"], "live data goes on"
        late = ctx.source("quotes", options=SOURCE)
        late.wait_registered(SHORT)
        late.send(b"of a source that it did not have")
        assert rcv.receive(timeout=0.3) is None, "no registration any more"
        rcv.acknowledge(0)  # what is due, as its context does it
        assert list(rcv.stats().acknowledged.values()) == [2], "and no ack"
        store.stop()
        store = run_store("a", "disk")
        src.wait_registered(SHORT)
        late.wait_registered(SHORT)
        assert [source.receivers for source in store.store.state.sources] == [[], []], (
            "nor after a restart of the store"
        )
        again = ctx.receiver("quotes", options={"ume_session_id": 5}, on_event=events)
        until("the new one is registered with both", lambda: len(events.of("RegistrationComplete")) == 3)
        fresh = [event for event in events.of("RegistrationSuccess")[1:] if event.source == got.source]
        assert [(event.sequence_number, int(event.flags) & 1) for event in fresh] == [(0, 0)], "from the start, not OLD"
        assert {take(again) for _ in range(6)} >= {b"0", b"1", b"2", b"3", b"4"}
        assert len(events.of("DeregistrationSuccess")) == len(events.of("DeregistrationComplete")) == 1


def test_f7_a_receiver_of_two_sources_ends_with_each(run_store: Callable[..., ThreadStore]) -> None:
    stores = {name: run_store(name) for name in "abc"}
    with hf.Context() as ctx:
        events = Events()
        sources = [ctx.source(topic, options=THREE) for topic in ("eu.a", "eu.b")]
        for src in sources:
            everywhere(src)
        rcv = ctx.receiver(pattern="eu[.].", options={"ume_registration_interval": 100}, on_event=events)
        events.wait("RegistrationComplete", 2)
        events.wait("RegistrationSuccess", 6)
        stores["b"].stop()
        rcv.deregister()
        events.wait("DeregistrationSuccess", 4)
        assert events.of("DeregistrationComplete") == []
        stores["b"] = run_store("b")
        events.wait("DeregistrationComplete", 2)
        assert {event.topic for event in events.of("DeregistrationComplete")} == {"eu.a", "eu.b"}
        by_source = sorted((event.topic, event.store) for event in events.of("DeregistrationSuccess"))
        assert by_source == [(topic, store) for topic in ("eu.a", "eu.b") for store in "abc"]
        assert all(not s.receivers for store in stores.values() for s in store.store.state.sources)


def test_f7_errors_of_a_receiver(run_store: Callable[..., ThreadStore]) -> None:
    run_store("a")
    with hf.Context() as ctx:
        rcv = ctx.receiver("quotes")
        with pytest.raises(hf.UsageError, match="not registered with any stores"):
            rcv.deregister()
        events = Events()
        src = ctx.source("quotes", options=SOURCE)
        src.wait_registered(SHORT)
        rcv = ctx.receiver("quotes", on_event=events)
        events.wait("RegistrationComplete")
        rcv.deregister()
        with pytest.raises(hf.UsageError, match="already deregistering"):
            rcv.deregister()
        rcv.close()
        with pytest.raises(hf.UsageError, match="closed"):
            rcv.deregister()


def test_f7_a_closed_receiver_is_not_deregistered(run_store: Callable[..., ThreadStore]) -> None:
    store = run_store("a")
    with hf.Context() as ctx:
        src = ctx.source("quotes", options=SOURCE)
        src.wait_registered(SHORT)
        src.send(b"0")
        rcv = ctx.receiver("quotes", options={"ume_session_id": 5})
        assert take(rcv) == b"0"
        rcv.close()
        (source,) = store.store.state.sources
        until("the ack is kept", lambda: [receiver.ack for receiver in source.receivers] == [1])


def test_what_somebody_else_goes_on_with_keeps_its_names(run_store: Callable[..., ThreadStore]) -> None:
    """Store b was down, gives the identity to another source when it is back, and has nothing to forget when
    it is asked."""
    run_store("a")
    b = run_store("b")
    options = {**SOURCE, "ume_store_name": ["a", "b"], "ume_registration_interval": 100}
    with hf.Context(session_id=5, options={"operational_mode": "sequential"}) as ctx, hf.Context(session_id=5) as other:
        events = Events()
        src = ctx.source("quotes", options=options, on_event=events)
        src.wait_registered(SHORT)
        b.stop()
        until("its end is noticed", lambda: events.of("StoreUnresponsive"), lambda: ctx.poll(0.01))
        src.deregister()
        until("a has forgotten it", lambda: events.of("DeregistrationSuccess"), lambda: ctx.poll(0.01))
        b = run_store("b")
        heir = other.source("quotes", options={**options, "ume_store_name": ["b"]})
        heir.wait_registered(SHORT)
        names = names_of(other)
        until("b has answered", lambda: events.of("DeregistrationComplete"), lambda: ctx.poll(0.01))
        assert events.of("RegistrationError")
        assert set(names_of(other)) >= {name for name in names if not name.endswith(".s1")}
        assert {name.rpartition(".")[2] for name in names} >= {"b", "s2"}
        rcv = other.receiver("quotes")
        heir.send(b"x")
        assert take(rcv) == b"x"


def test_a_board_that_somebody_joins_while_its_source_is_forgotten_keeps_its_name(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who joins after the look whether anybody is there joins a new one, not the one that goes."""
    run_store("a")
    joined: list[tuple[Mapping, int]] = []
    goes_on = SourceDeregistration._goes_on

    def join(domain: Domain, uuid: bytes) -> None:
        who = ffi.new("struct hf_identity *", {"role": lib.HF_ROLE_STORE, "uuid": b"s" * 16})
        joined.append(join_board(domain, uuid, who))

    with hf.Context() as ctx:
        events = Events()
        src = ctx.source("quotes", options=SOURCE, on_event=events)
        src.wait_registered(SHORT)
        uuid = src._session.machine.uuid
        successor = threading.Thread(target=join, args=(ctx.domain, uuid))

        def look_then_somebody_comes(self: SourceDeregistration) -> bool:
            found = goes_on(self)
            successor.start()
            successor.join(0.2)  # as long as it may: it waits for us
            return found

        monkeypatch.setattr(SourceDeregistration, "_goes_on", look_then_somebody_comes)
        src.deregister()
        events.wait("DeregistrationComplete")
        successor.join(SHORT)
        (board, line) = joined[0]
        with attach_board(ctx.domain, uuid) as named:
            (view,) = read_lines(named, ctx.domain, test=True)
        assert (view.index, view.alive) == (line, 1)
        board.close()


def test_a_source_whose_begin_has_renamed_it_is_forgotten_by_the_new_name(
    run_store: Callable[..., ThreadStore],
) -> None:
    """The store granted another identity, and its answer to BEGIN comes after the call."""
    stores = {name: run_store(name) for name in "ab"}
    with hf.Context(session_id=5) as ctx:
        with ctx.source("quotes", options=SOURCE) as first:
            first.wait_registered(SHORT)
        src = ctx.source("quotes", options={**SOURCE, "ume_store_name": ["a", "b"], "ume_registration_interval": 100})
        src.wait_registered(SHORT)
        machine = src._session.machine
        until("both have begun", lambda: len(machine.active()) == 2)
        with ctx.turning():  # as before b has answered
            held = machine.entries[1].grant
            assert held is not None
            machine.entries[1].grant = dataclasses.replace(held, uuid=b"n" * 16)
        src.deregister()
        until("all have forgotten it", lambda: not any(kept(store) for store in stores.values()))
        until("its names are gone", lambda: not names_of(ctx))
