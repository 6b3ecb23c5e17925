"""The operating system, as the engine sees it: clocks, threads, locks, queues, pools, files, sockets, random
bytes.

The engine takes each of these modules from here and from nowhere else (tests/test_runtime.py), under its own
name. Whoever puts other ones in their place, before the rest of the engine is imported, runs the engine in
another world: the simulator (tests/simulator) has clocks that step, threads that it schedules, and
disks that lie. The compiled core has the same door at its link (csrc/build_core.py).
"""

from __future__ import annotations

import fcntl
import os
import queue
import resource
import secrets
import select
import selectors
import shutil
import socket
import threading
import time
from concurrent import futures
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

import posix_ipc

from .core import lib

if TYPE_CHECKING:
    import asyncio as asyncio
    from collections.abc import Callable

__all__ = [
    "OfProcess", "Path", "fcntl", "futures", "os", "posix_ipc", "queue", "resource", "secrets", "select", "selectors",
    "shutil", "socket", "threading", "time",
]  # fmt: skip

_T = TypeVar("_T")


def __getattr__(name: str) -> object:
    """asyncio, for who awaits: its import takes as long as the engine's."""
    if name != "asyncio":
        raise AttributeError(name)
    import asyncio

    return asyncio


class OfProcess(Generic[_T]):
    """A value that each process has for itself: ``make()`` when it is first asked for, and in a forked child
    ``make()`` once more, whoever forks and however (csrc/base/process.h: the token).

    ``leave`` takes what the parent had, in the child: descriptors that it must not keep.
    """

    def __init__(self, make: Callable[[], _T], leave: Callable[[_T], None] | None = None) -> None:
        self._make, self._leave = make, leave
        self._made: tuple[int, _T] | None = None
        os.register_at_fork(after_in_child=self._renew)

    @property
    def value(self) -> _T:
        """This process's."""
        made = self._made
        if made is not None and not lib.hf_process_forked(made[0]):
            return made[1]
        return self._renew()

    def _renew(self) -> _T:
        left = self._made
        self._made = int(lib.hf_process_token()), self._make()
        if left is not None and self._leave is not None:
            self._leave(left[1])
        return self._made[1]
