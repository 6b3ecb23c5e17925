"""What a store daemon is to do, however it was written down."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..engine.options.store_config import StoreConfig

__all__ = ["MEGA", "DaemonConfig", "LogConfig"]

MEGA = 1_000_000
"""Sizes of log files are in millions of bytes (the specification; UM's reference has 2^20)."""


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Where log lines go, and when a file is rolled."""

    path: str | None = None
    """None: standard error."""
    size: int = 10
    """Millions of bytes; 0 = no roll by size."""
    frequency: str = "disable"
    """``disable``, ``daily``, ``hourly``, or ``test``: every minute."""
    keep: int = 0
    """How many rolled files stay; 0 = all."""


@dataclass(frozen=True, slots=True)
class DaemonConfig:
    """Several stores that live in one process."""

    stores: tuple[StoreConfig, ...]
    log: LogConfig = field(default_factory=LogConfig)
    pidfile: str | None = None
    uid: int | None = None
    gid: int | None = None
    warnings: tuple[str, ...] = ()
    """What the configuration says without any effect, one line each: logged at the start."""
