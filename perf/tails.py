"""How late is a message at a fixed rate, in the worst of 10,000 cases?

C:       core 0: message i, due at start + i * period -> [stream] -> receive :core 1     late by now - due
         the same schedule over slots of bare memory (line): what this machine does at best
Python:  core 0: the same, 100,000 a second -> [stream] -> for :core 1                   two processes
         core 0: the same -> send_stable, memory store :core 1                          late when it is stable

The schedule goes on whatever became of the message before, so a stall is felt by all that were due during it:
no coordinated omission.
"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import chain
from struct import Struct
from typing import TYPE_CHECKING

import numpy as np

import holdfast as hf

from .cli import RESULTS, Script, run_written
from .harness import Reading, Series
from .histogram import at_quantile
from .machine import slug
from .peers import DOMAIN, SPIN, TIMEOUT_S, Far, domain, running_store, store_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from multiprocessing.connection import Connection
    from pathlib import Path

    from .harness import Bench

SIZES, RATES, PYTHON_RATE = (40, 1024), (167_000, 1_670_000), 100_000
QUANTILES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999, "p99.99": 0.9999}
JUDGED = ("p50", "p99", "p99.9")
"""Those that floors are stated for."""
C_MS, PYTHON_S = 10_000, 5
"""Of one run: five runs of ten seconds make the minute that tails want."""
WARM = 20_000
STORE = "tails-memory"
DUE = Struct("<q")
CASES = {
    f"{way}:{size}:{rate}:{name}" for way in ("line", "stream") for size in SIZES for rate in RATES for name in JUDGED
}


def _named(found: Series, case: str, title: str) -> Iterator[Series]:
    """One series for each quantile: its values are those of the runs. The first has the histogram of all."""
    for name, q in QUANTILES.items():
        samples = [
            replace(
                one, value=float(at_quantile(one.latencies, q)), latencies=one.latencies if name == "p50" else Counter()
            )
            for one in found.samples
        ]
        yield Series(f"{case}:{name}", f"{title}, {name}", samples)


def _in_c(bench: Bench) -> Iterator[Series]:
    """Line and stream take turns; one rate after the other, for each takes minutes."""
    ways = {"line": "bare line", "stream": "C send → receive"}
    for rate in RATES:
        titles = {
            f"tail:{way}:{size}:{rate}:{C_MS}": f"{title}, {size} B, {rate:,} a second"
            for size in SIZES
            for way, title in ways.items()
        }
        for found in bench.cases(titles):
            _, way, size, _, _ = found.case.split(":")
            yield from _named(found, f"{way}:{size}:{rate}", found.title)


def _scheduled(send: Callable[[bytes], object], size: int, done: Callable[[int, int], None] | None = None) -> None:
    """Sends on time, or as soon as it can; each message says when it was due. ``done``: number, due."""
    count, period, clock = WARM + PYTHON_S * PYTHON_RATE, 1_000_000_000 // PYTHON_RATE, time.perf_counter_ns
    rest, pack, due = bytes(size - DUE.size), DUE.pack, clock() + 1_000_000
    for number in range(count):
        while clock() < due:
            pass
        send(pack(due) + rest)
        if done is not None:
            done(number, due)
        due += period


class _Received:
    """The far process takes them by ``for``."""

    def __init__(self, bench: Bench, context: hf.Context) -> None:
        self._source = context.source("tails", options={"ring_size": 1 << 26})
        self._source.wait_registered(TIMEOUT_S)
        self.far = Far(bench, _receive, SPIN)

    def measure(self, size: int) -> Reading:
        """Lateness where it is received."""
        self.far.tell(WARM + PYTHON_S * PYTHON_RATE)
        self.far.expect("go")
        _scheduled(self._source.send, size)
        late = np.frombuffer(self.far.expect(), np.int64)[WARM:]
        return Reading(float(np.percentile(late, 99)), "ns", late, bytes=size, count=len(late))


def _receive(connection: Connection, context: hf.Context) -> None:
    """The far side."""
    receiver = context.receiver("tails")
    while not receiver.stats().sources:
        time.sleep(0.001)
    messages, clock, due = iter(receiver), time.perf_counter_ns, DUE.unpack_from
    connection.send("ready")
    while True:
        wanted = connection.recv()
        late = np.empty(wanted, np.int64)
        connection.send("go")
        for index, message in zip(range(wanted), messages, strict=False):
            late[index] = clock() - due(message.data)[0]
        connection.send(late.tobytes())


def _stable(source: hf.Source, size: int) -> Reading:
    """Lateness when a store in memory has it."""
    late, clock = np.empty(WARM + PYTHON_S * PYTHON_RATE, np.int64), time.perf_counter_ns

    def done(number: int, due: int) -> None:
        late[number] = clock() - due

    _scheduled(lambda data: source.send_stable(data, TIMEOUT_S), size, done)
    return Reading(float(np.percentile(late[WARM:], 99)), "ns", late[WARM:], bytes=size, count=len(late) - WARM)


def _in_python(bench: Bench) -> Iterator[Series]:
    with ExitStack() as stack:
        stack.enter_context(domain(bench))
        stack.enter_context(running_store(bench, STORE, "memory"))
        stack.enter_context(bench.pinned_to(0))
        context = stack.enter_context(hf.Context(domain=DOMAIN, options=SPIN))
        kept = context.source("kept", options=store_options(STORE))
        kept.wait_registered(TIMEOUT_S)
        pair = _Received(bench, context)
        stack.callback(pair.far.close)
        rate = f"{PYTHON_RATE:,} a second"
        titles: dict[str, tuple[str, Callable[[], Reading]]] = {}
        for size in SIZES:
            titles[f"py-receive:{size}"] = (
                f"Python send → for, {size} B, {rate}",
                partial(pair.measure, size),
            )
            titles[f"py-stable:{size}"] = (
                f"Python send_stable, memory store, {size} B, {rate}", partial(_stable, kept, size),
            )  # fmt: skip
        for found in bench.interleave(titles):
            yield from _named(found, found.case, found.title)


def measure(bench: Bench) -> Iterator[Series]:
    """C, then Python; and the picture."""
    found: dict[str, Series] = {}
    for series in chain(_in_c(bench), _in_python(bench)):
        found[series.case] = series
        yield series
    draw(found, RESULTS / f"{slug()}-tails")


def draw(series: Mapping[str, Series], target: Path) -> list[Path]:
    """Lateness over percentiles, one panel for each size and rate; ``target`` without its ending."""
    import matplotlib as mpl

    mpl.use("svg")
    import matplotlib.pyplot as plt

    shares = np.concatenate([1 - np.logspace(0, -4, 81)[1:], [0.9999]])
    panels = [(size, rate) for rate in (*RATES, PYTHON_RATE) for size in SIZES]
    figure, axes = plt.subplots(len(panels) // 2, 2, figsize=(11, 12), sharex=True, layout="constrained")
    for panel, (size, rate) in zip(axes.flat, panels, strict=True):
        ways = ("py-receive", "py-stable") if rate == PYTHON_RATE else ("line", "stream")
        for way in ways:
            case = f"{way}:{size}:p50" if rate == PYTHON_RATE else f"{way}:{size}:{rate}:p50"
            if case in series:
                counts = series[case].latencies
                late = [at_quantile(counts, share) / 1000 for share in shares]
                panel.plot(1 / (1 - shares), late, label=series[case].title.removesuffix(", p50"))
        panel.set(xscale="log", yscale="log", ylabel="late, µs", title=f"{size} B, {rate:,} messages a second")
        panel.set_xticks([2, 10, 100, 1000, 10_000], ["50 %", "90 %", "99 %", "99.9 %", "99.99 %"])
        panel.grid(visible=True, which="major", alpha=0.3)
        if panel.lines:
            panel.legend(fontsize="small")
    written = [target.with_suffix(ending) for ending in (".svg", ".png")]
    for path in written:
        figure.savefig(path)
    plt.close(figure)
    return written


SCRIPT = Script("tails", "How late is a message at a fixed rate, in the worst of 10,000 cases?", measure)

if __name__ == "__main__":
    run_written([SCRIPT], RESULTS, f"{slug()}-tails", RESULTS.with_name("TAILS.md"))
