"""Products that bring programs of their own in C: they measure themselves, and are compared with each other
only."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from .peer import Peer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ..harness import Bench

RINGS = {16: 1 << 18, 128: 1 << 20, 1024: 1 << 22, 65536: 1 << 23}
"""Bytes of the stream for a payload: about as many messages as the bare ring has slots
(perf/throughput.py)."""


class Program(Peer):
    """``one_way`` and ``round_trip`` run a program to its end; what fails raises."""

    def __init__(self, bench: Bench, folder: Path) -> None:
        super().__init__()
        self.bench, self.folder = bench, folder

    @contextmanager
    def running(self) -> Iterator[Program]:
        """What the programs need is there."""
        yield self

    def one_way(self, size: int) -> dict[str, float]:
        """``rate``: msg/s from one core to another."""
        raise NotImplementedError

    def round_trip(self) -> dict[str, float]:
        """``p50``: ns there and back, 16 B."""
        raise NotImplementedError


class HoldfastC(Program):
    """perf/c: two threads with mappings of their own; single sends, a copy per message."""

    name = "holdfast, C"
    ours = True
    how = "single:copy"
    ring = 0
    """Bytes; 0: by the payload, as RINGS has it."""

    def one_way(self, size: int) -> dict[str, float]:
        """See Program."""
        return {"rate": self.bench.once(f"oneway:{size}:{self.how}:1:{self.ring or RINGS[size]}").value}

    def round_trip(self) -> dict[str, float]:
        """See Program."""
        return {"p50": self.bench.once("cping").value}


class HoldfastRows(HoldfastC):
    """Rows of 64 messages by one call, batches in place."""

    name = "holdfast, C, rows of 64"
    how = "rows:batch"


class HoldfastDeep(HoldfastRows):
    """The same with a ring of 32 MiB, the default: as much is under way as Aeron has."""

    name = "holdfast, C, rows of 64, ring of 32 MiB"
    ring = 1 << 25


class BareRing(Program):
    """perf/c: slots and an index; no product."""

    name = "bare ring, C"
    bare = True

    def one_way(self, size: int) -> dict[str, float]:
        """See Program."""
        return {"rate": self.bench.once(f"ring:{size}").value}

    def round_trip(self) -> dict[str, float]:
        """The bare cache line's."""
        return {"p50": self.bench.once("line").value}
