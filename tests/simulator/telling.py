"""Plays seeds, and tells what happened. Over the simulated world: boot comes first."""

from __future__ import annotations

import gc
import logging
import time
import traceback
from dataclasses import replace
from typing import TYPE_CHECKING

import holdfast
from simulator.play import TROUBLE_STEPS, play
from simulator.shape import draw
from simulator.world import world

if TYPE_CHECKING:
    from argparse import Namespace

    from simulator.shape import Shape

__all__ = ["play_all", "shrunk", "story"]

OWN = (holdfast.Error, OSError)
"""What the product may run into, and say so in its log."""
COLLECT_EACH = 20
"""Seeds between two collections: the collector runs at no other time, so it is no part of a schedule."""


def play_all(asked: Namespace) -> int:
    """One line for each seed in which something does not hold, and one at the end."""
    _listen(_Failures(), logging.ERROR)
    gc.freeze()
    gc.disable()
    broken, begun = 0, time.process_time()
    seeds = asked.only or range(asked.first, asked.first + asked.n)
    for seed in [each for each in seeds if not asked.plot or asked.plot in (*draw(each).plots, *draw(each).faults)]:
        try:
            digest = play(seed)
            if asked.digests:
                print(f"{seed} {digest:016x}")
        except BaseException as error:
            broken += 1
            print(seed, f"{type(error).__name__}: {str(error)[:200]}", flush=True)
            if asked.until_broken:
                break
        if seed % COLLECT_EACH == 0:
            gc.collect()
    spent = (time.process_time() - begun) / max(1, len(seeds)) * 1e3
    print(f"{len(seeds)} seeds, {broken} broken, {spent:.1f} ms of CPU each")
    return 1 if broken else 0


def _listen(handler: logging.Handler, level: int) -> None:
    logger = logging.getLogger("holdfast")
    logger.addHandler(handler)
    logger.setLevel(level)
    logger.propagate = False


class _Failures(logging.Handler):
    """An exception that the product has logged, went on behind, and does not raise by itself: a fault of it,
    or of the judge's in a callback."""

    def emit(self, record: logging.LogRecord) -> None:
        """As logging."""
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not world.over and isinstance(error, Exception) and not isinstance(error, OWN):
            world.logged = world.logged or f"{record.getMessage()}: {error!r}"


class _Told(logging.Handler):
    """What the product says is part of the story."""

    def emit(self, record: logging.LogRecord) -> None:
        """As logging."""
        if not world.over:
            who = world.current.process.name if world.current is not None else "world"
            world.note("log", who, record.getMessage(), record.exc_info[1] if record.exc_info else "")


def _breaks(seed: int, shape: Shape, steps: int) -> bool:
    try:
        play(seed, shape=shape, steps=steps)
    except Exception:
        return True
    return False


def shrunk(seed: int) -> tuple[Shape, int]:
    """What is left of a seed that breaks when each fault and plot that is not needed is out, and trouble ends
    early. Of one that holds: all of it."""
    shape, steps = draw(seed), TROUBLE_STEPS
    if not _breaks(seed, shape, steps):
        return shape, steps
    for each in (*shape.plots, *shape.faults):
        plots = tuple(other for other in shape.plots if other != each)
        faults = tuple(other for other in shape.faults if other != each)
        smaller = replace(shape, plots=plots, faults=faults)
        shape = smaller if _breaks(seed, smaller, steps) else shape
    while steps > 1 and _breaks(seed, shape, steps * 3 // 4):
        steps = steps * 3 // 4
    return shape, steps


def story(seed: int, *, shrink: bool = False) -> int:
    """What happens in one seed; ``shrink``: in what is left of it."""
    gc.disable()
    _listen(_Failures(), logging.ERROR)
    shape, steps = shrunk(seed) if shrink else (draw(seed), TROUBLE_STEPS)
    _listen(_Told(), logging.INFO)
    lines: list[str] = []
    status = 0
    try:
        end = f"{play(seed, story=lines, shape=shape, steps=steps):016x}"
    except BaseException:
        end, status = traceback.format_exc(), 1
    print(shape, f"{steps} steps of trouble", *lines, end, sep="\n")
    return status
