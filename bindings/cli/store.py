"""``holdfast store run`` and ``holdfast store check``."""

from __future__ import annotations

import logging
import os
import signal
import sys

from ..engine.check import LogReport, StoreReport, check_store
from ..engine.store import Store, StoreConfig
from .options import pairs

__all__ = ["check_stores", "run_store"]

DAMAGED = 5


def run_store(name: str, directory: str, kind: str, domain: str | None, options: list[str]) -> int:
    """Serves until a signal. What it holds is safe at any moment; the orderly end only saves the next start some work."""
    logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.WARNING)
    store = Store(StoreConfig(name, directory, domain=domain, type=kind, options=pairs(options)))

    def stop(number: int, _: object) -> None:
        store.stop()
        for again in (signal.SIGINT, signal.SIGTERM):
            signal.signal(again, signal.SIG_DFL)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    try:
        store.open()
        where = f"{kind}, {store.directory.path}, domain {store.domain.name}, pid {os.getpid()}"
        print(f"store {name} is ready: {where}", file=sys.stderr, flush=True)
        store.run()
    finally:
        store.close()
    return 0


def check_stores(directories: list[str], json: bool) -> int:
    """Checks each directory and says what was found; 5 if something is damaged."""
    reports = [check_store(directory) for directory in directories]
    if json:
        import msgspec

        sys.stdout.write(msgspec.json.encode(reports).decode() + "\n")
    else:
        for report in reports:
            _print(report)
    return DAMAGED if any(report.damaged for report in reports) else 0


def _print(report: StoreReport) -> None:
    named = f" (store {report.name})" if report.name else ""
    verdict = "DAMAGED" if report.damaged else "clean"
    print(f"{report.directory}{named}: {len(report.logs)} logs, {verdict}")
    if report.error:
        print(f"  {report.error}")
    for log in report.logs:
        _print_log(log)


def _print_log(log: LogReport) -> None:
    kept = f"numbers {log.oldest}..{log.next - 1}" if log.next > log.oldest else "empty"
    print(
        f"  {log.topic or log.source}: {log.messages:,} messages, {kept}, {log.segments} segments, {log.bytes:,} bytes, "
        + ("DAMAGED" if log.damaged else "clean")
    )
    if log.error:
        print(f"    {log.error}")
    for found in log.findings:
        cost = f"numbers {found.first}..{found.next - 1}" if found.next > found.first else "no message"
        print(f"    {found.kind} in {found.segment} at {found.position}, {found.bytes} bytes: {cost}")
