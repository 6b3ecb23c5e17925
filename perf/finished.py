"""What does a store pay for the sources that it has served? ``python -m perf.finished [-n N] [--recv]``

N sources of one message each, one after another, on one topic at one disk store. It is killed -9 in the
middle, while a message is on its way:

after    memory, descriptors and disk of the store, when it has put their logs on its shelf
beside   a live source on the same topic and store, against one at a store that has served nobody: CPU time of
         the source's process and the store's, per message, in turns
look     `holdfast stat` and `holdfast doctor`: by the clock, the process's start included
start    the store, after a stop and after kill -9, until it is ready; its process's start included
recv     `holdfast recv --exit-at-end`: all messages, in the order in which they were sent (``--recv``)
lost     the same of memory, descriptors, disk, looks, starts and recv, when one source has lost its segment

Bars are issue 20's, for 10,000 sources; what N takes of one is judged as it is. Exit status: 1 where one is
missed. Not part of `make perf`: 10,000 sources take minutes to make. `make perf-finished` runs it with
`--recv --json`, which writes ``results/<machine>-finished.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import holdfast as hf

from .cli import RESULTS
from .harness import Bench
from .idle import cpu_ns
from .machine import machine, slug
from .peers import DOMAIN, TIMEOUT_S, domain, store_options

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

TOPIC = "finished"
STORES = {"full": "a store that has served them", "empty": "a store that has served nobody"}
MESSAGES, PAIRS = 4000, 200
"""Messages of a turn; turns of both stores."""
LOOKS = 8
RUNS = 5
"""Of each command, and starts of each kind."""
AFTER_START_S = 5.0
"""A store that was killed opens the logs that were open then, some dozens, and closes them."""
SETTLE_S = 600.0
"""The shelf takes no longer."""


class Row(NamedTuple):
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


def finish(numbers: range, last: Callable[[], None] = lambda: None) -> bytes:
    """Makes them, each with a number of its own as message; the uuid of the last one. ``last`` is called when
    its message is sent, and perhaps not stable."""
    with hf.Context(domain=DOMAIN) as context:
        for number in numbers:
            with context.source(TOPIC, options=options("full")) as source:
                source.wait_registered(TIMEOUT_S)
                sent = source.send(b"%d" % number)
                if number == numbers[-1]:
                    last()
                source.wait_stable(sent, timeout=TIMEOUT_S)
                uuid = source.uuid
    return uuid


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
    """A live source at each store, in turns. After a start, a store looks at each of its logs once, a few a
    second."""
    costs: dict[str, list[float]] = {name: [] for name in STORES}
    with hf.Context(domain=DOMAIN) as context:
        told: list[object] = []
        sources = {name: context.source(TOPIC, options=store_options(name), on_event=told.append) for name in STORES}
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
        for source in sources.values():  # what it has sent is no part of the other rows
            source.deregister()
        deadline = time.monotonic() + TIMEOUT_S
        while sum(type(event).__name__ == "DeregistrationComplete" for event in told) < len(sources):
            if time.monotonic() > deadline:
                raise TimeoutError("the stores do not forget the live sources")
            time.sleep(0.01)
    ratio = statistics.median(full / empty for full, empty in zip(costs["full"], costs["empty"], strict=True))
    rows = [
        Row(f"live source and {STORES[name]}, CPU per message", statistics.median(costs[name]), "ns") for name in STORES
    ]
    return [*rows, Row("the first over the second", ratio, "x", 1.02)]


def command(*words: str, good: tuple[int, ...] = (0,)) -> tuple[float, float, bytes]:
    """Seconds of CPU and by the clock, and what it printed. Raises ValueError where it ends with another
    status: who fails is quick."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    line = [sys.executable, "-m", "holdfast", *words, "--domain", DOMAIN]
    done = subprocess.run(line, capture_output=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in good:
        raise ValueError(f"holdfast {words[0]} ends with {done.returncode}: {done.stderr.decode()[-500:]}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu, time.perf_counter() - start, done.stdout


def received(numbers: Sequence[int]) -> Row:
    """`recv --exit-at-end`. Raises ValueError for another order, or other messages."""
    _, seconds, out = command("recv", TOPIC, "--exit-at-end")
    came = [int(line) for line in out.split() if line.isdigit()]
    if came != numbers:
        breaks = [(before, after) for before, after in pairwise(came) if after < before]
        raise ValueError(f"{len(came)} of {len(numbers)} messages; out of order: {breaks[:9]}")
    return Row("recv --exit-at-end, all of them in order of time", seconds, "s", 10)


def looked_at(pid: int) -> list[Row]:
    """What the store takes, and the commands that look at it."""
    rows = [
        Row("the store's memory", resident(pid) / 2**20, "MiB", 150),
        Row("the store's descriptors", descriptors(pid), "", 128),
    ]
    for verb, sign in (("stat", TOPIC), ("doctor", "limits")):
        cpu, seconds, said = zip(*(command(verb, good=(0, 1)) for _ in range(RUNS)), strict=True)
        if any(sign.encode() not in each for each in said):
            raise ValueError(f"holdfast {verb} says nothing of {sign!r}: {said[0][-500:]!r}")
        rows.append(Row(f"holdfast {verb}", statistics.median(seconds), "s", 1))
        rows.append(Row(f"holdfast {verb}, CPU", statistics.median(cpu), "s"))
    return rows


@dataclass
class Stage:
    """The two stores: one is to be full of sources, the other one serves nobody before the row "beside"."""

    bench: Bench
    running: dict[str, hf.StoreProcess] = field(default_factory=dict)

    def directory(self, name: str) -> Path:
        """Of a store."""
        return self.bench.disk / name

    def config(self, name: str) -> hf.StoreConfig:
        """Of a store."""
        return hf.StoreConfig(name, self.directory(name), DOMAIN)

    def run(self, name: str) -> int:
        """Its pid."""
        self.running[name] = hf.spawn_store(self.config(name), timeout=TIMEOUT_S)
        return self.running[name].pid

    def kill(self, name: str) -> None:
        """-9."""
        os.kill(self.running[name].pid, signal.SIGKILL)
        self.running.pop(name).wait(TIMEOUT_S)

    def stop(self, name: str) -> None:
        """A clean end."""
        store = self.running.pop(name)
        store.stop()
        store.wait(TIMEOUT_S)

    def kill_and_run(self) -> None:
        """In the middle of a source's life."""
        self.kill("full")
        self.run("full")

    def starts(self) -> list[Row]:
        """The last one is left running."""
        ends = {"a stop": self.stop, "kill -9": self.kill}
        rows = [
            Row(f"start after {what}", statistics.median(self._started(end) for _ in range(RUNS)), "s", 1)
            for what, end in ends.items()
        ]
        return [*rows, Row("descriptors, at once", descriptors(self.running["full"].pid), "")]

    def _started(self, end: Callable[[str], None]) -> float:
        end("full")
        begin = time.perf_counter()
        self.run("full")
        return time.perf_counter() - begin

    def end(self) -> None:
        """Of both."""
        for name in list(self.running):
            self.stop(name)


def measure(bench: Bench, count: int, *, recv: bool) -> list[Row]:
    """All rows."""
    stage, rows = Stage(bench), list[Row]()
    with ExitStack() as stack:
        stack.enter_context(domain(bench))
        stack.callback(stage.end)
        stage.run("full")
        loses = finish(range(count // 2), stage.kill_and_run)
        begin = time.perf_counter()
        finish(range(count // 2, count))
        rows.append(Row("to make one, of the second half", 2000 * (time.perf_counter() - begin) / count, "ms"))
        settled(stage.running["full"].pid, stage.directory("full"))
        rows += looked_at(stage.running["full"].pid)
        rows += [
            Row("its directory on disk", (room := taken(stage.directory("full"))) / 1e6, "MB", 200),
            Row("the same, of each source", room / count, "bytes"),
        ]
        rows += [received([*range(count)])] if recv else []
        stage.run("empty")
        rows += beside({name: store.pid for name, store in stage.running.items()})
        rows += stage.starts()
        stage.stop("full")
        for segment in (stage.directory("full") / "logs" / loses.hex()).glob("seg-*"):
            segment.unlink()
        stage.run("full")
        after = stage.starts()
        time.sleep(AFTER_START_S)
        after += looked_at(stage.running["full"].pid)
        after.append(Row("its directory on disk", taken(stage.directory("full")) / 1e6, "MB", 200))
        after += [received([number for number in range(count) if number != count // 2 - 1])] if recv else []
        after += beside({name: store.pid for name, store in stage.running.items()})
        return rows + [row._replace(what=f"a segment lost: {row.what}") for row in after]


def written_to() -> Path:
    """The results of this kind of machine."""
    return RESULTS / f"{slug()}-finished.json"


def main(argv: Sequence[str] | None = None) -> int:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m perf.finished", description=__doc__)
    parser.add_argument("-n", type=int, default=10_000, metavar="N", help="sources (10,000)")
    parser.add_argument("--recv", action="store_true", help="also the row of recv")
    parser.add_argument("--disk", type=Path, help="a directory on the disk to be measured (default: under build/)")
    parser.add_argument("--json", type=Path, nargs="?", const=written_to(), help=f"write the figures ({written_to()})")
    given = parser.parse_args(argv)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # else each command would compile all that it imports
    with Bench(1, given.disk) as bench:
        facts = machine(bench.cores, bench.disk)
        rows = measure(bench, given.n, recv=given.recv)
        facts["load_after"] = os.getloadavg()
    print(f"{given.n:,} finished sources of one message\n\n| what | figure | bar |\n|---|---|---|")
    print("\n".join(row.line() for row in rows))
    if given.json is not None:
        found = {"machine": facts, "sources": given.n, "rows": [row._asdict() for row in rows]}
        given.json.write_text(json.dumps(found, indent=1) + "\n")
        print("\nwritten:", given.json)
    return int(any(row.missed for row in rows))


if __name__ == "__main__":
    sys.exit(main())
