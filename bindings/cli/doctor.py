"""``holdfast doctor``: is this machine, and this domain, fit for use?"""

from __future__ import annotations

from ..engine.memory.domain import Domain
from ..engine.tools.doctor import examine
from .lines import say, say_json

__all__ = ["diagnose"]


def diagnose(json: bool, name: str | None) -> int:
    """Prints every finding, each that is not good with its remedy. 0 when all are good, else 1."""
    domain = Domain(name, join=False, make=name is None)
    try:
        findings = examine(domain)
    finally:
        domain.close()
    bad = [finding for finding in findings if not finding.ok]
    if json:
        say_json(findings, indent=True)
        return 1 if bad else 0
    for finding in findings:
        say(f"{'ok  ' if finding.ok else 'FAIL'}  {finding.check:<10}  {finding.found}")
        if finding.remedy:
            say(f"      remedy: {finding.remedy}")
    say(f"{len(bad)} of {len(findings)} need attention" if bad else "all is well")
    return 1 if bad else 0
