"""What stores keep of a topic, from their files: its sources, and which numbers of each can be read, and are
safe to be read.

No store is asked, and none has to live: identities and declared groups come from the stores' state, numbers
from the heads of their logs. Everything is read by the newest BEGIN that holds (engine/rules/reports.py
readers_tables). Where stores that cannot be read decide which one that is, what is kept ends where the tables
that may hold part: nothing from there on is read, or taken for lost.

Which numbers a quorum has is decided by what the logs hold, as the source's own predicate does it
(engine/rules/quorum.py). A store counts from the number behind the last one that it knows it never had
(SourceState.lost_below) to the published end of its log. What all declared stores have passed, and what no
log retains, is not waited for: it can be had as far as it ever will be.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ..errors import CorruptionError
from ..memory.domain import Domain
from ..native.core import ffi, lib
from ..native.private_directory import read_regular
from ..native.runtime import Path, os
from ..native.status import check
from ..rules.intervals import Spans
from ..rules.quorum import Groups, StoreSpans
from ..rules.reconcile import FOR_EVER, LogView, Table, forgotten_from, void_from
from ..rules.reports import agreed_below
from .believed import Kept, tables_by_states
from .check import store_files
from .info_file import log_reader
from .reader import Block, Logs, check_openable, table_of
from .register import entries_of
from .sight import STATE_ONLY, Away, SeenStore, Sight, load_state, on_record, unread_log
from .state_file import SourceState
from .timestamps import first_sent_since

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

__all__ = [
    "StoreLog",
    "TopicSource",
    "cut_points",
    "directory_uuid",
    "first_number_since",
    "logs_away",
    "suffice",
    "topic_sources",
]


Keeper = tuple[SeenStore, SourceState]
Record = tuple[tuple[str, ...], tuple[Away, ...]]
"""Names of the stores on record of a source, and those that are away."""
Recorder = Callable[[list[Keeper], set[str], list[Table]], Record]


class StoreLog(msgspec.Struct, frozen=True):
    """The log of a source at one store: numbers ``oldest`` .. ``next - 1``. What is damaged or lost lies
    between."""

    store: str
    path: str
    oldest: int
    next: int
    directory: str = ""
    """Of the store."""
    uuid: str = ""
    """Of that directory, as the store's state has it."""


class TopicSource(msgspec.Struct, frozen=True):
    """One source of a topic. Numbers are those of fragments, as everywhere."""

    topic: str
    uuid: str
    registration_id: int
    """At the first store of its declared list that knows it: the same for whoever asks."""
    session_id: int
    logs: tuple[StoreLog, ...]
    """Of the stores that have one, by name."""
    oldest: int
    """The lowest number that one of them has; ``any_next`` when there is none."""
    quorum_next: int
    """Below it, a quorum of its declared stores has what can be had."""
    any_next: int
    """Below it, some store has what can be had."""
    stores: tuple[str, ...] = ()
    """On record: those that may have messages of it (engine/log/sight.py)."""
    away: tuple[Away, ...] = ()
    """Of these, the ones that cannot be read now: what nobody else has they may have."""
    stable_below: int = FOR_EVER
    """From here on no number is stable, whatever the stores have that are away; ``any_next`` at least."""

    @property
    def key(self) -> str:
        """``<RegID>/<first 8 hex digits of the uuid>``: a RegID may be granted again when its source is
        forgotten."""
        return f"{self.registration_id}/{self.uuid[:8]}"


def topic_sources(
    domain: str | None,
    directories: Sequence[str | os.PathLike[str]] = (),
    *,
    wanted: Callable[[str], bool] | None = None,
) -> list[TopicSource]:
    """All sources that a store keeps a log of, by (topic, RegID, uuid). Cheap where ``wanted`` refuses a
    topic.

    Args:
        domain: its name; None is the default one.
        directories: of stores. With them the domain is not looked at, and a declared store whose directory is
            not among them has nothing.
        wanted: takes the topics to look at.

    Raises:
        ConfigError: no such domain can be, or a directory is not a store's.
        NoDomainError: the domain is not there.
        SystemCallError: a directory is there, and this process cannot open it.
        CorruptionError: a directory that was given has a state that cannot be read.
    """
    if directories:
        return _sources(_given(directories), wanted, lambda keepers, *_: (tuple(on_record(s for _, s in keepers)), ()))
    with contextlib.closing(Domain(domain, join=False, make=False)) as opened:
        sight = Sight(opened)
        return _sources(sight.stores, wanted, lambda *known: _on_record(opened, sight, *known))


def _sources(stores: Iterable[SeenStore], wanted: Callable[[str], bool] | None, record: Recorder) -> list[TopicSource]:
    found: dict[bytes, list[Keeper]] = {}
    for store in stores:
        for source in store.state.sources:
            if wanted is None or wanted(source.topic):
                found.setdefault(source.uuid, []).append((store, source))
    made = [_source(keepers, record) for keepers in found.values()]
    return sorted(filter(None, made), key=lambda source: (source.topic, source.registration_id, source.uuid))


