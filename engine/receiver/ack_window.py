"""Which acknowledgement a receiver may send: up to the first message that is not consumed yet, or what the
program says.

An AckWindow is a ring of records in anonymous memory, one per delivered message or batch (it is released as a
whole), in order of delivery. A record's tag is 2 * slot while it is delivered and 2 * slot + 1 once it is
consumed. Slots are free-running, so an old tag never means a new record: whatever races, an acknowledgement
can come late, never early. Delivering and consuming are in C (csrc/python/deliveries.c): what is consumed in
order moves the head at once, and the rest is found by a sweep.

An ExplicitWindow has no records: the program acknowledges, releasing means nothing.

Threads: `delivered`, `lost` and `rewind` belong to the receiving thread. `consumed` may come from any thread,
signal handler or finalizer; it takes no lock. `advance` and `told` may come from any thread.
"""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from ..native import kernels
from ..native.core import Deliveries
from ..native.runtime import threading

if TYPE_CHECKING:
    from numpy.typing import NDArray

INITIAL_SLOTS = 4096
MAXIMUM_SLOTS = 1 << 20
LOOK_S = 0.05
"""An acknowledgement waits no longer for another thread's sweep: that one may have been interrupted by a
finalizer that waits for this acknowledgement to end."""
_ERA = 64
_NUMBER = (1 << _ERA) - 1
"""Of a slot of an ExplicitWindow."""
_WORDS = 3  # of 8 bytes in a record: first, last, tag (kernels.ack_record)


