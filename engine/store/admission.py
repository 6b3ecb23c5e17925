"""Registrations for which a store has no room: a limit of its process is reached (engine/store/limits.py).

A refusal that would not be one a moment later is none. So a registration waits while something may still
change: a log that nobody needs is looked through and can be closed then, or somebody who was granted has not
begun and may give up. Nobody else waits with it. It is refused by name when nothing may change any more, or
its time is over. The store's control thread.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..control import wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .clients import Client

__all__ = ["Admission"]

WAIT_NS = 2_000_000_000
"""Less than the registration interval, after which a source says that this store does not respond."""
LOOK_NS = 50_000_000
"""Pause between two looks for room."""


@dataclass(slots=True)
class _Waiting:
    request: wire.RegisterSource | wire.RegisterReceiver
    until_ns: int


class Admission:
    """See the module. ``has_room``: makes room if it can, and says whether there is some. ``may_change``: who
    has no room now may have some soon. Times are CLOCK_MONOTONIC."""

    def __init__(self, has_room: Callable[[], bool], may_change: Callable[[], bool]) -> None:
        self._has_room = has_room
        self._may_change = may_change
        self.waiting: dict[tuple[Client, bytes], _Waiting] = {}
        """By the connection and the uuid of the object that registers; who came first is first."""
        self._look_ns = 0

    @property
    def due_s(self) -> float:
        """When to look for room again; ``inf``: nobody waits."""
        return self._look_ns / 1e9 if self.waiting else math.inf

    def wait(self, client: Client, request: wire.Request, now_ns: int) -> bool:
        """There was no room for this request. True: it waits; False: it is to be refused now."""
        if not isinstance(request, wire.RegisterSource | wire.RegisterReceiver):
            return False
        known = self.waiting.get((client, request.uuid), _Waiting(request, now_ns + WAIT_NS))
        if now_ns >= known.until_ns or not self._may_change():
            return False
        if not self.waiting:
            self._look_ns = now_ns + LOOK_NS
        known.request = request
        self.waiting[client, request.uuid] = known
        return True

    def answered(self, client: Client, request: wire.Request) -> None:
        """This request has its answer, or waits for something else."""
        if isinstance(request, wire.RegisterSource | wire.RegisterReceiver):
            self.waiting.pop((client, request.uuid), None)

    def leave(self, client: Client, left: wire.Leave) -> None:
        """An object is closed: it asks for nothing any more. It names itself as it was granted, here or
        elsewhere, or as it proposed."""
        for key, each in list(self.waiting.items()):
            request = each.request
            if isinstance(request, wire.RegisterSource):
                mine = left.role == "source" and request.uuid in {left.source, left.uuid}
            else:
                mine = left.role == "receiver" and request.source == left.source
                mine = mine and left.uuid in {request.uuid, request.identity}
            if mine and key[0] is client:
                del self.waiting[key]

    def due(self, now_ns: int) -> Iterator[tuple[Client, wire.RegisterSource | wire.RegisterReceiver]]:
        """Those to be handled again, if it is time, first come first: as long as there is room, and those
        whose time is over. Room is looked for before each, so that it claims nothing in vain."""
        if not self.waiting or now_ns < self._look_ns:
            return
        self._look_ns = now_ns + LOOK_NS
        room, may_change = True, self._may_change()
        for (client, uuid), each in list(self.waiting.items()):
            if client.closed:
                del self.waiting[client, uuid]
                continue
            room = room and self._has_room()
            if room or now_ns >= each.until_ns or not may_change:
                yield client, each.request
