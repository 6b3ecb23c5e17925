"""A product's server process: on the receivers' core, in a folder of its own, and never left behind."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import time
from typing import TYPE_CHECKING

from .peer import Peer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .peer import Place

START_S = 30.0
END_S = 5.0
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None)


class Server:
    """A running one."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self.pid = process.pid

    def close(self) -> None:
        """Ask it to end, then make it."""
        self._process.terminate()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Served(Peer):
    """A product with a server."""

    def serve(self, command: Sequence[str], ready: str) -> None:
        """Launch it (see launch)."""
        self._server = launch(command, self.place, ready)
        self.servers = [self._server.pid]

    def stop(self) -> None:
        """End it."""
        self._server.close()


def launch(command: Sequence[str], place: Place, ready: str) -> Server:
    """Start it and wait until it has printed that word.

    It ends with this process at the latest. Raises RuntimeError with what it printed if it ends or takes too
    long.
    """
    log = place.folder / "server.log"
    cores = {place.core} if place.core is not None else os.sched_getaffinity(0)

    def settle() -> None:
        os.sched_setaffinity(0, cores)
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=place.folder, preexec_fn=settle
        )
    server = Server(process)
    deadline = time.monotonic() + START_S
    while ready not in log.read_text(errors="replace"):
        if process.poll() is not None or time.monotonic() > deadline:
            server.close()
            raise RuntimeError(f"{command[0]} did not start: {log.read_text(errors='replace').strip()[-500:]}")
        time.sleep(0.01)
    return server


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
