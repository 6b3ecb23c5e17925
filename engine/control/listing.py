"""Which sources does a store keep? The question and its answer, of the control protocol (wire.py)."""

from __future__ import annotations

import msgspec

from .fields import Number, Small, Uuid  # noqa: TC001  (msgspec decodes by it)

__all__ = ["ListSources", "Over", "SourceInfo", "Sources"]


class ListSources(msgspec.Struct, tag="list_sources", frozen=True):
    """Which sources do you keep on this topic (empty: on all)? By their uuids, a page at a time."""

    id: int
    topic: str
    after: bytes = b""
    """The last one of the page before."""
    source: bytes = b""
    """Only this one."""
    session_id: int = 0
    """Of the receiver that asks: how far has it come?"""
    since: Number = 0
    """Only what has changed since an answer with this ``mark``."""
    reader: bytes = b""
    """Names the receiver that asks, if it has a session: until it leaves (wire.Leave) or its connection ends,
    no lifetime of that session runs."""


class Over(msgspec.Struct, frozen=True):
    """All of the source is in its log, which the store has closed (engine/store/shelf.py)."""

    following: Number
    """Number behind its last message."""
    first_ns: int = 0
    """When the first message that is kept was sent, CLOCK_REALTIME; 0: nobody knows."""
    low: Number = 0
    """A new receiver starts no farther back."""
    acked: int = -1
    """What the session that asked has acknowledged: everything below; -1: it never was here."""
    receiver: bytes = b""
    registration_id: int = 0
    """Of that session."""


class SourceInfo(msgspec.Struct, frozen=True):
    """One source as a store knows it, living or dead."""

    uuid: Uuid
    topic: str
    registration_id: int
    session_id: int
    incarnation: int
    """The one that declared these stores; there may be a later one, with other stores."""
    stores: list[str]
    """Names of the stores that the source declared."""
    log: str
    late_join: bool = True
    """Receivers may recover from it."""
    start_sqn: int = 0
    """First number of this incarnation."""
    sizes: list[Small] = []
    groups: list[Small] = []
    """As in Begin."""
    over: Over | None = None


class Sources(msgspec.Struct, tag="sources", frozen=True):
    """Answer to ListSources."""

    id: int
    sources: list[SourceInfo]
    more: bool = False
    """Ask again for what comes after the last of these."""
    mark: Number = 0
    """Of this life of the store: ask with it for what has changed since."""
