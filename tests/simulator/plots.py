"""Faults that take a while: one thing after the other, as it was found in audits. Each is a generator that
yields how many steps the world goes on before the next thing happens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator.machine import FIRST_DISK
from simulator.native import lib
from simulator.world import world

if TYPE_CHECKING:
    from collections.abc import Generator

    from simulator.faults import Faults

__all__ = ["PLOTS"]


def some(low: int, high: int) -> int:
    """Steps."""
    return low + int(world.random() * (high - low))


def blind(faults: Faults) -> Generator[int, None, None]:
    """A store misses what becomes stable at the others; then one of these is gone, and its files are not
    found by who is left."""
    machine = faults.machine
    if len(machine.stores) < 2:
        return
    away = faults.pick(sorted(machine.stores))
    faults.kill(machine.stores[away])
    yield some(20, 120)
    others = sorted(machine.stores)
    if not others:
        return
    victim = faults.pick(others)
    faults.kill(machine.stores[victim])
    for source in list(machine.sources):
        faults.kill(source)
    if world.random() < 0.3:
        for index in sorted(machine.stores):
            faults.kill(machine.stores[index])
    yield some(1, 20)
    hidden = 1 << FIRST_DISK + victim
    for index in range(faults.shape.stores):
        if index not in machine.stores and index != victim:
            machine.start_store(index)
        if index in machine.stores:
            lib.sim_processes[machine.stores[index].index].hidden |= hidden
    machine.start_source()
    lib.sim_processes[machine.sources[-1].index].hidden |= hidden
    yield some(50, 200)
    if victim not in machine.stores:
        machine.start_store(victim)


def orphan(faults: Faults) -> Generator[int, None, None]:
    """A source's BEGIN reaches few stores; then these are gone, and another one begins at the others."""
    machine = faults.machine
    for source in list(machine.sources):
        faults.kill(source)
    there = sorted(machine.stores)
    few = [index for index in there if world.random() < 0.4] or there[:1]
    for index in there:
        if index not in few:
            faults.kill(machine.stores[index])
    yield some(1, 10)
    machine.start_source()
    yield some(5, 80)
    for source in list(machine.sources):
        faults.kill(source)
    for index in sorted(machine.stores):
        if world.random() < 0.7:
            faults.kill(machine.stores[index])
    for index in range(faults.shape.stores):
        if index not in machine.stores and index not in few:
            machine.start_store(index)
    yield some(1, 10)
    machine.start_source()
    yield some(30, 150)
    for index in few:
        if index not in machine.stores:
            machine.start_store(index)


def disaster(faults: Faults) -> Generator[int, None, None]:
    """Some stores are down while the others take what is sent; then the source dies, and those lose their
    files."""
    machine = faults.machine
    if faults.shape.stores < 2:
        return
    away = {index for index in range(faults.shape.stores) if index == faults.anchor or world.random() < 0.3}
    for index in sorted(away & set(machine.stores)):
        faults.kill(machine.stores[index])
    yield some(30, 100)
    for source in list(machine.sources):
        faults.kill(source)
    yield some(10, 60)
    for index in range(faults.shape.stores):
        if index not in away:
            faults.replace(index, "")
    for kind, index in faults.missing():
        if kind != "receiver":
            faults.bring_back(kind, index)
    yield some(50, 150)


def coup(faults: Faults) -> Generator[int, None, None]:
    """A source is stopped, and a rival claims its session; then it goes on."""
    machine = faults.machine
    if len(machine.sources) != 1:
        return
    source = machine.sources[0]
    machine.start_source()
    yield some(5, 30)
    if source.alive and not source.stopped:
        source.stop()
    yield some(60, 200)
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
    yield 1
    machine.start_receiver(session)
    yield some(30, 90)
    if index not in machine.stores:
        machine.start_store(index)
    yield some(30, 90)
    if session in machine.receivers:
        faults.kill(machine.receivers[session])


def power(faults: Faults) -> Generator[int, None, None]:
    """A backup or a late store takes over, then the power goes, and the stores come back one by one."""
    machine = faults.machine
    if machine.stores:
        faults.kill(machine.stores[faults.pick(sorted(machine.stores))])
    yield some(20, 120)
    faults.power_cut()
    order = list(range(faults.shape.stores))
    world.rng.shuffle(order)
    machine.start_source()
    for index in order:
        if index not in machine.stores:
            machine.start_store(index)
        yield some(1, 60)


PLOTS = {plot.__name__: plot for plot in (blind, orphan, disaster, coup, absence, power)}
