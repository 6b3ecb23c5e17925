"""NATS JetStream, file storage: publishes in flight, each acknowledged, without a sync (the default)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ..peer import Receiver, Sender
from ..server import Served, free_port

if TYPE_CHECKING:
    from ..data import Check, Messages
    from ..peer import Place

WAIT_S = 30.0


class NatsJetStream(Served):
    """A server of its own on 127.0.0.1; the reader pulls batches, unacknowledged. This version does not sync
    per commit."""

    name = "NATS JetStream"
    needs = (("nats", "nats-py on PyPI"), ("nats-server", "Debian package nats-server"))
    levels = ("memory",)

    def start(self, place: Place) -> None:
        super().start(place)
        self.port = free_port()
        command = ["nats-server", "-a", "127.0.0.1", "-p", str(self.port), "-js", "-sd", str(place.folder)]
        self.serve(command, "Server is ready")

    def _connect(self) -> tuple[Any, Any, Any]:
        import nats

        run = asyncio.Runner().run
        client = run(nats.connect(f"nats://127.0.0.1:{self.port}"))
        return run, client.jetstream(), lambda: run(client.close())

    def sender(self) -> Sender:
        run, stream, close = self._connect()
        run(stream.add_stream(name="lab", subjects=["lab"]))

        async def publish(messages: Messages) -> None:
            await asyncio.gather(*[await stream.publish_async("lab", payload) for payload in messages.payloads])

        return Sender(lambda one: run(stream.publish("lab", one)), lambda many: run(publish(many)), close=close)

    def receiver(self, index: int) -> Receiver:
        from nats.js.api import AckPolicy, ConsumerConfig

        run, stream, close = self._connect()
        how = ConsumerConfig(ack_policy=AckPolicy.NONE)
        source: list[Any] = []

        def take(check: Check) -> int:
            if not source:  # the stream is there only now
                source.append(run(stream.pull_subscribe("lab", stream="lab", config=how)))
            return check.payloads([message.data for message in run(source[0].fetch(1000, timeout=WAIT_S))])

        return Receiver(take=take, close=close)
