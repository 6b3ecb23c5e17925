"""Scenes of a ring, and of what was acknowledged and is gone. See scenes.py and plots.py."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from simulator import system
from simulator.native import ffi
from simulator.plots import ring_names, rings, some
from simulator.plots_unseen import hide, kill_sources, kill_stores, start
from simulator.world import world

if TYPE_CHECKING:
    from collections.abc import Generator

    from simulator.faults import Faults

__all__ = ["ALL"]

KEEPS = 0
"""The store on disk, of those that keep messages in memory."""
HEADER_BYTES = 4096
"""Of a ring's file: its header, and a little more."""


def _trail_and_tail() -> tuple[int, int] | None:
    """Of the newest ring: what may be overwritten lies below the one, and the source stands at the other."""
    names = sorted(ring_names())
    if not names:
        return None
    with system.File(system.os.open(f"/dev/shm/{names[-1]}", os.O_RDONLY)) as file:
        header = ffi.from_buffer("struct hf_stream_header *", file.read(HEADER_BYTES))
    return int(header.trail), int(header.tail)


def _is_there(trail: int, tail: int, at: int, ring: int, near: int) -> bool:
    """The source has so few bytes left before it asks for the room of what lies ``at``; 0: it has got it."""
    return trail + ring - tail < near and at - trail < ring // 8 if near else trail > at


def _is_done(faults: Faults) -> bool:
    """Receivers have consumed all that was sent."""
    judge, sessions = faults.machine.judge, range(1, faults.shape.receivers + 1)
    return all(mark in judge.consumed[each] for mark in judge.messages for each in sessions)


def verge(faults: Faults) -> Generator[int, None, None]:
    """A receiver looks at messages where its source goes on next, at the moment when that asks for the room,
    or has got it."""
    machine, ring = faults.machine, faults.shape.ring
    for _ in range(8):
        machine.eager = 0
        for _ in range(500):
            yield some(0.2, 2)
            if _is_done(faults):
                break
        machine.asking = False
        yield some(105, 130)  # who waits for a message has come back
        stood = _trail_and_tail()
        late, near = world.random() < 0.5, faults.pick((500, 3000, 8000, 14000))
        machine.eager = 0.0001
        for _ in range(3000 if stood is not None else 0):
            yield 1
            stands = _trail_and_tail()
            if stands is None or stood is None or stands[1] >= stood[1] + ring:
                break
            if _is_there(*stands, stood[1], ring, 0 if late else near):
                break
        source = machine.sources[0] if machine.sources and late else None
        if source is not None:
            source.stop()
        else:
            yield some(0.01, 6)
        machine.asking = True
        yield some(0.2, 5)
        if source is not None and source.alive and source.stopped:
            source.go_on()
        yield some(5, 120)
    machine.eager = machine.usual
    yield some(20, 100)


def emptied(faults: Faults) -> Generator[int, None, None]:
    """A store on disk and one in memory have what is stable. The power goes, and those that come back do not
    find the files of the one on disk."""
    machine = faults.machine
    away = faults.pick([index for index in range(faults.shape.stores) if index != KEEPS])
    rest = [index for index in range(faults.shape.stores) if index != KEEPS]
    kill_stores(faults, [away])
    yield some(50, 400)
    if world.random() < 0.3:  # everybody has all of it
        start(faults, [away])
        yield some(50, 200)
    faults.power_cut()
    start(faults, rest, [KEEPS])
    yield some(0.1, 100)
    machine.start_source()
    hide(faults, [KEEPS])
    yield some(200, 900)
    start(faults, [KEEPS])
    yield some(50, 300)


def rewound(faults: Faults) -> Generator[int, None, None]:
    """Receivers have acknowledged what one store has missed, and are gone. The others lose their files when
    the ring is gone, too, and the source begins anew from less, and sends as many messages again."""
    machine, kept = faults.machine, faults.anchor
    machine.start_receivers()
    yield some(100, 300)
    kill_stores(faults, [kept])
    machine.eager = 0.005
    yield some(50, 300)
    if world.random() < 0.5:
        machine.eager = 0
        yield some(20, 100)
    for session in sorted(machine.receivers):
        faults.kill(machine.receivers[session])
    kill_sources(faults)
    for _ in range(2000):
        yield some(0.5, 2)
        if not rings():
            break
    for index in range(faults.shape.stores):
        if index != kept:
            faults.replace(index, "")
    start(faults, range(faults.shape.stores))
    machine.eager = 0.002
    machine.start_source()
    yield some(100, 600)
    machine.eager = machine.usual
    machine.start_receivers()
    yield some(20, 200)


ALL = (verge, emptied, rewound)
