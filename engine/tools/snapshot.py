"""What a domain looks like from outside: its sources, receivers and stores, and where each of them stands.

Read-only, and nobody is asked: positions come from the streams and boards in shared memory, identities from
the stores' state files. So it works with every process dead, and disturbs none that lives. Numbers are the
public ones: ``next`` is the number that the next message will carry, ``stable`` and ``ack`` are the highest
that are (-1 for none).
"""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, NamedTuple

from ..control.waits import waiting
from ..errors import Error
from ..log.info_file import log_range, read_info
from ..log.state_file import SourceState, State, StateFile
from ..memory.mapping import Mapping, UnpublishedError, attach_board, attach_stream, read_lines
from ..memory.nameless import Nameless, nameless
from ..memory.sri import groups_of
from ..native.core import CData, ffi, lib
from ..native.limits import uses_of
from ..native.runtime import Path
from ..rules.nearness import is_near
from ..rules.quorum import Groups
from .rows import ReceiverRow, Snapshot, SourceRow, StorePosition, StoreRow

if TYPE_CHECKING:
    from ..memory.domain import Domain, ObjectName

__all__ = [
    "Declared", "ReceiverRow", "Snapshot", "SourceRow", "StoreFiles", "StorePosition", "StoreRow", "declared_stores", "ends",
    "running_stores", "store_files", "take",
]  # fmt: skip


class StoreFiles:
    """What a store left in files: who it is, whether it lives, and its state."""

    def __init__(self, domain: Domain, name: str) -> None:
        self.name = name
        self.info = read_info(domain, name)
        self.alive = -1
        """1 alive, 0 proved dead, -1 unknown."""
        self.socket = domain.socket_path(name)
        if self.info is not None:
            self.alive = max(-1, self.info.alive(domain))

    @cached_property
    def listed(self) -> State | None:
        """As it is when somebody asks first. None when there is none, or it cannot be read."""
        if self.info is None:
            return None
        try:
            return StateFile(Path(self.info.directory)).load()
        except (Error, OSError):
            return None

    @cached_property
    def _kept(self) -> dict[bytes, SourceState]:
        return {source.uuid: source for source in self.listed.sources} if self.listed is not None else {}

    @property
    def state(self) -> str:
        """As in :class:`StoreRow`. A process that closed its store may live on: then the socket is gone."""
        if self.alive < 0:
            return "unknown"
        bound = self.socket.exists()
        if self.alive:
            return "running" if bound else "stopped"
        return "dead" if bound else "stopped"

    @cached_property
    def runs(self) -> bool:
        """It ran when somebody asked first."""
        return self.state == "running"

    @property
    def is_seen(self) -> bool:
        """The process that has its pid here is the store's: in another pid namespace it is any other one."""
        return self.info is not None and lib.hf_process_start(self.info.pid) == self.info.start

    def source(self, uuid: bytes) -> SourceState | None:
        """What the state says of a source."""
        return self._kept.get(uuid)

    def stands_in_for(self, uuid: bytes) -> bool:
        """It runs, and has said that it is the proxy of this source."""
        return self.info is not None and uuid in self.info.standing and self.runs

    def log_range(self, uuid: bytes) -> tuple[int, int] | None:
        """Oldest and next number in its log of a source; readable with the store dead."""
        return log_range(Path(self.info.logs) / uuid.hex()) if self.info is not None else None

    def following(self, uuid: bytes) -> int | None:
        """Number behind the last message in its log of a source; None where there is none, or it cannot be
        read."""
        kept = self.source(uuid)
        if kept is not None and kept.is_shelved:  # its log was closed, and its state says where
            return kept.shelved_next
        found = self.log_range(uuid)
        return found[1] if found is not None else None

    def row(self) -> StoreRow:
        """For people and programs."""
        info = self.info
        kept = len(self.listed.sources) if self.listed is not None else -1
        if info is None:
            return StoreRow(self.name, "unknown", "", "", 0, kept)
        sealed = info.read_only and self.state == "running"
        uses = uses_of(info.pid) if self.state == "running" and self.is_seen else []
        near = [str(use) for use in uses if is_near(use.used, use.most)]
        return StoreRow(self.name, self.state, info.type, info.directory, info.pid, kept, sealed, near)


Keepers = list[tuple[StoreFiles, SourceState]]
"""The stores that keep a source, and what each has of it."""


def store_files(domain: Domain) -> list[StoreFiles]:
    """Every store that ever ran in the domain, by name."""
    return [StoreFiles(domain, name) for name in domain.store_names()]


def running_stores(domain: Domain) -> list[str]:
    """Names of the stores that answer now."""
    return [store.name for store in store_files(domain) if store.state == "running"]


class Declared(NamedTuple):
    """A store that a source named in its stream."""

    name: str
    uuid: bytes
    registration_id: int
    seated: bool
    """The source has registered with it; the others are backups, or have not answered yet."""


