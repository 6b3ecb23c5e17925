"""Groups of real stores that are killed, stopped and replaced: who may send, and what becomes stable
(docs/semantics.md B.4, E)."""

from __future__ import annotations

import errno
import os
import signal
from typing import TYPE_CHECKING, Any

import pytest
from process.conftest import ThreadStore
from support.recorded_events import Events
from support.silent_store import NEVER, may_fall_silent
from support.three_stores import everywhere, waits
from support.workers import Worker, until

import holdfast as hf
from holdfast.engine.memory.new_ring import write_sri
from holdfast.engine.source import session
from holdfast.engine.store.sources import SourceDesk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from holdfast.engine.control import wire
    from holdfast.engine.memory.new_ring import SriStore
    from holdfast.engine.native.core import CData
    from holdfast.engine.rules.quorum import Groups
    from holdfast.engine.store.clients import Client

SHORT = 90.0
SOURCE: dict[str, Any] = {
    "ring_size": 1 << 18,
    "fragment_size": 4096,
    "ume_registration_interval": 300,
    "ume_store_check_interval": 50,
}
PATIENT = {"ume_registration_interval": 60_000}
"""Who does not answer within the interval is told as unresponsive, and loses its seat to a backup."""


@pytest.fixture
def spawn(tmp_path: Path, own_domain: str) -> Iterator[Callable[[str], dict[str, Worker]]]:
    """Store processes by name; what still runs at the end is killed."""
    started: dict[str, Worker] = {}

    def start(names: str) -> dict[str, Worker]:
        for name in names:
            directory = str(tmp_path / f"store-{name}")
            started[name] = Worker(
                "store", tmp_path, domain=own_domain, name=name, directory=directory, kind="memory"
            ).start()
        for store in started.values():
            store.wait_ready()
        return started

    yield start
    for store in started.values():
        if store.process is not None:
            store.send(signal.SIGCONT)
        store.discard()


def kill(store: Worker) -> None:
    store.strike()
    store.wait_died()


def stop(store: Worker) -> None:
    """Returns when all of its threads stand."""
    assert store.process is not None
    store.send(signal.SIGSTOP)
    os.waitpid(store.process.pid, os.WUNTRACED)


def states(src: hf.Source) -> dict[str, str]:
    return {name: store.state for name, store in src.stats().stores.items()}


def test_a_new_source_does_not_wait_for_a_dead_store_that_cannot_know_it(
    spawn: Callable[[str], dict[str, Worker]],
) -> None:
    """Without RegID and session ID no store can; with a session ID, what the dead one left says so, or says
    that it does."""
    options = {**SOURCE, "ume_store_name": list("abc")}
    spawn("abc")
    with hf.Context(session_id=1) as ctx, ctx.source("known", options=options) as src:
        src.wait_registered(SHORT)
    kill(spawn("")["c"])
    with hf.Context() as ctx, ctx.source("anonymous", options=options) as src:
        src.wait_registered(SHORT)
    events = Events()
    with hf.Context(session_id=1) as ctx:
        src = ctx.source("unknown to it", options=options, on_event=events)
        src.wait_registered(SHORT)
        assert events.wait("RegistrationComplete").flags == hf.events.source.RegistrationCompleteFlags.QUORUM
        src.wait_stable(src.send(b"two have it"), SHORT)


def test_what_a_dead_store_knows_is_waited_for(spawn: Callable[[str], dict[str, Worker]], tmp_path: Path) -> None:
    options = {**SOURCE, "ume_store_name": list("abc")}
    stores = spawn("abc")
    with hf.Context(session_id=1) as ctx, ctx.source("known", options=options) as src:
        everywhere(src)
    for store in stores.values():
        kill(store)
    for name in "ab":
        (tmp_path / f"store-{name}").rename(tmp_path / f"gone-{name}")
    stores = spawn("ab")
    with hf.Context(session_id=1) as ctx, ctx.source("known", options=options) as src:
        waits(src, "c, which may have, is not there")
        spawn("c")
        src.wait_registered(SHORT)


