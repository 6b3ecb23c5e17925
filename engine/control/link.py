"""A context's connection to one store: requests out, answers in, and the news when it comes or goes.

The link keeps trying for as long as the context lives, so that a store that returns is found by itself.
Everything runs on the context's thread. A broken link means "look at the lock now" (docs/design.md 12): the
store is dead only if its lock is free.

The socket has room for some 150 requests that the store has not read. What a context asks beyond waits here,
in order: to break the link instead would make all of its sources and receivers ask again, for ever.
"""

from __future__ import annotations

import errno
from collections import deque
from typing import TYPE_CHECKING, Protocol

from ..errors import CorruptionError, ForeignOwnerError
from ..native.core import lib
from ..native.limits import named
from ..native.runtime import os, socket, time
from . import peer, wire
from .refusals import refusal_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from ..memory.domain import Domain

__all__ = ["LinkListener", "StoreLink", "twin_of"]

RETRY_NS = 50_000_000
HINDERED_NS = 1_000_000_000
"""Who is turned away, or has no descriptor, does not keep a store busy."""
ROOM_S = 0.01
"""At close: pause between two looks for room in a socket that is full."""


class LinkListener(Protocol):
    """Who wants to know: a source or a receiver."""

    def link_up(self, link: StoreLink) -> None:
        """The store has said who it is; requests may be sent."""

    def link_down(self, link: StoreLink) -> None:
        """The link broke; nothing that was asked will be answered."""

    def hindered(self, link: StoreLink) -> None:
        """A store that may run cannot be reached: ``link.hindrance`` says why."""

    def expelled(self, link: StoreLink) -> None:
        """The store's operator has deregistered it, or the source that it is of, there: asked again, the
        store says so."""

    def concerns(self, source: bytes) -> bool:
        """It is this source, or a receiver of it."""


