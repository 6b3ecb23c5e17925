"""More plots: somebody stands still or is out of sight while others decide. See plots.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator.machine import FIRST_DISK
from simulator.native import lib
from simulator.plots import rings, some
from simulator.world import world

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterable

    from simulator.faults import Faults

__all__ = ["ALL", "hide", "kill_sources", "kill_stores", "start"]


def kill_sources(faults: Faults) -> None:
    for source in list(faults.machine.sources):
        faults.kill(source)


def kill_stores(faults: Faults, which: Iterable[int]) -> None:
    for index in which:
        if index in faults.machine.stores:
            faults.kill(faults.machine.stores[index])


def hide(faults: Faults, disks: Collection[int]) -> None:
    """Nobody who runs finds the files of these stores, except for the store itself."""
    for process in [*faults.machine.stores.values(), *faults.machine.sources]:
        for disk in disks:
            if process is not faults.machine.stores.get(disk):
                lib.sim_processes[process.index].hidden |= 1 << FIRST_DISK + disk


def start(faults: Faults, which: Iterable[int], hidden: Collection[int] = ()) -> None:
    for index in which:
        if index not in faults.machine.stores:
            faults.machine.start_store(index)
    hide(faults, hidden)


def poised(faults: Faults) -> Generator[int, None, None]:
    """A source has opened its ring, and its stores stand still before BEGIN reaches them; then it dies."""
    machine = faults.machine
    kill_sources(faults)
    yield some(0.1, 100)
    before = rings()
    machine.start_source()
    for _ in range(4000):
        if rings() > before:
            break
        yield some(0.02, 0.1)
    there = sorted(machine.stores)
    for index in there if world.random() < 0.7 else there[1:]:
        if not machine.stores[index].stopped:
            machine.stores[index].stop()
    yield some(10, 200)
    kill_sources(faults)
    if world.random() < 0.8:  # what was sent to them is lost
        kill_stores(faults, there)
    start(faults, there)
    for index in sorted(machine.stores):
        if machine.stores[index].stopped:
            machine.stores[index].go_on()
    machine.start_source()
    yield some(50, 400)


def exile(faults: Faults) -> Generator[int, None, None]:
    """Claims reach few stores. The power goes, and others go on without these, whose files they do not
    find."""
    machine, stores = faults.machine, range(faults.shape.stores)
    order = list(stores)
    world.rng.shuffle(order)
    cut = 1 + int(world.random() * max(1, len(order) - 1))
    few, rest = order[:cut], order[cut:]
    hidden = [index for index in few if world.random() < 0.6] or few[:1]
    kill_stores(faults, rest)
    for _ in range(1 + int(world.random() * 3)):
        kill_sources(faults)
        yield some(0.1, 50)
        before = rings()
        start(faults, few)
        machine.start_source()
        for _ in range(2000):
            yield some(0.02, 0.1)
            if rings() > before:
                break
        yield some(0.01, 0.8)
        kill_sources(faults)
        kill_stores(faults, few if world.random() < 0.7 else [])
    if world.random() < 0.8:
        faults.power_cut()
    kill_stores(faults, few)
    start(faults, rest, hidden)
    start(faults, [index for index in few if index not in hidden and world.random() < 0.3], hidden)
    machine.start_source()
    hide(faults, hidden)
    yield some(200, 900)
    start(faults, few)
    yield some(50, 300)


def unseen(faults: Faults) -> Generator[int, None, None]:
    """A store misses what becomes stable; the power goes; and of those that have it, one is out of sight."""
    machine = faults.machine
    order = list(range(faults.shape.stores))
    world.rng.shuffle(order)
    away, hidden, *rest = [*order, *order[:1]]
    kill_stores(faults, [away])
    yield some(50, 400)
    faults.power_cut()
    start(faults, [away, *rest], [hidden])
    machine.start_source()
    hide(faults, [hidden])
    yield some(200, 900)
    start(faults, [hidden])
    yield some(50, 300)


def amnesia(faults: Faults) -> Generator[int, None, None]:
    """A store loses its files while its source goes on, and registers anew, and does not find the others'.
    Then the source dies, and another one comes before all stores are back."""
    machine = faults.machine
    others = [index for index in range(faults.shape.stores) if index != faults.anchor]
    if not others:
        return
    lost = faults.pick(others)
    away = faults.pick([index for index in range(faults.shape.stores) if index != lost])
    if world.random() < 0.7:  # it joins late: nobody else is told of its life
        kill_sources(faults)
        kill_stores(faults, [lost])
        machine.start_source()
        yield some(80, 300)
    start(faults, [lost])
    yield some(1, 100)
    kill_stores(faults, [away])
    yield some(20, 200)
    hidden = [index for index in range(faults.shape.stores) if index not in {lost, away}]
    faults.replace(lost, "")
    start(faults, [lost], hidden)
    yield some(0.5, 100)
    if world.random() < 0.5:
        faults.power_cut()
    kill_sources(faults)
    kill_stores(faults, hidden)
    start(faults, [lost, away], hidden)
    machine.start_source()
    hide(faults, hidden)
    yield some(200, 900)
    start(faults, hidden)
    yield some(50, 300)


def stalled(faults: Faults) -> Generator[int, None, None]:
    """A store stands still while its source goes on, and does not find the files of the others then."""
    machine = faults.machine
    if not machine.stores:
        return
    slow = faults.pick(sorted(machine.stores))
    others = [index for index in range(faults.shape.stores) if index != slow]
    if world.random() < 0.7:
        kill_stores(faults, [faults.pick(others)] if others else [])
    yield some(1, 100)
    if slow in machine.stores and not machine.stores[slow].stopped:
        process = machine.stores[slow]
        process.stop()
        for index in others:
            if world.random() < 0.9:
                lib.sim_processes[process.index].hidden |= 1 << FIRST_DISK + index
        yield some(100, 950)
        if process.alive and process.stopped:
            process.go_on()
    yield some(20, 1500)


def relapse(faults: Faults) -> Generator[int, None, None]:
    """A receiver is gone. Meanwhile the stores that have what it had lose their files, the source begins anew
    from less, and sends as many messages again."""
    machine = faults.machine
    if faults.shape.stores < 2:
        return
    away = {index for index in range(faults.shape.stores) if index == faults.anchor or world.random() < 0.3}
    kill_stores(faults, away)
    yield some(20, 300)
    for session in sorted(machine.receivers):
        faults.kill(machine.receivers[session])
    kill_sources(faults)
    yield some(1, 100)
    for index in range(faults.shape.stores):
        if index not in away:
            faults.replace(index, "")
    start(faults, range(faults.shape.stores))
    machine.start_source()
    yield some(200, 900)
    machine.start_receivers()
    yield some(20, 200)


def rejoin(faults: Faults) -> Generator[int, None, None]:
    """A receiver registers for the first time, and the power goes at once. When it comes back, another store
    is away than before."""
    machine, joined = faults.machine, faults.machine.judge.joined
    new = [each for each in range(1, faults.shape.receivers + 1) if each not in joined]
    session = faults.pick(new or [1])
    first, second = (int(world.random() * faults.shape.stores) for _ in range(2))
    kill_stores(faults, [first])
    if session in machine.receivers:
        faults.kill(machine.receivers[session])
    yield some(1, 100)
    if session not in machine.receivers:
        machine.start_receiver(session)
    for _ in range(2000):
        if session in joined:
            break
        yield some(0.05, 0.5)
    yield some(0.05, 100)
    faults.power_cut()
    start(faults, [each for each in range(faults.shape.stores) if each != second or world.random() < 0.3])
    machine.start_source()
    yield some(20, 400)
    if session not in machine.receivers:
        machine.start_receiver(session)
    yield some(50, 500)


def stateless(faults: Faults) -> Generator[int, None, None]:
    """A store loses its state, and keeps its logs; its source registers there again, and dies."""
    machine = faults.machine
    others = [index for index in range(faults.shape.stores) if index != faults.anchor]
    if not others:
        return
    index = faults.pick(others)
    kill_stores(faults, [index])
    faults.forget_state(index)
    yield some(0.1, 20)
    start(faults, [index])
    yield some(0.5, 120)
    kill_sources(faults)
    if world.random() < 0.7:
        faults.power_cut()
    for session in sorted(machine.receivers):
        faults.kill(machine.receivers[session])
    kill_stores(faults, [each for each in range(faults.shape.stores) if each != index])
    start(faults, [index])
    machine.start_receivers()
    yield some(20, 300)
    start(faults, range(faults.shape.stores))
    yield some(20, 300)


ALL = (poised, exile, unseen, amnesia, stalled, relapse, rejoin, stateless)
