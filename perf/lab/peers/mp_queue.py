"""multiprocessing.Queue of Python's standard library: pickles through a pipe, put there by a thread."""

from __future__ import annotations

import multiprocessing
from typing import TYPE_CHECKING

from ..peer import Peer, Receiver, Sender

if TYPE_CHECKING:
    from ..peer import Place


class Queue(Peer):
    """One queue per receiver, without a limit, as made by ``Queue()``."""

    name = "mp.Queue"

    def start(self, place: Place) -> None:
        super().start(place)
        self.queues = [multiprocessing.get_context("forkserver").Queue() for _ in range(place.receivers)]

    def sender(self) -> Sender:
        first, *others = self.queues
        if not others:
            return Sender(first.put)

        def send(payload: bytes) -> None:
            for queue in self.queues:
                queue.put(payload)

        return Sender(send)

    def receiver(self, index: int) -> Receiver:
        return Receiver(self.queues[index].get)

    def stop(self) -> None:
        for queue in self.queues:
            queue.cancel_join_thread()
            queue.close()
