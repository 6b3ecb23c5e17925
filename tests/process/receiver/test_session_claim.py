"""One receiver of a session at a time, also where no store has its registration
(engine/control/session_claim.py)."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
from process.receiver.test_visits import all_over, at_once, ctx
from support.receiving import SESSION, Told, options, send, take, until
from support.three_stores import everywhere

import holdfast as hf
from holdfast.engine.control import session_claim
from holdfast.engine.control.session_claim import SessionClaim
from holdfast.engine.control.waits import waiting
from holdfast.engine.events import receiver as events
from holdfast.engine.receiver.ack_only import AckOnlyReceiver

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from process.conftest import ThreadStore

__all__ = ["at_once", "ctx"]  # fixtures

SHORT = 90.0
OTHER = """
import sys, time, holdfast as hf
ctx = hf.Context(session_id=int(sys.argv[1]))
rcv = ctx.receiver("quotes")
while not rcv._claim._held:
    time.sleep(0.002)
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def session(own_domain: str) -> Iterator[Callable[..., hf.Receiver]]:
    """Makes receivers with the session, each in a context of its own; closed at the end."""
    made: list[hf.Context] = []

    def make(topic: str = "quotes", **more: Any) -> hf.Receiver:
        made.append(hf.Context(session_id=SESSION))
        return made[-1].receiver(topic, **more)

    yield make
    for each in made:
        each.close()


@pytest.fixture
def ack_only(own_domain: str) -> Iterator[Callable[..., AckOnlyReceiver]]:
    made: list[hf.Context] = []

    def make(**more: Any) -> AckOnlyReceiver:
        made.append(hf.Context(session_id=SESSION))
        return AckOnlyReceiver(made[-1], "quotes", **more)

    yield make
    for each in made:
        each.close()


