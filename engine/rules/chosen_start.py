"""Where a receiver starts when its program says so: ``ctx.receiver(start=...)``, rules without I/O
(docs/semantics.md F.1).

A start holds for each source on its own, once: when the receiver registers with it. It is not applied where
the session has a position already, unless the program resets it. So neither a store that returns nor the
source's next incarnation applies it again.

"latest" means what is published after the receiver was made, not after it was registered: registration may
take long, and a source may begin meanwhile. A start that lies ahead of all that was published by then means
the same, for a receiver skips nothing that is published after it was made.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal

from ..errors import ConfigError
from .reconcile import void_from

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .reconcile import BeginOf

__all__ = [
    "ChosenStart",
    "Published",
    "chosen_number",
    "datetime_ns",
    "first_sent_since",
    "latest_number",
    "parsed_start",
    "whole_number",
]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
HINT = '"earliest", "latest", a sequence number, or a datetime with a time zone'


@dataclass(frozen=True, slots=True)
class ChosenStart:
    """What the program has asked for."""

    place: Literal["earliest", "latest", "time"] | int
    """An int is a sequence number."""
    time_ns: int
    """CLOCK_REALTIME; of "time" alone."""
    reset: bool
    """It holds for a session that has a position, too."""


@dataclass(frozen=True, slots=True)
class Published:
    """How far the sources had come when a receiver was made."""

    time_ns: int
    """CLOCK_REALTIME of that moment."""
    rings: Mapping[bytes, tuple[int, int]]
    """uuid of each source that had a ring -> incarnation of the ring, number behind its last message."""


def parsed_start(start: object, *, reset: bool) -> ChosenStart | None:
    """What ``start`` and ``reset`` of ``Context.receiver`` ask for; None: nothing. Raises ConfigError."""
    if start is None:
        if reset:
            raise ConfigError("reset=True without start", hint=f"say where to go with start=: {HINT}")
        return None
    if isinstance(start, datetime):
        return ChosenStart("time", datetime_ns("start", start), reset)
    if start == "earliest" or start == "latest":
        return ChosenStart("earliest" if start == "earliest" else "latest", 0, reset)
    number = whole_number(start)
    if number is None or number < 0:
        raise ConfigError(f"start {start!r}", hint=HINT)
    return ChosenStart(number, 0, reset)


def datetime_ns(name: str, given: datetime) -> int:
    """The time of argument ``name``, ns since 1970 UTC. Raises ConfigError: it has no time zone."""
    if given.utcoffset() is None:
        hint = f"datetime.now(UTC), or {name}.astimezone() for the time zone of this host"
        raise ConfigError(f"{name}={given.isoformat()} has no time zone", hint=hint)
    return (given - EPOCH) // timedelta(microseconds=1) * 1000


def whole_number(given: object) -> int | None:
    """An int, or what stands for one, such as numpy's; None: it is none."""
    try:
        return None if isinstance(given, bool) else operator.index(given)  # type: ignore[arg-type]  # or it raises
    except TypeError:
        return None


def chosen_number(
    chosen: ChosenStart, oldest: int, end: int, came: int, latest: Callable[[], int], since: Callable[[int], int]
) -> int:
    """The first number to deliver.

    Args:
        chosen: what the program has asked for.
        oldest: first number that can still be read.
        end: number behind the last one that is published.
        came: as ``latest``, as far as numbers say it; ``end`` where none does.
        latest: first number that was published after the receiver was made.
        since: first number that was published at or after a time, ``end`` for none.
    """
    match chosen.place:
        case "earliest":
            number = oldest
        case "latest":
            number = latest()
        case "time":
            number = since(chosen.time_ns)
            number = latest() if number >= end else min(number, came)
        case asked:  # a number that may be read is not measured by a clock, which may be wrong
            number = latest() if asked > end else min(asked, came)
    return min(max(number, oldest), end)


def latest_number(
    ring_then: tuple[int, int] | None, table: Sequence[BeginOf], ring_start: int | None, since: Callable[[], int]
) -> int:
    """The first number that was published after the receiver was made; what cannot be told counts as such.

    The clock is asked only where no number says it. A ring that is there now and was not there then began
    later, whatever the clock says.

    Args:
        ring_then: the source's ring of that moment, as in :class:`Published`; None: it had none.
        table: BEGINs that hold now. Those behind the ring's began later.
        ring_start: first number of the ring that is there now; None: there is none.
        since: first number that was published after that moment by the clock.
    """
    if ring_then is not None:
        incarnation, number = ring_then
        return min(number, void_from(table, incarnation))
    number = since()
    return number if ring_start is None else min(number, ring_start)


def first_sent_since(sent: Callable[[int, int], tuple[int, int] | None], low: int, high: int, time_ns: int) -> int:
    """The first number in [low, high) that was published at ``time_ns`` or later; ``high``: there is none.

    By bisection: time stamps ascend, unless the clock was set back meanwhile. What cannot be read counts as
    later.

    Args:
        sent: number and time of the first readable message from a number on, below another one; the number is
            its last one.
        low, high, time_ns: see above; the time is CLOCK_REALTIME.
    """
    while low < high:
        middle = (low + high) // 2
        found = sent(middle, high)
        if found is not None and found[1] < time_ns:
            low = found[0] + 1
        else:
            high = middle
    return low
