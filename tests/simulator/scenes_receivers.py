"""Scenes of receivers whose stores know different things of them. See scenes.py and plots.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator.plots import some
from simulator.plots_unseen import kill_stores, start
from simulator.staging import settled, until
from simulator.world import world

if TYPE_CHECKING:
    from collections.abc import Generator

    from simulator.faults import Faults

__all__ = ["ALL"]


def newcomer(faults: Faults) -> Generator[int, None, None]:
    """A receiver registers for the first time, with one store of two. The power goes before it has taken
    much. Then both stores are there, of which one has never heard of it."""
    machine, joined = faults.machine, faults.machine.judge.joined
    yield from settled(faults, receivers=False)
    new = [each for each in range(1, faults.shape.receivers + 1) if each not in joined]
    if not new:
        return
    away = int(world.random() * faults.shape.stores)
    kill_stores(faults, [away])
    yield some(1, 50)
    machine.start_receiver(new[0])
    yield from until(lambda: new[0] in joined, 0.05, 0.5)
    yield some(0.05, 400)
    faults.power_cut()
    start(faults, range(faults.shape.stores))
    machine.start_source()
    yield some(20, 400)
    machine.start_receivers()
    yield some(50, 300)


ALL = (newcomer,)
