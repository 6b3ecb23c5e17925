"""``holdfast doctor``: is this machine, and this domain, fit for use?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..engine.memory.domain import Domain
from ..engine.tools.doctor import Machine, examine
from .all_domains import each_domain, exclude, heading
from .lines import say, say_json

if TYPE_CHECKING:
    from ..engine.tools.doctor import Finding

__all__ = ["diagnose"]


def diagnose(json: bool, name: str | None, all_domains: bool) -> int:
    """Prints every finding, each that is not good with its remedy. 0 when all are good, else 1."""
    if all_domains:
        exclude(name)
        return _diagnose_all(json)
    domain = Domain(name, join=False, make=name is None)
    try:
        findings = examine(domain)
    finally:
        domain.close()
    if json:
        say_json(findings, indent=True)
    else:
        _tell(findings)
    return _code(findings)


def _diagnose_all(json: bool) -> int:
    """With JSON: a list of objects, with ``domain`` (its path) and ``findings``, or ``error``."""
    machine, worst, told = Machine(), 0, list[dict[str, object]]()
    for path, findings, why, code in each_domain(lambda domain: examine(domain, machine)):
        if json:
            told.append({"domain": path, "error": why} if findings is None else {"domain": path, "findings": findings})
        else:
            heading(path, why)
            if findings is not None:
                _tell(findings)
        worst = max(worst, code, _code(findings or []))
    if json:
        say_json(told, indent=True)
    return worst


def _code(findings: list[Finding]) -> int:
    return 0 if all(finding.ok for finding in findings) else 1


def _tell(findings: list[Finding]) -> None:
    bad = [finding for finding in findings if not finding.ok]
    for finding in findings:
        say(f"{'ok  ' if finding.ok else 'FAIL'}  {finding.check:<10}  {finding.found}")
        if finding.remedy:
            say(f"      remedy: {finding.remedy}")
    say(f"{len(bad)} of {len(findings)} need attention" if bad else "all is well")
