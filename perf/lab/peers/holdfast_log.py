"""holdfast with one store, which acknowledges from its memory or from the disk."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING

import holdfast as hf

from ...peers import DOMAIN, store_options
from ..peer import Sender
from ..server import Served
from .holdfast_line import Holdfast

if TYPE_CHECKING:
    from ..data import Messages
    from ..peer import Place

FLIGHT = 100_000
"""Messages; flow control is that of bytes."""
STORE_WAIT_S = 30.0


class HoldfastLog(Served, Holdfast):
    """Commits go on while the store makes earlier ones stable (its group commit): the end waits for the
    last."""

    in_flight = True

    def start(self, place: Place) -> None:
        super().start(place)
        command = [sys.executable, "-m", "holdfast", "store", "run", "--name", self.topic, "--domain", DOMAIN]
        command += ["--dir", str(place.folder / "store"), "--type", place.level]
        self.serve(command, "is ready")

    def sender(self) -> Sender:
        context = hf.Context(domain=DOMAIN)
        source = context.source(self.topic, options={**store_options(self.topic), "ume_flight_size": FLIGHT})
        source.wait_registered(STORE_WAIT_S)
        wait = partial(source.wait_stable, timeout=STORE_WAIT_S)

        def send_many(messages: Messages) -> None:
            source.send_batch(messages.rows)
            if not self.in_flight:
                wait()

        def send(payload: bytes) -> None:
            source.send_stable(payload, STORE_WAIT_S)

        return Sender(source.send if self.in_flight else send, send_many, wait, context.close)


class HoldfastEach(HoldfastLog):
    """Waits until each commit is stable before the next, as a program does that answers for every one of
    them."""

    name = "holdfast, waiting for each"
    in_flight = False
