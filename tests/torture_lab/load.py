"""Who works beside a trouble: a store, and a source and a receiver of this process, that must not notice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from process.oracle import Finding
from process.spawn import DEADLINE_S, Worker

import holdfast as hf
from holdfast.engine.domain import Domain

if TYPE_CHECKING:
    from collections.abc import Callable

    from torture_lab.lab import Lab

__all__ = ["OPTIONS", "in_steps", "objects", "start_store"]

OPTIONS: dict[str, Any] = {"ume_store_name": ["a:0:0"], "ring_size": 1 << 18, "ume_flight_size": 1000}


def start_store(lab: Lab, domain: str) -> Worker:
    """A process of its own, which is open."""
    where = lab.root / domain
    where.mkdir()
    return Worker("store", where, directory=str(where / "a"), kind="disk", domain=domain).start().wait_ready()


def in_steps(domain: str, topic: str, messages: int, during: Callable[[int], object] = lambda _: None) -> int:
    """Each message is received before the next is sent; ``during`` is called in between. Raises Finding when another comes."""
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