def declared_stores(mapping: Mapping) -> list[Declared] | None:
    """The stores of a stream's source; None while its list is being written, or when the source died while it
    was."""
    said = _declaration(mapping)
    return said[0] if said is not None else None


def _declaration(mapping: Mapping) -> tuple[list[Declared], Groups] | None:
    stores = ffi.new("struct hf_sri_store[]", lib.HF_STORES_MAX)
    version, groups = ffi.new("uint64_t *"), ffi.new("struct hf_sri_groups *")
    count = lib.hf_stream_sri(mapping.handle, stores, version, groups)
    if count < 0:
        return None
    declared = [
        Declared(
            _text(store.name, lib.HF_NAME_MAX), bytes(ffi.buffer(store.uuid)), int(store.registration_id), store.version > 0
        )
        for store in stores[0:count]
    ]  # fmt: skip
    return declared, groups_of(groups[0], stores, count)


class _Line:
    """A participant of a source, off its board. ``ack`` is the first number that is not acknowledged."""

    def __init__(self, view: CData, kept: SourceState | None) -> None:
        line = view.line
        self.uuid = bytes(ffi.buffer(line.uuid))
        self.role = int(line.role)
        self.name = _text(line.name, lib.HF_NAME_MAX)
        self.alive = view.alive == 1
        self.catching_up, self.full = (bool(line.flags & flag) for flag in (lib.HF_LINE_CATCHING_UP, lib.HF_LINE_FULL))
        self.pid = int(line.owner_pid)
        self.session_id = int(line.session_id)
        self.registration_id = int(line.registration_id)
        self.delivered, self.redelivered, self.lapped = int(line.delivered), int(line.redelivered), int(line.lapped)
        self.is_dead = view.alive == 0
        self.is_over = self.is_dead and bool(line.flags & (lib.HF_LINE_EPHEMERAL | lib.HF_LINE_DEREGISTERED))
        """It has ended, and nobody goes on with it."""
        self.ack = int(line.ack)
        if kept is not None:  # a BEGIN that it has not seen yet may have voided what it acknowledged
            self.ack = kept.clamp(self.ack, int(line.ack_stream))


