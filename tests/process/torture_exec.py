"""Kills of real processes that use the public names: a source, a store, two receivers, each with a session, all at once.

Every process has a clock of its own: it is killed when all have got on, or at a random moment of its start, and started again at
once, while the others do the same. scene.py judges.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Self

from process.oracle import Finding
from process.scene import Scene
from process.torture_core import STUCK_S, Tally

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from process.spawn import Worker

TELL_S = 5.0


class _Clock:
    """When a process is to be killed next."""

    def __init__(self, worker: Worker, pick: random.Random, progress: int) -> None:
        self._worker = worker
        self._in_start = pick.random() < 0.25
        self._goal = progress + pick.randint(1, 400)
        self._at = time.monotonic() + (pick.random() * 0.4 if self._in_start else STUCK_S)

    def due(self, progress: int) -> bool:
        """Its time has come. Raises Finding if it ended by itself, or if nothing moves."""
        self._worker.check_alive()
        if not self._in_start and self._worker.ready and progress >= self._goal:
            return True
        if time.monotonic() < self._at:
            return False
        if not self._in_start:
            raise Finding(
                f"nothing moves: {progress} are processed, the {self._worker.role} waits for {self._goal} to be"
            )
        return True


class Processes:
    """See the module. ``with``: whatever happens, the processes end."""

    def __init__(self, seed: int, root: Path, tally: Tally) -> None:
        self.tally = tally
        self.random = random.Random(seed)
        self.scene = Scene(root / "exec", "exec", self.random.getrandbits(48), forms=("receive", "batch"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.scene.__exit__()

    def run(self, kills: int, tell: Callable[[], None]) -> None:
        """Kills so often, lets it come to an end, and compares."""
        scene, until, told = self.scene, self.tally.total + kills, time.monotonic()
        scene.start()
        clocks = {worker: _Clock(worker, self.random, 0) for worker in scene.workers}
        while self.tally.total < until:
            scene.look()
            for worker, clock in clocks.items():
                if clock.due(scene.processed) and self.tally.total < until:
                    scene.kill(worker)
                    self.tally.kills[worker.role] += 1
                    worker.start()
                    clocks[worker] = _Clock(worker, self.random, scene.processed)
            if time.monotonic() - told > TELL_S:
                told = time.monotonic()
                tell()
            time.sleep(0.001)
        self.tally.messages += scene.finish() * len(scene.rows)
        self.tally.repeated += sum(rows.repeated for rows in scene.rows)
