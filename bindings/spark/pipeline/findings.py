"""What an audit tells: values only."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import msgspec

__all__ = ["Audit", "Finding", "Kind", "ReceiverStanding", "Sample", "SourceAudit", "StoreAudit", "numbers"]

Kind = Literal[
    "gap", "damaged", "missing", "lost", "duplicate", "divergence", "absent", "behind", "unstable", "lag", "expired"
]


@dataclass(frozen=True, slots=True)
class Finding:
    """What should not be. Numbers ``first`` .. ``next - 1`` of a source are concerned."""

    kind: Kind
    """Of messages: ``gap``: no store has them. ``damaged``, ``missing``, ``lost``: one store has not, and
    another one has. ``duplicate``: one store has a number twice. ``divergence``: stores have something else
    under one number. Of who is behind: ``absent``: a store has no log of the source. ``behind``: a store has
    not got these. ``unstable``: no quorum has. ``lag``: a receiver has not acknowledged these. ``expired``:
    and cannot get them any more."""
    topic: str
    source: str
    """Its key (kept_topics.TopicSource.key)."""
    store: str
    """Whose it is; several with commas; "" where it is no store's."""
    receiver: str
    """Whose it is, as :attr:`ReceiverStanding.called`; "" where it is no receiver's."""
    first: int
    next: int
    text: str


@dataclass(frozen=True, slots=True)
class StoreAudit:
    """One store of one source."""

    store: str
    oldest: int
    next: int
    """It retains numbers ``oldest`` .. ``next - 1``."""
    behind: int
    """Numbers that were published when the audit began, and that it has not got."""
    messages: int
    """Read, from ``SourceAudit.audited_from`` on."""
    oldest_sent_ns: int | None
    """When the oldest message that it retains was sent (CLOCK_REALTIME): its retention horizon. None: it
    gives none."""
    lacks: list[tuple[int, int]]
    """Of what it retains, what it does not give: half-open ranges, ascending."""
    diverges: list[tuple[int, int]]
    """Where it has something else than others; where nobody can say who is right, all of them have this."""


@dataclass(frozen=True, slots=True)
class SourceAudit:
    """One source."""

    topic: str
    source: str
    oldest: int
    """The lowest number that a store retains."""
    quorum_next: int
    next: int
    """Behind the last number that a store has."""
    audited_from: int
    """What lies below was in order when the checkpoint was written."""
    stores: list[StoreAudit]


@dataclass(frozen=True, slots=True)
class ReceiverStanding:
    """One receiver of one source: those that live, and those that may come back because they have a session
    ID."""

    topic: str
    source: str
    registration_id: int
    session_id: int
    name: str
    """Of its context."""
    ack: int
    """The highest number that it has acknowledged, -1 for none."""
    lag: int
    """Numbers that were published when the audit began, and that it has not acknowledged."""
    alive: bool

    @property
    def called(self) -> str:
        """How findings name it."""
        return f"session {self.session_id:#x}" if self.session_id else f"RegID {self.registration_id}"


class Sample(msgspec.Struct, frozen=True):
    """How far everybody was behind at one time."""

    time_ns: int
    """CLOCK_REALTIME."""
    lags: dict[str, int]
    """Of ``TOPIC > RECEIVER`` and ``TOPIC @ STORE``, over all sources of the topic: numbers published and not
    there."""


@dataclass(frozen=True, slots=True)
class Audit:
    """What was found; nothing, if ``findings`` is empty."""

    domain: str
    """"" where directories were given."""
    messages: int
    """Read, of all stores together."""
    seconds: float
    sources: list[SourceAudit]
    receivers: list[ReceiverStanding]
    findings: list[Finding]
    samples: list[Sample] = field(repr=False)
    """Of this audit and, with a checkpoint, of those before it; by time."""


def numbers(first: int, following: int) -> str:
    """In words."""
    return f"number {first}" if following == first + 1 else f"numbers {first}..{following - 1}"
