"""What a store remembers: RegIDs, sessions, source identities and their incarnations, receivers and their
acks.

``state.0`` and ``state.1`` are written alternately, each a header, a CRC-32C and one msgpack record, and
synced before the answer that depends on it leaves the store (docs/design.md 23). A crash while one is written
leaves the other, and so does a power cut: the other is on disk before. Acks are saved lazily, without a sync
of their own: until then they stand on the source's board, which survives every process. A slot is written
where it differs from what it holds: so one source among thousands costs the disk some pages.

After a sync that failed nobody knows which bytes and names of a slot are on disk, and no later sync tells
(engine/native/sync.py): both slots are written once more, each as a new file under its name, before one is
written in place again. A crash before leaves a doubt, and the next process goes on with that.

Only one store uses a directory: it holds an fcntl lock on ``lock`` for life. A store that starts while its
disk is read-only cannot open ``lock`` for writing, and a write lock needs that. It holds two others instead
(:class:`StoreDirectory`).
"""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

import msgspec

from ..control.wire import UNDECODABLE
from ..errors import CorruptionError, ReadOnlyError
from ..native.core import ffi, lib
from ..native.private_directory import read_regular
from ..native.runtime import os, secrets
from ..native.sync import Doubt, sync_data, sync_directory
from ..options.receiver_paced import Wanted  # noqa: TC001  (msgspec decodes by it)
from ..rules.exclusions import OVER_MAX, Said
from ..rules.reconcile import BEGINS_MAX, Table, after_begin, newest_table, void_from
from .receiver_state import Acked, ReceiverState
from .store_directory import writing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from ..native.core import CData

__all__ = ["ReceiverState", "SourceState", "State", "StateFile"]

_T = TypeVar("_T")
_HEADER = struct.Struct("<8sIIQI4x")
_MAGIC = b"HFSTATE1"
_STATE_MAX = 1 << 28
PAGE = 4096
COMPARED = 16 * PAGE
"""Of a slot and what is to be in it, at a time."""
LIVES_MAX = 64
SERVED_MAX = 100
"""Exclusions that a store remembers to have learned after. An older one makes it learn once more."""
LIFE_STEP = 1 << 20
"""How far a life's number is at most from the one before."""


