"""Every failpoint that csrc names, and the roles whose processes pass it."""

from __future__ import annotations

import re
from pathlib import Path

CSRC = Path(__file__).resolve().parents[2] / "csrc"
ROLES = ("source", "store", "receiver")
_NAME = re.compile(r'HF_FAIL(_STATUS)?\("(([a-z]+)\.[a-z_]+)"\)')
_PASSED_BY: dict[str, tuple[str, ...]] = {
    "begin": ("store",),
    "bell": ROLES,
    "board": ("store", "receiver"),
    "drain": ("store",),
    "fill": (),  # only where there is a peer to copy from: tests/c/test_log_fill.c dies at each of them
    "head": (),  # only where a log has none, or an old one: tests/c/test_head.c and test_upgrade.py die at each of them
    "log": ("store",),
    "open": ("store",),
    "process": ROLES,
    "reader": ("store", "receiver"),
    "renew": (),  # only behind a sync that failed: tests/c/test_log_faults.c dies at each of them
    "rest": (),  # only of a log whose source is over: tests/c/test_log_rest.c dies at each of them
    "retire": ("store",),
    "roll": ("store",),
    "segment": ROLES,
    "source": ("source",),
    "tally": (),  # only where a store takes longer than a source spins: tests/c/test_tally.c passes it
    "wait": ROLES,
}
_ELSEWHERE = {
    "board.copied": ("source", "store"),  # who reads boards
    "head.pwrite": ("store",),  # a group commit tells the head
}
_NEVER = {
    ("reader.pinned", "store"),  # a store copies, and never pins (docs/design.md 7)
}


def failpoints() -> list[tuple[str, str]]:
    """(name, role) of all. A KeyError: a name with a new first word, whose roles must be said above."""
    pairs = [(name, role) for name, part in sorted(_named().items()) for role in _ELSEWHERE.get(name, _PASSED_BY[part])]
    return [pair for pair in pairs if pair not in _NEVER]


def repair_points() -> list[str]:
    """Those of a store that copies from a peer."""
    return sorted(name for name, part in _named().items() if part == "fill")


def status_points() -> set[str]:
    """Those that can fail with an errno."""
    return {match[2] for match in _found() if match[1]}


def _found() -> list[re.Match[str]]:
    found = [match for path in sorted(CSRC.rglob("*.c")) for match in _NAME.finditer(path.read_text())]
    assert found, f"{CSRC} names no failpoint"
    return found


def _named() -> dict[str, str]:
    """The first word of each name."""
    return {match[2]: match[3] for match in _found()}
