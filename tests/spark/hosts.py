"""Several hosts on this one: each a mount and a UTS namespace with a name, a boot, shared memory, domains and
stores of its own.

Paths are the same on all of them, as they are where one installation is rolled out; what they lead to is not.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path
from typing import IO, Any, Self

__all__ = ["Host", "Program", "cluster_environment", "why_no_hosts"]

TESTS = Path(__file__).parents[1]
PATIENCE_S = 420.0
"""No wait here needs as long; a test that gets there has failed."""
BECOME = """
set -e
hostname "$1"
mount --make-rprivate /
mount --bind "$2/boot_id" /proc/sys/kernel/random/boot_id
mount --bind "$2/hosts" /etc/hosts
mount --bind "$2/own" "$3"
mount -t tmpfs tmpfs /dev/shm
echo here
exec sleep infinity
"""


def why_no_hosts() -> str:
    """Why there can be no such hosts here, or nothing."""
    if os.geteuid() != 0:
        return "namespaces of hosts need root"
    if not (shutil.which("unshare") and shutil.which("nsenter")):
        return "namespaces of hosts need unshare and nsenter (util-linux)"
    tried = subprocess.run(
        ["unshare", "-m", "-u", "sh", "-c", "mount --make-rprivate / && hostname elsewhere && mount -t tmpfs tmpfs /dev/shm"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return f"no namespaces of hosts: {tried.stderr.strip()}" if tried.returncode else ""


class Program:
    """A program of a host; what it prints is kept. Killed at the end, with the processes of its session."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self.process: subprocess.Popen[str] = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            start_new_session=True,
        )  # fmt: skip
        self.lines: list[str] = []
        self._more = threading.Condition()
        self._ended = False
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        pipe: IO[str] | None = self.process.stdout
        assert pipe is not None
        for line in pipe:
            with self._more:
                self.lines.append(line)
                self._more.notify_all()
        with self._more:
            self._ended = True
            self._more.notify_all()

    @property
    def said(self) -> str:
        """All of its output so far."""
        return "".join(self.lines)

    def wait_line(self, pattern: str) -> re.Match[str]:
        """The first line in which this is found."""
        deadline, at = time.monotonic() + PATIENCE_S, 0
        with self._more:
            while True:
                for line in self.lines[at:]:
                    if found := re.search(pattern, line):
                        return found
                at = len(self.lines)
                assert not self._ended, f"it has ended, and never said {pattern}:\n{self.said[-6000:]}"
                left = deadline - time.monotonic()
                assert left > 0, f"it never said {pattern}:\n{self.said[-6000:]}"
                self._more.wait(left)

    def tell(self, line: str) -> None:
        """A line of input."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        """Idempotent."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self._reader.join()
        self.process.communicate()  # closes its pipes


class Host:
    """``with Host(...)``. ``shared``: the directory that each host has its own of."""

    def __init__(self, name: str, where: Path, shared: Path) -> None:
        self.name = name
        self._where, self._shared = where, shared
        self._programs: list[Program] = []
        (where / "own").mkdir(parents=True)
        (where / "boot_id").write_text(f"{uuid.uuid4()}\n")
        (where / "hosts").write_text(f"127.0.0.1 localhost {name}\n")  # Java looks its own name up
        shared.mkdir(exist_ok=True)

    def __enter__(self) -> Self:
        become = ["unshare", "-m", "-u", "sh", "-c", BECOME, "sh", self.name, str(self._where), str(self._shared)]
        self._holder = Program(become, dict(os.environ))
        self._holder.wait_line("^here$")
        return self

    def start(self, *command: str, **environment: str) -> Program:
        """Starts a program there."""
        enter = ["nsenter", "-t", str(self._holder.process.pid), "-m", "-u", "--", *command]
        self._programs.append(Program(enter, {**os.environ, **environment}))
        return self._programs[-1]

    def run(self, code: str, *arguments: str, **environment: str) -> str:
        """What a Python program prints there."""
        program = self.start(sys.executable, "-c", code, *arguments, **environment)
        program.wait_line("^done$")
        program.process.wait(PATIENCE_S)
        return program.said

    def __exit__(self, *_: Any) -> None:
        for program in reversed(self._programs):
            program.kill()
        self._holder.kill()


def cluster_environment(where: Path) -> dict[str, str]:
    """Of the daemons of a small standalone cluster."""
    import pyspark

    where.mkdir(exist_ok=True)
    home = Path(pyspark.__file__).parent
    return {
        "SPARK_HOME": str(home),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "SPARK_LOCAL_DIRS": str(where),
        "SPARK_NO_DAEMONIZE": "1",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(map(str, (TESTS, *filter(None, sys.path)))),
    }
