"""Unix SEQPACKET sockets between simulated processes, and the selectors that watch them."""

from __future__ import annotations

import socket as real
import struct
from collections import deque
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from simulator.native import lib
from simulator.paths import Path
from simulator.system import os
from simulator.threads import tick, until
from simulator.world import FOREVER, Process, world

if TYPE_CHECKING:
    from collections.abc import Iterator

QUEUE_MAX = 64
"""Packets that a socket holds before send() finds no room."""
FIRST_FD = 2_000_000
EVENT_READ, EVENT_WRITE = 1, 2


class Socket:
    """One end. ``listening``: connections that wait to be accepted."""

    def __init__(self, family: int = real.AF_UNIX, kind: int = real.SOCK_SEQPACKET) -> None:
        del family, kind
        world.check()
        self._fd = FIRST_FD + next(world.idents)
        self._timeout: float | None = None
        self.process: Process = world.current.process if world.current is not None else world.processes[0]
        self.process.sockets.append(self)
        self.packets: deque[bytes] = deque()
        self.other: Socket | None = None
        self.broken = False
        """The other end has closed: what came before is still read."""
        self.listening: deque[Socket] | None = None
        self._place: tuple[int, int] | None = None

    def fileno(self) -> int:
        """As socket."""
        return self._fd

    def setblocking(self, yes: bool) -> None:
        """As socket."""
        self._timeout = None if yes else 0.0

    def settimeout(self, seconds: float | None) -> None:
        """As socket."""
        self._timeout = seconds

    def _wait(self) -> None:
        if self._timeout == 0:
            raise BlockingIOError
        if not world.block(self, until(self._timeout)):
            raise TimeoutError

    def bind(self, path: str) -> None:
        """As socket."""
        Path(path).open("xb").close()
        found = os.stat(path)
        self._place = found.st_dev, found.st_ino

    def listen(self, backlog: int) -> None:
        """As socket."""
        assert self._place is not None
        del backlog
        self.listening = deque()
        world.listeners[self._place] = self

    def connect(self, path: str) -> None:
        """As socket."""
        found = os.stat(path)
        listener = world.listeners.get((found.st_dev, found.st_ino))
        if listener is None or listener.listening is None:
            raise ConnectionRefusedError(path)
        end = Socket.__new__(Socket)
        end._fd, end._timeout, end._place = FIRST_FD + next(world.idents), None, None
        end.process, end.packets, end.broken, end.listening = listener.process, deque(), False, None
        end.process.sockets.append(end)
        self.other, end.other = end, self
        listener.listening.append(end)
        wake(listener)

    def accept(self) -> tuple[Socket, str]:
        """As socket."""
        world.check()
        tick()
        assert self.listening is not None
        while not self.listening:
            self._wait()
        return self.listening.popleft(), ""

    def send(self, packet: bytes) -> int:
        """As socket."""
        world.check()
        tick()
        if self.other is None or self.broken:
            raise BrokenPipeError
        while len(self.other.packets) >= QUEUE_MAX:
            if self._timeout == 0:
                raise BlockingIOError
            world.block(("room", self), until(self._timeout))
        if self.broken:
            raise BrokenPipeError
        self.other.packets.append(bytes(packet))
        wake(self.other)
        return len(packet)

    def recv(self, size: int) -> bytes:
        """As socket."""
        world.check()
        tick()
        if self._fd < 0:
            raise OSError(9, "closed")
        while not self.packets:
            if self.broken or self.other is None:
                return b""
            self._wait()
        packet = self.packets.popleft()
        world.wake(("room", self.other))
        for selector in self.other.__dict__.get("selectors", ()) if self.other is not None else ():
            if selector.watches_room(self.other):
                world.wake(selector)
        return packet[:size]

    def getsockopt(self, level: int, option: int, size: int) -> bytes:
        """SO_PEERCRED."""
        del level, option, size
        assert self.other is not None
        return struct.pack("3i", self.other.process.pid, 0, 0)

    def is_readable(self) -> bool:
        """A read would not wait."""
        return bool(self.packets) or self.broken or bool(self.listening)

    def is_writable(self) -> bool:
        """A send would not wait."""
        return self.broken or self.other is None or len(self.other.packets) < QUEUE_MAX

    def close(self) -> None:
        """As socket."""
        if self._fd >= 0 and not world.over:
            self.end()

    def cut(self) -> None:
        """The connection breaks: both sides see its end. A process's pair of its own does not."""
        if self.other is not None and self.other.process is not self.process:
            for side in (self, self.other):
                side.broken = True
                wake(side)

    def end(self) -> None:
        """Nobody has it any more."""
        if self._fd < 0:
            return
        self._fd = -1
        self.process.sockets.remove(self)
        if self._place is not None:
            world.listeners.pop(self._place, None)
        for waiting in self.listening or ():
            waiting.end()
        if self.other is not None and not self.other.broken:
            self.other.broken = True
            wake(self.other)
            world.wake(("room", self.other))

    def __enter__(self) -> Socket:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def wake(sock: Socket) -> None:
    """Something has come for who reads it, or watches it."""
    world.wake(sock)
    for selector in sock.__dict__.get("selectors", ()):
        world.wake(selector)