def test_a_group_of_three_goes_on_without_one_stops_without_two_and_goes_on_again(
    spawn: Callable[[str], dict[str, Worker]],
) -> None:
    stores, events = spawn("abc"), Events()
    with hf.Context() as ctx:
        options = {**SOURCE, "ume_store_name": list("abc"), "ume_registration_interval": 30_000}
        src = ctx.source("quotes", options=options, on_event=events)
        src.wait_registered(SHORT)
        complete = events.wait("RegistrationComplete")
        assert complete.flags == hf.events.source.RegistrationCompleteFlags(0), "every store of the group"
        src.send(b"all")
        kill(stores["a"])
        gone = events.wait("StoreUnresponsive")
        assert (gone.text, gone.quorum_lost, gone.registered, gone.required) == (
            "store 0 [a] unresponsive", False, 2, 2,
        )  # fmt: skip
        src.send(b"two of three")
        src.wait_stable(timeout=SHORT)
        kill(stores["c"])
        gone = events.wait("StoreUnresponsive", 2)
        assert (gone.text, gone.quorum_lost, gone.registered, gone.required) == (
            "store 2 [c] unresponsive (quorum lost)", True, 1, 2,
        )  # fmt: skip
        with pytest.raises(hf.QuorumLostError, match="waiting for a, c"):
            src.send(b"refused")
        assert states(src) == {"a": "down", "b": "active", "c": "down"}
        stores["c"].start().wait_ready()
        src.wait_registered(SHORT)
        again = events.wait("RegistrationComplete", 2)
        assert again.sequence_number == 2, "the live object's numbering goes on"
        assert again.flags == hf.events.source.RegistrationCompleteFlags.QUORUM
        assert src.send(b"again") == 2
        src.wait_stable(timeout=SHORT)


def test_a_blocked_send_ends_when_the_quorum_is_lost(spawn: Callable[[str], dict[str, Worker]]) -> None:
    stores = spawn("ab")
    with hf.Context() as ctx:
        src = ctx.source("quotes", options={**SOURCE, "ume_store_name": list("ab"), "ume_flight_size": 1})
        src.wait_registered(SHORT)
        stop(stores["b"])
        src.send(b"in flight")
        with pytest.raises(hf.WouldBlockError):
            src.send(b"no room", timeout=0.1)
        stores["b"].strike()
        with pytest.raises(hf.QuorumLostError):
            src.send(b"woken", timeout=SHORT)


def test_every_group_has_its_say(spawn: Callable[[str], dict[str, Worker]]) -> None:
    """Two groups, both needed: one store of three may die, and not the only one of the other group."""
    stores, events = spawn("abcx"), Events()
    options = {
        **SOURCE,
        "ume_store_name": ["a:0:0", "b:0:0", "c:0:0", "x:0:2"],
        "ume_store_group": ["0:3", "2:1"],
        "ume_retention_intergroup_stability_behavior": "all",
        "ume_message_stability_notification": 1,
        **PATIENT,
        **NEVER,
    }
    with hf.Context() as ctx:
        src = ctx.source("quotes", options=options, on_event=events)
        src.wait_registered(SHORT)
        assert {name: store.group for name, store in src.stats().stores.items()} == {"a": 0, "b": 0, "c": 0, "x": 2}
        everywhere(src)
        stop(stores["x"])
        src.send(b"one")
        flags = hf.events.source.StableFlags
        until("two stores of the first group have it", lambda: len(events.of("MessageStable")) >= 2)
        first, second = events.of("MessageStable")[:2]
        assert (first.flags, second.flags) == (flags.STORE, flags.STORE | flags.INTRAGROUP_STABLE)
        with pytest.raises(hf.StabilityTimeout):
            src.wait_stable(timeout=0.1)
        stores["x"].send(signal.SIGCONT)
        src.wait_stable(timeout=SHORT)
        until("x has told", lambda: any(event.store == "x" for event in events.of("MessageStable")))
        (last,) = [event for event in events.of("MessageStable") if event.store == "x"]
        assert last.flags == flags.STORE | flags.INTRAGROUP_STABLE | flags.INTERGROUP_STABLE | flags.STABLE
        kill(stores["a"])
        assert not events.wait("StoreUnresponsive").quorum_lost
        src.send(b"two")
        src.wait_stable(timeout=SHORT)
        kill(stores["x"])
        assert events.wait("StoreUnresponsive", 2).quorum_lost
        with pytest.raises(hf.QuorumLostError):
            src.send(b"refused")


