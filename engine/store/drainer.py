"""The store's drain thread: runs csrc/store/drain.c over all repositories, and everything else that touches a
log or a reader.

Other threads hand it work with :meth:`Drainer.call`; it runs between two rounds, so that a repository needs
no lock. A helper thread makes the next segment of each log ahead of time, and looks after what the logs have
(engine/store/scrub.py).
"""

from __future__ import annotations

import logging
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from ..errors import CorruptionError, Error, FencedError, LimitReachedError, TurnHeldError, no_room
from ..native.core import ffi, lib
from ..native.limits import named
from ..native.runtime import futures, queue, threading, time
from ..native.status import check, error_of
from ..native.threads import start_thread
from ..rules.halts import Halt
from ..rules.log_sizes import COMMIT_BYTES
from ..rules.scrub_schedule import Range
from . import news
from .scrub import Scrub
from .syncers import Syncers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ..log.state_file import SourceState
    from ..memory.mapping import Bells
    from .pacer import Pacer
    from .repository import Repository

__all__ = ["Drainer"]

_log = logging.getLogger("holdfast.store")
_T = TypeVar("_T")

TEND_NS = 200_000_000
"""How often streams are looked at for gone owners. A round in which nothing comes takes as long."""
PACED_ROUND_NS = 5_000_000
"""While receivers of a receiver-paced source have something to acknowledge."""
FILL_NS = 5_000_000
"""Time for slices between two rounds, when many logs catch up: what is sent now waits no longer, except for
one long slice."""
FILL_ROUND_NS = 10_000_000
"""While a store that catches up waits for a peer."""
TURN_NS = 10_000_000_000
"""Pause before a board is joined again on which another process stands still."""
STILL_NS = 5_000_000_000
"""Between two looks at the logs: then the store stood still."""
LAST_NS = 1_000_000_000
"""At a stop, what is published by then is still drained, for so long: a source that goes on sending must not
keep it."""


