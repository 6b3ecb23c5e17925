"""Which dead sources a store stands in for (ume_proxy_source). Rules without I/O (docs/semantics.md J.2).

Here the stores keep the stream's record, and answer receivers for a dead source in any case. A proxy adds
that one store, the same for everybody, says that it does so, from the activity timeout on until the source is
back or forgotten. Of the stores that run, allow it, know the source, and have its messages it is the one with
the lowest identity. Each says in its info file which sources that are: no store asks another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from .refusal import Refusal

if TYPE_CHECKING:
    from collections.abc import Iterable, Set

__all__ = ["Change", "Proxies", "elected", "proxy_refusal"]


def elected(own: bytes, others: Iterable[bytes]) -> bool:
    """This store is the one. Both: uuids of stores that could be."""
    return own == min([own, *others])


def proxy_refusal(kept: bool, asked: bool) -> Refusal | None:
    """A source that registers again must ask for the same."""
    if kept == asked:
        return None
    return Refusal(
        "proxy",
        f"ume_proxy_source = {asked:d}, but the source was registered with {kept:d} first: it stays until deregistration",
    )


class Change(NamedTuple):
    """What to tell of one source."""

    source: bytes
    stands_in: bool
    why: str


class Proxies:
    """See the module."""

    def __init__(self) -> None:
        self._since: dict[bytes, int] = {}
        """When this store process first saw that nobody holds the source, ns."""
        self.standing: set[bytes] = set()
        """Sources that this store stands in for."""
        self.ready: set[bytes] = set()
        """Sources that it could stand in for, dead or not; the others elect among such stores. One that
        was dead when this process first looked is not among them before its time is over: the store that
        stands in for it would give way, and nobody would stand in until then."""
        self._timed: set[bytes] = set()
        """Sources that this process has seen alive, or dead for long enough."""

    def due(self, source: bytes, held: bool, after_ns: int, now_ns: int) -> bool:
        """It is dead, and has been for its activity timeout while this store looked: somebody is to stand
        in."""
        if held:
            self._since.pop(source, None)
        due = not held and now_ns - self._since.setdefault(source, now_ns) >= after_ns
        if held or due:
            self._timed.add(source)
        return due

    def able(self, source: bytes, has: bool) -> None:
        """``has``: it has messages of the source."""
        (self.ready.add if has and source in self._timed else self.ready.discard)(source)

    def look(self, source: bytes, *, due: bool, chosen: bool) -> list[Change]:
        """``chosen``: this store is elected."""
        stands = source in self.standing
        if due and chosen and not stands:
            self.standing.add(source)
            return [Change(source, True, "the source is dead")]
        if stands and not (due and chosen):
            self.standing.discard(source)
            return [Change(source, False, "another store stands in" if due else "the source is back")]
        return []

    def keep(self, sources: Set[bytes]) -> list[Change]:
        """These are kept; every other one is forgotten, with its state."""
        self._since = {source: since for source, since in self._since.items() if source in sources}
        self.ready &= sources
        self._timed &= sources
        gone = sorted(source for source in self.standing if source not in sources)
        self.standing.difference_update(gone)
        return [Change(source, False, "the source is forgotten") for source in gone]
