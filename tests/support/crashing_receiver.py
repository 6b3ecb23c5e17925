"""A receiver in a process of its own that is killed with messages in hand."""

from __future__ import annotations

import json
import subprocess
import sys

SHORT = 90.0

CRASHING = """
import contextlib, json, os, sys
import holdfast as hf
options, context_options, count = json.loads(sys.argv[1])
ctx = hf.Context(name="crashing", options=context_options)
rcv = ctx.receiver("quotes", options=options)
held = {}
while len(held) < count:
    with contextlib.suppress(hf.RegIdInUseError):
        message = rcv.receive(timeout=90)
        held[message.sequence_number] = message
print("ready", flush=True)
for line in sys.stdin:
    verb, number = line.split()
    number = int(number)
    if verb == "release":
        held[number].release()
    elif verb == "ack":
        held[number].send_explicit_ack()
    elif verb == "wait":
        while max(rcv.stats().acknowledged.values()) < number:
            pass
    print(max(rcv.stats().acknowledged.values()), flush=True)
"""


class Crashing:
    """A receiver in another process that holds the first ``count`` messages, does what it is told, and is
    killed -9."""

    def __init__(self, options: dict[str, object], context_options: dict[str, int], count: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", CRASHING, json.dumps([options, context_options, count])],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self._read() == "ready"

    def _read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def do(self, verb: str, *numbers: int) -> int:
        """``release``, ``ack`` or ``wait`` for each number; what was acknowledged after the last."""
        assert self._process.stdin is not None
        answer = ""
        for number in numbers:
            self._process.stdin.write(f"{verb} {number}\n")
            self._process.stdin.flush()
            answer = self._read()
        return int(answer)

    def crash(self) -> None:
        self._process.kill()
        self._process.wait(SHORT)

    def __enter__(self) -> Crashing:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate(timeout=SHORT)
