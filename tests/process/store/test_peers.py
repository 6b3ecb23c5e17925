"""Peers of a store that say what they should not, or end when it does not suit: the store serves everybody
else."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from support.handmade_feed import Ring, Stage
from support.workers import until

import holdfast as hf
from holdfast.engine.control import wire
from holdfast.engine.log.info_file import log_view
from holdfast.engine.memory.domain import Domain, unlink_object
from holdfast.engine.native.core import lib
from holdfast.engine.store.store import Store, StoreConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from process.conftest import ThreadStore

SHORT = 90.0
U16 = b"u" * 16
HELLO = {"type": "hello", "protocol": wire.PROTOCOL, "token": 1 << 16, "pid": 1, "start": 1, "bell": 0}
SOURCE = {"type": "register_source", "id": 1, "topic": "t", "registration_id": 0, "session_id": 0, "uuid": U16}
RECEIVER = {**SOURCE, "type": "register_receiver", "source": U16}
BEGIN = {"type": "begin", "id": 1, "uuid": U16, "incarnation": 1, "start_sqn": 0, "stream": "x", "stores": ["a"]}
FORGET = {"type": "deregister", "id": 1, "role": "source", "source": U16, "uuid": U16}


class Peer:
    """A raw connection to store a."""

    def __init__(self) -> None:
        domain = Domain()
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._sock.settimeout(SHORT)
        self._sock.connect(os.fspath(domain.socket_path("a")))
        domain.close()

    def say(self, packet: bytes | dict[str, Any]) -> None:
        self._sock.send(packet if isinstance(packet, bytes) else msgspec.msgpack.encode(packet))

    def hear(self) -> wire.Answer | None:
        """None: the store has closed it."""
        try:
            packet = self._sock.recv(wire.PACKET_MAX)
        except ConnectionResetError:
            return None
        return wire.decode_answer(packet) if packet else None

    def close(self) -> None:
        self._sock.close()


@pytest.fixture
def peer() -> Iterator[Callable[[], Peer]]:
    """Makes connections; all are closed at the end."""
    made: list[Peer] = []

    def connect() -> Peer:
        made.append(Peer())
        return made[-1]

    yield connect
    for each in made:
        each.close()


def serves(store: ThreadStore, registration_id: int = 0) -> None:
    """It still does what it is for."""
    options = {"ume_store_name": [f"a:{registration_id}"], "ring_size": 1 << 17}
    with hf.Context() as ctx, ctx.source("quotes", options=options) as src:
        src.wait_registered(SHORT)
        src.send(b"x")
        src.wait_stable(timeout=SHORT)
    assert (store.store.directory.path / "logs").is_dir()


@pytest.mark.parametrize(
    "packet",
    [
        b"\xc1garbage", msgspec.msgpack.encode(SOURCE)[:20], {"type": "nothing"}, {**SOURCE, "topic": 7},
        {**SOURCE, "uuid": b""}, {**SOURCE, "uuid": bytes(17)}, {**SOURCE, "activity_timeout": -1},
        {**SOURCE, "state_lifetime": -1}, {**SOURCE, "incarnation": -1}, {**SOURCE, "incarnation": 2**64 - 1},
        {**SOURCE, "topic": "t" * 1000}, {**RECEIVER, "source": b"", "uuid": U16}, {**RECEIVER, "uuid": b"short"},
        {**BEGIN, "start_sqn": -1}, {**BEGIN, "incarnation": 2**64 - 1}, {**BEGIN, "granted": bytes(17)},
        {**BEGIN, "start_sqn": 2**64 - 1}, {**FORGET, "source": b""}, {**FORGET, "role": "god"},
        {**HELLO, "bell": -1}, {**HELLO, "bell": 2**32}, {**HELLO, "token": -1}, {**HELLO, "pid": 2**40},
        {**HELLO, "start": -1},
    ],
)  # fmt: skip
def test_what_is_no_request_closes_the_connection_and_nothing_else(
    run_store: Callable[..., ThreadStore], peer: Callable[[], Peer], packet: bytes | dict[str, Any]
) -> None:
    store = run_store("a", "disk")
    speaker = peer()
    speaker.say(HELLO)
    assert isinstance(speaker.hear(), wire.Welcome)
    speaker.say(packet)
    assert speaker.hear() is None
    serves(store)


@pytest.mark.parametrize("stream", ["", "\0", "/", "../x", "x" * 300, "hf.nothing", "é"])
def test_begin_with_a_stream_that_is_none_is_refused(
    run_store: Callable[..., ThreadStore], peer: Callable[[], Peer], stream: str
) -> None:
    store = run_store("a", "disk")
    speaker = peer()
    speaker.say(HELLO)
    speaker.hear()
    speaker.say(SOURCE)
    assert isinstance(speaker.hear(), wire.SourceGranted)
    speaker.say({**BEGIN, "stream": stream})
    assert isinstance(speaker.hear(), wire.Refused | None)
    speaker.close()
    serves(store)


@pytest.mark.parametrize("begins", [[], [(1, 0)], [(2, 1), (1, 0)], [(1, 0), (5, 9)]])
def test_a_begin_that_knows_nothing_of_messages_that_were_sent_since_is_refused(
    run_store: Callable[..., ThreadStore], peer: Callable[[], Peer], begins: list[tuple[int, int]]
) -> None:
    """Its source was asked for its history before incarnation 2 began, and slept since; or it says no history
    at all."""
    store = run_store("a", "disk")
    serves(store)
    (kept,) = store.store.state.sources
    serves(store, kept.registration_id)
    assert kept.begins == [(1, 0), (2, 1)]
    domain = Domain()
    stream = domain.stream_name(kept.uuid, 3)
    domain.close()
    speaker = peer()
    speaker.say(HELLO)
    speaker.hear()
    speaker.say({**BEGIN, "uuid": kept.uuid, "incarnation": 3, "start_sqn": 1, "stream": stream, "begins": begins})
    answer = speaker.hear()
    assert isinstance(answer, wire.Refused)
    assert answer.code == "busy"
    assert kept.begins == [(1, 0), (2, 1)]
    speaker.close()
    serves(store, kept.registration_id)


def test_a_begin_while_somebody_else_has_an_open_stream_is_refused(
    run_store: Callable[..., ThreadStore], peer: Callable[[], Peer]
) -> None:
    """Of two claimants that opened on grants of different times. The other one may not have come to this
    store yet."""
    stores = {name: run_store(name) for name in "ab"}
    with hf.Context(session_id=5) as ctx:
        with ctx.source("quotes", options={"ume_store_name": ["a", "b"], "ring_size": 1 << 17}) as src:
            src.wait_registered(SHORT)
            until("both have begun", lambda: len(src.registration_ids) == 2)
        with ctx.source("quotes", options={"ume_store_name": ["b"], "ring_size": 1 << 17}) as src:
            src.wait_registered(SHORT)
            (kept,) = stores["a"].store.state.sources
            domain = Domain()
            stream = domain.stream_name(kept.uuid, 3)
            domain.close()
            speaker = peer()
            speaker.say(HELLO)
            speaker.hear()
            speaker.say({**BEGIN, "uuid": kept.uuid, "incarnation": 3, "stream": stream, "begins": [(1, 0), (2, 0)]})
            answer = speaker.hear()
            assert isinstance(answer, wire.Refused)
            assert answer.code == "busy"
            assert 3 not in dict(kept.begins), "of the second it may have heard from the other store"
            assert str(os.getpid()) in answer.text


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"start_sqn": 4}, "usage"),
        ({"incarnation": 3}, "usage"),  # of another name
        ({"begins": [(1, 0), (1, 5)]}, "usage"),
        ({"begins": [(2, 1), (1, 0)]}, "usage"),
        ({"gone": True}, "busy"),  # its source has started over since
    ],
)
def test_a_begin_that_its_stream_contradicts_leaves_nothing_behind(
    run_store: Callable[..., ThreadStore], peer: Callable[[], Peer], own_domain: str, tmp_path: Path, wrong: dict[str, Any],
    code: str,
) -> None:  # fmt: skip
    store = run_store("a", "disk")
    stage = Stage(tmp_path, own_domain)
    ring = Ring(stage, 2, 5)
    speaker = peer()
    us = {"token": lib.hf_process_token(), "pid": os.getpid(), "start": lib.hf_process_start(os.getpid())}
    speaker.say({**HELLO, **us})
    speaker.hear()
    speaker.say({**SOURCE, "uuid": stage.uuid, "incarnation": 2})
    assert isinstance(speaker.hear(), wire.SourceGranted)
    right = {**BEGIN, "uuid": stage.uuid, "incarnation": 2, "start_sqn": 5, "stream": ring.name, "begins": [(1, 0)]}
    if wrong.pop("gone", False):
        ring.end()
        unlink_object(ring.name)
    speaker.say({**right, **wrong})
    answer = speaker.hear()
    assert isinstance(answer, wire.Refused)
    assert answer.code == code
    (kept,) = store.store.state.sources
    assert (kept.begins, kept.stores, kept.peers, kept.directories) == ([], [], {}, {})
    assert log_view(store.store.logs / stage.uuid.hex()) is None, "nothing has begun in the log"
    if code != "busy":
        speaker.say(right)
        assert isinstance(speaker.hear(), wire.Begun)
        assert (kept.begins, kept.stores, list(kept.directories)) == ([(1, 0), (2, 5)], ["a"], ["a"])
    ring.end()
    speaker.close()
    store.stop()
    stage.close()


def test_a_holder_whose_death_is_found_while_its_end_waits_to_be_read(
    run_store: Callable[..., ThreadStore], peer: Callable[[], Peer]
) -> None:
    """A claim and the dead holder's end are read in one turn of the control loop, the claim first."""
    store = run_store("a")
    code = (
        "import sys, msgspec, holdfast as hf; from holdfast.engine.native.core import lib\n"
        "ctx = hf.Context(session_id=5, options={'operational_mode': 'sequential'})\n"
        "src = ctx.source('t', options={'ume_store_name': ['a', 'b', 'c']})\n"
        "while not src.registration_ids: ctx.poll(0.01)\n"
        "print('held', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None
        claimant = peer()
        claimant.say({**HELLO, "token": int(lib.hf_process_token()), "pid": os.getpid()})
        claimant.hear()
        assert holder.stdout.readline() == b"held\n"
        begun, go_on = threading.Event(), threading.Event()

        def hold() -> None:
            begun.set()
            go_on.wait(SHORT)

        blocked = threading.Thread(target=store.store.drainer.call, args=(hold,))
        blocked.start()
        assert begun.wait(SHORT)
        waiting = peer()
        waiting.say({**HELLO, "token": int(lib.hf_process_token()), "pid": os.getpid()})
        waiting.hear()
        waiting.say({**SOURCE, "uuid": b"w" * 16})  # the control thread waits for the drain thread now
        until("the control thread waits", lambda: not store.store.drainer._calls.empty())
        claimant.say({**SOURCE, "session_id": 5})
        holder.kill()
        holder.wait()
        go_on.set()
        blocked.join()
        assert isinstance(claimant.hear(), wire.SourceGranted)
        assert isinstance(waiting.hear(), wire.SourceGranted)
    finally:
        holder.kill()
        holder.wait()
        for pipe in (holder.stdin, holder.stdout):
            assert pipe is not None
            pipe.close()
    serves(store)


def test_more_sources_than_one_answer_holds(run_store: Callable[..., ThreadStore]) -> None:
    """Closed, and known to the store alone."""
    count = 2 * wire.PAGE_MAX + 1
    store = run_store("a")
    options = {"ume_store_name": ["a"], "ring_size": 1 << 16, "fragment_size": 1024}
    with hf.Context() as ctx:
        sources = [ctx.source(f"t{i}", options=options) for i in range(count)]
        for each in sources:
            each.wait_registered(SHORT)
            each.send(b"x")
            each.wait_stable(timeout=SHORT)
            each.close()
        until("no ring is left", lambda: not [item for item in store.store.domain.objects() if item.kind == "stream"])
        topics: set[str] = set()
        with ctx.receiver(pattern="t[0-9]+") as rcv:
            while len(topics) < count:
                message = rcv.receive(timeout=SHORT)
                assert message is not None, f"{count - len(topics)} sources were not found"
                with message:
                    topics.add(message.topic)
        asked = []

        def wanted(info: Any) -> int:
            asked.append(info)
            return 0

        with ctx.receiver("t7", options={"ume_registration_extended_function": wanted}) as rcv:
            message = rcv.receive(timeout=SHORT)
            assert message is not None
            message.release()
        assert len(asked) == 1


def test_no_answer_is_larger_than_a_datagram() -> None:
    info = wire.SourceInfo(U16, "ü" * 255, 2**32 - 1, 2**64 - 2, 2**62, ["s" * 31] * 25, "/" + "p" * 4096, True)
    page = wire.Sources(2**62, [info] * wire.PAGE_MAX, True)
    assert len(wire.encode(page)) <= wire.PACKET_MAX


def test_of_many_stores_of_one_name_one_starts(tmp_path: Path, run_store: Callable[..., ThreadStore]) -> None:
    """With a directory each, and a dead store's socket in their way."""
    run_store("a").stop()
    domain = Domain()
    path = domain.socket_path("a")
    domain.close()
    for attempt in range(10):
        dead = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        dead.bind(os.fspath(path))
        dead.close()
        started: list[Store] = []
        gate = threading.Barrier(4)

        def start(directory: Path, gate: threading.Barrier = gate, started: list[Store] = started) -> None:
            gate.wait()
            with contextlib.suppress(hf.DirectoryInUseError):
                started.append(Store(StoreConfig("a", directory, type="memory")))

        threads = [threading.Thread(target=start, args=(tmp_path / f"{attempt}-{i}",)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for store in started:
            store.open()
            store.close()
        assert len(started) == 1


def test_a_store_that_does_not_accept_is_not_replaced(tmp_path: Path, run_store: Callable[..., ThreadStore]) -> None:
    """Stopped, for example, and the queue of those who want to speak to it is full."""
    run_store("b").stop()  # makes the domain's directories
    domain = Domain()
    path = domain.socket_path("a")
    domain.close()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as silent, contextlib.ExitStack() as waiting:
        silent.bind(os.fspath(path))
        silent.listen(0)
        with contextlib.suppress(BlockingIOError):
            while True:
                client = waiting.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
                client.setblocking(False)
                client.connect(os.fspath(path))
        with pytest.raises(hf.DirectoryInUseError, match=re.escape(str(path)) + ".*choose another name"):
            Store(StoreConfig("a", tmp_path / "store"))


def test_a_store_that_cannot_start_leaves_no_socket(tmp_path: Path, run_store: Callable[..., ThreadStore]) -> None:
    directory = tmp_path / "store"
    directory.mkdir()
    (directory / "state.0").write_bytes(b"rubbish")
    with pytest.raises(hf.CorruptionError):
        Store(StoreConfig("a", directory))
    run_store("b")
    with hf.Context() as ctx:
        assert [path.name for path in ctx.domain.stores.glob("*.sock")] == ["b.sock"]
