"""What does a message cost as receivers, stores, sources, rings, messages and logs grow?

fan:      source -> [stream] -> 1 .. 64 receiver or store processes     CPU time of each side while it works
          who waits yields, or, once more for receivers, blocks on its bell: then the source's time has their
          wake-ups in it
          with 1 receiver: streams of 64 KiB .. 256 MiB, messages of 16 B .. 4 MiB
drain:    1 .. 256 sources, the same messages together -> one store     CPU time of the drain
logopen:  logs of 64 MiB .. 20 GiB: a store opens one, a reader finds a message in one

The curves and the slope that each may have are in curves.py. A disk with too little room leaves out the
largest logs, and the report says so.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from .cli import RESULTS, Script, run_written
from .curves import FIGURES
from .machine import slug
from .report import quantity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .curves import Figure
    from .harness import Bench, Series

SUFFIX = "-scale"
"""Of the result file's name, behind the machine's."""


def cases(figure: Figure, free: int) -> dict[str, str]:
    """Case -> title of all points that are measured where this many bytes of disk are free."""
    named = {x: quantity(x, "B") if figure.in_bytes else f"{x} {figure.axis}" for x in figure.xs(free)}
    return {curve.case.format(x): f"{curve.title}, {name}" for curve in figure.curves for x, name in named.items()}


def measure(bench: Bench) -> Iterator[Series]:
    """One figure after the other, the points of each interleaved."""
    free = shutil.disk_usage(bench.disk).free
    for figure in FIGURES:
        yield from bench.cases(cases(figure, free))


SCRIPT = Script("scale", "What does a message cost as things grow in number?", measure)

if __name__ == "__main__":
    run_written([SCRIPT], RESULTS, f"{slug()}{SUFFIX}")
