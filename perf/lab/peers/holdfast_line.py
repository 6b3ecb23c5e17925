"""holdfast without a store. Nothing holds a source back then, so the ring holds all of a reading."""

from __future__ import annotations

import itertools
import os
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar

import holdfast as hf

from ...peers import DOMAIN, TIMEOUT_S
from ..peer import Peer, Receiver, Sender

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..data import Check
    from ..peer import Place

RING = 128 << 20
TOPICS = itertools.count()


class Holdfast(Peer):
    """A source and its receivers with the default wait strategy: spin for a while, then sleep."""

    name = "holdfast"
    ours = True
    batches = True
    options: ClassVar[dict[str, str]] = {}

    def start(self, place: Place) -> None:
        super().start(place)
        self.topic, self.directory = f"lab-{next(TOPICS)}", os.environ["HOLDFAST_DIR"]

    def source_options(self) -> dict[str, int]:
        """Room for all of a reading, or the defaults."""
        return {"ring_size": RING} if self.place.roomy else {}

    def sender(self) -> Sender:
        context = hf.Context(domain=DOMAIN, options=dict(self.options))
        source = context.source(self.topic, options=self.source_options())
        source.wait_registered(TIMEOUT_S)
        return Sender(source.send, lambda messages: source.send_batch(messages.rows), close=context.close)

    def receiver(self, index: int) -> Receiver:
        os.environ["HOLDFAST_DIR"] = self.directory
        context = hf.Context(domain=DOMAIN, options=dict(self.options))
        receiver = context.receiver(self.topic)

        def take(check: Check) -> int:
            batch = receiver.receive_batch(4096, TIMEOUT_S)
            return check.frames(batch.frames, batch.memory, batch.release) if batch else 0

        return Receiver(self.one_by_one(receiver), take, close=context.close)

    def one_by_one(self, receiver: hf.Receiver) -> Callable[[], Any]:
        """How a program takes the next payload."""
        return map(attrgetter("data"), receiver).__next__
