"""What a store left in files for everybody: who it is, and what its logs say. Readable with the store
dead."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ..control.wire import U32, UNDECODABLE, Uuid
from ..errors import ConfigError, CorruptionError, Error, SystemCallError
from ..native.core import CData, ffi, lib
from ..native.runtime import Path, os
from ..native.status import error_of
from ..rules.exclusions import in_force
from ..rules.reconcile import BeginOf, LogView
from ..rules.reports import Seen, agreed_below, reached
from .believed import tables_by_logs
from .end import OpenLog, Refusal, is_stuck, open_log
from .reader import known_table, table_of
from .state_file import SourceState, State, StateFile

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from ..memory.domain import Domain

__all__ = [
    "NO_LIVES",
    "Lives",
    "Own",
    "Place",
    "StoreInfo",
    "Unknown",
    "bounds",
    "earlier_logs",
    "excluded_by",
    "had",
    "knows",
    "lacks",
    "log_range",
    "log_reader",
    "log_view",
    "never_held",
    "peer_logs",
    "peer_places",
    "peer_view",
    "peers_of",
    "published_below",
    "read_info",
    "seen_at",
    "seen_by",
    "write_info",
]

Lives = Mapping[str, int]
"""A store's name -> the life that it was in; -1: unknown."""
NO_LIVES: Lives = MappingProxyType({})

EXHAUSTED = {errno.EMFILE, errno.ENFILE}
"""Not ENOMEM: ext4 says that of a device which has gone, for ever, and the log is one that cannot be read."""
UNKNOWN: dict[int, str] = {
    lib.HF_DAMAGED: "its end is damaged, or the disk does not give it: it holds everything below {}, and may have held more",
    lib.HF_GONE: "it was in memory before a reboot: it held everything below {}, and may have held more",
    lib.HF_AGAIN: "it changes while it is read: it holds everything below {}, and may hold more",
}
"""By what hf_logr_end says."""


class StoreInfo(msgspec.Struct, frozen=True):
    """The file ``<domain>/stores/<name>.info``."""

    name: str
    uuid: Uuid
    directory: str
    logs: str
    type: str
    pid: U32
    start: int
    token: int
    """start and token: 64 bits."""
    proxies: bool = False
    """It may stand in for a dead source (allow-proxy-source)."""
    standing: tuple[bytes, ...] = ()
    """uuids of the sources that it stands in for."""
    read_only: bool = False
    """Its disk is read-only, or was when it started: it refuses sources, and records nothing."""
    disk_limit: int = 0
    """The largest repository-disk-file-size-limit of its topics that are kept on disk; 0: of none, or not
    known."""
    ready: tuple[bytes, ...] | None = None
    """uuids of the sources that it knows, has messages of, and could stand in for; None: an older store does
    not say. Its files alone do not tell: it may have lost the state, and have the logs left."""
    census: bytes = b""
    """The life of the store that its census is of (engine/log/census.py); empty: an older one keeps none."""

    def alive(self, domain: Domain) -> int:
        """Of its process. 1: it lives; 0: it is proved dead; below: that is not known."""
        return int(lib.hf_process_alive(domain.fd, self.token, self.pid, self.start))

    def __post_init__(self) -> None:
        if not (0 <= self.start < 2**64 and 0 <= self.token < 2**64) or "\0" in self.directory + self.logs:
            raise ValueError("no store writes such an info file")  # msgspec makes a ValidationError of it


class Unknown(NamedTuple):
    """How far a log goes cannot be told now: it may hold anything, and is never taken for an empty one."""

    why: str
    """For people: which file, and what is wrong with it."""


def write_info(domain: Domain, info: StoreInfo) -> None:
    """Replaces the file as a whole."""
    path = domain.info_path(info.name)
    temporary = path.with_suffix(f".{os.getpid()}")
    temporary.write_bytes(msgspec.json.encode(info))
    temporary.rename(path)


def read_info(domain: Domain, name: str) -> StoreInfo | None:
    """None when no such store ever ran here, its file cannot be read, or there can be none of this name."""
    try:
        return msgspec.json.decode(domain.info_path(name).read_bytes(), type=StoreInfo)
    except (ConfigError, OSError, *UNDECODABLE):
        return None


