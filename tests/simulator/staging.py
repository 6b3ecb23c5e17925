"""What scenes are made of (scenes.py): each step is a generator, as a plot is one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator.native import lib
from simulator.plots import ring_names, some
from simulator.plots_unseen import start

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator

    from simulator.faults import Faults
    from simulator.world import Process

__all__ = ["drop_lock", "new_ring", "reached", "settled", "stores_run", "until"]

LOOKS = 4000
WITHIN_NS = 5_000_000_000
"""Of simulated time: a registration, and what waits in it for a store that does not answer, takes some
tenths of a second."""


def until(true: Callable[[], object], low_ms: float = 0.02, high_ms: float = 0.1) -> Generator[int, None, None]:
    """Goes on when that is true, or after a long time."""
    for _ in range(LOOKS):
        if true():
            return
        yield some(low_ms, high_ms)


def reached(
    faults: Faults, what: str, true: Callable[[], object], said: Callable[[], object], within_ns: int = WITHIN_NS
) -> Generator[int, None, None]:
    """Goes on when that is true. The judge asks for it."""
    end = int(lib.sim_now_ns) + within_ns
    while not true():
        if int(lib.sim_now_ns) > end:
            faults.machine.judge.fail(f"not reached: {what}; {said()}")
        yield some(1, 20)


def stores_run(faults: Faults, which: Collection[int]) -> Generator[int, None, None]:
    """These stores run, and let clients in."""
    stores = faults.machine.stores
    start(faults, which)
    yield from until(lambda: all(each in stores and "stop" in stores[each].values for each in which), 0.2, 1)


def settled(faults: Faults, count: int = 3, *, receivers: bool = True) -> Generator[int, None, None]:
    """Everybody runs, one source sends, and ``count`` of its messages are stable. Without ``receivers`` those
    that do not run stay where they are."""
    machine = faults.machine
    for index in range(faults.shape.stores):
        if index not in machine.stores:
            machine.start_store(index)
    for source in machine.sources[1:]:
        faults.kill(source)
    if not machine.sources:
        machine.start_source()
    if receivers:
        machine.start_receivers()
    sender = machine.sources[0]
    messages = machine.judge.messages
    yield from until(lambda: sum(m.stable and m.life.process is sender for m in messages.values()) >= count, 1, 5)


def new_ring(faults: Faults) -> Generator[int, None, None]:
    """A source starts, and has opened its ring: BEGIN follows."""
    before = ring_names()
    faults.machine.start_source()
    yield from until(lambda: ring_names() - before)


def drop_lock(faults: Faults, source: Process) -> None:
    """A source's process reads all files of its domain's directory: so it drops its own lock."""
    if source.alive:
        faults.machine.judge.told.careless(source)
        lib.sim_drop_process_locks(source.index)
