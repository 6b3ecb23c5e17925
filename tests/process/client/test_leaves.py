"""What is closed holds nothing at its stores, whatever was on its way: the next object of its session is let
in, also in the same process, and while somebody still has the closed one."""

from __future__ import annotations

import errno
import threading
from typing import TYPE_CHECKING, Any

import pytest
from support.receiving import SHORT, options, source, until
from support.recorded_events import Events
from support.stalled_store import OPTIONS, Scene

import holdfast as hf
from holdfast.engine.client import process_role
from holdfast.engine.client.liveness_driver import LivenessDriver
from holdfast.engine.client.turn_loop import TurnLoop
from holdfast.engine.control.link import StoreLink
from holdfast.engine.control.session_claim import SessionClaim
from holdfast.engine.memory import nameless
from holdfast.engine.store.receivers import ReceiverDesk
from holdfast.engine.store.sources import SourceDesk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from process.conftest import ThreadStore

READER: dict[str, Any] = {"ume_session_id": 9}
NOBODY: dict[str, Any] = {"ume_registration_extended_function": lambda _: 4711}


@pytest.fixture
def ctx(run_store: Callable[..., ThreadStore]) -> Iterator[hf.Context]:
    """A source sends at store a."""
    run_store("a", "disk")
    with hf.Context(session_id=7) as made:
        source(made, 3)
        yield made


def registered(
    ctx: hf.Context, role: str, on_event: Callable[[object], object] | None = None
) -> hf.Source | hf.Receiver:
    """One that its store has let in: a source, or a receiver that has a message in hand."""
    if role == "source":
        src = ctx.source("others", options=options(ume_session_id=5), on_event=on_event)
        src.wait_registered(SHORT)
        return src
    rcv = ctx.receiver("quotes", options=READER, on_event=on_event)
    assert rcv.receive(timeout=SHORT) is not None
    return rcv


def is_let_in(ctx: hf.Context, given: dict[str, Any]) -> None:
    with ctx.receiver("quotes", options=given) as rcv:
        message = rcv.receive(timeout=SHORT)
        assert message is not None
        message.release()


@pytest.mark.parametrize(
    "callback",
    [
        "source_notification_function",
        "ume_registration_extended_function",
        "ume_recovery_sequence_number_info_function",
    ],
)
@pytest.mark.usefixtures("ctx")
def test_a_receiver_that_is_closed_in_its_own_callback(callback: str, caplog: pytest.LogCaptureFixture) -> None:
    made, closed = threading.Event(), threading.Event()
    receivers: list[hf.Receiver] = []

    def closes(_: object) -> int:
        assert made.wait(SHORT)
        receivers[0].close()
        closed.set()
        return 4711

    of_session = callback != "ume_registration_extended_function"
    deleted: list[object] = []
    of_pair = callback == "source_notification_function"
    given: dict[str, Any] = {
        callback: (closes, deleted.append) if of_pair else closes,
        **(READER if of_session else {}),
    }
    with hf.Context() as other:  # without a session of its own
        receivers.append(other.receiver("quotes", options=given))
        made.set()
        assert closed.wait(SHORT)
        is_let_in(other, READER if of_session else NOBODY)
    assert [getattr(info, "source_clientd", 0) for info in deleted] == [4711] * of_pair, (
        "what the program has made goes"
    )
    assert "failed in a turn" not in caplog.text


@pytest.mark.parametrize("role", ["source", "receiver"])
def test_what_a_store_could_not_forget(ctx: hf.Context, monkeypatch: pytest.MonkeyPatch, role: str) -> None:
    """Its disk was full, and the object is closed before it has room again."""

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    events = Events()
    kept = registered(ctx, role, events)
    with monkeypatch.context() as patch:
        for desk in (ReceiverDesk, SourceDesk):
            patch.setattr(desk, "forget", full)
        kept.deregister()
        events.wait("RegistrationError")
        kept.close()
    registered(ctx, role).close()


