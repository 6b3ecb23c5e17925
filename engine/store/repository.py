"""One source at one store: its log, its board line, and the stream that is being drained.

Everything here runs on the store's drain thread (engine/store/drainer.py), without a lock.

Invariants:
 - what the board line calls stable is published by the log (csrc/store/drain.c moves the line after it);
 - the board line's range begins behind the last number that this store knows it never had;
 - what the ring does not have any more is read from the peers before anything newer is
   (engine/store/catch_up.py); meanwhile the line says that this store catches up;
 - a stream is left when its owner is dead or has closed it, and the log holds all to its committed end;
 - a dead stream's name is removed only when a quorum of its stores holds its end (docs/design.md 14).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ..errors import CorruptionError
from ..log.board_line import StoreLine
from ..log.end import WALK_S, Walk
from ..log.info_file import NO_LIVES, Lives, Own, Place, bounds, earlier_logs, log_view, peers_of, seen_by
from ..log.stale_rings import LivingStream, StaleRings, living, living_ring, owner_lives, same_process
from ..log.unsure import is_repaired, settle, tell
from ..log.writer import open_writer
from ..memory.mapping import Bells, Mapping, UnpublishedError, attach_stream
from ..native.core import CData, ffi, lib
from ..native.runtime import os, threading, time
from ..native.status import check
from ..rules.reconcile import Hole, LogView, Lost, Table, lost_acknowledged, void_from
from ..rules.reports import Seen, farthest
from ..rules.resting import Resting
from . import news
from .catch_up import CatchUp
from .missed_begins import to_take_in

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ..log.receiver_state import Acked
    from ..log.state_file import SourceState
    from ..memory.domain import Domain, ObjectName
    from .pacer import Pacer

__all__ = ["Repository"]

_log = logging.getLogger("holdfast.store")


class Repository:
    """See the module. ``name`` and ``uuid`` are the store's, ``level`` the one that it acknowledges.

    Raises:
        OSError, CorruptionError: the log cannot be opened.
    """

    def __init__(
        self, domain: Domain, bells: Bells, source: SourceState, path: Path, config: CData, name: str, uuid: bytes
    ) -> None:
        self.domain, self.bells, self.source = domain, bells, source
        self.path, self.level = path, int(config.level)
        self._own, self.name, self.called = Own(uuid, name, path.parent), name, news.called(name, source)
        self.line = StoreLine(domain, bells, source, name, uuid)
        self._doubt = ffi.new("char[]", os.fsencode(domain.doubts / f"{uuid.hex()}.{source.uuid.hex()}"))
        self._info = ffi.new("struct hf_log_info *")
        self.log: CData = self._open(config)
        self.files = threading.Lock()
        """Held by who closes the log, and by the helper thread while it works in its directory."""
        self.stream: Mapping | None = None
        self.reader: CData = ffi.NULL
        self.item: CData = ffi.new("struct hf_drain_item *")
        self.item.block_bytes = int(config.max_segment_bytes) // 4  # what does not fit into a segment's rest wastes it
        self._news = news.CatchUpNews(self.called)
        self.catch_up: CatchUp | None = None
        """While it is not None, the log is behind the ring, and nothing is drained."""
        self.caught_up = False
        """It has everything that its peers have: from then on it has a say again, whatever it had lost."""
        self.caught_up_at = 0  # behind what the ring had then: drained since, if the log goes so far
        self.losses: list[tuple[int, int]] = []
        """What it lacks and nobody was asked for yet: (first, following), oldest first."""
        self.lost_below = self.lost_on_disk = source.lost_below
        """Number behind the last one that this store never had; the state brings it to disk."""
        self.pacer: Pacer | None = None
        """Of a receiver-paced source: set once, before anything is drained."""
        self.stale, self._resting = StaleRings(domain), Resting()
        self.looking: Walk | None = None  # into the peers' logs
        try:
            view = log_view(path)
            if not source.meet(view.begins if view is not None else ()):
                self._adopt(self.table)
            self.lost_below = source.lost_below
            if self.unsure:
                tell(self.called, path, self.info)
                source.learner = True
                self.lost_below = max(self.lost_below, min(int(self.info.unsure_next), self.next_sqn))
        except BaseException:
            self.close()
            raise

    def _open(self, config: CData) -> CData:
        """``struct hf_log *`` of the log, which is made if there is none."""
        ffi.memmove(config.uuid, self.source.uuid, 16)
        config.doubt = self._doubt
        return open_writer(self.path, config)

    @property
    def info(self) -> CData:
        """``struct hf_log_info *``, read now."""
        lib.hf_log_info(self.log, self._info)
        return self._info

    @property
    def unsure(self) -> bool:
        """The disk does not give what it may have acknowledged (csrc/log/unsure.c): no say until repaired."""
        return bool(self.log) and bool(self.info.unsure)

    def look_for_lost(self) -> None:
        """What the disk did not give is there again, from its peers or the ring: it has its say again."""
        if self.unsure and self.caught_up and self.catch_up is None and is_repaired(self.path, self.info):
            settle(self.log, self.called, self.path)

    @property
    def next_sqn(self) -> int:
        """Number behind the last message that this store holds at its level."""
        return int(self.info.next_sqn)

    @property
    def oldest_sqn(self) -> int:
        """The first number that it still offers."""
        return int(self.info.oldest_sqn)

    @property
    def table(self) -> Table:
        """The BEGINs that this store knows."""
        return tuple(self.source.begins)

    def release(self, below: int) -> bool:
        """Offers nothing below any more. False: not yet, the state on disk does not say what it never had."""
        if self.lost_below > self.lost_on_disk:
            return False
        check(lib.hf_log_release(self.log, below), what=str(self.path))
        return True

    def live_sqn(self) -> int:
        """Number behind the last message that was sent, as far as the attached ring shows."""
        return max(self.next_sqn, int(self.stream.stream.next_sqn) if self.stream is not None else 0)

    def view(self) -> LogView:
        """What this store's own log says."""
        return LogView(self.table, self.next_sqn)

    def bound(self) -> LogView:
        """As :meth:`view`, but behind all that it may have acknowledged: nothing begins below."""
        return LogView(self.table, max(self.next_sqn, int(self.info.unsure_next) if self.unsure else 0))

    def seen(self, own: LogView, others: Lives = NO_LIVES) -> list[Seen]:
        """How far the log of each declared store, and of ``others``, goes: ``own``, or read. Any thread."""
        return seen_by(self.name, own, self.source, self._places(others), others)

    def report(self) -> LogView:
        """What the readable logs say: one that missed something is not believed (docs/design.md 14)."""
        return farthest(self.seen(self.view()))

    def has_lost(self) -> bool:
        """It has not what its own line on the board once acknowledged (docs/design.md 15)."""
        view, said = self.view(), self.line.said_before()
        return any(lost_acknowledged(view, int(line.ack), int(line.ack_stream)) for line in said)

    def peers(self, others: Lives = NO_LIVES) -> list[Path]:
        """Where the other stores of the source keep its log, and those of ``others``."""
        return list(dict.fromkeys(place.log for place in self._places(others)))

    def _places(self, others: Lives = NO_LIVES) -> list[Place]:
        return [place for place in peers_of(self.domain, self.source, self._own, others) if place.log != self.path]

    def earlier(self) -> dict[str, tuple[str, int]]:
        """As :func:`earlier_logs`."""
        return earlier_logs(self._places(), self.source)

    def until(self) -> dict[str, int]:
        """As :func:`bounds`, which is as Logs has it."""
        return bounds(self.earlier())

    @property
    def late_join(self) -> bool:
        """Receivers may recover from the source, as the header of the attached stream says."""
        return self.stream is None or not self.stream.stream.flags & lib.HF_STREAM_NO_LATE_JOIN

    @property
    def largest_block(self) -> int:
        """Bytes of the largest message that the attached ring can hold, frames included."""
        return int(self.stream.handle.ring_bytes) // 4 if self.stream else 0

    def close(self, *, for_long: bool = False) -> int:
        """Syncs and closes the log, lets the line go. The stream stays for the next store.
        ``for_long``: its files become small, and are synced, whatever the level; a status of the core."""
        self._detach()
        self.line.close()
        log, self.log = self.log, ffi.NULL
        if log and for_long:
            return int(lib.hf_log_rest(log, self.source.repository != "memory"))
        if log:
            lib.hf_log_close(log)
        return int(lib.HF_OK)

    # Streams ------------------------------------------------------------------------------------------------

    def streams(self) -> list[ObjectName]:
        """Rings of this source that lie in shared memory, oldest incarnation first."""
        return [item for item in self.domain.objects(self.source.uuid) if item.kind == "stream"]

    def begin(self, table: Table, stream: str) -> tuple[int, bool]:
        """BEGIN at this store, the last one of ``table``: durable in the log, then the stream is read.

        Returns the number behind the last message held, and whether it must catch up first. Repeated for the
        same incarnation it does nothing. Raises CorruptionError when ``stream`` is not that incarnation's.
        """
        if self.stream is not None and self.stream.name == stream:
            self._adopt(table)
            if not self.caught_up and self.catch_up is None:
                self._follow()
        else:
            self._detach()
            self._adopt(table)
            self._take_part()
            self._attach(stream)
        return self.next_sqn, self.catch_up is not None

    def _adopt(self, table: Table) -> None:
        """Makes the BEGINs durable in the log, then in the state; a crash between is mended at the start."""
        begins = ffi.new("struct hf_begin[]", table)
        check(lib.hf_log_begins(self.log, begins, len(table)), what=str(self.path))
        if table != self.table:
            self.lost_below = min(self.lost_below, void_from(table, self.source.incarnation))
            if self.unsure and table[-1][0] > self.source.incarnation:  # whoever began has settled what was before
                settle(self.log, self.called, self.path)
            self.source.take(table)
            if self.pacer is not None:
                self.pacer.begun()

    def resume(self) -> None:
        """Goes on with the newest BEGIN's stream, if it is not read to its end; called with none attached.

        Without one it takes over what its peers have: BEGINs that it missed, their stream, messages.
        """
        self._take_up()
        if self.stream is None and self.source.incarnation:
            table = self.right_table()
            if table and table[-1][0] > self.source.incarnation:
                self._adopt(table)
                self._take_up()
        if self.stream is None:
            self._rest()

    def right_table(self) -> Table | None:
        """The BEGINs that this store may take in, by what can be read: orphans void nothing, the unknown
        decides nothing."""
        peers = self.peers()
        if not Walk(peers).over(WALK_S):  # who catches up learns of them later
            return None
        return to_take_in(self.source, self.seen(self.bound()), self.path, self.view(), peers)

    def _take_up(self) -> None:
        """Older streams are over: only their names are left to care for. A newer one has not begun here."""
        for item in self.streams():
            if item.name in self.stale or item.incarnation > self.source.incarnation:
                continue
            if item.incarnation < self.source.incarnation:
                self.stale.pass_over(item)
                continue
            try:
                self._adopt(self.table)
                self._take_part()
                self._attach(item.name)
            except (FileNotFoundError, UnpublishedError):
                continue
            except CorruptionError as error:  # its source must say BEGIN again
                _log.warning("%s: %s", self.called, error)
                continue
            return

    def _rest(self) -> None:
        """Nothing is read here: the peers may have more."""
        if self.source.incarnation and self.peers():
            self.item.status = lib.HF_OK  # CLOSED, by the ring before
            self.catch_up = CatchUp(self)
            self._news.looks(self.catch_up.held, time.monotonic_ns())

    def _take_part(self) -> None:
        """Its line on the board, under the newest BEGIN. It says what the log holds, and no more."""
        line = self.line.join(self.level)
        incarnation, start = self.table[-1]
        clamp = min(start, void_from(self.table, int(line.ack_stream)))
        lib.hf_board_rebase(self._board.handle, self.line.index, incarnation, clamp)
        if line.ack > self.next_sqn:  # acknowledged in an earlier life, and lost: it counts for nothing below
            self.line.cover(int(line.ack))
        else:
            # A line of an earlier process of this store says what that one never had.
            if line.from_sqn <= self.next_sqn:
                self.lost_below = max(int(line.from_sqn), self.lost_below)
            self.line.cover(self.lost_below)
        self.acknowledge()

    def acknowledge(self) -> None:
        """What the log holds, or as much of it as a receiver-paced source is told."""
        held = self.next_sqn
        self.line.acknowledge(self.pacer.allowed(held) if self.pacer is not None else held, held)

    @property
    def _board(self) -> Mapping:
        """A stream is read only by who has joined it."""
        assert self.line.board is not None
        return self.line.board

    def _attach(self, name: str) -> None:
        mapping = attach_stream(name)
        begun = int(mapping.preamble.incarnation), int(mapping.stream.start_sqn)
        if mapping.uuid != self.source.uuid or begun != self.table[-1]:
            mapping.close()
            incarnation, start = self.table[-1]
            which = f"incarnation {incarnation} from {start} on of {self.source.uuid.hex()}"
            raise CorruptionError(f"{name} is not {which}")
        out = ffi.new("struct hf_reader **")
        check(
            lib.hf_reader_open(mapping.handle, self._board.handle, self.bells.handle, self.line.index, out), what=name
        )
        self.stream, self.reader = mapping, out[0]
        self.item.reader, self.item.log = self.reader, self.log
        self.item.board, self.item.bells = self._board.handle, self.bells.handle
        self.item.line_index, self.item.status = self.line.index, lib.HF_OK
        self.item.level, self.item.pending_bytes = self.level, 0
        self._follow()

    def look_again(self, now_ns: int) -> None:
        """No stream is read: do the peers have more (engine/rules/resting.py)?"""
        held, rest, looking = self.next_sqn, self._resting, self.looking
        if looking is not None:
            if looking.over():
                self.looking = None
                if held < self.report().end:
                    self.resume()
        elif not rest.due(held, now_ns):
            return
        elif rest.told(self.line.told_by_peers()):
            self.resume()
        elif rest.into_logs(now_ns):
            self.looking = Walk(self.peers())

    # Catching up --------------------------------------------------------------------------------------------

    def _follow(self) -> None:
        """Stands behind the log's last message. What the ring no longer has comes from the peers first."""
        catch_up = CatchUp(self)
        if self.ring_goes_on(catch_up.held) == catch_up.held:
            self._filled(catch_up)
        else:
            self._news.behind(catch_up.held, time.monotonic_ns())
            self.line.say_catching_up(True)
            self.catch_up = catch_up

    def overtaken(self) -> None:
        """The ring has lapped this store."""
        self._follow()
        self.item.status = lib.HF_OK

    def ring_goes_on(self, number: int) -> int | None:
        """``number``, where the reader stands then; else the oldest number in the ring. None: no ring."""
        if not self.reader:
            return None
        status = lib.hf_reader_seek(self.reader, number)
        if status == lib.HF_LAPPED:
            check(lib.hf_reader_seek_oldest(self.reader), what=str(self.path))
            return int(lib.hf_reader_next(self.reader))
        check(status, what=str(self.path))
        return number

    def fill(self, now_ns: int) -> None:
        """One slice of the hole. Raises Error, OSError: to be called again."""
        assert self.catch_up is not None
        try:
            done = self.catch_up.turn(now_ns)
        finally:
            check(lib.hf_log_sync(self.log), what=str(self.path))
            self.acknowledge()
        if done:
            self._filled(self.catch_up)

    def _filled(self, catch_up: CatchUp) -> None:
        catch_up.close()
        self.catch_up = None
        if catch_up.overtaken:  # what this ring had is settled without us: the peers have all of it
            if self.stream is not None:
                self.leave()
            self.resume()
            return
        self.caught_up, self.caught_up_at = catch_up.all_read, self.live_sqn()
        self.line.cover(self.lost_below)
        self.line.say_catching_up(False)
        self._news.caught_up(catch_up.held, time.monotonic_ns())

    def append(self, frames: CData, size: int) -> None:
        """Whole messages, as a reader of another log gave them. Raises Error, OSError."""
        self._put(lambda: int(lib.hf_log_append(self.log, frames, size)))
        self.item.payload += size  # for a pacer: headers too, as it counts what a log holds when it is opened

    def lack(self, gap: Lost | Hole) -> None:
        """It lacks these numbers: said on the line before the ack passes them, then in the log."""
        record = lib.hf_log_lost if isinstance(gap, Lost) else lib.hf_log_hole
        self.lacks_below(gap.last + 1)
        self._put(lambda: int(record(self.log, gap.first, gap.last)))
        self.losses.append((gap.first, gap.last + 1))

    def _put(self, append: Callable[[], int]) -> None:
        """Once more in a new segment if it must be."""
        self._adopt(self.table)  # a log that was lost has none: the next BEGIN would void what is put there
        status = append()
        if status == lib.HF_ROLL:
            check(lib.hf_log_roll(self.log), what=str(self.path))
            self.item.rolls += 1
            status = append()
        check(status, what=str(self.path))

    def lacks_below(self, number: int) -> None:
        """Its line counts for nothing below ``number``."""
        self.lost_below = number
        self.line.cover(number)

    def _detach(self) -> None:
        if self.catch_up is not None:
            self.catch_up.close()
            self.catch_up = None
        reader, self.reader = self.reader, ffi.NULL
        if reader:
            lib.hf_reader_close(reader)
        if self.stream:
            self.stream.close()
            self.stream = None
        self.item.reader = ffi.NULL

    # What the drain thread asks between two rounds ----------------------------------------------------------

    def owner_gone(self) -> bool:
        """The stream's owner has closed it or is proved dead (docs/design.md 12)."""
        assert self.stream is not None
        return not owner_lives(self.domain, self.stream)

    def owner_lives(self) -> bool:
        """A stream is read here, and it is open and its owner not proved dead."""
        return self.stream is not None and not self.owner_gone()

    def living_stream(self, but: int | None = None) -> LivingStream | None:
        """An open stream of this source whose owner lives; of any incarnation, also of one that has not begun
        here. ``but``: an owner word; what its process owns does not count."""
        if self.stream is not None and self.owner_lives() and not same_process(self.stream, but):
            return living(self.stream)
        return living_ring(self.domain, self.source.uuid, but)

    def drained(self) -> bool:
        """Nothing attached, or everything up to the stream's committed end is published."""
        if self.stream is None:
            return True
        if self.catch_up is not None or self.item.status not in {lib.HF_OK, lib.HF_CLOSED}:
            return False
        tail, end = ffi.new("uint64_t *"), ffi.new("uint64_t *")
        check(lib.hf_stream_end(self.stream.handle, tail, end), what=self.stream.name)
        return int(self.info.next_sqn) >= int(end[0]) or int(end[0]) == int(self.stream.stream.start_sqn)

    def settled(self) -> bool:
        """No living owner, no undrained ring: the next incarnation may begin. Goes through old streams."""
        if self.stream is None and self.catch_up is None:
            self.resume()  # one may have come that nobody told of
        while self.stream is not None:
            if not self.owner_gone() or not self.drained():
                return False
            self.leave()
            self.resume()
        return True

    def leave(self) -> None:
        """Lets the drained stream of an owner go that is dead or has closed it."""
        assert self.stream is not None
        self.stale.leave(self.stream)
        news.went(self.called, self.stream, self.next_sqn, lives=self.owner_lives())
        self._detach()
        self.tidy()

    def tidy(self) -> None:
        """Removes the names of left streams whose end a quorum holds."""
        if self.stale:
            self.stale.tidy(self.line.views())

    def beat(self, now_ns: int) -> None:
        """The log goes on: a source sees that neither store nor disk stands (docs/semantics.md B.4)."""
        self.line.beat(now_ns)

    def acks(self) -> tuple[dict[bytes, Acked], int]:
        """What every receiver's line says, by its uuid, and the number behind the last message held."""
        return self.line.acks(), self.next_sqn
