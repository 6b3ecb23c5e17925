"""Faults that take a while: one thing after the other, as it was found in audits. Each is a generator that
yields for how long the world goes on before the next thing happens (ns of CLOCK_MONOTONIC)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator.machine import FIRST_DISK
from simulator.native import lib
from simulator.world import world

if TYPE_CHECKING:
    from collections.abc import Generator

    from simulator.faults import Faults

__all__ = ["PLOTS"]


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
    yield some(0.1, 10)
    machine.start_source()
    yield some(1, 500)
    for source in list(machine.sources):
        faults.kill(source)
    for index in sorted(machine.stores):
        if world.random() < 0.7:
            faults.kill(machine.stores[index])
    for index in range(faults.shape.stores):
        if index not in machine.stores and index not in few:
            machine.start_store(index)
    yield some(0.1, 10)
    machine.start_source()
    yield some(100, 700)
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


PLOTS = {plot.__name__: plot for plot in (blind, orphan, disaster, coup, absence, power)}
