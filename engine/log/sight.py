"""Which stores of a domain can be read now, and which stores on record cannot: those may have whatever the
others lack.

A number is lost when every store that may have it was read. After a reboot the domain's directory is empty,
and a volume may be mounted late: then stores that are whole are not in sight. So the stores of a source are
looked up where somebody has written them down, and each of them is in sight, or given up by the operator, or
away.
"""

from __future__ import annotations

import contextlib
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ..errors import CorruptionError, Error
from ..memory.domain import Domain
from ..native.runtime import Path, os
from ..rules.exclusions import in_force
from ..rules.reconcile import FOR_EVER, newest_table, void_from
from .end import Refusal, open_log
from .info_file import read_info
from .reader import check_openable, table_of
from .register import entries_of
from .state_file import SourceState, State, StateFile

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from ..rules.reconcile import Table
    from .info_file import StoreInfo
    from .register import Entry

__all__ = [
    "STATE_ONLY",
    "Away",
    "SeenStore",
    "Sight",
    "load_state",
    "on_record",
    "state_of",
    "stores_away",
    "unread_log",
]

STATE_ONLY = "no-cache"
"""A repository whose log has numbers and no messages (engine/store/no_cache.py): it acknowledges none, and
counts for none here."""
TRIES = 4
"""Looks at a state that is being written."""


class Away(msgspec.Struct, frozen=True):
    """A store on record that cannot be read now."""

    store: str
    below: int
    """It may have numbers of the source below this one."""
    why: str

    def __str__(self) -> str:
        return f"{self.store} ({self.why})"


class SeenStore(NamedTuple):
    """A store as its files show it."""

    name: str
    directory: Path
    state: State
    logs: Path
    at_home: bool = True
    """Its info file says where its logs are. False: it has not run in this domain since a reboot, and they
    may be elsewhere."""


Keeper = tuple[SeenStore, SourceState]


class Sight:
    """The stores of a domain, as they can be read now.

    Raises:
        SystemCallError: a store's directory is there, and this process cannot open it.
    """

    def __init__(self, domain: Domain) -> None:
        self._domain = domain
        self.stores: list[SeenStore] = []
        """In sight: those that ran here, and those whose directory one of them remembers."""
        self.unread: dict[str, str] = {}
        """Those that ran here and are not in sight: why."""
        self._aliases: dict[str, str | None] = {}
        """By the name that a source has declared: a store's own, as far as the domain knows it."""
        for name in domain.store_names():
            info = read_info(domain, name)
            found = _look_at(info) if info is not None else f"{domain.info_path(name)} cannot be read"
            if isinstance(found, SeenStore):
                self.stores.append(found)
            else:
                self.unread[name] = found
        self._follow()

    def _follow(self) -> None:
        """Adds the stores whose info files a reboot took: their peers remember their directories
        (SourceState.directories)."""
        uuids = {store.state.uuid for store in self.stores}
        looked: set[str] = set()
        for store in self.stores:  # and those that are added on the way
            for source in store.state.sources:
                for name, directory in source.directories.items():
                    if directory in looked:
                        continue
                    looked.add(directory)
                    if self._own_name(name, {}) is not None:
                        continue
                    path = Path(directory)
                    state = None
                    with contextlib.suppress(CorruptionError, OSError):
                        state = load_state(path)
                    if state is not None and state.uuid not in uuids and self._is_new(state.name):
                        uuids.add(state.uuid)
                        self.stores.append(SeenStore(state.name, path, state, path / "logs", at_home=False))

    def _is_new(self, name: str) -> bool:
        return name not in self.unread and all(store.name != name for store in self.stores)

    def _own_name(self, declared: str, directories: Mapping[str, str]) -> str | None:
        """The own name of a store that a source has declared; None: nobody knows it."""
        if not self._is_new(declared):
            return declared
        if declared not in self._aliases:  # such as 127.0.0.1:PORT
            info = read_info(self._domain, declared)
            self._aliases[declared] = info.name if info is not None else None
        if self._aliases[declared] is not None:
            return self._aliases[declared]
        where = directories.get(declared)
        place = Path(where).resolve() if where is not None else None
        return next((store.name for store in self.stores if store.directory.resolve() == place), None)

    def called(self, names: Collection[str], directories: Mapping[str, str] = MappingProxyType({})) -> set[str]:
        """These names, and the stores' own: the operator may have given up one by another name.
        ``directories``: where a source's stores are, by name."""
        own = {self._own_name(name, directories) for name in names}
        return {*names, *(name for name in own if name is not None)}

    def away(
        self, keepers: Sequence[Keeper], record: Mapping[str, int], read: Collection[str] = ()
    ) -> tuple[Away, ...]:
        """Those of ``record`` (:func:`on_record`) that cannot be read, or whose log cannot, and that nobody
        has given up.

        ``keepers``: the stores in sight that know the source; ``read``: names of those whose logs were read.
        """
        directories = {name: path for _, source in keepers for name, path in source.directories.items()}
        seen = {store.name for store in self.stores}
        found = []
        for declared, below in record.items():
            name = self._own_name(declared, directories)
            if name not in seen:
                found.append(Away(name or declared, below, self._why_away(name, directories.get(declared))))
        found += [
            Away(store.name, FOR_EVER, why)
            for store, source in keepers
            if store.name not in read and (why := unread_log(store, source.uuid.hex()))
        ]
        if not found:
            return ()
        excluded = self.called(self._excluded({source.uuid for _, source in keepers}), directories)
        return tuple(away for away in found if away.store not in excluded)

    def _why_away(self, name: str | None, directory: str | None) -> str:
        if name is not None:
            return self.unread[name]
        if directory is not None:
            return _why_unread(Path(directory))
        return f"it has not run in {self._domain.path} since that was made"

    def _excluded(self, uuids: set[bytes]) -> set[str]:
        """Stores that the operator has excluded, as far as that holds for a source of these."""
        said, unknown = [], SourceState(b"", "", 0, 0)
        for store in self.stores:
            kept = next((source for source in store.state.sources if source.uuid in uuids), unknown)
            said.append(kept.says(store.state.excluded))
        return in_force(said)

    def names(self) -> set[str]:
        """All stores that somebody in this domain knows."""
        declared = {name for store in self.stores for source in store.state.sources for name in source.stores}
        return declared | self.unread.keys() | {store.name for store in self.stores}


