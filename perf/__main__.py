"""``python -m perf``: every question in turn, in less than eight minutes (``make perf``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import (
    acks,
    awaiting,
    channel,
    copies,
    history,
    idle,
    latency,
    limits,
    page,
    recovery,
    store,
    store_start,
    throughput,
)
from .cli import README, RESULTS, run_all
from .report import insert_into

if TYPE_CHECKING:
    from pathlib import Path

SCRIPTS = [
    one.SCRIPT
    for one in (limits, latency, throughput, acks, store, copies, store_start, recovery, channel, idle, awaiting)
]


def write_pages() -> list[Path]:
    """The tables of perf/README.md and all of perf/HISTORY.md, from the committed results. Returns what was
    written."""
    insert_into(README, page.markdown(RESULTS, {script.name: script.question for script in SCRIPTS}))
    return [README, *history.write(RESULTS, history.PAGE)]


if __name__ == "__main__":
    run_all(SCRIPTS, write_pages)
