"""Registrations that wait for room: who is handled again, when, and who is refused. The clock is a number."""

from __future__ import annotations

import math
import socket
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from holdfast.engine.control import wire
from holdfast.engine.store.admission import LOOK_NS, WAIT_NS, Admission
from holdfast.engine.store.clients import Client

if TYPE_CHECKING:
    from collections.abc import Iterator

NOW = 10**15


class Scene:
    """A store with room for ``rooms`` more logs."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.rooms = 0
        self.may_change = True
        self.looks = 0
        self.admission = Admission(self._has_room, lambda: self.may_change)

    def _has_room(self) -> bool:
        self.looks += 1
        return self.rooms > 0

    def wait(self, number: int, now_ns: int) -> bool:
        return self.admission.wait(self.client, source(number), now_ns)

    def take(self, now_ns: int) -> tuple[list[int], list[int]]:
        """Numbers of those that are taken, and of those that are refused, at this look."""
        taken: list[int] = []
        refused: list[int] = []
        for client, request in self.admission.due(now_ns):
            if not self.rooms and self.admission.wait(client, request, now_ns):
                raise AssertionError(f"{request} was handled again in vain")
            (taken if self.rooms else refused).append(request.uuid[0])
            self.rooms -= bool(self.rooms)
            self.admission.answered(client, request)
        return taken, refused


def source(number: int) -> wire.RegisterSource:
    return wire.RegisterSource(number, "quotes", 0, 0, bytes([number]) * 16)


@pytest.fixture
def scene() -> Iterator[Scene]:
    with closing(socket.socket()) as sock:
        yield Scene(Client(sock, 1))


def test_nobody_waits(scene: Scene) -> None:
    assert scene.admission.due_s == math.inf
    assert list(scene.admission.due(NOW)) == []
    assert scene.looks == 0


def test_who_came_first_is_taken_first_and_no_more_than_there_is_room_for(scene: Scene) -> None:
    for number in range(4):
        assert scene.wait(number, NOW + number)
    assert scene.admission.due_s == (NOW + LOOK_NS) / 1e9
    scene.rooms = 3
    assert scene.take(NOW + LOOK_NS - 1) == ([], []), "not so soon"
    assert scene.take(NOW + LOOK_NS) == ([0, 1, 2], [])
    assert scene.looks == 4
    assert scene.take(NOW + 2 * LOOK_NS) == ([], [])
    scene.rooms = 1
    assert scene.take(NOW + 3 * LOOK_NS) == ([3], [])
    assert scene.admission.due_s == math.inf


def test_who_has_waited_long_enough_is_refused_and_may_come_again(scene: Scene) -> None:
    assert scene.wait(1, NOW)
    assert scene.wait(2, NOW + 1)
    assert scene.wait(1, NOW + WAIT_NS - 1), "handled again meanwhile"
    assert scene.take(NOW + WAIT_NS) == ([], [1]), "its time began when it came first"
    assert scene.wait(1, NOW + WAIT_NS)
    assert scene.take(NOW + WAIT_NS + LOOK_NS) == ([], [2])


def test_where_nothing_may_change_nobody_waits(scene: Scene) -> None:
    assert scene.wait(1, NOW)
    scene.may_change = False
    assert not scene.wait(2, NOW)
    assert scene.take(NOW + LOOK_NS) == ([], [1])


def test_who_has_gone_or_is_closed_waits_no_longer(scene: Scene) -> None:
    for number in (1, 2):
        assert scene.wait(number, NOW)
    scene.admission.leave(scene.client, wire.Leave(9, "source", source(1).uuid, source(1).uuid))
    scene.rooms = 9
    assert scene.take(NOW + LOOK_NS) == ([2], [])
    assert scene.wait(3, NOW)
    scene.client.closed = True
    assert scene.take(NOW + 2 * LOOK_NS) == ([], [])
    assert scene.admission.due_s == math.inf


def test_a_receiver_that_leaves_takes_no_one_else_with_it(scene: Scene) -> None:
    """It names itself as another store had granted it, or as it has proposed; its source may wait, too."""
    of, granted = source(1).uuid, bytes([9]) * 16
    for number, identity in ((2, granted), (3, b"")):
        uuid = bytes([number]) * 16
        request = wire.RegisterReceiver(number, of, "quotes", 0, 7, uuid, identity=identity)
        assert scene.admission.wait(scene.client, request, NOW)
    assert scene.wait(1, NOW)
    scene.admission.leave(scene.client, wire.Leave(8, "receiver", of, granted))
    scene.admission.leave(scene.client, wire.Leave(9, "receiver", of, bytes([3]) * 16))
    scene.rooms = 9
    assert scene.take(NOW + LOOK_NS) == ([1], [])


def test_other_requests_do_not_wait(scene: Scene) -> None:
    assert not scene.admission.wait(scene.client, wire.Mark(1, 7, [(0, 0)]), NOW)
    scene.admission.answered(scene.client, wire.Mark(1, 7, [(0, 0)]))
