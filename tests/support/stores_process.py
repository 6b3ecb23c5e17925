"""Several stores in one process, started and stopped one by one: ``python stores_process.py SETTINGS`` (House
writes them, as JSON).

Commands on stdin: ``start NAME``, ``stop NAME``; answers: ``ready NAME``, ``stopped NAME``. It ends with its
input.
"""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import signal
    from collections.abc import Iterable

HOUSE = Path(__file__).resolve()
SHORT = 90.0


class House:
    """Such a process, as a test sees it. ``stores``: StoreConfig's arguments but name and directory, by the
    store's name."""

    def __init__(self, where: Path, stores: dict[str, dict[str, Any]]) -> None:
        self.names = list(stores)
        self._settings = json.dumps({name: {"directory": str(where / name), **more} for name, more in stores.items()})
        self._process: subprocess.Popen[str] | None = None
        self._said: queue.SimpleQueue[str] = queue.SimpleQueue()

    def open(self, names: Iterable[str] | None = None) -> None:
        """Starts the process, and these of its stores (all)."""
        self._process = subprocess.Popen(
            [sys.executable, str(HOUSE), self._settings], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._reader = threading.Thread(target=self._read, args=(self._process,))
        self._reader.start()
        self.tell("start", *(self.names if names is None else names))

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self._said.put(line.strip())

    def tell(self, command: str, *names: str) -> None:
        """``start`` or ``stop``; returns when it is done."""
        assert self._process is not None
        assert self._process.stdin is not None
        for name in names:
            self._process.stdin.write(f"{command} {name}\n")
        self._process.stdin.flush()
        done = {"start": "ready", "stop": "stopped"}[command]
        for name in names:
            assert self._said.get(timeout=SHORT) == f"{done} {name}"

    def signal(self, number: signal.Signals) -> None:
        """To the process."""
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """kill -9, also while it stands still; idempotent."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        self._reader.join()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


def main() -> None:
    """See the module."""
    from process.conftest import ThreadStore

    from holdfast.engine.options.store_config import StoreConfig

    settings: dict[str, dict[str, Any]] = json.loads(sys.argv[1])
    running: dict[str, ThreadStore] = {}
    for line in sys.stdin:
        command, name = line.split()
        if command == "start":
            running[name] = ThreadStore(StoreConfig(name, **settings[name]))
            print("ready", name, flush=True)
        else:
            running.pop(name).stop()
            print("stopped", name, flush=True)
    for store in running.values():
        store.stop()


if __name__ == "__main__":
    sys.path.insert(0, str(HOUSE.parents[1]))
    main()