@contextlib.contextmanager
def log_reader(path: Path) -> Iterator[CData | None]:
    """A struct hf_logr * of the log in ``path``; None when there is no readable log.

    Raises SystemCallError: this process has run out of file descriptors, which says nothing of the log.
    """
    opened = _open(path)
    if opened is None:
        yield None
        return
    try:
        yield opened.log
    finally:
        opened.close()


def _open(path: Path) -> OpenLog | None:
    found = open_log(path)
    if isinstance(found, OpenLog):
        return found
    _check_supplied(found, path)
    return None


def _check_supplied(refusal: Refusal, path: Path) -> None:
    number = refusal.number
    if number in EXHAUSTED:
        raise error_of(refusal.status, what=str(path))


def log_range(path: Path) -> tuple[int, int] | None:
    """Oldest and next published number of the log in ``path``; None when none can be read now."""
    numbers = ffi.new("uint64_t[2]")
    with contextlib.suppress(SystemCallError), contextlib.closing(_open(path) or contextlib.ExitStack()) as opened:
        if isinstance(opened, OpenLog):
            opened.end()  # and the next one goes on from there
            if lib.hf_logr_range(opened.log, numbers, numbers + 1) == lib.HF_OK:
                return int(numbers[0]), int(numbers[1])
    return None


def published_below(begun: tuple[int, int], logs: Iterable[str]) -> int:
    """Number behind the last one that these logs hold, by ``begun`` or a later BEGIN that holds; where that
    begins, at least."""
    views: dict[str, LogView | None] = {}
    for log in filter(None, logs):
        views[log] = None
        with contextlib.suppress(SystemCallError):
            views[log] = log_view(Path(log))
    known = [view for view in views.values() if view is not None]
    sure = next((view.begins for view in known if view.begins[-1] == begun), (begun,) if begun[0] else ())
    tables = tables_by_logs(views, sure)
    start = tables[-1][-1][1] if tables[-1] else 0
    return min(max([start, *(reached(view, tables[-1]) for view in known)]), agreed_below(tables))


def log_view(path: Path) -> LogView | None:
    """BEGIN table and next number of the log in ``path``; None when there is no readable log, or nothing has
    begun in it.

    Where its end is not known, the number is what it holds at least. A log whose BEGINs are not known is not
    readable. Raises as :func:`log_reader`: what is decided by it must not take a whole log for none.
    """
    with contextlib.closing(_open(path) or contextlib.ExitStack()) as opened:
        if not isinstance(opened, OpenLog):
            return None
        table = known_table(opened.log)  # first: a BEGIN lowers the end before it is in the table
        status, number = opened.end()
    known = status == lib.HF_OK or status in UNKNOWN
    return LogView(table, number) if known and table else None


def peer_view(log: Path) -> LogView | Unknown:
    """How far the log in ``log`` goes: BEGIN table and next number, or that this cannot be told, and why.

    Raises SystemCallError: this process has run out of file descriptors, which says nothing of the
    log.

    A log that is there and holds nothing ends at 0. One that is not there is unknown: :func:`never_held` says
    whether its store's state proves that it never had a message.
    """
    found = open_log(log)
    if isinstance(found, Refusal):
        _check_supplied(found, log)
        return Unknown(f"{log}: {found}")
    with contextlib.closing(found) as opened:
        try:
            table = table_of(opened.log)  # first: a BEGIN lowers the end before it is in the table
        except (CorruptionError, SystemCallError) as unreadable:
            return Unknown(f"{log}: {unreadable.args[0]}")
        status, number = opened.end()
    if status == lib.HF_OK:
        return LogView(table, number)
    return Unknown(f"{log}: {UNKNOWN[status].format(number) if status in UNKNOWN else Refusal(status)}")


def never_held(log: Path) -> bool:
    """The store of this log has never acknowledged a message of its source, as its files say. False where
    they do not say it.

    What a store acknowledges has begun in its state, durably: so one that remembers no BEGIN has acknowledged
    nothing. One that does must show an empty log: a log that is gone may have had anything.
    """
    try:
        kept, view = _remembered(log), peer_view(log)
    except (OSError, Error):
        return False
    if isinstance(view, Unknown) or not view.begins:
        return kept is not None and not kept.incarnation
    return view.next_sqn == 0 and not (kept is not None and kept.learner)