class _Ring:
    """Records, seen twice: by field for Python (memoryviews store faster than numpy), as a record array for
    kernels."""

    __slots__ = ("firsts", "lasts", "mask", "memory", "records", "slots", "tags")

    def __init__(self, slots: int) -> None:
        import numpy as np

        # Private: a forked child that releases its copy of a message consumes nothing of the parent's.
        self.memory = memory = mmap.mmap(-1, slots * _WORDS * 8, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.slots = slots
        self.mask = slots - 1
        words = memoryview(memory).cast("q")
        self.firsts, self.lasts, self.tags = (words[field::_WORDS] for field in range(_WORDS))
        self.records: NDArray[Any] = np.frombuffer(memory, kernels.ack_record())


class AckWindow(Deliveries):
    """The deliveries of one receiver from one source."""

    def __init__(self, start: int, *, slots: int = INITIAL_SLOTS, maximum: int = MAXIMUM_SLOTS) -> None:
        """Begin with everything below `start` acknowledged. `slots` and `maximum` are powers of two, in
        records."""
        if not 1 <= slots <= maximum or slots & (slots - 1) or maximum & (maximum - 1):
            raise ValueError(f"{slots} and {maximum} slots: powers of two, the first not above the second")
        self._ring = _Ring(slots)
        self.use(self._ring.memory)
        self._maximum = maximum
        self.swept = self.passed_below = start
        """First number behind the records below `head`; behind the last one that was delivered."""
        self._told = start
        self._lock = threading.RLock()  # re-entered by a finalizer that releases a message and acknowledges at once

    @property
    def ack(self) -> int:
        """First number that is not acknowledged, as the last `advance` or `told` saw it."""
        return self._told

    @property
    def outstanding(self) -> int:
        """Records that are delivered and not yet passed by the acknowledgement."""
        return self.tail - self.head

    @property
    def slots(self) -> int:
        """Records that the window has room for now."""
        return self._ring.slots

    def make_room(self) -> None:
        """For one record at least. Raises UsageError (HF_FULL)."""
        self._sweep()
        if self.outstanding >= self._ring.slots:
            self._grow()

    def lost(self, first: int, last: int) -> None:
        """Record that numbers first..last will never come: they hold nothing back."""
        self.consumed(self.delivered(first, last))

    @property
    def settled(self) -> bool:
        """Everything delivered is consumed, and `advance` has told of it."""
        return self.head == self.tail and self.swept <= self._told

    def valid(self, slot: int, number: int) -> int | None:
        """What an acknowledgement of everything below `number` still means, as part of the delivery `slot`.

        None: nothing, because `slot` is consumed, evicted or void. Less than `number` where a new incarnation
        has cut it.
        """
        ring = self._ring
        at = slot & ring.mask
        last: int = ring.lasts[at]
        return min(number, last + 1) if ring.tags[at] == 2 * slot else None

    def rewind(self, slot: int) -> int | None:
        """Forget `slot` and all later deliveries: they will be delivered again. Returns the number to go on
        from.

        For views that were evicted. None: the slot was consumed and acknowledged before, nothing changes.
        """
        with self._lock:
            ring = self._ring
            if not self.head <= slot < self.tail or ring.tags[slot & ring.mask] != 2 * slot:
                return None
            first = ring.firsts[slot & ring.mask]
            self._forget(slot, first)
            return first

    def take_back(self, first: int) -> None:
        """The message that begins with `first` was taken for the program, which did not get it.

        Its record, if it has one, is forgotten. The receiving thread, before anything else is delivered.
        """
        with self._lock:
            ring, newest = self._ring, self.tail - 1
            at = newest & ring.mask
            if newest >= self.head and ring.firsts[at] == first and ring.tags[at] == 2 * newest:
                self._forget(newest, first)
            self.passed_below = min(self.passed_below, first)

    def _forget(self, slot: int, number: int) -> None:
        """`slot` and all later deliveries are void; delivery goes on at `number`. Under the lock."""
        ring, before = self._ring, self.moving
        try:
            self.moving = True
            self.passed_below = min(self.passed_below, number)
            # Latest first: the prefix cannot pass `slot` before everything behind it says that nothing there
            # is acknowledged.
            for forgotten in range(self.tail - 1, slot - 1, -1):
                at = forgotten & ring.mask
                ring.firsts[at] = number
                ring.lasts[at] = number - 1
                ring.tags[at] = 2 * forgotten + 1
        finally:
            self.moving = before

    def advance(self) -> int | None:
        """Return the new acknowledgement (last number of the consumed prefix, plus 1), or None if it has not
        moved.

        Two threads at once may both get it.
        """
        self._sweep(LOOK_S)
        ack = self.swept
        if ack <= self._told:
            return None
        self._told = ack
        return ack

    def rebase(self, start: int) -> None:
        """A new incarnation of the source began at `start`: what was delivered from there on is void, and so
        are its acks.

        The receiving thread.
        """
        with self._lock:
            self._sweep()
            ring, before = self._ring, self.moving
            try:
                self.moving = True
                slot = self.head
                while slot < self.tail and ring.firsts[slot & ring.mask] < start:
                    at = slot & ring.mask
                    ring.lasts[at] = min(ring.lasts[at], start - 1)  # a batch that reaches over it
                    slot += 1
                self._forget(slot, start)
                self.swept = min(self.swept, start)
                self._told = min(self._told, start)
            finally:
                self.moving = before

    def told(self, ack: int) -> None:
        """Record that everything below `ack` was acknowledged without asking here: at the start, or in
        immediate mode."""
        self._told = max(self._told, ack)

    def not_outstanding(self, number: int) -> None:
        """Nothing: here consumption alone says it."""

    def _sweep(self, wait_s: float = -1) -> None:
        """Move the head over what is consumed; without, if another thread does it for longer than `wait_s`
        (-1: to the end)."""
        if not self._lock.acquire(timeout=wait_s):
            return
        try:
            # Never inside itself: the records that the outer one walks over must not be free for use before
            # it ends.
            if self.moving:
                return
            self.moving = True
            try:
                if self.head < self.tail:
                    prefix = kernels.best(kernels.contiguous_prefix)
                    head, last = prefix(self._ring.records, self.head, self.tail)
                    if head > self.head:
                        self.head = head
                        self.swept = max(self.swept, int(last) + 1)
            finally:
                self.moving = False
        finally:
            self._lock.release()

    def _grow(self) -> None:
        """Move to a ring of twice the slots."""
        old = self._ring
        if old.slots >= self._maximum:
            oldest = old.firsts[self.head & old.mask]
            raise UsageError(
                f"{old.slots} messages are delivered and not released, the oldest has number {oldest}",
                hint="release messages that you hold",
                code="HF_FULL",
            )
        new = _Ring(old.slots * 2)
        live = range(self.head, self.tail)
        for slot in live:
            new.records[slot & new.mask] = old.records[slot & old.mask]
        self._ring = new
        self.use(new.memory)  # from here on what is consumed is marked there
        for slot in live:
            if old.tags[slot & old.mask] == 2 * slot + 1:
                new.tags[slot & new.mask] = 2 * slot + 1


class ExplicitWindow(Deliveries):
    """The deliveries of one receiver from one source where only the program acknowledges (docs/semantics.md
    G.4).

    As AckWindow, but no delivery is kept: a slot is the number that its delivery begins with, and above its
    64 bits how many new incarnations were known by then. Lost numbers hold nothing back, because nothing
    does: an acknowledgement covers every number below it.
    """

    def __init__(self, start: int) -> None:
        """Begin with everything below `start` acknowledged."""
        self.is_explicit = True
        self.passed_below = start
        """Number behind the last one that was delivered."""
        self._seen = start
        self._told = start
        self._voids: list[int] = []
        """Where each new incarnation began; `era`: how many."""

    @property
    def settled(self) -> bool:
        """Nothing was delivered since the last `advance`: the context's thread need not look again."""
        return self.passed_below == self._seen

    @property
    def ack(self) -> int:
        """First number that is not acknowledged."""
        return self._told

    def lost(self, first: int, last: int) -> None:
        """Record that numbers first..last will never come."""
        self.passed_below = last + 1

    def rewind(self, slot: int) -> int | None:
        """The number to go on from when a view that began at `slot` was evicted; None: all of it was
        acknowledged before."""
        again = max(slot & _NUMBER, self._told)
        if again >= self.passed_below:
            return None
        self.passed_below = again
        return again

    def advance(self) -> int | None:
        """None: a timer has nothing to acknowledge."""
        self._seen = self.passed_below
        return None

    def take_back(self, first: int) -> None:
        """As AckWindow: it was not delivered."""
        self.passed_below = min(self.passed_below, first)

    def rebase(self, start: int) -> None:
        """A new incarnation of the source began at `start`: what was delivered from there on is void, and so
        are its acks."""
        self.passed_below, self._told = min(self.passed_below, start), min(self._told, start)
        self._voids.append(start)
        self.era = len(self._voids)

    def valid(self, slot: int, number: int) -> int:
        """As AckWindow: what was delivered before a new incarnation says nothing about numbers from its
        beginning on."""
        return min([number, *self._voids[slot >> _ERA :]])

    def told(self, ack: int) -> None:
        """Record that the program acknowledged everything below `ack`: also numbers that were never
        received."""
        self._told = max(self._told, ack)

    def not_outstanding(self, number: int) -> None:
        """Numbers up to `number` no longer count as outstanding. Nobody counts here; see
        delivery_limit.py."""


Window = AckWindow | ExplicitWindow
