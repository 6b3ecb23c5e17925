"""Registers of sources that a test writes by hand (engine/log/register.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from support.changing_stores import SESSION

from holdfast.engine.log.register import SourceRegister
from holdfast.engine.memory.domain import Domain
from holdfast.engine.rules.quorum import Groups

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["OTHER", "PAIR", "UUID", "file_of", "source_register"]

UUID, OTHER = b"u" * 16, b"v" * 16
"""Identities of two sources."""
PAIR = Groups.single(2)


def source_register(names: str = "ab", groups: Groups = PAIR, topic: str = "quotes") -> SourceRegister:
    """Of a source that declares these stores now, a letter each."""
    domain = Domain()
    try:
        return SourceRegister(domain, topic, SESSION, (), tuple(names), groups)
    finally:
        domain.close()


def file_of(registers: Path) -> Path:
    """The only file there."""
    (found,) = registers.iterdir()
    return found
