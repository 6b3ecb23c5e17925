"""A client's connection to one store, as engine/control/link.py keeps it: it tries for as long as its process
lives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from simulation.world import MS

if TYPE_CHECKING:
    from collections.abc import Callable

    from simulation.world import Connection, Process, World

RETRY_NS = 4 * MS


class Hello:
    """First packet of a client."""


class Welcome:
    """The answer to it: the store's uuid."""

    def __init__(self, uuid: bytes) -> None:
        self.uuid = uuid


class Listener(Protocol):
    """Who wants to know."""

    def link_up(self, store: int) -> None:
        """Requests may be sent."""

    def link_down(self, store: int) -> None:
        """Nothing that was asked will be answered."""


class Link:
    """See the module. ``uuid``: the store's, while the link is up."""

    def __init__(self, process: Process, store: int, name: str, *listeners: Listener) -> None:
        self.world: World = process.world
        self.process, self.store, self.name = process, store, name
        self.listeners = list(listeners)
        self.uuid: bytes | None = None
        self._connection: Connection | None = None
        self._next_try_ns = 0
        self._asked: dict[int, Callable[[Any], None]] = {}
        self._ids = 0

    def next_id(self) -> int:
        """An id for a request."""
        self._ids += 1
        return self._ids

    def ask(self, request: Any, then: Callable[[Any], None]) -> None:
        """Sends a request, if the link is up."""
        connection = self._connection
        if connection is not None and self.uuid is not None and connection.open:
            self._asked[request.id] = then
            connection.requests.append(request)

    @property
    def idle(self) -> bool:
        """The link is up, and nothing has come."""
        connection = self._connection
        return connection is not None and connection.open and not connection.answers

    def turn(self) -> None:
        """Connects if it is time, or takes in one packet."""
        connection = self._connection
        if connection is None:
            if self.world.now < self._next_try_ns:
                return
            self._next_try_ns = self.world.now + RETRY_NS
            self._connection = connection = self.world.connect(self.process, self.name)
            if connection is not None:
                connection.requests.append(Hello())
        elif connection.answers:
            answer = connection.answers.popleft()
            if isinstance(answer, Welcome):
                self.uuid = answer.uuid
                for listener in self.listeners:
                    listener.link_up(self.store)
            else:
                then = self._asked.pop(answer.id, None)
                if then is not None:
                    then(answer)
        elif not connection.open:
            self._break(connection)

    def _break(self, connection: Connection) -> None:
        self._connection = None
        self.process.connections.remove(connection)
        self._asked.clear()
        if self.uuid is not None:
            self.uuid = None
            for listener in self.listeners:
                listener.link_down(self.store)
