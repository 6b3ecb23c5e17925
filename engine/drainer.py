"""The store's drain thread: runs csrc/drain.c over all repositories, and everything else that touches a log or a reader.

Other threads hand it work with :meth:`Drainer.call`; it runs between two rounds, so that a repository needs no lock. A helper
thread makes the next segment of each log ahead of time.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, TypeVar

from .core import ffi, lib
from .errors import Error
from .status import check

if TYPE_CHECKING:
    from collections.abc import Callable

    from .repository import Repository
    from .segments import Bells

__all__ = ["Drainer"]

_log = logging.getLogger("holdfast.store")
_T = TypeVar("_T")

ROUND_NS = 50_000_000
TEND_NS = 200_000_000
"""How often streams are looked at for gone owners."""
COMMIT_BYTES = 16 << 20
"""A group commit is not delayed beyond this much appended data."""
RETRY_NS = 100_000_000
"""Pause before a log that ran out of space is tried again."""


class Drainer:
    """Owns the repositories of one store. ``start`` and ``stop`` once each."""

    def __init__(self, bells: Bells, strategy: int) -> None:
        self.bells = bells
        self.repositories: dict[bytes, Repository] = {}
        self.failures: dict[bytes, str] = {}
        """Source uuid -> why its log takes nothing at the moment."""
        self._strategy = strategy
        self._kick = ffi.new("uint32_t *")
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._stopping = False
        self._staging = ffi.new("uint8_t[]", lib.HF_STAGING_MAX)
        self._thread = threading.Thread(target=self._run, name="holdfast-drain", daemon=True)
        self._helper = threading.Thread(target=self._prepare, name="holdfast-segments", daemon=True)
        self._spare_wanted = threading.Event()
        self._preparing = threading.Lock()
        self._syncers = ThreadPoolExecutor(4, thread_name_prefix="holdfast-sync")
        self._retry_ns: dict[bytes, int] = {}
        self.on_crash: Callable[[], None] = lambda: None
        self._crash: BaseException | None = None

    def start(self) -> None:
        """Starts both threads."""
        self._thread.start()
        self._helper.start()

    def stop(self) -> None:
        """Ends a last round, closes the repositories (which syncs them), and ends both threads."""
        self._stopping = True
        self._wake()
        self._spare_wanted.set()
        self._thread.join()
        self._helper.join()
        self._syncers.shutdown()

    def call(self, work: Callable[[], _T]) -> _T:
        """Runs ``work`` on the drain thread and returns its result, or raises what it raised."""
        future: Future[_T] = Future()

        def run() -> None:
            if self._crash is not None:
                future.set_exception(self._crash)
                return
            try:
                future.set_result(work())
            except BaseException as error:
                future.set_exception(error)

        self._calls.put(run)
        self._wake()
        while not future.done():
            if not self._thread.is_alive():  # not started yet, or over: nobody else touches a repository
                self._run_calls()
            wait((future,), timeout=0.25)
        return future.result()

    def remove(self, uuid: bytes) -> None:
        """Closes a source's repository; on the drain thread. Its log is nobody's then."""
        with self._preparing:  # the helper thread may be making a segment of it
            repository = self.repositories.pop(uuid, None)
            if repository is not None:
                repository.close()
        self.failures.pop(uuid, None)
        self._retry_ns.pop(uuid, None)

    def _run_calls(self) -> None:
        while True:
            try:
                call = self._calls.get_nowait()
            except queue.Empty:
                return
            call()

    def _wake(self) -> None:
        self._kick[0] = 1
        self.bells.ring()

    # The drain thread -----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._drain()
        except BaseException as error:
            # Nothing that was stable is touched by this; the process ends, and the next one recovers from the directory.
            _log.critical("the drain thread failed: the store stops", exc_info=True)
            self._crash = error
            self.on_crash()
        self._run_calls()
        with self._preparing:
            for repository in self.repositories.values():
                repository.close()
            self.repositories.clear()

    def _drain(self) -> None:
        tended = 0
        while not self._stopping:
            self._kick[0] = 0
            self._run_calls()
            now = time.monotonic_ns()
            if now - tended >= TEND_NS:
                tended = now
                self._tend(now)
            self._round()

    def _round(self) -> None:
        busy = [repo for repo in self.repositories.values() if repo.stream and repo.item.status == lib.HF_OK]
        items = ffi.new("struct hf_drain_item *[]", [repo.item for repo in busy])
        rolls = sum(repo.item.rolls for repo in busy)
        several = len(busy) > 1 and any(repo.level == lib.HF_LEVEL_DISK for repo in busy)
        stopped = check(
            lib.hf_drain(
                items, len(busy), self._staging, ffi.sizeof(self._staging), COMMIT_BYTES, self._kick,
                self.bells.handle, self.bells.index, self._strategy, ROUND_NS, several,
            )
        )  # fmt: skip
        if sum(repo.item.rolls for repo in busy) != rolls:
            self._spare_wanted.set()
        if stopped:
            self._mend([repo for repo in busy if repo.item.status != lib.HF_OK])

    def _mend(self, stopped: list[Repository]) -> None:
        unsynced = [repo for repo in stopped if repo.item.status == lib.HF_AGAIN]
        if unsynced:
            for repo, status in zip(
                unsynced, self._syncers.map(lambda repo: lib.hf_drain_commit(repo.item), unsynced), strict=True
            ):
                repo.item.status = status if status < 0 else lib.HF_OK
        for repo in stopped:
            status = repo.item.status
            if status == lib.HF_LAPPED:
                repo.catch_up()
            elif status == lib.HF_SMALL and ffi.sizeof(self._staging) < repo.largest_block:
                self._staging = ffi.new("uint8_t[]", repo.largest_block)
                repo.item.status = lib.HF_OK
            elif status not in {lib.HF_OK, lib.HF_CLOSED}:
                self._failed(repo, status)

    def _failed(self, repo: Repository, status: int) -> None:
        """A log that cannot take more: it leaves the quorum by standing still, and is tried again where that can help."""
        uuid = repo.source.uuid
        try:
            check(status, what=str(repo.path))
        except (Error, OSError) as error:
            if self.failures.get(uuid) != str(error):
                _log.error("%s", error)
            self.failures[uuid] = str(error)
        if status != lib.HF_POISONED and status != lib.HF_DAMAGED:
            self._retry_ns[uuid] = time.monotonic_ns() + RETRY_NS

    def _tend(self, now_ns: int) -> None:
        for uuid, repo in self.repositories.items():
            if self._retry_ns.get(uuid, now_ns + 1) <= now_ns:
                del self._retry_ns[uuid]
                repo.item.status = lib.HF_OK
            elif repo.item.status == lib.HF_OK and uuid in self.failures and repo.drained():
                del self.failures[uuid]
            if repo.stream is not None and repo.owner_gone() and repo.drained():
                repo.leave()
                repo.resume()
            repo.tidy()

    # The helper thread ----------------------------------------------------------------------------------------------------

    def want_spares(self) -> None:
        """Some log needs its next segment ahead of time."""
        self._spare_wanted.set()

    def _prepare(self) -> None:
        while not self._stopping:
            self._spare_wanted.wait()
            self._spare_wanted.clear()
            with self._preparing:
                for repo in list(self.repositories.values()):
                    if self._stopping:
                        return
                    if repo.log:
                        self._prepare_one(repo)

    @staticmethod
    def _prepare_one(repo: Repository) -> None:
        status = lib.hf_log_prepare(repo.log)
        if status < 0:  # the roll will meet it, and say so where it matters
            _log.debug("%s: the next segment could not be prepared: %d", repo.path, status)
