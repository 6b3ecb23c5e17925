"""Who holds a RegID or a session: one claimant of many, until it closes or is dead (docs/semantics.md A.3,
A.4; docs/design.md 12)."""

from __future__ import annotations

import os
import signal
import socket
import time
from typing import TYPE_CHECKING, Any

import pytest
from support.claimant_process import Claimant
from support.recorded_events import Events
from support.workers import until

import holdfast as hf
from holdfast.engine.control import wire
from holdfast.engine.memory.new_ring import SourceRing, stream_config
from holdfast.engine.native.core import lib
from holdfast.engine.store.clients import Client

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from process.conftest import ThreadStore

    from holdfast.engine.log.state_file import SourceState
    from holdfast.engine.store.answers import Held

SHORT = 90.0
SOURCE = {"ume_store_name": ["a:0:0"], "ring_size": 1 << 17, "fragment_size": 4096}
THREE = {**SOURCE, "ume_store_name": ["a", "b", "c"], "ume_registration_interval": 100}


@pytest.fixture
def claim() -> Iterator[Callable[..., Claimant]]:
    """Starts claimants; all are dead at the end."""
    started: list[Claimant] = []

    def start(*args: Any, **kwargs: Any) -> Claimant:
        started.append(Claimant(*args, **kwargs))
        return started[-1]

    yield start
    for each in started:
        each.discard()


def source(ctx: hf.Context, **options: object) -> hf.Source:
    return ctx.source("quotes", options={**SOURCE, **options})


@pytest.mark.parametrize(
    ("options", "named"), [({"ume_session_id": 0x2A}, "0x2a"), ({"ume_store_name": ["a:77"]}, "RegID 77")]
)
def test_the_second_of_two_live_sources_is_refused(
    run_store: Callable[..., ThreadStore], options: dict[str, object], named: str
) -> None:
    run_store("a")
    before = time.time()
    with hf.Context() as one, hf.Context() as two:
        first = source(one, **options)
        first.wait_registered(SHORT)
        for ctx in (one, two):
            events = Events()
            second = ctx.source("quotes", options={**SOURCE, **options}, on_event=events)
            with pytest.raises(hf.RegIdInUseError) as raised:
                second.wait_registered(SHORT)
            error = raised.value
            assert error.pid == os.getpid()
            assert before - 1 < error.since <= time.time()
            assert error.registration_id == first.registration_ids["a"]
            told = events.wait("RegistrationError")
            assert named in told.text
            assert "is in use by a different source at store a" in told.text
            assert (told.pid, told.since) == (error.pid, pytest.approx(error.since))
            if "session" in str(options):
                assert "0x2a" in str(error)
            second.close()
        first.send(b"undisturbed")
        first.wait_stable(timeout=SHORT)


@pytest.mark.parametrize("options", [{"ume_session_id": 0x2A}, {"ume_registration_extended_function": lambda _: 300}])
def test_the_second_of_two_live_receivers_is_refused(
    run_store: Callable[..., ThreadStore], options: dict[str, object]
) -> None:
    run_store("a")
    before = time.time()
    with hf.Context() as one, hf.Context() as two:
        src = source(one)
        src.wait_registered(SHORT)
        first, events = one.receiver("quotes", options=options), Events()
        src.send(b"x")
        assert first.receive(timeout=SHORT) is not None
        for ctx in (one, two):
            events = Events()
            second = ctx.receiver("quotes", options=options, on_event=events)
            with pytest.raises(hf.RegIdInUseError) as raised:
                second.receive(timeout=SHORT)
            assert raised.value.pid == os.getpid()
            assert before - 1 < raised.value.since <= time.time()
            assert "is in use by a different receiver at store a" in events.wait("RegistrationError").text
            second.close()
        src.send(b"undisturbed")
        message = first.receive(timeout=SHORT)
        assert message is not None
        assert bytes(message) == b"undisturbed"


@pytest.mark.parametrize("form", ["receive", "receive_batch"])
def test_what_a_store_refused_before_the_call_is_not_believed_by_a_call_that_waits(
    run_store: Callable[..., ThreadStore], form: str
) -> None:
    """The holder has closed since. A call that does not wait tells what is known."""
    run_store("a")
    step = {"operational_mode": "sequential"}
    with hf.Context() as one, hf.Context(options=step) as two:
        src = source(one)
        src.wait_registered(SHORT)
        src.send(b"x")
        first = one.receiver("quotes", options={"ume_session_id": 0x2A})
        assert first.receive(timeout=SHORT) is not None, "and it is not consumed"
        events = Events()
        second = two.receiver("quotes", options={"ume_session_id": 0x2A}, on_event=events)
        until("it is refused", lambda: events.of("RegistrationError"), lambda: two.poll(0))
        first.close()
        with pytest.raises(hf.RegIdInUseError):
            getattr(second, form)(timeout=0)
        assert getattr(second, form)(timeout=SHORT) is not None


