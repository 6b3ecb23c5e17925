"""Who has which numbers: sets of numbers as intervals, and how many of them hold a number. Pure.

What a participant of a source has is everything in [from, ack) that its line on the board ever said
(docs/design.md 8): a store or a receiver that came late, or lost some, leaves holes. Intervals are half-open,
`..._to` and `high` exclusive.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

__all__ = ["Holder", "Interval", "Spans", "first_missing", "lacking"]

Interval = tuple[int, int]


class Holder(Protocol):
    """Who has numbers: one participant (`Spans`), or a group of them (quorum.py)."""

    def __contains__(self, number: int) -> bool:
        """Tell whether it has this one."""

    def end_of(self, number: int) -> int:
        """Return the end of the interval that `number` is in, or `number` itself if it is in none."""

    def bound_behind(self, number: int) -> int | None:
        """Return a number behind this one up to which nothing changes, None if nothing ever does."""


class Spans:
    """A set of numbers, as intervals that neither meet nor overlap. Mostly it is one, and grows at its
    end."""

    __slots__ = ("_bounds",)

    def __init__(self) -> None:
        self._bounds: list[int] = []
        """Start, end, start, end, ... ascending: a number is in the set if an odd count of bounds is at or
        below it."""

    def __bool__(self) -> bool:
        return bool(self._bounds)

    def __contains__(self, number: int) -> bool:
        return bool(bisect_right(self._bounds, number) & 1)

    def __iter__(self) -> Iterator[Interval]:
        bounds = self._bounds
        return iter([(bounds[i], bounds[i + 1]) for i in range(0, len(bounds), 2)])

    def __repr__(self) -> str:
        return "Spans(" + ", ".join(f"{low}..{high - 1}" for low, high in self) + ")"

    @property
    def high(self) -> int:
        """The number behind the last one in the set, 0 if it is empty."""
        return self._bounds[-1] if self._bounds else 0

    @property
    def last_begin(self) -> int:
        """Where the last interval begins, 0 if the set is empty."""
        return self._bounds[-2] if self._bounds else 0

    def end_of(self, number: int) -> int:
        """Return the end of the interval that `number` is in, or `number` itself if it is in none."""
        i = bisect_right(self._bounds, number)
        return self._bounds[i] if i & 1 else number

    def bound_behind(self, number: int) -> int | None:
        """Return the next number at which an interval begins or ends, None if there is none."""
        i = bisect_right(self._bounds, number)
        return self._bounds[i] if i < len(self._bounds) else None

    def gaps(self, low: int, high: int) -> list[Interval]:
        """Return what of [low, high) is not in the set."""
        if not self._bounds:
            return [(low, high)] if low < high else []
        found = []
        at = self.end_of(low)
        while at < high:
            begin, bound = at, self.bound_behind(at)
            end = high if bound is None else min(high, bound)
            found.append((begin, end))
            at = self.end_of(end)
        return found

    def parts(self, low: int, high: int) -> list[Interval]:
        """Return what of [low, high) is in the set."""
        return [(max(low, begin), min(high, end)) for begin, end in self if begin < high and end > low]

    def add(self, low: int, high: int) -> list[Interval]:
        """Put [low, high) in. Return what of it is new."""
        bounds = self._bounds
        if low >= high:
            return []
        end = self.end_of(low)
        if bounds and end == self.high:  # it begins in the last interval, or where that ends
            if high <= end:
                return []
            bounds[-1] = high
            return [(end, high)]
        fresh = self.gaps(low, high)
        i, j = bisect_left(bounds, low), bisect_right(bounds, high)
        bounds[i:j] = [low] * (i & 1 == 0) + [high] * (j & 1 == 0)
        return fresh

    def remove(self, low: int, high: int) -> None:
        """Take [low, high) out."""
        bounds = self._bounds
        if low < high and bounds:
            i, j = bisect_left(bounds, low), bisect_right(bounds, high)
            bounds[i:j] = [low] * (i & 1) + [high] * (j & 1)

    def forget(self, most: int) -> None:
        """Take the lowest intervals out, down to `most` of them."""
        del self._bounds[: max(len(self._bounds) - 2 * most, 0)]


def first_missing(floor: int, needed: int, members: Collection[Holder]) -> int:
    """Return the first number from `floor` on that fewer than `needed` members have. `needed` >= 1."""
    if len(members) < needed:
        return floor
    if len(members) == 1:
        (spans,) = members
        return spans.end_of(floor)
    while True:
        end = sorted((spans.end_of(floor) for spans in members), reverse=True)[needed - 1]
        if end == floor:
            return floor
        floor = end


def lacking(low: int, high: int, needed: int, members: Collection[Holder]) -> list[Interval]:
    """Return what of [low, high) fewer than `needed` members have. `needed` >= 1."""
    found = []
    at = first_missing(low, needed, members)
    while at < high:
        begin = at
        while at < high and sum(at in spans for spans in members) < needed:
            bounds = [bound for spans in members if (bound := spans.bound_behind(at)) is not None]
            at = min([high, *bounds])
        found.append((begin, at))
        at = first_missing(at, needed, members)
    return found
