"""A store's care for its own logs: looks through each when it is opened and now and then, and repairs what it
can.

It runs on the store's helper thread, a piece at a time, beside the drain thread and never in its way: it
reads files as any reader does, and writes files of its own. When all logs are whole and none is due, it
sleeps.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ..errors import Error
from ..log.end import WALK_S, Walk, is_stuck
from ..log.repair import Gap, LogRepair
from ..native.runtime import queue, time
from ..rules.scrub_schedule import Allowance, Plan, Range, Turn

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .repository import Repository

__all__ = ["Scrub"]

_log = logging.getLogger("holdfast.store")

COPY_BYTES = 64 << 20
"""So much is repaired at once, and so much a second beyond it."""
LOOK_BYTES = 64 << 20
"""So much a second is looked through when nothing hurries."""
FIRST_LOOK_BYTES, FIRST_LOOK_RATE = 1 << 30, 256 << 20
"""When a store starts: so much at once, and so much a second beyond it. Large caches are not read at the
disk's full speed."""


class Scrub:
    """See the module. ``interval_s``: pause between two looks at a whole log; 0 = only when it is opened.

    One thread calls its methods. What it does in a log's directory it does under the repository's ``files``.
    """

    def __init__(self, interval_s: float) -> None:
        self._plan = Plan(int(interval_s * 1e9))
        self._copied = Allowance(COPY_BYTES, COPY_BYTES)
        self._looked = Allowance(LOOK_BYTES, LOOK_BYTES)
        self._hurried = Allowance(FIRST_LOOK_BYTES, FIRST_LOOK_RATE)
        self.losses: queue.SimpleQueue[tuple[bytes, Range]] = queue.SimpleQueue()
        """What a log has just recorded as lost: from any thread."""
        self._turn: Turn | None = None
        self._repair: LogRepair | None = None
        self._spent = 0, 0
        self._told: dict[bytes, tuple[Gap, ...]] = {}

    def wait_s(self) -> float | None:
        """Until there is something to do; None: until a log comes, or a loss."""
        now = time.monotonic_ns()
        if self._turn is None:
            wait_ns = self._plan.wait_ns(now)
            return None if wait_ns is None else wait_ns / 1e9
        looked = self._hurried if self._turn.urgent else self._looked
        return max(self._copied.wait_ns(now), looked.wait_ns(now)) / 1e9

    def is_settled(self, uuid: bytes) -> bool:
        """The log has been looked through, and nothing is asked for. Any thread."""
        turn = self._turn
        return self._plan.is_settled(uuid) and self.losses.empty() and (turn is None or turn.uuid != uuid)

    def step(self, repositories: Mapping[bytes, Repository]) -> None:
        """Does one block's work, if any is due. ``repositories``: the store's, now."""
        now = time.monotonic_ns()
        self._follow(repositories, now)
        if self._turn is None:
            self._turn = self._plan.turn(now)
        repository = repositories.get(self._turn.uuid) if self._turn is not None else None
        if repository is not None:
            with repository.files:
                if repository.log:
                    self._work(repository, now)

    def _work(self, repository: Repository, now: int) -> None:
        try:
            if self._repair is None:
                self._begin(repository, now)
            elif not self.wait_s() and not self._go_on(self._repair, now):
                self._end(repository, self._repair, now)
        except (Error, OSError) as error:
            _log.warning("%s: %s", repository.called, error)
            self._give_up(now)
        except Exception:  # one log that nobody foresaw must not end the care for all others
            _log.exception("%s: the look through this log failed (%s)", repository.called, repository.path)
            self._give_up(now)

    def _give_up(self, now: int) -> None:
        """The same is asked for again later."""
        assert self._turn is not None
        turn = self._turn
        self.close()
        self._plan.done(turn, turn.within, now)

    def close(self) -> None:
        """Lets go of what is under way; the next start begins anew."""
        if self._repair is not None:
            self._repair.close()
        self._repair = self._turn = None

    def _follow(self, repositories: Mapping[bytes, Repository], now: int) -> None:
        kept = {uuid for uuid, repository in list(repositories.items()) if repository.level}  # 0: it keeps no messages
        for uuid in self._plan.known():
            if uuid not in kept:
                self._plan.remove(uuid)
                self._told.pop(uuid, None)
        for uuid in kept:
            self._plan.add(uuid, now)
        while not self.losses.empty():
            self._plan.lacks(*self.losses.get(), now)
        if self._turn is not None and self._turn.uuid not in kept:
            self.close()

    def _begin(self, repository: Repository, now: int) -> None:
        """Where a disk does not answer, nothing is read: this thread prepares segments, too."""
        assert self._turn is not None
        peers = repository.peers()
        if not Walk(peers).over(WALK_S):
            self._give_up(now)
            return
        there = [peer for peer in peers if not is_stuck(peer)]
        self._repair = LogRepair(repository.path, there, self._turn.within, repository.until())
        self._spent = 0, 0

    def _go_on(self, repair: LogRepair, now: int) -> bool:
        more = repair.step()
        assert self._turn is not None
        read, copied = self._spent
        looked = self._hurried if self._turn.urgent else self._looked
        looked.spend(repair.read_bytes - read, now)
        self._copied.spend(repair.filled_bytes - copied, now)
        self._spent = repair.read_bytes, repair.filled_bytes
        return more

    def _end(self, repository: Repository, repair: LogRepair, now: int) -> None:
        assert self._turn is not None
        turn, left = self._turn, tuple(repair.left)
        for first, following in repair.filled:
            missing = f"{first}..{following - 1} were missing"
            _log.warning("%s: %s, and are copied from another store (%s)", repository.called, missing, repair.path)
        if left != self._told.get(turn.uuid, ()):
            for gap in left:
                missing = f"{gap.first}..{gap.next - 1} ({gap.kind})"
                _log.warning("%s: %s: no other store has them now (%s)", repository.called, missing, repair.path)
            self._told[turn.uuid] = left
        self.close()
        self._plan.done(turn, tuple(Range(gap.first, gap.next) for gap in left), now)
