"""Scenes of receivers without a session. See scenes.py and plots.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator.guests import start_guest
from simulator.plots import some
from simulator.shape import LIFETIME_MS
from simulator.staging import settled, until
from simulator.world import world

if TYPE_CHECKING:
    from collections.abc import Generator

    from simulator.faults import Faults
    from simulator.world import Process

__all__ = ["ALL"]

AROUND = (-20, -4, -1, 0, 1, 2, 4, 8, 30)
"""Numbers that a guest may ask for, from the newest one on."""


def _start(faults: Faults) -> str | int | None:
    """What a guest asks for."""
    kind = world.random()
    if kind < 0.5:
        newest = max((each.last for each in faults.machine.judge.messages.values()), default=0)
        return int(max(0, newest + faults.pick(AROUND)))
    return "latest" if kind < 0.7 else "earliest" if kind < 0.9 else None


def _comes(faults: Faults) -> Process:
    return start_guest(faults.machine, _start(faults))


def _gone(process: Process) -> Generator[int, None, None]:
    yield from until(lambda: not process.alive, 0.1, 2)


def guests(faults: Faults) -> Generator[int, None, None]:
    """Guests come and go, beside a source that dies, closes and comes back, and stores that are away for a
    moment. Some guests find the topic with nobody who sends."""
    machine = faults.machine
    yield from settled(faults)
    for _ in range(6):
        there = [_comes(faults) for _ in range(1 + int(world.random() * 3))]
        yield some(0.05, 60)
        what = world.random()
        if what < 0.3 and machine.sources:
            source = machine.sources[0]
            if world.random() < 0.5:
                faults.kill(source)
            else:
                machine.closing.add(source)
                yield from _gone(source)
        elif what < 0.5 and machine.stores:
            faults.kill(machine.stores[faults.pick(sorted(machine.stores))])
        elif what < 0.7:
            faults.kill(faults.pick(there))
        there += [_comes(faults)] if world.random() < 0.5 else []
        yield some(5, 250)
        for index in range(faults.shape.stores):
            if index not in machine.stores:
                machine.start_store(index)
        if not machine.sources and world.random() < 0.7:
            machine.start_source()


def outlived(faults: Faults) -> Generator[int, None, None]:
    """A source is gone for about as long as stores remember it. Guests and receivers look at what it has left
    meanwhile, and stay beyond that. Then it comes back."""
    machine = faults.machine
    yield from settled(faults)
    for source in list(machine.sources):
        faults.kill(source)
    left = LIFETIME_MS * (0.6 + world.random() * 0.8)
    while left > 0:
        if world.random() < 0.6:
            _comes(faults)
        elif machine.receivers and world.random() < 0.5:
            faults.kill(machine.receivers[faults.pick(sorted(machine.receivers))])
        else:
            machine.start_receivers()
        left -= 60
        yield some(20, 100)
    machine.start_source()
    _comes(faults)
    machine.start_receivers()
    yield some(50, 300)


ALL = (guests, outlived)
