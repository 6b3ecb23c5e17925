"""The other processes of the Python rows: a store, and the far side of a measurement, driven over a pipe.

measuring process (core 0) <-- pipe: "do it", "done" --> far process (core 1)
          \\--------------- holdfast ---------------/          store process (core 1, `holdfast store run`)

The far process sleeps on its pipe between two readings, so that the probe has both cores to itself.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import shutil
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import holdfast as hf
from holdfast.engine.memory.domain import SHM_DIR, Domain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.connection import Connection
    from pathlib import Path

    from .harness import Bench

    Body = Callable[[Connection, hf.Context], None]

DOMAIN = "perf"
TIMEOUT_S = 10.0
END_S = 2.0
SPIN = {"wait_strategy": "busy_spin"}
FRAME_BYTES = 32
"""What holdfast puts before each payload."""


def store_options(name: str) -> dict[str, object]:
    """Options of a source that registers with one store."""
    return {"ume_store_name": [f"{name}:0:0"], "ume_store_group": ["0:1"]}


@contextmanager
def domain(bench: Bench) -> Iterator[None]:
    """A domain directory of this run's own, for this process and those that it starts; goes with the bench's
    own."""
    before = os.environ.get("HOLDFAST_DIR")
    place = bench.memory / "domain"
    place.mkdir(mode=0o700, exist_ok=True)
    os.environ["HOLDFAST_DIR"] = str(place)
    try:
        yield
    finally:
        _remove_objects()
        if before is None:
            del os.environ["HOLDFAST_DIR"]
        else:
            os.environ["HOLDFAST_DIR"] = before


def _remove_objects() -> None:
    """What outlives its processes on purpose: boards, rings, logs of memory stores. Nothing of this domain
    runs any more."""
    own = Domain(DOMAIN, join=False)
    own.close()
    for path in SHM_DIR.glob(f"{own.prefix}*"):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


@contextmanager
def running_store(bench: Bench, name: str, kind: str) -> Iterator[int]:
    """A store process of type ``memory`` or ``disk``, its directory where that type belongs; stopped at the
    end.

    Gives its process ID. Raises RuntimeError with the store's own words if it does not start.
    """
    place = (bench.memory if kind == "memory" else bench.disk) / f"store-{name}"
    log = bench.memory / f"store-{name}.log"
    command = [sys.executable, "-m", "holdfast", "store", "run"]
    command += ["--name", name, "--dir", str(place), "--type", kind, "--domain", DOMAIN]
    with log.open("wb") as output, bench.pinned_to(1):
        store = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        _wait_ready(store, log)
        yield store.pid
    finally:
        store.terminate()
        try:
            store.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            store.kill()
            store.wait()


def _wait_ready(store: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while "is ready" not in log.read_text():
        if store.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the store did not start: {log.read_text().strip()}")
        time.sleep(0.01)


class Far:
    """A process that runs ``body(connection, context)`` pinned to the other core, in the run's domain."""

    def __init__(self, bench: Bench, body: Body, options: dict[str, Any] | None = None) -> None:
        """Start it and wait until it says that it is ready. Raises RuntimeError if it ends instead."""
        ways = multiprocessing.get_context("spawn")
        self.connection, theirs = ways.Pipe()
        core = bench.core(1) if bench.pinned else None
        self._process = ways.Process(target=_far_main, args=(theirs, body, core, options or {}), daemon=True)
        self._process.start()
        theirs.close()
        self.expect("ready")

    def tell(self, what: object) -> None:
        """Send one object."""
        self.connection.send(what)

    def expect(self, what: str | None = None) -> Any:
        """Its next object. Raises RuntimeError if it is not ``what``, is late, or the process has ended."""
        if not self.connection.poll(TIMEOUT_S):
            raise RuntimeError("the far process does not answer")
        try:
            said = self.connection.recv()
        except EOFError:
            raise RuntimeError("the far process has ended") from None
        if what is not None and said != what:
            raise RuntimeError(f"the far process said {said!r} instead of {what!r}")
        return said

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid or 0

    def close(self) -> None:
        """End it: closing the pipe is the signal, where it is not waiting for messages that will not come."""
        self.connection.close()
        self._process.join(END_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def __enter__(self) -> Far:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        self.close()


def _far_main(connection: Connection, body: Body, core: int | None, options: dict[str, Any]) -> None:
    if core is not None:
        os.sched_setaffinity(0, {core})
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with contextlib.suppress(EOFError, BrokenPipeError), hf.Context(domain=DOMAIN, options=options) as context:
        body(connection, context)


def _end_with_parent() -> None:
    """Nobody is left to read a pipe or to send a message that a spinning wait would notice."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)
