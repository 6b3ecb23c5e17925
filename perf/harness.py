"""What all measuring scripts share: pinning, interleaved runs, the probe around each run, and the machine's
facts.

A figure alone says little on a virtual machine: the host moves the cores about, and everything that passes a
cache line between them changes several times over. So every run stands between two probes of the bare
cache-line round trip, what is compared is run alternately (A B A B ...), and ratios are taken run by run.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import tempfile
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from .histogram import histogram, merged, quantiles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import TracebackType

    import numpy as np
    from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "perf"
COMPILE = ["-std=c11", "-O2", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Wconversion", "-Wshadow"]
"""As the product is compiled (csrc/build_core.py), without its hardening."""

WARM_UP = 1
"""Runs thrown away: first touch of pages, first compilation, a clock that has to speed up."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One run: ``value`` in ``unit`` (``ns``, ``msg/s``, ``GB/s``, ``%``, ``MiB``), and what it was made
    of."""

    value: float
    unit: str
    nanoseconds: NDArray[np.int64] | None = None
    bytes: int = 0
    count: int = 0
    flight: int = 0


@dataclass(frozen=True, slots=True)
class Sample:
    """One run of one case with the probe beside it (ns, mean of before and after)."""

    value: float
    unit: str
    probe_ns: float
    bytes: int
    count: int
    flight: int
    latencies: Counter[int]


@dataclass(slots=True)
class Series:
    """All runs of one case, in order; run i of two series of one group were neighbours in time."""

    case: str
    title: str = ""
    samples: list[Sample] = field(default_factory=list)

    @property
    def values(self) -> list[float]:
        """One per run."""
        return [sample.value for sample in self.samples]

    @property
    def median(self) -> float:
        """Of the runs' values."""
        return statistics.median(self.values)

    @property
    def probe_ns(self) -> float:
        """Median of the probes."""
        return statistics.median(sample.probe_ns for sample in self.samples)

    @property
    def latencies(self) -> Counter[int]:
        """Of all runs together."""
        return merged(sample.latencies for sample in self.samples)

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Series:
        """What ``as_json`` wrote. Latencies are only kept together: the first run has those of all."""
        unit, sizes = found["unit"], (found["message_bytes"], found["count"], found["flight_bytes"])
        runs = zip(found["values"], found["probe_ns"], strict=True)
        samples = [Sample(value, unit, probe, *sizes, Counter()) for value, probe in runs]
        samples[0].latencies.update(dict(found["histogram"]))
        return cls(found["case"], found["title"], samples)

    def as_json(self) -> dict[str, object]:
        """Everything that was measured."""
        first = self.samples[0]
        return {
            "case": self.case,
            "title": self.title,
            "unit": first.unit,
            "median": self.median,
            "min": min(self.values),
            "max": max(self.values),
            "values": self.values,
            "probe_ns": [sample.probe_ns for sample in self.samples],
            "message_bytes": first.bytes,
            "count": first.count,
            "flight_bytes": first.flight,
            "latency_ns": quantiles(self.latencies),
            "histogram": sorted(self.latencies.items()),
        }


