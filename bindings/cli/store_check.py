"""``holdfast store check``: the logs of stores, each by itself or one against the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..engine.log.check import LogReport, StoreReport, check_store
from ..engine.log.compare import Comparison, compare_stores
from .lines import say, say_json

if TYPE_CHECKING:
    from ..engine.tools.store_repair import RepairedStore

__all__ = ["check_stores", "compare_logs", "print_findings", "print_heading", "print_json"]

DIFFERENT = 1
DAMAGED = 5


def print_json(reports: object) -> None:
    """One line; ``reports``: msgspec structs, in a list."""
    say_json(reports)


def check_stores(directories: list[str], json: bool) -> int:
    """Checks each directory and says what was found; 5 if something is damaged."""
    reports = [check_store(directory) for directory in directories]
    if json:
        print_json(reports)
    else:
        for report in reports:
            print_heading(report)
            for log in report.logs:
                _print_log(log)
    return DAMAGED if any(report.damaged for report in reports) else 0


def print_heading(report: StoreReport | RepairedStore) -> None:
    """The store, above the lines of its logs."""
    named = f" (store {report.name})" if report.name else ""
    verdict = "DAMAGED" if report.damaged else "clean"
    say(f"{report.directory}{named}: {len(report.logs)} logs, {verdict}")
    if report.error:
        say(f"  {report.error}")


def _print_log(log: LogReport) -> None:
    kept = f"numbers {log.oldest}..{log.next - 1}" if log.next > log.oldest else "empty"
    mended = f", {log.filled:,} repaired" if log.filled else ""
    say(
        f"  {log.topic or log.source}: {log.messages:,} messages{mended}, {kept}, {log.segments} segments, "
        f"{log.bytes:,} bytes, " + ("DAMAGED" if log.damaged else "clean")
    )
    print_findings(log)


def print_findings(log: LogReport) -> None:
    """One line for each, below that of the log."""
    if log.error:
        say(f"    {log.error}")
    for found in log.findings:
        cost = f"numbers {found.first}..{found.next - 1}" if found.costs else "no message"
        where = f" in {found.segment} at {found.position}, {found.bytes} bytes" if found.segment else ""
        say(f"    {found.kind}{where}: {cost}")


def compare_logs(directories: list[str], json: bool) -> int:
    """Compares them source by source; 1 if one has other messages than another."""
    found = compare_stores(directories)
    if json:
        print_json(found)
    else:
        for comparison in found:
            _print_comparison(comparison)
    return DIFFERENT if any(comparison.difference for comparison in found) else 0


def _print_comparison(found: Comparison) -> None:
    name = found.topic or found.source
    if found.difference is not None:
        say(f"{name}: DIFFERENT from number {found.difference.number} on")
        say(f"  {found.difference.directory}: {found.difference.text}")
    elif found.first == found.next:
        say(f"{name}: no number that all of them keep")
    else:
        say(f"{name}: equal, numbers {found.first}..{found.next - 1}")
