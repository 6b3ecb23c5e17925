"""Products in turns: A B C A B C ..., the probe around each reading, medians per product and ratios of
neighbours in time."""

from __future__ import annotations

import signal
import statistics
import sys
import threading
from collections import Counter
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from ..harness import WARM_UP, Sample, Series
from .peer import Peer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from ..harness import Bench


Kind = TypeVar("Kind", bound=Peer)
Open = TypeVar("Open")

READING_MAX_S = 90.0
"""Opening a product, or one reading of it."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure of a reading: its ``key`` there, the ``table`` that it stands in, its unit."""

    key: str
    table: str
    unit: str
    more_is_better: bool = False


@dataclass(slots=True)
class Row:
    """One case of one table: a series per product, or the reason why there is none.

    Attributes:
        ours: columns that are holdfast's; bare: columns that are no product's.
        in_flight: columns that do not wait for what the others wait for. They are compared among themselves,
            where there are several products of them, and the others among themselves.
    """

    table: str
    case: str
    unit: str
    more_is_better: bool
    cells: dict[str, Series | str] = field(default_factory=dict)
    ours: list[str] = field(default_factory=list)
    bare: list[str] = field(default_factory=list)
    in_flight: list[str] = field(default_factory=list)

    def alike(self) -> list[list[str]]:
        """The columns that may be compared with each other: those that wait, those that do not."""
        return [[name for name in self.cells if (name in self.in_flight) == flies] for flies in (False, True)]

    def best(self, names: Iterable[str]) -> str | None:
        """Which of these has the best median."""
        medians = {name: cell.median for name in names if isinstance(cell := self.cells.get(name), Series)}
        best = max if self.more_is_better else min
        return best(medians, key=medians.__getitem__) if medians else None

    def median(self, name: str) -> float:
        """Of a column that was measured. Raises KeyError."""
        cell = self.cells[name]
        if isinstance(cell, str):
            raise KeyError(f"{name}: {cell}")
        return cell.median

    def times(self, name: str, other: str) -> float | None:
        """How many times better ``name`` is than ``other``: the median over runs that were neighbours. Below
        1: worse.

        0 where the other one needs nothing that could be measured, None where ``name`` does.
        """
        one, two = self.cells.get(name), self.cells.get(other)
        if not isinstance(one, Series) or not isinstance(two, Series):
            return None
        pairs = [(max(a, 0.0), max(b, 0.0)) for a, b in zip(one.values, two.values, strict=False)]
        if any((b if self.more_is_better else a) == 0 for a, b in pairs):
            return None
        return statistics.median(a / b if self.more_is_better else b / a for a, b in pairs)


def in_turns(
    bench: Bench,
    case: str,
    metrics: tuple[Metric, ...],
    links: Mapping[type[Kind], AbstractContextManager[Open]],
    measure: Callable[[Open], Mapping[str, float]],
    *,
    missing: Mapping[type[Kind], str],
) -> list[Row]:
    """Open all, read each in turn ``bench.runs`` times after one of warm-up; a row per metric.

    A product that fails has the reason in its cells and takes no further turn; the others go on.
    """
    failed = {kind.name: why for kind, why in missing.items()}
    kinds = [*links, *missing]
    series = {metric.key: {kind.name: Series(case, kind.name) for kind in links} for metric in metrics}
    with ExitStack() as stack:
        ready: dict[str, Open] = {}
        for kind, link in links.items():
            with _told(failed, case, kind.name):
                ready[kind.name] = stack.enter_context(link)
        before = bench.probe()
        for run in range(bench.runs + WARM_UP):
            for name, opened in ready.items():
                if name in failed:
                    continue
                with _told(failed, case, name):
                    reading = measure(opened)
                    after = bench.probe()
                    for metric in metrics if run >= WARM_UP else ():
                        value, probe = reading[metric.key], (before + after) / 2
                        sample = Sample(value, metric.unit, probe, 0, 0, 0, Counter())
                        series[metric.key][name].samples.append(sample)
                    before = after
    return [_row(metric, case, kinds, series[metric.key], failed) for metric in metrics]


@contextmanager
def _within(seconds: float) -> Iterator[None]:
    """The block ends by then, even where a product waits for a receiver that has died. Raises TimeoutError;
    main thread only."""

    def late(*_: object) -> None:
        raise TimeoutError(f"not done in {seconds:.0f} s")

    main = threading.main_thread().ident or 0
    timer = threading.Timer(seconds, signal.pthread_kill, (main, signal.SIGUSR1))
    before = signal.signal(signal.SIGUSR1, late)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        signal.signal(signal.SIGUSR1, before)


@contextmanager
def _told(failed: dict[str, str], case: str, name: str) -> Iterator[None]:
    """A product's failure, or its silence, is its own: noted, and told on standard error."""
    try:
        with _within(READING_MAX_S):
            yield
    except Exception as error:
        failed[name] = f"failed: {type(error).__name__}: {error}"
        print(f"{case}, {name}: {failed[name]}", file=sys.stderr)


def _row(
    metric: Metric, case: str, kinds: Sequence[type[Peer]], series: Mapping[str, Series], failed: Mapping[str, str]
) -> Row:
    row = Row(metric.table, case, metric.unit, metric.more_is_better)
    for kind in kinds:
        row.cells[kind.name] = failed[kind.name] if kind.name in failed else series[kind.name]
        if kind.ours:
            row.ours.append(kind.name)
        if kind.bare:
            row.bare.append(kind.name)
    return row
