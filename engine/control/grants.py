"""What a store grants a source and knows of its logs: between the form of the wire and that of the
machines."""

from __future__ import annotations

from ..rules import registration as reg
from ..rules.reconcile import LogView
from ..rules.reports import Seen
from . import wire
from .configuration import configuration_of

__all__ = ["grant_of", "peer_log"]


def grant_of(answer: wire.SourceGranted, name: str) -> reg.Grant:
    """The machine's form of a grant. ``name``: what the store calls itself."""
    return reg.Grant(
        answer.registration_id, answer.uuid, answer.next_sqn, answer.old, answer.incarnation, tuple(answer.begins),
        answer.votes, answer.empty_votes, answer.opened, answer.peers, name, answer.flags, answer.lives, answer.promised,
        tuple(map(_seen, answer.logs)), configuration_of(answer), answer.excluded, answer.exclusions,
        answer.over, answer.served,
    )  # fmt: skip


def peer_log(seen: Seen) -> wire.PeerLog:
    """The wire's form of what a store knows of a log."""
    view = seen.view
    if view is None:
        return wire.PeerLog(seen.store, seen.name, -1, [], seen.why)
    return wire.PeerLog(seen.store, seen.name, view.next_sqn, list(view.begins))


def _seen(said: wire.PeerLog) -> Seen:
    view = LogView(tuple(said.begins), said.next_sqn) if said.next_sqn >= 0 else None
    return Seen(said.store, said.name, view, said.why)
