"""A receiving context in a process of its own: ``python -m support.listening_context SETTINGS``.

SETTINGS is JSON: ``{"session_id": 42, "options": {...}, "topics": ["a", "b"]}``. It does what it is told by
lines on its standard input, and says when it has.
"""

from __future__ import annotations

import json
import os
import sys
import time

import holdfast as hf

WAIT_S = 90.0


def joined(topic: str, ctx: hf.Context) -> hf.Receiver:
    """A receiver that has registered with its source."""
    done: list[object] = []
    receiver = ctx.receiver(topic, on_event=done.append)
    deadline = time.monotonic() + WAIT_S
    while not any(isinstance(event, hf.events.receiver.RegistrationComplete) for event in done):
        assert time.monotonic() < deadline, f"no source of {topic}"
        time.sleep(0.005)
    return receiver


def main() -> None:
    """Joins, then obeys."""
    settings = json.loads(sys.argv[1])
    ctx = hf.Context(session_id=settings["session_id"], options=settings["options"])
    receivers = [joined(topic, ctx) for topic in settings["topics"]]
    print("ready", flush=True)
    for line in sys.stdin:
        match line.strip():
            case "close one":
                receivers.pop().close()
            case "close":
                ctx.close()
            case "fork":
                child = os.fork()
                if not child:
                    while os.getppid() != 1:  # its parent's sockets, files and mappings stay open meanwhile
                        time.sleep(0.01)
                    time.sleep(WAIT_S)
                    os._exit(0)
                print(child, flush=True)
                continue
        print("done", flush=True)


if __name__ == "__main__":
    main()
