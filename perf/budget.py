"""Where the time of a message goes: each hot path by itself, beside the bare work that it cannot do without.

core 0: send -> receive | poll | batch | copy -> append -> ack -> release
        one thread: no wait for another core's cache lines

Times are medians of native runs, with [min .. max]; all cases are interleaved, the clock beside the send that
reads it. Times in which the clock alone takes longer than that send are refused: something else ran
meanwhile. Instructions and cache lines (misses of the first-level cache, in a ring that is larger than it)
are callgrind's: exact, and the same on every run; without valgrind they are left out. Messages have 128
bytes.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .cli import README
from .harness import Bench
from .machine import machine
from .report import insert_into, quantity

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from .harness import Series

BYTES = 128
RUNS = 9
"""That count, of each case, interleaved: who is disturbed in four of them still has the median of the
others."""
SIMULATED_ROUNDS = 20
CHUNK = 1024
"""Messages of a round (perf/c/path_cases.c)."""
ENVIRONMENT = {"GLIBC_TUNABLES": "glibc.cpu.x86_rep_movsb_threshold=1073741824"}
"""`rep movsb` would count as an instruction per byte."""
EVENTS = ("Ir", "Dr", "Dw", "I1mr", "D1mr", "D1mw", "ILmr", "DLmr", "DLmw")


@dataclass(frozen=True, slots=True)
class HotPath:
    """One hot path; ``bare``: the work that no design can leave out. ``why``: what the difference is spent
    on."""

    case: str
    title: str
    bare: str
    why: str


PATHS = (
    HotPath(
        "send",
        "send: `hf_source_send`, one message",
        "bare-send",
        "The time of sending is read from the clock, which by itself costs {clock}: next to it little "
        "else counts. A frame has a header of 32 bytes, half a cache line. Position, number and payload are "
        "compared with three limits; the next commit word is zeroed and the lines ahead are prefetched; tail "
        "and number are stored for newcomers, and one load looks for sleepers.",
    ),
    HotPath(
        "rows",
        "send: `hf_source_send_rows`, 64 at once",
        "bare-send",
        "One clock, one look at the limits, one tail, one look for sleepers for 64 messages. What is left is "
        "the header (half a line), the zeroed commit word behind, and the prefetches, which pay when a reader "
        "on another core had the lines.",
    ),
    HotPath(
        "poll",
        "poll: `hf_reader_receive` finds nothing",
        "nothing",
        "One line is looked at where the next commit word will be, and two of the stream's header: whether "
        "the source has overrun this place, and whether it closed. All three stay in this core's cache until "
        "the source changes them. The rest are the checks that the reader is awake and in the process that "
        "opened it.",
    ),
    HotPath(
        "receive",
        "deliver: `hf_reader_receive`, one copy",
        "bare-receive",
        "The header (half a line): number, length and kind are checked before they are used, and after the "
        "copy the trail, whether the source has overrun it meanwhile. The entry that is filled has six "
        "fields.",
    ),
    HotPath(
        "batch",
        "deliver: `hf_reader_batch` and unpin, 256 in place",
        "bare-receive",
        "The payload is not touched, so only the headers' lines come: one per message. The same checks, one "
        "pin for all 256.",
    ),
    HotPath(
        "copy",
        "store: `hf_reader_copy`, ring to private memory",
        "bare-receive",
        "The frames are copied as they are, then walked: whole messages only, each checked, and the trail "
        "once for all. That walk reads what the copy has just written: instructions, but no cache line from "
        "elsewhere.",
    ),
    HotPath(
        "append",
        "store: `hf_log_append`, private memory to log",
        "bare-append",
        "A checksum over header and payload, three frames at a time (the bare loop does one after the other, "
        "so it is slower), with the log's position in each header. The frames are checked again: nothing "
        "enters a log that the log itself has not looked at.",
    ),
    HotPath(
        "ack",
        "ack: `hf_board_ack`",
        "nothing",
        "Two stores in a line that only this participant writes, once per batch, not per message. The rest "
        "are the checks that the line is this process's, that neither position goes back, and whether the "
        "source waits: one load.",
    ),
    HotPath(
        "release",
        "release: `hf_source_release`, 1024 at once",
        "nothing",
        "From remembered steps, not frame by frame: nothing that counts.",
    ),
)


@dataclass(frozen=True, slots=True)
class Counted:
    """Per message: instructions, and cache lines that were read and written and were not in the first-level
    cache."""

    instructions: float
    lines_read: float
    lines_written: float


def counted(printed: str, messages: int) -> Counted:
    """Of a callgrind output file. Raises ValueError if its events are not those that were asked for."""
    fields = dict(line.split(":", 1) for line in printed.splitlines() if line.startswith(("events:", "totals:")))
    names, values = fields.get("events", "").split(), [int(value) for value in fields.get("totals", "").split()]
    if tuple(names) != EVENTS or not values:
        raise ValueError(f"callgrind counted {names}, not {EVENTS}")
    found = dict(zip(EVENTS, [*values, *[0] * len(EVENTS)], strict=False))  # zeros at the end are left out
    return Counted(found["Ir"] / messages, found["D1mr"] / messages, found["D1mw"] / messages)


def simulate(bench: Bench, case: str) -> Counted:
    """One path under callgrind. Raises CalledProcessError if it fails."""
    target: Path = bench.memory / f"callgrind-{case}"
    tool = ["valgrind", "--tool=callgrind", "--cache-sim=yes", "--toggle-collect=path_measured"]
    program = [str(bench.program), "--memory", str(bench.memory), "--disk", str(bench.disk), "--probes", "no"]
    command = [*tool, f"--callgrind-out-file={target}", *program, "1", f"path:{case}:{BYTES}:{SIMULATED_ROUNDS}"]
    subprocess.run(command, check=True, capture_output=True, timeout=300, env={**os.environ, **ENVIRONMENT})
    return counted(target.read_text(), SIMULATED_ROUNDS * CHUNK)


def checked(series: Mapping[str, Series]) -> Mapping[str, Series]:
    """The same. Raises ValueError if reading the clock took longer than a send, which reads it once."""
    clock, send = series["clock"].median, series["send"].median
    if clock > send:
        raise ValueError(
            f"one reading of the clock took {quantity(clock, 'ns')}, a send that reads it once {quantity(send, 'ns')}: "
            "this machine was disturbed; measure again when it is quiet"
        )
    return series


def table(series: Mapping[str, Series], counts: Mapping[str, Counted], facts: Mapping[str, object]) -> str:
    """A row per path with its bare work, then a line on what makes the difference.

    ``series``, ``counts``: by case. ``facts``: of the machine.
    """
    probe = statistics.median(one.probe_ns for one in series.values())
    where = f"{facts['cpu']}, {facts['cores']} cores, probe {quantity(probe, 'ns')}, commit {facts['commit']}"
    lines = [
        f"Messages of {BYTES} B, per message; *bare* is the copy, the checksum or the store that no design can leave out. "
        f"Medians of {len(series['clock'].values)} runs with [min .. max]; {where}.",
        "",
        "| path | time | bare | instructions | bare | lines read + written | bare |",
        "|---|---|---|---|---|---|---|",
    ]
    for path in PATHS:
        times = [_time(series[case]) for case in (path.case, path.bare)]
        cells = [
            (f"{one.instructions:.0f}", _moved(one)) for case in (path.case, path.bare) if (one := counts.get(case))
        ]
        if len(cells) < 2:
            cells = [("not measured: no valgrind",) * 2] * 2
        row = [path.title, *times, cells[0][0], cells[1][0], cells[0][1], cells[1][1]]
        lines.append(f"| {' | '.join(row)} |")
    clock = quantity(series["clock"].median, "ns")
    return "\n".join([*lines, "", *(f"* **{path.title}.** {path.why.format(clock=clock)}" for path in PATHS)])


def _time(series: Series) -> str:
    middle, low, high = (quantity(value, "ns") for value in (series.median, min(series.values), max(series.values)))
    return f"{middle} [{low} .. {high}]"


def _moved(one: Counted) -> str:
    return f"{one.lines_read:.1f} + {one.lines_written:.1f}"


def main() -> None:
    """Measures all paths and writes perf/README.md. Raises ValueError, and writes nothing, for what
    ``checked`` refuses."""
    names = list(dict.fromkeys(("clock", *(name for path in PATHS for name in (path.case, path.bare)))))
    with Bench(RUNS) as bench:
        found = bench.cases({f"path:{name}:{BYTES}": "" for name in names})
        series = checked(dict(zip(names, found, strict=True)))
        counts = {name: simulate(bench, name) for name in names[1:]} if shutil.which("valgrind") else {}
        text = table(series, counts, machine(bench.cores, bench.disk))
    insert_into(README, text, "budget")
    print(text)


if __name__ == "__main__":
    main()
