"""Delivery in order of arrival (``ordered_delivery`` -1): live messages as they come, recovery beside them
(docs/semantics.md F.6).

One feed recovers what was published before the registration, up to ``split``; another one is live from there
on. Each has its window of acks, but a store keeps one number only: until the recovered part is delivered and
consumed, that is the acknowledgement, and the live part's afterwards. A crash in between brings live messages
again.

A receiver that is overtaken by the ring later catches up in order, as always.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..log.reader import ONLY_DECLARED

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..log.reader import Bounds
    from ..memory.message_slot import Slot
    from ..native.core import CData
    from .ack_window import Window
    from .feed import Feed, Listener
    from .ring_reader import RingReader, View

__all__ = ["ArrivalFeed", "ArrivalWindow", "resume"]


class ArrivalWindow:
    """As acks.AckWindow, over two of them: numbers below ``split``, and from there on. A slot is 2 x slot +
    (1 if live).

    ``skips``: the recovered part begins behind numbers that nobody has acknowledged.
    """

    def __init__(self, old: Window, live: Window, split: int, skips: bool = False) -> None:
        self.parts = old, live
        self._skips = skips
        self.split = split

    @property
    def ack(self) -> int:
        """First number that is not acknowledged."""
        old, live = self.parts
        return live.ack if old.ack >= self.split else old.ack

    @property
    def settled(self) -> bool:
        """Everything delivered is consumed, and :meth:`advance` has told of it."""
        return all(part.settled for part in self.parts)

    def delivered(self, first: int, last: int) -> int:
        """As AckWindow."""
        live = first >= self.split
        return 2 * self.parts[live].delivered(first, last) + live

    def lost(self, first: int, last: int) -> None:
        """As AckWindow."""
        self.parts[first >= self.split].lost(first, last)

    def consumed(self, slot: int) -> None:
        """As AckWindow."""
        self.parts[slot & 1].consumed(slot >> 1)

    def valid(self, slot: int, number: int) -> int | None:
        """As AckWindow. A live number says nothing of what is still to be recovered, or was skipped: then it
        is remembered, and counts when the recovered part is acknowledged up to ``split``."""
        old, live = self.parts
        ack = self.parts[slot & 1].valid(slot >> 1, number)
        if ack is None or ack < self.split:
            return ack
        live.told(ack)
        covers = old.passed_below >= self.split and not self._skips
        return live.ack if covers or ack == self.split or old.ack >= self.split else None

    def rewind(self, slot: int) -> int | None:
        """As AckWindow."""
        return self.parts[slot & 1].rewind(slot >> 1)

    def take_back(self, first: int) -> None:
        """As AckWindow."""
        self.parts[first >= self.split].take_back(first)

    def not_outstanding(self, number: int) -> None:
        """As AckWindow."""
        for part in self.parts:
            part.not_outstanding(number)

    def rebase(self, start: int) -> None:
        """As AckWindow."""
        for part in self.parts:
            part.rebase(start)
        self.split = min(self.split, start)

    def advance(self) -> int | None:
        """The new acknowledgement, None if it has not moved: the prefix by number, not by arrival."""
        before = self.ack
        for part in self.parts:
            part.advance()
        return self.ack if self.ack > before else None

    def told(self, ack: int) -> None:
        """As AckWindow."""
        old, live = self.parts
        old.told(min(ack, self.split))
        if ack > self.split:
            live.told(ack)


class ArrivalFeed:
    """As feed.Feed, over two of them; ``make(listener)`` gives the one that recovers, which has a ``stop``,
    and the live one.

    It listens to both: what one learns of a new incarnation, the other must know at once.
    """

    def __init__(self, make: Callable[[Listener], tuple[Feed, Feed]], listener: Listener) -> None:
        self._listener = listener
        self._old, self.live = make(self)
        self._old_first = False
        self._ended = False
        """The live part has ended while there was something to recover."""

    @property
    def ring(self) -> RingReader | None:
        """What serves, when nothing else does."""
        return None if self._recovering() else self.live.ring

    @property
    def newer(self) -> bool:
        """As Feed."""
        return self.live.newer

    @property
    def live_from(self) -> int:
        """As Feed."""
        return self.live.live_from

    @property
    def lapped(self) -> int:
        """As Feed."""
        return self.live.lapped

    @property
    def next(self) -> int:
        """First number that was not delivered yet."""
        return self._old.next if self._old.next < self._old.stop else self.live.next

    def _recovering(self) -> bool:
        if self._old.next < self._old.stop:
            return True
        if self._ended:
            self._ended = False
            self._listener.ended()
        return False

    def _parts(self) -> tuple[Feed, ...]:
        """Who is asked, in turn."""
        if not self._recovering():
            return (self.live,)
        self._old_first = not self._old_first
        return (self._old, self.live) if self._old_first else (self.live, self._old)

    def receive(self, slot: Slot) -> bool:
        """As Feed."""
        return any(part.receive(slot) for part in self._parts())

    def wait(self, slot: Slot, strategy: int, timeout_ns: int) -> bool:
        """As Feed; only while a ring serves."""
        return self.receive(slot) if self._recovering() else self.live.wait(slot, strategy, timeout_ns)

    def ready(self) -> bool:
        """As Feed."""
        return self.live.ready() or self._old.ready()

    def batch(self, entries: CData, maximum: int, max_bytes: int) -> View | None:
        """As Feed; a batch is of one part."""
        for part in self._parts():
            view = part.batch(entries, maximum, max_bytes)
            if view is not None:
                return view
        return None

    def resume(self, window: ArrivalWindow) -> None:
        """Each part goes on where its window ends."""
        old, live = window.parts
        self._old.resume(min(old.passed_below, self._old.stop))
        self.live.resume(live.passed_below)

    def seek(self, number: int) -> None:
        """As Feed."""
        (self._old if number < self._old.stop else self.live).seek(number)

    def use_logs(self, paths: Sequence[str], until: Bounds = ONLY_DECLARED) -> None:
        """As Feed."""
        self._old.use_logs(paths, until)
        self.live.use_logs(paths, until)

    def close(self) -> None:
        """As Feed."""
        self._old.close()
        self.live.close()

    # Listener of both ---------------------------------------------------------------------------------------

    def lost(self, first: int, last: int) -> None:
        """As told by either."""
        self._listener.lost(first, last)

    def resumed(self) -> None:
        """As told by the live part."""
        self._ended = False
        self._listener.resumed()

    def ended(self) -> None:
        """Not before everything is recovered."""
        self._ended = True
        self._recovering()

    def parted(self) -> None:
        """As told by the live part."""
        self._listener.parted()

    def rebased(self, incarnation: int, start: int, void: int) -> None:
        """What is to be recovered ends where it is void."""
        self._old.stop = min(self._old.stop, void)
        self._old.begin(incarnation, start, void)
        self.live.begin(incarnation, start, void)
        self._listener.rebased(incarnation, start, void)


def resume(feed: Feed | ArrivalFeed | None, window: Window | ArrivalWindow | None) -> None:
    """After an exception: what was taken from ``feed`` and has no record in ``window`` comes again. The
    receiving thread."""
    if isinstance(window, ArrivalWindow):
        if isinstance(feed, ArrivalFeed):
            feed.resume(window)
    elif window is not None and feed is not None and not isinstance(feed, ArrivalFeed):
        feed.resume(window.passed_below)