class SourceState(msgspec.Struct, omit_defaults=True):
    """A source identity and its newest BEGIN."""

    uuid: bytes
    topic: str
    registration_id: int
    session_id: int
    incarnation: int = 0
    start_sqn: int = 0
    begins: list[tuple[int, int]] = msgspec.field(default_factory=list)
    """(incarnation, start), newest last, the last BEGINS_MAX of them (engine/rules/reconcile.py): what an ack
    of an older incarnation is clamped by."""
    stores: list[str] = msgspec.field(default_factory=list)
    receivers: list[ReceiverState] = msgspec.field(default_factory=list)
    activity_timeout: int = 0
    state_lifetime: int = 0
    gone_ns: int = 0
    """These three as in :class:`ReceiverState`."""
    lost_below: int = 0
    """Number behind the last one that this store never had: its board line must not count for those."""
    late_join: bool = True
    """False: the source does not want receivers to recover anything."""
    repository: str = ""
    """``disk``, ``memory`` or ``no-cache``: as its first registration made it; "" = nobody wrote it down."""
    paced: Wanted | None = None
    """Receiver-paced, as its first registration asked for it."""
    proxy: bool = False
    """A store is to stand in for it when it is dead."""
    learner: bool = False
    """It has lost what it acknowledged, and has no say before it has caught up (docs/design.md 15)."""
    peers: dict[str, int] = msgspec.field(default_factory=dict)
    """Store -> the life that it was in, as the last BEGIN told (docs/design.md 15)."""
    directories: dict[str, str] = msgspec.field(default_factory=dict)
    """Store -> its directory at the last BEGIN: so its files are found when its info file is gone, after a
    reboot (docs/design.md 14)."""
    sizes: list[int] = msgspec.field(default_factory=list)
    groups: list[int] = msgspec.field(default_factory=list)
    """Declared size by group number, and the group of each of ``stores``."""
    intragroup: int = 0
    intergroup: int = 0
    """What the groups must agree on, by number (engine/rules/quorum.py INTRAGROUP, INTERGROUP)."""
    promised: int = 0
    """The greatest incarnation promised to a claimant: no BEGIN below it is taken from another one."""
    promised_to: bytes = b""
    """That claimant."""
    served: list[int] = msgspec.field(default_factory=list)
    """Exclusions by the operator after which this store has become a learner."""
    over: list[int] = msgspec.field(default_factory=list)
    """Exclusions by the operator that are over: a start was decided with them, and who was excluded is waited
    for again. Also such as this store has not recorded."""
    others: dict[str, int] = msgspec.field(default_factory=dict)
    """Stores of earlier lists -> the number below which they may have messages that no declared store has
    (docs/design.md 30)."""
    taken: list[int] = msgspec.field(default_factory=list)
    """Lives that this directory, restored from a copy, has not had: with a BEGIN it takes part again."""
    declared: int = 0
    """The incarnation whose BEGIN named ``stores``. Its peers may have told it of a later one, whose list it
    does not know."""
    shelved: int = -1
    """The incarnation under which its log was closed until somebody asks for it (engine/store/shelf.py); -1:
    it is open."""
    shelved_next: int = 0
    """Number behind the last message of a log that is shelved."""
    shelved_oldest: int = 0
    """Number of the first message that it has."""
    first_ns: int = 0
    """When that was sent, CLOCK_REALTIME; 0: nobody knows."""
    met: bool = False
    """A receiver has registered with it, or one that is kept nowhere was told that it is over."""

    @property
    def is_shelved(self) -> bool:
        """Nothing has begun since."""
        return self.shelved == self.incarnation

    def promise(self, claimant: bytes, seen: int, least: int) -> bool:
        """Promises ``claimant`` an incarnation: greater than all that were ``seen`` or promised to others,
        ``least`` or more.

        One claimant is promised the same again as long as that holds. True: it is news, to be on disk before
        it is told.
        """
        floor = seen if claimant and claimant == self.promised_to else max(seen, self.promised)
        promised = max(floor + 1, least, self.promised)
        if (promised, claimant) == (self.promised, self.promised_to):
            return False
        self.promised, self.promised_to = promised, claimant
        return True

    def learn(self, exclusions: Iterable[int]) -> bool:
        """The operator has excluded this store: it has no say before it has caught up. True: it is news."""
        fresh = set(exclusions) - set(self.served)
        self.served = [*self.served, *sorted(fresh)][-SERVED_MAX:]
        self.learner |= bool(fresh)
        return bool(fresh)

    def take_over(self, life: int) -> None:
        """A BEGIN has told it of a life that its directory has not had."""
        self.taken = [*self.taken, life][-LIVES_MAX:]

    def excluded(self, stores: Mapping[str, int]) -> dict[str, int]:
        """Of ``stores``, which the operator excluded, those without which nothing has begun since."""
        return {name: number for name, number in stores.items() if number not in self.over}

    def says(self, stores: Mapping[str, int]) -> Said:
        """What this store, which remembers that ``stores`` were excluded, says of it for this source."""
        return Said(self.excluded(stores), self.over, self.incarnation > 0)

    def readmit(self, exclusions: Iterable[int]) -> bool:
        """A BEGIN is taken in: at the next start who was excluded by these is waited for. True: it is
        news."""
        fresh = set(exclusions) - set(self.over)
        self.over = [*self.over, *sorted(fresh)][-OVER_MAX:]
        return bool(fresh)

    def begin(self, incarnation: int, start_sqn: int) -> None:
        """Takes in BEGIN(incarnation, start_sqn): from there on records and acks of older ones are void."""
        self.take(after_begin(self.begins, (), incarnation, start_sqn))

    def take(self, table: Table) -> None:
        """Takes in a whole table of BEGINs, at least as new as its own.

        Another thread may save meanwhile. The table comes last: one that is not the log's is mended from that
        at the next start.
        """
        clamp = void_from(table, self.incarnation)
        for receiver in list(self.receivers):
            receiver.ack = min(receiver.ack, clamp)
        self.lost_below = min(self.lost_below, clamp)
        self.incarnation, self.start_sqn = table[-1]
        self.begins = list(table)

    def meet(self, begins: Table) -> bool:
        """Its log was opened; ``begins``: what that knows, empty if there is no log. False: the log is to
        learn what is known here."""
        if not begins:  # a memory store after a reboot, or its logs were removed: more is known here
            self.learner |= self.incarnation > 0
        elif newest_table([self.begins, begins]) != tuple(self.begins):  # killed between the log's BEGIN and the state
            self.take(begins)
        elif self.is_ahead_of(begins):  # it was set back: what is void by now counts for nothing
            self.learner = True
            return False
        return True

    def is_ahead_of(self, begins: Table) -> bool:
        """A log that knows these BEGINs, and none that is newer, has missed one."""
        table = tuple(self.begins)
        return bool(begins) and newest_table([table, begins]) == table and begins[-1] != table[-1]

    def clamp(self, ack: int, incarnation: int) -> int:
        """An ack stored under ``incarnation``, as it stands now: below the start of every one since."""
        since = [start for number, start in self.begins if number > incarnation]
        if len(since) == BEGINS_MAX:
            return 0  # older than what is remembered
        return min([ack, *since])

    def acked(self, line: CData) -> Acked:
        """What a receiver's line says (``struct hf_board_line``). Its range is there before the ack is."""
        ack = int(line.ack)
        return Acked(self.clamp(ack, int(line.ack_stream)), line.to_sqn > 0 and line.from_sqn <= ack)


