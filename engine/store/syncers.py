"""Threads that sync several logs at a time. Where they cannot be started, one log is synced after the other,
and the next time that there are several it is tried again."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeVar

from ..native.runtime import futures, threading
from ..native.threads import no_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Syncers"]

_log = logging.getLogger("holdfast.store")
_T = TypeVar("_T")
_R = TypeVar("_R")

MOST = 4
_Pool = futures.ThreadPoolExecutor
"""Imported by being looked up: now, because a daemon that has become another user may not read Python's
files."""


class Syncers:
    """Of the store that is called ``name``; for its drain thread."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._pool = _new_pool()
        self._started = self._told = False

    def map(self, work: Callable[[_T], _R], items: Sequence[_T]) -> list[_R]:
        """``work`` of each, in order. A pool that fails to start a thread has taken the work and may do it
        later, so it gets none before all its threads run."""
        if len(items) > 1 and self._start():
            return list(self._pool.map(work, items))
        return [work(each) for each in items]

    def _start(self) -> bool:
        if self._started:
            return True
        begin = threading.Event()
        try:
            for _ in range(MOST):  # each holds a thread until all have one
                self._pool.submit(begin.wait)
            self._started = True
        except (RuntimeError, MemoryError):
            if not self._told:
                self._told = True
                error = no_thread("threads that sync")
                _log.warning("store %s: logs are synced one after the other: %s", self._name, error)
        finally:
            begin.set()
            if not self._started:  # it counts the thread that failed, and has kept what that was to do
                self._pool.shutdown()
                self._pool = _new_pool()
        return self._started

    def close(self) -> None:
        """Ends the threads."""
        self._pool.shutdown()


def _new_pool() -> futures.ThreadPoolExecutor:
    return _Pool(MOST, thread_name_prefix="holdfast-sync")
