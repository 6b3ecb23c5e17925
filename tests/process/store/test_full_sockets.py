"""More is asked at once than a control socket has room for: it waits, at the one side and at the other. No
connection is broken for it, and nothing is asked twice."""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from support.receiving import SHORT
from support.silent_store import NEVER
from support.three_stores import SOURCE
from support.workers import until

import holdfast as hf
from holdfast.engine.control import wire
from holdfast.engine.control.link import StoreLink
from holdfast.engine.memory.domain import Domain
from holdfast.engine.memory.mapping import Bells
from holdfast.engine.native.core import lib
from holdfast.engine.store.clients import Client, Clients

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from process.conftest import ThreadStore

COUNT = 1000
IDS = list(range(1, COUNT + 1))
MANY = 60


class Listener:
    """Of a link: how often it went down."""

    def __init__(self) -> None:
        self.downs = 0

    def link_up(self, link: StoreLink) -> None: ...

    def link_down(self, link: StoreLink) -> None:
        self.downs += 1

    def hindered(self, link: StoreLink) -> None: ...

    def expelled(self, link: StoreLink) -> None: ...

    def concerns(self, source: bytes) -> bool:
        return False


class Scene:
    """A link to a store that is played by the test."""

    def __init__(self, domain: Domain) -> None:
        self.door = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.door.bind(os.fspath(domain.socket_path("a")))
        self.door.listen()
        self.door.settimeout(SHORT)
        self.now = time.monotonic_ns()
        self.link = StoreLink(domain, "a", Bells.of(domain).index)
        self.listener, self.answered = Listener(), list[int]()
        self.link.listeners.append(self.listener)
        self.conn = self.accept()

    def accept(self) -> socket.socket:
        self.now += 1 << 40
        self.link.turn(self.now)
        self.conn, _ = self.door.accept()
        assert isinstance(wire.decode_request(self.conn.recv(wire.PACKET_MAX)), wire.Hello)
        self.conn.send(wire.encode(wire.Welcome(wire.PROTOCOL, "a", b"a" * 16, "/logs", 2, 1, 1)))
        self.link.turn(0)
        assert self.link.up
        return self.conn

    def ask(self, count: int) -> None:
        for _ in range(count):
            assert self.link.ask(
                wire.ListSources(self.link.next_id(), "orders"), lambda got: self.answered.append(_id(got))
            )

    def read(self) -> list[int]:
        """What has come, each answered."""
        found: list[int] = []
        with contextlib.suppress(BlockingIOError):
            while True:
                found.append(_id(wire.decode_request(self.conn.recv(wire.PACKET_MAX, socket.MSG_DONTWAIT))))
        return found

    def answer(self, number: int) -> None:
        self.conn.send(wire.encode(wire.Sources(number, [])))


def _id(packet: Any) -> int:
    return int(packet.id)


@pytest.fixture
def played(own_domain: str) -> Iterator[Scene]:
    domain = Domain(own_domain)
    made = Scene(domain)
    yield made
    made.link.close()
    made.conn.close()
    made.door.close()
    domain.close()


def test_what_a_link_has_no_room_for_is_sent_later_once_and_in_order(played: Scene) -> None:
    played.ask(COUNT)
    came = played.read()
    assert 0 < len(came) < COUNT, "the socket was full"
    answered = 0
    while len(came) < COUNT:
        for number in came[answered:]:
            played.answer(number)
            played.link.turn(0)
        answered, came = len(came), came + played.read()
    assert came == IDS
    assert played.answered == IDS[:answered]
    assert played.listener.downs == 0


def test_who_is_answered_at_a_close_may_ask_again(played: Scene) -> None:
    """While there is no room: the connection is not broken for it."""
    assert played.link.ask(wire.ListSources(played.link.next_id(), "orders"), lambda _: played.ask(1))
    played.ask(COUNT)
    played.answer(1)
    clock = iter((0, 0, 0, 10))
    played.link.settle(10, lambda: next(clock))
    assert (played.listener.downs, played.link.up) == (0, True)
    assert len(played.link._asked) == COUNT + 1


def test_a_close_waits_until_that_is_sent_and_answered(played: Scene) -> None:
    played.ask(COUNT)

    def serve() -> None:
        for _ in IDS:
            played.answer(_id(wire.decode_request(played.conn.recv(wire.PACKET_MAX))))

    serving = threading.Thread(target=serve)
    serving.start()
    played.link.settle(int(SHORT * 1e9), time.monotonic_ns)
    serving.join(SHORT)
    assert played.answered == IDS
    assert played.listener.downs == 0


