"""Names of the wait strategies (csrc/wait.h)."""

from __future__ import annotations

from .core import lib

__all__ = ["STRATEGIES"]

STRATEGIES = {
    "busy_spin": lib.HF_WAIT_BUSY_SPIN,
    "yield": lib.HF_WAIT_YIELD,
    "backoff": lib.HF_WAIT_BACKOFF,
    "block": lib.HF_WAIT_BLOCK,
}
