"""A receiver that takes no messages: what it acknowledges, what stat and the stores see of it, and who takes
its session over."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any, cast

import pytest
from support.receiving import SESSION, Told, send, source, take, until
from support.three_stores import everywhere

import holdfast as hf
from holdfast.engine.events import receiver as events
from holdfast.engine.memory.domain import Domain
from holdfast.engine.receiver.ack_only import AckOnlyReceiver
from holdfast.engine.tools import snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from process.conftest import ThreadStore

HOLDER = """
import sys, time, holdfast as hf
from holdfast.engine.receiver.ack_only import AckOnlyReceiver
ctx = hf.Context(session_id=int(sys.argv[1]))
rcv = AckOnlyReceiver(ctx, "quotes")
for line in sys.stdin:
    if line.strip():
        rcv.acknowledge_below(bytes.fromhex(sys.argv[2]), int(line))
    while not rcv.acknowledged(): time.sleep(0.002)
    print(max(rcv.acknowledged().values()), flush=True)
"""


def rows(topic: str = "quotes") -> list[snapshot.ReceiverRow]:
    domain = Domain(None, join=False)
    try:
        return [row for row in snapshot.take(domain).receivers if row.topic == topic]
    finally:
        domain.close()


def uuid_of(src: hf.Source) -> bytes:
    return src._session.machine.uuid


def acked(rcv: AckOnlyReceiver, src: hf.Source) -> int:
    return rcv.acknowledged().get(uuid_of(src), -1)


@pytest.fixture
def store(run_store: Callable[..., ThreadStore]) -> ThreadStore:
    return run_store()


@pytest.fixture
def session() -> Iterator[Callable[..., AckOnlyReceiver]]:
    """Makes ack-only receivers, each in a context of its own; closed at the end."""
    made: list[hf.Context] = []

    def make(topic: str | None = "quotes", **more: Any) -> AckOnlyReceiver:
        made.append(hf.Context(session_id=SESSION, name=more.pop("name", "query")))
        return AckOnlyReceiver(made[-1], topic, **more)

    yield make
    for ctx in made:
        ctx.close()


def test_it_acknowledges_what_is_said_and_the_next_life_goes_on_there(
    store: ThreadStore, session: Callable[..., AckOnlyReceiver]
) -> None:
    with hf.Context() as ctx:
        src = source(ctx, 10)
        rcv = session()
        until("registered", lambda: acked(rcv, src) == 0)
        rcv.acknowledge_below(uuid_of(src), 4)
        assert acked(rcv, src) == 4
        rcv.acknowledge_below(uuid_of(src), 4)
        rcv.acknowledge_below(uuid_of(src), 2)
        assert acked(rcv, src) == 4, "never back"
        (row,) = rows()
        assert (row.ack, row.lag, row.delivered, row.session_id, row.name, row.alive) == (
            3,
            6,
            0,
            SESSION,
            "query",
            True,
        )
        cast("hf.Context", rcv.context).close()
        with hf.Context(session_id=SESSION) as ordinary:
            assert take(ordinary.receiver("quotes"), 2) == [4, 5]


def test_nothing_is_acknowledged_by_registering(store: ThreadStore, session: Callable[..., AckOnlyReceiver]) -> None:
    """Neither late join nor a maximum of retransmissions moves it: those say what is delivered, and nothing
    is."""
    with hf.Context() as ctx:
        src = source(ctx, 10, late_join=0)
        told = Told()
        rcv = session(on_event=told)
        assert told.wait(events.RegistrationComplete).sequence_number == 0
        send(src, 5)
        until("registered", lambda: acked(rcv, src) == 0)
        assert rows()[0].lag == 15


def test_what_is_not_published_is_acknowledged_when_it_is(
    store: ThreadStore, session: Callable[..., AckOnlyReceiver]
) -> None:
    with hf.Context() as ctx:
        src = source(ctx, 3)
        rcv = session()
        rcv.acknowledge_below(uuid_of(src), 5)
        until("registered", lambda: acked(rcv, src) == 3)
        send(src, 4)
        until("as far as was said", lambda: acked(rcv, src) == 5)


def test_it_keeps_no_message_back_and_reads_none(store: ThreadStore, session: Callable[..., AckOnlyReceiver]) -> None:
    with hf.Context() as ctx:
        src = source(ctx, 0, ring_size=1 << 16, retransmit_retention_size_limit=1 << 15, ume_flight_size=64)
        rcv = session()
        until("registered", lambda: acked(rcv, src) == 0)
        send(src, 5000)  # many times the ring
        assert [controller.feed for controller in rcv.controllers] == [None]
        assert rows()[0].lapped == 0


@pytest.mark.parametrize("kept", ["live", "closed", "dead store"])
def test_it_registers_with_a_source_that_is_gone(
    run_store: Callable[..., ThreadStore], session: Callable[..., AckOnlyReceiver], kept: str
) -> None:
    store = run_store(kind="disk")
    with hf.Context() as ctx:
        src = source(ctx, 6)
        uuid = uuid_of(src)
        if kept != "live":
            src.close()
        rcv = session()
        if kept == "dead store":
            store.stop()
        rcv.acknowledge_below(uuid, 5)
        if kept == "dead store":
            run_store(kind="disk")
        until("acknowledged", lambda: rcv.acknowledged().get(uuid) == 5)


def test_a_quorum_of_the_stores_will_do_and_the_others_learn_it(
    run_store: Callable[..., ThreadStore], session: Callable[..., AckOnlyReceiver]
) -> None:
    stores = {name: run_store(name, kind="disk") for name in "abc"}
    with hf.Context() as ctx:
        src = ctx.source("quotes", options={"ume_store_name": list("abc")})
        everywhere(src)
        send(src, 6)
        stores["c"].stop()
        rcv = session()
        rcv.acknowledge_below(uuid_of(src), 4)
        until("acknowledged", lambda: acked(rcv, src) == 4)
        stores["c"] = run_store("c", kind="disk")
        rcv.acknowledge_below(uuid_of(src), 5)

        def kept() -> list[int]:
            return [each.ack for name in "abc" for each in stores[name].store.state.sources[0].receivers]

        until("in the state of each", lambda: kept() == [5, 5, 5])


def test_a_new_incarnation_of_the_source_is_acknowledged_in_full(
    store: ThreadStore, session: Callable[..., AckOnlyReceiver]
) -> None:
    """Under the old one the stores would cut it off where the new one begins."""
    with hf.Context(session_id=9) as ctx:
        src = source(ctx, 6)
        rcv = session()
        until("registered", lambda: acked(rcv, src) == 0)
        rcv.acknowledge_below(uuid_of(src), 6)
        src.close()
        again = source(ctx, 6)
        assert uuid_of(again) == uuid_of(src)
        rcv.acknowledge_below(uuid_of(src), 11)
        until("seen as the new one's", lambda: [row.ack for row in rows()] == [10])
        until("kept by the store", lambda: store.store.state.sources[0].receivers[0].ack == 11)


def test_an_old_acknowledgement_is_cut_by_every_begin_since(
    store: ThreadStore, session: Callable[..., AckOnlyReceiver], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest began at 12, but the one before it at 2: what was 2..4 when it was acknowledged is not what
    they are now."""
    with hf.Context() as ctx:
        src = source(ctx, 20)
        rcv = session()
        rcv.acknowledge_below(uuid_of(src), 5)
        until("registered", lambda: acked(rcv, src) == 5)
        (controller,) = rcv.controllers
        with rcv.context.turning():
            monkeypatch.setattr(controller.registrar, "table", lambda: ((1, 0), (2, 2), (3, 12)))
            monkeypatch.setattr(controller, "_begun", (3, 12))
            controller._rebase()
            assert acked(rcv, src) == 2


