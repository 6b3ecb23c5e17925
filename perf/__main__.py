"""``python -m perf``: every question in turn, in less than six minutes (``make perf``)."""

from __future__ import annotations

from . import acks, idle, latency, limits, recovery, store, throughput
from .cli import run_all

if __name__ == "__main__":
    run_all([one.SCRIPT for one in (limits, latency, throughput, acks, store, recovery, idle)])
