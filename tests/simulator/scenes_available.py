"""Scenes in which everybody is there who is needed, and somebody is not: all must go on meanwhile. See
scenes.py and plots.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator.machine import FIRST_DISK
from simulator.native import lib
from simulator.plots import some
from simulator.plots_unseen import start
from simulator.staging import reached, settled
from simulator.world import world

if TYPE_CHECKING:
    from collections.abc import Generator

    from simulator.faults import Faults

__all__ = ["ALL"]

FRESH = 4


def without(faults: Faults) -> Generator[int, None, None]:
    """One store of three is dead, or stands still, or its disk takes nothing. What is sent becomes stable
    and is received, also by programs that begin meanwhile."""
    machine = faults.machine
    yield from settled(faults)
    away = int(world.random() * faults.shape.stores)
    store = machine.stores[away]
    how = world.random()
    if how < 0.4:
        faults.kill(store)
    elif how < 0.8:
        store.stop()
    else:
        lib.sim_devices[FIRST_DISK + away].write_errors = 1_000_000
    name = faults.shape.names[away]
    yield from _goes_on(faults, f"store {name} is away")
    for again in [*machine.sources, *machine.receivers.values()]:
        if world.random() < 0.5:
            faults.kill(again)
    if not machine.sources:
        machine.start_source()
    machine.start_receivers()
    yield from _goes_on(faults, f"store {name} is away, and programs have begun")
    if store.alive and not store.stopped:
        faults.mend_disk(away)
        faults.suspect.add(away)
    elif store.alive:
        store.go_on()
    else:
        start(faults, [away])
    yield some(50, 300)


def _goes_on(faults: Faults, while_: str) -> Generator[int, None, None]:
    """Some messages more are sent, become stable, and are consumed. A receiver that ends is started again: it
    does where one store refuses, and another one that it cannot do without has not answered in time."""
    machine, judge = faults.machine, faults.machine.judge
    before = set(judge.messages)

    def fresh() -> list[bytes]:
        return [mark for mark, message in judge.messages.items() if mark not in before and message.stable]

    def received() -> bool:
        machine.start_receivers()
        new, sessions = fresh(), range(1, faults.shape.receivers + 1)
        return len(new) >= FRESH and all(mark in judge.consumed[each] for each in sessions for mark in new[:FRESH])

    yield from reached(faults, f"{FRESH} messages are sent, stable and received while {while_}", received, fresh)
    assert machine.sources


ALL = (without,)
