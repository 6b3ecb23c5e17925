"""Scenes of stores that do not see each other. See scenes.py and plots.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator.machine import FIRST_DISK
from simulator.native import lib
from simulator.plots import some
from simulator.world import world

if TYPE_CHECKING:
    from collections.abc import Generator

    from simulator.faults import Faults

__all__ = ["ALL"]


def cloistered(faults: Faults) -> Generator[int, None, None]:
    """A store stands still while its source goes around the ring. It does not find the others' files, which
    have what it missed, for longer than it waits."""
    machine = faults.machine
    if not machine.stores:
        return
    slow = faults.pick(sorted(machine.stores))
    process = machine.stores[slow]
    if process.stopped:
        process.go_on()
    process.stop()
    for index in range(faults.shape.stores):
        if index != slow and world.random() < 0.9:
            lib.sim_processes[process.index].hidden |= 1 << FIRST_DISK + index
    machine.eager = 0.002
    yield some(100, 400)
    machine.eager = machine.usual
    if process.alive and process.stopped:
        process.go_on()
    yield some(900, 2000)


ALL = (cloistered,)
