"""What a store keeps, as its desks share it: the state and its file, who is registered, and a log per
source."""

from __future__ import annotations

import contextlib
import logging
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from ..errors import (
    CorruptionError,
    Error,
    ForeignOwnerError,
    LimitReachedError,
    ReadOnlyError,
    SharedMemoryFullError,
    SystemCallError,
    TurnHeldError,
    no_room,
)
from ..log.info_file import log_view
from ..log.stale_rings import unlink_unused
from ..log.timestamps import first_since
from ..native.core import CData, ffi, lib
from ..native.limits import named
from ..native.runtime import time
from ..native.waiting import STRATEGIES
from ..options.receiver_paced import Terms, agree
from ..options.topic_rules import kept_type
from ..rules.changes import Changes
from ..rules.log_sizes import RELEASED_MIN, segment_bytes
from .drainer import Drainer
from .limits import StoreLimits
from .log_places import LogPlaces, LogRemovedError
from .news import called
from .no_cache import NoCacheRepository
from .pacer import Pacer
from .registry import Registry, source_called
from .repository import Repository
from .still_log import StillLog

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from ..log.state_file import SourceState, State, StateFile
    from ..memory.domain import Domain
    from ..memory.mapping import Bells
    from ..options.topic_rules import TopicRules, Topics

__all__ = ["Holdings", "UnusableLogError"]

_log = logging.getLogger("holdfast.store")
_T = TypeVar("_T")

HOUR_NS = 3600 * 1_000_000_000
NUMBERS_BYTES = 1 << 16
"""Bytes of a segment file that holds no message."""


class UnusableLogError(CorruptionError):
    """A source's log is damaged as a whole, or poisoned by a failed sync (docs/design.md 20). The store
    serves its other sources."""

    def __init__(self, store: str, source: SourceState, why: Error) -> None:
        poisoned = getattr(why, "code", "") == "HF_POISONED"
        again = "see to the disk: it is tried again each time somebody asks for this source; or " if poisoned else ""
        super().__init__(
            f"store {store} cannot open its log of {source_called(source)}: {why.args[0]}",
            hint=f"{again}move that directory away: the store begins anew, from its peers' logs; or deregister the source there",
        )


