"""Clients of a store that are none of ours, or that it cannot serve: each is let go by itself, and the others
are served."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import socket
import time
from typing import TYPE_CHECKING

import pytest
from support.receiving import source
from support.workers import until

import holdfast as hf
from holdfast.engine.control import peer, wire
from holdfast.engine.errors import ForeignOwnerError, ReadOnlyError, TurnHeldError
from holdfast.engine.log.state_file import State, StateFile
from holdfast.engine.memory.domain import Domain
from holdfast.engine.memory.mapping import Bells
from holdfast.engine.native.core import lib
from holdfast.engine.rules.reconcile import BEGINS_MAX
from holdfast.engine.store.repository import Repository
from holdfast.engine.store.store import DEAF_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from process.conftest import ThreadStore

    from holdfast.engine.store.clients import Client

PATIENCE_S = 60.0
LIST = wire.ListSources(1, "orders")


def on_disk(directory: Path) -> State:
    """What the store in this directory has saved."""
    state = StateFile(directory).load()
    assert state is not None
    return state


@pytest.fixture
def store(run_store: Callable[..., ThreadStore]) -> ThreadStore:
    return run_store()


@pytest.fixture
def connect(store: ThreadStore, own_domain: str) -> Iterator[Callable[[], socket.socket]]:
    """Connections to the store, of this process."""
    domain = Domain(own_domain)
    made: list[socket.socket] = []

    def begin() -> socket.socket:
        made.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        made[-1].settimeout(PATIENCE_S)
        made[-1].connect(os.fspath(domain.socket_path("a")))
        return made[-1]

    yield begin
    for sock in made:
        sock.close()
    domain.close()


def hello(store: ThreadStore, protocol: int = wire.PROTOCOL) -> wire.Hello:
    pid = os.getpid()
    bell = Bells.of(store.store.domain).index
    return wire.Hello(protocol, lib.hf_process_token(), pid, lib.hf_process_start(pid), bell)


def asked(sock: socket.socket, request: wire.Request) -> wire.Answer | None:
    """The answer; None: the store has hung up."""
    sock.send(wire.encode(request))
    return heard(sock)


def heard(sock: socket.socket) -> wire.Answer | None:
    packet = sock.recv(wire.PACKET_MAX)
    return wire.decode_answer(packet) if packet else None


def serves(store: ThreadStore, sock: socket.socket) -> bool:
    """This client is answered as it should be."""
    welcome, sources = asked(sock, hello(store)), asked(sock, LIST)
    return isinstance(welcome, wire.Welcome) and isinstance(sources, wire.Sources) and sources.sources == []


def test_a_client_of_another_version_learns_ours_and_is_let_go(
    store: ThreadStore, connect: Callable[[], socket.socket], caplog: pytest.LogCaptureFixture
) -> None:
    other, good = connect(), connect()
    welcome = asked(other, hello(store, wire.PROTOCOL + 1))
    assert isinstance(welcome, wire.Welcome)
    assert (welcome.protocol, welcome.name) == (wire.PROTOCOL, "a")
    assert asked(other, LIST) is None
    assert f"pid {os.getpid()} speaks another protocol; closed" in caplog.text
    assert serves(store, good)


def test_a_client_that_does_not_say_who_it_is_is_let_go(
    store: ThreadStore, connect: Callable[[], socket.socket]
) -> None:
    assert asked(connect(), LIST) is None
    assert serves(store, connect())


def test_a_client_that_sends_garbage_is_let_go(
    store: ThreadStore, connect: Callable[[], socket.socket], caplog: pytest.LogCaptureFixture
) -> None:
    wrong, good = connect(), connect()
    wrong.send(b"\xc1 is no packet of ours")
    assert heard(wrong) is None
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert f"pid {os.getpid()}: " in caplog.text
    assert serves(store, good)


def test_another_users_process_is_let_go_unheard(
    store: ThreadStore, connect: Callable[[], socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: socket.socket) -> int:
        raise ForeignOwnerError("a process of uid 7 (pid 8) is at the other end of a control socket")

    with monkeypatch.context() as patch:
        patch.setattr(peer, "check_peer", refuse)
        assert heard(connect()) is None
    assert serves(store, connect())


@pytest.mark.parametrize("problem", [OSError(5, "Input/output error"), ForeignOwnerError("it is not ours")])
def test_a_request_that_fails_is_refused_and_may_come_again(
    store: ThreadStore, connect: Callable[[], socket.socket], monkeypatch: pytest.MonkeyPatch, problem: Exception
) -> None:
    def fail(_: Client, __: wire.ListSources) -> wire.Answer:
        raise problem

    sock = connect()
    assert isinstance(asked(sock, hello(store)), wire.Welcome)
    with monkeypatch.context() as patch:
        patch.setattr(store.store.sources, "listed", fail)
        refused = asked(sock, LIST)
    assert isinstance(refused, wire.Refused)
    assert (refused.id, refused.code) == (LIST.id, "failed")
    assert refused.text == f"store {store.store.config.name} failed to do this: {problem}"
    assert isinstance(asked(sock, LIST), wire.Sources)


def test_a_deregistration_that_fails_is_answered_as_0_1_0_understands_it(
    store: ThreadStore, connect: Callable[[], socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client of 0.1.0 asks again after "busy"; it took "failed" for somebody else who has the RegID."""
    problems = [OSError(5, "Input/output error"), TurnHeldError("a turn", 7), ReadOnlyError("/srv/a")]

    def fail(*_: object) -> wire.Answer:
        raise problems.pop()

    sock = connect()
    assert isinstance(asked(sock, hello(store)), wire.Welcome)
    request = wire.Deregister(1, "source", bytes(16), bytes(16), 1)
    with monkeypatch.context() as patch:
        patch.setattr(store.store.sources, "deregister", fail)
        while problems:
            refused = asked(sock, request)
            assert isinstance(refused, wire.Refused)
            assert refused.code == "busy"
    assert isinstance(asked(sock, request), wire.Deregistered)


