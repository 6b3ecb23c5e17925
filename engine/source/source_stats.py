"""The counters of a source, and each store as it sees it: what ``Source.stats`` gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..rules.registration import Phase

if TYPE_CHECKING:
    from ..rules.flight import InFlight

__all__ = ["STATES", "SourceStats", "StoreStats"]

STATES = {
    Phase.ACTIVE: "active",
    Phase.GRANTED: "catching_up",
    Phase.ANNOUNCED: "catching_up",
    Phase.CATCHING_UP: "catching_up",
    Phase.SUSPENDED: "suspended",
    Phase.IDLE: "idle",
}


@dataclass(frozen=True, slots=True)
class StoreStats:
    """One store as a source sees it."""

    state: str
    """``active``, ``catching_up``, ``full`` (it has no room for messages), ``suspended`` (its link holds, and
    it does nothing), ``down``, or ``idle``: a backup."""
    group: int
    registration_id: int
    stable_sequence_number: int
    """Highest number that this store reports as stable, -1 for none."""


@dataclass(frozen=True, slots=True)
class SourceStats:
    """Counters of one source object."""

    stores: dict[str, StoreStats]
    messages: int
    bytes: int
    stable_sequence_number: int
    in_flight: InFlight
    retained_bytes: int
    blocked_ns: int
    """Time that sends spent waiting for room."""
    forced_reclaims: int
    """Messages, in fragments, that were reclaimed before it was time (docs/semantics.md D.2)."""
