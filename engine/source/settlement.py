"""What becomes of a source's messages after they were sent: reads the board, and does what `retention` and
`flight` decide.

The driver of those two machines. Anybody may call `refresh`: the context's thread, which also tells the
events, a sender that waits for room, a program that waits for stability.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..events.source import ConfirmationFlags, FlightSizeNotification, FlightSizeState, FlightSizeType, Wakeup
from ..native.core import CData, ffi, lib
from ..native.runtime import threading, time
from ..rules.flight import Flight, InFlight, Limits, Refused
from ..rules.notification import NoticeConfig, Notices, Receiver
from ..rules.retention import Retention, RetentionConfig
from .tally import tally_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from ..memory.mapping import Mapping
    from ..options.resolve import Options
    from ..rules.intervals import Interval

__all__ = ["UNDER", "Settlement"]

OVER = FlightSizeNotification(FlightSizeType.UME, FlightSizeState.OVER)
UNDER = FlightSizeNotification(FlightSizeType.UME, FlightSizeState.UNDER)
LINE_FLAGS = (
    (lib.HF_LINE_OUT_OF_ORDER, ConfirmationFlags.OOD),
    (lib.HF_LINE_EXPLICIT, ConfirmationFlags.EXACK),
)


class _Watched:
    """The line of one store, as it was found."""

    __slots__ = ("ack", "at", "index", "owner")

    def __init__(self, index: int, at: CData, owner: int) -> None:
        self.index, self.at, self.owner = index, at, owner
        self.ack = -1
        """What was taken in; another value on the board means that there is something to read."""

    def says(self) -> Beat:
        """Read now."""
        flags = int(self.at.flags)
        return Beat(int(self.at.heartbeat_ns), bool(flags & lib.HF_LINE_CATCHING_UP), bool(flags & lib.HF_LINE_FULL))


class _Reading(NamedTuple):
    """A participant acknowledged [since, ack). `who`: the index of a store, or a receiver."""

    who: int | Receiver
    since: int
    ack: int


class Beat(NamedTuple):
    """What the line of a store says of the store itself."""

    heartbeat_ns: int
    catching_up: bool
    full: bool


SILENT = Beat(0, catching_up=False, full=False)


class Settlement:
    """One stream of one source, from its opening on. ``lock`` is held by whoever decides; see also
    `Retention`."""

    def __init__(
        self, handle: CData, board: Mapping, domain_fd: int, incarnation: int, start_sqn: int, topic: str,
        options: Options, *, listened: bool,
    ) -> None:  # fmt: skip
        self.lock = threading.RLock()
        self.recording = threading.Lock()
        """Held by a sender from a send until it has recorded it, and to read the next number."""
        stores = options.stores
        config = NoticeConfig(
            listened, options.ume_message_stability_notification, options.ume_confirmed_delivery_notification,
            options.use_extended_reclaim_notifications, options.ume_force_reclaim_function is not None, topic,
        )  # fmt: skip
        self.notices = Notices(config, tuple(str(store) for store in stores))
        conditions = RetentionConfig(
            options.groups,
            options.ume_retention_unique_confirmations if stores else 0,
            options.retransmit_retention_age_threshold * 1_000_000_000 if stores else 0,
            options.ume_message_stability_lifetime * 1_000_000,
        )  # fmt: skip
        self.retention = Retention(conditions, self.notices, start_sqn)
        limits = Limits(options.ume_flight_size, options.ume_flight_size_bytes, options.retransmit_retention_size_limit)
        notify = options.ume_flight_size_behavior == "notify"
        if notify and not listened:
            limits = Limits(0, 0, limits.retained_bytes)
        self.flight = Flight(limits if stores else Limits(0, 0, 0), notify=notify)
        self.moves = 0
        """Grows when something was settled, released or told: whoever compares it misses nothing that another
        thread did."""
        self.acks = [0] * len(stores)
        """Store index -> number behind what it acknowledged of this incarnation, as last read."""
        self._threshold = options.retransmit_retention_size_threshold if stores else 0
        self._keeps = min(options.retransmit_retention_size_limit, options.ring_size - lib.HF_GRANULE)
        self._pin_ns = options.receiver_pin_timeout * 1_000_000
        self._interval_ns = options.ume_store_check_interval * 1_000_000
        self._check_ns = 0
        self._holes: list[Interval] = []
        """As the core knows them."""
        self._confirming = self.notices.confirms or conditions.unique_confirmations > 0
        self._handle, self._board, self._domain_fd, self._incarnation = handle, board, domain_fd, incarnation
        self._uuids: dict[int, bytes] = {}
        self._gone: set[int] = set()
        """Stores whose line is another one's now."""
        self._watched: dict[int, _Watched] = {}
        self.tally: CData | None = None
        """How C finds what is stable (csrc/board/tally.h). None where each message is to be told of, or
        confirmed: then `refresh` does."""
        self.asked = False
        """Somebody asks tallies: set before the first one is looked at."""
        self._receivers: dict[int, tuple[int, int, int]] = {}
        """Line -> (owner, from, ack) of a receiver, as last read."""
        self._views = ffi.new("struct hf_line_view[]", lib.HF_BOARD_LINES)
        self._copy = ffi.new("struct hf_board_line *")
        self._numbers = ffi.new("uint64_t[3]")
        lib.hf_source_limits(handle, *self.flight.limits)

    # Settling -----------------------------------------------------------------------------------------------

    def refresh(self, *, thorough: bool = False) -> bool:
        """Reads the board, settles and releases. True when something moved. ``thorough``: time may have moved
        something."""
        with self.lock:
            readings = self._read(thorough)
            retention = self.retention
            if not readings and not thorough and retention.holdings is not None:
                return False
            told = len(self.notices.queue)
            released = retention.released
            with self.recording:
                retention.next = int(lib.hf_source_next(self._handle))
            for who, since, ack in readings:
                if isinstance(who, Receiver):
                    retention.confirmed(who, since, ack)
                else:
                    retention.stored(who, since, ack)
            below = retention.advance(time.monotonic_ns())
            moved = self._settle()
            self._release(below)
            lib.hf_source_stable(self._handle, retention.stable_below)
            if self.flight.waits:
                self._tell_room()
            moved = moved or retention.released > released or len(self.notices.queue) > told
            self.moves += moved
            return moved

    def turn(self, now_ns: int) -> bool:
        """The context's thread: as `refresh`, and thoroughly once per ume_store_check_interval."""
        with self.lock:
            thorough = now_ns >= self._check_ns
            moved = self.refresh(thorough=thorough)
            if self.flight.waits:  # room may have come between an attempt and its refusal, and a pin is passed by time
                self._tell_room()
            if not thorough:
                return moved
            self._check_ns = now_ns + self._interval_ns
            below = self.retention.outlived(time.monotonic_ns())  # behind the look at what was sent: else it were older
            if below <= self.retention.stable:
                return moved
            self.retention.give_up(below)
            self._force(below)
            return True

    def reclaim(self) -> bool:
        """Makes room for the message that met the retention limit: by release, else by force. True when some
        was made."""
        with self.lock:
            before = self.retention.released
            self.refresh(thorough=True)
            keep = max(0, self._keeps - int(lib.hf_source_wanted(self._handle)))
            self._force(int(lib.hf_source_oldest(self._handle, self.retention.next, keep)))
            return self.retention.released > before

    def retain_only(self, count: int) -> int:
        """Lets the oldest go, by release or else by force, until fewer than ``count`` numbers are retained.
        How many more fit."""
        with self.lock:
            self.refresh(thorough=True)
            self._force(self.retention.next - count + 1)
            return count - (self.retention.next - self.retention.released)

    def _settle(self) -> bool:
        """Tells the core what has left the flight: what lies below the frontier, except for the holes. True
        when that is another."""
        frontier, holes = self.retention.left()
        if holes == self._holes:
            return int(lib.hf_source_settle(self._handle, frontier)) > 0
        bounds = ffi.new("uint64_t[]", [bound for hole in holes for bound in hole])
        if lib.hf_source_settle_around(self._handle, frontier, bounds, len(holes)) < 0:
            return False
        self._holes = holes
        return True

    def _release(self, below: int) -> None:
        if self._threshold:
            below = int(lib.hf_source_oldest(self._handle, below, self._threshold))
        if below > self.retention.released:
            lib.hf_source_release(self._handle, below)
            self.retention.release(below)

    def _force(self, below: int) -> None:
        if below > self.retention.released:
            lib.hf_source_release(self._handle, below)
            self.retention.release(below, forced=True)
            self._settle()
            self.moves += 1
            lib.hf_source_stable(self._handle, self.retention.stable_below)

    def missing(self, first: int | None, number: int) -> tuple[int | None, bool]:
        """One number that is not stable, of `first` to `number`, or of all up to it, or None; and whether it
        was given up."""
        retention = self.retention
        with self.lock:
            if first is not None:
                found = retention.first_open(first, number)
                return found, found is not None and found in retention.unproven
            if retention.unproven:
                return next(iter(retention.unproven))[0], True
            return (None if number < retention.stable else number), False

    def mark_stable(self, number: int) -> None:
        """The program says that this one is stable."""
        with self.lock:
            self.refresh(thorough=True)
            if self.retention.mark(number):
                self.refresh(thorough=True)

    # Room ---------------------------------------------------------------------------------------------------

    def in_flight(self) -> tuple[InFlight, int]:
        """The flight, and the bytes of frames retained."""
        with self.lock:
            out = self._numbers
            lib.hf_source_in_flight(self._handle, out, out + 1, out + 2)
            return InFlight(int(out[0]), int(out[1])), int(out[2])

    def cross(self, fragments: int, size: int) -> FlightSizeNotification | None:
        """A send met the flight size. What to tell before it goes on, without limits; then call `crossed`.
        None: it fits now."""
        with self.lock:
            self.refresh()
            if not self.flight.cross(self.in_flight()[0], fragments, size):
                return None
            lib.hf_source_limits(self._handle, *self.flight.limits)
            return OVER

    def crossed(self) -> None:
        """OVER was told."""
        with self.lock:
            self.flight.told_over()
            self._tell_room()

    def under(self) -> None:
        """UNDER was told."""
        with self.lock:
            self.flight.told_under()
            lib.hf_source_limits(self._handle, *self.flight.limits)

    def refuse(self, status: int, fragments: int, size: int, frames: int) -> None:
        """A send raised WouldBlockError: a Wakeup follows."""
        ring_ns = time.monotonic_ns() + self._pin_ns if status == lib.HF_PINNED else 0
        with self.lock:
            self.flight.refuse(Refused(fragments, size, frames, ring_ns))

    def _tell_room(self) -> None:
        flight, retained = self.in_flight()
        if self.flight.under(flight):
            self.notices.queue.append(UNDER)
        if self.flight.wakeup(flight, retained, time.monotonic_ns()):
            self.notices.queue.append(Wakeup())

    # The board ----------------------------------------------------------------------------------------------

    def find_store(self, store: int, uuid: bytes) -> bool:
        """This store counts from now on: its line is on the board. True: it is the first one.

        A store that is started on another one's directory has that one's line, which counts for one of them.
        What was counted for the other one, or for the directory before, and is not stable yet, has to be said
        again.
        """
        with self.lock:
            first = not self._uuids
            self._keep_answers()
            others = [other for other, known in self._uuids.items() if known == uuid and other != store]
            for other in others:
                del self._uuids[other]
                self.acks[other] = 0
            if self._uuids.setdefault(store, uuid) != uuid:
                self._uuids[store] = uuid
                others.append(store)
            for other in others:
                self.retention.replaced(other)
            self._gone = (self._gone | set(others)) - {store}
            self._find_lines()
        return first

    @property
    def begun(self) -> bool:
        """A store has said that BEGIN is durable there."""
        return bool(self._uuids)

    def registered(self, seated: Collection[int], active: Collection[int]) -> None:
        """The stores that have a seat now, and those of them that the source is registered with."""
        with self.lock:
            self._keep_answers()
            self.retention.registered(seated, active)
            self._make_tally()
            self._check_ns = 0  # what that makes stable is told in the next turn

    def beats(self) -> dict[int, Beat]:
        """Store index -> what its line says now. One whose line is another one's stands still."""
        with self.lock:
            return dict.fromkeys(self._gone, SILENT) | {store: line.says() for store, line in self._watched.items()}

    def _read(self, thorough: bool) -> list[_Reading]:
        readings, lost = self._read_stores(thorough)
        if lost:
            self._find_lines()
            readings += self._read_stores(thorough=False)[0]
        if self._confirming:
            readings += self._read_receivers()
        return readings

    def _read_stores(self, thorough: bool) -> tuple[list[_Reading], bool]:
        """What moved, and whether a line has changed hands."""
        readings = []
        lost = False
        copy = self._copy
        for store, line in self._watched.items():
            if line.at.ack == line.ack and not thorough:
                continue
            if lib.hf_board_copy(self._board.handle, line.index, copy) != 1:
                continue
            if copy.owner != line.owner:
                lost = True
            elif copy.ack_stream == self._incarnation:
                # An ack of an older incarnation may be of numbers that BEGIN voided.
                line.ack = self.acks[store] = int(copy.ack)
                readings.append(_Reading(store, int(copy.from_sqn), min(int(copy.ack), int(copy.to_sqn))))
        return readings, lost

    def _find_lines(self) -> None:
        """Which line belongs to which store. A store keeps its line; the owner's word tells that somebody
        else has it."""
        count = lib.hf_board_read(self._board.handle, self._domain_fd, 0, self._views, lib.HF_BOARD_LINES)
        found = {}
        for i in range(count):
            view = self._views[i]
            if view.line.role == lib.HF_ROLE_STORE:
                at = lib.hf_board_line_at(self._board.handle, view.index)
                found[bytes(ffi.buffer(view.line.uuid))] = _Watched(int(view.index), at, int(view.line.owner))
        self._watched = {store: found[uuid] for store, uuid in self._uuids.items() if uuid in found}
        self._make_tally()

    def _end_tally(self) -> None:
        """Before what it was made of changes: nobody who waits with it finds anything stable by that."""
        if self.tally is not None:
            lib.hf_tally_end(self.tally)
            self.tally = None

    def _keep_answers(self) -> None:
        """Before who counts changes: what a tally has called stable stays so. It ends first, so that whatever
        it found is on the lines that are looked at then."""
        self._end_tally()
        if self.asked:
            self.refresh()
            self._end_tally()  # a line that was lost makes another one

    def _make_tally(self) -> None:
        holdings = self.retention.holdings
        self._end_tally()
        if holdings is not None and not self.notices.records_all and not self._confirming:
            lines = {store: (line.index, line.owner) for store, line in self._watched.items()}
            self.tally = tally_of(self._incarnation, holdings.agreement, lines)

    def _read_receivers(self) -> list[_Reading]:
        """Those that confirm, on whatever line: a receiver comes without a word."""
        readings = []
        seen = {}
        present = []
        count = lib.hf_board_read(self._board.handle, self._domain_fd, 0, self._views, lib.HF_BOARD_LINES)
        for i in range(count):
            line = self._views[i].line
            if line.role != lib.HF_ROLE_RECEIVER or not line.flags & lib.HF_LINE_CONFIRMS:
                continue
            uuid = bytes(ffi.buffer(line.uuid))
            if line.state == lib.HF_LINE_ACTIVE:
                present.append(uuid)
            if line.ack_stream != self._incarnation:
                continue
            index, now = int(self._views[i].index), (int(line.owner), int(line.from_sqn), int(line.ack))
            seen[index] = now
            if self._receivers.get(index) != now:
                readings.append(_Reading(_receiver(line, uuid), now[1], min(now[2], int(line.to_sqn))))
        self._receivers = seen
        self.retention.present(present)
        return readings


def _receiver(line: CData, uuid: bytes) -> Receiver:
    flags = ConfirmationFlags(0)
    for bit, flag in LINE_FLAGS:
        if line.flags & bit:
            flags |= flag
    if line.user_registration_id:
        return Receiver(uuid, int(line.user_registration_id), flags | ConfirmationFlags.UREGID)
    return Receiver(uuid, int(line.registration_id), flags)
