"""How many stores must agree: groups of stores, who may send, what is stable, where to start. Pure arithmetic
over numbers.

One rule on two levels (docs/semantics.md E.2). In a group a number is stable when enough of its stores have
it; over the groups, when it is stable in enough of them. The same words decide whether a source may send,
over stores that are registered. So a group is itself something that "has" numbers, and the question over
groups is the question over stores, asked once more.

Positions and reports are exclusive: the number behind the last one that a store holds. Sizes are declared: a
quorum does not shrink with the stores that happen to answer. Source: docs/semantics.md E.1 to E.5.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, Self

from .intervals import Interval, Spans, first_missing, lacking

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

__all__ = [
    "INTERGROUP",
    "INTRAGROUP",
    "NO_GROUPS",
    "Agreement",
    "Consensus",
    "Groups",
    "Intergroup",
    "Intragroup",
    "StoreSpans",
    "quorum",
]

Consensus = Literal["lowest", "majority", "highest"]
Intragroup = Literal["quorum", "all-active", "all"]
Intergroup = Literal["any", "all-active", "majority", "all"]
INTRAGROUP: tuple[Intragroup, ...] = ("quorum", "all-active", "all")
INTERGROUP: tuple[Intergroup, ...] = ("any", "all-active", "majority", "all")
"""In the order of their numbers in the SRI (csrc/base/layout.h)."""


def quorum(size: int) -> int:
    """Return how many stores of a group of `size` are a quorum: more than half."""
    if size < 1:
        raise ValueError(f"a group of {size} stores has no quorum")
    return size // 2 + 1


def _at_least(needed: int, numbers: Collection[int]) -> int:
    """Return the highest number that `needed` of these reach, 0 where there are not this many."""
    return sorted(numbers, reverse=True)[needed - 1] if len(numbers) >= needed else 0


@dataclass(frozen=True, slots=True)
class Groups:
    """Declared groups of the stores of one source (ume_store_group), and both behaviours.

    `sizes`: declared size by group number, 0 = there is no such group. `of`: store index -> its group's
    number. Stores of a group beyond its size are backups.
    """

    sizes: tuple[int, ...]
    of: tuple[int, ...]
    intragroup: Intragroup = "quorum"
    intergroup: Intergroup = "any"

    @classmethod
    def single(cls, stores: int, intragroup: Intragroup = "quorum") -> Self:
        """One group of all stores: what holds where none is declared."""
        return cls((stores,), (0,) * stores, intragroup)

    @classmethod
    def told(cls, sizes: Sequence[int], of: Sequence[int], intragroup: int = 0, intergroup: int = 0) -> Self:
        """What another process says, behaviours by their numbers. Where that contradicts itself, all stores
        are one group."""
        sound = all(group < len(sizes) and sizes[group] for group in of)
        sound = sound and all(sum(number == group for group in of) >= size for number, size in enumerate(sizes))
        if not sound or intragroup >= len(INTRAGROUP) or intergroup >= len(INTERGROUP):
            return cls.single(len(of))
        return cls(tuple(sizes), tuple(of), INTRAGROUP[intragroup], INTERGROUP[intergroup])

    @property
    def stores(self) -> int:
        """How many stores are listed, backups included."""
        return len(self.of)

    @property
    def numbers(self) -> list[int]:
        """Numbers of the groups that exist."""
        return [number for number, size in enumerate(self.sizes) if size]

    def members(self, number: int) -> list[int]:
        """Stores of this group, in the order in which they are listed."""
        return [store for store, group in enumerate(self.of) if group == number]

    def first_seats(self) -> set[int]:
        """Who counts at first: of each group, as many as its size, from the front of the list."""
        return {store for number in self.numbers for store in self.members(number)[: self.sizes[number]]}

    def needed(self, number: int) -> int:
        """Registered stores that complete this group."""
        size = self.sizes[number]
        return size if self.intragroup == "all" else quorum(size)

    def full(self, registered: Collection[int]) -> bool:
        """Tell whether every seat of every group is taken by one of these stores."""
        return all(self._among(number, registered) >= self.sizes[number] for number in self.numbers)

    def quorate(self, stores: Collection[int]) -> list[int]:
        """Groups of which at least a quorum is among these stores: the active ones, if these are
        registered."""
        return [n for n in self.numbers if self._among(n, stores) >= quorum(self.sizes[n])]

    def complete(self, registered: Collection[int]) -> bool:
        """Tell whether registration is complete, and the source may send, with these stores registered
        (docs/semantics.md E.2)."""
        complete = sum(self._among(n, registered) >= self.needed(n) for n in self.numbers)
        groups, active = self._decisive(registered)
        return complete >= groups and active

    def _decisive(self, registered: Collection[int]) -> tuple[int, bool]:
        """How many groups must agree, and whether any can at all."""
        count = len(self.numbers)
        if self.intergroup == "all-active":
            active = len(self.quorate(registered))
            return active, active > 0
        return {"any": 1, "majority": count // 2 + 1, "all": count}[self.intergroup], True

    def _among(self, number: int, stores: Collection[int]) -> int:
        return sum(store in stores for store in self.members(number))

    def consensus(self, reports: Mapping[int, int], behavior: Consensus) -> int:
        """Return the number to start at from what stores report (docs/semantics.md E.5).

        `majority`: in a group the highest number that at least its quorum reports or exceeds; over the groups
        the greatest. Where no group has a quorum of reports, those that there are decide among themselves:
        whoever asks knows that no more will come. Raises ValueError without reports.
        """
        if not reports:
            raise ValueError("no store reports a number")
        if behavior == "lowest":
            return min(reports.values())
        if behavior == "highest":
            return max(reports.values())
        quorate = self.quorate(reports)
        found = []
        for number in quorate or self.numbers:
            told = [reports[store] for store in self.members(number) if store in reports]
            if told:
                found.append(_at_least(quorum(self.sizes[number] if quorate else len(told)), told))
        return max(found)

    def stable_number(self, positions: Mapping[int, int]) -> int:
        """Return the number below which everything is stable, from positions alone: the source is gone, and
        with it who was registered. `all-active` counts as the least that it can have meant: a quorum, in any
        group."""
        stable = []
        for number in self.numbers:
            held = [positions.get(store, 0) for store in self.members(number)]
            stable.append(_at_least(self.needed(number), held))
        return _at_least(self.stable_groups, stable)

    @property
    def stable_groups(self) -> int:
        """In how many groups a number is stable at least when it is stable: `all-active` is read as one."""
        return 1 if self.intergroup == "all-active" else self._decisive(())[0]


NO_GROUPS = Groups((), ())
"""Of a source that streams."""


class Agreement(NamedTuple):
    """What makes a number stable: `needed` of `groups` have it. A group has it if all of its rules hold: this
    many, of these stores, have it."""

    needed: int
    groups: list[list[tuple[int, list[int]]]]


class _Group:
    """A group as one member of the question over groups: it has what all of its `rules` (how many, of whom)
    say."""

    __slots__ = ("_rules",)

    def __init__(self, rules: Sequence[tuple[int, list[Spans]]]) -> None:
        self._rules = rules

    def __contains__(self, number: int) -> bool:
        return self.end_of(number) > number

    def end_of(self, number: int) -> int:
        """As Spans.end_of."""
        if len(self._rules) == 1:  # what nearly every source has, for each acknowledgement
            return first_missing(number, *self._rules[0])
        return min(first_missing(number, needed, members) for needed, members in self._rules)

    def bound_behind(self, number: int) -> int | None:
        """As Spans.bound_behind; of a member, so that the group's own bounds are among them."""
        bounds = [bound for _, members in self._rules for spans in members if (bound := spans.bound_behind(number))]
        return min(bounds, default=None)


