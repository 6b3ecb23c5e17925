"""What a look at a domain says (snapshot.py) of its sources, receivers and stores: `stat --json` prints
it."""

from __future__ import annotations

import msgspec

from ..control.waits import Wait  # noqa: TC001  (msgspec encodes by it)

__all__ = ["ReceiverRow", "Snapshot", "SourceRow", "StorePosition", "StoreRow"]


class StorePosition(msgspec.Struct, frozen=True):
    """One store of a source."""

    name: str
    registration_id: int
    stable: int | None
    """Highest number that it holds at its level; None where nobody knows of a log or a line of its."""
    lag: int | None
    """Messages published and not there yet; None with ``stable``."""
    alive: bool
    group: int = 0
    state: str = ""
    """``active``; ``catching_up``; ``full`` (it has no room for messages); ``down``; ``idle`` (no seat: the
    source does not count it); ``unknown`` (of a nameless source)."""
    proxy: bool = False
    """It stands in for the source, which is dead (docs/semantics.md J.2)."""
    spare: bool = False
    """It is ``idle``, and other stores have all seats of its group: a backup that is not needed now."""


class SourceRow(msgspec.Struct, frozen=True):
    """One source identity."""

    topic: str
    uuid: str
    state: str
    """``live``; ``closed``; ``dead``; ``unknown`` (death cannot be proved); ``stored`` (no ring, a store
    keeps it); ``nameless`` (it lives, and its ring or board was removed from /dev/shm: nobody knows how far
    it is)."""
    registration_ids: dict[str, int]
    """Store name -> RegID."""
    session_id: int
    incarnation: int
    pid: int
    alive: bool
    next: int
    stable: int
    unstable: int
    """Messages published and not stable."""
    messages: int
    """Sent by this incarnation."""
    payload_bytes: int
    ring_bytes: int
    stores: list[StorePosition]
    board_error: str = ""
    """Why its board cannot be read: nobody knows then who has a line there."""


class ReceiverRow(msgspec.Struct, frozen=True):
    """One receiver of one source. Dead ones stay listed: their ack is where they will go on."""

    topic: str
    source_uuid: str
    source_registration_id: int
    registration_id: int
    session_id: int
    name: str
    """Of its context."""
    ack: int
    lag: int
    """Messages published and not acknowledged."""
    delivered: int
    redelivered: int
    lapped: int
    """Times that the ring overtook it."""
    pid: int
    alive: bool
    known: bool = True
    """False: it is dead, nobody has deregistered it, and no store that can be read knows it. A store may have
    lost its state, or have gone back to an older one: what the receiver lacks counts as owed."""
    uuid: str = ""
    """The receiver's. ``registration_id`` is one store's; this names it at all of them."""


class StoreRow(msgspec.Struct, frozen=True):
    """One store that ever ran in the domain."""

    name: str
    state: str
    """``running``; ``dead`` (killed); ``stopped``; ``unknown``."""
    type: str
    """Of its repositories: ``disk``, ``memory``, ``no-cache``; ``mixed`` when its topics differ."""
    directory: str
    pid: int
    sources: int
    """That it keeps; -1 when its state cannot be read."""
    read_only: bool = False
    """It runs, refuses sources and records nothing: its disk is read-only, or was when it started."""
    near: list[str] = []
    """Limits of its process that are used to 80 % or more, as ``RLIMIT_NOFILE of process 7 is 256, 240 are
    used``."""


class Snapshot(msgspec.Struct, frozen=True):
    """A whole domain."""

    domain: str
    sources: list[SourceRow]
    receivers: list[ReceiverRow]
    stores: list[StoreRow]
    waiting: list[Wait] = []
    """Receivers that cannot register, and why."""
