"""Kills in a group of three stores: a source, the stores, two receivers with a session each, all of them
whole programs.

Every process has a clock of its own: when all have got on, or at a random moment of its start, it is killed
and started again, at once or after a while; or killed at a failpoint; or it stands still (SIGSTOP) for a
while; and sometimes all are killed at once. The others do the same meanwhile. group_scene.py judges, and
paced_scene.py where the source is receiver-paced. Most are forked (forked_workers.py), some are started by
exec.
"""

from __future__ import annotations

import random
import shutil
import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from support.failpoints import failpoints
from support.group_scene import GroupScene
from support.leftovers import remove_objects
from support.oracle import Stuck
from support.paced_scene import PacedGroupScene

from torture_lab.core_kills import STUCK_S, Tally

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.workers import Worker

PACED_EVERY = 3
"""Of this many source identities, one is receiver-paced."""
KILLS_PER_EPISODE = 150
"""Kills of one source identity before the next, with other kinds of stores, takes its place."""
TELL_S = 5.0


@dataclass(slots=True)
class _Clock:
    """What happens to a process next. ``armed``: a failpoint may kill it before."""

    at: float
    """When its time is over: to be killed in the middle of its start, to come back, to go on; else a
    finding."""
    goal: int
    """Or when so much is processed."""
    doing: str = "runs"
    """``runs``; ``away``: dead, and not started yet; ``still``: stopped by a signal."""
    armed: bool = False


class GroupKills:
    """Episodes of kills. ``paced``: of receiver-paced sources alone; else they are a share."""

    def __init__(self, seed: int, root: Path, tally: Tally, mutant: str, *, paced: bool) -> None:
        self.tally = tally
        self.random = random.Random(seed)
        self._root = root
        self._paced = paced
        self._forked = True
        self._mutant = f"{mutant}=mutant" if mutant else ""
        self._points = failpoints()
        self._episode = 0
        self._scene: GroupScene
        self._clocks: dict[Worker, _Clock] = {}

    def run(self, until: int, tell: Callable[[], None], *, forked: bool, keep: bool) -> None:
        """Kills until there were this many, in episodes; each comes to an end, and everything is compared.
        Raises Finding.

        ``forked``: the processes are; else they are started by exec. ``keep``: what is left when something is
        found.
        """
        self._forked, told = forked, time.monotonic()
        while self.tally.total < until:
            self._episode += 1
            name = f"{'fork' if self._forked else 'exec'}{self._episode}"
            pick = self.random
            kinds = pick.choice((("disk",) * 3, ("memory",) * 3, ("disk", "memory", "disk")))
            where, good = self._root / name, False
            scene = PacedGroupScene if self._paced or self._episode % PACED_EVERY == 0 else GroupScene
            try:
                with scene(where, name, pick.getrandbits(48), kinds=kinds, forked=self._forked) as self._scene:
                    goal = min(until, self.tally.total + KILLS_PER_EPISODE)
                    self._kill(goal)
                    self.tally.messages += self._scene.finish() * len(self._scene.rows)
                    self.tally.repeated += sum(rows.repeated for rows in self._scene.rows)
                good = True
            finally:
                if good or not keep:
                    remove_objects(name)
                    shutil.rmtree(where)
            if time.monotonic() - told > TELL_S:
                told = time.monotonic()
                tell()

    def _kill(self, until: int) -> None:
        scene, pick = self._scene, self.random
        self._clocks = {}
        for worker in scene.workers:
            self._start(worker)
        while self.tally.total < until:
            scene.look()
            for worker in scene.workers:
                self._turn(worker, self._clocks[worker])
            if pick.random() < 0.0002:
                self._strike(*(worker for worker in scene.workers if self._clocks[worker].doing != "away"))
            time.sleep(0.0005)
        for worker, clock in self._clocks.items():
            if clock.doing == "still":
                worker.send(signal.SIGCONT)
            elif clock.doing == "away":
                worker.start()
            elif clock.armed:  # it might still die, in the middle of what comes now
                self._strike(worker)
                worker.start()

    def _turn(self, worker: Worker, clock: _Clock) -> None:
        """One look at one process."""
        now = time.monotonic()
        if clock.doing == "away":
            if now >= clock.at:
                self._start(worker)
        elif clock.doing == "still":
            if now >= clock.at:
                worker.send(signal.SIGCONT)
                self._clocks[worker] = self._clock()
        elif clock.armed and worker.died():
            self.tally.at_failpoints += 1
            self._gone(worker)
            self._scene.judge(worker)
        elif not clock.armed:
            worker.check_alive()
            self._look_at(worker, clock, now)
        elif self._due(worker, clock, now):
            self._strike(worker)

    def _look_at(self, worker: Worker, clock: _Clock, now: float) -> None:
        if not self._due(worker, clock, now):
            return
        if worker.ready and self.random.random() < 0.15:
            worker.send(signal.SIGSTOP)
            self.tally.stops += 1
            self._clocks[worker] = _Clock(now + self.random.random() * 0.2, 0, "still")
        else:
            self._strike(worker)

    def _due(self, worker: Worker, clock: _Clock, now: float) -> bool:
        if worker.ready and self._scene.processed >= clock.goal:
            return True
        if now < clock.at:
            return False
        if clock.goal < 2**62:
            states = {f"{each.role} {each.settings.name}": self._clocks[each].doing for each in self._scene.workers}
            raise Stuck(
                f"nothing moves: {self._scene.processed} are processed, the {worker.role} waits for {clock.goal}; ready:"
                f" {[each.ready for each in self._scene.workers]}, {states}, logs end at {self._scene.ends()}"
            )
        return True

    def _strike(self, *workers: Worker) -> None:
        """kill -9 of all of them, then a look at what they leave."""
        self._scene.kill(*workers)
        for worker in workers:
            self._gone(worker)

    def _gone(self, worker: Worker) -> None:
        self.tally.kills[worker.role] += 1
        away = self.random.random() * 0.3 if self.random.random() < 0.3 else 0.0
        self._clocks[worker] = _Clock(time.monotonic() + away, 0, "away")

    def _start(self, worker: Worker) -> None:
        point, pick = "", self.random
        if self._forked and pick.random() < 0.3:
            name = pick.choice([name for name, passes in self._points if passes == worker.role])
            point = f"{name}=kill@{pick.randint(1, pick.choice((1, 2, 5, 60)))}"
        spec = ";".join(part for part in (point, self._mutant if worker.role == "store" else "") if part)
        worker.start(spec if spec or self._forked else None)
        self._clocks[worker] = self._clock(armed=bool(point))

    def _clock(self, *, armed: bool = False) -> _Clock:
        pick, now = self.random, time.monotonic()
        if armed or pick.random() < 0.25:  # at a random moment, most of them in its start
            return _Clock(now + pick.random() * (0.1 if self._forked else 0.4), 2**62, armed=armed)
        return _Clock(now + STUCK_S, self._scene.processed + pick.randint(1, 400))
