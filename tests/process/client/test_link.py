"""A context's connection to a store, at the end of one of the context's children (engine/control/link.py)."""

from __future__ import annotations

import socket
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

import holdfast as hf
from holdfast.engine.control import wire

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.engine.control.link import StoreLink

UUID = bytes(16)


class Clock:
    """Each look at it takes a millisecond."""

    now = 0

    def __call__(self) -> int:
        self.now += 1_000_000
        return self.now


@pytest.fixture
def store(own_domain: str) -> Iterator[tuple[StoreLink, socket.socket]]:
    """A link, and the store's end of it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with hf.Context(own_domain, options={"operational_mode": "sequential"}) as ctx, closing(theirs):
        link = ctx.link("a")
        ours.setblocking(False)
        link._sock = ours
        theirs.send(wire.encode(wire.Welcome(wire.PROTOCOL, "a", UUID, "/logs", 1, 1, 1)))
        link.turn(0)
        assert link.up
        yield link, theirs
        ours.close()


def test_a_wait_that_is_over_leaves_the_connection_as_it_was(store: tuple[StoreLink, socket.socket]) -> None:
    """Its siblings go on: the next look at it neither blocks nor takes silence for an end."""
    link, theirs = store
    answers: list[wire.Answer] = []
    assert link.ask(wire.Leave(link.next_id(), "source", UUID, UUID), answers.append)
    link.settle(20_000_000, Clock())
    assert link.turn(0) == 0
    assert link.up
    theirs.send(wire.encode(wire.Left(1)))
    assert link.turn(0) == 1
    assert answers == [wire.Left(1)]


def test_who_leaves_waits_for_its_own_answers_alone(store: tuple[StoreLink, socket.socket]) -> None:
    link, theirs = store
    answers: list[wire.Answer] = []
    waits, leaves = (wire.Leave(link.next_id(), "source", UUID, UUID) for _ in range(2))
    assert link.ask(waits, answers.append)
    assert link.ask(leaves, answers.append)
    theirs.send(wire.encode(wire.Left(leaves.id)))
    clock = Clock()
    link.settle(10**12, clock, {leaves.id})
    assert answers == [wire.Left(leaves.id)]
    assert link.up
    assert clock.now < 10**10
