"""What a store keeps, as its desks share it: the state and its file, who is registered, and a log per source."""

from __future__ import annotations

import logging
import shutil
from typing import TYPE_CHECKING, TypeVar

from .core import CData, ffi
from .drainer import Drainer
from .repository import Repository, unlink_unused
from .store_registry import Registry
from .waiting import STRATEGIES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .domain import Domain
    from .options import Options
    from .segments import Bells
    from .store_state import SourceState, State, StateFile

__all__ = ["Holdings"]

_log = logging.getLogger("holdfast.store")
_T = TypeVar("_T")


class Holdings:
    """See the module. ``name`` is the store's, ``logs`` the directory of its logs, ``level`` the one that it acknowledges."""

    def __init__(
        self, name: str, domain: Domain, bells: Bells, options: Options, state: State, file: StateFile, logs: Path,
        level: int, retain_bytes: int,
    ) -> None:  # fmt: skip
        self.name = name
        self.domain = domain
        self.options = options
        self.state = state
        self.registry = Registry(state)
        self.logs = logs
        self.level = level
        self.bells = bells
        self.drainer = Drainer(bells, STRATEGIES[options.wait_strategy])
        self._file = file
        self.log_config: CData = ffi.new("struct hf_log_config *")
        self.log_config.level, self.log_config.retain_bytes = level, retain_bytes

    def open(self) -> None:
        """Opens every log, before the drain thread runs; ends what a crash left half removed."""
        for uuid in list(self.state.going):
            self._remove(uuid)
        for source in self.state.sources:
            self._open(source)

    def save(self, *, sync: bool = True) -> None:
        """The state, into its file. Raises OSError."""
        self._file.save(self.state, sync=sync)

    def drain_thread(self, work: Callable[[], _T]) -> _T:
        """Runs ``work`` where repositories may be touched."""
        return self.drainer.call(work)

    def repository(self, uuid: bytes) -> Repository | None:
        """Of a source that is kept."""
        return self.drainer.repositories.get(uuid)

    def ensure_repository(self, source: SourceState) -> Repository:
        """The source's repository; its log is created at its first registration."""
        found = self.repository(source.uuid)
        if found is None:
            found = self.drain_thread(lambda: self._open(source))
            self.drainer.want_spares()
        return found

    def _open(self, source: SourceState) -> Repository:
        repository = Repository(
            self.domain, self.bells, source, self.logs / source.uuid.hex(), self.log_config, self.name, self.state.uuid
        )
        self.drainer.repositories[source.uuid] = repository
        return repository

    def forget(self, source: SourceState, *, names: bool) -> None:
        """State, messages, and the states of its receivers, now and for good; with ``names``, also those in shared memory, if
        nobody uses them.

        The state goes first: from then on nobody finds the source, and what a crash leaves is removed at the next start.
        """
        self.state.sources.remove(source)
        self.state.going.append(source.uuid)
        self.save()
        self.drain_thread(lambda: self.drainer.remove(source.uuid))
        self._remove(source.uuid, names=names)

    def rename(self, source: SourceState, uuid: bytes) -> None:
        """Another identity for a source under which nothing has begun. The caller saves."""
        old = source.uuid
        self.drain_thread(lambda: self.drainer.remove(old))
        source.uuid = uuid
        self.state.going.append(old)
        self._remove(old)
        self.ensure_repository(source)

    def _remove(self, uuid: bytes, *, names: bool = True) -> None:
        path = self.logs / uuid.hex()
        try:
            if path.exists():
                shutil.rmtree(path)
            if names:
                unlink_unused(self.domain, uuid)
        except OSError as error:
            _log.warning("%s: not removed yet: %s", path, error)  # tried again at the next start
            return
        self.state.going.remove(uuid)
        self.save(sync=False)