def socketpair() -> tuple[Socket, Socket]:
    """As socket."""
    one, two = Socket(), Socket()
    one.other, two.other = two, one
    return one, two


class Key:
    """As selectors.SelectorKey."""

    __slots__ = ("data", "events", "fd", "fileobj")

    def __init__(self, fileobj: Socket, events: int, data: object) -> None:
        self.fileobj, self.fd, self.events, self.data = fileobj, fileobj.fileno(), events, data


class Selector:
    """As selectors.DefaultSelector."""

    def __init__(self) -> None:
        self._keys: dict[Socket, Key] = {}

    def register(self, sock: Socket, events: int, data: object = None) -> Key:
        """As selectors."""
        if sock in self._keys:
            raise KeyError(sock)
        key = self._keys[sock] = Key(sock, events, data)
        sock.__dict__.setdefault("selectors", []).append(self)
        return key

    def unregister(self, sock: Socket) -> Key:
        """As selectors."""
        sock.__dict__["selectors"].remove(self)
        return self._keys.pop(sock)

    def modify(self, sock: Socket, events: int, data: object = None) -> Key:
        """As selectors."""
        key = self._keys[sock] = Key(sock, events, data)
        return key

    def watches_room(self, sock: Socket) -> bool:
        """It waits until there is room for a packet."""
        return self._keys[sock].events == EVENT_WRITE

    def _ready(self) -> Iterator[tuple[Key, int]]:
        for sock, key in list(self._keys.items()):
            if sock.is_writable() if key.events == EVENT_WRITE else sock.is_readable():
                yield key, key.events

    def select(self, timeout: float | None = None) -> list[tuple[Key, int]]:
        """As selectors."""
        world.check()
        tick()
        end = until(max(0.0, timeout) if timeout is not None else None)
        ready = list(self._ready())
        while not ready and (end == FOREVER or lib.sim_now_ns < end):
            if not world.block(self, end):
                break
            ready = list(self._ready())
        return ready or list(self._ready())

    def close(self) -> None:
        """As selectors."""
        for sock in self._keys:
            sock.__dict__["selectors"].remove(self)
        self._keys.clear()


socket = SimpleNamespace(
    socket=Socket, socketpair=socketpair, AF_UNIX=real.AF_UNIX, SOCK_SEQPACKET=real.SOCK_SEQPACKET,
    SOL_SOCKET=real.SOL_SOCKET, SO_PEERCRED=real.SO_PEERCRED,
)  # fmt: skip
selectors: Any = SimpleNamespace(
    DefaultSelector=Selector, BaseSelector=Selector, EVENT_READ=EVENT_READ, EVENT_WRITE=EVENT_WRITE
)
