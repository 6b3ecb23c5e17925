"""Scenes of sources and receivers that leave, and of who finds what they have left. See scenes.py and
plots.py."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from simulator import system
from simulator.machine import FIRST_DISK
from simulator.native import lib
from simulator.plots import rings, some
from simulator.shape import LIMIT
from simulator.staging import until
from simulator.world import world

if TYPE_CHECKING:
    from collections.abc import Generator

    from simulator.faults import Faults
    from simulator.lives import SourceLife

__all__ = ["ALL"]


def _life(faults: Faults) -> SourceLife | None:
    """Of the newest source."""
    machine = faults.machine
    return next((each for each in reversed(machine.judge.lives) if each.process in machine.sources[-1:]), None)


def _all_run(faults: Faults) -> None:
    """All stores, and a source; nobody stands still."""
    machine = faults.machine
    for process in world.processes:
        if process.alive and process.stopped:
            process.go_on()
    for index in range(faults.shape.stores):
        if index not in machine.stores:
            machine.start_store(index)
    for source in machine.sources[:-1]:
        faults.kill(source)
    if not machine.sources:
        machine.start_source()


def overdue(faults: Faults) -> Generator[int, None, None]:
    """A source is deregistered while its store is down. When it asks again, another one has begun there, or
    has been there; then the store starts again."""
    machine = faults.machine
    _all_run(faults)
    yield from until(lambda: (life := _life(faults)) is not None and bool(life.said), 0.1, 1)
    life = _life(faults)
    if life is None or not machine.stores:
        return
    leaving = life.process
    faults.kill(machine.stores[0])
    machine.closing.add(leaving)
    yield from until(lambda: life.left or not leaving.alive)
    if not leaving.alive:
        return
    yield some(0.01, 20)
    if not leaving.alive or leaving.stopped:
        return
    leaving.stop()
    if not machine.stores:
        machine.start_store(0)
    machine.start_source()
    yield from until(lambda: (next_ := _life(faults)) is not None and bool(next_.said))
    yield some(0.01, 30)
    if world.random() < 0.3:
        for source in machine.sources[1:]:
            faults.kill(source)
    if leaving.alive and leaving.stopped:
        leaving.go_on()
    yield from until(lambda: life.deregistered or not leaving.alive, 0.1, 1)
    yield some(0.1, 20)
    if world.random() < 0.6 and 0 in machine.stores:
        faults.kill(machine.stores[0])
        yield some(0.1, 100)
        if not machine.stores:
            machine.start_store(0)
    yield some(50, 300)


def renamed(faults: Faults) -> Generator[int, None, None]:
    """A source is deregistered while its BEGIN is on the way to a store that has lost its files, and knows it
    by another name; then another one comes."""
    machine = faults.machine
    others = [index for index in range(faults.shape.stores) if index != faults.anchor]
    _all_run(faults)
    yield from until(lambda: (life := _life(faults)) is not None and bool(life.said), 0.1, 1)
    for source in list(machine.sources):
        faults.kill(source)
    lost = faults.pick(others)  # it will know the source by what that proposes
    faults.replace(lost, "")
    machine.start_store(lost)
    yield some(5, 100)
    before = rings()
    machine.start_source()
    leaving, store = machine.sources[0], machine.stores.get(lost)
    yield from until(lambda: rings() > before, 0.005, 0.03)
    yield some(0.001, 0.3)
    if store is None or not store.alive or store.stopped or not leaving.alive:
        return
    store.stop()
    machine.closing.add(leaving)
    yield from until(lambda: (life := _life(faults)) is None or life.left)
    yield some(0.01, 50)
    if store.alive and store.stopped:
        store.go_on()
    yield from until(lambda: not leaving.alive, 0.1, 1)
    if world.random() < 0.3:
        faults.power_cut()
    _all_run(faults)
    yield some(50, 300)


def rises(faults: Faults) -> Generator[int, None, None]:
    """A source is deregistered, a disk goes in that very moment, and then the power."""
    machine = faults.machine
    _all_run(faults)
    yield from until(lambda: (life := _life(faults)) is not None and bool(life.said), 0.1, 1)
    life = _life(faults)
    if life is None:
        return
    index = faults.pick(range(faults.shape.stores))
    machine.closing.add(life.process)
    yield from until(lambda: life.left or not life.process.alive, 0.001, 0.01)
    before = _state(faults, index)
    yield from until(lambda: _state(faults, index) != before, 0.0001, 0.001)
    if world.random() < 0.8:
        faults.suspect.add(index)
        lib.sim_devices[FIRST_DISK + index].error = 5
    yield from until(lambda: life.deregistered or not life.process.alive)
    faults.mend_disk(index)
    faults.power_cut()
    _all_run(faults)
    yield some(50, 300)


def _state(faults: Faults, index: int) -> list[bytes]:
    """What a store has written down of its sources."""
    found = []
    for slot in range(2):
        with contextlib.suppress(OSError):
            fd = system.os.open(f"{faults.machine.path(index)}/state.{slot}", os.O_RDONLY)
            with system.File(fd) as file:
                found.append(file.read())
    return found


def outgrown(faults: Faults) -> Generator[int, None, None]:
    """A receiver is away until its stores have let go what it has not had; then the power goes."""
    machine = faults.machine
    _all_run(faults)
    machine.start_receivers()
    yield from until(lambda: len(machine.judge.consumed[1]) > 0, 0.1, 2)
    yield some(900, 1500)  # the store saves what it has acknowledged, and syncs that later
    for index in sorted(machine.stores):
        lib.sim_write_back(FIRST_DISK + index, faults.pick((128, 256, 256)))
    for session in sorted(machine.receivers):
        if session == 1 or world.random() < 0.7:
            faults.kill(machine.receivers[session])
    yield from _flood(faults)
    faults.power_cut()
    _all_run(faults)
    yield some(0.1, 50)
    machine.start_receivers()
    yield some(50, 300)


def stranger(faults: Faults) -> Generator[int, None, None]:
    """A store that has lost its files hears of a receiver, which dies before it has heard where it starts,
    and comes again. What that was away for, the stores have let go."""
    machine = faults.machine
    _all_run(faults)
    machine.start_receivers()
    yield from until(lambda: len(machine.judge.consumed[1]) > 0, 0.1, 2)
    if 1 in machine.receivers:
        faults.kill(machine.receivers[1])
    lost = faults.pick([index for index in range(faults.shape.stores) if index != faults.anchor])
    faults.replace(lost, "")
    yield from _flood(faults)
    _all_run(faults)
    yield some(100, 400)
    for _ in range(1 + int(world.random() * 3)):
        before = _state(faults, lost)
        if 1 not in machine.receivers:
            machine.start_receiver(1)
        yield from until(lambda: _state(faults, lost) != before, 0.001, 0.01)  # noqa: B023
        if 1 in machine.receivers:
            faults.kill(machine.receivers[1])
        if world.random() < 0.2:
            faults.power_cut()
            _all_run(faults)
        yield some(0.01, 100)
    machine.start_receivers()
    yield some(50, 300)


def _flood(faults: Faults) -> Generator[int, None, None]:
    """A source sends more than a store keeps."""
    machine, judge = faults.machine, faults.machine.judge
    enough = judge.bytes + int((1 + world.random()) * LIMIT)
    machine.eager = 0.0005
    yield from until(lambda: judge.bytes > enough or not machine.sources, 0.5, 2)
    machine.eager = machine.usual
    yield some(1, 100)


ALL = (overdue, renamed, rises, outgrown, stranger)
