"""Whom a program declares, and what the register of its host has of that, by rules of the judge's own."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast.engine.rules.election import Written
from holdfast.engine.rules.quorum import Groups
from holdfast.engine.rules.reconcile import FOR_EVER
from holdfast.engine.rules.reports import Configuration

if TYPE_CHECKING:
    from collections.abc import Collection

    from holdfast.engine.rules.quorum import Intergroup, Intragroup


@dataclass(frozen=True)
class Declared:
    """A list of stores, as a program declares it. ``of``: the group of each; of a group, as many as its size
    have a seat."""

    stores: str
    sizes: tuple[int, ...]
    of: tuple[int, ...]
    intra: Intragroup = "quorum"
    inter: Intergroup = "any"

    @property
    def groups(self) -> Groups:
        """The product's form."""
        return Groups(self.sizes, self.of, self.intra, self.inter)

    def members(self, group: int) -> list[str]:
        """In the order of the list."""
        return [store for store, its in zip(self.stores, self.of, strict=True) if its == group]

    def spares(self, store: str) -> list[str]:
        """Who may take its seat."""
        return [each for each in self.members(self.of[self.stores.index(store)]) if each != store]

    def seats(self, up: Collection[str]) -> set[str]:
        """Who has a seat when these are there: the first ones; a backup that is there for one that is not."""
        seats = set()
        for group, size in enumerate(self.sizes):
            members = self.members(group)
            first = members[:size]
            spare = [store for store in members[size:] if store in up]
            for store in first:
                seats.add(spare.pop(0) if store not in up and spare else store)
        return seats

    def enough(self, there: Collection[str]) -> bool:
        """A source may send with these, all of which have a seat."""
        counts = [len(set(self.members(group)) & set(there)) for group in range(len(self.sizes))]
        whole = [
            count >= (size if self.intra == "all" else size // 2 + 1)
            for count, size in zip(counts, self.sizes, strict=True)
        ]
        if self.inter == "all":
            return all(whole)
        if self.inter == "majority":
            return 2 * sum(whole) > len(whole)
        if self.inter == "all-active":
            active = [count > size // 2 for count, size in zip(counts, self.sizes, strict=True)]
            return any(active) and all(yes for yes, is_active in zip(whole, active, strict=True) if is_active)
        return any(whole)

    def stable(self, registered: Collection[str], having: Collection[str]) -> bool:
        """A number that the stores ``having`` hold, of those ``registered``, which have a seat."""
        verdicts, active = [], []
        for group, size in enumerate(self.sizes):
            members = set(self.members(group))
            there, have = members & set(registered), members & set(having)
            least = size if self.intra == "all" else size // 2 + 1
            verdicts.append(len(have) >= least and (self.intra != "all-active" or there <= have))
            active.append(len(there) > size // 2)
        if self.inter == "all-active":
            return any(active) and all(yes for yes, is_active in zip(verdicts, active, strict=True) if is_active)
        if self.inter == "any":
            return any(verdicts)
        return all(verdicts) if self.inter == "all" else 2 * sum(verdicts) > len(verdicts)


@dataclass
class Register:
    """What is written of one source."""

    lists: dict[Declared, tuple[int, int]] = field(default_factory=dict)
    """The one declared last at the end -> under which incarnation, and the number from which on another one
    has been in force."""
    lives: dict[str, int] = field(default_factory=dict)
    """Store -> the life in which it last took part."""
    over: set[int] = field(default_factory=set)
    """Exclusions by the operator that a BEGIN knew of."""

    def declare(self, declared: Declared, incarnation: int, lives: dict[str, int], over: Collection[int] = ()) -> None:
        """Before these stores begin."""
        self.over.update(over)
        self.lists.pop(declared, None)
        self.lists[declared] = incarnation, FOR_EVER
        self.lives.update(lives)

    def complete(self, declared: Declared, incarnation: int, start: int, over: Collection[int] = ()) -> None:
        """From here on no list but this one counts."""
        self.over.update(over)
        for each, (declared_under, below) in self.lists.items():
            if each != declared and declared_under < incarnation:
                self.lists[each] = declared_under, min(below, start)

    @property
    def written(self) -> Written:
        """The product's form."""
        lists = (Configuration(tuple(each.stores), each.groups, below) for each, (_, below) in self.lists.items())
        return Written(tuple(lists), dict(self.lives), frozenset(self.over))
