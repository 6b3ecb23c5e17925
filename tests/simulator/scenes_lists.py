"""Scenes of lives that declare other stores than the one before. See scenes.py and plots.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator.plots import some
from simulator.plots_unseen import kill_sources, kill_stores, start
from simulator.staging import settled
from simulator.world import world

if TYPE_CHECKING:
    from collections.abc import Generator

    from simulator.faults import Faults

__all__ = ["ALL"]


def roundabout(faults: Faults) -> Generator[int, None, None]:
    """A source has two lists in turn, with one store in both. That one loses its files, and the source goes
    back to its first list."""
    machine = faults.machine
    first, second = faults.shape.lists
    (both,) = set(first) & set(second)
    for declared in (first, second):
        kill_sources(faults)
        machine.declares = declared
        yield from settled(faults)
        yield some(1, 200)
    kill_sources(faults)
    yield some(0.1, 100)
    if world.random() < 0.5:
        faults.power_cut()
    faults.replace(both, "")
    if world.random() < 0.5:
        kill_stores(faults, second)
    start(faults, first)
    machine.declares = first
    machine.start_source()
    yield some(200, 900)
    start(faults, second)
    yield some(1, 200)
    machine.declares = None


ALL = (roundabout,)
