"""A process that claims a RegID: says what the store answers, holds on to what it got, and ends when its
input does.

    python claimant.py '{"role": "source", "session": 42, "options": {...}, "fork": false}'

Lines on stdout: ``refused PID SINCE TEXT`` per refusal, ``granted REGID`` once; ``forked PID`` of a child
that keeps every descriptor open.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import warnings
from typing import Any

import holdfast as hf


def say(*words: object) -> None:
    """One line."""
    print(*words, flush=True)


def fork() -> None:
    """A child that keeps all descriptors, and does nothing until it is killed."""
    warnings.simplefilter("ignore", DeprecationWarning)
    pid = os.fork()
    if not pid:
        os.closerange(0, 3)
        while True:
            signal.pause()
    say("forked", pid)


def main() -> None:
    """See the module."""
    asked: dict[str, Any] = json.loads(sys.argv[1])
    granted = threading.Event()

    def on_event(event: Any) -> None:
        kind = type(event).__name__
        if kind == "RegistrationError":
            say("refused", event.pid, event.since, event.text)
        elif kind == "RegistrationSuccess":
            say("granted", getattr(event, "registration_id", None) or event.receiver_registration_id)
        elif kind == "RegistrationComplete":
            granted.set()

    with hf.Context(session_id=asked.get("session", 0)) as ctx:
        if asked["role"] == "source":
            ctx.source("quotes", options=asked["options"], on_event=on_event)
        else:
            ctx.receiver("quotes", options=asked["options"], on_event=on_event)
        if asked.get("fork"):
            granted.wait()
            fork()
        sys.stdin.read()


if __name__ == "__main__":
    main()
