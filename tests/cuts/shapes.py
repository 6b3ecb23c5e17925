"""Systems that lose their power: groups of stores, backups, behaviours; and which of the stores suffice.

Its arithmetic is not the product's: what the judge expects must not come from what it judges.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["SHAPES", "Shape"]


@dataclass(frozen=True)
class Shape:
    """One source's stores. ``groups``: names of the stores, and how many of them have a seat; the others are
    backups."""

    name: str
    groups: tuple[tuple[str, int], ...]
    between: str = "any"
    """ume_retention_intergroup_stability_behavior."""

    @property
    def stores(self) -> str:
        """All names, in the order in which they are declared."""
        return "".join(names for names, _ in self.groups)

    def options(self) -> dict[str, Any]:
        """What the source declares."""
        named = [f"{name}:0:{number}" for number, (names, _) in enumerate(self.groups) for name in names]
        sizes = [f"{number}:{size}" for number, (_, size) in enumerate(self.groups)]
        return {
            "ume_store_name": named,
            "ume_store_group": sizes,
            "ume_retention_intergroup_stability_behavior": self.between,
        }

    def suffice(self, stores: Collection[str]) -> bool:
        """A message that these stores have, and no other, may be stable; with these a source may send.

        ``all-active`` counts the groups that are active, so one may be enough. A backup may have had any seat
        of its group.
        """
        whole = sum(len(set(names) & set(stores)) > size // 2 for names, size in self.groups)
        needed = {"any": 1, "all-active": 1, "majority": len(self.groups) // 2 + 1, "all": len(self.groups)}
        return whole >= needed[self.between]

    def required(self, stores: Collection[str]) -> bool:
        """With these back, and no other, all that was ever stable must be delivered: they may send, and the
        others alone can have made nothing stable."""
        return self.suffice(stores) and not self.suffice(set(self.stores) - set(stores))


_BETWEEN = ("any", "all-active", "majority", "all")
SHAPES = (
    Shape("one", (("a", 1),)),
    Shape("one and a backup", (("ab", 1),)),
    Shape("two", (("ab", 2),)),
    Shape("three", (("abc", 3),)),
    Shape("three and a backup", (("abcd", 3),)),
    Shape("five", (("abcde", 5),)),
    *(Shape(f"two groups, {between}", (("a", 1), ("b", 1)), between) for between in _BETWEEN),
    *(Shape(f"two groups and a backup, {between}", (("ab", 1), ("cde", 3)), between) for between in _BETWEEN),
)
