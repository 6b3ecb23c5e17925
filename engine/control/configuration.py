"""The stores that a source declares, from a grant or from a store's state: between the form of the wire and
that of the machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ..rules.quorum import Groups
from ..rules.reports import Configuration

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Declared", "configuration_of"]


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


def configuration_of(said: Declared) -> Configuration | None:
    """What the last BEGIN declared at a store; None before the first one."""
    if not said.stores:
        return None
    groups = said.groups if len(said.groups) == len(said.stores) else [0] * len(said.stores)
    sizes = said.sizes if said.groups == groups else [len(said.stores)]
    return Configuration(tuple(said.stores), Groups.told(sizes, groups, said.intragroup, said.intergroup))
