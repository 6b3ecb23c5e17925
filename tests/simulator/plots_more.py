"""More plots: a source sends more than a ring or a store has room for, while somebody stands still; or it
leaves. See plots.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator.plots import some
from simulator.world import world

if TYPE_CHECKING:
    from collections.abc import Generator

    from simulator.faults import Faults

__all__ = ["ALL"]


def rush(faults: Faults) -> Generator[int, None, None]:
    """A receiver or a store stands still, perhaps in the midst of what it reads, until the source has gone
    around its ring."""
    machine = faults.machine
    yield some(1, 50)
    going = [machine.receivers[each] for each in sorted(machine.receivers)]
    going += [machine.stores[each] for each in sorted(machine.stores)] if world.random() < 0.5 or not going else []
    if not going:
        return
    process = faults.pick(going)
    machine.eager = 0.0001
    often = world.random() < 0.6  # and goes on somewhere behind the source, again and again
    for _ in range(15 if often else 1):
        if process.alive and not process.stopped:
            process.stop()
        yield some(1, 40) if often else some(100, 800)
        if process.alive and process.stopped:
            process.go_on()
        yield some(0.5, 10)
    machine.eager = machine.usual
    yield some(20, 200)


def glut(faults: Faults) -> Generator[int, None, None]:
    """Receivers are away while their source sends; perhaps the power goes before they are back."""
    machine = faults.machine
    for session in sorted(machine.receivers):
        if world.random() < 0.7:
            faults.kill(machine.receivers[session])
    machine.eager = 0.001
    yield some(50, 600)
    machine.eager = machine.usual
    if world.random() < 0.4:
        faults.power_cut()
        for index in range(faults.shape.stores):
            machine.start_store(index)
        machine.start_source()
    yield some(10, 400)
    machine.start_receivers()
    yield some(50, 300)


def brimful(faults: Faults) -> Generator[int, None, None]:
    """All stores stand still while their source sends on, more than its ring holds."""
    machine = faults.machine
    there = [machine.stores[index] for index in sorted(machine.stores)]
    for process in there:
        if not process.stopped:
            process.stop()
    machine.eager = 0.0001
    yield some(20, 300)
    machine.eager = machine.usual
    if world.random() < 0.3:
        for source in list(machine.sources):
            faults.kill(source)
    for process in there:
        if process.alive and process.stopped:
            process.go_on()
        yield some(0.1, 20)
    yield some(50, 300)


def parting(faults: Faults) -> Generator[int, None, None]:
    """A source is deregistered while a store is down, which another one finds first when it is back; perhaps
    the power goes."""
    machine = faults.machine
    if not machine.sources or not machine.stores:
        return
    leaving, away = machine.sources[0], faults.pick(sorted(machine.stores))
    if world.random() < 0.7:
        faults.kill(machine.stores[away])
    machine.closing.add(leaving)
    yield some(0.1, 100)
    if world.random() < 0.7:
        if leaving.alive and not leaving.stopped:
            leaving.stop()
        if away not in machine.stores:
            machine.start_store(away)
        machine.start_source()
        yield some(20, 500)
        if leaving.alive and leaving.stopped:
            leaving.go_on()
        yield some(0.1, 100)
    if world.random() < 0.5:
        faults.power_cut()
    for index in range(faults.shape.stores):
        if index not in machine.stores:
            machine.start_store(index)
    if not machine.sources:
        machine.start_source()
    yield some(50, 300)


ALL = (rush, glut, brimful, parting)