def _on_record(domain: Domain, sight: Sight, keepers: list[Keeper], read: set[str], tables: list[Table]) -> Record:
    """The stores on record of a source, and those of them that are away.

    ``read``: whose logs can be read; ``tables``: the BEGINs that may hold.
    """
    source = keepers[0][1]
    registration_ids = [each.registration_id for _, each in keepers]
    entries = entries_of(domain.path, source.uuid.hex(), (source.topic, source.session_id, registration_ids))
    record = on_record((source for _, source in keepers), entries, tables)
    return tuple(record), sight.away(keepers, record, read)


def _given(directories: Sequence[str | os.PathLike[str]]) -> Iterator[SeenStore]:
    for path in dict.fromkeys(Path(directory).resolve() for directory in directories):
        store_files(path)  # raises ConfigError
        state = load_state(path)
        if state is None:
            raise CorruptionError(
                f"{path} has logs and no state: nobody knows whose they are",
                hint="leave it out, or restore state.0 and state.1",
            )
        yield SeenStore(state.name, path, state, path / "logs")


def logs_away(logs: Iterable[StoreLog]) -> tuple[Away, ...]:
    """Of the stores that had these logs, those that cannot be read any more: what nobody else has they may
    have."""
    found = []
    for log in logs:
        directory, path = Path(log.directory), Path(log.path)
        try:
            state = load_state(directory)
        except (CorruptionError, OSError) as error:
            found.append(Away(log.store, FOR_EVER, str(error.args[-1])))
            continue
        if state is None or state.uuid.hex() != log.uuid:
            found.append(Away(log.store, FOR_EVER, f"{directory} is not its directory any more"))
        elif why := unread_log(SeenStore(log.store, directory, state, path.parent), path.name):
            found.append(Away(log.store, FOR_EVER, why))
    return tuple(found)


def directory_uuid(directory: Path) -> str | None:
    """What the directory of a store says that it is; None: there is no store's state in it.

    Raises:
        OSError: it cannot be read, or is not there.
        CorruptionError: it has a state that cannot be read.
    """
    os.stat(directory)
    state = load_state(directory)
    return state.uuid.hex() if state is not None else None


class _Log(NamedTuple):
    """A log as its head shows it."""

    log: StoreLog
    table: Table


def _source(keepers: list[Keeper], record: Recorder) -> TopicSource | None:
    """None when nobody has a log of it."""
    uuid = keepers[0][1].uuid.hex()
    keeping = [store for store, source in keepers if source.repository != STATE_ONLY]
    logs = [log for store in keeping if (log := _log(store, store.logs / uuid)) is not None]
    if not logs:
        return None
    tables = _tables(keepers, logs)
    table, agreed = tables[-1], agreed_below(tables)
    holds = [source for _, source in keepers if not source.begins or tuple(source.begins[-1]) in table]
    newest = max(holds or [source for _, source in keepers], key=lambda source: source.incarnation)
    kept = tuple(sorted((_valid(log, table, agreed) for log in logs), key=lambda log: log.store))
    following = max(log.next for log in kept)
    oldest = min((log.oldest for log in kept if log.oldest < log.next), default=following)
    known = {store.name: source for store, source in keepers}
    declared = [_called(name, newest, [store for store, _ in keepers]) for name in newest.stores] or sorted(known)
    first = next((known[name] for name in declared if name in known), newest)
    stores, away = record(keepers, {log.store for log in kept}, tables)
    return TopicSource(
        newest.topic, uuid, first.registration_id, newest.session_id, kept, oldest,
        _quorum_next(newest, declared, known, kept), following, stores, away,
        _stable_below(newest, declared, known, away, following),
    )  # fmt: skip


def _tables(keepers: list[Keeper], logs: Sequence[_Log]) -> list[Table]:
    """The BEGIN tables that may hold. A store without a readable log knows by its state what it has begun."""
    views = {store.name: LogView(tuple(source.begins), 0) for store, source in keepers}
    views |= {log.log.store: LogView(log.table, log.log.next) for log in logs if log.table}
    stores = [Kept(store.name, store.directory, store.state.excluded, source) for store, source in keepers]
    return tables_by_states(views, stores)


def _called(declared: str, source: SourceState, stores: list[SeenStore]) -> str:
    """The own name of a store that a source named, maybe by another one, such as 127.0.0.1:PORT."""
    where = source.directories.get(declared)
    if where is not None and not any(store.name == declared for store in stores):
        place = Path(where).resolve()
        return next((store.name for store in stores if store.directory.resolve() == place), declared)
    return declared


def _log(store: SeenStore, path: Path) -> _Log | None:
    numbers = ffi.new("uint64_t[2]")
    with log_reader(path) as log:
        if log is None:
            check_openable(str(path))
            return None
        try:
            table = table_of(log)  # before the range: a BEGIN that comes between makes that lower
        except CorruptionError:  # nobody knows what of it is void: the other stores have it
            return None
        check(lib.hf_logr_range(log, numbers, numbers + 1), what=str(path))
        at, uuid = str(store.directory), store.state.uuid.hex()
        return _Log(StoreLog(store.name, str(path), int(numbers[0]), int(numbers[1]), at, uuid), table)