@pytest.mark.parametrize("role", ["source", "receiver"])
def test_of_many_processes_that_claim_at_once_one_is_granted_and_the_next_when_it_dies(
    run_store: Callable[..., ThreadStore], claim: Callable[..., Claimant], role: str
) -> None:
    run_store("a")
    with hf.Context() as ctx:
        if role == "receiver":
            source(ctx).wait_registered(SHORT)
        options = {"ume_store_name": ["a"], "ring_size": 1 << 17} if role == "source" else {}
        waiting = [claim(role, session=0x2A, **options) for _ in range(5)]
        while waiting:
            until("one is granted", lambda: any(each.granted for each in waiting))
            until("the others are refused", lambda: all(each.granted or each.refused for each in waiting))
            winners = [each for each in waiting if each.granted]
            assert len(winners) == 1
            (winner,) = winners
            waiting.remove(winner)
            for each in waiting:
                until("they name the holder", lambda: f" {winner.process.pid} " in each.said[-1])  # noqa: B023
                assert "session ID 0x2a" in each.said[-1]
                assert float(each.said[-1].split()[2]) > 1e9
            if len(waiting) % 2:
                winner.kill()
            else:
                winner.close()


@pytest.mark.parametrize("role", ["source", "receiver"])
def test_a_killed_owner_is_replaced_at_once_though_its_child_keeps_the_socket_open(
    run_store: Callable[..., ThreadStore], claim: Callable[..., Claimant], role: str
) -> None:
    run_store("a")
    with hf.Context() as ctx:
        if role == "receiver":
            source(ctx).wait_registered(SHORT)
        options = {"ume_store_name": ["a"], "ring_size": 1 << 17} if role == "source" else {}
        first = claim(role, session=0x2A, fork=True, **options)
        child = int(first.expect("forked")[1])
        number = first.said[0]
        try:
            first.kill()
            second = claim(role, session=0x2A, **options)
            second.expect("granted")
            assert second.said == [number], "granted with the old number, and never refused"
            os.kill(child, 0)
        finally:
            os.kill(child, signal.SIGKILL)


def test_a_stopped_owner_is_alive(run_store: Callable[..., ThreadStore], claim: Callable[..., Claimant]) -> None:
    run_store("a", **{"source-activity-timeout": 10, "source-state-lifetime": 10, "source-check-interval": 5})
    first = claim(session=0x2A, ume_store_name=["a"], ring_size=1 << 17)
    first.expect("granted")
    first.process.send_signal(signal.SIGSTOP)
    second = claim(session=0x2A, ume_store_name=["a"], ring_size=1 << 17)
    assert int(second.expect("refused")[1]) == first.process.pid
    first.kill()
    second.expect("granted")


def test_claimants_of_three_stores_do_not_block_each_other(run_store: Callable[..., ThreadStore]) -> None:
    for name in "abc":
        run_store(name)
    contexts = [hf.Context(session_id=0x2A) for _ in range(4)]
    try:
        sources = [ctx.source("quotes", options=THREE) for ctx in contexts]

        def registered() -> list[hf.Source]:
            return [each for each in sources if len(each.registration_ids) == 3 and may_send(each)]

        until("one has all three stores", lambda: registered())
        assert len(registered()) == 1
        winner = registered()[0]
        winner.send(b"x")
        winner.wait_stable(timeout=SHORT)
        winner.close()
        sources.remove(winner)
        until("the next one has all three stores", lambda: registered())
        assert len(registered()) == 1
        assert registered()[0].next_sequence_number == 1
    finally:
        for ctx in contexts:
            ctx.close()


def may_send(src: hf.Source) -> bool:
    try:
        src.wait_registered(0)
    except hf.Error:
        return False
    return True