def test_a_source_whose_grant_comes_behind_its_close(tmp_path: Path, own_domain: str) -> None:
    with hf.Context(session_id=7) as ctx:
        scene = Scene(tmp_path, own_domain, ctx)
        try:
            scene.source().close()
            scene.stand_still()
            src = ctx.source("others", options=OPTIONS)
            until("it has asked", lambda: src._session.machine.entries[0].asked_ns)
            src.close(timeout=0)
            scene.go_on()
            until("all is answered", lambda: not src._session._links[0]._asked)
            with ctx.source("others", options=OPTIONS) as again:
                again.wait_registered(SHORT)
            src.close()
        finally:
            scene.store.discard()


def interrupted(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("role", ["source", "receiver"])
def test_whoever_interrupts_a_close_keeps_nothing(ctx: hf.Context, monkeypatch: pytest.MonkeyPatch, role: str) -> None:
    """A stopped store is waited for, and somebody presses Ctrl-C."""
    kept = registered(ctx, role)
    with monkeypatch.context() as patch:
        patch.setattr(StoreLink, "settle", interrupted)
        with pytest.raises(KeyboardInterrupt):
            kept.close()
    registered(ctx, role).close()


@pytest.mark.parametrize(
    "at",
    [
        (process_role, "dismiss"), (nameless, "say"), (SessionClaim, "close"), (StoreLink, "ask"),
        (TurnLoop, "join"), (LivenessDriver, "close"), (hf.Receiver, "not_receiving"),
    ],
    ids=lambda at: at[1],
)  # fmt: skip
def test_a_second_close_of_a_context_does_what_an_interrupted_one_has_not(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch, at: tuple[Any, str]
) -> None:
    """Somebody presses Ctrl-C before its stores were told."""
    run_store("a", "disk")
    ctx = hf.Context(session_id=7)
    src, rcv = source(ctx, 3), ctx.receiver("quotes", options=READER)
    assert rcv.receive(timeout=SHORT) is not None
    before, pressed = getattr(*at), list[int]()

    def interrupted_once(*given: Any, **how: Any) -> Any:
        if not pressed and threading.current_thread() is threading.main_thread():
            pressed.append(1)
            raise KeyboardInterrupt
        return before(*given, **how)

    with monkeypatch.context() as patch:
        patch.setattr(*at, interrupted_once)
        with pytest.raises(KeyboardInterrupt):
            ctx.close()
        ctx.close()
    assert ctx.stats().sources == ctx.stats().receivers == 0
    assert ctx.domain.fd < 0
    with hf.Context(session_id=7) as again:
        source(again, 1)
        is_let_in(again, READER)
    src.close()
    rcv.close()


@pytest.mark.parametrize("role", ["source", "receiver"])
def test_a_context_tells_the_stores_of_a_child_whose_close_was_interrupted(
    ctx: hf.Context, monkeypatch: pytest.MonkeyPatch, role: str
) -> None:
    with hf.Context() as other:
        kept = registered(other, role)
        with monkeypatch.context() as patch:
            patch.setattr(StoreLink, "ask", interrupted)
            with pytest.raises(KeyboardInterrupt):
                kept.close()
    registered(ctx, role).close()


def test_an_interrupted_close_of_a_context_closes_all(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    run_store("a", "disk")
    pressed: list[object] = []

    def interrupted_once(*_: object) -> None:
        if not pressed:
            pressed.append(1)
            raise KeyboardInterrupt

    ctx = hf.Context(session_id=7)
    src, rcv = source(ctx, 3), ctx.receiver("quotes", options=READER)
    assert rcv.receive(timeout=SHORT) is not None
    with monkeypatch.context() as patch:
        patch.setattr(StoreLink, "settle", interrupted_once)
        with pytest.raises(KeyboardInterrupt):
            ctx.close()
    with hf.Context(session_id=7) as again:
        source(again, 1)
        is_let_in(again, READER)
    src.close()