class State(msgspec.Struct, omit_defaults=True):
    """The whole record."""

    name: str
    uuid: bytes
    opened: int
    """This life of the store: each opening of the directory is one, with a greater number (docs/design.md
    15)."""
    next_registration_id: int
    sources: list[SourceState] = msgspec.field(default_factory=list)
    adopted: int = -1
    """The life after which the operator lets it vote with no state (`holdfast store adopt-empty`)."""
    going: list[bytes] = msgspec.field(default_factory=list)
    """Forgotten sources whose files may still be there: removing goes on after a crash."""
    lives: list[int] = msgspec.field(default_factory=list)
    """The last LIVES_MAX, this one at the end. What a copy of a running store lacks of the life that it was
    made in does not show by them, nor what came in a life that no BEGIN has told to a peer: while the board
    lasts, the store's own line shows it."""

    excluded: dict[str, int] = msgspec.field(default_factory=dict)
    """Stores that the operator has excluded (`holdfast store exclude`) -> the number of that exclusion:
    nobody waits for them."""

    def lives_for(self, source: SourceState | None) -> list[int]:
        """Lives that the directory has had, or has taken over for this source; oldest first."""
        had = self.lives or range(self.opened + 1)
        return sorted({*had, *(source.taken if source is not None else ())})

    @property
    def adopts_empty(self) -> bool:
        """The operator's word holds in this life of the store: who is wiped later has to be adopted again."""
        return self.adopted == (self.lives[-2] if len(self.lives) > 1 else 0)

    def live(self) -> None:
        """The directory is opened once more. The number is no other life's: a restored backup that is opened
        as often as the directory that it replaces has not had the lives that its peers remember of that
        one."""
        self.lives = self.lives or list(range(1, self.opened + 1))
        self.opened += 1 + secrets.randbelow(LIFE_STEP)
        self.lives = [*self.lives, self.opened][-LIVES_MAX:]