def lacks(log: Path, number: int, table: Iterable[BeginOf]) -> bool:
    """The store of this log has no message ``number``, as its files say, and gets it by itself from nowhere
    but its peers.

    It has not begun with its source, or not with the incarnation that the number is of, by the ``table`` that
    holds: a backup that has lost its seat, for example. Ask after the ring: what that has written over, a
    store that begins now does not find there.

    False where the files do not say it: the store's directory is not there, or cannot be read.
    """
    try:
        kept, view = _remembered(log), peer_view(log)
    except (OSError, Error):
        return False
    if kept is None:
        return False
    newest = view.begins[-1][0] if not isinstance(view, Unknown) and view.begins else 0
    if not newest:
        return not kept.incarnation
    return max(newest, kept.incarnation) < max((each for each, start in table if start <= number), default=0)


def had(log: Path, number: int) -> bool:
    """The store of this log, which has let go what was there, has had this number: what it never had is below
    ``lost_below``.

    False where its state does not say it. A log lets nothing go before that is on disk
    (:meth:`Repository.release`).
    """
    try:
        kept = _remembered(log)
    except (OSError, CorruptionError):
        return False
    return kept is not None and kept.incarnation > 0 and number >= kept.lost_below


def excluded_by(logs: Iterable[Path]) -> set[str]:
    """Stores that the operator has excluded, as those of these logs remember it for their source, until it
    starts again."""
    said = []
    for log in logs:
        with contextlib.suppress(OSError, CorruptionError):
            state = StateFile(log.parent.parent).load()
            if state is not None:
                said.append(_kept_in(state, log).says(state.excluded))
    return in_force(said)


def _remembered(log: Path) -> SourceState | None:
    """What the state of a log's store has of its source; without incarnation if it does not know it. None:
    there is no state.

    Raises OSError, CorruptionError.
    """
    state = StateFile(log.parent.parent).load()
    return _kept_in(state, log) if state is not None else None


def _kept_in(state: State, log: Path) -> SourceState:
    source = bytes.fromhex(log.name)
    unknown = SourceState(source, "", 0, 0)
    return next((kept for kept in state.sources if kept.uuid == source), unknown)


def knows(domain: Domain, name: str, topic: str, registration_id: int, session_id: int) -> bool | None:
    """This store is dead, and its state file says whether it has heard of such a source; None: it lives, or
    its state cannot be read. A session ID goes before a RegID."""
    info = read_info(domain, name)
    if info is None or info.alive(domain) != 0:
        return None
    try:
        state = StateFile(Path(info.directory)).load()
    except (OSError, CorruptionError):
        return None
    if state is None:
        return None
    has = any(
        (source.topic, source.session_id) == (topic, session_id)
        if session_id
        else source.registration_id == registration_id
        for source in state.sources
    )
    return has if has or state.uuid == info.uuid else None  # wiped since, or another one is there


class Place(NamedTuple):
    """Where a declared store keeps the log of a source."""

    store: str
    """As the source declared it."""
    name: str
    """The store's own name; empty where nobody knows it."""
    log: Path
    """Of a store of which nothing is known, a path that cannot be read: it may have more than the others."""


class Own(NamedTuple):
    """The store whose peers are looked for."""

    uuid: bytes
    name: str
    logs: Path

    def is_told_by(self, info: StoreInfo) -> bool:
        """This file is of that store. Not where its directory has run under another name somewhere else: what
        the store of that name has there now, the file does not say."""
        if info.uuid != self.uuid or info.name == self.name:
            return info.uuid == self.uuid
        return os.path.realpath(info.logs) == os.path.realpath(self.logs)


def peer_logs(
    domain: Domain, names: Iterable[str], source: bytes, own: Own, known: Mapping[str, str] = MappingProxyType({})
) -> list[Path]:
    """Directories of :func:`peer_places`, each once."""
    return list(dict.fromkeys(place.log for place in peer_places(domain, names, source, own, known)))