def test_several_topics_by_a_pattern(store: ThreadStore, session: Callable[..., AckOnlyReceiver]) -> None:
    with hf.Context() as ctx:
        sources = [source(ctx, 2, topic) for topic in ("quotes", "orders", "quotes-eu")]
        rcv = session(None, pattern=r"\A(?:quotes|orders)\Z")
        until("both", lambda: set(rcv.acknowledged()) == {uuid_of(src) for src in sources[:2]})
        later = source(ctx, 3, "orders")
        rcv.acknowledge_below(uuid_of(later), 3)
        until("one more", lambda: acked(rcv, later) == 3)


@pytest.mark.parametrize("kept", ["live", "closed"])
def test_only_chosen_sources(store: ThreadStore, session: Callable[..., AckOnlyReceiver], kept: str) -> None:
    """Others have no receiver of this session, so that another one can be theirs; also those found before
    they are chosen."""
    with hf.Context() as ctx:
        first, second, third = (source(ctx, 2) for _ in range(3))
        if kept == "closed":
            for src in (first, second, third):
                src.close()
        rcv = session(chosen=[uuid_of(first)])
        until("the first", lambda: set(rcv.acknowledged()) == {uuid_of(first)})
        rcv.choose([uuid_of(third)])
        until("the third", lambda: set(rcv.acknowledged()) == {uuid_of(first), uuid_of(third)})
        assert len(rows()) == 2


def holder(uuid: bytes) -> subprocess.Popen[str]:
    """Another process that holds the session; it has registered."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(SESSION), uuid.hex()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    said = ask(process, "3")
    if said != 3:
        process.kill()
        process.communicate()
    assert said == 3
    return process


def ask(process: subprocess.Popen[str], line: str) -> int:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()
    return int(process.stdout.readline())


def test_a_session_that_is_held_is_refused_with_its_holder(
    store: ThreadStore, session: Callable[..., AckOnlyReceiver]
) -> None:
    with hf.Context() as ctx:
        src = source(ctx, 8)
        process = holder(uuid_of(src))
        try:
            rcv = session()
            rcv.acknowledge_below(uuid_of(src), 8)
            until("refused", lambda: rcv.refusal([uuid_of(src)]))
            error = rcv.refusal([uuid_of(src)])
            assert isinstance(error, hf.RegIdInUseError)
            assert str(process.pid) in str(error)
            assert error.pid == process.pid
            assert rcv.acknowledged() == {}
            assert [row.ack for row in rows()] == [2], "nothing of what it said counts"
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            until("taken over from the dead", lambda: acked(rcv, src) == 8)
            assert rcv.refusal([uuid_of(src)]) is None
        finally:
            process.kill()
            process.communicate()


def test_it_says_what_cannot_be(store: ThreadStore, session: Callable[..., AckOnlyReceiver]) -> None:
    rcv = session()
    for number in (-1, 2**63):
        with pytest.raises(hf.UsageError, match="sequence number"):
            rcv.acknowledge_below(bytes(16), number)
    rcv.close()
    assert rcv.acknowledged() == {}
    with pytest.raises(hf.UsageError, match="closed"):
        rcv.acknowledge_below(bytes(16), 1)


def test_a_deregistered_source_is_let_go(store: ThreadStore, session: Callable[..., AckOnlyReceiver]) -> None:
    with hf.Context() as ctx:
        src = source(ctx, 3)
        rcv = session()
        until("registered", lambda: acked(rcv, src) == 0)
        src.deregister()
        src.close()
        until("gone", lambda: not rcv.acknowledged())
        rcv.acknowledge_below(uuid_of(src), 3)  # has no effect any more
        assert rcv.acknowledged() == {}
