"""Puts the simulated world below the engine. To be imported before anything else of holdfast, in a process of
its own: the engine keeps what it was imported with."""

from __future__ import annotations

import importlib.util
import os
import sys
from types import ModuleType

if "holdfast" in sys.modules:
    raise ImportError("holdfast is imported already, with the real world below it")
os.environ["HOLDFAST_SIMULATED"] = "1"
_spec = importlib.util.find_spec("holdfast")
assert _spec is not None
# Importing a part imports the whole before it, with the real world below: so for now the whole is empty.
sys.modules["holdfast"] = _empty = ModuleType("holdfast")
_empty.__path__ = list(_spec.submodule_search_locations or [])

import queue as real_queue
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from holdfast.engine.native import runtime
from simulator import paths, sockets, system, threads
from simulator.world import world

if TYPE_CHECKING:
    from collections.abc import Callable


class OfProcess:
    """As runtime.OfProcess: simulated processes have it for themselves."""

    def __init__(self, make: Callable[[], Any], leave: object = None) -> None:
        del leave
        self._make = make
        self._alone = make()
        """Of the world itself: the judge's."""

    def __class_getitem__(cls, _: object) -> type[OfProcess]:
        return cls

    @property
    def value(self) -> Any:
        """Of the process that runs."""
        if world.current is None:
            return self._alone
        values = world.current.process.values
        if self not in values:
            values[self] = self._make()
        return values[self]


REPLACED: dict[str, Any] = {
    "OfProcess": OfProcess,
    "Path": paths.Path,
    "fcntl": system.fcntl,
    "futures": SimpleNamespace(
        Future=threads.Future, ThreadPoolExecutor=threads.ThreadPoolExecutor, wait=threads.wait
    ),
    "os": system.os,
    "posix_ipc": system.posix_ipc,
    "queue": SimpleNamespace(SimpleQueue=threads.SimpleQueue, Empty=real_queue.Empty),
    "resource": system.resource,
    "secrets": system.secrets,
    "select": None,
    "selectors": sockets.selectors,
    "shutil": paths.shutil,
    "socket": sockets.socket,
    "threading": SimpleNamespace(
        Lock=threads.Lock, RLock=threads.RLock, Condition=threads.Condition, Event=threads.Event, Thread=threads.Thread,
        current_thread=threads.current_thread, get_ident=threads.get_ident,
    ),
    "time": system.time,
}  # fmt: skip
if set(REPLACED) != set(runtime.__all__):
    raise ImportError(f"not replaced, or not asked for: {sorted(set(REPLACED) ^ set(runtime.__all__))}")
for name, replaced in REPLACED.items():
    setattr(runtime, name, replaced)
del sys.modules["holdfast"]