def peer_places(
    domain: Domain, names: Iterable[str], source: bytes, own: Own, known: Mapping[str, str] = MappingProxyType({})
) -> list[Place]:
    """Where the stores of these names keep the log of a source, in this order, without ``own``.

    ``known``: directories of stores whose info files may be gone, as they are after a reboot.
    """
    places = []
    for store in names:
        info = read_info(domain, store)
        if info is not None:
            if not own.is_told_by(info):
                places.append(Place(store, info.name, Path(info.logs) / source.hex()))
        elif store in known:
            places.append(Place(store, "", Path(known[store]) / "logs" / source.hex()))
        else:
            places.append(Place(store, "", domain.stores / f"{store}.info" / source.hex()))
    return places


def peers_of(domain: Domain, source: SourceState, own: Own, others: Lives) -> list[Place]:
    """Where the stores keep its log that a source declares, and if it has begun here those that it declared
    before: as the state of this store has it, and ``others``."""
    names = dict.fromkeys([*source.stores, *source.others, *others] if source.stores else ())
    return peer_places(domain, names, source.uuid, own, source.directories)


def earlier_logs(places: Sequence[Place], source: SourceState) -> dict[str, tuple[str, int]]:
    """Stores of earlier lists of a source: where each keeps the log, and below which number it may have what
    no other one has.

    Not those that are declared under another name now: these count without an end.
    """
    declared = {place.log for place in places if place.store in source.stores}
    return {
        place.store: (str(place.log), source.others[place.store])
        for place in places
        if place.store in source.others and place.log not in declared
    }


def bounds(earlier: Mapping[str, tuple[str, int]]) -> dict[str, int]:
    """Below which number each log of :func:`earlier_logs` counts; of two names of one store, the one that
    counts longer."""
    return dict(sorted(earlier.values(), key=lambda each: each[1]))


def seen_by(
    name: str, own: LogView, source: SourceState, peers: Sequence[Place], others: Lives = NO_LIVES
) -> list[Seen]:
    """What the store called ``name`` knows of all declared stores of a source: its own log, and what it reads
    of ``peers``.

    ``others``: what the source's register has of the lives of stores.
    """
    declared = [store for store in source.stores if store not in {place.store for place in peers}] or [name]
    return [
        *(Seen(store, name, own) for store in declared),
        *(seen_at(place, _lives(place, source.peers), _lives(place, others)) for place in peers),
    ]


def _lives(place: Place, told: Lives) -> set[int]:
    return {told.get(place.name or place.store, -1)} - {-1}


def seen_at(place: Place, told: Collection[int] = (), written: Collection[int] = ()) -> Seen:
    """How far a declared store's log goes, by its files: a number, or unknown and why. ``told``: lives in
    which it took part, as a store knows; ``written``: in which it was to take part, as the source's register
    has it.

    A store whose state says that it has lost what it acknowledged may have had more, and so may one whose
    directory has not had that life: it was wiped, or restored. One that never took part, and whose state
    knows nothing of this source, ends at 0.
    """
    if is_stuck(place.log):
        return Seen(place.store, place.name, None, f"{place.log}: its disk does not answer")
    view = peer_view(place.log)
    state = None
    with contextlib.suppress(OSError, CorruptionError):  # then the log speaks for itself
        state = StateFile(place.log.parent.parent).load()
    kept = _kept_in(state, place.log) if state is not None else None
    lives = state.lives_for(kept) if state is not None else None
    missed = lives is not None and any(life > lives[0] and life not in lives for life in (*told, *written))
    begun = told or any(life not in lives for life in written) if lives is not None else told
    if missed or (begun and kept is not None and not kept.incarnation):
        view = Unknown(f"{place.log}: its directory has not had the life in which the store last took part")
    elif kept is not None and kept.learner:
        view = Unknown(f"{place.log}: its store has lost what it acknowledged, and has not caught up since")
    elif isinstance(view, Unknown) and kept is not None and not kept.incarnation:
        view = LogView((), 0)
    if isinstance(view, Unknown):
        return Seen(place.store, place.name, None, view.why)
    return Seen(place.store, place.name, view)
