"""The messages of one source, in order: from the stores' logs and from the live ring, with no seam to be
seen.

Everything is found by sequence number. ``next`` is the number to deliver next; wherever a ring holds it, the
ring serves, otherwise a log does. So there is no hand-over protocol: catching up, being overtaken by the
ring, a source that restarts and a store that is dead are all the same question, "who has ``next``?". Only the
receiving thread runs this.

A number is never an identity (docs/design.md 13): when a new incarnation begins at or below ``next``, what
the old one had from there on is void, and the feed goes back to where the new one begins. Several may have
begun since the feed looked last: what is void begins where the lowest of them does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ..errors import ForkedHandleError
from ..log.columns import read_only_bytes
from ..log.info_file import had, lacks
from ..log.reader import FOR_EVER, ONLY_DECLARED, Block, Bounds, Logs
from ..memory.mapping import Bells, Mapping, UnpublishedError, attach_stream
from ..native.core import CData, Served, ffi, lib
from ..native.limits import named
from ..native.runtime import Path
from ..native.status import check
from ..rules.start_and_gap import Gap
from .ring_reader import RingReader, View

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..memory.message_slot import Slot

__all__ = ["Feed", "Listener", "RingReader", "View"]

RETIRED = {int(lib.HF_GONE)}
"""What a log says of numbers that its store has let go."""
REST_NS = 1_000_000_000
"""How often the logs of a source that is over are looked into without news of it."""
_receive = lib.hf_reader_receive


class Streams(Protocol):
    """Finds the rings of a source that lie in shared memory."""

    def streams(self, uuid: bytes, begun: int) -> list[tuple[int, str]]:
        """As directory.Directory."""


class Listener(Protocol):
    """Is told what happens between two messages; on the receiving thread, before the next message is
    delivered."""

    def lost(self, first: int, last: int) -> None:
        """Nobody has numbers first..last any more; delivery goes on behind them."""

    def resumed(self) -> None:
        """Messages come again after :meth:`ended`."""

    def ended(self) -> None:
        """The source has closed or died, and everything it left is delivered."""

    def parted(self) -> None:
        """Nothing is delivered any more, as it was asked for."""

    def rebased(self, incarnation: int, start: int, void: int) -> None:
        """Everything from now on is read under this incarnation, which begins with ``start``, acks too. What
        was delivered from ``void`` on is void."""


class Feed(Served):
    """See the module.

    ``begun``: (incarnation, its first number) that ``start`` was chosen under. ``live_from``: messages below
    it were published before this receiver was registered, or read back after it was overtaken; they count as
    retransmissions. ``line`` < 0: no ring is read in place, messages are copied. Without ``board`` no ring is
    read. ``stop``: the first number that is not wanted.
    """

    def __init__(
        self, uuid: bytes, board: Mapping | None, bells: Bells, line: int, streams: Streams, logs: Logs, start: int,
        live_from: int, begun: tuple[int, int], listener: Listener, gap: Gap, clock: Callable[[], int],
        stop: int = FOR_EVER,
    ) -> None:  # fmt: skip
        self.uuid = uuid
        self.live_from = live_from
        self.newer = False
        """Set by the context's thread: a newer incarnation has appeared, or the ring's name or owner is
        gone."""
        self.orphaned = 0
        """Set by the context's thread before ``newer``: the newest incarnation whose owner is proved dead."""
        self.ring: RingReader | None = None
        """What serves now, in place; None while a log does."""
        self.lapped = 0
        self.parting = self.parted = False
        """The first one is set by the context's thread: where there is nothing now, nothing comes any more.
        The second one is the answer, as long as the first one is set."""
        self.logs = logs
        self.stop = stop
        self.skipped: Callable[[int, int], None] | None = None
        """Of a receiver without a past: told of numbers that all stores let go after they were its start, and
        before anything was delivered. To it they are no loss: it starts behind them, as it would have a
        moment later."""
        self.late: Callable[[int, Sequence[str]], bool] | None = None
        """Told, once in each patience, of a number that no store that can be read has, and whose logs may
        have it. False: it is not to be waited for."""
        self._spare: RingReader | None = None
        """The ring that was looked at last, which is the one that serves if one does."""
        self._next = self._untouched = start
        self._begun = logs.begun = begun
        self._board, self._bells, self._line = board, bells, line
        self._token = lib.hf_process_token()
        self._streams = streams
        self._listener = listener
        self._gap, self._clock = gap, clock
        self._last = Gap(gap.patience_ns)
        """Of a number behind all that can be read."""
        self._block = Block()
        self._span = ffi.new("uint64_t[2]")
        self._bad: set[str] = set()
        self._ended = -1
        """The incarnation whose end was told, -1 when messages have come since."""
        self._rests_until_ns = 0
        """The source is over, and its logs are closed: they are opened to look again then, or when there is
        news."""

    @property
    def next(self) -> int:
        """Number that will be delivered next. Any thread may ask: the ring may go meanwhile."""
        ring = self.ring
        return ring.next if ring else self._next

    @property
    def ended(self) -> bool:
        """The end of the source was told, and nothing has come since."""
        return self._ended >= 0

    def close(self) -> None:
        """Lets everything go; views that are out stay valid until they are released."""
        self._next = self.next
        self.stop = 0  # nothing more is wanted
        self.ring = self._spare = None
        self.logs.close()
        self._block.free()

    def seek(self, number: int) -> None:
        """Goes on at ``number``: what was evicted is read again, flagged as retransmission."""
        if self.ring:
            self.live_from = max(self.live_from, int(self.ring.mapping.stream.next_sqn))
            self.ring = None
        self._next = number
        self._rests_until_ns = 0
        self._block.clear()

    def resume(self, number: int) -> None:
        """What was taken from ``number`` on, and came to nobody, is taken once more: as new as it was."""
        if number < self.next:
            before = self.live_from
            self.seek(number)
            self.live_from = before

    def use_logs(self, paths: Sequence[str], until: Bounds = ONLY_DECLARED) -> None:
        """Where the source's logs are is known better now. ``until``: as of Logs. Any thread."""
        self.logs.until = until  # first: a log without its bound would be awaited for ever
        self.logs.paths = tuple(paths)
        self._rests_until_ns = 0

    def begin(self, incarnation: int, start: int, void: int = FOR_EVER) -> bool:
        """Takes in BEGIN(incarnation, start), and what has begun before it: goes back to where the first of
        them begins, or to ``void``. False: that was known."""
        under = self._begun[0]
        if incarnation <= under:
            return False
        self._begun = incarnation, start
        self.logs.begun = max(self.logs.begun, self._begun)
        void = min(void, start, self.logs.void_from(under) if under else FOR_EVER)
        if void < self.next:
            self.seek(void)
        self._block.clear()  # it was read under an older one
        self._listener.rebased(incarnation, start, void)
        if 0 <= self._ended < incarnation:
            self._ended = -1
            self._listener.resumed()
        return True

    # One message --------------------------------------------------------------------------------------------

    def receive(self, slot: Slot) -> bool:
        """The next message into ``slot``; False when there is none now."""
        while True:
            if self.ring is not None:
                status = _receive(self.ring.handle, slot.entry, slot.memory, slot.capacity)
                if status == 1:
                    return True
                if status == 0 and not self.newer:
                    return False
                if status == lib.HF_SMALL:
                    slot.grow()
                    continue
                if not self._left_ring(status):
                    return False
            elif not self._find():
                return False
            elif self.ring is None:
                self._take(slot)
                return True

    def wait(self, slot: Slot, strategy: int, timeout_ns: int) -> bool:
        """As :meth:`receive`, waiting in C for at most ``timeout_ns``; only while the ring serves."""
        ring = self.ring
        if ring is not None:
            ring.wait(strategy, timeout_ns)  # which takes nothing: who is interrupted in it has missed nothing
        return self.receive(slot)

    def ready(self) -> bool:
        """Something is there, or the ring needs a look. Changes nothing: any thread. Without a ring only the
        receiving thread can tell whether a log goes on."""
        ring = self.ring
        if ring is not None:
            return self.newer or (not ring.over and lib.hf_reader_ready(ring.handle) != 0)
        return self._block.left > 0

    def _take(self, slot: Slot) -> None:
        """Copies the block's next message into ``slot``."""
        block = self._block
        source = block.entries + block.index
        status = lib.hf_take(block.memory, source, slot.entry, slot.memory, slot.capacity)
        if status == lib.HF_SMALL:
            slot.grow()
            status = lib.hf_take(block.memory, source, slot.entry, slot.memory, slot.capacity)
        check(status, what="block")
        block.index += 1
        self._next = slot.last_number + 1

    # Many messages ------------------------------------------------------------------------------------------

    def batch(self, entries: CData, maximum: int, max_bytes: int) -> View | None:
        """Up to ``maximum`` messages in place, their entries in ``entries``; None when there are none now."""
        while True:
            if self.ring is not None:
                span = self._span
                count = lib.hf_reader_batch(self.ring.handle, entries, maximum, max_bytes, span, span + 1)
                if count > 0:
                    return self._ring_view(entries, int(count), int(span[0]))
                if count == 0 and not self.newer:
                    return None
                if not self._left_ring(int(count)):
                    return None
            elif not self._find():
                return None
            elif self.ring is None:
                return self._block_view(entries, maximum)

    def _ring_view(self, entries: CData, count: int, start: int) -> View:
        assert self.ring is not None
        ring = self.ring
        ring.pin(start)
        return View(entries, count, *ring.memory, ring, start)

    def _block_view(self, entries: CData, maximum: int) -> View:
        """Hands messages of the block over; the next block gets memory of its own."""
        block = self._block
        count = min(maximum, block.left)
        ffi.memmove(entries, block.entries + block.index, count * ffi.sizeof("struct hf_entry"))
        lib.hf_mark_retransmitted(entries, count, FOR_EVER)
        block.index += count
        self._next = int(entries[count - 1].sequence_number) + 1
        block.lent = True
        return View(entries, count, block.memory, read_only_bytes(ffi.buffer(block.memory, block.size)), 0, None, 0)

    # Who has `next`? ----------------------------------------------------------------------------------------

    def _find(self) -> bool:
        """True: a ring serves, or the block has a message. Raises ForkedHandleError."""
        if self.parting and self.parted:
            return False
        if self._rests_until_ns and not (self.newer or self.parting or self._clock() >= self._rests_until_ns):
            return False
        self._rests_until_ns = 0
        if self._look():
            return True
        if self.parting:
            self.logs.close()  # by this thread, which reads there
            self.parted = True
            self._listener.parted()
        elif self.ended and self.ring is None:  # what is not acknowledged keeps the source, and none of its files
            self.logs.close()
            self._spare = None
            self._rests_until_ns = self._clock() + REST_NS
        return False

    def _look(self) -> bool:
        """As :meth:`_find`. Reports losses on the way."""
        if lib.hf_process_forked(self._token):
            raise ForkedHandleError("receiver")
        if self._block.left:
            return True
        for _ in range(1000):  # each round reads, goes back, moves on over a loss, or ends; bounded all the same
            if self._next >= self.stop:
                return False
            if self._try_ring() and (self._line >= 0 or self._copy_ring()):
                return True
            found = self.logs.read(self._next, self._block, self.stop)
            if self.begin(*self.logs.begun):
                continue
            if found:
                return True
            if not self._step_over():
                if not self.logs.behind:
                    self._nothing_left()
                return False
        return False

    def _try_ring(self) -> bool:
        """Stands in the newest stream, if that has ``next``. Without stores there is no other; with stores
        their logs have what came before it, since they drained the older rings before they let it begin."""
        self.newer = False
        ring = self._newest()
        if ring is None:
            return False
        self.begin(ring.incarnation, ring.start_sqn)
        if ring.start_sqn > self._next:
            return False
        status = lib.hf_reader_seek(ring.handle, self._next)
        if status == lib.HF_DAMAGED:
            self._bad.add(ring.mapping.name)
        if status != lib.HF_OK:
            return False
        ring.over = False  # it may be read once more, from farther back
        self.ring = ring if self._line >= 0 else None
        self.newer = self.orphaned >= ring.incarnation > self._ended
        return True

    def _rings(self) -> list[tuple[int, str]]:
        """(incarnation, name), oldest first. One that has begun nowhere is none, nor is one that is over."""
        return self._streams.streams(self.uuid, self._begun[0])

    def _newest(self) -> RingReader | None:
        """The newest stream that can be read. It stays mapped while it does not serve: looking again must be
        cheap."""
        if self._board is None:
            return None
        for _, name in reversed(self._rings()):
            if name in self._bad:
                continue
            if self._spare is None or self._spare.mapping.name != name:
                self._spare = None
                try:
                    self._spare = RingReader(attach_stream(name), self._board, self._bells, self._line)
                except (FileNotFoundError, UnpublishedError):
                    continue
                except OSError as error:
                    raise named(error, name) from None
            return self._spare
        return None

    def _copy_ring(self) -> bool:
        """A block from the ring, for a feed that does not read in place."""
        ring, block, size = self._spare, self._block, 0
        if ring is None:  # closed meanwhile
            return False
        while True:
            size = block.room(4 * size)
            got = lib.hf_reader_copy(ring.handle, block.memory, size, self._span, self._span + 1)
            if got != lib.HF_SMALL:
                return got > 0 and block.scan(got, self._next, self.stop)

    def _step_over(self) -> bool:
        """True: nobody will ever have ``next``, and delivery goes on behind it.

        A store that cannot be read, or is behind, may have it: it is waited for, unless another one had it
        and has let it go.
        """
        newer = list(self.logs.behind)
        ring = self._spare
        oldest = ring.oldest() if ring is not None and ring.incarnation >= self._begun[0] else None
        if oldest is not None:
            newer.append(oldest)
        now = self._clock()
        behind = self._gap.verdict(self._next, newer, self.logs.undecided, now)
        if behind is None:
            return False
        awaited = [path for path in self.logs.awaited if not path or self._may_have(path)]
        disputed = self.logs.disputed  # some log has the number: it is not lost, whoever is given up
        may_come = disputed or (awaited and not self._is_settled())
        if may_come and (self.late is None or self.late(self._next, awaited) or disputed):
            self._gap.again(now)
            return False
        first, self._next = self._next, behind
        if self.skipped is not None and first == self._untouched and not self.logs.refused - RETIRED:
            self._untouched = behind
            self.skipped(first, min(behind, self.stop) - 1)
        else:
            self._listener.lost(first, min(behind, self.stop) - 1)
        return True

    def _may_have(self, path: str) -> bool:
        """This log, which cannot be read or is behind, may have ``next``, or get it."""
        return not lacks(Path(path), self._next, [*self.logs.table, self._begun])

    def _is_settled(self) -> bool:
        """A store had ``next`` and has let it go, or its operator has marked it: who else may have it is not
        waited for."""
        return self.logs.marked or any(had(Path(path), self._next) for path in self.logs.let_go)

    # The end of a ring --------------------------------------------------------------------------------------

    def _left_ring(self, status: int) -> bool:
        """The ring stopped serving. True: look elsewhere; False: there is nothing elsewhere."""
        assert self.ring is not None
        ring = self.ring
        if status == 0 or status == lib.HF_CLOSED:
            if not self._superseded(ring):
                self.newer = False
                ring.over = status == lib.HF_CLOSED
                if ring.over or self.orphaned >= ring.incarnation:
                    self._end(ring.incarnation)
                return False
            if status == lib.HF_CLOSED:
                self._end(ring.incarnation)
        elif status == lib.HF_LAPPED:
            self.lapped += 1
            self.live_from = max(self.live_from, int(ring.mapping.stream.next_sqn))
        elif status == lib.HF_DAMAGED:
            self._bad.add(ring.mapping.name)
        else:
            check(status, what=ring.mapping.name)
        self._next = ring.next
        self.ring = None
        return True

    def _superseded(self, ring: RingReader) -> bool:
        """A newer ring is there, or this one's name is gone: then the logs have its end, and all that came
        after it, also a whole incarnation that nobody here has seen."""
        rings = self._rings()
        return not rings or rings[-1][0] > ring.incarnation

    def _nothing_left(self) -> None:
        """Neither a ring nor a log goes on. A ring is not taken away before a quorum of the declared stores
        holds its end; what came before it, a store of an earlier list may have alone."""
        if self.stop < FOR_EVER or self._rings():
            return
        logs = self.logs
        until = logs.until
        declared = sum(path not in until for path in logs.paths)
        unread = sum(path not in until for path in logs.unread)
        if (2 * unread < declared and not self._earlier_may_go_on(until)) or logs.gone():
            self._end(self._begun[0])

    def _earlier_may_go_on(self, until: Bounds) -> bool:
        """A store of an earlier list cannot be read, and may have ``next``. That is told as late, until the
        operator gives it up."""
        who = [path for path in self.logs.unread if path in until and self._may_have(path)]
        now = self._clock()
        if not who or self._last.verdict(self._next, [self._next + 1], len(who), now) is None:
            return bool(who)
        self._last.again(now)
        return self.late is None or self.late(self._next, who)

    def _end(self, incarnation: int) -> None:
        if self._ended < incarnation:
            self._ended = incarnation
            self._listener.ended()