class Holdings:
    """See the module. ``name`` is the store's, ``logs`` the directory of its logs.

    A memory repository's log lies in shared memory; then its name in ``logs`` is a symbolic link, so that
    everybody finds every log in one place.
    """

    def __init__(
        self, name: str, domain: Domain, bells: Bells, topics: Topics, state: State, file: StateFile, logs: Path
    ) -> None:
        self.name = name
        self.domain = domain
        self.topics = topics
        self.state = state
        self.registry = Registry(state)
        self.logs = logs
        self.bells = bells
        self.changes: Changes[SourceState] = Changes()
        options = topics.store.options
        self.drainer = Drainer(name, bells, STRATEGIES[options.wait_strategy], options.holdfast_scrub_interval)
        self.limits = StoreLimits(name, self.drainer)
        self._places = LogPlaces(name, logs, domain.memory_logs(name, state.uuid))
        self._file = file
        self._began_ns = time.monotonic_ns()
        self._used_ns: dict[bytes, int] = {}
        """As :meth:`used_ns` says."""
        self._over: dict[bytes, int] = {}
        """Sources whose logs were shelved and are open again, for who asked or a round: under which
        incarnation."""
        self.read_only: ReadOnlyError | None = None
        """The last save met a disk that is read-only, or the store has started on one: what has changed is in
        memory alone."""
        self._unsaved = self._owed = False
        """Something was to be saved in this life."""
        self.unopened: dict[bytes, None] = {}
        """Sources whose logs there was no room to open at the start: they are opened in turn (Shelf), or when
        somebody asks."""
        self.unmarked: dict[bytes, set[tuple[bytes, int]]] = {}
        """By source, receivers (uuid, session ID) that were forgotten here, and whose lines may not say so
        yet (forgotten_lines.py)."""
        if file.sealed is not None:
            self.read_only = ReadOnlyError(str(file.sealed), since_start=True)

    def open(self) -> None:
        """Opens every log that is not shelved, before the drain thread runs, as far as there is room: first
        those whose source has a ring. Ends what a crash left half removed."""
        if self.state.going and not self.sealed:
            self._remove(dict.fromkeys(self.state.going, True))
        ringed = {item.uuid for item in self.domain.objects() if item.kind == "stream"}
        due = [source for source in self.state.sources if source.uuid in ringed or not self._stays_shelved(source)]
        due.sort(key=lambda source: source.uuid not in ringed)
        for place, source in enumerate(due):
            try:
                self._restore(source)
            except (Error, OSError) as error:
                if isinstance(named(error), LimitReachedError) and not self.sealed:
                    self.unopened = dict.fromkeys(source.uuid for source in due[place:])
                    count = len(self.unopened)
                    _log.warning("store %s: %d logs are opened later, in turn: %s", self.name, count, named(error))
                    break
                self.drainer.say(source, error)  # it is tried again when somebody asks for this source
        learns = any(source.learner for source in self.state.sources)
        if learns and not self.sealed:  # on disk before its log can look whole again
            self.save()

    def _stays_shelved(self, source: SourceState) -> bool:
        """Its log is there and at rest, and what the topic says asks for nothing at a start."""
        if not source.is_shelved:
            return False
        return (self.logs / source.uuid.hex() / "head").exists() and self.rules(source).restore_last == 0

    def _restore(self, source: SourceState, *, asked: bool = False) -> Repository:
        repository = self._open(source, asked=asked)
        hours = self.rules(source).restore_last
        if hours != 0 and source.paced is None:  # what a receiver-paced source keeps, somebody waits for
            repository.release(repository.next_sqn if hours is None else self._younger(source, hours * HOUR_NS))
        return repository

    @property
    def sealed(self) -> bool:
        """The store has started on a disk that is read-only: nothing is written as long as it runs."""
        return self._file.sealed is not None

    def save_last(self) -> None:
        """At the store's end. Raises ReadOnlyError where something is not on disk, OSError."""
        if self._unsaved or not self.sealed:
            self.save()

    def save(self, *, sync: bool = True) -> None:
        """The state, into its file. Raises ReadOnlyError, OSError."""
        self._unsaved = self._owed = True
        try:
            self._file.save(self.state, sync=sync, sources=self.registry.parts.encoded())
        except ReadOnlyError as error:
            if self.read_only is None:
                _log.error("store %s: %s", self.name, error)
            self.read_only = error
            raise
        self._owed = False
        if self.read_only is not None:
            _log.warning("store %s: %s can be written again", self.name, self.read_only.directory)
            self.read_only = None

    def owe(self) -> None:
        """The state says something new, or is about to, and is not saved yet: :meth:`save_owed` does that."""
        self._owed = True

    def save_owed(self) -> None:
        """Before anything is granted: what a failed save had to bring to disk is in memory, and looks old.
        Raises as save."""
        if self._owed:
            self.save()

    def require_writable(self) -> None:
        """Raises ReadOnlyError, OSError where nothing could be saved."""
        self._file.require_writable()

    def drain_thread(self, work: Callable[[], _T]) -> _T:
        """Runs ``work`` where repositories may be touched."""
        return self.drainer.call(work)

    def repository(self, uuid: bytes) -> Repository | None:
        """Of a source that is kept."""
        return self.drainer.repositories.get(uuid)

    def open_ones(self) -> list[Repository]:
        """The repositories of all sources whose logs are open now."""
        return list(self.drainer.repositories.values())

    def ensure_repository(self, source: SourceState, *, asked: bool = True) -> Repository:
        """The source's repository; its log is created at its first registration. ``asked``: by a client, for
        whom others make room.

        Raises:
            UnusableLogError: the log is there, and takes nothing any more.
            Error, OSError: it cannot be opened now.
        """
        self._used_ns[source.uuid] = time.monotonic_ns()
        self.registry.parts.wake(source)
        found = self.repository(source.uuid)
        if found is None:
            try:
                found = self._open_in_turn(source, asked)
            except (
                SystemCallError,
                SharedMemoryFullError,
                ForeignOwnerError,
            ):  # no fault of the log: it is tried again
                raise
            except Error as error:
                raise UnusableLogError(self.name, source, error) from error
            self.drainer.want_spares()
        return found

    def _open_in_turn(self, source: SourceState, asked: bool) -> Repository:
        try:
            return self.drain_thread(lambda: self._open_again(source, asked))
        except LimitReachedError:
            if not asked:
                raise
            self.limits.make_room()
            return self.drain_thread(lambda: self._open_again(source, asked))

    def has_room(self) -> bool:
        """A log may be opened that is not open; if need be, others are closed first."""
        if self.drain_thread(self.limits.has_room):
            return True
        self.limits.make_room()
        return self.drain_thread(self.limits.has_room)

    def take_down(self, source: SourceState) -> bool:
        """Opens a closed log that nobody has asked for. Where that fails it is said once, and tried again
        when somebody asks. False: the disk is full, or a limit reached, for the next log, too; a limit is no
        fault of this log, and not said."""
        try:
            self.ensure_repository(source, asked=False)
        except (Error, OSError) as error:
            if isinstance(named(error), LimitReachedError):
                _log.debug("%s: not opened now: %s", called(self.name, source), named(error))
                return False
            self.drainer.say(source, error)
            return not no_room(error)
        return True

    def _open_again(self, source: SourceState, asked: bool) -> Repository:
        """As a start of the store does. The drain thread."""
        was_closed, learned = source.is_shelved or source.uuid in self.unopened, source.learner
        repository = (
            self._restore(source, asked=asked) if source.uuid in self.unopened else self._open(source, asked=asked)
        )
        self.unopened.pop(source.uuid, None)
        if source.learner and not learned:  # on disk before its log can look whole again
            self.save()
        if was_closed:
            try:
                repository.resume()
            except (Error, OSError) as error:  # it is tried again (Drainer)
                self.drainer.say(source, error)
        return repository

    def is_over(self, source: SourceState) -> bool:
        """Its log is shelved, or was when nothing had begun that has not now."""
        return source.is_shelved or self._over.get(source.uuid) == source.incarnation

    def used_ns(self, uuid: bytes) -> int:
        """When somebody asked for this source's log, or the store began. CLOCK_MONOTONIC."""
        return self._used_ns.get(uuid, self._began_ns)

    def held(self, source: SourceState) -> int:
        """Number behind the last message of a source; 0 if its log cannot be opened."""
        repository = self.repository(source.uuid)
        if repository is None:
            return source.shelved_next if source.is_shelved else 0
        return self.drain_thread(lambda: repository.next_sqn)

    def range(self, source: SourceState) -> tuple[int, int] | None:
        """Number of the first message of a source that is kept, and the one behind the last; None: its log
        cannot be opened."""
        repository = self.repository(source.uuid)
        if repository is not None:
            return self.drain_thread(lambda: (int(repository.info.oldest_sqn), repository.next_sqn))
        return (source.shelved_oldest, source.shelved_next) if source.is_shelved else None

    def let_go_by_age(self) -> None:
        """What is older than its topic's repository-age-threshold (docs/semantics.md I.3), of repositories in
        memory."""
        for repository in self.open_ones():
            source = repository.source
            age = self.rules(source).options.repository_age_threshold
            if age and source.repository == "memory" and source.paced is None:
                below = self._younger(source, age * 1_000_000_000)
                self.drain_thread(partial(repository.release, below))

    def let_go_removed(self) -> set[bytes]:
        """Logs whose directory is not where it was (``rm -r /dev/shm/hf.*``, RemoveIPC): nobody finds what is
        written there.

        Such a log takes nothing any more. Who asks for the source next gets a new log, which catches up from
        its peers and the ring as a wiped store's does. Returns whose logs these were.
        """
        found = [each.source for uuid, each in self.drainer.repositories.items() if self._places.is_gone(uuid)]
        for source in found:
            self.drainer.remove(source.uuid)
            self.drainer.say(source, LogRemovedError(self.logs / source.uuid.hex()))
        return {source.uuid for source in found}

    def _younger(self, source: SourceState, age_ns: int) -> int:
        """The first number that is at most so much older than the newest message; 0 if there is none."""
        return first_since(self.logs / source.uuid.hex(), age_ns) or 0

    def rules(self, source: SourceState) -> TopicRules:
        """What holds for a source that is kept."""
        return self.topics.kept(source.topic)

    def _open(self, source: SourceState, *, asked: bool) -> Repository:
        self.limits.require_room(asked=asked)
        kind: type[Repository]
        if self.sealed:
            kind, place, config = StillLog, self.logs / source.uuid.hex(), ffi.new("struct hf_log_config *")
        else:
            config = self._log_config(source)  # first: it settles of which kind the log is, and where it lies
            kind, place = (
                NoCacheRepository if source.repository == "no-cache" else Repository,
                self._places.make(source),
            )
            view = log_view(place) if source.incarnation and not source.learner else None
            if view is not None and source.is_ahead_of(view.begins):
                source.learner = True
                try:
                    self.save()  # on disk before the log learns what it has missed: then nobody could tell
                except (Error, OSError):
                    source.learner = False  # the next try saves it, too
                    raise
        known = source.begins.copy()
        repository = kind(self.domain, self.bells, source, place, config, self.name, self.state.uuid)
        try:
            if source.begins != known:  # killed between the log's BEGIN and the state
                self.owe()
            self._places.note(source.uuid)
            terms = self._terms(source) if not self.sealed else None  # a log that stands still lets nothing go
            if terms is not None:
                repository.pacer = Pacer(repository, terms)
        except BaseException:
            repository.close()
            raise
        self.drainer.repositories[source.uuid] = repository
        if source.is_shelved:
            self._over[source.uuid] = source.incarnation
        source.shelved = -1
        return repository

    def _terms(self, source: SourceState) -> Terms | None:
        """Of a receiver-paced source; None for one that is refused by now: then nothing new comes, and
        nothing goes."""
        if source.paced is None:
            return None
        terms = agree(source.paced, source.topic, source.repository, self.rules(source))
        return terms if isinstance(terms, Terms) else None

    def _log_config(self, source: SourceState) -> CData:
        """``struct hf_log_config *``. Settles what type the source's repository is; the caller saves."""
        rules = self.rules(source)
        source.repository, warning = kept_type(rules.type, source.repository, source_called(source))
        if warning:
            _log.warning("store %s: %s", self.name, warning)
        terms = self._terms(source)
        disk = source.repository == "disk" and not (rules.type == "disk" and rules.acknowledge == "memory")
        if terms is not None and terms.ack_on_reception:
            disk = False
        config = ffi.new("struct hf_log_config *")
        config.level = lib.HF_LEVEL_DISK if disk else lib.HF_LEVEL_MEMORY
        if source.repository == "no-cache":
            config.first_segment_bytes = config.max_segment_bytes = NUMBERS_BYTES
        elif source.paced is None:
            config.retain_bytes = rules.retain_bytes(source.repository)
            config.max_segment_bytes = segment_bytes(config.retain_bytes)
        elif terms is not None:
            config.max_segment_bytes = max(RELEASED_MIN, segment_bytes(terms.capacity))
        return config

    def forget(self, *sources: SourceState, names: Callable[[SourceState], bool]) -> None:
        """State, messages, and the states of receivers, now and for good; where ``names`` says so, also those
        in shared memory, if nobody uses them.

        The states go first: from then on nobody finds the sources, and what a crash leaves is removed at the
        next start. Raises ReadOnlyError, OSError when that cannot be written; then nothing is forgotten.
        """
        self.registry.remove(*sources)
        self.state.going += [source.uuid for source in sources]
        try:
            self.save()
        except (ReadOnlyError, OSError):  # they are kept, then
            for source in sources:
                self.state.going.remove(source.uuid)
                self.registry.add(source)
            raise
        for source in sources:
            self.changes.forget(source.uuid)
            self.drainer.remove(source.uuid)
        self._remove({source.uuid: names(source) for source in sources})

    def rename(self, source: SourceState, uuid: bytes) -> None:
        """Another identity for a source under which nothing has begun. The caller saves."""
        old = source.uuid
        self.drainer.remove(old)
        self.registry.rename(source, uuid)
        self.changes.forget(old)
        self.changes.note(uuid)
        self.state.going.append(old)
        self._remove({old: True})
        self.ensure_repository(source)

    def _remove(self, going: Mapping[bytes, bool]) -> None:
        """The logs of these, and the names in shared memory of those that say so."""
        for uuid, names in going.items():
            try:
                self._over.pop(uuid, None)
                self._used_ns.pop(uuid, None)
                self._places.remove(uuid)
                if names:
                    unlink_unused(self.domain, uuid)
            except (OSError, TurnHeldError) as error:
                _log.warning(
                    "store %s: a forgotten source's log is not removed yet: %s: %s",
                    self.name, self.logs / uuid.hex(), error,
                )  # fmt: skip  # tried again at the next start
            else:
                self.state.going.remove(uuid)
        with contextlib.suppress(ReadOnlyError, OSError):  # owed; until then it says that these are to go
            self.save(sync=False)
