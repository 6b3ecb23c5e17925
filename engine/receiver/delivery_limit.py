"""Delivery that waits for consumption: UM's ume_application_outstanding_maximum (docs/semantics.md F.2, K.3).

Fragments are counted, of all sources of a receiver together: from their delivery until they are consumed.
While there are as many as the maximum, nothing more is delivered. A message, and what one batch takes, goes
whole: the last one may go beyond. What is lost does not count.

Threads: only the receiving thread counts. What others consume queues up for it (a deque's append is atomic),
so that no release takes a lock, and one that comes twice, or after its view was evicted, finds nothing left
to subtract.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Protocol

from .ack_window import AckWindow, ExplicitWindow

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["CountedExplicitWindow", "CountedWindow", "Outstanding"]


class _Counted(Protocol):
    """A window whose open deliveries are counted."""

    def settle(self, number: int) -> int:
        """Forgets what `number` says is consumed; returns its fragments. Receiving thread."""


class Outstanding:
    """How many fragments are out. `wake` is called, by any thread, when one is consumed while delivery
    pauses."""

    def __init__(self, maximum: int, wake: Callable[[], object]) -> None:
        self._maximum = maximum
        self._wake = wake
        self._count = 0
        self._consumed: deque[tuple[_Counted, int]] = deque()
        self._paused = False

    @property
    def count(self) -> int:
        """Fragments that are out, as the receiving thread last counted."""
        return self._count

    def delivered(self, fragments: int) -> None:
        """This many more went out; negative: they were taken back. Receiving thread."""
        self._count += fragments

    def consumed(self, window: _Counted, number: int) -> None:
        """`window` has something to settle. Any thread."""
        self._consumed.append((window, number))
        if self._paused:  # set before the last look at what is queued here: one of both sees the other
            self._wake()

    def room(self) -> int:
        """Fragments that may be delivered now; 0: delivery pauses. Receiving thread."""
        while self._consumed:
            window, number = self._consumed.popleft()
            self._count -= window.settle(number)
        room = self._maximum - self._count
        if room > 0:
            self._paused = False
        return max(0, room)

    def pauses(self) -> bool:
        """Delivery pauses, and nothing was consumed since the receiving thread looked: `wake` will be called.
        Any thread."""
        self._paused = True
        return self._count >= self._maximum and not self._consumed


class CountedWindow(AckWindow):
    """An AckWindow whose deliveries count as outstanding until they are consumed."""

    def __init__(self, start: int, outstanding: Outstanding) -> None:
        super().__init__(start)
        self.counted = True
        self._outstanding = outstanding
        self._open: dict[int, int] = {}
        """Slot -> fragments, of what is out. The receiving thread's."""

    def delivered(self, first: int, last: int) -> int:
        """As AckWindow."""
        slot = super().delivered(first, last)
        self._open[slot] = last - first + 1
        self._outstanding.delivered(last - first + 1)
        return slot

    def lost(self, first: int, last: int) -> None:
        """As AckWindow; it was never out."""
        super().consumed(super().delivered(first, last))

    def consumed(self, slot: int) -> None:
        """As AckWindow."""
        super().consumed(slot)
        self._outstanding.consumed(self, slot)

    def settle(self, number: int) -> int:
        """A slot was consumed."""
        return self._open.pop(number, 0)

    def _forget(self, slot: int, number: int) -> None:
        super()._forget(slot, number)
        for forgotten in [one for one in self._open if one >= slot]:  # not out any more
            self._outstanding.delivered(-self._open.pop(forgotten))


class CountedExplicitWindow(ExplicitWindow):
    """An ExplicitWindow whose deliveries count as outstanding until they are acknowledged, or marked not
    outstanding."""

    def __init__(self, start: int, outstanding: Outstanding) -> None:
        super().__init__(start)
        self.counted = True
        self._outstanding = outstanding
        self._open: deque[tuple[int, int]] = deque()
        """(last number, fragments) of what is out, ascending. The receiving thread's."""

    def delivered(self, first: int, last: int) -> int:
        """As ExplicitWindow."""
        self._open.append((last, last - first + 1))
        self._outstanding.delivered(last - first + 1)
        return super().delivered(first, last)

    def not_outstanding(self, number: int) -> None:
        """As ExplicitWindow."""
        self._outstanding.consumed(self, number)

    def settle(self, number: int) -> int:
        """Everything up to `number` was acknowledged or marked."""
        fragments = 0
        while self._open and self._open[0][0] <= number:
            fragments += self._open.popleft()[1]
        return fragments

    def rewind(self, slot: int) -> int | None:
        """As ExplicitWindow; what will be delivered again is not out any more."""
        again = super().rewind(slot)
        if again is not None:
            self._void(again)
        return again

    def rebase(self, start: int) -> None:
        """As ExplicitWindow; what is void is not out any more."""
        super().rebase(start)
        self._void(start)

    def _void(self, start: int) -> None:
        while self._open and self._open[-1][0] >= start:
            self._outstanding.delivered(-self._open.pop()[1])
