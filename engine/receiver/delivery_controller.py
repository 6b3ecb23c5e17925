"""One source at one receiver (UM's delivery controller): its board line, where it starts, what it tells, and
its acks.

The context's thread runs everything here but what says otherwise: the feed, and what it tells, are the
receiving thread's. Registration with the source's stores is registrar.py's.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ..errors import LimitReachedError, SharedMemoryFullError, TurnHeldError
from ..events import receiver as events
from ..log.info_file import published_below
from ..log.reader import FOR_EVER, Logs
from ..memory.mapping import Mapping, join_board
from ..memory.sri import SriWatch
from ..native.core import Counts, lib
from ..native.limits import named
from ..native.runtime import threading, time
from ..options.receiver_paced import BLOCKING
from ..printable import printable
from ..rules import registration as reg
from ..rules.quorum import Groups
from ..rules.reconcile import published_end, void_from
from ..rules.start_and_gap import Gap
from .arrival_order import ArrivalFeed, ArrivalWindow
from .board_name import BoardName
from .feed import Feed
from .late import Late
from .line_identity import counts_behind, line_identity
from .registrar import Registrar
from .start import OfProgram, start_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from ..control import wire
    from ..control.link import StoreLink
    from ..memory.discovery import Found
    from ..rules.start_and_gap import Start
    from .ack_window import Window
    from .feed import Listener
    from .ports import ReceiverPort

__all__ = ["DeliveryController", "source_name"]

_log = logging.getLogger("holdfast")


def source_name(found: Found) -> str:
    """How events and messages name a source."""
    return f"holdfast:{found.topic}:{found.uuid.hex()[:12]}"


class DeliveryController(Counts):
    """See the module. ``feed`` is None until registration is complete."""

    registers = True
    """Stores are to know it."""
    passes: tuple[type[Exception], ...] = TurnHeldError, LimitReachedError, SharedMemoryFullError
    """What keeps it from beginning, and not for ever."""

    def __init__(self, receiver: ReceiverPort, found: Found) -> None:
        self.receiver, self.found = receiver, found
        self.uuid, self.topic = found.uuid, found.topic
        self.source = source_name(found)
        self.client_data: object = None
        self.feed: Feed | ArrivalFeed | None = None
        self.live: Feed | None = None
        """The feed that reads the ring in place."""
        self.window: Window | ArrivalWindow | None = None
        self.failure: Exception | None = None
        self.noticed = False
        """The program's create callback has returned, so its delete callback is due one day."""
        self.dozing = False
        """The context's thread sleeps without an ack timer: the next delivery must stir it."""
        self.delivered = self.redelivered = 0
        context, options = receiver.context, receiver.options
        self.watch = SriWatch(context.discovery, context.domain, found.uuid)
        self.streaming = not (options.ume_use_store and found.stores)
        """No stores: nothing but the ring, and no acks that anybody keeps."""
        groups = Groups.single(0) if self.streaming else found.groups
        self.registrar = Registrar(self, () if self.streaming else found.stores, groups, found.incarnation)
        self._prefix_only = options.ordered_delivery == -1
        """A store keeps one number: what was delivered ahead must not acknowledge what is still to be
        recovered."""
        self.acking: AbstractContextManager[object] = threading.RLock()
        """Re-entered by a finalizer that acknowledges at once."""
        self._incarnation = 0
        """Of the newest ring that the receiving thread was sent to."""
        self._begun = 0, 0
        """(incarnation, its first number) that acks are stored under."""
        self._void = 0
        """Acks of older incarnations do not count from here on."""
        self.skipped: tuple[int, int] | None = None
        """[first, start): what this start has skipped, as long as nothing was acknowledged since."""
        self.board: Mapping | None = None
        self.line, self._left = -1, False
        self.late = Late(self)
        self._waiting: reg.Complete | None = None
        """Registered, and not begun: another process stands still while it is its turn on the board, or this
        one has reached a limit."""
        self._again_ns = self._tried_ns = 0
        self._lacks: reg.Refusal | None = None
        """What this process lacked at the last attempt to begin."""
        self._name = BoardName(self)

    @property
    def ready(self) -> bool:
        """Messages may be received."""
        return self.feed is not None

    def __repr__(self) -> str:
        at = f"next={self.feed.next}" if self.feed is not None else "registering"
        return printable(f"<DeliveryController {self.source} {at}>")

    def tell(self, event: object) -> None:
        """Queues an event."""
        self.receiver.tell(event)

    # The context's thread -----------------------------------------------------------------------------------

    def start(self) -> None:
        """First turn."""
        self.registrar.start()

    def tick(self, now_ns: int) -> None:
        """Timers of the registration; what has become of the source."""
        if self.failure is not None or self._left:
            return
        self.watch.begun = self._begun[0]
        sri = self.watch.look(now_ns)
        if sri is not None and not self.streaming:
            self.registrar.follow(sri)
        self.registrar.tick(now_ns)
        self.late.look()
        self._name.look(now_ns)
        if self._waiting is not None and now_ns >= self._again_ns:
            self.complete(self._waiting)
        if self.watch.incarnation != self._incarnation:
            self._incarnation = self.watch.incarnation
            if self.live is not None and self.live.ring is None:
                self.live.newer = True
            self.receiver.wake()  # there is a ring to look into
        feed = self.live
        ring = feed.ring if feed is not None else None
        if feed is None or ring is None or feed.newer:
            return
        gone = not self.watch.ring or self.watch.incarnation > ring.incarnation
        dead = self.watch.orphaned >= ring.incarnation and feed.orphaned < self.watch.orphaned
        if gone or dead:
            feed.orphaned = self.watch.orphaned
            feed.newer = True
            self.receiver.wake()

    def found_again(self, found: Found) -> None:
        """A store knows the source, too: perhaps a newer incarnation than the ring shows that a dead store
        has left."""
        if not self.streaming and found.stores:
            self.registrar.follow_store(found)

    @property
    def begun(self) -> tuple[int, int]:
        """The newest BEGIN that it was read under: incarnation, first number."""
        return self._begun

    def gone(self) -> bool:
        """The source was deregistered: read to its end, and neither a ring nor a log of it is left."""
        feed = self.live
        return feed is not None and feed.ended and not self.watch.ring and feed.logs.gone()

    def fail(self, error: Exception) -> None:
        """Registration failed for good."""
        error = named(error, f"topic {self.topic!r}")
        self.failure, self._lacks = error, None
        self.receiver.context.waits.show(self, None)
        self.receiver.failed(self.topic, self.source, error)

    def refusal(self, since_ns: int = 0) -> reg.Refusal | None:
        """Why a store refuses, if one does, or what this process lacks; as :meth:`Registration.refusal`."""
        lacks = self._lacks if self._lacks is not None and self._tried_ns >= since_ns else None
        return lacks or self.registrar.refusal(since_ns)

    def complete(self, action: reg.Complete) -> None:
        """Takes a board line, decides where to start, and lets the receiving thread in. What passes is tried
        again."""
        self._waiting, self._tried_ns = None, time.monotonic_ns()
        try:
            start = self._begin(action)
        except OfProgram as raised:  # what its function raises is its own, also where it names a limit
            self.fail(raised.error)
            return
        except Exception as error:
            self._not_begun(action, named(error, f"topic {self.topic!r}"))
            return
        self._lacks = None
        if start is None:
            return
        flags = events.RegistrationCompleteFlags
        said = flags(0) if action.all_stores else flags.QUORUM
        if start.limited:
            said |= flags.RXREQMAX
        if session := self.registrar.source_session_id():
            said |= flags.SRC_SID
        self.tell(events.RegistrationComplete(self.topic, self.source, said, start.sequence_number, session))
        if self.skipped is not None and self.receiver.options.ume_receiver_paced_persistence:
            self.tell(events.Skipped(self.topic, self.source, self.skipped[0], self.skipped[1] - 1))
        self.tell(events.BeginOfStream(self.topic, self.source))
        self.receiver.joined(self.uuid)
        assert self.board is not None
        self.receiver.context.joined(self.uuid, self.board, self.registrar.session_id)

    def _begin(self, action: reg.Complete) -> Start | None:
        """None: closed, by the callback that has chosen the start."""
        context = self.receiver.context
        who = line_identity(context, self.receiver.options, self.registrar)
        self.board, self.line = join_board(context.domain, self.uuid, who)
        self._begun = self.known_begin()  # first: what begins meanwhile is gone back to
        low = action.sequence_number
        high = self._high(low)
        start = self._start(low, high)
        if self.board is None:
            return None
        self._void = self._begun[1]
        position = start.sequence_number if self.streaming else low if action.position is None else action.position
        self._open(start.sequence_number, high + 1, skips=position < start.sequence_number)
        self._cover(min(position, high + 1), start.sequence_number)
        return start

    def _not_begun(self, action: reg.Complete, error: Exception) -> None:
        """What a process or a file system lacks it may have again, and who holds a turn lives: it is waited
        for."""
        if not isinstance(error, self.passes):
            self.fail(error)
            return
        if self.board is not None:
            lib.hf_board_release(self.board.handle, self.line)
        self.board, self.line, self.window, self.feed, self.live = None, -1, None, None, None
        self._waiting = action
        self._again_ns = time.monotonic_ns() + self.receiver.options.ume_registration_interval * 1_000_000
        code, before, self._lacks = getattr(error, "code", ""), self._lacks, None
        if isinstance(error, TurnHeldError):
            self.tell(events.RegistrationError(self.topic, self.source, str(error), "", error.pid))
            return
        self._lacks = reg.Refusal(code, str(error))
        if before is None or before.code != code:  # the text changes with what is used
            _log.error("%s: %s", self.source, error)
            self.tell(events.RegistrationError(self.topic, self.source, str(error), ""))
            self.receiver.wake()

    def _open(self, start: int, live_from: int, *, skips: bool) -> None:
        """The feed and its window; in order of arrival there are two of each while there is something to
        recover."""
        assert self.board is not None
        receiver, board, context = self.receiver, self.board, self.receiver.context
        logs, until = self.logs()
        patience_ns = receiver.options.retransmit_request_message_timeout * 1_000_000
        new = not any(answer.old or answer.kept_for for answer in self.registrar.answers())

        def feed(listener: Listener, line: int, start: int, stop: int) -> Feed:
            made = Feed(
                self.uuid, board, context.bells, line, context.discovery, Logs(logs, until), start, live_from, self._begun,
                listener, Gap(patience_ns), time.monotonic_ns, stop,
            )  # fmt: skip
            made.skipped, made.late = self._skipped if new else None, self.late.tell
            return made

        if receiver.options.ordered_delivery == -1 and start < live_from and logs:
            self.window = ArrivalWindow(receiver.new_window(start), receiver.new_window(live_from), live_from, skips)
            self.feed = ArrivalFeed(
                lambda both: (feed(both, -1, start, live_from), feed(both, self.line, live_from, FOR_EVER)), self
            )
            self.live = self.feed.live
        else:
            self.window = receiver.new_window(start)
            self.feed = self.live = feed(self, self.line, start, FOR_EVER)

    def logs(self) -> tuple[list[str], dict[str, int]]:
        """The source's logs, another one first for each receiver: the reading spreads over the stores' disks.
        Those of stores of earlier lists come last; below which number these count."""
        paths, earlier = self.registrar.log_paths(), self.registrar.earlier_logs()
        first = self.line % len(paths) if paths else 0
        return [*paths[first:], *paths[:first], *earlier], {path: below for path, (_, below) in earlier.items()}

    def found_logs(self) -> None:
        """A store has granted: where its log is, is known now."""
        if self.feed is not None:
            self.feed.use_logs(*self.logs())

    def known_begin(self) -> tuple[int, int]:
        """The BEGIN that the start was chosen under: the newest that holds by the stores' answers, or the
        ring's without any."""
        table = self.registrar.table()
        if table:
            return table[-1]
        header = self.receiver.context.discovery.header(self.uuid)
        return (int(header.pre.incarnation), int(header.start_sqn)) if header is not None else (0, 0)

    def _cover(self, position: int, start: int) -> None:
        """The line says that everything below ``position`` is acknowledged. What a start behind it skips is
        not: the program's first acknowledgement covers that, and a next life begins with it until then.

        The line counts from the position on, and for what this identity has acknowledged in an earlier life.
        One that is new counts from its start: it never had what it skipped, and an acknowledgement must not
        confirm that.
        """
        assert self.board is not None
        self._rebase()
        line = lib.hf_board_line_at(self.board.handle, self.line)
        before = int(line.from_sqn)
        kept = line.to_sqn > 0 and before <= position <= line.ack
        old = any(answer.old for answer in self.registrar.answers())
        lib.hf_line_range(line, before if kept else position if old else max(position, start), FOR_EVER)
        lib.hf_board_ack(self.board.handle, self.receiver.context.bells.handle, self.line, position, start)
        line.position = max(int(line.ack), start)  # an earlier life may have been farther
        if start > line.ack and not self.streaming:
            self.skipped = int(line.ack), start
            if self.receiver.options.ume_receiver_paced_persistence == BLOCKING:
                line.flags |= lib.HF_LINE_SKIPPED  # nobody acknowledges yet, so nobody else writes the flags

    def _rebase(self) -> None:
        """The line's ack is of the newest incarnation now. Several may have begun since it was stored: the
        lowest start cuts."""
        assert self.board is not None
        under = int(lib.hf_board_line_at(self.board.handle, self.line).ack_stream)
        cut = min(self._begun[1], void_from(self.registrar.table(), under))
        lib.hf_board_rebase(self.board.handle, self.line, self._begun[0], cut)

    def _high(self, low: int) -> int:
        """Highest number published so far, -1 for none; ``low``: what is below was acknowledged."""
        logs = [(answer.high_sqn, answer.incarnation) for answer in self.registrar.answers()]
        return published_end((*self.registrar.table(), self._begun), logs, self._ring(), low) - 1

    def _ring(self) -> tuple[int, int] | None:
        """Number behind the last message of the newest ring, and its incarnation."""
        header = self.receiver.context.discovery.header(self.uuid)
        return (int(header.next_sqn), int(header.pre.incarnation)) if header is not None and header.next_sqn else None

    def _start(self, low: int, high: int) -> Start:
        """docs/semantics.md F.1. Asks the program's callback, for new receivers too."""
        return start_of(self, low, high)

    # What a feed tells: the receiving thread ----------------------------------------------------------------

    def lost(self, first: int, last: int) -> None:
        """Listener: holds no ack back; told one by one, or as one burst."""
        assert self.window is not None
        self.window.lost(first, last)
        if last - first + 1 > self.receiver.options.delivery_control_maximum_burst_loss:
            self.tell(events.UnrecoverableLossBurst(self.topic, self.source, last))
        else:
            for number in range(first, last + 1):
                self.tell(events.UnrecoverableLoss(self.topic, self.source, number))

    def _skipped(self, first: int, last: int) -> None:
        """The stores have let these go before this new receiver had looked at its start: it starts behind
        them, and confirms none of them."""
        assert self.window is not None
        with self.acking:  # before an acknowledgement passes them
            if self.board is not None and not self._left and self.receiver.context.fence is None:
                counts_behind(lib.hf_board_line_at(self.board.handle, self.line), first, last)
        self.window.lost(first, last)

    def resumed(self) -> None:
        """Listener."""
        self.tell(events.BeginOfStream(self.topic, self.source))

    def ended(self) -> None:
        """Listener."""
        self.tell(events.EndOfStream(self.topic, self.source))
        self.receiver.context.wake()  # there may be another one to read

    def parted(self) -> None:
        """Listener."""
        self.receiver.context.wake()

    def rebased(self, incarnation: int, start: int, void: int) -> None:
        """Listener: acks of what is void now must not count for the numbers of the new incarnation. Several
        may begin before one is stored."""
        assert self.window is not None
        with self.acking:
            if incarnation > self._begun[0]:
                self.window.rebase(void)
                board = self.board
                stored = board is None or lib.hf_board_line_at(board.handle, self.line).ack_stream >= self._begun[0]
                self._begun, self._void = (incarnation, start), void if stored else min(void, self._void)
                if self.skipped is not None and self.skipped[1] > void:
                    self.skipped = (self.skipped[0], void) if self.skipped[0] < void else None

    def stir(self) -> None:
        """A message was delivered while the context's thread dozed (receiving thread)."""
        self.dozing = False
        self.receiver.context.wake()

    # Acks ---------------------------------------------------------------------------------------------------

    def consumed(self, slot: int, number: int) -> None:
        """The delivery ``slot``, which ends below ``number``, is consumed and acknowledged at once
        (docs/semantics.md G.1)."""
        assert self.window is not None
        if self._prefix_only:
            self.window.consumed(slot)
            self.acknowledge()
        else:
            self.acknowledge(slot, number)
            self.window.consumed(slot)

    def acknowledge(self, slot: int = -1, number: int | None = None) -> None:
        """Stores the ack: everything below ``number``, which the delivery ``slot`` says, or what the window
        allows.

        Any thread; after close a no-op.
        """
        window = self.window
        if window is not None:
            self._acknowledge(lambda: window.advance() if number is None else window.valid(slot, number))

    def acknowledge_skipped(self) -> int:
        """Acknowledges what the start has skipped; how many numbers that was. Any thread."""
        window, skipped = self.window, self.skipped
        if window is None or skipped is None:
            return 0
        self._acknowledge(lambda: window.ack)
        return skipped[1] - skipped[0]

    def _acknowledge(self, allowed: Callable[[], int | None]) -> None:
        """Stores what ``allowed`` says, if anything."""
        window, board, feed = self.window, self.board, self.feed
        if window is None or board is None or feed is None or self.registrar.deregistration is not None:
            return
        if lib.hf_process_forked(board.handle.token):  # a thread that is not there may hold the lock
            return
        with self.acking:  # the incarnation and what is acknowledged under it, together
            if self._left or self.receiver.context.fence is not None:
                return
            lib.hf_board_rebase(board.handle, self.line, self._begun[0], self._void)
            ack = allowed()
            if ack is not None:
                window.told(ack)
                lib.hf_board_ack(board.handle, self.receiver.context.bells.handle, self.line, ack, max(ack, feed.next))
                if self.skipped is not None and ack < self.skipped[1]:  # said by the program, of what it knew before
                    self.skipped = max(self.skipped[0], ack), self.skipped[1]
                elif self.skipped is not None:
                    self.skipped = None
                    lib.hf_board_line_at(board.handle, self.line).flags &= ~lib.HF_LINE_SKIPPED

    @property
    def acked(self) -> int:
        """First number that is not acknowledged."""
        assert self.window is not None
        return self.skipped[0] if self.skipped is not None else self.window.ack

    def published(self, number: int) -> int:
        """Number behind the last one that is known to be published. The logs are read where ``number`` is not
        known without."""
        feed = self.live
        end = max(feed.next if feed else 0, self._high(0) + 1)
        return max(end, published_below(self._begun, feed.logs.paths)) if feed and number >= end else end

    def report(self, now_ns: int) -> None:
        """Counters and heartbeat on the line, for stat."""
        if self.board is None or self.feed is None:
            return
        line = lib.hf_board_line_at(self.board.handle, self.line)
        line.heartbeat_ns = now_ns
        line.delivered, line.redelivered, line.lapped = self.delivered, self.redelivered, self.feed.lapped

    def lag(self) -> int:
        """Messages published and not delivered yet."""
        return max(0, published_end((self._begun,), (), self._ring()) - self.feed.next) if self.feed else 0

    # The end ------------------------------------------------------------------------------------------------

    def leave_requests(self) -> list[tuple[StoreLink, wire.Leave]]:
        """What to tell the stores at a clean close."""
        return self.registrar.leave_requests()

    def close(self, *, feed_is_idle: bool = True) -> None:
        """Frees the line; its ack stays readable. With a thread that may be in the feed, that goes with its
        last user."""
        if self._left:
            return
        with self.acking:  # from here on nobody stores an ack: the line may be another one's soon
            self._left = True
        try:
            for each in (self._name, self.late, self.registrar, self.watch):
                each.close()
        finally:  # also where somebody interrupts that
            if self.feed is not None and feed_is_idle:
                self.feed.close()
            if self.board is not None:
                if self.line >= 0 and self.receiver.context.fence is None:  # it may be another one's by now
                    lib.hf_board_release(self.board.handle, self.line)
                self.board = None
