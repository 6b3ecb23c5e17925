"""How a task of an event loop waits for a source: until something has moved, as a sender does on its own
thread.

The task notes a moment before it looks, and hands it over when it found nothing. The context's thread, which
then sleeps with the board's flag set as for a listener of events, wakes the task when the moment is past.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ..native.core import lib
from ..native.event_loop import Waker

if TYPE_CHECKING:
    from ..control.host import Host
    from ..memory.mapping import Mapping
    from .settlement import Settlement

__all__ = ["WaitingTasks"]

LOOK_S = 0.05
"""A task looks again by then in any case, as a thread that waits does; where many do, each less often."""
CROWD = 20
"""Tasks that look as often as one does."""
Moment = tuple[int, ...]


class Session(Protocol):
    """What is looked at of a source's session."""

    context: Host
    board: Mapping | None
    settlement: Settlement | None
    may_send: bool
    closed: bool

    @property
    def deregistration(self) -> object:
        """None: the source was not deregistered."""


@dataclass(frozen=True, slots=True, eq=False)
class Waiting:
    """A task that has seen ``moment``, and found nothing then."""

    moment: Moment
    wake: Waker


class WaitingTasks:
    """The tasks that wait for one source, whose session each call is given: it has this one, and goes as soon
    as nobody has it. Any thread."""

    def __init__(self) -> None:
        self._tasks: list[Waiting] = []

    @property
    def somebody(self) -> bool:
        """There is one."""
        return bool(self._tasks)

    @staticmethod
    def moment(session: Session) -> Moment:
        """Changes with whatever may end a wait."""
        board, settlement = session.board, session.settlement
        return (
            session.may_send, session.closed, session.deregistration is not None, session.context.fence is not None,
            settlement.moves if settlement is not None else -1,
            int(lib.hf_board_glance(board.handle)) if board is not None else -1,
        )  # fmt: skip

    def is_due(self, session: Session) -> bool:
        """Some task's moment is past. The board's flag is set (context's thread)."""
        now = self.moment(session) if self._tasks else ()
        return any(task.moment != now for task in list(self._tasks))

    def wake(self, session: Session) -> None:
        """Wakes those whose moment is past (context's thread)."""
        if not self._tasks:
            return
        now = self.moment(session)
        for task in list(self._tasks):
            if task.moment != now:
                self._forget(task)
                task.wake()

    def _forget(self, task: Waiting) -> None:
        with contextlib.suppress(ValueError):  # the other side was first
            self._tasks.remove(task)

    async def past(self, session: Session, moment: Moment, left_s: float | None) -> None:
        """Suspends the calling task until ``moment`` is past, or the time is over; for a moment at least."""
        crowd = len(self._tasks) + 1
        limit = LOOK_S * max(1.0, crowd / CROWD)
        waker = Waker()
        task = Waiting(moment, waker)
        self._tasks.append(task)
        try:
            await waker.wait(session.context, limit if left_s is None else min(limit, left_s), crowd)
        finally:
            self._forget(task)
