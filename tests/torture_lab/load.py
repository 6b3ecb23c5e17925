"""Who works beside a trouble: a store, and a source and a receiver of this process, that must not notice."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from support.leftovers import remove_objects
from support.oracle import Finding
from support.workers import DEADLINE_S, Worker

import holdfast as hf
from holdfast.engine.memory.domain import Domain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torture_lab.lab import Lab

__all__ = ["OPTIONS", "in_steps", "objects", "store_in"]

OPTIONS: dict[str, Any] = {"ume_store_name": ["a:0:0"], "ring_size": 1 << 18, "ume_flight_size": 1000}


@contextlib.contextmanager
def store_in(lab: Lab, domain: str) -> Iterator[Worker]:
    """A process of its own, which is open. After ``with`` it has ended, though it never opened, and the
    domain has no objects."""
    where = lab.root / domain
    where.mkdir()
    store = Worker("store", where, directory=str(where / "a"), kind="disk", domain=domain)
    try:
        yield store.start().wait_ready()
    finally:
        store.discard()
        remove_objects(domain)


def in_steps(domain: str, topic: str, messages: int, during: Callable[[int], object] = lambda _: None) -> int:
    """Each message is received before the next is sent; ``during`` is called in between. Raises Finding when
    another comes."""
    with hf.Context(domain=domain) as ctx:
        source = ctx.source(topic, options=OPTIONS)
        source.wait_registered(DEADLINE_S)
        receiver = ctx.receiver(topic)
        for number in range(messages):
            source.send(b"%d" % number, timeout=DEADLINE_S)
            during(number)
            message = receiver.receive(timeout=DEADLINE_S)
            received = b"" if message is None else bytes(message)
            if message is None or received != b"%d" % number:
                raise Finding(f"{topic}: {received!r} was received, {number} was sent")
            message.release()
        source.wait_stable(timeout=DEADLINE_S)
    return messages


def objects(domain: str, *kinds: str) -> list[str]:
    """Names in shared memory."""
    found = Domain(domain, join=False)
    try:
        return [item.name for item in found.objects() if item.kind in kinds]
    finally:
        found.close()