def test_a_backup_takes_the_seat_and_keeps_it(spawn: Callable[[str], dict[str, Worker]]) -> None:
    stores, events, seen = spawn("abcd"), Events(), Events()
    names = {"ume_store_name": list("abcd"), "ume_store_group": ["0:3"], **PATIENT}
    with hf.Context() as ctx:
        src = ctx.source("quotes", options={**SOURCE, **names}, on_event=events)
        src.wait_registered(SHORT)
        seats = {"a": "active", "b": "active", "c": "active", "d": "idle"}
        until("all three take their seats", lambda: states(src) == seats)
        rcv = ctx.receiver("quotes", options={"ume_registration_interval": 60_000}, on_event=seen)
        done = seen.wait("RegistrationComplete")
        assert not done.flags & hf.events.receiver.RegistrationCompleteFlags.QUORUM, "a backup is not waited for"
        src.send(b"one")
        src.wait_stable(timeout=SHORT)
        kill(stores["b"])
        until("d has the seat", lambda: states(src)["d"] == "active")
        assert states(src)["b"] == "idle"
        until("d is told of", lambda: any("with d" in event.text for event in seen.of("RegistrationChange")))
        assert "without b" in " ".join(event.text for event in seen.of("RegistrationChange"))
        stores["b"].start().wait_ready()
        kill(stores["a"])
        want = {"a": "idle", "b": "active", "c": "active", "d": "active"}
        until("b is the next backup", lambda: states(src) == want)
        src.send(b"two")
        src.wait_stable(timeout=SHORT)
        for expected in (b"one", b"two"):
            message = rcv.receive(timeout=SHORT)
            assert message is not None
            with message:
                assert bytes(message) == expected


def test_a_stopped_store_never_blocks_a_quorum(spawn: Callable[[str], dict[str, Worker]]) -> None:
    """It is suspended when its heartbeat has stood still, counted again when it goes on, and the others do
    not notice."""
    stores, events = spawn("abc"), Events()
    options = {
        **SOURCE,
        **PATIENT,
        "ume_store_name": list("abc"),
        **NEVER,
        "ume_flight_size": 2,
    }
    with hf.Context() as ctx:
        src = ctx.source("quotes", options=options, on_event=events)
        everywhere(src)
        may_fall_silent(src, 1, 4000)
        stop(stores["b"])
        while not events.of("StoreUnresponsive"):
            src.send(b"x" * 64, timeout=SHORT)
        assert events.of("StoreUnresponsive")[0].text == "store 1 [b] unresponsive"
        assert states(src)["b"] == "suspended"
        src.wait_stable(timeout=SHORT)
        stores["b"].send(signal.SIGCONT)
        until("b counts again", lambda: states(src)["b"] == "active")
        may_fall_silent(src, 1, NEVER["ume_store_activity_timeout"])
        kill(stores["a"])
        src.send(b"y")
        src.wait_stable(timeout=SHORT)
        assert len(events.of("RegistrationComplete")) == 1, "the quorum was never lost"


def test_with_all_active_a_stopped_store_blocks_until_the_activity_timeout(
    spawn: Callable[[str], dict[str, Worker]],
) -> None:
    stores, events = spawn("abc"), Events()
    options = {
        **SOURCE,
        **PATIENT,
        "ume_store_name": list("abc"),
        **NEVER,
        "ume_retention_intragroup_stability_behavior": "all-active",
    }
    with hf.Context() as ctx:
        src = ctx.source("quotes", options=options, on_event=events)
        everywhere(src)
        may_fall_silent(src, 1, 4000)
        stop(stores["b"])
        number = src.send(b"x")
        src.wait_stable(timeout=SHORT)
        gone = events.wait("StoreUnresponsive")
        assert (gone.store, gone.quorum_lost, gone.registered) == ("b", False, 2)
        stores["b"].send(signal.SIGCONT)
        until("b counts again", lambda: states(src)["b"] == "active")
        may_fall_silent(src, 1, NEVER["ume_store_activity_timeout"])
        until("b has it, too", lambda: src.stats().stores["b"].stable_sequence_number == number)


def test_a_receiver_of_a_source_without_a_ring_completes_with_a_quorum_of_one_group(
    run_store: Callable[..., ThreadStore],
) -> None:
    """The stores remember how they are grouped."""
    stores = {name: run_store(name) for name in "abcxyz"}
    names = {
        "ume_store_name": [*(f"{name}:0:0" for name in "abc"), *(f"{name}:0:1" for name in "xyz")],
        "ume_store_group": ["0:3", "1:3"],
        "ume_retention_intergroup_stability_behavior": "all",
    }
    with hf.Context() as ctx, ctx.source("quotes", options={**SOURCE, **names}) as src:
        everywhere(src)
        src.send(b"x")
        src.wait_stable(timeout=SHORT)
    until("the ring is gone", lambda: src._session.name not in os.listdir("/dev/shm"))
    for name in "cxyz":
        stores[name].stop()
    with (
        hf.Context() as ctx,
        ctx.receiver("quotes", options={"ume_registration_interval": 200}) as rcv,
    ):
        message = rcv.receive(timeout=SHORT)
        assert message is not None
        with message:
            assert bytes(message) == b"x"