class Drainer:
    """Owns the repositories of one store, which is called ``name``. ``start`` and ``stop`` once each."""

    def __init__(self, name: str, bells: Bells, strategy: int, scrub_interval_s: float) -> None:
        self.name = name
        self.bells = bells
        self.repositories: dict[bytes, Repository] = {}
        self.failures: dict[bytes, str] = {}
        """Source uuid -> why its log takes nothing at the moment."""
        self._said: dict[bytes, str] = {}
        """Source uuid -> what was reported of it. A full disk's text changes with each byte that is free, a
        limit's with its use."""
        self._strategy = strategy
        self._kick = ffi.new("uint32_t *")
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._stopping = False
        self._staging = ffi.new("uint8_t[]", lib.HF_STAGING_MAX)
        self._thread = threading.Thread(target=self._run, name="holdfast-drain", daemon=True)
        self._helper = threading.Thread(target=self._prepare, name="holdfast-segments", daemon=True)
        self._spare_wanted = threading.Event()
        self._fills = 0
        """Slices filled so far: whose turn it is."""
        self._scrub = Scrub(scrub_interval_s)
        self._syncers = Syncers(name)
        self._halts: dict[bytes, Halt] = {}
        self._turn_ns = 0
        self.on_crash: Callable[[], None] = lambda: None
        self.guard: Callable[[int], None] = lambda _: None
        """Called with the time before anything is written; raises when this store may not write any more."""
        self._fenced = False
        self._crash: BaseException | None = None

    def start(self) -> None:
        """Goes on with the streams that are there, and starts both threads. Where that fails, it is tried
        again (_tend_one). Raises as :func:`start_thread`; :meth:`stop` it then."""
        for repo in self.repositories.values():
            try:
                repo.resume()
            except (Error, OSError) as error:
                self.say(repo.source, error)
        start_thread(self._thread)
        start_thread(self._helper)

    def stop(self) -> None:
        """Ends a last round, closes the repositories (which syncs them), and ends both threads, if they were
        started."""
        self._stopping = True
        if self._thread.ident is None:
            self._close_all()
        else:
            self._wake()
            self._spare_wanted.set()
            self._thread.join()
            if self._helper.ident is not None:
                self._helper.join()
        self._syncers.close()

    def thread_ids(self) -> tuple[int, int]:
        """Native ids of the drain and the helper thread, which run."""
        return self._thread.native_id or 0, self._helper.native_id or 0

    def call(self, work: Callable[[], _T]) -> _T:
        """Runs ``work`` on the drain thread and returns its result, or raises what it raised."""
        future: futures.Future[_T] = futures.Future()

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
            futures.wait((future,), timeout=0.25)
        return future.result()

    def remove(self, uuid: bytes) -> None:
        """Closes a source's repository; never on the drain thread. Its log is nobody's then.

        It waits for what the helper thread does in this log's directory right now, and no drain waits with
        it.
        """

        def take() -> Repository | None:
            for known in (self.failures, self._said, self._halts):
                known.pop(uuid, None)
            return self.repositories.pop(uuid, None)

        repository = self.call(take)
        if repository is not None:
            with repository.files:
                repository.close()

    def take_out(self, uuids: Iterable[bytes], over: Callable[[Repository], bool], most: int) -> list[Repository]:
        """The first ``most`` of ``uuids`` that are in order, looked through, and ``over``: nobody but the
        caller has them from now on. Never on the drain thread, which asks ``over``."""

        def take() -> list[Repository]:
            settled = (uuid for uuid in uuids if uuid in self.repositories and self._is_settled(uuid))
            found = islice((uuid for uuid in settled if over(self.repositories[uuid])), most)
            return [self.repositories.pop(uuid) for uuid in list(found)]

        return self.call(take)

    def _is_settled(self, uuid: bytes) -> bool:
        broken = uuid in self.failures or uuid in self._halts
        return not broken and (not self.repositories[uuid].level or self._scrub.is_settled(uuid))

    def repair(self, uuid: bytes, first: int, following: int) -> None:
        """Numbers ``first`` .. ``following - 1`` were recorded as lost: the helper thread asks the other
        stores. Any thread."""
        self._scrub.losses.put((uuid, Range(first, following)))
        self._spare_wanted.set()

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

    # The drain thread ---------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._drain()
            self._finish()
        except BaseException as error:
            # Nothing that was stable is touched by this; the process ends, and the next one recovers from the
            # directory.
            _log.critical("the drain thread failed: the store stops", exc_info=True)
            self._crash, self._fenced = error, isinstance(error, FencedError)
            self._stopping = True
            self.on_crash()
        self._run_calls()
        self._close_all()

    def _close_all(self) -> None:
        if self._fenced:  # the logs may be another store's by now: they stay as they are, as after a kill
            self.repositories.clear()
            return
        for repository in self.repositories.values():
            with repository.files:
                repository.close()
        self.repositories.clear()

    def _drain(self) -> None:
        tended = 0
        while not self._stopping:
            self._kick[0] = 0
            self._run_calls()
            now = time.monotonic_ns()
            self.guard(now)
            if now - tended >= TEND_NS:
                if tended and now - tended >= STILL_NS:
                    news.stood_still(self.name, now - tended)
                tended = now
                self._tend(now)
            self._fill(now)
            self._round()

    def _fill(self, now_ns: int) -> None:
        """A slice each for the logs that catch up, as many as the time allows; the next ones get theirs after
        the next round."""
        due = [repo for repo in self.repositories.values() if repo.catch_up and repo.item.status == lib.HF_OK]
        first = self._fills % len(due) if due else 0
        for repo in due[first:] + due[:first]:
            self._fill_one(repo, now_ns)
            self._fills += 1
            if time.monotonic_ns() - now_ns > FILL_NS:
                return

    def _fill_one(self, repo: Repository, now_ns: int) -> None:
        rolls = repo.item.rolls
        try:
            repo.fill(now_ns)
        except (Error, OSError) as error:
            repo.item.status = lib.HF_DAMAGED
            self._halted(repo, error)
        if repo.item.rolls != rolls:
            self._spare_wanted.set()
        self._ask_peers(repo)

    def _ask_peers(self, repo: Repository) -> None:
        """For what was lost, once that is published: the helper thread reads the log as any reader does."""
        while repo.losses and repo.losses[0][1] <= repo.next_sqn:
            self.repair(repo.source.uuid, *repo.losses.pop(0))

    def _finish(self) -> None:
        self.guard(time.monotonic_ns())
        self._kick[0] = 1  # a round takes what is there, and does not wait for more
        end = time.monotonic_ns() + LAST_NS
        while time.monotonic_ns() < end and any(
            repo.stream and repo.catch_up is None and repo.item.status == lib.HF_OK and not repo.drained()
            for repo in self.repositories.values()
        ):
            self._round()

    def _round(self) -> None:
        busy = [
            repo
            for repo in self.repositories.values()
            if repo.stream and repo.catch_up is None and repo.item.status == lib.HF_OK
        ]
        items = ffi.new("struct hf_drain_item *[]", [repo.item for repo in busy])
        rolls = sum(repo.item.rolls for repo in busy)
        several = len(busy) > 1 and any(repo.level == lib.HF_LEVEL_DISK for repo in busy)
        stopped = check(
            lib.hf_drain(
                items, len(busy), self._staging, ffi.sizeof(self._staging), COMMIT_BYTES, self._kick,
                self.bells.handle, self.bells.index, self._strategy, self._round_ns(), several,
            )
        )  # fmt: skip
        if sum(repo.item.rolls for repo in busy) != rolls:
            self._spare_wanted.set()
        if stopped:
            self._mend([repo for repo in busy if repo.item.status != lib.HF_OK])
        for repo in self.repositories.values():
            if repo.pacer is not None:
                self._pace(repo, repo.pacer)

    def _pace(self, repo: Repository, pacer: Pacer) -> None:
        try:
            pacer.turn()
        except (Error, OSError) as error:  # nothing goes meanwhile; the next round tries again
            self.say(repo.source, error)

    def _round_ns(self) -> int:
        """Receivers acknowledge without a word: while one is waited for, somebody looks often."""
        catch_ups = [
            repo.catch_up for repo in self.repositories.values() if repo.catch_up and repo.item.status == lib.HF_OK
        ]
        if catch_ups:
            return FILL_ROUND_NS if all(each.waits for each in catch_ups) else 0
        waiting = any(repo.pacer is not None and repo.pacer.busy for repo in self.repositories.values())
        return PACED_ROUND_NS if waiting else TEND_NS

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
                self._overtaken(repo)
            elif status == lib.HF_SMALL and ffi.sizeof(self._staging) < repo.largest_block:
                self._staging = ffi.new("uint8_t[]", repo.largest_block)
                repo.item.status = lib.HF_OK
            elif status not in {lib.HF_OK, lib.HF_CLOSED}:
                self._failed(repo, status)

    def _overtaken(self, repo: Repository) -> None:
        try:
            repo.overtaken()
        except (Error, OSError) as error:
            repo.item.status = lib.HF_DAMAGED
            self._halted(repo, error)

    def _failed(self, repo: Repository, status: int) -> None:
        self._halted(repo, error_of(status, what=str(repo.path)))

    def _halted(self, repo: Repository, error: Error | OSError) -> None:
        """A log that cannot take more: it leaves the quorum by standing still, and is tried again where that
        can help."""
        self.say(repo.source, error)
        repo.line.say_full(no_room(error))
        if not isinstance(error, CorruptionError) and getattr(error, "code", "") != "HF_POISONED":
            self._halts.setdefault(repo.source.uuid, Halt()).halted(repo.next_sqn, time.monotonic_ns())

    def say(self, source: SourceState, error: Exception) -> None:
        """What is wrong with the log of a source: once, until it is another one."""
        uuid, error = source.uuid, named(error)
        limit = error.limit if isinstance(error, LimitReachedError) else ""
        what = "no room" if no_room(error) else limit or str(error)
        if self._said.get(uuid) != what:
            _log.error("%s: %s", news.called(self.name, source), error)
        self._said[uuid], self.failures[uuid] = what, str(error)

    def _is_well(self, repo: Repository) -> bool:
        """What failed is over: the log has what was sent by now. A busy source is always a little ahead."""
        well = repo.item.status in {lib.HF_OK, lib.HF_CLOSED}  # closed, by its source: all is drained
        if not well or repo.drained():
            return well
        halt = self._halts.get(repo.source.uuid)
        return repo.catch_up is None and halt is not None and halt.is_over(repo.next_sqn, repo.live_sqn())

    def _well(self, repo: Repository) -> None:
        uuid = repo.source.uuid
        del self.failures[uuid]
        self._said.pop(uuid, None)
        repo.line.say_full(False)
        if self._halts.pop(uuid, None) is not None:
            _log.warning("%s: takes messages again", repo.called)

    def _tend(self, now_ns: int) -> None:
        for repo in self.repositories.values():
            try:
                self._tend_one(repo, now_ns)
            except (Error, OSError) as error:  # tried again the next time; no other source notices
                self.say(repo.source, error)

    def _resume(self, repo: Repository, now_ns: int) -> bool:
        """Once more. While another process stands still in its turn on a board, all sources wait with this
        one: not often. False: not now."""
        if now_ns < self._turn_ns:
            return False
        try:
            repo.resume()
        except TurnHeldError:
            self._turn_ns = time.monotonic_ns() + TURN_NS
            raise
        return True

    def _tend_one(self, repo: Repository, now_ns: int) -> None:
        uuid, tried = repo.source.uuid, True
        if repo.stream is None and repo.catch_up is None:
            if uuid in self.failures:
                tried = self._resume(repo, now_ns)
            else:
                repo.look_again(now_ns)
        halt = self._halts.get(uuid)
        if halt is not None and halt.due(now_ns):
            repo.item.status = lib.HF_OK
        elif tried and uuid in self.failures and self._is_well(repo):
            self._well(repo)
        if repo.stream is not None and repo.owner_gone() and repo.drained():
            repo.leave()
            repo.resume()
        self._ask_peers(repo)
        repo.look_for_lost()
        repo.tidy()
        if repo.item.status in {lib.HF_OK, lib.HF_CLOSED} or (halt is not None and halt.waits):
            repo.beat(
                now_ns
            )  # a log that takes nothing more stands still for its source, too: a backup may have the seat

    # The helper thread --------------------------------------------------------------------------------------

    def want_spares(self) -> None:
        """Some log needs its next segment ahead of time."""
        self._spare_wanted.set()

    def _prepare(self) -> None:
        try:
            while not self._stopping:
                if self._spare_wanted.wait(self._scrub.wait_s()):
                    self._spare_wanted.clear()
                    self._prepare_all()
                if not self._stopping:
                    self._scrub.step(dict(self.repositories))
            self._scrub.close()
        except BaseException:
            _log.critical("the helper thread failed: the store stops", exc_info=True)
            self.on_crash()

    def _prepare_all(self) -> None:
        for repo in list(self.repositories.values()):
            with repo.files:
                if self._stopping:
                    return
                if repo.log and (repo.stream is not None or repo.catch_up is not None):  # else it takes nothing
                    self._prepare_one(repo)

    @staticmethod
    def _prepare_one(repo: Repository) -> None:
        status = lib.hf_log_prepare(repo.log)
        if status < 0:  # the roll will meet it, and say so where it matters
            _log.debug("%s: the next segment could not be prepared: %d", repo.called, status)