def test_what_was_not_sent_goes_with_the_link(played: Scene) -> None:
    played.ask(COUNT)
    played.conn.close()
    played.link.turn(0)
    assert (played.listener.downs, played.link.up) == (1, False)
    assert not played.link.ask(wire.ListSources(0, "orders"), lambda _: None)
    played.accept()
    played.ask(1)
    assert played.read() == [COUNT + 1]
    assert played.answered == []


@pytest.fixture
def raw(run_store: Callable[..., ThreadStore], own_domain: str) -> Iterator[tuple[ThreadStore, socket.socket]]:
    """A store, and a connection to it that has said who it is."""
    store, domain = run_store(), Domain(own_domain)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.settimeout(SHORT)
        sock.connect(os.fspath(domain.socket_path("a")))
        pid, bell = os.getpid(), Bells.of(domain).index
        sock.send(wire.encode(wire.Hello(wire.PROTOCOL, lib.hf_process_token(), pid, lib.hf_process_start(pid), bell)))
        assert isinstance(wire.decode_answer(sock.recv(wire.PACKET_MAX)), wire.Welcome)
        yield store, sock
    domain.close()


def waits_for_room(store: ThreadStore, client: Client) -> bool:
    return store.store._selector.get_key(client.sock).events == selectors.EVENT_WRITE


def test_a_client_that_reads_late_has_all_of_its_answers_in_order(raw: tuple[ThreadStore, socket.socket]) -> None:
    store, sock = raw
    (client,) = store.store._clients

    def ask() -> None:
        for number in IDS:
            sock.send(wire.encode(wire.ListSources(number, "orders")))

    asking = threading.Thread(target=ask)
    asking.start()
    until("there is no room", lambda: waits_for_room(store, client))
    assert len(client.unsent) == 1, "it is not read from meanwhile"
    with hf.Context() as ctx, ctx.source("quotes", options={**SOURCE, "ume_store_name": ["a"]}) as src:
        src.wait_registered(SHORT)  # others are served
        assert [_id(wire.decode_answer(sock.recv(wire.PACKET_MAX))) for _ in IDS] == IDS
        asking.join(SHORT)
    assert client in list(store.store._clients)


def test_one_that_goes_without_them_is_let_go(raw: tuple[ThreadStore, socket.socket]) -> None:
    store, sock = raw
    (client,) = store.store._clients
    sock.setblocking(False)

    def is_full() -> bool:
        with contextlib.suppress(BlockingIOError):
            while True:
                sock.send(wire.encode(wire.ListSources(1, "orders")))
        return waits_for_room(store, client)

    until("there is no room", is_full)
    sock.close()
    until("it is let go", lambda: not list(store.store._clients))
    assert not client.unsent


def test_sources_that_register_at_once_are_asked_for_once_each(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their requests and answers fill the sockets. Each lost connection had all of them ask again."""
    asked, lost = Counter[str](), list[str]()
    connect, add, ask, broke, drop = StoreLink._connect, Clients.add, StoreLink.ask, StoreLink._break, Clients.drop

    def connected(link: StoreLink) -> bool:
        made = connect(link)
        if link._sock is not None:
            link._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 13)
        return made

    def added(clients: Clients, client: Client) -> None:
        add(clients, client)
        client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 13)

    def counted(link: StoreLink, request: wire.Request, then: Callable[[wire.Answer], None]) -> bool:
        asked[type(request).__name__] += 1
        return ask(link, request, then)

    def broken(link: StoreLink) -> None:
        lost.append("a link")
        broke(link)

    def dropped(clients: Clients, client: Client) -> None:
        lost.append("a client")
        drop(clients, client)

    for where, name, instead in (
        (StoreLink, "_connect", connected), (Clients, "add", added), (StoreLink, "ask", counted),
        (StoreLink, "_break", broken), (Clients, "drop", dropped),
    ):  # fmt: skip
        monkeypatch.setattr(where, name, instead)
    run_store()
    options = {**NEVER, "ume_store_name": ["a"], "ring_size": 1 << 16, "ume_registration_interval": 3_600_000}
    with contextlib.ExitStack() as stack:
        ctx = stack.enter_context(hf.Context())
        sources = [stack.enter_context(ctx.source(f"t{number}", options=options)) for number in range(MANY)]
        for src in sources:
            src.wait_registered(SHORT)
        assert asked == {"RegisterSource": MANY, "Begin": MANY}
        assert lost == []