def registered(store: ThreadStore, sock: socket.socket) -> tuple[bytes, wire.ReceiverGranted]:
    """A receiver that came with the proposal ``p``; its source's uuid, and what it was granted."""
    with hf.Context(session_id=5) as ctx:
        uuid = source(ctx, 3).uuid
    assert isinstance(asked(sock, hello(store)), wire.Welcome)
    granted = asked(sock, wire.RegisterReceiver(1, uuid, "quotes", 0, 9, b"p" * 16))
    assert isinstance(granted, wire.ReceiverGranted)
    return uuid, granted


def test_a_receiver_does_not_deregister_what_another_one_of_its_process_holds_by_now(
    store: ThreadStore, connect: Callable[[], socket.socket]
) -> None:
    """It had left that source, and asks again and again, since the store's disk is full."""
    sock = connect()
    uuid, granted = registered(store, sock)
    of_the_one_before = wire.Deregister(2, "receiver", uuid, granted.uuid, proposal=bytes(16))
    refused = asked(sock, of_the_one_before)
    assert isinstance(refused, wire.Refused)
    assert refused.code == "reg_id_in_use"
    again = asked(sock, wire.RegisterReceiver(3, uuid, "quotes", 0, 9, b"p" * 16))
    assert isinstance(again, wire.ReceiverGranted)
    assert again.registration_id == granted.registration_id, "it is there"
    assert isinstance(
        asked(sock, wire.Deregister(4, "receiver", uuid, granted.uuid, proposal=b"p" * 16)), wire.Deregistered
    )


@pytest.mark.parametrize("proposal", [b"", b"p" * 16], ids=["of 0.1.0", "its own"])
def test_a_receiver_is_deregistered_by_itself(
    store: ThreadStore, connect: Callable[[], socket.socket], proposal: bytes
) -> None:
    sock = connect()
    uuid, granted = registered(store, sock)
    assert isinstance(
        asked(sock, wire.Deregister(2, "receiver", uuid, granted.uuid, proposal=proposal)), wire.Deregistered
    )


@pytest.mark.parametrize(("remembered", "code"), [(BEGINS_MAX - 1, "busy"), (BEGINS_MAX, "unusable_log")])
def test_a_store_that_was_away_for_more_starts_than_anybody_remembers_says_what_helps(
    store: ThreadStore, connect: Callable[[], socket.socket], remembered: int, code: str
) -> None:
    """What it has may be void. It said "busy", and the source started over, again and again."""
    with hf.Context(session_id=5) as ctx:
        source(ctx, 3)
    sock = connect()
    assert isinstance(asked(sock, hello(store)), wire.Welcome)
    granted = asked(sock, wire.RegisterSource(1, "quotes", 0, 5, bytes(16)))
    assert isinstance(granted, wire.SourceGranted)
    begins = [(100 + number, 50) for number in range(remembered)]
    refused = asked(sock, wire.Begin(2, granted.uuid, 200, 50, "a ring", ["a"], begins=begins))
    assert isinstance(refused, wire.Refused)
    assert refused.code == code
    if code == "unusable_log":
        assert f"has missed more than {BEGINS_MAX} starts" in refused.text
        assert f"move {store.store.logs / granted.uuid.hex()} away" in refused.text