class StateFile:
    """The two slots in a directory. One writer.

    ``doubts``: the directory where it is remembered that a sync failed (:attr:`Domain.doubts`). Without it
    nobody knows, and each slot is written as a new file. ``sealed``: the directory, this one or that of the
    logs, whose disk was read-only when its store started. Nothing is saved, also when the disk can be written
    again: the logs are not open for writing.
    """

    def __init__(self, directory: Path, doubts: Path | None = None, *, sealed: Path | None = None) -> None:
        self.directory = directory
        self.sealed = sealed
        self._doubts = doubts
        self._anew = {0, 1} if doubts is None else set[int]()
        """Slots that are to be written as new files."""
        self._whole = set[int]()
        """Slots that are to be written whole, for this process has not yet: what the cache has of them need
        not be on disk."""
        self._generation = 0
        self._on_disk = True
        """The newest slot is."""
        self._encoder = msgspec.msgpack.Encoder()
        self._data = bytearray()

    def load(self) -> State | None:
        """The newest valid slot, or None in a new directory.

        Raises:
            CorruptionError: there are slots, and none is valid.
        """
        slots = [self._read(index) for index in range(2)]
        valid = [slot for slot in slots if isinstance(slot, tuple)]
        states = ((generation, _decoded(body)) for generation, body in sorted(valid, reverse=True))
        self._generation, state = next((found for found in states if found[1] is not None), (0, None))
        if state is None:
            if any(slot is not None for slot in slots):
                raise CorruptionError(
                    f"{self.directory}: neither state.0 nor state.1 is valid; the logs are untouched",
                    hint="restore the directory from a backup, or remove both to start without state",
                )
            self._anew = {0, 1}
            return None
        self._on_disk = False  # who knows how it was written
        self._whole = {0, 1}
        doubt = self._doubt(state)
        if doubt is not None and doubt:
            self._anew = {0, 1}
        return state

    def _doubt(self, state: State) -> Doubt | None:
        return None if self._doubts is None else Doubt(self._doubts / state.uuid.hex())

    def _read(self, index: int) -> tuple[int, bytes] | str | None:
        """Generation and body of a slot that is whole; else what is wrong with it."""
        path = self.directory / f"state.{index}"
        try:
            data = read_regular(path, _HEADER.size + _STATE_MAX)
        except FileNotFoundError:
            return None
        if len(data) < _HEADER.size:
            return "short"
        magic, length, crc, generation, _ = _HEADER.unpack_from(data)
        body = data[_HEADER.size : _HEADER.size + length]
        if magic != _MAGIC or length > _STATE_MAX or len(body) != length:
            return "header"
        return (generation, body) if crc == _checksum(generation, body, len(body)) else "crc"

    def save(self, state: State, *, sync: bool = True, sources: msgspec.Raw | None = None) -> None:
        """Writes the older slot. With ``sync``, it is on disk when this returns. ``sources``: those of the
        state as the file is to have them, if somebody has them (state_parts.py). Raises ReadOnlyError,
        OSError.

        A slot that is new gets its name when it is whole: a store that is killed in its first microseconds
        left one that is not valid, and no other.
        """
        self._check_seal()
        generation = self._generation + 1
        data = self._encoded(state, generation, sources)
        with writing(self.directory):
            sync = self._put(generation, data, state, sync=sync)
        self._generation, self._on_disk = generation, sync

    def _encoded(self, state: State, generation: int, sources: msgspec.Raw | None) -> bytearray:
        """A slot. What it is encoded into is kept: megabytes of memory would be new each time."""
        whole = state if sources is None else msgspec.structs.replace(state, sources=sources)
        self._encoder.encode_into(whole, self._data, _HEADER.size)
        length = len(self._data) - _HEADER.size
        checksum = _checksum(generation, ffi.from_buffer(self._data) + _HEADER.size, length)
        _HEADER.pack_into(self._data, 0, _MAGIC, length, checksum, generation, 0)
        return self._data

    def _put(self, generation: int, data: bytearray, state: State, *, sync: bool) -> bool:
        """Writes a slot. True: it is on disk."""
        path = self.directory / f"state.{generation % 2}"
        if generation % 2 in self._anew or not path.exists():
            self._replace(path, data, state)
            self._trust(generation % 2, state)
            return True
        if not self._on_disk:
            self._sync_newest(state)
        slot = generation % 2
        self._write(path, os.O_CREAT, data, state, sync=sync, whole=slot in self._whole)
        self._whole.discard(slot)
        return sync

    def require_writable(self) -> None:
        """Raises ReadOnlyError while the disk is read-only. The disk is asked, in the way in which a save
        asks it."""
        self._check_seal()
        newest = self.directory / f"state.{self._generation % 2}"
        with writing(self.directory), suppress(FileNotFoundError):
            os.close(os.open(newest, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW))

    def _check_seal(self) -> None:
        if self.sealed:
            raise ReadOnlyError(str(self.sealed), since_start=True)

    def _replace(self, path: Path, data: bytearray, state: State) -> None:
        made = self.directory / "state.new"
        made.unlink(missing_ok=True)
        self._write(made, os.O_CREAT | os.O_EXCL, data, state, sync=True)
        made.rename(path)
        self._sync(sync_directory, self.directory, state)

    def _write(self, path: Path, flags: int, data: bytearray, state: State, *, sync: bool, whole: bool = True) -> None:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | flags, 0o600)
        try:
            for start, end in [(0, len(data))] if whole else _differing(fd, data):
                while start < end:
                    start += os.pwrite(fd, data[start:end], start)
            if sync:
                self._sync(sync_data, fd, state)
        finally:
            os.close(fd)

    def _sync_newest(self, state: State) -> None:
        fd = os.open(self.directory / f"state.{self._generation % 2}", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            self._sync(sync_data, fd, state)
        finally:
            os.close(fd)
        self._on_disk = True

    def _sync(self, function: Callable[[_T], None], what: _T, state: State) -> None:
        try:
            function(what)
        except OSError:
            self._anew = {0, 1}
            doubt = self._doubt(state)
            if doubt is not None:
                doubt.set()
            raise

    def _trust(self, slot: int, state: State) -> None:
        doubt = self._doubt(state)
        if doubt is not None and slot in self._anew:
            self._anew.discard(slot)
            if not self._anew:
                doubt.clear()


def _decoded(body: bytes) -> State | None:
    """None: it is no state."""
    with suppress(*UNDECODABLE):
        return msgspec.msgpack.decode(body, type=State)
    return None


def _differing(fd: int, data: bytearray) -> Iterator[tuple[int, int]]:
    """The ranges in which the file does not hold ``data`` yet, in whole pages, neighbours as one."""
    first = None
    for at in range(0, len(data), COMPARED):
        part = data[at : at + COMPARED]
        held = _held(fd, len(part), at)
        for start in range(0, len(part), PAGE) if held != part else ():
            if held[start : start + PAGE] == part[start : start + PAGE]:
                continue
            if first is None:
                first, end = at + start, at + start
            if end != at + start:
                yield first, end
                first = at + start
            end = min(at + start + PAGE, len(data))
    if first is not None:
        yield first, end


def _held(fd: int, length: int, at: int) -> bytes:
    """What a slot holds there. Of what cannot be read nothing is known: then all of it differs."""
    with suppress(OSError):
        return os.pread(fd, length, at)
    return b""


def _checksum(generation: int, body: bytes | CData, length: int) -> int:
    """Over both: each bit of the 64 of the generation changes it, or an old slot could pass for the
    newest."""
    return int(lib.hf_crc32c((generation ^ generation >> 32) & 0xFFFFFFFF, body, length))
