"""What do processes cost that have nothing to do?

source (registered, silent)   receiver (blocked in receive)   store    a process each, 4 s, CPU of all threads
"""

from __future__ import annotations

import re
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from .cli import Script, run_one
from .harness import Sample, Series
from .peers import TIMEOUT_S, Far, domain, running_store, store_options

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from multiprocessing.connection import Connection

    import holdfast as hf

    from .harness import Bench

STORE = "idle"
SECONDS = 4.0
SETTLE_S = 1.0


def silent_source(connection: Connection, context: hf.Context) -> None:
    """Registers, sends one message, then waits for the end of the pipe."""
    source = context.source("idle", options=store_options(STORE))
    source.wait_registered(TIMEOUT_S)
    source.wait_stable(source.send(b"the only one"), timeout=TIMEOUT_S)
    connection.send("ready")
    connection.recv()


def blocked_receiver(connection: Connection, context: hf.Context) -> None:
    """Takes the one message, then blocks in receive until this process is told to end."""
    receiver = context.receiver("idle")
    first = receiver.receive(timeout=TIMEOUT_S)
    if first is None:
        raise RuntimeError("the message did not come")
    first.release()
    connection.send("ready")
    while not connection.poll():
        receiver.receive(timeout=SECONDS)


def cpu_ns(pid: int) -> int:
    """Time on a core of all threads that a process has or had, in ns: its CPU-time clock
    (clock_getcpuclockid(3))."""
    return time.clock_gettime_ns((~pid << 3) | 2)


def private_bytes(pid: int) -> int:
    """Memory that only this process has mapped, rings and logs of others not counted."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return sum(int(kib) << 10 for kib in re.findall(r"^Private_\w+:\s+(\d+) kB", text, re.MULTILINE))


def _window(bench: Bench, pids: Mapping[str, int]) -> dict[str, Sample]:
    """Case -> what it was over SECONDS."""
    before = {name: cpu_ns(pid) for name, pid in pids.items()}
    start = time.monotonic_ns()
    time.sleep(SECONDS)
    elapsed = time.monotonic_ns() - start
    share = {name: 100 * (cpu_ns(pid) - before[name]) / elapsed for name, pid in pids.items()}
    probe = bench.probe()

    def one(value: float, unit: str) -> Sample:
        return Sample(value, unit, probe, 0, 0, 0, Series("").latencies)

    found = {"idle": one(sum(share.values()), "%")}
    for name, pid in pids.items():
        found[f"idle-{name}"] = one(share[name], "%")
        found[f"memory-{name}"] = one(private_bytes(pid) / 2**20, "MiB")
    return found


def _series(bench: Bench, pids: Mapping[str, int]) -> list[Series]:
    """Windows one after another: a host that is busy elsewhere counts as time of whoever runs, and is seldom
    busy in most."""
    time.sleep(SETTLE_S)
    titles = {"idle": f"all three over {SECONDS:.0f} s, share of one core"}
    for name in pids:
        titles[f"idle-{name}"] = f"{name}, share of one core"
        titles[f"memory-{name}"] = f"{name}, private memory of the interpreter"
    windows = [_window(bench, pids) for _ in range(bench.runs)]
    return [Series(case, title, [window[case] for window in windows]) for case, title in titles.items()]


def measure(bench: Bench) -> Iterator[Series]:
    """All of it in one set-up."""
    with ExitStack() as stack:
        stack.enter_context(domain(bench))
        store = stack.enter_context(running_store(bench, STORE, "memory"))
        source = stack.enter_context(Far(bench, silent_source))
        receiver = stack.enter_context(Far(bench, blocked_receiver))
        yield from _series(bench, {"source": source.pid, "receiver": receiver.pid, "store": store})
        receiver.tell("end")


SCRIPT = Script("idle", "What do processes cost that have nothing to do?", measure)

if __name__ == "__main__":
    run_one(SCRIPT)