def test_a_client_that_goes_without_its_answer_ends_nothing(
    store: ThreadStore, connect: Callable[[], socket.socket]
) -> None:
    gone = connect()
    gone.send(wire.encode(hello(store)))
    gone.send(wire.encode(LIST))
    gone.close()
    assert serves(store, connect())


def test_a_client_that_cannot_be_let_in_waits_and_does_not_keep_the_store_busy(
    store: ThreadStore,
    connect: Callable[[], socket.socket],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Out of descriptors, the store tried again in each turn of its loop, without a pause, and said so each
    time."""
    good = connect()
    assert serves(store, good)

    def exhausted(_: socket.socket) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patch:
        patch.setattr(socket.socket, "accept", exhausted)
        began = time.monotonic()
        late = connect()
        for _ in range(300):
            assert isinstance(asked(good, LIST), wire.Sources)
        tries = caplog.text.count(
            "a client could not be accepted: EMFILE: Too many open files: RLIMIT_NOFILE of process"
        )
        assert 1 <= tries <= 1 + (time.monotonic() - began) / DEAF_S
    assert serves(store, late)


def test_what_could_not_be_saved_is_not_granted_when_it_is_asked_for_again(
    store: ThreadStore, connect: Callable[[], socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In memory the source is known by then, and the promise made: nothing of it is news any more, and
    nothing is on disk."""

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    sock = connect()
    assert isinstance(asked(sock, hello(store)), wire.Welcome)
    with monkeypatch.context() as patch:
        patch.setattr(store.store._file, "save", full)
        for request_id in range(1, 5):
            request = wire.RegisterSource(request_id, "orders", 0, 7, b"u" * 16, claimant=b"c" * 16)
            assert isinstance(asked(sock, request), wire.Refused), request_id
    assert isinstance(
        asked(sock, wire.RegisterSource(9, "orders", 0, 7, b"u" * 16, claimant=b"c" * 16)), wire.SourceGranted
    )
    saved = type(store.store._file)(store.store._file.directory).load()
    assert saved is not None
    assert [(source.session_id, source.promised) for source in saved.sources] == [(7, 1)]


@pytest.mark.parametrize("before", [0, 1])
def test_a_begin_that_fails_half_way_and_comes_again_is_on_disk_before_it_is_answered(
    store: ThreadStore, monkeypatch: pytest.MonkeyPatch, before: int
) -> None:
    """It is in the log, and the store knows it: repeated it looks like no news, and the state would lack
    it."""
    failed: list[bool] = []
    take_part = Repository._take_part

    def fail_once(repository: Repository) -> None:
        failed.append(True)
        if len(failed) == 1:
            raise OSError(24, "Too many open files")
        take_part(repository)

    options = {"ume_store_name": ["a"]}
    with hf.Context(session_id=1) as ctx, ctx.source("half", options={**options, "late_join": before}) as src:
        src.wait_registered(PATIENCE_S)
    monkeypatch.setattr(Repository, "_take_part", fail_once)
    with hf.Context(session_id=1) as ctx, ctx.source("half", options=options) as src:
        with contextlib.suppress(hf.RegistrationError):  # it is told, and asked again
            src.wait_registered(PATIENCE_S)
        src.wait_registered(PATIENCE_S)
        (kept,) = store.store.state.sources
        (saved,) = on_disk(store.store.directory.path).sources
    assert len(failed) > 1
    assert saved.begins == kept.begins
    assert len(saved.begins) == 2
    assert saved.late_join, "as the new life has it"


def test_so_is_one_that_a_store_finds_in_its_log_which_was_killed_before_it_saved_the_state(
    run_store: Callable[..., ThreadStore],
) -> None:
    with hf.Context() as ctx:
        store = run_store("a", "disk")
        directory = store.store.directory.path
        told: list[object] = []
        with ctx.source("half", options={"ume_store_name": ["a"]}, on_event=told.append) as src:
            src.wait_registered(PATIENCE_S)
            store.stop()
            state = on_disk(directory)
            (kept,) = state.sources
            begun, kept.begins = kept.begins, []
            file = StateFile(directory)
            file.load()
            file.save(state)
            run_store("a", "disk")
            until(
                "it is back", lambda: sum(isinstance(each, hf.events.source.RegistrationSuccess) for each in told) == 2
            )
            assert on_disk(directory).sources[0].begins == begun != []
