"""What a store remembers of the receivers of a source (engine/log/state_file.py)."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

__all__ = ["Acked", "ReceiverState"]


class ReceiverState(msgspec.Struct, omit_defaults=True):
    """A receiver of one source."""

    uuid: bytes
    registration_id: int
    session_id: int
    ack: int
    """Everything below is acknowledged."""
    activity_timeout: int = 0
    state_lifetime: int = 0
    """Milliseconds, as its first registration asked for them; 0 = the store's."""
    gone_ns: int = 0
    """CLOCK_REALTIME since which nobody holds this registration; 0 = somebody does, or nobody has looked."""
    paced: int = 0
    """ume_receiver_paced_persistence, as its first registration said: 1 blocking, 2 non-blocking."""
    joined: bool = True
    """Its line on the board was seen. Until then ``ack`` is only what it was granted."""
    ephemeral: bool = False
    """Nobody asked to keep it: forgotten at its end, where no state lifetime says otherwise
    (docs/semantics.md A.4)."""
    holder: tuple[int, int, int] = (0, 0, 0)
    """Of an ephemeral one: token, pid and start time of its process. They prove its death without the board,
    also to the next store process; token 0: nobody wrote it down."""


class Acked(NamedTuple):
    """What a receiver's line on the board says that it has."""

    number: int
    """Everything below, by the BEGINs that the store knows."""
    joined: bool
    """It says itself where it went on: this holds also where the store has written down more."""
