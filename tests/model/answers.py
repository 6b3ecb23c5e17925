"""What the stores of a history answer to who asks, and what he makes of it by the product's decision."""

from __future__ import annotations

from typing import TYPE_CHECKING

from model.censuses import Censuses

from holdfast.engine.log.state_file import SourceState
from holdfast.engine.rules import election
from holdfast.engine.rules.quorum import Groups
from holdfast.engine.rules.registration import Grant
from holdfast.engine.rules.reports import Configuration, Seen, farthest

if TYPE_CHECKING:
    from collections.abc import Collection

    from model.declared import Declared

    from holdfast.engine.rules.quorum import Consensus

__all__ = ["OURS", "Answers"]

OURS = b"o" * 16


class Answers(Censuses):
    """See the module."""

    def open(self, name: str) -> None:
        """A store starts."""
        self.disks[name].lives.append(self.next_life())
        self.begin_census(name)

    def claim(self, name: str, uuid: bytes) -> SourceState:
        """What a store has of the source, when that asks."""
        disk = self.disks[name]
        if disk.state is None:
            disk.state = SourceState(uuid, "quotes", 7, 0)
        self.note(name)
        return disk.state

    def answers(
        self, declared: Declared, up: Collection[str], blind: bool, hidden: Collection[str], claimant: bytes, least: int
    ) -> dict[int, Grant]:
        """What the stores that are up grant. ``blind``: none reads others' files; ``hidden``: nobody does."""
        grants = {}
        for index, name in enumerate(declared.stores):
            if name in up:
                unread = set(self.disks) - {name} if blind else set(hidden) - {name}
                grants[index] = self._grant(name, unread, claimant, least)
        return grants

    def _grant(self, name: str, unread: Collection[str], claimant: bytes, least: int) -> Grant:
        disk = self.disks[name]
        state = self.claim(name, claimant.ljust(16, b"\0"))  # it knows whom it is told of, and whom it reads nothing of
        own = disk.view()
        written = [*(store for each in self.register.lists for store in each.stores), *self.register.lives]
        others = [store for store in dict.fromkeys([*state.stores, *written]) if store != name] if state.stores else []
        seen = [Seen(name, name, own)]
        for store in others:
            told, wrote = ({each[store]} if store in each else set() for each in (state.peers, self.register.lives))
            seen.append(self._seen(store, unread, told, wrote))
        known = farthest(seen)
        state.promise(claimant, known.incarnation, least)
        groups = Groups.told(state.sizes, state.groups, state.intragroup, state.intergroup) if state.stores else None
        return Grant(
            7, state.uuid, known.end, state.incarnation > 0, known.incarnation, known.begins, votes=not state.learner,
            opened=disk.lives[-1], peers=dict(state.peers), name=name, lives=disk.known_lives, promised=state.promised,
            seen=tuple(seen), configuration=Configuration(tuple(state.stores), groups) if groups is not None else None,
            excluded=state.excluded(disk.excluded), exclusions=dict(disk.excluded), over=tuple(state.over),
            served=tuple(state.served),
        )  # fmt: skip

    def _seen(self, name: str, unread: Collection[str], told: set[int], wrote: set[int]) -> Seen:
        """As store_info.seen_at reads a peer's files."""
        disk = self.disks[name]
        if name in unread:
            return Seen(name, name, None, "away")
        state = disk.state
        lives = disk.known_lives
        missed = any(life > lives[0] and life not in lives for life in told | wrote)
        begun = told or any(life not in lives for life in wrote)
        if missed or (begun and (state is None or not state.incarnation)):
            return Seen(name, name, None, "not that life")
        if state is not None and state.learner:
            return Seen(name, name, None, "has lost")
        return Seen(name, name, disk.view())

    def ask(
        self, declared: Declared, up: Collection[str], grants: dict[int, Grant], hidden: Collection[str],
        behavior: Consensus, claimant: bytes, *, censuses: bool = True,
    ) -> election.Decision | None:  # fmt: skip
        """The product's decision."""
        place = {name: index for index, name in enumerate(declared.stores)}
        empty = {  # dead, and their state can be read and knows nothing; a wiped one is not the store that was known
            place[name]
            for name in declared.stores
            if name not in up and name not in hidden and self.disks[name].state is None and not self.disks[name].wiped
        }
        seated = {place[name] for name in declared.seats(up)}
        register = {OURS: self.register.written}
        return election.decide(
            declared.groups,
            seated,
            grants,
            behavior,
            claimant.ljust(16, b"\0"),
            empty,
            tuple(declared.stores),
            register,
            self.looked_at(declared, {*grants, *empty}, hidden) if censuses else {},
        )
