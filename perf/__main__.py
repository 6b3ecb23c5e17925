"""``python -m perf``: every question in turn, in less than eight minutes (``make perf``)."""

from __future__ import annotations

from . import acks, awaiting, channel, copies, idle, latency, limits, recovery, store, store_start, throughput
from .cli import run_all

if __name__ == "__main__":
    run_all(
        [
            one.SCRIPT
            for one in (
                limits,
                latency,
                throughput,
                acks,
                store,
                copies,
                store_start,
                recovery,
                channel,
                idle,
                awaiting,
            )
        ]
    )
