"""Scenes of sources that claim what another one holds. See scenes.py and plots.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator.plots import some
from simulator.staging import drop_lock, settled
from simulator.world import world

if TYPE_CHECKING:
    from collections.abc import Generator

    from simulator.faults import Faults

__all__ = ["ALL"]


def careless(faults: Faults) -> Generator[int, None, None]:
    """A source drops its own lock, and goes on until it notices. Meanwhile a rival begins."""
    machine = faults.machine
    yield from settled(faults)
    (sender,) = machine.sources
    machine.eager = 0.001
    yield some(30, 150)
    drop_lock(faults, sender)
    yield some(0.05, 2)
    machine.start_source()
    yield some(60, 200)
    machine.eager = machine.usual
    if sender.alive and world.random() < 0.5:
        faults.kill(sender)
    yield some(50, 300)


ALL = (careless,)
