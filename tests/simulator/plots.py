"""Faults that take a while: one thing after the other, as it was found in audits. Each is a generator that
yields for how long the world goes on before the next thing happens (ns of CLOCK_MONOTONIC)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator import system
from simulator.machine import FIRST_DISK
from simulator.native import lib
from simulator.world import world

if TYPE_CHECKING:
    from collections.abc import Generator

    from simulator.faults import Faults

__all__ = ["ALL", "ring_names", "rings", "some"]


def some(low_ms: float, high_ms: float) -> int:
    """A while."""
    return int((low_ms + world.random() * (high_ms - low_ms)) * 1e6)


def blind(faults: Faults) -> Generator[int, None, None]:
    """A store misses what becomes stable at the others; then one of these is gone, its files are not found
    by who is left, and the one that was away finds nobody's."""
    machine = faults.machine
    if len(machine.stores) < 2:
        return
    away = faults.pick(sorted(machine.stores))
    faults.kill(machine.stores[away])
    yield some(20, 300)
    others = sorted(machine.stores)
    if not others:
        return
    for source in list(machine.sources):
        faults.kill(source)
    if world.random() < 0.7:  # the others take the ring away
        yield some(100, 900)
        others = sorted(machine.stores) or others
    victim = faults.pick(others)
    if victim in machine.stores:
        faults.kill(machine.stores[victim])
    if world.random() < 0.3:
        for index in sorted(machine.stores):
            faults.kill(machine.stores[index])
    yield some(0.1, 20)
    hidden = 1 << FIRST_DISK + victim
    for index in range(faults.shape.stores):
        if index not in machine.stores and index != victim:
            machine.start_store(index)
        if index in machine.stores:
            every = ~(1 << FIRST_DISK + index) & ((1 << faults.shape.stores) - 1) << FIRST_DISK
            lib.sim_processes[machine.stores[index].index].hidden |= every if index == away else hidden
    machine.start_source()
    lib.sim_processes[machine.sources[-1].index].hidden |= hidden
    yield some(200, 900)
    if victim not in machine.stores:
        machine.start_store(victim)


def ring_names() -> set[str]:
    """Of those in shared memory."""
    return {name for name in system.os.listdir("/dev/shm") if ".s" in name}


def rings() -> int:
    """How many are in shared memory."""
    return len(ring_names())


def orphan(faults: Faults) -> Generator[int, None, None]:
    """A source's BEGIN reaches few stores, and it dies; then these are gone, and another one begins at the
    others."""
    machine = faults.machine
    for _ in range(1 + (world.random() < 0.5)):
        for source in list(machine.sources):
            faults.kill(source)
        yield some(0.1, 100)
        before = rings()
        machine.start_source()
        for _ in range(4000):  # until it has opened its ring: BEGIN follows
            yield some(0.02, 0.1)
            if rings() > before:
                break
        yield some(0.01, 0.6)
        for source in list(machine.sources):
            faults.kill(source)
        few = [index for index in sorted(machine.stores) if world.random() < 0.5]
        for index in few:
            faults.kill(machine.stores[index])
        if world.random() < 0.3:
            faults.power_cut()
        for index in range(faults.shape.stores):
            if index not in machine.stores and index not in few:
                machine.start_store(index)
        machine.start_source()
        yield some(50, 700)
    for index in range(faults.shape.stores):
        if index not in machine.stores:
            machine.start_store(index)
            yield some(0.1, 200)


def disaster(faults: Faults) -> Generator[int, None, None]:
    """Some stores are down while the others take what is sent; then the source dies, and those lose their
    files."""
    machine = faults.machine
    if faults.shape.stores < 2:
        return
    away = {index for index in range(faults.shape.stores) if index == faults.anchor or world.random() < 0.3}
    for index in sorted(away & set(machine.stores)):
        faults.kill(machine.stores[index])
    yield some(20, 300)
    for source in list(machine.sources):
        faults.kill(source)
    yield some(1, 100)
    for index in range(faults.shape.stores):
        if index not in away:
            faults.replace(index, "")
    for kind, index in faults.missing():
        if kind != "receiver":
            faults.bring_back(kind, index)
    yield some(100, 700)


def coup(faults: Faults) -> Generator[int, None, None]:
    """A source is stopped, and a rival claims its session; then it goes on."""
    machine = faults.machine
    if len(machine.sources) != 1:
        return
    source = machine.sources[0]
    machine.start_source()
    yield some(1, 100)
    if source.alive and not source.stopped:
        source.stop()
    yield some(20, 1500)
    if source.alive and source.stopped:
        source.go_on()


