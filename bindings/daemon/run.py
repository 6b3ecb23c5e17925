"""A store daemon at work: several stores in one process, until a signal or another event (events.py).

Each store has a control thread, which also closes it, so that all of them drain and sync at the same time.
"""

from __future__ import annotations

import logging
import os
import threading
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from ..engine.errors import Error, ReadOnlyError
from ..engine.native.limits import descriptors_to_the_hard_limit
from ..engine.native.threads import start_thread
from ..engine.store.store import Store
from .events import ENDED, ROLL
from .log_file import DaemonLog, local_time, utc_time
from .process import Affinity, PidFile, become

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .config import DaemonConfig
    from .events import Events

__all__ = ["run_daemon"]

_log = logging.getLogger("holdfast.daemon")


def run_daemon(
    config: DaemonConfig,
    events: Events,
    *,
    utc: bool = False,
    affinity: Affinity | None = None,
    level: int = logging.INFO,
    announce: Callable[[Store], None] = lambda _: None,
    ready: Callable[[], None] = lambda: None,
) -> int:
    """Serves until STOP; the main thread only. SIGINT and SIGTERM stop: all is drained and synced; a second
    one ends at once. The soft limit of descriptors is the hard one meanwhile.

    ``level`` is the lowest that is logged. ``announce`` is called for each store that is ready, ``ready``
    when all are. Returns 0, or 1 when a store has failed at work.

    Raises:
        Error: it could not start; nothing runs, and signals are handled as before.
    """
    with ExitStack() as stack:
        stack.enter_context(events.listening())
        stack.enter_context(descriptors_to_the_hard_limit())
        if config.pidfile is not None:
            stack.enter_context(PidFile(config.pidfile))
        become(config.uid, config.gid)
        if affinity is not None:
            affinity.apply()
        log = stack.enter_context(_logging(DaemonLog(config.log, utc_time if utc else local_time), level))
        for warning in config.warnings:
            _log.warning("%s", warning)
        with _Stores(events) as stores:
            for index, one in enumerate(config.stores):
                store = stores.start(Store(one))
                if affinity is not None:
                    affinity.apply_to_store(index, stores.thread_ids(store))
                _log.info('Store "%s" ready to accept registrations', one.name)
                announce(store)
            ready()
            events.ready()
            _wait(events, log)
        return 1 if stores.failed else 0


def _wait(events: Events, log: DaemonLog) -> None:
    while (event := events.get()) == ROLL:
        if log.ask_roll():
            _log.info("the log is rolled: SIGUSR1")
    if event == ENDED:
        _log.critical("a store has failed: the daemon ends")


class _Stores:
    """The stores that run, and their control threads. At the end of ``with`` all are closed."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._running: dict[Store, threading.Thread] = {}
        self.failed = False

    def start(self, store: Store) -> Store:
        """Opens a store and lets it serve."""
        try:
            store.open()
        except BaseException:
            store.close()
            raise
        name = f"holdfast-{store.config.name}"
        thread = threading.Thread(target=self._serve, args=(store,), name=name)
        try:
            start_thread(thread)
        except Error:
            store.close()
            raise
        self._running[store] = thread
        return store

    def _serve(self, store: Store) -> None:
        try:
            store.run()
            self.failed |= store.crashed
        except Exception:
            self.failed = True
            _log.exception("store %s failed", store.config.name)
        finally:
            self._events.put(ENDED)
            self._close(store)

    def _close(self, store: Store) -> None:
        try:
            store.close()
            _log.info('Store "%s" is closed', store.config.name)
        except ReadOnlyError as error:
            self.failed = True
            _log.error("store %s is closed, and what has changed is not in its state: %s", store.config.name, error)
        except Exception:
            self.failed = True
            _log.exception("store %s could not be closed", store.config.name)

    def thread_ids(self, store: Store) -> tuple[int, ...]:
        """Native ids of a store's threads: drain, control, helper."""
        drain, helper = store.drainer.thread_ids()
        return drain, self._running[store].native_id or 0, helper

    def __enter__(self) -> _Stores:
        return self

    def __exit__(self, *_: object) -> None:
        for store in self._running:
            store.stop()
        for thread in self._running.values():
            thread.join()


@contextmanager
def _logging(handler: DaemonLog, level: int) -> Iterator[DaemonLog]:
    """Everything that this process logs goes there."""
    root = logging.getLogger()
    before = root.level
    root.addHandler(handler)
    root.setLevel(level)
    _log.info("holdfast store daemon, pid %d", os.getpid())
    try:
        yield handler
    finally:
        root.removeHandler(handler)
        root.setLevel(before)
        handler.close()
