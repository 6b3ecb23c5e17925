"""What the pipeline's functions say while they run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Progress", "Tell", "silent"]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far something is."""

    what: str
    """Such as ``reading``; another one is another bar."""
    done: int
    total: int | None
    """None where nobody knows."""
    unit: str
    """Of both: ``messages``, ``ranges``."""


Tell = Callable[[Progress], None]


def silent(_: Progress) -> None:
    """For who wants to hear nothing."""