class StoreLink:
    """See the module. ``welcome`` is what the store said of itself, None while the link is down."""

    def __init__(self, domain: Domain, name: str, bell: int) -> None:
        self.domain = domain
        self.name = name
        self.welcome: wire.Welcome | None = None
        self.listeners: list[LinkListener] = []
        self.hindrance = ""
        """Why it is not up although the store may run: a limit of this process, or of the store's."""
        self.hindered_ns = 0
        """When that was met last."""
        self._path = os.fspath(domain.socket_path(name))
        self._bell = bell
        self._sock: socket.socket | None = None
        self._next_try_ns = 0
        self._ids = 0
        self._asked: dict[int, Callable[[wire.Answer], None]] = {}
        self._unsent: deque[bytes] = deque()
        """Requests for which the socket has no room yet."""

    @property
    def up(self) -> bool:
        """The store answers."""
        return self.welcome is not None

    def next_id(self) -> int:
        """An id for a request."""
        self._ids += 1
        return self._ids

    def ask(self, request: wire.Request, then: Callable[[wire.Answer], None]) -> bool:
        """Sends a request; ``then`` gets its answer, or is dropped with the link. False when the link is
        down."""
        if self._sock is None or not self.up:
            return False
        self._asked[request.id] = then  # type: ignore[union-attr]  # every request but Hello has one
        self._unsent.append(wire.encode(request))
        return self._send()

    def _send(self) -> bool:
        """What waits, as far as there is room. False: the link broke."""
        try:
            while self._sock is not None and self._unsent:
                self._sock.send(self._unsent[0])
                self._unsent.popleft()
        except BlockingIOError:
            pass  # the answers make the context turn again, and there is room then
        except OSError:
            self._break()
            return False
        return True

    def turn(self, now_ns: int) -> int:
        """Connects if it is time, and takes in what has arrived. Returns the number of packets."""
        if self._sock is None:
            if now_ns < self._next_try_ns:
                return 0
            self._next_try_ns = now_ns + RETRY_NS
            if not self._connect():
                return 0
        count = 0
        while self._sock is not None:
            try:
                packet = self._sock.recv(wire.PACKET_MAX)
            except BlockingIOError:
                break
            except ConnectionResetError:  # what it said before it hung up comes behind that
                continue
            except OSError:
                packet = b""
            if not packet:
                self._break()
                break
            count += 1
            self._take(packet)
        self._send()
        return count

    def _connect(self) -> bool:
        try:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        except OSError as error:
            self._hinder(f"store {self.name} cannot be asked: {named(error)}")
            return False
        sock.setblocking(False)
        try:
            sock.connect(self._path)
            peer.check_peer(sock)
        except (OSError, ForeignOwnerError) as error:
            sock.close()
            if not isinstance(error, BlockingIOError):  # it is not there any more
                self.hindrance = ""
            return False
        if lib.hf_process_check(self.domain.fd) != lib.HF_OK:  # what is asked for now might be granted to the dead
            sock.close()
            return False
        self._sock = sock
        pid = os.getpid()
        hello = wire.Hello(wire.PROTOCOL, lib.hf_process_token(), pid, lib.hf_process_start(pid), self._bell)
        try:
            sock.send(wire.encode(hello))
        except (BrokenPipeError, ConnectionResetError):  # it has hung up, and may have said why: that is read
            return True
        except OSError:
            self._break()
            return False
        return True

    def _hinder(self, why: str) -> None:
        """Told once, until it is up."""
        told, self.hindrance = bool(self.hindrance), why
        self.hindered_ns = time.monotonic_ns()
        self._next_try_ns = self.hindered_ns + HINDERED_NS
        for listener in [] if told else list(self.listeners):
            listener.hindered(self)

    def _take(self, packet: bytes) -> None:
        try:
            answer = wire.decode_answer(packet)
        except CorruptionError:
            self._break()
            return
        if isinstance(answer, wire.Welcome):
            if answer.protocol != wire.PROTOCOL:
                self._break()
                return
            self.welcome, self.hindrance = answer, ""
            for listener in list(self.listeners):
                listener.link_up(self)
            return
        if isinstance(answer, wire.Expelled):
            for listener in [each for each in self.listeners if each.concerns(answer.source)]:
                listener.expelled(self)
            return
        if self.welcome is None and isinstance(answer, wire.Refused) and not answer.id:
            self._break()
            self._hinder(refusal_of(answer, self.name).text)
            return
        then = self._asked.pop(answer.id, None)
        if then is not None:
            then(answer)

    def _break(self) -> None:
        sock, self._sock = self._sock, None
        if sock is not None:
            sock.close()
        self._asked.clear()
        self._unsent.clear()
        if self.welcome is not None:
            self.welcome = None
            for listener in list(self.listeners):
                listener.link_down(self)

    def settle(self, timeout_ns: int, clock: Callable[[], int], asked: Collection[int] | None = None) -> None:
        """Takes in answers until nothing is asked any more, or none of these, or the time is over: at close,
        off the hot path. What others have asked goes on as before."""
        deadline = clock() + timeout_ns
        try:
            while self._sock is not None and clock() < deadline:
                if not (self._asked if asked is None else self._asked.keys() & asked):
                    return
                self._sock.setblocking(False)
                if not self._send():
                    return
                left_s = max(deadline - clock(), 1) / 1e9
                self._sock.settimeout(min(left_s, ROOM_S) if self._unsent else left_s)
                try:
                    packet = self._sock.recv(wire.PACKET_MAX)
                except OSError as error:
                    if error.errno == errno.EINTR or (self._unsent and isinstance(error, TimeoutError)):
                        continue
                    return
                if not packet:
                    self._break()
                    return
                self._sock.setblocking(False)  # who is told may ask again
                self._take(packet)
        finally:
            if self._sock is not None:
                self._sock.setblocking(False)

    def close(self) -> None:
        """Closes the socket without telling the listeners."""
        self.listeners.clear()
        self._break()


def twin_of(links: Sequence[StoreLink], index: int) -> int | None:
    """A link before this one that leads to the same store, under another name: one by name and one by port,
    for example."""
    own = links[index].welcome
    for other, link in enumerate(links[:index]):
        if own is not None and link.welcome is not None and link.welcome.uuid == own.uuid:
            return other
    return None