class _Source:
    """One source identity, put together from its rings, its board and the stores' files."""

    def __init__(
        self, domain: Domain, uuid: bytes, objects: list[ObjectName], keepers: Keepers, notes: list[Nameless]
    ) -> None:
        self.uuid, self.keepers = uuid, keepers
        newest = max((kept for _, kept in keepers), key=lambda kept: kept.incarnation, default=None)
        self.topic = newest.topic if newest else ""
        self.session_id = newest.session_id if newest else 0
        self.incarnation = newest.incarnation if newest else 0
        self.start_sqn = newest.start_sqn if newest else 0
        self.declared = {store.name: kept.registration_id for store, kept in self.keepers}
        self.uuids = {store.name: store.info.uuid for store, _ in self.keepers if store.info is not None}
        self.groups = _one_group(len(self.declared))
        self.idle: set[str] = set()
        self.state, self.pid = "stored", 0
        self.next = self.told_stable = self.messages = self.payload_bytes = self.ring_bytes = 0
        self.has_ring = self.is_deregistered = False
        for item in reversed([item for item in objects if item.kind == "stream"]):
            try:
                with attach_stream(item.name, populate=False) as mapping:
                    self._ring(domain, mapping)
                break
            except (FileNotFoundError, UnpublishedError, Error):  # just gone, not done, or void: an older one may tell
                continue
        self.receiving: dict[bytes, int] = {}
        """Receivers that live on a board without a name -> pid."""
        for note in notes:
            if note.kind == "source":
                self.state, self.pid = "nameless", note.pid
            else:
                self.receiving[bytes.fromhex(note.participant)] = note.pid
        self.board_error = ""
        self.lines = self._lines(domain, newest) if any(item.kind == "board" for item in objects) else []
        if not self.has_ring:
            ends = [found for store, _ in self.keepers if (found := store.following(uuid)) is not None]
            self.next = max([self.start_sqn, *ends])

    def _ring(self, domain: Domain, mapping: Mapping) -> None:
        header, preamble = mapping.stream, mapping.preamble
        self.has_ring = True
        self.is_deregistered = (
            bool(header.flags & lib.HF_STREAM_DEREGISTERED) and int(preamble.incarnation) >= self.incarnation
        )
        """Its newest life has asked its stores to forget it. Some may not have done it yet."""
        self.topic = _text(header.topic, lib.HF_TOPIC_MAX)
        self.session_id, self.incarnation = int(header.session_id), int(preamble.incarnation)
        self.start_sqn, self.pid = int(header.start_sqn), int(preamble.owner_pid)
        alive = lib.hf_process_alive(domain.fd, preamble.owner, preamble.owner_pid, preamble.owner_start)
        closed = header.state == lib.HF_STREAM_CLOSED
        self.state = "closed" if closed else {1: "live", 0: "dead"}.get(int(alive), "unknown")
        tail, end = ffi.new("uint64_t *"), ffi.new("uint64_t *")
        walked = lib.hf_stream_end(mapping.handle, tail, end) >= 0  # a dead source's header may be one send behind
        self.next = int(end[0]) if walked else int(header.next_sqn)
        self.told_stable = int(header.stable_sqn)
        self.messages, self.payload_bytes = int(header.messages), int(header.payload_bytes)
        self.ring_bytes = int(header.ring_bytes)
        said = _declaration(mapping)
        if said is not None:
            stores, self.groups = said
            self.idle = {store.name for store in stores if not store.seated}
            self.declared = {store.name: store.registration_id for store in stores}
            self.uuids |= {store.name: store.uuid for store in stores}
            if len(self.declared) != self.groups.stores:  # a store twice: no source writes that
                self.groups = _one_group(len(self.declared))

    def _lines(self, domain: Domain, newest: SourceState | None) -> list[_Line]:
        try:
            with attach_board(domain, self.uuid, writable=False) as board:
                return [_Line(view, newest) for view in read_lines(board, domain, test=True)]
        except (FileNotFoundError, UnpublishedError):  # nobody has joined it yet
            return []
        except (Error, OSError) as error:
            self.board_error = str(error)
            return []

    def _positions(self) -> list[StorePosition]:
        """Where its stores stand, in the order of store indexes; clamped to what was sent."""
        by_uuid = {line.uuid: line for line in self.lines if line.role == lib.HF_ROLE_STORE}
        files = {  # one that was asked, and where nothing has begun, has no log of it yet
            store.info.uuid: store for store, kept in self.keepers if store.info is not None and kept.incarnation
        }
        pairs = zip(self.declared, self.groups.of, strict=True) if self.idle else ()
        seated = [group for name, group in pairs if name not in self.idle]
        found = []
        for (name, registration_id), group in zip(self.declared.items(), self.groups.of, strict=True):
            uuid = self.uuids.get(name, b"")
            line, store = by_uuid.get(uuid), files.get(uuid)
            alive = line is not None and line.alive
            # One that came back when the source had ended has joined no board: its log says where it is.
            held = store.following(self.uuid) if not alive and store is not None else None
            known = held if held is not None else line.ack if line is not None else None
            at = min(known, self.next) if known is not None else None
            stable, lag = (at - 1, self.next - at) if at is not None else (None, None)
            proxy = store is not None and store.stands_in_for(self.uuid)
            alive = alive or (self.state == "stored" and store is not None and store.runs)
            state = "active" if alive else "unknown" if self.state == "nameless" else "down"
            if name in self.idle:
                state = "idle"
            elif line is not None and line.alive and (line.full or line.catching_up):
                state = "full" if line.full else "catching_up"
            spare = state == "idle" and seated.count(group) >= self.groups.sizes[group]
            found.append(StorePosition(name, registration_id, stable, lag, alive, group, state, proxy, spare))
        return found

    def row(self) -> SourceRow:
        stores = self._positions()
        held = {
            index: 0 if store.stable is None else store.stable + 1
            for index, store in enumerate(stores)
            if store.state != "idle"
        }
        everywhere = len(held) == len(stores) and set(held.values()) <= {self.next}
        stable = self.next if everywhere else self.groups.stable_number(held)
        stable = min(max(stable, self.told_stable), self.next)
        return SourceRow(
            self.topic, self.uuid.hex(), self.state, self.declared, self.session_id, self.incarnation, self.pid,
            self.state in {"live", "nameless"}, self.next, stable - 1, self.next - stable, self.messages, self.payload_bytes,
            self.ring_bytes, stores, self.board_error,
        )  # fmt: skip

    def receivers(self) -> list[ReceiverRow]:
        """Those on the board, and those that only a store remembers (after a reboot). Of ephemeral ones that
        have ended, and of those that were deregistered, the ones that a store keeps. Of a session that a
        store knows nothing counts that an earlier life has left on another line."""
        source = self.topic, self.uuid.hex(), next(iter(self.declared.values()), 0)
        rows: dict[bytes, ReceiverRow] = {}
        kept_for = {known.uuid for _, kept in self.keepers for known in kept.receivers}
        sessions = {known.session_id for _, kept in self.keepers for known in kept.receivers} - {0}
        for line in self.lines:
            is_kept = line.uuid in kept_for
            is_over = not is_kept and (line.is_over or (line.is_dead and line.session_id in sessions))
            if line.role == lib.HF_ROLE_RECEIVER and not is_over:
                is_known = is_kept or not line.is_dead or not self.declared
                rows[line.uuid] = ReceiverRow(
                    *source, line.registration_id, line.session_id, line.name, line.ack - 1, max(0, self.next - line.ack),
                    line.delivered, line.redelivered, line.lapped, line.pid, line.alive, is_known, line.uuid.hex(),
                )  # fmt: skip
        for _, kept in self.keepers:
            for known in kept.receivers:
                if known.uuid not in rows:
                    rows[known.uuid] = ReceiverRow(
                        *source, known.registration_id, known.session_id, "", known.ack - 1, max(0, self.next - known.ack),
                        0, 0, 0, self.receiving.get(known.uuid, 0), known.uuid in self.receiving, True, known.uuid.hex(),
                    )  # fmt: skip
        return list(rows.values())


