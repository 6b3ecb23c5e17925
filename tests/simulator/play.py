"""One seed: a machine in trouble, then healed. What must hold is checked all the way, and at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator import afterlife
from simulator.faults import Faults
from simulator.judge import BrokenError
from simulator.machine import Machine
from simulator.native import lib
from simulator.world import world

if TYPE_CHECKING:
    from simulator.shape import Shape

__all__ = ["play"]

TROUBLE_STEPS = 600
LONG_STEPS = 4000
"""More of trouble, while a plot needs them."""
STRIKES, PLOT_STRIKES = 0.03, 0.004
"""How often a step is a fault, or somebody's return; and while a plot goes on."""
QUIET_STEPS = 500
"""At the beginning nothing goes wrong in most seeds, until something is stable."""
HEAL_STEPS, HEAL_NS = 20_000, 30_000_000_000
MESSAGE_STEPS, MESSAGE_NS = 40, 20_000_000
"""More of healing, for each message that there is by then: a receiver may have to take thousands."""
LOOK_STEPS = 25
IDLE_NS = 10_000_000


def play(seed: int, *, story: list[str] | None = None, shape: Shape | None = None, steps: int = TROUBLE_STEPS) -> int:
    """Plays a seed; what comes back tells two runs apart. ``steps``: of trouble.

    Raises:
        BrokenError: something that must hold does not.
    """
    machine = Machine(seed, story=story, shape=shape)
    faults = Faults(machine)
    try:
        faults.boot()
        if world.random() < 0.8:
            for _ in range(QUIET_STEPS):
                _step(machine)
                if any(message.stable for message in machine.judge.messages.values()):
                    break
        for number in range(steps + LONG_STEPS):
            if number >= steps and not faults.long:
                break
            if world.random() < (0 if faults.staged else PLOT_STRIKES if faults.plotting else STRIKES):
                faults.strike()
            faults.turn()
            _step(machine)
        _heal(machine, faults)
        afterlife.check(machine, lambda: _step(machine))
        return world.digest
    finally:
        world.end()


def _step(machine: Machine) -> bool:
    went = world.step()
    if not went:  # nobody waits for anything
        lib.sim_now_ns += IDLE_NS
    while world.failures:
        machine.failed(*world.failures.pop())
    if machine.judge.broken or world.logged:
        raise BrokenError(machine.judge.broken or world.logged)
    return went


def _heal(machine: Machine, faults: Faults) -> None:
    """Everything is well again: what is kept comes to everybody, and a source sends."""
    world.note("heal")
    world.calm = True
    faults.heal()
    before = len(machine.judge.messages)
    state, end_ns = "", faults.healed_ns + HEAL_NS + before * MESSAGE_NS
    for number in range(HEAL_STEPS + before * MESSAGE_STEPS):
        if number % LOOK_STEPS == 0:
            faults.tend()
            state = _unsettled(machine, before)
            if not state:
                return
        _step(machine)
        if int(lib.sim_now_ns) > end_ns:
            break
    raise BrokenError(f"liveness: {state}")


def _unsettled(machine: Machine, before: int) -> str:
    judge = machine.judge
    fresh = [each for each in list(judge.messages.values())[before:] if each.stable]
    if len(fresh) < 3:
        return f"{len(judge.messages) - before} sent since, {len(fresh)} of them stable"
    machine.eager = 0.0
    return judge.missing()
