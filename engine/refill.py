"""Fills the hole in one log from the logs of the source's other stores, in place, a slice at a time (engine/reconcile.py).

A store that was away, stopped, or is new has not what the ring has already written over. It reads that from its peers' files,
oldest number first, and appends it before anything newer: so a log has no holes where a peer had the number. What nobody has
becomes a LOST record. The blocks are verified copies in private memory (csrc/log_copy.c) when they are appended, as every block
is (DESIGN 18).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from .log_ends import walk_ahead
from .logs import Block, Logs
from .reconcile import DONE, WAIT, Refill, StartAt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .repository import Repository

__all__ = ["Filling"]

_log = logging.getLogger("holdfast.store")

SLICE_BYTES = 1 << 20
"""Filled between two rounds of the drain thread: other sources go on being drained."""


class Filling:
    """One hole: from the log's end to the oldest number in the ring, or, without a ring, to where the peers end.

    ``paths``: the log's directories at the peers. On the drain thread.
    """

    def __init__(self, repository: Repository, paths: Sequence[str]) -> None:
        self._repository = repository
        self._logs = Logs(paths, marks=False)
        self._logs.table = repository.table
        self._logs.begun = repository.table[-1]
        self._block = Block()
        self._walked = walk_ahead(paths)
        """Where the logs of stores end that do not run: found on another thread, before anything is read on this one."""
        self.held = int(repository.info.appended_sqn)
        """Everything below is in the log, or will not be."""
        self._machine = Refill(empty=bool(repository.info.empty))
        self.waits = False
        """A store may still give what is due: look again, but not at once."""
        self.all_read = True
        """When it is done: no peer was out of reach."""

    def turn(self, now_ns: int) -> bool:
        """One slice. True: the hole is filled. Raises Error, OSError: the log takes nothing now; to be called again."""
        repository, logs, block, filled = self._repository, self._logs, self._block, 0
        self.waits = False
        while filled < SLICE_BYTES:
            goal = repository.ring_goes_on(self.held)
            if not self._machine.wants(self.held, goal):
                return True
            if not self._walked.done():
                self.waits = True
                return False
            found = logs.read(self.held, block)
            if self.newer():  # what is read by that table is not this incarnation's to append
                self.waits = repository.owner_lives()
                return not self.waits
            if found:
                frames, size = block.frames
                repository.append(frames, size)
                self.held = int(repository.info.appended_sqn)
                self._machine.filled()
                filled += size
                continue
            step = self._machine.missing(self.held, goal, logs.behind, logs.undecided, now_ns)
            if step == WAIT:
                self.waits = True
                return False
            if step == DONE:
                self.all_read = not logs.unreadable
                return True
            if isinstance(step, StartAt):
                repository.lacks_below(step.number)
                self.held = step.number
            else:
                _log.warning("%s: no store has %d..%d", repository.path, step.first, step.last)
                repository.lose(step.first, step.last)
                self.held = step.last + 1
        return False

    def newer(self) -> bool:
        """A peer knows a newer BEGIN than this store."""
        return self._logs.begun[0] > self._repository.table[-1][0]

    def close(self) -> None:
        """Unmaps the peers' logs."""
        self._logs.close()
        self._block.free()