class Bench:
    """The C program, two private directories, and the rules of measuring. Use it as a context manager."""

    def __init__(self, runs: int = 5, disk: Path | None = None, *, core_count: int | None = None) -> None:
        """``disk``: a directory on the disk to be measured (default: under build/). Raises ValueError for no
        runs."""
        if runs < 1:
            raise ValueError(f"runs is {runs}: at least one is needed")
        self.runs = runs
        self.cores = sorted(os.sched_getaffinity(0))[:core_count]
        self._disk_parent = disk or BUILD
        self._group = 0

    def __enter__(self) -> Self:
        """Make the directories."""
        self._disk_parent.mkdir(parents=True, exist_ok=True)
        self.memory = Path(tempfile.mkdtemp(prefix="holdfast-perf-", dir="/dev/shm"))
        self.disk = Path(tempfile.mkdtemp(prefix="disk-", dir=self._disk_parent))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove them."""
        shutil.rmtree(self.memory, ignore_errors=True)
        shutil.rmtree(self.disk, ignore_errors=True)

    @property
    def pinned(self) -> bool:
        """Whether threads are bound to cores: only where there is more than one."""
        return len(self.cores) > 1

    def core(self, index: int) -> int:
        """The core of the measuring side (0), the other side (1), and so on."""
        return self.cores[index % len(self.cores)]

    @contextmanager
    def pinned_to(self, index: int) -> Iterator[None]:
        """Bind the calling thread, and the processes and threads that it starts, for a while."""
        before = os.sched_getaffinity(0)
        if self.pinned:
            os.sched_setaffinity(0, {self.core(index)})
        try:
            yield
        finally:
            os.sched_setaffinity(0, before)

    @cached_property
    def program(self) -> Path:
        """The compiled C program; made on first use. Raises CalledProcessError if gcc does not compile it."""
        return build_bench()

    def command(self, runs: int, *cases: str) -> list[str]:
        """The command line that measures these cases that many times."""
        pinning = ["--cores", ",".join(map(str, self.cores))] if self.pinned else []
        places = ["--memory", str(self.memory), "--disk", str(self.disk)]
        return [str(self.program), *pinning, *places, str(runs), *cases]

    def cases(self, titles: Mapping[str, str]) -> list[Series]:
        """Run C cases interleaved; case -> title in, one series each out, in the same order.

        Raises CalledProcessError when a case fails (it lost order, or the core returned an error).
        """
        command = self.command(self.runs + WARM_UP, *titles)
        printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=600).stdout
        series = {case: Series(case, title) for case, title in titles.items()}
        for line in printed.splitlines():
            found = json.loads(line)
            if found["run"] >= WARM_UP:
                series[found["case"]].samples.append(_sample_of(found))
        return list(series.values())

    def interleave(self, cases: Mapping[str, tuple[str, Callable[[], Reading]]]) -> list[Series]:
        """Run Python cases interleaved, the probe around each; case -> (title, function) in, one series each
        out."""
        series = {case: Series(case, title) for case, (title, _) in cases.items()}
        before = self.probe()
        for run in range(self.runs + WARM_UP):
            for case, (_, measure) in cases.items():
                reading = measure()
                after = self.probe()
                if run >= WARM_UP:
                    series[case].samples.append(_sample(reading, (before + after) / 2))
                before = after
        return list(series.values())

    def probe(self) -> float:
        """The bare cache-line round trip now, in ns."""
        return self.once("line").value

    def once(self, case: str) -> Reading:
        """One run of one C case, for interleaving with Python ones."""
        printed = subprocess.run(
            self.command(1, case), check=True, stdout=subprocess.PIPE, text=True, timeout=120
        ).stdout
        found = json.loads(printed)
        return Reading(found["value"], found["unit"], None, found["bytes"], found["count"], found["flight"])


def _sample_of(found: Mapping[str, Any]) -> Sample:
    """A line that the C program printed (perf/c/bench.c: print_sample)."""
    counts: Counter[int] = Counter(dict(found["histogram"]))
    probe = statistics.fmean(found["probe_ns"])
    return Sample(found["value"], found["unit"], probe, found["bytes"], found["count"], found["flight"], counts)


def _sample(reading: Reading, probe_ns: float) -> Sample:
    counts = Counter[int]() if reading.nanoseconds is None else histogram(reading.nanoseconds)
    return Sample(reading.value, reading.unit, probe_ns, reading.bytes, reading.count, reading.flight, counts)


def compiler() -> str:
    """The C compiler that is used, `$CC` or gcc."""
    return os.environ.get("CC", "gcc")


def _stale(target: Path, sources: list[Path]) -> bool:
    return not target.exists() or any(source.stat().st_mtime > target.stat().st_mtime for source in sources)


def build_bench() -> Path:
    """Compile perf/c and csrc into build/perf/bench, if a source is newer. Returns its path."""
    target = BUILD / "bench"
    sources = bench_files(".c")
    if _stale(target, sources + bench_files(".h")):
        BUILD.mkdir(parents=True, exist_ok=True)
        include = f"-I{ROOT / 'csrc'}"
        subprocess.run([compiler(), *COMPILE, include, *map(str, sources), "-pthread", "-o", str(target)], check=True)
    return target


def bench_files(suffix: str) -> list[Path]:
    """What bench is made of: perf/c, and csrc without its modules of Python."""
    python = ROOT / "csrc" / "python"
    found = [path for folder in ("perf/c", "csrc") for path in (ROOT / folder).rglob(f"*{suffix}")]
    return sorted(path for path in found if not path.is_relative_to(python))
