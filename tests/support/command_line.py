"""The command line as a person uses it, for tests: the real program, its output and its exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from holdfast.engine.native.waiting import readable

if TYPE_CHECKING:
    from collections.abc import Callable

SHORT = 90.0
"""Seconds that no wait here needs; a test that gets there has failed."""
COMMAND = [sys.executable, "-m", "holdfast"]


class Program:
    """One run of ``holdfast``."""

    def __init__(self, *arguments: str, stdin: bytes | int | None = None, **environment: str) -> None:
        self.seen = ""
        """What line() has read of its output."""
        given = subprocess.PIPE if isinstance(stdin, bytes) else subprocess.DEVNULL if stdin is None else stdin
        self.process = subprocess.Popen(
            [*COMMAND, *arguments], stdin=given, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env={**os.environ, **environment},
        )  # fmt: skip
        if isinstance(stdin, bytes):
            assert self.process.stdin is not None
            self.process.stdin.write(stdin)
            self.process.stdin.close()
            self.process.stdin = None

    def end(self) -> tuple[int, str, str]:
        """Waits for its end: exit code, stdout, stderr."""
        out, err = self.process.communicate(timeout=SHORT)
        return self.process.returncode, out.decode(), err.decode()

    def line(self, stream: str = "stdout") -> str:
        """The next line of its output."""
        pipe = getattr(self.process, stream)
        deadline = time.monotonic() + SHORT
        line = b""
        while not line.endswith(b"\n"):
            ready = readable(pipe.fileno(), deadline - time.monotonic())
            assert ready, f"no line on {stream}, only {line!r}"
            got = os.read(pipe.fileno(), 1)
            assert got, f"{stream} ended: {line!r}"
            line += got
        self.seen += line.decode()
        return line.decode().rstrip("\n")

    def signal(self, number: int) -> None:
        self.process.send_signal(number)


def run(*arguments: str, stdin: bytes | None = None, **environment: str) -> tuple[int, str, str]:
    return Program(*arguments, stdin=stdin, **environment).end()


def stat() -> dict[str, Any]:
    code, out, err = run("stat", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert isinstance(found, dict)
    return found


def until(what: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Looks at ``stat`` until ``what`` is true of it."""
    deadline = time.monotonic() + SHORT
    while time.monotonic() < deadline:
        seen = stat()
        if what(seen):
            return seen
    raise AssertionError(f"never came: {seen}")


def one_error(result: tuple[int, str, str], code: int, *words: str) -> None:
    """Exit code, nothing on stdout, one line of error with these words, at most one of hint."""
    got, out, err = result
    lines = err.splitlines()
    assert (got, out) == (code, ""), err
    assert lines[0].startswith("error: ")
    assert all(word in err for word in words), err
    assert len(lines) == 1 or (len(lines) == 2 and lines[1].startswith("hint: ")), err
