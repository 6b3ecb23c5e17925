"""One receiver's registration with the stores of one source, without I/O (docs/semantics.md B.3). See
registration.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .quorum import quorum
from .reconcile import LogView, Table, void_from
from .registration import Action, Complete, Grant, Granted, Phase, Registration, Unresponsive, Waits
from .reports import Configuration, readers_tables

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from .quorum import Consensus, Groups

__all__ = ["REGISTERED", "ReceiverRegistration"]

PATIENCE_NS = 500_000_000
"""How long, at most, a store that has not answered yet keeps what the others have said from being told."""
REGISTERED = "registered"
"""What a store that granted says."""
TOLD_AGAIN = 10
"""After this many intervals what each store says is told again, as long as it waits."""


class ReceiverRegistration(Registration):
    """Complete once; a store that returns registers again. Asks those that the source is registered with, as
    its SRI says; all of them while no SRI has been seen. A quorum in one group will do: across groups it
    starts at the latest number.

    Stores may know it by different identities, or not at all: one that was away when it registered first.
    ``identity`` is the one to which most was acknowledged, empty while no store knows it, and fixed when it
    is complete: if none did, to the one that it was granted as new. A store that has granted another one is
    asked again with it. It has no say in where to start before it has taken that over; nor has one that did
    not know the receiver, where another one does.
    """

    def __init__(self, groups: Groups, interval_ns: int, behavior: Consensus, *, stagger: float = 0.0) -> None:
        Registration.__init__(self, groups, interval_ns, behavior, stagger=stagger)
        self.seated = set(range(groups.stores))
        self.complete = False
        self.identity = b""
        self._asked_as: dict[int, bytes] = {}
        self._strangers: set[int] = set()
        """Stores that did not know it when they were asked first, or only as one that had never joined."""
        self._waits_ns = -1
        """Since when it waits for stores; -1: it does not."""
        self._told_ns = -1
        """When the program was told so last."""
        self.disputed = False
        """It has enough grants, and where it starts depends on what a store has begun that has not
        answered."""

    def _claims(self) -> Phase | None:
        return None if self.complete else Phase.ACTIVE

    def _sufficient(self, stores: Collection[int]) -> bool:
        return bool(self.groups.quorate(stores))

    def expect(self, stores: Collection[int], now_ns: int) -> list[Action]:
        """The source is registered with these stores, and no others."""
        actions: list[Action] = []
        self.seated = set(stores)
        for store, entry in enumerate(self.entries):
            if store not in self.seated and entry.phase is not Phase.ACTIVE:  # what an active one said stays true
                entry.phase = Phase.IDLE
            elif store in self.seated and entry.phase is Phase.IDLE:
                entry.phase = Phase.DOWN
                actions += self._ask(store, now_ns) if entry.up else []
        return actions

    def granted(self, store: int, grant: Grant, now_ns: int) -> list[Action]:
        """The store answered."""
        entry = self.entries[store]
        entry.phase, entry.grant, entry.refusal, entry.refusals, entry.gone = Phase.ACTIVE, grant, None, 0, False
        entry.told = None
        if not grant.old:
            self._strangers.add(store)
        again = self._unify(now_ns)
        left = self._give_up()
        told: list[Action] = [Granted(store, grant)] if entry.phase is Phase.ACTIVE else []
        return told + left + again + self._complete(now_ns)

    def _unify(self, now_ns: int) -> list[Action]:
        """Asks the stores again that know it by another identity; each once, for it may not be able to take
        this one over."""
        grants = self._reports()
        known = [grant for store, grant in grants.items() if store not in self._strangers]
        if not self.complete and known:
            self.identity = max(known, key=lambda grant: grant.next_sqn).uuid
        actions: list[Action] = []
        for store, grant in grants.items() if self.identity else ():
            if grant.uuid != self.identity != self._asked_as.get(store):
                self._asked_as[store] = self.identity
                actions += self._ask(store, now_ns)
        return actions

    def asked_as(self, store: int) -> bytes:
        """The identity that this store is to take over; none before it has said which one it knows, unless it
        is settled.

        Else what a life that came to nothing has left at another store, and which answers first, would be
        imposed on it.
        """
        return self.identity if self.complete or self._asked_as.get(store) == self.identity else b""

    def again(self, store: int, now_ns: int) -> list[Action]:
        """The source has registered with the store again, so the receiver does, too (docs/semantics.md
        B.2)."""
        return self._ask(store, now_ns) if self.entries[store].phase in {Phase.ACTIVE, Phase.REFUSED} else []

    def disconnected(self, store: int) -> list[Action]:
        """The link broke. Delivery goes on; recovery reads that store's files."""
        entry = self.entries[store]
        entry.up, entry.refusals, entry.same = False, 0, 0
        entry.phase = Phase.DOWN if store in self.seated else Phase.IDLE
        return []

    def tick(self, now_ns: int) -> list[Action]:
        """Asks again what is due; does with fewer stores when the first interval is over; tells who has not
        answered."""
        actions = self._retries(now_ns) + self._complete(now_ns)
        silent = [] if self.complete else self._overdue(now_ns, Phase.DOWN, Phase.ASKED)
        return actions + [self._unresponsive(store) for store in silent] + self._waits(now_ns)

    @property
    def waiting(self) -> bool:
        """It was told that this one waits, and it still does."""
        return self._told_ns >= 0

    def said(self) -> tuple[tuple[int, str], ...]:
        """What each store that is asked says."""
        return tuple((store, self._says(store)) for store in sorted(self.seated))

    def _says(self, store: int) -> str:
        entry = self.entries[store]
        if entry.phase is Phase.ACTIVE:
            return REGISTERED
        if not entry.up:
            return "cannot be reached"
        return "has not answered" if entry.refusal is None else entry.refusal.reason

    def _waits(self, now_ns: int) -> list[Action]:
        """Nobody waits in silence: told when those that answer have done so, and again and again. What is
        told by itself, a refusal that names a reason, or silence for an interval, is not told twice the first
        time."""
        grants = self._reports()
        if self.complete or (self._sufficient(grants) and len(grants) > len(self._in_use()) and not self.disputed):
            self._waits_ns = self._told_ns = -1
            return []
        if self._waits_ns < 0:
            self._waits_ns = now_ns
        waited, again_ns = now_ns - self._waits_ns, TOLD_AGAIN * self.interval_ns
        if self._told_ns >= 0:
            if now_ns - self._told_ns < again_ns:
                return []
            self._told_ns = now_ns
            return [Waits(self.said(), self.disputed)]
        entries = [self.entries[store] for store in self.seated]
        heard = [entry for entry in entries if entry.phase is Phase.ACTIVE or (entry.up and entry.refusal is not None)]
        settled = len(heard) == len(entries) > 0 or waited >= min(self.interval_ns, PATIENCE_NS)
        if not (settled and (heard or not entries)) and waited < again_ns:
            return []
        self._told_ns = now_ns
        untold = len(heard) < len(entries) or any(
            entry.refusal is not None and entry.refusal.code == "unknown_source" for entry in entries
        )
        return [Waits(self.said(), self.disputed)] if untold or not entries else []

    def _unresponsive(self, store: int) -> Action:
        number = self.groups.of[store]
        registered = len(self._in_phase(Phase.ACTIVE) & set(self.groups.members(number)))
        answered = self.entries[store].grant is not None
        return Unresponsive(store, False, registered, quorum(self.groups.sizes[number]), answered)

    def grants(self) -> Sequence[Grant]:
        """What the stores that granted said."""
        return list(self._reports().values())

    def _reports(self) -> dict[int, Grant]:
        return {s: entry.grant for s, entry in enumerate(self.entries) if entry.phase is Phase.ACTIVE and entry.grant}

    def tables(self) -> list[Table]:
        """The BEGIN tables that may hold (reports.readers_tables), by all that the stores have said. Empty
        tables: nothing."""
        grants = {str(store): entry.grant for store, entry in enumerate(self.entries) if entry.grant is not None}
        views = {name: LogView(tuple(grant.begins), grant.high_sqn) for name, grant in grants.items()}
        declared = Configuration(tuple(map(str, range(self.groups.stores))), self.groups)
        over = {store for grant in grants.values() for store in grant.readmitted}
        forgot = {str(store) for grant in grants.values() for store in grant.given_up if store not in over}
        return readers_tables(views, [(0, declared)], forgot)

    def _complete(self, now_ns: int) -> list[Action]:
        grants = self._reports()
        everybody = self.seated <= set(grants)
        if self.complete or not self._sufficient(grants) or len(grants) <= len(self._in_use()):
            return []
        if not everybody and not self._is_over(now_ns):
            return []
        knowing = {s: grant for s, grant in grants.items() if grant.uuid == self.identity and s not in self._strangers}
        promised = {} if knowing else self._promised(grants)  # who knew it may have died since
        voters = knowing or promised or grants
        # A store that has missed a BEGIN reports acknowledgements of numbers that are another incarnation's
        # now (docs/design.md 13). Which ones these are must be known: one kept wrongly skips messages, one
        # cut wrongly delivers them again.
        starts = {self._start(voters, table, least=bool(promised)) for table in self.tables()}
        self.disputed = len(starts) > 1
        if self.disputed:
            return []
        self.complete = True
        ((start, position),) = starts
        # Nobody knew it. A store that answers later and does would else wait for acknowledgements that come
        # by another name.
        self.identity = self.identity or next(iter(grants.values())).uuid
        # A store that the source never registered with is not waited for, and is not there all the same
        # (docs/semantics.md B.5).
        whole = everybody and self.groups.full(grants)
        said = Complete(start, whole, None if position == start else position)
        return [said, *self._unify(now_ns)]

    def _promised(self, grants: dict[int, Grant]) -> dict[int, Grant]:
        """Stores of a receiver-paced source that keep what was sent since they granted an earlier life, where
        they are enough to have told it that it is registered."""
        kept = {store: grant for store, grant in grants.items() if grant.kept_for}
        quorate = set(self.groups.quorate(kept))
        return {store: grant for store, grant in kept.items() if self.groups.of[store] in quorate}

    def _start(self, voters: dict[int, Grant], begins: Table, *, least: bool = False) -> tuple[int, int]:
        """Where it starts by this table, and everything below which number it has acknowledged. ``least``:
        the one that is farthest back counts."""
        agreed = (lambda reports: min(reports.values())) if least else self._agreed
        void = {s: void_from(begins, grant.incarnation) for s, grant in voters.items()}
        start = agreed({s: min(grant.next_sqn, void[s]) for s, grant in voters.items()})
        kept = {s: min(g.next_sqn if g.position < 0 else g.position, void[s]) for s, g in voters.items()}
        return start, agreed(kept)

    def _agreed(self, reports: dict[int, int]) -> int:
        return self.groups.consensus(reports, self.behavior)
