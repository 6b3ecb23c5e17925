"""The receivers' processes, driven over a pipe: between two readings they sleep, so that the probe has both
cores to itself.

measuring process (core 0) <-- pipe: "take this many", "done at" --> receiver (core 1)
          \\------------------- the product -------------------/   its server (core 1)
"""

from __future__ import annotations

import multiprocessing
import os
import threading
from typing import TYPE_CHECKING, Any

from .data import Taken, take_batches, take_singles
from .peer import Sender, no_such_call

if TYPE_CHECKING:
    from collections.abc import Sequence
    from multiprocessing.connection import Connection

    from .peer import Peer, Receiver

WAYS = multiprocessing.get_context("forkserver")
"""A fork of a process that has nothing but imports: as clean as a new interpreter, and ready in
milliseconds."""
WAYS.set_forkserver_preload(["numba", "numpy", "holdfast", "perf.lab.data", "perf.lab.peers.holdfast_log"])
ANSWER_S = 60.0
END_S = 2.0


class FarError(RuntimeError):
    """The receiver's process failed, ended or does not answer."""


class Far:
    """One receiver of ``peer`` in a process of its own. ``others``: what the commands "echo" and "more" are
    about."""

    def __init__(self, peer: Peer, index: int = 0, others: Sequence[Peer] = ()) -> None:
        """Start it and wait until its end is open. Raises FarError."""
        self._connection, theirs = WAYS.Pipe()
        self._process = WAYS.Process(target=_main, args=(theirs, peer, index, others), daemon=True)
        self._process.start()
        theirs.close()
        try:
            self.expect("ready")
        except FarError:
            self.close()
            raise

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid or 0

    def tell(self, *what: object) -> None:
        """A command (see ``_obey``)."""
        self._connection.send(what)

    def expect(self, word: str) -> Any:
        """What it answers with that word. Raises FarError with its own words if it says something else, or
        nothing."""
        if not self._connection.poll(ANSWER_S):
            raise FarError(f"no answer in {ANSWER_S:.0f} s")
        try:
            said, value = self._connection.recv()
        except EOFError:
            raise FarError("the receiver's process has ended") from None
        if said != word:
            raise FarError(str(value))
        return value

    def close(self) -> None:
        """End it: closing the pipe is the signal, where it is not waiting for messages that will not come."""
        self._connection.close()
        self._process.join(END_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def _main(connection: Connection, peer: Peer, index: int, others: Sequence[Peer]) -> None:
    if peer.place.core is not None:
        os.sched_setaffinity(0, {peer.place.core})
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        receiver = peer.receiver(index)
        connection.send(("ready", None))
        try:
            _obey(connection, receiver, others)
        finally:
            receiver.close()
    except (EOFError, BrokenPipeError):
        pass  # that is how it is told to end
    except Exception as error:
        connection.send(("failed", f"{type(error).__name__}: {error}"))


def _obey(connection: Connection, receiver: Receiver, others: Sequence[Peer]) -> None:
    """Commands, until the pipe ends; each is answered with "go" when it begins and "done" when it is done.

    ``singles size count``, ``batches size count``: receive and check; a ``Taken``. ``back``: open the sender
    of the only one of ``others``, to which ``echo count`` returns what comes. ``more``: open a receiver of
    each of them and receive one message.
    """
    back = Sender(no_such_call)
    more: list[Receiver] = []
    while True:
        what, *how = connection.recv()
        answer: Taken | None = None
        if what == "more":
            more = [other.receiver(0) for other in others]
        connection.send(("go", None))
        if what == "singles":
            answer = take_singles(receiver.receive, *how)
        elif what == "batches":
            answer = take_batches(receiver.take, *how)
        elif what == "back":
            back = others[0].sender()
        elif what == "more":
            for one in more:
                one.receive()
        else:
            _echo(receiver, back, *how)
        connection.send(("done", answer))


def _echo(receiver: Receiver, back: Sender, count: int) -> None:
    receive, send = receiver.receive, back.send
    for _ in range(count):
        send(bytes(receive()))


def _end_with_parent() -> None:
    """Nobody is left to read a pipe or to send a message that a spinning wait would notice."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)
