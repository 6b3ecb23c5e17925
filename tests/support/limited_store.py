"""A store process with few descriptors."""

from __future__ import annotations

import os
import re
import subprocess
import time
from typing import TYPE_CHECKING

from support.command_line import COMMAND, SHORT

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["MOST", "OPTIONS", "LimitedStore", "named"]

MOST = 256
OPTIONS = {"ume_store_name": ["a:0:0"], "ring_size": 1 << 16}


class LimitedStore:
    """A store process with this limit of descriptors, soft and hard; what it logs is in a file."""

    def __init__(self, directory: Path, soft: int, hard: int) -> None:
        self.log = directory / "a.log"
        command = ["sh", "-c", f'ulimit -Sn {soft} && ulimit -Hn {hard} && exec "$@"', "sh", *COMMAND, "store", "run"]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [*command, "--name", "a", "--dir", str(directory / "a")], stdout=subprocess.DEVNULL, stderr=log
            )
        self.said("store a is ready")

    @property
    def pid(self) -> int:
        return self.process.pid

    def said(self, what: str) -> list[str]:
        """The lines of its log with this, waited for."""
        deadline = time.monotonic() + SHORT
        while not (found := self.lines(what)):
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.01)
        return found

    def lines(self, what: str) -> list[str]:
        return [line for line in self.log.read_text().splitlines() if what in line]

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))


def named(text: str, pid: int, most: int = MOST) -> None:
    assert re.search(rf"RLIMIT_NOFILE of process {pid} is {most}, \d+ are used", text), text
    assert "ulimit -n" in text
