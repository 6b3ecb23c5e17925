"""Fills the hole in one log from the logs of the source's other stores, in place, a slice at a time
(engine/rules/reconcile.py).

A store that was away, stopped, or is new has not what the ring has already written over. It reads that from
its peers' files, oldest number first, and appends it before anything newer: so a log has no holes where a
peer had the number. What nobody has becomes a LOST record, if every peer could be read. Else it is recorded
as a hole: the line counts from behind it, and the helper thread asks the peers again until it is filled
(engine/log/repair.py). The blocks are verified copies in private memory (csrc/log/copy.c) when they are
appended, as every block is (docs/design.md 18).

The peers' logs are read by the BEGINs that this store has taken in, and each up to where a newer one begins
that it knows: from there on it has what is another incarnation's. Such a BEGIN may be an orphan, which voids
nothing. So the hole is filled by the other logs, until it holds (Repository.right_table).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from ..log.believed import newest_of
from ..log.end import Walk, is_stuck
from ..log.info_file import lacks
from ..log.reader import Block, Logs
from ..native.runtime import Path, os
from ..rules.reconcile import DONE, FOR_EVER, WAIT, CatchUpRule, Hole, Lost, StartAt, forgotten_from, void_from
from ..rules.resting import LOOK_NS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..memory import mapping
    from ..native.core import CData
    from ..rules.reconcile import LogView, Table

__all__ = ["CatchUp"]

_log = logging.getLogger("holdfast.store")

ASK_MAX_NS = 16_000_000_000
"""How late it is asked again whether a newer BEGIN holds."""
SLICE_BYTES = 1 << 20
"""Filled between two rounds of the drain thread: other sources go on being drained."""


class LogPort(Protocol):
    """The log that is filled; what its methods do is said at Repository."""

    path: Path
    called: str
    """Store and source, as the store's log names them."""
    stream: mapping.Mapping | None
    item: CData
    """``struct hf_drain_item *``."""

    @property
    def info(self) -> CData:
        """``struct hf_log_info *``."""

    @property
    def table(self) -> Table:
        """BEGINs that this store has taken in."""

    def peers(self) -> Sequence[Path]:
        """Directories of the logs that may have what is missing."""

    def until(self) -> dict[str, int]:
        """Below which number a peer's log counts; without an entry it counts in full."""

    def right_table(self) -> Table | None:
        """The BEGINs that this store may take in, by what can be read; None when that is not known."""

    def ring_goes_on(self, held: int) -> int | None:
        """Where the ring takes over, for a log that holds everything below ``held``."""

    def owner_lives(self) -> bool:
        """The source of the ring lives."""

    def append(self, frames: CData, size: int) -> None:
        """Appends verified frames."""

    def lacks_below(self, number: int) -> None:
        """An empty log begins with ``number``."""

    def lack(self, what: Lost | Hole) -> None:
        """Records that these numbers are missing."""


