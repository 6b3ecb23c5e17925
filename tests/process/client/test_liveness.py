"""A sending context learns which receiving contexts there are and which have died (docs/semantics.md H), of
real processes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.workers import until

import holdfast as hf
from holdfast.engine.events.info import ReceivingContextFlags, ReceivingContextInfo
from holdfast.engine.memory.domain import Domain
from holdfast.engine.memory.mapping import own_board
from holdfast.engine.native.core import ffi, lib
from holdfast.engine.tools import snapshot
from holdfast.engine.tools.gc import sweep

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from process.conftest import ThreadStore

SHORT = 90.0
TIMEOUT_MS = 300
CONFIRMED = {"ume_confirmed_delivery_notification": 2}
SHOWN = {"ume_receiver_liveness_interval": 50, "ume_user_receiver_registration_id": 77}
TMO, EOF = ReceivingContextFlags.TMO, ReceivingContextFlags.EOF


class Told:
    """The two callbacks, and what they were told."""

    def __init__(self) -> None:
        self.came: list[ReceivingContextInfo] = []
        self.gone: list[ReceivingContextInfo] = []
        self.threads: set[str] = set()

    def create(self, info: ReceivingContextInfo) -> str:
        self.threads.add(threading.current_thread().name)
        self.came.append(info)
        return f"object {len(self.came)}"

    def delete(self, info: ReceivingContextInfo) -> None:
        self.threads.add(threading.current_thread().name)
        self.gone.append(info)

    def context(self, **options: object) -> hf.Context:
        watching = {
            "ume_source_liveness_timeout": TIMEOUT_MS,
            "ume_receiving_context_notification_function": (self.create, self.delete),
        }
        return hf.Context(name="sender", options={**watching, **options})


class Listener:
    """A process of listening_context.py."""

    def __init__(self, *topics: str, session_id: int = 42, options: dict[str, int] | None = None) -> None:
        settings = {"session_id": session_id, "options": SHOWN if options is None else options, "topics": topics}
        path = [str(Path(__file__).resolve().parents[2]), os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "support.listening_context", json.dumps(settings)],
            env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        assert self.heard() == "ready"

    def heard(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def do(self, what: str) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{what}\n")
        self.process.stdin.flush()
        return self.heard()

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        with self.process:
            pass


@pytest.fixture
def listen() -> Iterator[Callable[..., Listener]]:
    made: list[Listener] = []

    def listen(*topics: str, **settings: Any) -> Listener:
        made.append(Listener(*topics, **settings))
        return made[-1]

    yield listen
    for listener in made:
        listener.end()


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def sender(told: Told) -> Iterator[hf.Context]:
    with told.context() as ctx:
        ctx.source("a", options=CONFIRMED).wait_registered(SHORT)
        ctx.source("b", options=CONFIRMED).wait_registered(SHORT)
        yield ctx


def three_looks(ctx: hf.Context) -> None:
    """Returns when the context has looked at the boards three times since the call."""
    before = ctx.liveness._look_ns
    seen: set[int] = set()

    def looked() -> bool:
        seen.add(ctx.liveness._look_ns)
        return len(seen - {before}) >= 3

    until("the sender looks", looked)


def test_create_tells_regid_and_session_once_per_context(
    sender: hf.Context, told: Told, listen: Callable[..., Listener]
) -> None:
    listen("a", "b", "a")
    until("it is told", lambda: told.came)
    three_looks(sender)
    assert told.came == [ReceivingContextInfo(77, 42, ReceivingContextFlags(0), None)]
    assert told.gone == []
    assert told.threads == {"holdfast-sender"}


def test_a_clean_close_is_eof_with_what_create_returned(
    sender: hf.Context, told: Told, listen: Callable[..., Listener]
) -> None:
    listener = listen("a", "b")
    until("it is told", lambda: told.came)
    listener.do("close")
    until("the end is told", lambda: told.gone)
    three_looks(sender)
    assert told.gone == [ReceivingContextInfo(77, 42, EOF, "object 1")]
    assert len(told.came) == 1


def test_a_kill_is_tmo_and_eof_and_its_successor_is_a_new_context(
    sender: hf.Context, told: Told, listen: Callable[..., Listener]
) -> None:
    listener = listen("a", "b")
    until("it is told", lambda: told.came)
    listener.process.kill()
    until("the death is told", lambda: told.gone)
    assert told.gone == [ReceivingContextInfo(77, 42, TMO | EOF, "object 1")]
    listen("a")
    until("the new one is told", lambda: len(told.came) == 2)
    assert len(told.gone) == 1


def test_a_stopped_process_is_not_dead(sender: hf.Context, told: Told, listen: Callable[..., Listener]) -> None:
    listener = listen("a")
    until("it is told", lambda: told.came)
    listener.process.send_signal(signal.SIGSTOP)
    before = heartbeat(sender)
    until("it is silent for three timeouts", lambda: silence_ns(sender) > 3 * TIMEOUT_MS * 1_000_000)
    three_looks(sender)
    assert told.gone == []
    listener.process.send_signal(signal.SIGCONT)
    until("its heart beats again", lambda: heartbeat(sender) > before)
    three_looks(sender)
    assert (len(told.came), told.gone) == (1, [])


def test_where_silence_counts_a_stopped_process_is_tmo_alone_and_comes_again(
    told: Told, listen: Callable[..., Listener]
) -> None:
    with told.context(ume_source_liveness_timeout=2000, ume_source_liveness_behavior="silence") as ctx:
        ctx.source("a", options=CONFIRMED).wait_registered(SHORT)
        listener = listen("a")
        until("it is told", lambda: told.came)
        listener.process.send_signal(signal.SIGSTOP)
        until("it is silent", lambda: silence_ns(ctx) > 2_000_000_000)
        three_looks(
            ctx
        )  # what its last heartbeat told is told; on a busy machine it may have been silent before, and come again
        until("its silence is told", lambda: len(told.gone) == len(told.came))
        times = len(told.gone)
        three_looks(ctx)
        assert told.gone == [ReceivingContextInfo(77, 42, TMO, f"object {n + 1}") for n in range(times)]
        listener.process.send_signal(signal.SIGCONT)
        until("it has come again", lambda: len(told.came) > times)
        assert set(told.came) == {ReceivingContextInfo(77, 42, ReceivingContextFlags(0), None)}


def heartbeat(ctx: hf.Context) -> int:
    """Newest heartbeat of the receiving contexts."""
    with ctx.turning():
        return max(line.heartbeat_ns for line in ctx.liveness._seen(ctx._sources))


def silence_ns(ctx: hf.Context) -> int:
    return time.monotonic_ns() - heartbeat(ctx)


def test_closing_one_of_two_receivers_is_no_death(
    sender: hf.Context, told: Told, listen: Callable[..., Listener]
) -> None:
    listener = listen("a", "b")
    until("it is told", lambda: told.came)
    listener.do("close one")
    listener.do("close one")
    before = heartbeat(sender)
    until("its heart still beats", lambda: heartbeat(sender) > before)
    three_looks(sender)
    assert told.gone == []


def test_a_child_that_holds_everything_open_does_not_hide_the_death(
    sender: hf.Context, told: Told, listen: Callable[..., Listener]
) -> None:
    listener = listen("a")
    until("it is told", lambda: told.came)
    child = int(listener.do("fork"))
    listener.process.kill()
    listener.process.wait()
    until("the death is told", lambda: told.gone)
    assert told.gone[0].flag == TMO | EOF
    os.kill(child, 0)  # it still lives


@pytest.mark.parametrize(
    ("session_id", "options"),
    [
        (42, {"ume_user_receiver_registration_id": 77}),
        (42, {"ume_receiver_liveness_interval": 50}),
        (0, SHOWN),
    ],
)
def test_a_receiving_context_without_one_of_its_options_is_not_told(
    sender: hf.Context, told: Told, listen: Callable[..., Listener], session_id: int, options: dict[str, int]
) -> None:
    listener = listen("a", session_id=session_id, options=options)
    three_looks(sender)
    listener.do("close")
    three_looks(sender)
    assert (told.came, told.gone) == ([], [])


@pytest.mark.parametrize(
    ("context_options", "source_options"),
    [({"ume_source_liveness_timeout": 0}, CONFIRMED), ({}, {"ume_confirmed_delivery_notification": 0})],
)
def test_a_sending_context_without_one_of_its_options_is_not_told(
    told: Told,
    listen: Callable[..., Listener],
    context_options: dict[str, int],
    source_options: dict[str, int],
) -> None:
    with told.context(**context_options) as ctx:
        source = ctx.source("a", options=source_options)
        source.wait_registered(SHORT)
        told_too = Told()
        with told_too.context() as other:  # sees that the line is there
            other.source("b", options=CONFIRMED).wait_registered(SHORT)
            listener = listen("a", "b")
            until("the other one is told", lambda: told_too.came)
            listener.do("close")
            until("the other one is told of the end", lambda: told_too.gone)
        assert (told.came, told.gone) == ([], [])


def test_what_the_callbacks_raise_is_counted_and_harms_nothing(listen: Callable[..., Listener]) -> None:
    gone: list[ReceivingContextInfo] = []

    def create(info: ReceivingContextInfo) -> None:
        raise ValueError(info)

    def delete(info: ReceivingContextInfo) -> None:
        gone.append(info)
        raise ValueError(info)

    pair = {"ume_source_liveness_timeout": TIMEOUT_MS, "ume_receiving_context_notification_function": (create, delete)}
    with hf.Context(options=pair) as ctx:
        ctx.source("a", options=CONFIRMED).wait_registered(SHORT)
        listener = listen("a")
        until("create has raised", lambda: ctx.callback_errors == 1)
        listener.do("close")
        until("delete has raised", lambda: ctx.callback_errors == 2)
    assert gone == [ReceivingContextInfo(77, 42, EOF, None)]


def test_the_line_of_a_context_counts_for_nothing_else(run_store: Callable[..., ThreadStore], told: Told) -> None:
    store = run_store()
    options = {**CONFIRMED, "ume_store_name": ["a:0:0"], "ring_size": 1 << 18}
    receiving = hf.Context(session_id=42, options=SHOWN)
    with told.context() as ctx, receiving:
        source = ctx.source("a", options=options)
        source.wait_registered(SHORT)
        receiver = receiving.receiver("a")
        source.send(b"one")
        message = receiver.receive(SHORT)
        assert message is not None
        message.release()
        until("the context is told", lambda: told.came)
        source.wait_stable(timeout=SHORT)

        seen = snapshot.take(ctx.domain)
        assert [row.session_id for row in seen.receivers] == [42]
        assert (seen.sources[0].stable, len(seen.sources[0].stores)) == (0, 1)
        (repository,) = store.store.drainer.repositories.values()
        acks, _ = store.store.drainer.call(repository.acks)
        assert len(acks) == 1


def test_a_board_on_which_only_a_context_shows_itself_is_swept(own_domain: str) -> None:
    domain = Domain(own_domain)
    board = own_board(domain, bytes(16))
    try:
        who = ffi.new("struct hf_identity *", {"uuid": b"c" * 16, "role": lib.HF_ROLE_CONTEXT})
        assert lib.hf_board_claim(board.handle, domain.fd, who, ffi.NULL) >= 0
        # Whoever makes a board is alive here, and holds it: as if that process had gone.
        board.preamble.owner = 0
        assert [item.kind for item in sweep(domain, dry_run=True) if item.remove] == ["board"]
        who.role, who.uuid = lib.HF_ROLE_RECEIVER, b"r" * 16
        assert lib.hf_board_claim(board.handle, domain.fd, who, ffi.NULL) >= 0
        assert [item.kind for item in sweep(domain, dry_run=True) if item.remove] == []
    finally:
        board.close()
        domain.close()
