"""A store, or a program with sources and receivers, in a process that reaches its limits when it is told to:

    python -m support.limited_role store DIRECTORY
    python -m support.limited_role program

It reads commands on stdin, a list of words in JSON each, and answers each with a line of JSON. A store does
so on a thread of its own. With ``store DIRECTORY THREADS`` no more threads than that can be started from the
start on. With $ROLE_USER it is that user's, who may read what root may: Python's files.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from support.command_line import SHORT
from support.reached_limits import become, give_room, leave

import holdfast as hf
from holdfast.engine.native.limits import named
from holdfast.engine.native.waiting import readable

__all__ = ["LimitedRole"]

TESTS = Path(__file__).resolve().parents[1]


class LimitedRole:
    """That process, as a test sees it. What it logs is in ``log``."""

    def __init__(self, log: Path, *arguments: str, **environment: str) -> None:
        self.log = log
        with log.open("w") as said:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "support.limited_role", *arguments], cwd=TESTS, stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=said, env={**os.environ, **environment},
            )  # fmt: skip
        self._answer()

    @property
    def pid(self) -> int:
        return self.process.pid

    def __call__(self, *words: object) -> Any:
        """Has it do something, and returns what it answers."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(words).encode() + b"\n")
        self.process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        assert readable(self.process.stdout.fileno(), 2 * SHORT), f"no answer: {self.log.read_text()}"
        line = self.process.stdout.readline()
        assert line, self.log.read_text()
        return json.loads(line)

    def discard(self) -> None:
        """At the end of a test."""
        self.process.kill()
        self.process.communicate()


class _Program:
    """What a program does at a word."""

    def __init__(self) -> None:
        self._context: hf.Context | None = None
        self._children: dict[str, Any] = {}
        self._seen: list[Any] = []

    def context(self) -> str:
        """Makes it. What a call raises is the answer."""
        self._context = hf.Context()
        return ""

    def source(self, topic: str, ring: int) -> str:
        """Makes one, and returns at once."""
        assert self._context is not None
        options = {"ume_store_name": ["a:0:0"], "ring_size": ring}
        self._children[topic] = self._context.source(topic, options=options, on_event=self._seen.append)
        return ""

    def registered(self, topic: str) -> str:
        """Waits until it is."""
        self._children[topic].wait_registered(SHORT)
        return ""

    def send(self, topic: str, text: str) -> str:
        """A message that is stable when this returns."""
        source = self._children[topic]
        source.wait_stable(source.send(text.encode(), timeout=SHORT), SHORT)
        return ""

    def send_to_all(self, count: int) -> str:
        """That many messages from each source, in turn; all are stable when this returns."""
        for number in range(count):
            for source in self._children.values():
                source.send(b"%d" % number, timeout=SHORT)
        for source in self._children.values():
            source.wait_stable(timeout=SHORT)
        return ""

    def receiver(self, topic: str) -> str:
        """Makes one, and returns at once."""
        assert self._context is not None
        self._children[topic] = self._context.receiver(topic, on_event=self._seen.append)
        return ""

    def receive(self, topic: str) -> str:
        """The next message."""
        message = self._children[topic].receive(timeout=SHORT)
        return bytes(message).decode() if message is not None else "nothing"

    def close(self, topic: str) -> str:
        """Closes it, and forgets what it was told."""
        self._children.pop(topic).close()
        self._seen.clear()
        return ""

    def texts(self) -> list[str]:
        """Texts of the events so far."""
        return [event.text for event in self._seen if getattr(event, "text", "")]

    def without_memory(self) -> str:
        """What is told where Python gets none."""
        try:
            raise MemoryError
        except MemoryError as error:
            said = named(error)
        return f"{type(said).__name__}: {said}"

    def heard(self, topic: str) -> str:
        """The next message, or what the first event with a text says, if that comes before."""
        deadline = time.monotonic() + SHORT
        while not self.texts():
            assert time.monotonic() < deadline, "nothing was told, and nothing came"
            message = self._children[topic].receive(timeout=0.05)
            if message is not None:
                return bytes(message).decode()
        return self.texts()[0]


def _serve(program: object) -> None:
    print('"ready"', flush=True)
    for line in sys.stdin:
        what, *words = json.loads(line)
        try:
            answer: object = ""
            if what == "leave":
                leave(*words)
            elif what == "room":
                give_room()
            else:
                answer = getattr(program, what)(*words)
        except BaseException as error:
            answer = f"{type(error).__name__}: {error}"
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    if "ROLE_USER" in os.environ:
        become(int(os.environ["ROLE_USER"]))
    if sys.argv[1] == "store":
        from holdfast.cli import main

        threading.Thread(target=_serve, args=(None,), daemon=True).start()
        if sys.argv[3:]:
            leave("threads", int(sys.argv[3]))
        sys.exit(main(["store", "run", "--name", "a", "--dir", sys.argv[2]]))
    _serve(_Program())
