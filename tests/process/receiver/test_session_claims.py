"""One receiver of a session at a time, also where no store has its registration
(engine/control/session_claims.py)."""

from __future__ import annotations

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
from holdfast.engine.control import session_claims
from holdfast.engine.control.waits import waiting
from holdfast.engine.events import receiver as events
from holdfast.engine.receiver.ack_only import AckOnlyReceiver
from holdfast.engine.tools import gc

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from process.conftest import ThreadStore

__all__ = ["at_once", "ctx"]  # fixtures

SHORT = 90.0
OTHER = """
import sys, time, holdfast as hf
ctx = hf.Context(session_id=int(sys.argv[1]))
rcv = ctx.receiver("quotes")
while not rcv._claims._held:
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
    return bool(rcv._claims._held)


def refused(rcv: hf.Receiver) -> hf.RegIdInUseError:
    until("it is refused", lambda: rcv._claims.denied)
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
    assert wait.why.startswith(f"session ID {SESSION:#x} is in use by a different receiver of topic 'quotes' (pid ")
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
    assert event.text.startswith(f"session ID {SESSION:#x} is in use by a different receiver of topic 'quotes' (pid ")
    assert all("is in use by a different receiver at store a" in each.text for each in others), "when it was back"
    first.context.close()  # type: ignore[attr-defined]
    until("it has the session", lambda: has(second) and not second._claims.denied)
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


def test_what_the_dead_have_claimed_is_swept(
    run_store: Callable[..., ThreadStore], ctx: hf.Context, request: pytest.FixtureRequest
) -> None:
    all_over(ctx, [run_store("a", "disk")])
    other = request.getfixturevalue("other")
    path = ctx.domain.path / "sessions" / f"{SESSION:016x}.json"

    def seen() -> list[gc.Item]:
        return [item for item in gc.sweep(ctx.domain, dry_run=False) if item.kind == "session"]

    assert (seen(), path.exists()) == ([], True)
    other.kill()
    other.wait()
    (item,) = seen()
    assert (item.path, item.remove, path.exists()) == (str(path), True, False)


@pytest.mark.parametrize("end", ["close", "deregister"])
def test_one_that_is_closed_or_deregistered_makes_room(
    run_store: Callable[..., ThreadStore], ctx: hf.Context, session: Callable[..., hf.Receiver], end: str
) -> None:
    all_over(ctx, [run_store("a", "disk")], 1)
    first = session()
    assert take(first, 3) == [0, 1, 2]
    path = ctx.domain.path / "sessions" / f"{SESSION:016x}.json"
    assert path.exists()
    (first.close if end == "close" else first.deregister)()
    assert not path.exists()
    second = session()
    until("it is let in", lambda: has(second))


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


def test_a_pattern_is_refused_the_topics_that_another_one_has(
    run_store: Callable[..., ThreadStore], ctx: hf.Context, session: Callable[..., hf.Receiver]
) -> None:
    all_over(ctx, [run_store("a", "disk")], 1)
    first = session()
    assert take(first, 3) == [0, 1, 2]
    told = Told()
    second = first.context.receiver(pattern=".", on_event=told)  # type: ignore[attr-defined]
    until("it is refused", lambda: second._claims.denied)
    with ctx.source("orders", options=options()) as src:
        everywhere(src)
        send(src, 1)
        until("it has the other topic", lambda: second.controllers)
        assert take(second, 1) == [0]
    assert len(told.of(events.RegistrationError)) == 1


def test_where_no_claim_can_be_written_the_stores_decide(
    run_store: Callable[..., ThreadStore], ctx: hf.Context, session: Callable[..., hf.Receiver],
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """Nobody waits for a disk that has no room for a file that is there to keep others out."""
    all_over(ctx, [run_store("a", "disk")])

    def full(*_: object) -> NoReturn:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(session_claims.SessionClaims, "_write", full)
        patch.setattr(session_claims, "NO_ROOM_NS", 0)
        rcv = session()
        assert len(take(rcv, 9)) == 9
        assert not has(rcv)
    assert caplog.text.count("a second receiver may be let in") == 1
    with ctx.source("quotes", options=options(ume_session_id=7)) as src:
        everywhere(src)
        send(src, 1)
        assert take(rcv, 1) == [0]
    until("it is claimed when there is room", lambda: has(rcv))


def test_receivers_of_single_sources_share_a_topic_and_no_source(
    run_store: Callable[..., ThreadStore], ctx: hf.Context, ack_only: Callable[..., AckOnlyReceiver]
) -> None:
    """Also of sources of which everything is acknowledged, so that none is registered with."""
    uuids = all_over(ctx, [run_store("a", "disk")])
    before = ack_only()
    for uuid in uuids:
        before.acknowledge_below(uuid, 3)
    until("all is acknowledged", lambda: before.acknowledged() == dict.fromkeys(uuids, 3) and not before._all)
    before.context.close()  # type: ignore[attr-defined]
    first = ack_only(chosen=uuids[:1], alone=False)
    until("it has its position", lambda: first.acknowledged() == {uuids[0]: 3})
    second = ack_only(chosen=uuids[1:2], alone=False)
    until("so has this one", lambda: second.acknowledged() == {uuids[1]: 3})
    assert second.refusal(uuids[1:2]) is None
    second.choose(uuids[:2])
    until("it is refused", lambda: isinstance(second.refusal(uuids), hf.RegIdInUseError))
    assert second.acknowledged() == {uuids[1]: 3}
    second.choose(uuids)
    assert second.acknowledged() == {uuids[1]: 3}
    first.context.close()  # type: ignore[attr-defined]
    until("it has all", lambda: second.acknowledged() == dict.fromkeys(uuids, 3))
    assert second.refusal(uuids) is None


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


@pytest.mark.parametrize("said", [b"", b"no claims", b'[{"pid": -1}]'])
def test_a_file_that_nobody_can_read_keeps_nobody_out(
    run_store: Callable[..., ThreadStore], ctx: hf.Context, session: Callable[..., hf.Receiver], said: bytes
) -> None:
    all_over(ctx, [run_store("a", "disk")], 1)
    path = ctx.domain.path / "sessions" / f"{SESSION:016x}.json"
    path.parent.mkdir()
    path.write_bytes(said)
    rcv = session()
    assert take(rcv, 3) == [0, 1, 2]
    assert has(rcv)
