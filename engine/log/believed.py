"""The BEGIN tables that readers take (reports.readers_tables), from logs and from the states of their stores.

A log says which BEGINs it has, and how far it goes. The state beside it says what the source declared, so
which BEGINs are complete, and which stores nobody waits for. A store whose log cannot be read knows by its
state what it has begun: a BEGIN is in both before the store answers it. Where neither can be read, it may
have any BEGIN.

States are read only where the logs differ and no message proves which BEGIN holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..control.configuration import configuration_of
from ..errors import CorruptionError, Error
from ..native.runtime import Path
from ..rules.exclusions import in_force
from ..rules.reconcile import LogView, Table, newest_table
from ..rules.reports import readers_tables
from .end import is_stuck
from .state_file import SourceState, State, StateFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ..rules.reports import Declared, Views

    Judge = Callable[[Mapping[str, LogView | None], Table], list[Table]]

__all__ = ["Kept", "newest_of", "tables_by_logs", "tables_by_states"]

TRIES = 2
"""Looks at a state that is being written."""


class Kept(NamedTuple):
    """A store, as far as it is known."""

    name: str
    directory: Path
    excluded: Mapping[str, int]
    source: SourceState


def newest_of(logs: Mapping[str, LogView | None], sure: Table) -> list[Table]:
    """For stores, which ask for the right table before they take one in (engine/store/catch_up.py): the
    newest one of all."""
    newer = [view.begins for view in logs.values() if view is not None and (not sure or view.incarnation > sure[-1][0])]
    return [newest_table(newer) or sure]


def tables_by_logs(logs: Mapping[str, LogView | None], sure: Table = ()) -> list[Table]:
    """As reports.readers_tables. ``logs``: of one source, by directory; None: it cannot be read."""
    (newest,) = newest_of(logs, sure)
    views = [view for view in logs.values() if view is not None and view.begins]
    sent = any(view.begins[-1] == newest[-1] and view.next_sqn > newest[-1][1] for view in views)
    if newest == sure or sent or len({view.begins[-1] for view in views} | {*sure[-1:]}) < 2:
        return [newest]
    kept: list[Kept] = []
    named: Views = {}
    for path, view in logs.items():
        found = _kept(Path(path).parent.parent, Path(path).name)
        if found is not None:
            kept.append(found)
            named[found.name] = view or LogView(tuple(found.source.begins), 0)
        else:
            named[path] = view
    return tables_by_states(named, kept, sure)


def tables_by_states(views: Mapping[str, LogView | None], stores: Iterable[Kept], sure: Table = ()) -> list[Table]:
    """As :func:`tables_by_logs`; ``views`` by the stores' own names."""
    kept = list(stores)
    uuid = next((store.source.uuid.hex() for store in kept if store.source.incarnation), "")
    names: dict[str, str] = {}
    places: dict[str, str] = {}
    for name, where in (place for store in kept for place in _declared(store)):
        places[name] = where or places.get(name, "")  # who knows where it is, is believed
    for name, where in places.items():
        if name in views or name in names:
            continue
        reached = where and not is_stuck(Path(where, "logs", uuid))
        directory = Path(where).resolve() if reached else None
        other = next((store for store in kept if store.directory.resolve() == directory), None)
        if other is None and directory is not None:
            other = _kept(directory, uuid)
        if other is not None:
            names[name] = other.name
            if other.name not in views:
                views = {**views, other.name: LogView(tuple(other.source.begins), 0)}
    declared: list[Declared] = []
    forgot = {store.name for store in kept if store.source.learner}
    forgot |= in_force(store.source.says(store.excluded) for store in kept)
    for store in kept:
        configuration = configuration_of(store.source)
        if configuration is not None:
            declared.append((store.source.declared or store.source.incarnation, configuration.renamed(names)))
    return readers_tables(views, declared, forgot, sure)


def _declared(store: Kept) -> Iterable[tuple[str, str]]:
    """The stores of its list, and where they are."""
    return ((name, store.source.directories.get(name, "")) for name in store.source.stores)


def _kept(directory: Path, uuid: str) -> Kept | None:
    state = None if is_stuck(directory / "logs" / uuid) else _state(directory)
    if state is None:
        return None
    source = next((each for each in state.sources if each.uuid.hex() == uuid), None)
    return Kept(state.name, directory, state.excluded, source or SourceState(bytes(16), "", 0, 0))


def _state(directory: Path) -> State | None:
    for _ in range(TRIES):
        try:
            return StateFile(directory).load()
        except CorruptionError:
            continue
        except (OSError, Error):
            return None
    return None
