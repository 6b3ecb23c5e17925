"""What a store keeps, as its desks share it: the state and its file, who is registered, and a log per
source."""

from __future__ import annotations

import contextlib
import errno
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
from ..log.stale_rings import unlink_unused
from ..log.timestamps import first_since
from ..memory.domain import evict
from ..native.core import CData, ffi, lib
from ..native.private_directory import open_log, open_private
from ..native.runtime import os, shutil, time
from ..native.waiting import STRATEGIES
from ..options.receiver_paced import Terms, agree
from ..options.topic_rules import kept_type
from ..rules.changes import Changes
from ..rules.log_sizes import RELEASED_MIN, segment_bytes
from .drainer import Drainer
from .limits import StoreLimits
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


class LogRemovedError(CorruptionError):
    """Somebody has removed the directory of a log that a store had open, or put another one in its place."""

    hint = (
        "keep what cleans up in /dev/shm, and in the stores' directories, away from them; the store goes on by itself"
    )

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"{path} was removed while its store lives (RemoveIPC, or rm): what it had is gone, and asked from its peers"
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
        self._memory = domain.memory_logs(name, state.uuid)
        self._file = file
        self._began_ns = time.monotonic_ns()
        self._used_ns: dict[bytes, int] = {}
        """As :meth:`used_ns` says."""
        self._over: dict[bytes, int] = {}
        """Sources whose logs were shelved and are open again, for who asked or a round: under which
        incarnation."""
        self._places: dict[bytes, tuple[int, int]] = {}
        """Source uuid -> device and inode of the directory of its log, when it was opened."""
        self.read_only: ReadOnlyError | None = None
        """The last save met a disk that is read-only, or the store has started on one: what has changed is in
        memory alone."""
        self._unsaved = self._owed = False
        """Something was to be saved in this life."""
        if file.sealed is not None:
            self.read_only = ReadOnlyError(str(file.sealed), since_start=True)

    def open(self) -> None:
        """Opens every log that is not shelved, before the drain thread runs; ends what a crash left half
        removed."""
        if self.state.going and not self.sealed:
            self._remove(dict.fromkeys(self.state.going, True))
        ringed = {item.uuid for item in self.domain.objects() if item.kind == "stream"}
        for source in self.state.sources:
            if source.is_shelved and source.uuid not in ringed and self._stays_shelved(source):
                continue
            try:
                self._restore(source)
            except (Error, OSError) as error:  # it is tried again when somebody asks for this source
                self.drainer.say(source, error)
        learns = any(source.learner for source in self.state.sources)
        if learns and not self.sealed:  # on disk before its log can look whole again
            self.save()

    def _stays_shelved(self, source: SourceState) -> bool:
        """Its log is there, and what the topic says asks for nothing at a start."""
        return (self.logs / source.uuid.hex() / "head").exists() and self.rules(source).restore_last == 0

    def _restore(self, source: SourceState) -> None:
        repository = self._open(source)
        hours = self.rules(source).restore_last
        if hours != 0 and source.paced is None:  # what a receiver-paced source keeps, somebody waits for
            repository.release(repository.next_sqn if hours is None else self._younger(source, hours * HOUR_NS))

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
            return self.drain_thread(lambda: self._open_again(source))
        except LimitReachedError:
            if not asked:
                raise
            self.limits.make_room()
            return self.drain_thread(lambda: self._open_again(source))

    def has_room(self) -> bool:
        """A log may be opened that is not open; if need be, others are closed first."""
        if self.drain_thread(self.limits.has_room):
            return True
        self.limits.make_room()
        return self.drain_thread(self.limits.has_room)

    def take_down(self, source: SourceState) -> bool:
        """Opens a shelved log. Where that fails it is said once, and tried again when somebody asks.
        False: the disk is full, or a limit reached, for the next log, too."""
        try:
            self.ensure_repository(source, asked=False)
        except (Error, OSError) as error:
            self.drainer.say(source, error)
            return not (no_room(error) or isinstance(error, LimitReachedError))
        return True

    def _open_again(self, source: SourceState) -> Repository:
        """As a start of the store does. The drain thread."""
        was_shelved = source.is_shelved
        repository = self._open(source)
        if was_shelved:
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
        found = [each.source for uuid, each in self.drainer.repositories.items() if self._is_gone(uuid)]
        for source in found:
            self.drainer.remove(source.uuid)
            self.drainer.say(source, LogRemovedError(self.logs / source.uuid.hex()))
        return {source.uuid for source in found}

    def _is_gone(self, uuid: bytes) -> bool:
        try:
            return _inode(self.logs / uuid.hex()) != self._places.get(uuid)
        except FileNotFoundError:
            return True
        except OSError:  # it cannot be looked at, which says nothing
            return False

    def _younger(self, source: SourceState, age_ns: int) -> int:
        """The first number that is at most so much older than the newest message; 0 if there is none."""
        return first_since(self.logs / source.uuid.hex(), age_ns) or 0

    def rules(self, source: SourceState) -> TopicRules:
        """What holds for a source that is kept."""
        return self.topics.kept(source.topic)

    def _open(self, source: SourceState) -> Repository:
        self.limits.require_room()
        kind: type[Repository]
        if self.sealed:
            kind, place, config = StillLog, self.logs / source.uuid.hex(), ffi.new("struct hf_log_config *")
        else:
            config = self._log_config(source)  # first: it settles of which kind the log is, and where it lies
            kind, place = NoCacheRepository if source.repository == "no-cache" else Repository, self._place(source)
        known = source.begins.copy()
        repository = kind(self.domain, self.bells, source, place, config, self.name, self.state.uuid)
        if source.begins != known:  # killed between the log's BEGIN and the state
            self.owe()
        with contextlib.suppress(FileNotFoundError):  # removed since: seen at the next look
            self._places[source.uuid] = _inode(self.logs / source.uuid.hex())
        terms = self._terms(source) if not self.sealed else None  # a log that stands still lets nothing go
        if terms is not None:
            try:
                repository.pacer = Pacer(repository, terms)
            except Error:
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

    def _place(self, source: SourceState) -> Path:
        """The directory of its log. Of a memory repository it is made here, also after a reboot has emptied
        the memory."""
        path = self.logs / source.uuid.hex()
        if source.repository != "memory":
            return path
        real = self._memory / path.name
        fd = self._open_memory()
        try:
            os.close(open_private(real, at=fd))
        finally:
            os.close(fd)
        self._link(source, path, real)
        return path

    def _link(self, source: SourceState, path: Path, real: Path) -> None:
        """``path`` leads to ``real``, or into another domain of this boot, where the log has begun. A reboot
        may have made the domain's directory anew, and so all names in shared memory: where the old ones led,
        there is nothing then, or what another user has put there."""
        if path.is_symlink() and os.readlink(path) != str(real):
            try:
                os.close(open_log(path))
            except OSError as error:
                if error.errno not in {errno.ENOENT, errno.EPERM, errno.EACCES, errno.ENOTDIR}:
                    raise
                _log.warning(
                    "%s: %s led to %s, where no log of this store is: it begins anew",
                    called(self.name, source), path, os.readlink(path),
                )  # fmt: skip
                path.unlink()
        if not path.is_symlink():
            path.symlink_to(real)

    def _open_memory(self) -> int:
        """Anybody may have made a directory with this name in shared memory, and filled it."""
        try:
            return open_private(self._memory)
        except Error:
            if not evict(self._memory.name):
                raise
            return open_private(self._memory)

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
                self._remove_log(uuid)
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

    def _remove_log(self, uuid: bytes) -> None:
        self._places.pop(uuid, None)
        self._over.pop(uuid, None)
        self._used_ns.pop(uuid, None)
        path = self.logs / uuid.hex()
        elsewhere = [path.readlink()] if path.is_symlink() else []  # a store that was moved into this domain
        for place in (self._memory / path.name, path, *elsewhere):
            if place.is_dir() and not place.is_symlink() and place.stat().st_uid == os.geteuid():
                shutil.rmtree(place)
        if path.is_symlink():
            path.unlink()


def _inode(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino
