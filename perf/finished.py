"""What does a store pay for the sources that it has served? ``python -m perf.finished [-n N] [--recv]``

N sources of one message each, one after another, on one topic at one disk store:

after    memory, descriptors and disk of the store, when it has put their logs on its shelf
beside   a live source on the same topic and store, against one at a store that has served nobody: CPU time of
         the source's process and the store's, per message, in turns
look     `holdfast stat` and `holdfast doctor`: CPU time
start    the store, after a stop and after kill -9, until it is ready; its process's start included
recv     `holdfast recv --exit-at-end`: all messages, in the order in which they were sent (``--recv``)

Bars are issue 20's, for 10,000 sources; what N takes of one is judged as it is. Exit status: 1 where one is
missed. Not part of `make perf`: 10,000 sources take minutes to make.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import holdfast as hf

from .harness import Bench
from .idle import cpu_ns
from .peers import DOMAIN, TIMEOUT_S, domain, store_options

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

TOPIC = "finished"
STORES = {"full": "a store that has served them", "empty": "a store that has served nobody"}
MESSAGES, PAIRS = 4000, 15
"""Messages of a turn; turns of both stores."""
LOOKS = 8
SETTLE_S = 600.0
"""The shelf takes no longer."""


@dataclass(frozen=True)
class Row:
    """One figure. ``bar``: at most this; None: for information."""

    what: str
    value: float
    unit: str
    bar: float | None = None

    @property
    def missed(self) -> bool:
        """It is above its bar."""
        return self.bar is not None and self.value > self.bar

    def line(self) -> str:
        """Of the table."""
        bar = "" if self.bar is None else f"<= {self.bar:g} {self.unit}{': MISSED' if self.missed else ''}"
        return f"| {self.what} | {self.value:,.3g} {self.unit} | {bar} |"


def options(name: str) -> dict[str, object]:
    """A source's: a small ring, since each is made anew."""
    return {**store_options(name), "ring_size": 1 << 16, "ume_registration_interval": 1000}


def finish(count: int) -> float:
    """Makes them, each with a number of its own as message; seconds of each."""
    start = time.perf_counter()
    with hf.Context(domain=DOMAIN) as context:
        for number in range(count):
            with context.source(TOPIC, options=options("full")) as source:
                source.wait_registered(TIMEOUT_S)
                source.wait_stable(source.send(b"%d" % number), timeout=TIMEOUT_S)
    return (time.perf_counter() - start) / count


