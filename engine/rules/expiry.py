"""When a store forgets a source or a receiver that is gone: rules without I/O (docs/semantics.md A.4).

The clocks start when nobody holds the registration any more: at a clean close, or when the holder's death is
proved. Silence of a living process starts none. A RegID is free from then on; its state goes at the later of
activity timeout and state lifetime, and without a state lifetime it stays until deregistration. A receiver
that nobody asked to keep (no session ID, no RegID callback, no state lifetime: *ephemeral*) goes at its end.

How long somebody is gone is counted on CLOCK_MONOTONIC. What outlives the store is the time of day when it
began; after a clock that was set back, that lies in the future, and the count begins again: later than
promised, never earlier, and never not at all.
"""

from __future__ import annotations

import math
from typing import NamedTuple

__all__ = ["Absences", "End", "Look", "Now", "Timers", "ephemeral_after_ns", "forget_after_ns"]


class Timers(NamedTuple):
    """The two settings of one side, milliseconds; 0 = not set."""

    activity_ms: int = 0
    lifetime_ms: int = 0


UNSET = Timers()


def forget_after_ns(client: Timers, store: Timers) -> int | None:
    """How long after its end a source or receiver is remembered, ns; None = for ever.

    ``client``: what its first registration asked for. The activity timeout is the client's, else the store's;
    the state lifetime is the shorter of the two that are set; what comes later decides.
    """
    activity = client.activity_ms or store.activity_ms
    lifetime = min((each for each in (client.lifetime_ms, store.lifetime_ms) if each), default=0)
    return max(activity, lifetime) * 1_000_000 if lifetime else None


ASKS_NS = 1_000_000_000
"""Where the activity timeout is 0: a process that is connected has asked for its registration by then."""


class End(NamedTuple):
    """What a store knows of the end of an ephemeral receiver that nobody holds just now."""

    left: bool
    """It has released its line on the board."""
    dead: bool
    """Its process is proved dead."""
    connected: bool
    """Its process is connected to this store, and does not ask for it."""


def ephemeral_after_ns(end: End, activity_ns: int) -> int | None:
    """As :func:`forget_after_ns`, of a receiver that nobody asked to keep, where no lifetime is set.

    It goes when it has ended. A process that lives may have lost only its connection, or its line: it is
    waited for until it has been here for its activity timeout without asking.
    """
    if end.left or end.dead:
        return 0
    return activity_ns or ASKS_NS if end.connected else None


class Now(NamedTuple):
    """One moment on two clocks, ns."""

    monotonic_ns: int
    realtime_ns: int


class Look(NamedTuple):
    """How one registration stands."""

    gone_ns: int
    """CLOCK_REALTIME since which nobody holds it, to be saved; 0 = somebody does."""
    over: bool
    """It is to be forgotten."""


class Absences:
    """How long each registration has been without a holder, since this store began to look."""

    def __init__(self) -> None:
        self._since: dict[tuple[bytes, ...], int] = {}

    def look(self, key: tuple[bytes, ...], held: bool, gone_ns: int, after_ns: int | None, now: Now) -> Look:
        """One look at a registration.

        Args:
            key: any name of it that stays the same.
            held: somebody holds it.
            gone_ns: what the last look, perhaps of an earlier store process, gave to save; 0 if it was
                granted since.
            after_ns: as :func:`forget_after_ns` says.
        """
        if held:
            self._since.pop(key, None)
            return Look(0, False)
        since = self._since.get(key)
        if since is None or not gone_ns:
            gone_ns = min(gone_ns or now.realtime_ns, now.realtime_ns)  # in the future: the clock was set back
            since = self._since[key] = now.monotonic_ns - (now.realtime_ns - gone_ns)
        return Look(gone_ns, after_ns is not None and now.monotonic_ns - since >= after_ns)

    def due_ns(self, key: tuple[bytes, ...], after_ns: int | None) -> float:
        """When a registration that nobody holds is to be forgotten, CLOCK_MONOTONIC, if all stays as the last
        look found it; inf: never, -inf: it is held, or was not looked at."""
        since = self._since.get(key)
        if since is None:
            return -math.inf
        return math.inf if after_ns is None else since + after_ns

    def forget(self, key: tuple[bytes, ...]) -> None:
        """It is not there any more."""
        self._since.pop(key, None)
