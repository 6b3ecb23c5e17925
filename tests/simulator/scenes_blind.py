"""Scenes of stores that do not see each other. See scenes.py and plots.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator import censuses
from simulator.machine import FIRST_DISK
from simulator.native import lib
from simulator.plots import some
from simulator.plots_unseen import hide, kill_sources, kill_stores, start
from simulator.staging import new_ring, settled, until
from simulator.world import world

if TYPE_CHECKING:
    from collections.abc import Generator

    from simulator.faults import Faults

__all__ = ["ALL"]


def cloistered(faults: Faults) -> Generator[int, None, None]:
    """A store stands still while its source goes around the ring. It does not find the others' files, which
    have what it missed, for longer than it waits."""
    machine = faults.machine
    yield from settled(faults)
    slow = faults.pick(sorted(machine.stores))
    process = machine.stores[slow]
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


def _stands(faults: Faults) -> Generator[int, None, None]:
    """The newest source stands still as soon as it is registered."""
    lives, source = faults.machine.judge.lives, faults.machine.sources[-1]
    yield from until(lambda: any(life.process is source and life.start is not None for life in lives), 0.1, 0.3)
    if source.alive and not source.stopped:
        source.stop()


def outpost(faults: Faults) -> Generator[int, None, None]:
    """BEGINs of sources that die at once reach one store of the first group. After a reboot nobody finds its
    files, and the second group goes on by itself. With the register lost nobody knows what the orphans'
    numbers are, and what is decided then may have a lower one (docs/design.md 13)."""
    machine, pair, rest = faults.machine, [0, 1], [2, 3]
    world.rng.shuffle(pair)
    one, other = pair
    yield from settled(faults)
    kill_stores(faults, rest)
    for _ in range(2 + int(world.random() * 2)):
        kill_sources(faults)
        yield some(0.1, 50)
        start(faults, pair, [one])
        yield from new_ring(faults)
        waits = machine.stores.get(other) if world.random() < 0.9 else None
        if waits is not None and not waits.stopped:
            waits.stop()
        yield some(1, 60)
        kill_sources(faults)
        if waits is not None and waits.alive:  # what is on the way to it is lost
            faults.kill(waits)
    kill_stores(faults, pair)
    faults.power_cut()
    if world.random() < 0.8:  # else who comes begins a number above theirs
        censuses.forget_register()
    hidden = [one] if world.random() < 0.8 else pair
    start(faults, rest, hidden)
    machine.start_source()
    hide(faults, hidden)
    idle = world.random() < 0.5
    if idle:  # nothing is sent before the first group is back
        yield from _stands(faults)
    else:
        yield some(200, 900)
        if world.random() < 0.7:
            kill_sources(faults)
    for index in range(faults.shape.stores):
        faults.mend_disk(index)
    start(faults, pair)
    yield some(1, 100)
    for source in machine.sources if idle else ():
        if source.stopped:
            source.go_on()
    if not machine.sources:
        machine.start_source()
    yield some(50, 300)


def laggard(faults: Faults) -> Generator[int, None, None]:
    """A store misses what becomes stable, and finds nobody's files when it is back. Of those that have it,
    one answers, or both."""
    machine, stores = faults.machine, range(faults.shape.stores)
    yield from settled(faults)
    late = faults.pick(stores)
    others = [index for index in stores if index != late]
    kill_stores(faults, [late])
    yield some(50, 300)
    kill_sources(faults)
    yield some(50, 400)
    gone = faults.pick(others)
    if world.random() < 0.8:
        kill_stores(faults, [gone])
    start(faults, [late])
    for index in others:
        lib.sim_processes[machine.stores[late].index].hidden |= 1 << FIRST_DISK + index
    machine.start_source()
    yield some(200, 900)
    start(faults, [gone])
    yield some(50, 300)


ALL = (cloistered, outpost, laggard)
