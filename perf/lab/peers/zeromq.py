"""ZeroMQ over ipc (a Unix socket): PUSH to one receiver, PUB to several; the high-water marks hold the sender
back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..peer import Peer, Receiver, Sender

if TYPE_CHECKING:
    from ..peer import Place


class ZeroMQ(Peer):
    """pyzmq, one IO thread on each side, default marks of 1000 messages."""

    name = "pyzmq"
    needs = (("zmq", "pyzmq on PyPI"),)

    def start(self, place: Place) -> None:
        super().start(place)
        self.address = f"ipc://{place.folder}/zmq"

    def _socket(self, kind: str) -> tuple[Any, Any]:
        import zmq

        context = zmq.Context()
        socket = context.socket(getattr(zmq, kind))
        socket.linger = 0
        return context, socket

    def sender(self) -> Sender:
        """A PUB that may not drop (XPUB_NODROP) waits for the subscriptions of all its receivers first."""
        import zmq

        several = self.place.receivers > 1
        context, socket = self._socket("XPUB" if several else "PUSH")
        if several:
            socket.setsockopt(zmq.XPUB_NODROP, 1)
            socket.setsockopt(zmq.XPUB_VERBOSE, 1)  # tell of every subscription, not of the first alone
        socket.bind(self.address)
        for _ in range(self.place.receivers if several else 0):
            socket.recv()
        return Sender(socket.send, close=lambda: (socket.close(), context.term()))

    def receiver(self, index: int) -> Receiver:
        context, socket = self._socket("SUB" if self.place.receivers > 1 else "PULL")
        if self.place.receivers > 1:
            socket.subscribe(b"")
        socket.connect(self.address)
        return Receiver(socket.recv, close=lambda: (socket.close(), context.term()))
