"""A process that sends and receives, then reads every file of its own domain directory, and says what becomes
of it.

    python reads_its_domain.py '{"session": 42, "options": {...}, "planted": false}'

``planted``: the bug that nobody looks at the lock. It goes on at each line of its input. Lines on stdout:
``ready``; ``read``; then ``source``, ``mate``, ``claim``, ``receiver`` and ``context``, each with the error
that it met as JSON; ``events`` with the texts of RegistrationErrors; ``released``, when it has released a
message that it had before; ``closed``.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
import tempfile
import time
from typing import TYPE_CHECKING, Any

import holdfast as hf
from holdfast.engine.memory.domain import Domain

if TYPE_CHECKING:
    from collections.abc import Callable

SHORT = 60.0


def say(*words: object) -> None:
    """One line."""
    print(*words, flush=True)


def go_on() -> None:
    """Waits for a line of the input."""
    if not sys.stdin.readline():
        sys.exit(0)


def refused(name: str, call: Callable[[], object]) -> None:
    """Calls again and again until an Error comes of it that stays, or the time is over."""
    deadline = time.monotonic() + SHORT
    while time.monotonic() < deadline:
        try:
            call()
        except hf.Error as error:
            if error.retriable:  # the stores may have found its lock free before it does
                continue
            said = {"type": type(error).__name__, "code": error.code, "retriable": error.retriable, "text": str(error)}
            say(name, json.dumps(said))
            return
    say(name, "null")


def claim(source: hf.Source) -> None:
    """One message, in place."""
    with source.claim(4) as view:
        view[:] = b"mine"


def main() -> None:
    """See the module."""
    global SHORT
    asked: dict[str, Any] = json.loads(sys.argv[1])
    if asked["planted"]:
        Domain.look_at_lock = lambda *_: None  # type: ignore[method-assign]
    texts: list[str] = []

    def on_event(event: Any) -> None:
        if type(event).__name__ == "RegistrationError":
            texts.append(event.text)

    with (
        hf.Context(session_id=asked["session"]) as ctx,
        hf.Context(session_id=asked["session"] + 1, options={"ume_ack_batching_interval": 5}) as other,
    ):
        source = ctx.source("quotes", options=asked["options"], on_event=on_event)
        mate = other.source("trades", options=asked["options"], on_event=on_event)
        receiver = other.receiver("quotes", on_event=on_event)
        source.wait_registered(SHORT)
        mate.wait_registered(SHORT)
        for _ in range(3):
            source.send(b"x")
        source.wait_stable(timeout=SHORT)
        held = [receiver.receive(SHORT) for _ in range(3)]
        say("ready")
        go_on()
        with tempfile.TemporaryDirectory() as copy, contextlib.suppress(shutil.Error):  # sockets cannot be copied
            shutil.copytree(ctx.domain.path, f"{copy}/domain")
        say("read")
        go_on()
        if asked["planted"]:
            SHORT = 1.0  # it goes on, however long it is asked
        refused("source", lambda: source.send(b"y", timeout=0))
        refused("mate", lambda: mate.send_batch(rows(), timeout=0))
        refused("claim", lambda: claim(source))
        refused("receiver", lambda: receiver.receive(timeout=0.01))
        refused("context", hf.Context)
        deadline = time.monotonic() + SHORT
        while len(texts) < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
        say("events", json.dumps(texts))
        for message in held:
            assert message is not None
            message.release()
        say("released")
        go_on()
    say("closed")
    go_on()


def rows() -> Any:
    """For a batch."""
    import numpy as np

    return np.zeros((2, 8), np.uint8)


if __name__ == "__main__":
    main()