def descriptors(pid: int) -> int:
    """That a process has open."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def resident(pid: int) -> int:
    """Bytes."""
    fields = Path(f"/proc/{pid}/statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")


def taken(directory: Path) -> int:
    """Bytes on disk, directories included."""
    return sum(path.lstat().st_blocks * 512 for path in directory.rglob("*"))


def settled(pid: int, directory: Path) -> None:
    """Waits until the shelf has what it may have: descriptors and disk stay as they are for some looks."""
    deadline, seen = time.monotonic() + SETTLE_S, [(-1, -1)]
    while (len(seen) < LOOKS or len(set(seen[-LOOKS:])) > 1) and time.monotonic() < deadline:
        time.sleep(2)
        seen.append((descriptors(pid), taken(directory)))


def beside(pids: dict[str, int]) -> list[Row]:
    """A live source at each store, in turns."""
    costs: dict[str, list[float]] = {name: [] for name in STORES}
    with hf.Context(domain=DOMAIN) as context:
        sources = {name: context.source(TOPIC, options=store_options(name)) for name in STORES}
        for source in sources.values():
            source.wait_registered(TIMEOUT_S)
        for turn in range(PAIRS + 1):
            for name, source in sources.items():
                before = time.process_time_ns() + cpu_ns(pids[name])
                for _ in range(MESSAGES):
                    source.send(b"x" * 128)
                source.wait_stable(timeout=TIMEOUT_S)
                if turn:
                    costs[name].append((time.process_time_ns() + cpu_ns(pids[name]) - before) / MESSAGES)
    ratio = statistics.median(full / empty for full, empty in zip(costs["full"], costs["empty"], strict=True))
    rows = [
        Row(f"live source and {STORES[name]}, CPU per message", statistics.median(costs[name]), "ns") for name in STORES
    ]
    return [*rows, Row("the first over the second", ratio, "x", 1.02)]


def command(*words: str) -> tuple[float, float, bytes]:
    """Seconds of CPU and by the clock, and what it printed."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    line = [sys.executable, "-m", "holdfast", *words, "--domain", DOMAIN]
    done = subprocess.run(line, capture_output=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu, time.perf_counter() - start, done.stdout


def received(count: int) -> list[Row]:
    """`recv --exit-at-end`. Raises ValueError for another order, or another number of messages."""
    _, seconds, out = command("recv", TOPIC, "--exit-at-end")
    numbers = [int(line) for line in out.split() if line.isdigit()]
    if numbers != [*range(count)]:
        raise ValueError(f"{len(numbers)} of {count} messages, in order: {numbers == sorted(numbers)}")
    return [Row("recv --exit-at-end, all of them in order of time", seconds, "s", 10)]


def measure(bench: Bench, count: int, *, recv: bool) -> list[Row]:
    """All rows."""
    directory = bench.disk / "full"
    config = {name: hf.StoreConfig(name, bench.disk / name, DOMAIN) for name in STORES}
    rows: list[Row] = []
    with ExitStack() as stack:
        stack.enter_context(domain(bench))
        stack.enter_context(empty := hf.spawn_store(config["empty"]))
        with hf.spawn_store(config["full"]) as full:
            rows.append(Row("to make one", 1000 * finish(count), "ms"))
            settled(full.pid, directory)
            rows += [
                Row("the store's memory", resident(full.pid) / 2**20, "MiB", 150),
                Row("the store's descriptors", descriptors(full.pid), "", 128),
                Row("its directory on disk", taken(directory) / 1e6, "MB", 200),
                Row("the same, of each source", taken(directory) / count, "bytes"),
            ]
            rows += [
                Row(f"holdfast {verb}, CPU", min(command(verb)[0] for _ in range(3)), "s", 1)
                for verb in ("stat", "doctor")
            ]
            rows += received(count) if recv else []
            rows += beside({"full": full.pid, "empty": empty.pid})
        rows.append(Row("start after a stop", started(config["full"], lambda store: store.stop()), "s", 1))
        rows.append(
            Row("start after kill -9", started(config["full"], lambda store: os.kill(store.pid, 9), again=True), "s", 1)
        )
    return rows


def started(config: hf.StoreConfig, end: Callable[[hf.StoreProcess], object], *, again: bool = False) -> float:
    """Seconds of the best of three starts, each after such an end."""
    best = float("inf")
    for turn in range(4):
        begin = time.perf_counter()
        store = hf.spawn_store(config, timeout=TIMEOUT_S)
        elapsed = time.perf_counter() - begin
        if turn or not again:
            best = min(best, elapsed)
        end(store)
        store.wait(TIMEOUT_S)
    return best


def main(argv: Sequence[str] | None = None) -> int:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m perf.finished", description=__doc__)
    parser.add_argument("-n", type=int, default=10_000, metavar="N", help="sources (10,000)")
    parser.add_argument("--recv", action="store_true", help="also the row of recv")
    parser.add_argument("--disk", type=Path, help="a directory on the disk to be measured (default: under build/)")
    parser.add_argument("--json", type=Path, help="where the figures go, too")
    given = parser.parse_args(argv)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # else each command would compile all that it imports
    with Bench(1, given.disk) as bench:
        rows = measure(bench, given.n, recv=given.recv)
    print(f"{given.n:,} finished sources of one message\n\n| what | figure | bar |\n|---|---|---|")
    print("\n".join(row.line() for row in rows))
    if given.json is not None:
        given.json.write_text(json.dumps({"sources": given.n, "rows": [asdict(row) for row in rows]}, indent=2) + "\n")
    return int(any(row.missed for row in rows))


if __name__ == "__main__":
    sys.exit(main())