def _valid(log: _Log, table: Table, agreed: int) -> StoreLog:
    """Without what this table makes void: its store was away when that began, and does not know it.

    Nothing from ``agreed`` on: what is void there is not known.
    """
    oldest, following = log.log.oldest, min(log.log.next, agreed)
    if log.table and log.table[-1] != table[-1]:
        own = log.table[-1]
        following = min(following, void_from(table, own[0]), forgotten_from(table, own))
    return msgspec.structs.replace(log.log, oldest=min(oldest, following), next=following)


def _quorum_next(
    newest: SourceState, declared: Sequence[str], known: dict[str, SourceState], logs: Sequence[StoreLog]
) -> int:
    holdings = _holdings(_groups(newest, declared))
    retained = Spans()
    for log in logs:
        retained.add(log.oldest, log.next)
    following = {log.store: log.next for log in logs}
    waited = [name for name in declared if name not in known or known[name].repository != STATE_ONLY]
    for name, spans in zip(declared, holdings.stores, strict=True):
        spans.add(known[name].lost_below if name in known else 0, following.get(name, 0))
        for begin, end in retained.gaps(0, retained.high):
            spans.add(begin, end)
    return holdings.first_unstable(min((following.get(name, 0) for name in waited), default=0))


def _groups(newest: SourceState, declared: Sequence[str]) -> Groups:
    if len(newest.groups) == len(declared):
        return Groups.told(newest.sizes, newest.groups, newest.intragroup, newest.intergroup)
    return Groups.single(len(declared))


def _holdings(groups: Groups) -> StoreSpans:
    """Of the stores of these groups, still empty."""
    holdings = StoreSpans(_least(groups))
    everyone = range(groups.stores)
    holdings.seat(everyone, everyone)  # a backup that has it counts: who has a seat now, only the source knows
    return holdings


def suffice(groups: Groups, stores: Sequence[str], names: Collection[str]) -> bool:
    """Whether those of ``stores`` that are among ``names`` can have made something stable alone."""
    holdings = _holdings(groups)
    for name, spans in zip(stores, holdings.stores, strict=True):
        spans.add(0, 1 if name in names else 0)
    return holdings.first_unstable(0) > 0


def _stable_below(
    newest: SourceState, declared: Sequence[str], known: dict[str, SourceState], away: Sequence[Away], following: int
) -> int:
    """See TopicSource. ``following``: behind it no store in sight has anything.

    A store that knows what it acknowledged, and is in sight, has nothing more. One that was wiped does not
    know: only where all are in sight is that no question. A store of an earlier list was perhaps enough then.
    """
    if not away:
        return following
    absent = {each.store: each.below for each in away}
    holdings = _holdings(_groups(newest, declared))
    for name, spans in zip(declared, holdings.stores, strict=True):
        if name in absent or name not in known or known[name].learner:
            spans.add(following, max(absent.get(name, FOR_EVER), following))
    earlier = [below for name, below in absent.items() if name not in declared]
    return max(holdings.first_unstable(following), *earlier, following)


def _least(groups: Groups) -> Groups:
    """`all-active` as the least that it can have meant: who was active is not known any more (as
    Groups.stable_number)."""
    return replace(
        groups,
        intragroup="quorum" if groups.intragroup == "all-active" else groups.intragroup,
        intergroup="any" if groups.intergroup == "all-active" else groups.intergroup,
    )


def first_number_since(source: TopicSource, timestamp_ns: int) -> int:
    """First number of a message that was sent at or after ``timestamp_ns`` (CLOCK_REALTIME); ``any_next`` if
    there is none.

    By bisection. Times ascend with the numbers unless the clock of the source's host was set back; where they
    do not, this is one of the places where they pass ``timestamp_ns`` from below.
    """
    logs, block = Logs([log.path for log in source.logs]), Block()
    try:
        return first_sent_since(logs, block, source.oldest, source.any_next, timestamp_ns)
    finally:
        logs.close()


def cut_points(source: TopicSource, first: int, stop: int) -> list[int]:
    """Numbers in (first, stop), ascending, where segments begin: of the log that has most of the range. For
    splitting; a hint."""
    log = max(source.logs, key=lambda log: min(stop, log.next) - max(first, log.oldest))
    found = set()
    for path in Path(log.path).glob("seg-*"):
        number = _segment_first(path, source.uuid)
        if number is not None and first < number < stop:
            found.add(number)
    return sorted(found)


def _segment_first(path: Path, uuid: str) -> int | None:
    """Number of a segment's first message; None when its header is not a good one of this source."""
    size = ffi.sizeof("struct hf_segment_header")
    try:
        page = read_regular(path, size)
    except OSError:  # recycled meanwhile
        return None
    if len(page) < size:
        return None
    header = ffi.from_buffer("struct hf_segment_header *", page)
    covered = ffi.offsetof("struct hf_segment_header", "crc")
    good = header.crc == lib.hf_crc32c(0, page, covered) and bytes(ffi.buffer(header.source_uuid)).hex() == uuid
    return int(header.first_sqn) if good else None