@lru_cache
def _one_group(stores: int) -> Groups:
    return Groups.single(stores)


def _text(field: CData, size: int) -> str:
    return ffi.string(field, size).decode(errors="replace")


class _Look:
    """What is read once for all sources."""

    def __init__(self, domain: Domain) -> None:
        self.domain = domain
        self.stores = store_files(domain)
        self.objects: dict[bytes, list[ObjectName]] = {}
        for item in domain.objects():
            self.objects.setdefault(item.uuid, []).append(item)
        ringed = {uuid for uuid, items in self.objects.items() if any(item.kind == "stream" for item in items)}
        self.keepers: dict[bytes, Keepers] = {}
        for store in self.stores:
            for source in store.listed.sources if store.listed is not None else ():
                self.keepers.setdefault(source.uuid, []).append((store, source))
        self.uuids = self.keepers.keys() | ringed
        self.notes: dict[bytes, list[Nameless]] = {}
        for note in nameless(domain):
            self.notes.setdefault(bytes.fromhex(note.uuid), []).append(note)

    def source(self, uuid: bytes) -> _Source:
        keepers = self.keepers.get(uuid, [])
        return _Source(self.domain, uuid, self.objects.get(uuid, []), keepers, self.notes.get(uuid, []))

    def shelved(self, uuid: bytes) -> SourceRow | None:
        """Of a source that is over, by the states of its stores alone, for there may be thousands. None where
        they do not say everything: each has closed its log at the same number, no receiver is known, and
        nothing of the source is in shared memory."""
        keepers = self.keepers.get(uuid, [])
        if not keepers or uuid in self.objects or uuid in self.notes:
            return None
        newest = keepers[0][1]
        declared, stores, number = dict[str, int](), list[StorePosition](), newest.shelved_next
        for store, kept in keepers:
            if not kept.is_shelved or not kept.incarnation or kept.receivers or kept.shelved_next != number:
                return None
            newest = kept if kept.incarnation > newest.incarnation else newest
            declared[store.name] = kept.registration_id
            state, proxy = "active" if store.runs else "down", store.stands_in_for(uuid)
            stores.append(StorePosition(store.name, kept.registration_id, number - 1, 0, store.runs, 0, state, proxy))
        if number < newest.start_sqn:
            return None
        return SourceRow(
            newest.topic, uuid.hex(), "stored", declared, newest.session_id, newest.incarnation, 0, False, number,
            number - 1, 0, 0, 0, 0, stores,
        )  # fmt: skip


def ends(domain: Domain, topic: str) -> dict[str, int]:
    """Of each source of a topic the number that its next message would carry, as :func:`take` has it; fast
    for thousands that are over. Without those that were deregistered, and that no store keeps: nobody is to
    wait for what is left of one."""
    look, found = _Look(domain), dict[str, int]()
    for uuid in look.uuids:
        kept = [source for _, source in look.keepers.get(uuid, [])]
        if kept and all(each.is_shelved and each.topic == topic for each in kept) and uuid not in look.objects:
            found[uuid.hex()] = max(max(each.shelved_next, each.start_sqn) for each in kept)
        elif not kept or topic in {each.topic for each in kept}:
            whole = look.source(uuid)
            if whole.topic == topic and whole.incarnation > 0 and (kept or not whole.is_deregistered):
                found[uuid.hex()] = whole.next
    return found


def take(domain: Domain) -> Snapshot:
    """Looks at everything once. ``domain`` need not be joined. Sources that never sent and nobody keeps are
    left out."""
    look = _Look(domain)
    found: list[tuple[SourceRow, list[ReceiverRow]]] = []
    for uuid in look.uuids:
        if (row := look.shelved(uuid)) is not None:
            found.append((row, []))
        elif (source := look.source(uuid)).incarnation > 0:
            found.append((source.row(), source.receivers()))
    found.sort(key=lambda each: (each[0].topic, each[0].session_id, each[0].uuid))
    return Snapshot(
        domain.name,
        [row for row, _ in found],
        [receiver for _, receivers in found for receiver in receivers],
        [store.row() for store in look.stores],
        waiting(domain),
    )
