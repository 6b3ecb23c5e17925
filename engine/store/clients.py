"""Connections to a store, and what was granted over each of them.

A connection owns a registration until it leaves, or its process is dead. A socket that stays open proves
nothing: a child that the owner has forked may hold it. The owner's lock decides (docs/design.md 12).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ..control import wire
from ..native.core import lib
from ..native.runtime import selectors

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

    from ..memory.mapping import Bells

__all__ = ["Client", "Clients", "Hold", "Key", "Reader"]


class Key(NamedTuple):
    """A registration. ``uuid``: the participant's; of a source, its own again."""

    role: str
    """source or receiver."""
    source: bytes
    uuid: bytes


@dataclass(frozen=True, slots=True)
class Hold:
    """A grant."""

    since_ns: int
    """CLOCK_REALTIME."""
    proposal: bytes
    """uuid that the holding object came with: by it, the store knows that object again."""
    incarnation: int = 0
    """Of a source: the stream that was open already when it asked; 0 = it was still to open one."""
    begun: int = 0
    """Of a source: the incarnation whose BEGIN has come over this connection."""


class Reader(NamedTuple):
    """A receiver with a session."""

    topic: str
    """Empty: it has a pattern."""
    session_id: int


EXPELLED_MAX = 1024
"""Objects that are refused because the operator has deregistered them; beyond, the oldest is forgotten, and
may come again."""


class Client:
    """One connection."""

    def __init__(self, sock: socket.socket, pid: int) -> None:
        self.sock = sock
        self.pid = pid
        self.hello: wire.Hello | None = None
        self.holds: dict[Key, Hold] = {}
        self.readers: dict[bytes, Reader] = {}
        """Receivers with a session, whatever they are registered with."""
        self.unsent: deque[bytes] = deque()
        """Answers for which its socket has no room. Nothing more is read from it until they are sent, so
        there are no more than it has asked for."""
        self.closed = False

    def leave(self, role: str, source: bytes, uuid: bytes) -> bool:
        """Lets go what an object holds; False: nothing. Of a source, either name is its identity: it takes
        another one than it proposed."""
        before = len(self.holds)
        for key, hold in list(self.holds.items()):
            names = {key.uuid, hold.proposal}
            mine = not names.isdisjoint({source, uuid}) if role == "source" else key.source == source and uuid in names
            if key.role == role and mine:
                del self.holds[key]
        self.readers.pop(uuid, None)
        return len(self.holds) < before

    @property
    def process(self) -> tuple[int, int, int]:
        """Its token, pid and start time: what proves its death."""
        return (self.hello.token, self.hello.pid, self.hello.start) if self.hello is not None else (0, 0, 0)

    @property
    def token(self) -> int:
        """Of its process, as in an owner word."""
        return self.hello.token if self.hello is not None else 0


class Clients:
    """All connections of a store. ``selector`` watches their sockets, ``bells`` wake their processes."""

    def __init__(self, selector: selectors.BaseSelector, domain_fd: int, bells: Bells) -> None:
        self._selector = selector
        self._domain_fd = domain_fd
        self._bells = bells
        self._all: dict[int, Client] = {}
        self._came: set[Reader] = set()
        """Since :meth:`readers` was asked."""
        self._expelled: dict[tuple[bytes, int], str] = {}
        """(uuid, incarnation) of living objects -> what they were called. Gone with the store's process: then
        they are new."""

    def add(self, client: Client) -> None:
        """A connection was accepted."""
        client.sock.setblocking(False)
        self._all[client.sock.fileno()] = client
        self._selector.register(client.sock, selectors.EVENT_READ)

    def drop(self, client: Client) -> None:
        """Closes a connection: what it holds is free."""
        client.closed = True
        client.unsent.clear()
        self._selector.unregister(client.sock)
        del self._all[client.sock.fileno()]
        client.sock.close()

    def send(self, client: Client, answer: wire.Answer) -> None:
        """To the process, which is woken. What its socket has no room for is sent when it has read others:
        one that were dropped instead would come again with all that it has asked for."""
        if client.closed:
            return
        client.unsent.append(wire.encode(answer))
        if len(client.unsent) == 1:
            self.send_on(client)
            if client.unsent:
                self._selector.modify(client.sock, selectors.EVENT_WRITE)

    def send_on(self, client: Client) -> None:
        """What waits, as far as there is room. One that has gone is dropped."""
        try:
            while client.unsent:
                client.sock.send(client.unsent[0])
                client.unsent.popleft()
        except BlockingIOError:
            pass
        except OSError:
            self.drop(client)
            return
        if client.hello:
            lib.hf_bell_ring(self._bells.handle, client.hello.bell)

    def may_send(self, client: Client) -> None:
        """There is room in its socket; when all is sent, it is read from again."""
        self.send_on(client)
        if not client.unsent and not client.closed:
            self._selector.modify(client.sock, selectors.EVENT_READ)

    def get(self, fd: int) -> Client | None:
        """The connection with this descriptor, if it was not dropped."""
        return self._all.get(fd)

    def __iter__(self) -> Iterator[Client]:
        return iter(list(self._all.values()))

    def owner(self, key: Key) -> Client | None:
        """The connection that holds this registration; one whose process is dead is dropped."""
        client = next((client for client in self._all.values() if key in client.holds), None)
        if client is not None and client.hello is not None:
            hello = client.hello
            if lib.hf_process_alive(self._domain_fd, hello.token, hello.pid, hello.start) == 0:
                self.drop(client)
                return None
        return client

    def note(self, client: Client, uuid: bytes, reader: Reader) -> None:
        """A receiver with a session is here."""
        client.readers[uuid] = reader
        self._came.add(reader)

    def readers(self) -> set[Reader]:
        """The receivers with a session that are here, or were since this was asked last."""
        came, self._came = self._came, set()
        for client in list(self._all.values()):
            if client.readers and lib.hf_process_alive(self._domain_fd, *client.process) != 0:
                came.update(client.readers.values())
        return came

    def release(self, source: bytes, uuid: bytes | None = None) -> None:
        """Nobody holds this source any more, nor a receiver of it; or, with ``uuid``, this one receiver."""
        for client in self._all.values():
            for key in [key for key in client.holds if key.source == source and uuid in {None, key.uuid}]:
                del client.holds[key]

    def expel(self, who: tuple[bytes, int], name: str) -> None:
        """The operator has deregistered this object, which lives: it may not register again. ``who``: its
        uuid, and the incarnation of a source, 0 of a receiver."""
        self._expelled[who] = name
        while len(self._expelled) > EXPELLED_MAX:
            del self._expelled[next(iter(self._expelled))]

    def expelled(self, who: tuple[bytes, int]) -> str | None:
        """What an object was called that may not register again; None: it may."""
        return self._expelled.get(who)