def test_stores_by_port_and_one_that_is_named_twice(run_store: Callable[..., ThreadStore], tmp_path: Path) -> None:
    store = hf.StoreConfig("a", tmp_path / "store-a", type="memory", port=14567)
    events = Events()
    running = ThreadStore(store)
    run_store("b")
    try:
        with hf.Context() as ctx:
            src = ctx.source("quotes", options={**SOURCE, "ume_store": ["127.0.0.1:14567:4711:0"]})
            src.wait_registered(SHORT)
            assert src.registration_ids == {"127.0.0.1:14567": 4711}
            src.send(b"x")
            src.wait_stable(timeout=SHORT)
            src.close()
            twice = {"ume_store": ["127.0.0.1:14567:99"], "ume_store_name": ["a:99", "b:99"]}
            src = ctx.source("trades", options={**SOURCE, **twice}, on_event=events)
            refused = events.wait("RegistrationError")
            assert refused.store == "a"
            assert "another name: it would count twice" in refused.text
    finally:
        running.stop()


def test_a_receiver_hears_of_a_store_once_however_often_its_begin_fails(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each attempt was news to the receivers, which registered there again, ten times a second."""
    tries = []
    begin = SourceDesk.begin

    def fail(desk: SourceDesk, client: Client, request: wire.Begin) -> wire.Answer:
        if desk._holdings.name != "c":
            return begin(desk, client, request)
        tries.append(request.incarnation)
        raise OSError(errno.ENOSPC, "No space left on device")

    told: list[list[int]] = []

    def note(ring: CData, said: Sequence[SriStore], groups: Groups) -> None:
        told.append([at.version for at in said])
        write_sri(ring, said, groups)

    monkeypatch.setattr(session, "write_sri", note)
    stores = {name: run_store(name) for name in "abc"}
    with hf.Context(session_id=7) as ctx:
        src = ctx.source("quotes", options={"ume_store_name": ["a", "b", "c"], "ume_registration_interval": 100})
        everywhere(src)
        events = Events()
        ctx.receiver("quotes", on_event=events)

        def heard() -> int:
            return sum(event.store == "c" for event in events.of("RegistrationSuccess"))

        until("it is registered with c", heard)
        stores["c"].stop()
        with monkeypatch.context() as patch:
            patch.setattr(SourceDesk, "begin", fail)
            run_store("c")
            until("c has failed five times", lambda: len(tries) >= 5)
            assert heard() <= 2
            assert told[-1] == [1, 1, 2]
        everywhere(src)
        until("receivers are told that it has begun", lambda: told[-1] == [1, 1, 3])
        src.send(b"x")
        src.wait_stable(timeout=SHORT)
        assert heard() <= 3


def test_b3_a_receiver_with_too_few_stores_says_which_do_not_answer(run_store: Callable[..., ThreadStore]) -> None:
    stores = {name: run_store(name) for name in "abc"}
    with hf.Context(session_id=7) as ctx:
        src = ctx.source("quotes", options={"ume_store_name": ["a", "b", "c"], "ume_registration_interval": 100})
        everywhere(src)
        src.send(b"x")
        src.wait_stable(timeout=SHORT)
        stores["b"].stop()
        stores["c"].stop()
        events = Events()
        rcv = ctx.receiver("quotes", options={"ume_registration_interval": 1000}, on_event=events)

        def said(word: str) -> list[Any]:
            return [event for event in events.of("RegistrationError") if word in event.text]

        until("all is said", lambda: said("waits: ") and {each.store for each in said("unresponsive")} >= {"b", "c"})
        assert said("waits: ")[0].text == (
            "waits: registered with 1 of 3 stores, which are too few: "
            "store 0 [a]: registered; store 1 [b]: cannot be reached; store 2 [c]: cannot be reached"
        )
        for index, name in ((1, "b"), (2, "c")):
            (event,) = [each for each in said("unresponsive") if each.store == name]
            assert event.text.startswith(
                f"store {index} [{name}] unresponsive - no registration response; registered with "
            )
            assert event.text.endswith(" of its group, 2 are needed")
        run_store("c")
        message = rcv.receive(timeout=SHORT)
        assert message is not None
        assert bytes(message) == b"x"
