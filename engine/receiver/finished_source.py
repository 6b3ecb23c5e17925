"""A source that is over, at a receiver whom no store has to know: read from the stores' files, registered
nowhere.

All of it is in the logs of a quorum of its stores, which say how far it goes (engine/store/shelf.py). Nothing
is acknowledged, for nobody will come back to that: the receiver has no session. Several lie ready, one behind
the other, so that the thread that receives need not wait for the context's; each delivers when those before
it have.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from ..errors import Error, LimitReachedError, SystemCallError
from ..events import receiver as events
from ..log.reader import Logs
from ..native.limits import lacking
from ..native.runtime import time
from ..rules import registration as reg
from ..rules.start_and_gap import Gap, start_number
from .delivery_controller import DeliveryController
from .feed import Feed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..control import wire
    from ..control.link import StoreLink
    from ..memory.discovery import Found
    from ..memory.message_slot import Slot
    from ..native.core import CData
    from .ports import ReceiverPort
    from .ring_reader import View

__all__ = ["STANDS_NS", "FinishedSource"]

STANDS_NS = 1_000_000_000
"""A source that has given nothing for so long, and waits for a store, does not hold the others up."""


class _FinishedFeed(Feed):
    """Delivers when its turn has come, and ends at ``stop``."""

    comes: Callable[[], bool]
    """Its turn has come. Any thread."""
    begins: Callable[[], None]
    """It is about to look for the first time. The receiving thread."""
    rings = False
    """The context's thread is to wake when all of it is delivered, for more is to lie ready."""
    _ended_at = -1
    """Number behind the last one when :meth:`_at_end` was done."""
    fresh = True
    """Nobody has looked yet: it is worth a look."""
    waits_ns = 0
    """Since when it has had nothing to deliver, and is not at its end; 0: it has, or is."""

    def use_memory_of(self, other: Feed) -> None:
        """That one has nothing to deliver any more."""
        self._block, other._block = other._block, self._block

    def receive(self, slot: Slot) -> bool:
        """As Feed."""
        return self._may_deliver() and super().receive(slot)

    def batch(self, entries: CData, maximum: int, max_bytes: int) -> View | None:
        """As Feed."""
        return super().batch(entries, maximum, max_bytes) if self._may_deliver() else None

    @property
    def at_end(self) -> bool:
        """The receiving thread has seen that all of it is delivered, and closed the logs."""
        return self._ended_at == self.stop

    def _at_end(self) -> None:
        """All of it is delivered, and counted. The receiving thread, which reads in the logs, closes them;
        where more is to come, they are opened again."""
        if not self.at_end:
            self.logs.close()
            self._ended_at = self.stop
            if self.rings:
                self._listener.parted()

    def ready(self) -> bool:
        """As Feed."""
        return self.comes() and (self.fresh or super().ready())

    def _may_deliver(self) -> bool:
        if self._next >= self.stop:
            self._at_end()
            return False
        if not self.comes():
            return False
        if self.fresh:
            self.fresh = False
            self.begins()
        return True

    def _look(self) -> bool:
        found = super()._look()
        if found or self.next >= self.stop:
            self.waits_ns = 0
        else:
            self.waits_ns = self.waits_ns or time.monotonic_ns()
        return found


class FinishedSource(DeliveryController):
    """See the module.

    Args:
        low, following: the numbers to read, as the stores said; the second one is exclusive.
        left: where this receiver has left the source before: under which BEGIN, and the next number.
        before: the one whose turn is first.
        logs: where stores say that theirs are; of the others, the stores' info files say it.
    """

    registers = False
    passes = LimitReachedError, SystemCallError

    def __init__(
        self, receiver: ReceiverPort, found: Found, low: int, following: int, left: tuple[int, int] | None,
        before: FinishedSource | None, logs: Mapping[str, str], *, rings: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(receiver, found)
        self.registrar.said = logs
        self._rings = rings
        self._range = low, following
        self._before = before
        self._resumes = left
        self.live: _FinishedFeed

    def start(self) -> None:
        """First turn: it is ready at once, unless this process lacks something. Then that is said, and it is
        tried again."""
        self._waiting, self._tried_ns = None, time.monotonic_ns()
        try:
            self._ready()
        except (Error, OSError, MemoryError, ImportError) as error:  # numpy comes with a window that counts
            lacks = lacking(error)
            if lacks is None:
                self.fail(error)
                return
            if isinstance(lacks, MemoryError):  # it says nothing
                lacks = SystemCallError(f"topic {self.topic!r}: no memory", errno.ENOMEM, "ENOMEM")
            self._not_begun(reg.Complete(self._range[0], True), lacks)
            return
        self._lacks = None
        self.tell(events.BeginOfStream(self.topic, self.source))
        self.receiver.joined(self.uuid)

    def _ready(self) -> None:
        low, following = self._range
        logs = Logs([path for path in self.registrar.log_paths() if path])
        self._begun = logs.begun = self.found.incarnation, self.found.start_sqn
        if self._resumes is not None:
            incarnation, number = self._resumes
            start = min(number, logs.void_from(incarnation))
        else:
            start = start_number(
                low, following - 1, self.receiver.options.retransmit_request_maximum, low
            ).sequence_number
        feed = _FinishedFeed(
            self.uuid, None, self.receiver.context.bells, -1, self.receiver.context.discovery, logs, start, following,
            self._begun, self, Gap(self.receiver.options.retransmit_request_message_timeout * 1_000_000),
            time.monotonic_ns, following,
        )  # fmt: skip
        feed.comes, feed.begins = self._comes, self._begins
        feed.skipped, feed.late = (None if self._resumes else self._skipped), self.late.tell
        self.window = self.receiver.new_window(start, acks=False)
        feed.rings = self._rings
        self.feed = self.live = feed

    def _comes(self) -> bool:
        before = self._before
        return before is None or before.done or before.stands or before.failure is not None

    def _begins(self) -> None:
        before, self._before = self._before, None
        if before is not None and before.done:
            self.live.use_memory_of(before.live)

    @property
    def done(self) -> bool:
        """All of it was delivered."""
        return self.feed is not None and self.live.next >= self.live.stop

    @property
    def stands(self) -> bool:
        """It waits for a store that cannot be read, and has been for a while."""
        since = self.live.waits_ns if self.feed is not None else 0
        return since > 0 and time.monotonic_ns() - since > STANDS_NS

    def tick(self, now_ns: int) -> None:
        """What it waits for is to be shown, and what it lacked is there again perhaps."""
        self.late.look()
        if self._waiting is not None and now_ns >= self._again_ns:
            self.start()

    def gone(self) -> bool:
        """The source was deregistered meanwhile: no log of it is left."""
        return self.feed is not None and self.live.waits_ns > 0 and self.live.logs.gone()

    def goes_to(self, following: int) -> None:
        """Stores know of more, or of less: a BEGIN has made it void."""
        self._range = self._range[0], following
        if self.feed is not None:
            self.live.stop = following

    def found_again(self, found: Found) -> None:
        """Told by :meth:`goes_to`."""

    def lag(self) -> int:
        """Messages that are not delivered yet."""
        return max(0, self.live.stop - self.live.next) if self.feed is not None else 0

    def published(self, number: int) -> int:
        """Number behind the last one that is known to be published."""
        return max(self.live.next, self.live.stop)

    def leave_requests(self) -> list[tuple[StoreLink, wire.Leave]]:
        """None: no store knows this receiver."""
        return []