def on_record(
    known: Iterable[SourceState], entries: Iterable[Entry] = (), tables: Sequence[Table] = ()
) -> dict[str, int]:
    """The stores that may have messages of a source -> below which number; by what stores and the register
    say of its lists.

    A list that a store remembers from an older incarnation counts up to where a newer one began, by any of
    ``tables``, which may hold. Without them that is the newest one of the stores: who has read no log cannot
    know better. The register can: it bounds a list only when a later BEGIN is complete.
    """
    states = list(known)
    holds = tables or [newest_table(source.begins for source in states)]
    found: dict[str, int] = {}
    lists = [
        (source.stores, max(void_from(table, source.declared or source.incarnation) for table in holds))
        for source in states
    ]
    lists += [([name], below) for source in states for name, below in source.others.items()]
    lists += [(list(entry.list[0]), entry.below if entry.below >= 0 else FOR_EVER) for entry in entries]
    for stores, below in lists:
        for name in stores:
            found[name] = max(found.get(name, 0), below)
    return found


def state_of(domain: Domain, store: str) -> State | None:
    """What a store of the domain has saved; None where nobody knows that."""
    info = read_info(domain, store)
    try:
        state = load_state(Path(info.directory)) if info is not None else None
    except (Error, OSError):
        return None
    return state if info is not None and state is not None and state.uuid == info.uuid else None


def stores_away(domain: str | None, topic: str, uuid: str, known: Iterable[str] = ()) -> tuple[Away, ...]:
    """Stores that may keep a source that no store in sight keeps; ``uuid``: its first hex digits.

    Where nobody has written down its stores, these are ``known``, and all of the domain.

    Raises:
        ConfigError, NoDomainError, SystemCallError: as kept_topics.topic_sources.
    """
    with contextlib.closing(Domain(domain, join=False, make=False)) as opened:
        sight = Sight(opened)
        keepers = [
            (store, source)
            for store in sight.stores
            for source in store.state.sources
            if source.topic == topic and source.uuid.hex().startswith(uuid)
        ]
        record = on_record((source for _, source in keepers), entries_of(opened.path, uuid))
        if not record:
            record = dict.fromkeys(sorted({*known, *sight.names()}), FOR_EVER)
        if not record:
            return (Away("any store", FOR_EVER, f"none has run in {opened.path} since that was made"),)
        return sight.away(keepers, record)


def unread_log(store: SeenStore, uuid: str) -> str:
    """Why the log of a source at a store in sight is unknown; "" where it can be read, or the store has
    none."""
    kept = next((source for source in store.state.sources if source.uuid.hex() == uuid), None)
    if kept is None or not kept.incarnation or kept.repository == STATE_ONLY:
        return ""
    path = store.logs / uuid
    found = open_log(path)
    if isinstance(found, Refusal):
        is_lost = store.at_home and kept.repository == "memory" and not path.exists()  # a reboot takes memory
        return "" if is_lost else f"{path}: {found}"
    with contextlib.closing(found):
        try:
            table_of(found.log)
        except CorruptionError as error:
            return f"{path}: {error.args[0]}"
    return ""


def load_state(directory: Path) -> State | None:
    """The state in ``directory``. A store that runs may write one slot and then the other while they are
    read: then once more.

    Raises CorruptionError, OSError.
    """
    for _ in range(TRIES - 1):
        with contextlib.suppress(CorruptionError):
            return StateFile(directory).load()
    return StateFile(directory).load()


def _look_at(info: StoreInfo) -> SeenStore | str:
    """The store of an info file, or why it is not in sight."""
    check_openable(info.directory)
    directory = Path(info.directory)
    try:
        state = load_state(directory)
    except (CorruptionError, OSError) as error:
        return error.args[0] if isinstance(error, CorruptionError) else f"{directory}: {error.strerror}"
    if state is None:
        return _why_unread(directory)
    if state.uuid != info.uuid:
        return f"{directory} has another store's state"
    return SeenStore(info.name, directory, state, Path(info.logs))


def _why_unread(directory: Path) -> str:
    return f"{directory} has no state of a store" if os.path.isdir(directory) else f"{directory} is not there"