@pytest.fixture
def other(own_domain: str) -> Iterator[subprocess.Popen[str]]:
    """Another process with a receiver that has claimed the session."""
    command = [sys.executable, "-c", OTHER, str(SESSION)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def has(rcv: hf.Receiver | AckOnlyReceiver) -> bool:
    return rcv._claim._held


def refused(rcv: hf.Receiver) -> hf.RegIdInUseError:
    until("it is refused", lambda: rcv._claim.denied)
    with pytest.raises(hf.RegIdInUseError) as told:
        rcv.receive(SHORT)
    return told.value


def test_a_second_receiver_is_refused_where_the_first_has_read_everything(
    run_store: Callable[..., ThreadStore], ctx: hf.Context, session: Callable[..., hf.Receiver]
) -> None:
    """Nobody is registered with anything. The source comes back to the one that has the session; what has
    become of the store meanwhile does not matter."""
    store = run_store("a", "disk")
    (uuid,) = all_over(ctx, [store], 1)
    first = session()
    assert take(first, 3) == [0, 1, 2]
    until("it has left", lambda: first.receive(0.05) is None and not first._all)
    told = Told()
    second = session(on_event=told)
    error = refused(second)
    (wait,) = waiting(ctx.domain)
    assert (wait.topic, wait.session_id, wait.pid) == ("quotes", SESSION, os.getpid())
    assert wait.why.startswith(f"session ID {SESSION:#x} is in use by a different receiver of 'quotes' (pid ")
    assert (error.pid, error.session_id, error.retriable) == (os.getpid(), SESSION, True)
    assert str(error).startswith(f"HF_REGID_IN_USE: session id {SESSION:#x} is held by process {os.getpid()} since")
    assert "granted as soon as that process is dead" in str(error)
    store.stop()
    store = run_store("a", "disk")
    until("it is linked", lambda: all(link.up for link in second.context.store_links()))
    with ctx.source("quotes", options=options(ume_session_id=1)) as src:
        everywhere(src)
        send(src, 2)
        assert src.uuid == uuid
        assert take(first, 2) == [3, 4]
        assert refused(second).pid == os.getpid()
    event, *others = told.of(events.RegistrationError)
    assert (event.topic, event.pid) == ("quotes", os.getpid())
    assert event.text.startswith(f"session ID {SESSION:#x} is in use by a different receiver of 'quotes' (pid ")
    assert all("is in use by a different receiver" in each.text for each in others), "when it was back"
    first.context.close()  # type: ignore[attr-defined]
    until("it has the session", lambda: has(second) and not second._claim.denied)
    until("nobody waits any more", lambda: waiting(ctx.domain) == [])
    with ctx.source("quotes", options=options(ume_session_id=1)) as src:
        everywhere(src)
        send(src, 1)
        assert take(second, 1) == [5]
    assert not told.of(events.NoSource)


def test_one_that_is_killed_has_nothing_any_more(
    run_store: Callable[..., ThreadStore], ctx: hf.Context, session: Callable[..., hf.Receiver],
    request: pytest.FixtureRequest,
) -> None:  # fmt: skip
    all_over(ctx, [run_store("a", "disk")])
    other = request.getfixturevalue("other")
    rcv = session()
    assert refused(rcv).pid == other.pid
    other.kill()
    other.wait()
    assert len(take(rcv, 1)) == 1
    assert has(rcv)


@pytest.mark.parametrize("end", ["close", "deregister"])
def test_one_that_is_closed_or_deregistered_makes_room(
    run_store: Callable[..., ThreadStore], ctx: hf.Context, session: Callable[..., hf.Receiver], end: str
) -> None:
    all_over(ctx, [run_store("a", "disk")], 1)
    first = session()
    assert take(first, 3) == [0, 1, 2]
    assert has(first)
    (first.close if end == "close" else first.deregister)()
    second = session()
    until("it is let in", lambda: has(second))


def test_one_that_has_left_by_its_own_rule_has_its_session_still(
    run_store: Callable[..., ThreadStore], ctx: hf.Context, session: Callable[..., hf.Receiver]
) -> None:
    """No store has told it of a source that is over."""
    run_store("a", "disk")
    first = session()
    with ctx.source("quotes", options=options(ume_session_id=1)) as src:
        everywhere(src)
        send(src, 3)
        assert take(first, 3) == [0, 1, 2]
    assert has(first)
    until("it has left", lambda: first.receive(0.05) is None and not first._all)
    assert refused(session()).pid == os.getpid()


def test_who_is_refused_is_registered_with_nothing_and_gathers_nothing(
    run_store: Callable[..., ThreadStore], ctx: hf.Context, session: Callable[..., hf.Receiver]
) -> None:
    """Not with sources that the other one is not registered with. What a store granted before is let go."""
    run_store("a", "disk")
    other = SessionClaim(ctx.domain, ctx.waits, SESSION, "quotes", lambda _: None)
    assert other.hold()
    told = Told()
    rcv = session(on_event=told)
    for number in range(3):
        with ctx.source("quotes", options=options(ume_session_id=number + 1)) as src:
            everywhere(src)
            send(src, 1)
            assert refused(rcv).session_id == SESSION
    until("it has left it to the other", lambda: not rcv._all)
    assert [event.store for event in told.of(events.RegistrationError)] == [""]
    other.close()
    assert take(rcv, 3) == [0, 0, 0]


@pytest.mark.parametrize("kind", ["receive", "acknowledge"])
def test_one_that_polls_is_let_in_as_well(
    run_store: Callable[..., ThreadStore], ctx: hf.Context, session: Callable[..., hf.Receiver],
    ack_only: Callable[..., AckOnlyReceiver], kind: str,
) -> None:  # fmt: skip
    """What its polling finds out is no less than what its context does."""
    uuids = all_over(ctx, [run_store("a", "disk")])
    first = session()
    until("it has the session", lambda: has(first))
    if kind == "receive":
        rcv = session()
        until("it is refused", lambda: rcv._claim.denied)
        first.close()
        got: list[int] = []

        def all_came() -> bool:
            with contextlib.suppress(hf.RegIdInUseError):
                message = rcv.receive(0.01)
                if message is not None:
                    got.append(message.sequence_number)
                    message.release()
            return len(got) == 9

        until("all has come", all_came)
    else:
        asking = ack_only()
        until("it is refused", lambda: isinstance(asking.refusal(uuids), hf.RegIdInUseError))
        first.close()
        until(
            "it has its positions", lambda: asking.refusal(uuids) is None and len(asking.acknowledged()) == len(uuids)
        )


def test_a_fenced_receiver_has_nothing_any_more(
    run_store: Callable[..., ThreadStore], ctx: hf.Context, session: Callable[..., hf.Receiver]
) -> None:
    """Stores take its process for dead."""
    all_over(ctx, [run_store("a", "disk")], 1)
    first, second = session(), session()
    until("one is refused", lambda: first._claim.denied or second._claim.denied)
    fenced, other = (first, second) if has(first) else (second, first)
    with fenced.context.turning():
        fenced.fenced(hf.FencedError("its lock file was removed"))
    until("the other one is let in", lambda: has(other))


def test_topics_and_sessions_are_apart_and_so_are_receivers_without_stores(
    run_store: Callable[..., ThreadStore], ctx: hf.Context, session: Callable[..., hf.Receiver]
) -> None:
    all_over(ctx, [run_store("a", "disk")], 1)
    first = session()
    assert take(first, 3) == [0, 1, 2]
    with hf.Context(session_id=SESSION + 1) as another:
        assert take(another.receiver("quotes"), 3) == [0, 1, 2]
    with ctx.source("ticks") as src:  # no stores
        both = [session("ticks"), session("ticks")]
        until("both are there", lambda: all(each.controllers for each in both))
        src.send(b"x")
        assert [take(each, 1) for each in both] == [[0], [0]]
        assert not any(has(each) for each in both)


def test_one_pattern_is_read_by_one_receiver_of_a_session(
    run_store: Callable[..., ThreadStore], ctx: hf.Context, session: Callable[..., hf.Receiver]
) -> None:
    all_over(ctx, [run_store("a", "disk")], 1)
    first = session(None, pattern="quo")
    assert take(first, 3) == [0, 1, 2]
    second = session(None, pattern="quo")
    assert refused(second).pid == os.getpid()
    third = session(None, pattern="tes")
    until("it has its own", lambda: has(third))


def test_where_nothing_can_be_claimed_the_stores_decide(
    run_store: Callable[..., ThreadStore], ctx: hf.Context, session: Callable[..., hf.Receiver],
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """Nobody waits for a file that is there to keep others out."""
    all_over(ctx, [run_store("a", "disk")])

    def full(*_: object) -> NoReturn:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patch:
        patch.setattr(session_claim, "_take", full)
        rcv = session()
        assert len(take(rcv, 9)) == 9
        assert not has(rcv)
    assert caplog.text.count("a second receiver may be let in") == 1
    with ctx.source("quotes", options=options(ume_session_id=7)) as src:
        everywhere(src)
        send(src, 1)
        assert take(rcv, 1) == [0]


def test_receivers_of_single_sources_share_a_topic(
    run_store: Callable[..., ThreadStore], ctx: hf.Context, ack_only: Callable[..., AckOnlyReceiver]
) -> None:
    """Each registers with its own."""
    uuids = all_over(ctx, [run_store("a", "disk")])
    both = [ack_only(chosen=uuids[:1], alone=False), ack_only(chosen=uuids[1:2], alone=False)]
    for rcv, uuid in zip(both, uuids, strict=False):
        rcv.acknowledge_below(uuid, 3)
        until("it has its position", lambda rcv=rcv, uuid=uuid: rcv.acknowledged().get(uuid) == 3)  # type: ignore[misc]
        assert rcv.refusal(uuids) is None


def test_a_second_one_that_only_acknowledges_is_refused_where_all_is_acknowledged(
    run_store: Callable[..., ThreadStore], ctx: hf.Context, ack_only: Callable[..., AckOnlyReceiver]
) -> None:
    uuids = all_over(ctx, [run_store("a", "disk")])
    first = ack_only(chosen=())
    first.choose(uuids)
    for uuid in uuids:
        first.acknowledge_below(uuid, 3)
    until("all is acknowledged", lambda: first.acknowledged() == dict.fromkeys(uuids, 3) and not first._all)
    second = ack_only(chosen=())
    second.choose(uuids)
    until("it is refused", lambda: isinstance(second.refusal(uuids), hf.RegIdInUseError))
    assert second.acknowledged() == {}
    first.context.close()  # type: ignore[attr-defined]
    until("it is let in", lambda: second.acknowledged() == dict.fromkeys(uuids, 3))
    assert second.refusal(uuids) is None