def absence(faults: Faults) -> Generator[int, None, None]:
    """A receiver joins while a store is down, which comes to know it late; then the receiver dies, and comes
    back."""
    machine = faults.machine
    if not machine.stores or not machine.receivers:
        return
    index, session = faults.pick(sorted(machine.stores)), faults.pick(sorted(machine.receivers))
    faults.kill(machine.stores[index])
    faults.kill(machine.receivers[session])
    yield some(0.01, 5)
    machine.start_receiver(session)
    yield some(20, 400)
    if index not in machine.stores:
        machine.start_store(index)
    yield some(20, 400)
    if session in machine.receivers:
        faults.kill(machine.receivers[session])


def power(faults: Faults) -> Generator[int, None, None]:
    """A backup or a late store takes over, then the power goes, and the stores come back one by one."""
    machine = faults.machine
    if machine.stores:
        faults.kill(machine.stores[faults.pick(sorted(machine.stores))])
    yield some(20, 300)
    faults.power_cut()
    order = list(range(faults.shape.stores))
    world.rng.shuffle(order)
    machine.start_source()
    for index in order:
        if index not in machine.stores:
            machine.start_store(index)
        yield some(0.1, 400)
    if world.random() < 0.6:  # what is read from now on is read from logs
        for source in list(machine.sources):
            faults.kill(source)
        yield some(100, 500)
        machine.start_receivers()
        yield some(20, 200)


def succession(faults: Faults) -> Generator[int, None, None]:
    """A source dies with messages that the stores have not drained, and another one comes at once."""
    machine = faults.machine
    there = sorted(machine.stores)
    kills = world.random() < 0.5
    for index in there if world.random() < 0.7 else there[1:]:
        if not machine.stores[index].stopped:
            machine.stores[index].stop()
    yield some(30, 200)
    for source in list(machine.sources):
        faults.kill(source)
    for index in there if kills else ():
        if index in machine.stores:
            faults.kill(machine.stores[index])
    machine.start_source()
    yield some(0.1, 50)
    for index in there:
        if index not in machine.stores:
            machine.start_store(index)
        elif machine.stores[index].stopped:
            machine.stores[index].go_on()
        if world.random() < 0.3:
            yield some(0.1, 50)
    yield some(50, 300)


def severed(faults: Faults) -> Generator[int, None, None]:
    """A source loses its connections while it is stopped, and a rival claims its session."""
    machine = faults.machine
    if len(machine.sources) != 1:
        return
    source = machine.sources[0]
    if not source.stopped:
        source.stop()
    for sock in list(source.sockets):
        sock.cut()
    machine.start_source()
    yield some(100, 600)
    if source.alive and source.stopped:
        source.go_on()
    yield some(20, 200)
    if source.alive:
        faults.kill(source)


def dawn(faults: Faults) -> Generator[int, None, None]:
    """A source begins, and the power goes as soon as something of it is stable."""
    machine = faults.machine
    for source in list(machine.sources):
        faults.kill(source)
    yield some(0.1, 100)
    machine.start_source()
    began = machine.sources[-1]
    for _ in range(2000):
        yield some(0.05, 0.5)
        if any(each.stable and each.life.process is began for each in machine.judge.messages.values()):
            break
    faults.power_cut()
    order = faults.missing()
    world.rng.shuffle(order)
    for kind, index in order:
        if (kind, index) in faults.missing():
            faults.bring_back(kind, index)
            yield some(0.1, 200)


def clogged(faults: Faults) -> Generator[int, None, None]:
    """Disks are full while a source sends; it dies, and another one comes before there is room."""
    machine = faults.machine
    full = [index for index in range(faults.shape.stores) if world.random() < 0.8]
    for index in full:
        lib.sim_devices[FIRST_DISK + index].write_errors = 1 << 30
    faults.suspect.update(full)
    yield some(30, 200)
    for source in list(machine.sources):
        faults.kill(source)
    machine.start_source()
    yield some(20, 400)
    for index in full:
        lib.sim_devices[FIRST_DISK + index].write_errors = 0
        yield some(0.1, 100)


ALL = (blind, orphan, disaster, coup, absence, power, succession, severed, dawn, clogged)
