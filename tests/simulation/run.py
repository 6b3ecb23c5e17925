"""One seed: a machine in trouble, then healed; what must hold is checked all the way, and at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulation import afterlife
from simulation.faults import LATE_MAX, Faults
from simulation.machine import Machine

if TYPE_CHECKING:
    from simulation.source import Source

STEPS = 420
STRIKES = 0.03
"""How often a step is a fault, or somebody's return."""
QUIET_MAX = 30
"""Rounds at the beginning in which nothing goes wrong, in most seeds: else many would never come to send."""
ROUNDS_MAX = 500
LAST_MESSAGES = 3


def play(seed: int, *, steps: int = STEPS, machine: Machine | None = None) -> Machine:
    """Plays a seed on a fresh machine; ``world.trace()`` of what comes back tells two runs apart.

    Raises:
        InvariantError: an invariant does not hold.
    """
    machine = machine or Machine(seed)
    world, faults = machine.world, Faults(machine)
    faults.boot()
    if world.chance(0.8):
        world.calm = True
        for _ in range(QUIET_MAX):
            world.round()
            if any(source.may_send for source in machine.sources):
                break
        world.calm = False
    for _ in range(steps):
        faults.turn()
        if world.random() < STRIKES:
            faults.strike()
        else:
            world.step()
    faults.heal()
    _settle(machine, faults)
    return machine


def _settle(machine: Machine, faults: Faults) -> None:
    """Everybody is there and nothing goes wrong any more: sources send again, and all get all of it."""
    world = machine.world
    target = 0
    machine.eagerness = 0.0
    state = ""
    for rounds in range(ROUNDS_MAX):
        faults.mend(rounds)
        world.round()
        if rounds < LATE_MAX and max(faults.late.values(), default=0) >= rounds:
            continue
        sending = [source for source in machine.sources if source.may_send]
        if not sending:
            state = "no source may send"
            if all(source.closed for source in machine.sources):
                faults.start_source()
            continue
        source = sending[0]
        if not target:
            target, machine.eagerness = source.next + LAST_MESSAGES, 0.9
        elif source.next >= target:
            machine.eagerness = 0.0
        state = _unsettled(machine, source, target)
        if not state:
            _check_end(machine, source)
            if machine.config.proxy:
                assert source.ring is not None
                afterlife.check(machine, faults, source.ring.uuid)
            return
    machine.truth.fail(f"liveness: {state}")


def _unsettled(machine: Machine, source: Source, target: int) -> str:
    """What is still to come; empty: nothing."""
    ring, settlement = source.ring, source.settlement
    assert ring is not None
    assert settlement is not None
    retention = settlement.retention
    if source.next < target or retention.stable < source.next:
        return f"sent {source.next} of {target}, stable {retention.stable}"
    waiting = source.registration.waiting_for()
    if waiting:
        return f"stores {waiting} are not registered"
    for index in sorted(source.registration.seated):
        log = machine.directories[index].logs[ring.uuid]
        if log.next < source.next:
            return f"store {index} is at {log.next} of {source.next}"
    for session, receiver in machine.receivers.items():
        controller = receiver.controllers.get(ring.uuid)
        if controller is None or controller.window is None or controller.next < source.next or controller.held:
            return f"receiver {session} is at {controller.next if controller is not None and controller.window else 'its start'}"
    return ""


def _check_end(machine: Machine, source: Source) -> None:
    ring, truth = source.ring, machine.truth
    assert ring is not None
    logs = {index: machine.directories[index].logs[ring.uuid] for index in sorted(source.registration.seated)}
    contents = {index: log.content() for index, log in logs.items()}
    for number, content in truth.kept[ring.uuid].items():
        if not truth.gone[content] and not any(content == there.get(number) for there in contents.values()):
            truth.fail(f"lost: {content} as {number}")
    for number in sorted({number for content in contents.values() for number in content}):
        there = {index: content[number] for index, content in contents.items() if number in content}
        if len(set(there.values())) > 1:
            truth.fail(f"logs differ at {number}: {there}")
    for session in machine.receivers:
        truth.got_everything(ring.uuid, session)