def test_a_claimant_does_not_get_the_line_of_a_receiver_whose_store_was_away(
    run_store: Callable[..., ThreadStore], claim: Callable[..., Claimant]
) -> None:
    store = run_store("a")
    with hf.Context() as ctx:
        src = source(ctx)
        src.wait_registered(SHORT)
        holder = claim("receiver", session=0x2A)
        holder.expect("granted")
        until("it is on the board", lambda: len(lines_of(store, lib.HF_ROLE_RECEIVER)) == 1)
        holder.process.send_signal(signal.SIGSTOP)
        store.stop()
        store = run_store("a")
        src.wait_registered(SHORT)
        second = claim("receiver", session=0x2A)
        assert int(second.expect("refused")[1]) == holder.process.pid
        holder.kill()
        second.expect("granted")


def test_a_claimant_of_the_same_process_does_not_get_that_line_either(
    run_store: Callable[..., ThreadStore],
) -> None:
    store = run_store("a")
    with (
        hf.Context() as ctx, hf.Context(session_id=0x2A, options={"operational_mode": "sequential"}) as one,
        hf.Context(session_id=0x2A) as two,
    ):  # fmt: skip
        src = source(ctx)
        src.wait_registered(SHORT)
        events, refused = Events(), Events()
        rcv = one.receiver("quotes", on_event=events)
        until("it is registered", lambda: events.of("RegistrationComplete"), lambda: one.poll(0.01))
        store.stop()
        until("the source has noticed", lambda: src.stats().stores["a"].state == "down")
        run_store("a")
        src.wait_registered(SHORT)
        two.receiver("quotes", on_event=refused)
        assert refused.wait("RegistrationError").pid == os.getpid()
        until("it registers again", lambda: len(events.of("RegistrationSuccess")) == 2, lambda: one.poll(0.01))
        src.send(b"x")
        assert rcv.receive(timeout=SHORT) is not None
        assert refused.of("RegistrationSuccess") == []


def lines_of(store: ThreadStore, role: int) -> list[bytes]:
    """Participants of this role that are on the board of the one source that the store keeps."""
    (repository,) = store.store.drainer.repositories.values()

    def look() -> list[bytes]:
        lines = [view.line for view in repository.line.views()]
        return [bytes(line.uuid) for line in lines if line.role == role and line.state == lib.HF_LINE_ACTIVE]

    return store.store.drainer.call(look)


@pytest.mark.parametrize("options", [SOURCE, THREE])
def test_what_was_refused_before_the_holder_closed_is_not_raised_after(
    run_store: Callable[..., ThreadStore], options: dict[str, object]
) -> None:
    for name in "abc" if options is THREE else "a":
        run_store(name)
    with hf.Context(session_id=0x2A) as one, hf.Context(session_id=0x2A) as two:
        first = one.source("quotes", options=options)
        first.wait_registered(SHORT)
        events = Events()
        second = two.source("quotes", options=options, on_event=events)
        events.wait("RegistrationError")
        with pytest.raises(hf.RegistrationTimeout, match=r"refuses: .* is in use by a different source"):
            second.wait_registered(0)  # nothing was asked since the call
        first.close()
        second.wait_registered(SHORT)


def test_a_begin_sees_what_became_stable_until_the_holder_was_gone(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two have opened on grants of different times. The store looks who holds the source first, and how far
    its log goes after that: between the two, the owner sends, has it stable, and closes."""
    store = run_store("a", "disk").store
    with hf.Context() as ctx:
        src = ctx.source("quotes", options={"ume_store_name": ["a"], "ring_size": 1 << 17})
        src.wait_registered(SHORT)
        (known,) = store.state.sources
        config = stream_config(known.uuid, "quotes", 0, src._session.options)
        config.ring_bytes, config.start_sqn = 1 << 17, 0
        ring = SourceRing.make(store.domain, store.bells, config, 2)
        ours, theirs = socket.socketpair()
        other = Client(ours, os.getpid())
        other.hello = wire.Hello(
            wire.PROTOCOL, lib.hf_process_token(), os.getpid(), lib.hf_process_start(os.getpid()), 0
        )
        holder = store.sources.holder

        def at_last(kept: SourceState, but: Client | None = None) -> Held | None:
            src.send(b"precious")
            src.wait_stable(timeout=SHORT)
            src.close()
            return holder(kept, but)

        with monkeypatch.context() as patch:
            patch.setattr(store.sources, "holder", at_last)
            answer = store.sources.begin(other, wire.Begin(1, known.uuid, 2, 0, ring.name, ["a"], claimant=b"c" * 16))
        assert isinstance(answer, wire.Refused)
        assert "built without 1, which has messages" in answer.text
        assert known.incarnation == 1
        for end in (ours, theirs):
            end.close()
        lib.hf_source_close(ring.handle)
        ring.board.close()
