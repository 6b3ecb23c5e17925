"""The wall clock jumps by days, forward and back, under processes that run: nothing that was promised depends
on it.

The processes have clock_shim.c preloaded: what Python and the C core read is one clock, which is stepped
here. The times of the messages show that it was; without the shim they do not, which is the control.
"""

from __future__ import annotations

import mmap
import os
import random
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from support.group_scene import GroupScene
from support.leftovers import remove_objects
from support.oracle import Finding
from support.worker import SENT
from support.workers import until

from holdfast.engine.native.core import lib

if TYPE_CHECKING:
    from torture_lab.lab import Lab, Outcome

__all__ = ["plant", "steps"]

SHIM = Path(__file__).with_name("clock_shim.c")
DAY_NS = 86_400 * 10**9
STEPS = (2, -3, 1, 3, -1, -2)
"""Days that the clock is off, one after the other: forward and back, by one to five."""
STILL = "the clock of the source did not step"


def steps(lab: Lab, outcome: Outcome, domain: str) -> None:
    """One group, two lives of each process."""
    outcome.count("messages", _scene(lab, outcome, domain, STEPS, shim=True))


def plant(lab: Lab, outcome: Outcome) -> None:
    """The control: a clock that nothing steps."""
    with outcome.catches(STILL):
        _scene(lab, None, "still", STEPS[:1], shim=False)


def _scene(lab: Lab, outcome: Outcome | None, domain: str, days: tuple[int, ...], *, shim: bool) -> int:
    clock = _Clock(lab, f"{lab.seed} {domain}")
    scene = GroupScene(lab.root / domain, domain, lab.seed, forms=("receive",))
    try:
        with scene:
            clock.start(scene, shim=shim)
            _goes_on(scene)
            for day in days:
                clock.step(day)
                if outcome is not None:
                    outcome.count("clock steps under load")
                _goes_on(scene)
            _judge(scene, days)
            scene.kill(*scene.workers)
            clock.step(-days[-1])  # while nobody lives
            clock.start(scene, shim=shim)
            return scene.finish()
    finally:
        remove_objects(domain)


def _goes_on(scene: GroupScene) -> None:
    """Messages that were sent from now on are processed; and acknowledged, which a timer does."""
    goal = int(scene.source.words[SENT]) + 100
    session = scene.receivers[0].settings.session
    until("it goes on", lambda: scene.processed >= goal, scene.look)
    until("it is acknowledged", lambda: scene.traces.ack(lib.HF_ROLE_RECEIVER, session) >= goal, scene.look)


def _judge(scene: GroupScene, days: tuple[int, ...]) -> None:
    """Each step shows in what the C core wrote into the messages of the source's only life."""
    sent = scene.rows[0].all()["sent_ns"].astype(np.int64)
    jumps = np.diff(sent)
    wanted = np.sign(np.diff((0, *days)))
    seen = np.sign(jumps[np.abs(jumps) > DAY_NS // 2])
    if not np.array_equal(seen, wanted):
        raise Finding(f"{STILL} as it was told: {seen.tolist()}, not {wanted.tolist()}")


class _Clock:
    """Of all processes that are started here."""

    def __init__(self, lab: Lab, seed: str) -> None:
        self._pick = random.Random(seed)
        self._shim = lab.root / "clock_shim.so"
        if not self._shim.exists():
            compiler = os.environ.get("CC", "gcc")
            subprocess.run([compiler, "-O2", "-shared", "-fPIC", str(SHIM), "-o", str(self._shim)], check=True)
        self._path = lab.root / "wall-clock"
        self._path.write_bytes(bytes(mmap.PAGESIZE))
        with self._path.open("r+b") as file:
            self._offset = np.frombuffer(mmap.mmap(file.fileno(), mmap.PAGESIZE), np.int64)

    def start(self, scene: GroupScene, *, shim: bool) -> None:
        """A life of every process; this one's own clock stays."""
        given = {"LD_PRELOAD": str(self._shim), "HF_WALL_CLOCK": str(self._path)} if shim else {}
        os.environ.update(given)
        try:
            scene.start()
        finally:
            for name in given:
                del os.environ[name]

    def step(self, days: int) -> None:
        """This many days off, and up to an hour."""
        self._offset[0] = days * DAY_NS + self._pick.randrange(3600 * 10**9)
