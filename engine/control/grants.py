"""What a store grants a source and knows of its logs: between the form of the wire and that of the
machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ..rules import registration as reg
from ..rules.quorum import Groups
from ..rules.reconcile import LogView
from ..rules.reports import Configuration, Seen
from . import wire

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["configuration_of", "grant_of", "peer_log"]


class Declared(Protocol):
    """A list of stores as a grant or a store's state has it; empty before the first BEGIN."""

    @property
    def stores(self) -> Sequence[str]:
        """Names, in the order of store indexes."""

    @property
    def groups(self) -> Sequence[int]:
        """The group of each."""

    @property
    def sizes(self) -> Sequence[int]:
        """Of each group."""

    @property
    def intragroup(self) -> int:
        """Index in quorum.INTRAGROUP."""

    @property
    def intergroup(self) -> int:
        """Index in quorum.INTERGROUP."""


def grant_of(answer: wire.SourceGranted, name: str) -> reg.Grant:
    """The machine's form of a grant. ``name``: what the store calls itself."""
    return reg.Grant(
        answer.registration_id, answer.uuid, answer.next_sqn, answer.old, answer.incarnation, tuple(answer.begins),
        answer.votes, answer.empty_votes, answer.opened, answer.peers, name, answer.flags, answer.lives, answer.promised,
        tuple(map(_seen, answer.logs)), _configuration(answer), answer.excluded, answer.exclusions,
        answer.served,
    )  # fmt: skip


def configuration_of(source: Declared) -> Configuration | None:
    """What the last BEGIN declared at a store; None before the first one."""
    return _configuration(source)


def _configuration(said: Declared) -> Configuration | None:
    if not said.stores:
        return None
    groups = said.groups if len(said.groups) == len(said.stores) else [0] * len(said.stores)
    sizes = said.sizes if said.groups == groups else [len(said.stores)]
    return Configuration(tuple(said.stores), Groups.told(sizes, groups, said.intragroup, said.intergroup))


def peer_log(seen: Seen) -> wire.PeerLog:
    """The wire's form of what a store knows of a log."""
    view = seen.view
    if view is None:
        return wire.PeerLog(seen.store, seen.name, -1, [], seen.why)
    return wire.PeerLog(seen.store, seen.name, view.next_sqn, list(view.begins))


def _seen(said: wire.PeerLog) -> Seen:
    view = LogView(tuple(said.begins), said.next_sqn) if said.next_sqn >= 0 else None
    return Seen(said.store, said.name, view, said.why)
