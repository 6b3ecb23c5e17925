"""Who still has to get what a store keeps of a source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .registry import called

if TYPE_CHECKING:
    from ..log.state_file import ReceiverState, SourceState

__all__ = ["needed", "owed"]


def owed(source: SourceState, following: int) -> list[ReceiverState]:
    """Receivers that somebody asked to keep, and that have not acknowledged all of it. ``following``: number
    behind the last message that is kept."""
    return [each for each in source.receivers if not each.ephemeral and each.ack < following]


def needed(source: SourceState, following: int) -> str:
    """Why no lifetime of the configuration makes a store forget what it keeps of a source that nobody holds;
    empty: nobody waits for it."""
    lacking = owed(source, following)
    if lacking:
        name = called(lacking[0].registration_id, lacking[0].session_id)
        more = f", and {len(lacking) - 1} more" if len(lacking) > 1 else ""
        return f"owed to receiver {name}{more}"
    return "" if source.met or source.receivers else "no receiver has ever registered with it"
