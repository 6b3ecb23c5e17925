"""A signal ends what waits, and README's example runs: through the public names."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[3]
OPTIONS = {"ume_store_name": ["a:0:0"], "ume_flight_size": 100_000, "ring_size": 1 << 20}
SHORT = 90.0


@pytest.fixture
def store(run_store: Callable[..., object]) -> object:
    return run_store()


BLOCKED = """
import holdfast as hf, sys
ctx = hf.Context()
src = ctx.source("ticks", options={"ring_size": 1 << 16, **OPTIONS})
call = {
    "receive": lambda: ctx.receiver("ticks").receive(),
    "receive_batch": lambda: ctx.receiver("ticks").receive_batch(),
    "iterate": lambda: next(iter(ctx.receiver("ticks"))),
    "wait_registered": lambda: src.wait_registered(),
}[sys.argv[1]]
# numpy is imported: CPython makes an interrupt within an eval(), as namedtuple's, the exit status, though somebody catches it
ctx.receiver("ticks").receive_batch(timeout=0)
try:
    print("waiting", flush=True)
    call()
except KeyboardInterrupt:
    print("interrupted", flush=True)
ctx.close()
print("closed", flush=True)
"""


@pytest.mark.parametrize("call", ["receive", "receive_batch", "iterate", "wait_registered"])
def test_an_interrupt_ends_a_wait(call: str) -> None:
    options = "{'ume_store_name': ['nobody:0:0']}"
    interrupt(BLOCKED.replace("OPTIONS", options), call)


def interrupt(code: str, *arguments: str) -> None:
    with subprocess.Popen([sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "waiting\n"
            time.sleep(0.2)  # into the wait; should it come earlier, it is an interrupt all the same
            process.send_signal(signal.SIGINT)
            assert process.communicate(timeout=SHORT)[0] == "interrupted\nclosed\n"
            assert process.returncode == 0
        finally:
            process.kill()


SENDER = """
import holdfast as hf
ctx = hf.Context()
src = ctx.source("quotes", options={"ume_store_name": ["a:0:0"], "ume_flight_size": 1})
src.wait_registered(90)
try:
    print("waiting", flush=True)
    while True:
        src.send(b"x")
except KeyboardInterrupt:
    print("interrupted", flush=True)
ctx.close()
print("closed", flush=True)
"""


def test_an_interrupt_ends_a_send_that_waits_for_room(store: Any) -> None:
    interrupt(SENDER)


def test_the_example_of_the_readme_runs_as_it_stands(run_store: Callable[..., object], tmp_path: Path) -> None:
    code, *_ = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)  # the next one: Spark
    run_store(name="a", kind="disk")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    assert re.findall(r"b'(.*)'", done.stdout) == ["UA1545 EWR IAH", "UA1714 LGA IAH", "AA1141 JFK MIA"]


THROWN_AWAY = """
import gc, sys
import holdfast as hf
for _ in range(5):
    ctx = hf.Context()
    src = ctx.source("ticks", options={"ring_size": 1 << 16})
    src.wait_registered(90)
    rcv = ctx.receiver("ticks")
    src.send(b"x")
    held = rcv.receive_batch(timeout=90)  # pins the ring on the board, and is never released
    assert held is not None
    if sys.argv[1] == "closed":
        ctx.close()
        cycle = [held]
        cycle.append(cycle)  # so that the collector finds all of it at once, and chooses the order
        del ctx, src, rcv, held, cycle
        gc.collect()
"""


@pytest.mark.parametrize("how", ["closed", "open"])
def test_what_is_thrown_away_while_it_is_held_ends_quietly(how: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", THROWN_AWAY, how], capture_output=True, text=True, timeout=180, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
