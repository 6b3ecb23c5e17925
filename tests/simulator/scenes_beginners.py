"""Scenes of sources that begin while a store is away: one that is new is to begin, and one that is not may
not begin anew (docs/design.md 15). See scenes.py and plots.py.

Of the second one the host's register of sources knows without any census. So that is taken away there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator import censuses
from simulator.beginners import Beginner
from simulator.native import lib
from simulator.plots import some
from simulator.plots_unseen import kill_stores
from simulator.staging import reached, settled, stores_run
from simulator.world import world

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from simulator.faults import Faults
    from simulator.world import Process

__all__ = ["ALL"]

FRESH = 3
SHARED, NEAR, FAR = 2, (0, 1), (3, 4)
"""Of the stores a to e: the one that both lists have, and what each has beside it. The source that all seeds
have declares a, b and d (scenes.py)."""
BEGINS_NS = 2_000_000_000
"""A source that is new, and looks at a census, begins after some tenths of a second. There are not many more
steps in a seed (play.LONG_STEPS)."""
LIFE_NS = 500_000_000
"""A life in which nothing happens any more."""


def debut(faults: Faults) -> Generator[int, None, None]:
    """A source that is new begins, though one of its three stores is away: it has run in this boot."""
    machine, names = faults.machine, faults.shape.names[:3]
    yield from settled(faults)
    yield from stores_run(faults, range(3))
    away = faults.pick([index for index in range(3) if index != faults.anchor])
    how = world.random()
    store = machine.stores[away]
    if how < 0.4:
        what = "has lost its files"
        faults.replace(away, "")
    elif how < 0.6:
        what = "is dead"
        faults.kill(store)
    else:
        what = "stands still"
        store.stop()
    yield from stores_run(faults, [index for index in range(3) if index != away])
    yield some(0.1, 100)
    one = Beginner(machine, 1, by_ids=world.random() < 0.3)
    for life in ("first", "second"):
        process = one.start(names)
        said = f"the {life} life of a source begins, where of {names} the store {names[away]} {what}"
        yield from reached(faults, said, lambda: one.said >= FRESH, lambda: one.why, BEGINS_NS)
        faults.kill(process)
        yield some(0.1, 50)
    if store.alive and store.stopped:
        store.go_on()
    yield some(1, 100)


# A store has granted a source, and then this happens --------------------------------------------------------


def lost(faults: Faults) -> Generator[int, None, None]:
    """Its files are lost."""
    kill_stores(faults, [SHARED])
    faults.replace(SHARED, "")
    yield some(0.1, 10)


def emptied(faults: Faults) -> Generator[int, None, None]:
    """The same; then it runs for a moment, and loses what it has by then."""
    yield from lost(faults)
    yield from _runs(faults)


def removed(faults: Faults) -> Generator[int, None, None]:
    """Its files are lost, and its census."""
    yield from lost(faults)
    censuses.remove(faults.shape.names[SHARED])


def unknown(faults: Faults) -> Generator[int, None, None]:
    """The same; then it runs for a moment, and loses what it has by then."""
    yield from removed(faults)
    yield from _runs(faults)


def begun_again(faults: Faults) -> Generator[int, None, None]:
    """Its census is lost; it begins another one; and then its files are lost."""
    kill_stores(faults, [SHARED])
    censuses.remove(faults.shape.names[SHARED])
    yield from _runs(faults)


def _runs(faults: Faults) -> Generator[int, None, None]:
    yield from stores_run(faults, [SHARED])
    yield some(0.1, 30)
    yield from lost(faults)  # a dead store whose state can be read has answered


WAYS: tuple[Callable[[Faults], Generator[int, None, None]], ...] = (lost, emptied, removed, unknown, begun_again)


def _lives(
    faults: Faults, one: Beginner, stores: tuple[int, ...], true: Callable[[], object]
) -> Generator[int, None, Process]:
    """A life with these stores, until something is true, or for a while."""
    process = one.start([faults.shape.names[each] for each in stores])
    end = int(lib.sim_now_ns) + LIFE_NS
    while int(lib.sim_now_ns) < end and not true():
        yield some(0.5, 2)
    return process


def relocated(faults: Faults) -> Generator[int, None, None]:
    """A source has lived with three stores. Now it declares one of them, which is away, and two others. What
    was stable is not numbered again."""
    machine, shared = faults.machine, faults.shape.names[SHARED]
    faults.anchor = NEAR[0]
    yield from settled(faults)
    yield from stores_run(faults, range(faults.shape.stores))
    one = Beginner(machine, 1, by_ids=world.random() < 0.3)
    life = yield from _lives(faults, one, (SHARED, *FAR), lambda: one.said >= FRESH and shared in one.granted)
    faults.kill(life)
    if shared not in one.granted or one.stable < 0:
        return  # nothing can be asked of what comes
    yield some(0.1, 60)
    yield from faults.pick(WAYS)(faults)
    if world.random() < 0.4:
        faults.power_cut()
    censuses.forget_register()
    yield from stores_run(faults, [*NEAR, *FAR])
    if not machine.sources:
        machine.start_source()
    life = yield from _lives(faults, one, (*NEAR, SHARED), lambda: one.begun)
    faults.kill(life)
    yield some(1, 50)


ALL = (debut, relocated)
