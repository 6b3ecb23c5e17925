"""faster-fifo: a ring in shared memory behind a lock and a condition."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..peer import Peer, Receiver, Sender

if TYPE_CHECKING:
    from ..data import Check, Messages
    from ..peer import Place

RING = 16 << 20
LARGE = 500_000
"""Bytes of a message from which on a queue of the default size, 1 MB, does not hold two."""
WAIT_S = 30.0
CHUNK = 1000


class FasterFifo(Peer):
    """One queue per receiver. Bytes pass as they are: no pickling."""

    name = "faster-fifo"
    needs = (("faster_fifo", "faster-fifo on PyPI"),)
    batches = True

    def start(self, place: Place) -> None:
        import faster_fifo
        import faster_fifo_reduction  # noqa: F401  (teaches pickle to send a queue to a process)

        super().start(place)
        size = {"max_size_bytes": RING} if place.roomy or place.size > LARGE else {}
        self.queues = [faster_fifo.Queue(**size, loads=bytes, dumps=bytes) for _ in range(place.receivers)]

    def sender(self) -> Sender:
        def send(payload: bytes) -> None:
            for queue in self.queues:
                queue.put(payload, True, WAIT_S)

        def send_many(messages: Messages) -> None:
            for queue in self.queues:
                queue.put_many(messages.payloads, True, WAIT_S)

        return Sender(send, send_many)

    def receiver(self, index: int) -> Receiver:
        queue = self.queues[index]

        def receive() -> bytes:
            payload: bytes = queue.get(True, WAIT_S)
            return payload

        def take(check: Check) -> int:
            return check.payloads(queue.get_many(True, WAIT_S, CHUNK))

        return Receiver(receive, take)