class CatchUp:
    """One hole: from the log's end to the oldest number in the ring, or, without a ring, to where the peers
    end. On the drain thread."""

    def __init__(self, repository: LogPort) -> None:
        self._repository = repository
        paths = [os.fspath(path) for path in repository.peers()]
        self._logs = Logs(paths, repository.until(), marks=False, judge=self._own_table)
        self._logs.table = repository.table
        self._logs.begun = self._newest = repository.table[-1]
        self._is_sent = False
        """A peer has messages of a newer incarnation."""
        self._block = Block(int(repository.item.block_bytes))
        self._paths = tuple(paths)
        self._walked = Walk(paths)
        """Where the logs of stores end that do not run: found on another thread, before anything is read on
        this one."""
        self.held = int(repository.info.appended_sqn)
        """Everything below is in the log, or will not be."""
        self._machine = CatchUpRule(empty=bool(repository.info.empty))
        self.waits = False
        """A store may still give what is due: look again, but not at once."""
        self._ask_ns, self._pause_ns = 0, LOOK_NS
        self.overtaken = False
        """A newer BEGIN holds."""
        self.all_read = True
        """When it is done: no peer was out of reach."""

    def turn(self, now_ns: int) -> bool:
        """One slice. True: the hole is filled, or is not to be. Raises Error, OSError: the log takes nothing
        now; to be called again."""
        repository, logs, block, filled = self._repository, self._logs, self._block, 0
        self.waits = False
        while filled < SLICE_BYTES:
            goal = repository.ring_goes_on(self.held)
            if not self._machine.wants(self.held, goal):
                return True
            if not self._walked.over():
                self.waits = True
                return False
            stuck = self._leave_out()
            found = logs.read(self.held, block)
            if self._is_overtaken(now_ns):
                self.waits = repository.owner_lives()
                return not self.waits
            if found:
                frames, size = block.frames
                repository.append(frames, size)
                self.held = int(repository.info.appended_sqn)
                self._machine.filled()
                filled += size
                continue
            step = self._machine.missing(self.held, goal, logs.behind, logs.undecided + stuck, now_ns)
            table = repository.table
            if (
                isinstance(step, Hole)
                and not stuck
                and all(lacks(Path(path), self.held, table) for path in logs.awaited)
            ):
                step = Lost(step.first, step.last)
            if step == WAIT:
                self.waits = True
                return False
            if step == DONE:
                if self.newer() and (self._is_sent or logs.unread or stuck):
                    self.waits = True  # for what decides whether it holds
                    return False
                self.all_read = not logs.unread and not stuck
                return True
            if isinstance(step, StartAt):
                repository.lacks_below(step.number)
                self.held = step.number
            else:
                repository.lack(step)  # first: where there is no room for the record, it is tried again
                why = "no store has them" if isinstance(step, Lost) else "a store that cannot be read now may have them"
                missing = f"{step.first}..{step.last} are missing"
                _log.warning("%s: %s: %s (%s)", repository.called, missing, why, repository.path)
                self.held = step.last + 1
        return False

    def _leave_out(self) -> int:
        """Nothing is read where a disk does not answer: the drain thread would hang. How many of these logs
        may have ``held``."""
        stuck = {path for path in self._paths if is_stuck(path)}
        paths = tuple(path for path in self._paths if path not in stuck)
        if paths != self._logs.paths:
            self._logs.paths = paths
        return sum(self.held < self._logs.until.get(path, FOR_EVER) for path in stuck)

    def newer(self) -> bool:
        """A peer knows a newer BEGIN than this store."""
        return self._newest[0] > self._repository.table[-1][0]

    def _is_overtaken(self, now_ns: int) -> bool:
        """A newer BEGIN holds: what this store's own incarnation has left is settled without it. As long as
        none does, that is asked again, ever less often."""
        if self.newer() and not self.overtaken and now_ns >= self._ask_ns:
            self._ask_ns, self._pause_ns = now_ns + self._pause_ns, min(2 * self._pause_ns, ASK_MAX_NS)
            table = self._repository.right_table() or ()
            self.overtaken = bool(table) and table[-1][0] > self._repository.table[-1][0]
        return self.overtaken

    def _own_table(self, logs: Mapping[str, LogView | None], sure: Table) -> list[Table]:
        """The judge of the peers' logs (engine/log/believed.py): it notes newer BEGINs, and does not go by
        them."""
        table, views = self._repository.table, {path: view for path, view in logs.items() if view is not None}
        own, begun = table[-1][0], {path: void_from(view.begins, table[-1][0]) for path, view in views.items()}
        stops = {path: min(begun[path], forgotten_from(view.begins, table[-1])) for path, view in views.items()}
        self._logs.stops = {**self._logs.stops, **stops}  # of one that cannot be read now, what it said last
        (newest,) = newest_of(logs, sure)
        is_sent = any(begun[path] < view.next_sqn for path, view in views.items())
        if newest[-1][0] > own and (newest[-1], is_sent) != (self._newest, self._is_sent):
            self._newest, self._is_sent = newest[-1], is_sent
            self._ask_ns, self._pause_ns = 0, LOOK_NS
        return [table]

    def close(self) -> None:
        """Unmaps the peers' logs."""
        self._logs.close()
        self._block.free()
