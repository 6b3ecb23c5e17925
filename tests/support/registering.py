"""Registration machines of sources and receivers, and what a store grants."""

from __future__ import annotations

from holdfast.engine.rules.quorum import Groups
from holdfast.engine.rules.receiver_registration import ReceiverRegistration
from holdfast.engine.rules.registration import Grant
from holdfast.engine.rules.source_registration import SourceRegistration

INTERVAL = 3_000_000_000
OURS, THEIRS = b"o" * 16, b"t" * 16


def grant(
    next_sqn: int, *, incarnation: int = 0, uuid: bytes = OURS, old: bool = False, kept_for: bool = False
) -> Grant:
    return Grant(7, uuid, next_sqn, old, incarnation, kept_for=kept_for)


def source(stores: int = 1) -> SourceRegistration:
    return SourceRegistration(Groups.single(stores) if stores else None, INTERVAL, "majority", OURS)


def receiver(stores: int = 1) -> ReceiverRegistration:
    return ReceiverRegistration(Groups.single(stores), INTERVAL, "majority")