class StoreSpans:
    """Which numbers are stable: `stores[i]` is what store i has. Only stores with a seat count; `active` of
    them are registered.

    A store that has no seat any more takes nothing back: what was stable below the caller's `floor` stays
    what it was.
    """

    def __init__(self, groups: Groups) -> None:
        self.groups = groups
        self.stores = [Spans() for _ in range(groups.stores)]
        self.seated: set[int] = set()
        self.active: set[int] = set()
        self.agreement = Agreement(1, [])
        self._by_number: dict[int, _Group] = {}
        self._members: list[_Group] = []
        seats = groups.first_seats()
        self.seat(seats, seats)

    def seat(self, seated: Collection[int], active: Collection[int]) -> None:
        """Take in who has a seat now, and who of them is registered."""
        groups = self.groups
        self.seated, self.active = set(seated), set(active) & set(seated)
        rules = {number: self._rules(number) for number in groups.numbers}
        self._by_number = {
            number: _Group([(n, [self.stores[i] for i in of]) for n, of in rules[number]]) for number in rules
        }
        deciding = groups.quorate(self.active) if groups.intergroup == "all-active" else groups.numbers
        self._members = [self._by_number[number] for number in deciding]
        needed = max(len(deciding), 1)  # no group is active: nothing becomes stable
        if groups.intergroup == "any":
            needed = 1
        elif groups.intergroup == "majority":
            needed = len(deciding) // 2 + 1
        self.agreement = Agreement(needed, [rules[number] for number in deciding])

    def _rules(self, number: int) -> list[tuple[int, list[int]]]:
        """This many, of these stores, have a number: all of it has to hold for the group to have it."""
        members = [store for store in self.groups.members(number) if store in self.seated]
        rules = [(self.groups.needed(number), members)]
        active = [store for store in members if store in self.active]
        if self.groups.intragroup == "all-active" and active:
            rules.append((len(active), active))
        return rules

    def first_unstable(self, floor: int) -> int:
        """Return the first number from `floor` on that is not stable. What lies below `floor` stays what it
        was."""
        return first_missing(floor, self.agreement.needed, self._members)

    def unstable(self, low: int, high: int) -> list[Interval]:
        """Return what of [low, high) is not stable."""
        return lacking(low, high, self.agreement.needed, self._members)

    def in_group(self, store: int, low: int, high: int, floor: int) -> Spans:
        """Return what of [low, high) is stable in this store's group: from `floor` on in order, as it becomes
        stable."""
        group, found = self._by_number[self.groups.of[store]], Spans()
        high = min(high, group.end_of(floor))
        found.add(low, high)
        for begin, end in lacking(low, high, 1, [group]):
            found.remove(begin, end)
        return found
