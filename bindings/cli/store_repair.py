"""``holdfast store repair``: mends the logs of stores that do not run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..engine.tools.store_repair import RepairedLog, repair_stores
from .lines import say
from .store_check import DAMAGED, print_findings, print_heading, print_json

if TYPE_CHECKING:
    from ..engine.log.repair import Gap

__all__ = ["repair"]


def repair(directories: list[str], json: bool, domain: str | None) -> int:
    """Repairs, and says what was done; 5 if something stays damaged."""
    stores = repair_stores(directories, domain)
    if json:
        print_json(stores)
    else:
        for store in stores:
            print_heading(store)
            for log in store.logs:
                _print_log(log)
    return DAMAGED if any(store.damaged for store in stores) else 0


def _print_log(log: RepairedLog) -> None:
    verdict = "DAMAGED" if log.error or log.report.damaged else "clean"
    say(f"  {log.topic or log.source}: {log.filled:,} numbers copied ({log.bytes:,} bytes), {verdict}")
    if log.error:
        say(f"    {log.error}")
    for gap in log.left:
        say(f"    {_called(gap)}: in none of the others")
    print_findings(log.report)


def _called(gap: Gap) -> str:
    return f"numbers {gap.first}..{gap.next - 1} ({gap.kind})"
