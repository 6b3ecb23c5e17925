"""What may not grow: memory, descriptors, threads, files and bytes, sampled over the run and compared.

The second quarter of a run is what the last one is held against: by then logs are as full as they may be.
"""

from __future__ import annotations

import os
import statistics
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

__all__ = ["BOUNDS", "Bound", "Samples", "of_directory", "of_process", "of_shared_memory"]

SAMPLES_MIN = 6
"""Of a quarter; fewer say nothing."""
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Bound:
    """The last quarter's median is at most ``factor`` times the second's, and ``plus``."""

    factor: float
    plus: float

    def broken(self, before: float, after: float) -> bool:
        """It has grown too much."""
        return after > before * self.factor + self.plus


BOUNDS = {
    "rss": Bound(1.15, 6 * MIB),
    "descriptors": Bound(1.0, 4),
    "threads": Bound(1.0, 1),
    "files": Bound(1.15, 8),
    "bytes": Bound(1.25, 2 * MIB),
    "lines": Bound(1.5, 20),
}
"""By what is measured, the second word of a series' name. ``lines``: told in the time between two samples."""
LEVELS = {"largest receiver descriptors": 40.0, "largest receiver rss": 240.0 * MIB}
"""What a receiver has that reads the logs of three sources at three stores: two descriptors of each log, one
of a segment, and Numba. One that goes up to there has not leaked."""


class Samples:
    """Series by name: ``store a rss``, ``source s1 descriptors``, ``domain files``."""

    def __init__(self) -> None:
        self._series: dict[str, list[tuple[float, float]]] = defaultdict(list)

    def add(self, whose: str, at: float, values: dict[str, float]) -> None:
        """One look. ``at``: the share of the run that is over."""
        for what, value in values.items():
            self._series[f"{whose} {what}"].append((at, value))

    def findings(self) -> list[str]:
        """Series that grow beyond their bound."""
        found = []
        for name, series in sorted(self._series.items()):
            before = [value for at, value in series if 0.25 <= at < 0.5]
            after = [value for at, value in series if at >= 0.75]
            if min(len(before), len(after)) < SAMPLES_MIN:
                continue
            was, now = statistics.median(before), statistics.median(after)
            if now > LEVELS.get(name, 0) and BOUNDS[name.rsplit(" ", 1)[1]].broken(was, now):
                found.append(f"{name} has grown from {was:,.0f} to {now:,.0f}")
        return found

    def table(self) -> list[str]:
        """Each series: the median of each quarter."""
        lines = []
        for name, series in sorted(self._series.items()):
            quarters = [[value for at, value in series if k / 4 <= at < (k + 1) / 4] for k in range(4)]
            medians = [f"{statistics.median(values):,.0f}" if values else "-" for values in quarters]
            lines.append(f"{name}: {' '.join(medians)}")
        return lines


def of_process(pid: int) -> dict[str, float]:
    """What a process holds; empty for one that is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        words = {line.split(":")[0]: line.split()[1] for line in status.splitlines() if len(line.split()) > 1}
        return {
            "rss": float(words["VmRSS"]) * 1024,
            "threads": float(words["Threads"]),
            "descriptors": float(len(os.listdir(f"/proc/{pid}/fd"))),
        }
    except (OSError, KeyError):
        return {}


def of_directory(path: Path) -> dict[str, float]:
    """Its files, and what they take on disk."""
    files, taken = 0, 0
    for folder, _, names in os.walk(path):
        for name in names:
            try:
                found = os.lstat(os.path.join(folder, name))
            except OSError:
                continue
            files += 1
            taken += found.st_blocks * 512
    return {"files": float(files), "bytes": float(taken)}


def of_shared_memory(names: list[str]) -> dict[str, float]:
    """Objects in /dev/shm."""
    taken = 0
    for name in names:
        try:
            taken += os.lstat(f"/dev/shm/{name}").st_blocks * 512
        except OSError:
            continue
    return {"files": float(len(names)), "bytes": float(taken)}
