"""What a harness has to show, for EVIDENCE.md: one JSON file per harness and run, in the directory
$HOLDFAST_EVIDENCE.

Without that variable nothing is written. Nothing in EVIDENCE.md is typed by hand (tests/evidence_report.py).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["DIRECTORY", "Evidence", "record"]

DIRECTORY = "HOLDFAST_EVIDENCE"


class Evidence(msgspec.Struct, forbid_unknown_fields=True):
    """One run of one harness."""

    name: str
    """Of the harness: ``torture``, ``power_cuts``; a row of the report."""
    counts: dict[str, int]
    """What it did: ``{"kills": 2000}``."""
    findings: int
    """What it found wrong with the product. The report is good only when it is 0 everywhere."""
    planted: tuple[int, int]
    """Planted bugs: caught, of how many."""
    seconds: float
    seed: int | None = None
    skipped: str = ""
    """Why it could not run on this machine; then it shows nothing, and nothing is held against it."""


def record(
    name: str,
    *,
    counts: Mapping[str, int],
    findings: int,
    planted: tuple[int, int] = (0, 0),
    seconds: float,
    seed: int | None = None,
    skipped: str = "",
) -> None:
    """Writes one run down, where $HOLDFAST_EVIDENCE says. Raises OSError when that directory cannot be
    written."""
    directory = os.environ.get(DIRECTORY)
    if not directory:
        return
    path = Path(directory)
    path.mkdir(parents=True, exist_ok=True)
    run = Evidence(name, dict(counts), findings, planted, round(seconds, 1), seed, skipped)
    (path / f"{name}-{os.getpid()}.json").write_bytes(msgspec.json.encode(run))
