"""One source's registration with its stores, without I/O (docs/semantics.md B.1, B.4, E; docs/design.md 13 to
15). See registration.py.

A source asks every store, and each answers only after the previous owner is dead or gone and its ring is
drained. When all that have a seat have answered, or enough have and the first interval is over, the source
opens the next incarnation where the answers say (election.py), makes BEGIN durable at each of them, and may
send as long as its groups are complete (quorum.py).

A group has as many seats as its declared size; stores listed beyond it are backups, and idle from the opening
on. When a store with a seat is unresponsive, the next backup that is there takes the seat, for good: who lost
it is a backup from then on.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..events.source import RegistrationSuccessFlags
from . import election
from . import registration as reg
from .heartbeat import Heartbeat
from .quorum import NO_GROUPS
from .registration import Action, Grant, Phase, Registration

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from .quorum import Consensus, Groups

__all__ = ["SourceRegistration"]

TAKES_PART = {Phase.ANNOUNCED, Phase.CATCHING_UP, Phase.ACTIVE}


class SourceRegistration(Registration):
    """One source object's registration with its stores. ``groups`` None: it has none, and streams.

    ``incarnation``, ``start_sqn``, ``begins`` and ``uuid`` are fixed when the stream opens; a store that
    returns later registers again with them. Until then ``uuid`` is a proposal: the identity is the one under
    which most incarnations have begun. ``anonymous``: it comes without RegID and session ID, so no store can
    know it. ``names``: of the stores, as declared. A store whose heartbeat stands still for ``silence_ns`` is
    suspended; it is looked at every ``look_ns``.
    """

    def __init__(
        self, groups: Groups | None, interval_ns: int, behavior: Consensus, uuid: bytes, *, stagger: float = 0.0,
        silence_ns: int = 10_000_000_000, look_ns: int = 500_000_000, anonymous: bool = False, names: Sequence[str] = (),
    ) -> None:  # fmt: skip
        Registration.__init__(self, groups or NO_GROUPS, interval_ns, behavior, stagger=stagger)
        self._names = names
        self.seated = self.groups.first_seats()
        self.incarnation = 0
        self.start_sqn = 0
        self.begins: tuple[tuple[int, int], ...] = ()
        """BEGINs of earlier incarnations, for stores that missed some (docs/design.md 13)."""
        self.counted: dict[int, int] = {}
        """Store -> the newest incarnation of its log, of those whose answers decided the opening. Not of one
        that has messages which may be stable, and which the table makes void: it refuses."""
        self.complete = False
        self.was_complete = False
        self.uuid = uuid
        self._anonymous = anonymous
        self._empty = set(range(len(self.entries))) if anonymous else set()
        """Stores that know nothing of this source, also without having answered."""
        self.found: dict[int, election.Found] = {}
        """The censuses of stores that are unheard; to be looked at anew, again and again."""
        self.register = election.NOTHING
        """What this host's register has; to be read anew before each question."""
        self.over: list[int] = []
        """Exclusions by the operator that the opening was decided with, and those of a store that takes part
        again: over once this source may send."""
        self.least = 0
        """The incarnation that stores are asked to promise: the greatest that one has promised, or that a
        ring has had."""
        self._told_gone: reg.Forgot | None = None
        self._open_again_ns = 0
        self._heartbeats = [Heartbeat(silence_ns, look_ns) for _ in self.entries]

    @property
    def is_open(self) -> bool:
        """The stream exists."""
        return self.incarnation > 0

    @property
    def may_send(self) -> bool:
        """Registration was completed, and the predicate holds now (docs/semantics.md E.2)."""
        return self.complete and self._holds()

    def _holds(self) -> bool:
        return self.is_open and (not self.entries or self._sufficient(self.active()))

    def active(self) -> set[int]:
        """Stores that are registered now."""
        return self._in_phase(Phase.ACTIVE)

    def _sufficient(self, stores: Collection[int]) -> bool:
        return self.groups.complete(stores)

    def keeps_too_little(self) -> bool:
        """Too few of its stores keep messages for any to become stable (docs/semantics.md I.3)."""
        no_acks = RegistrationSuccessFlags.NOACKS
        empty = {store for store, grant in self.grants().items() if grant.flags & no_acks}
        return bool(empty) and not self._sufficient(self.seated - empty)

    def start(self) -> list[Action]:
        """A source without stores is complete at once: it streams, and nothing is kept."""
        return [] if self.entries else [reg.Open(1, 0)]

    # Up to the first send -----------------------------------------------------------------------------------

    def connected(self, store: int, now_ns: int) -> list[Action]:
        """A link to the store is up."""
        self.found = {}  # what was looked at before proves nothing any more
        if not self._anonymous:  # from now on it may learn something
            self._empty.discard(store)
        return Registration.connected(self, store, now_ns) + self._reseat(now_ns)

    def knows_nothing(self, store: int) -> None:
        """The store is dead, and its state, which can be read, has nothing of this source (docs/design.md 14,
        15)."""
        self._empty.add(store)

    def granted(self, store: int, grant: Grant, now_ns: int) -> list[Action]:
        """The store answered for this identity."""
        entry = self.entries[store]
        asked, entry.pending = entry.pending, None
        if entry.phase is not Phase.ASKED:  # it has no seat any more
            return [reg.GiveUp(store, grant.uuid)]
        if asked is not None and asked != self.incarnation:  # from before the opening, or for one that was abandoned
            return [reg.GiveUp(store, grant.uuid), *self._ask(store, now_ns)]
        entry.grant, entry.granted_ns = grant, now_ns
        entry.phase, entry.refusal, entry.gone, entry.refusals = Phase.GRANTED, None, False, 0
        left = self._give_up()
        # Not of what is left at once; nor again of what the last one came to nothing for, or of what was only
        # asked again.
        told = store in self.seated and entry.phase is Phase.GRANTED and not (entry.hollow or entry.again)
        entry.again = False
        actions: list[Action] = [reg.Granted(store, grant)] if told else []
        if self.is_open:
            self.counted.pop(store, None)  # it was away: its log may be another one by now
            return actions + self._announce(store, now_ns)
        return actions + left + self._open(now_ns)

    def _ask(self, store: int, now_ns: int) -> list[Action]:
        """One question at a time: what the first of two is granted would refuse the second, and nobody would
        know who has it."""
        entry = self.entries[store]
        if entry.pending is not None:
            entry.phase = Phase.ASKED
            return []
        entry.pending = self.incarnation
        return Registration._ask(self, store, now_ns)

    def _announce(self, store: int, now_ns: int) -> list[Action]:
        entry = self.entries[store]
        entry.phase, entry.asked_ns = Phase.ANNOUNCED, now_ns
        self.over += [number for number in self.exclusions(store) if number not in self.over]
        return [reg.Announce(store)]

    def _claims(self) -> Phase | None:
        return None if self.is_open else Phase.GRANTED

    def grants(self) -> dict[int, Grant]:
        """All that hold."""
        return {store: entry.grant for store, entry in enumerate(self.entries) if entry.grant is not None}

    def _answers(self, *, last: bool = False) -> dict[int, Grant]:
        """What stores granted; before the opening backups are among them. ``last``: also of those that are
        asked again."""
        return {
            store: entry.grant
            for store, entry in enumerate(self.entries)
            if entry.grant and (entry.phase is Phase.GRANTED or (last and entry.again))
        }

    def unheard(self, now_ns: int) -> list[int]:
        """Stores that have neither granted nor refused it, where nobody knows it: for their censuses."""
        answers = self._answers(last=True)
        waits = not self.is_open and self._is_over(now_ns) and self._sufficient(self.seated & set(answers))
        stores = election.unheard(self.groups, answers, self._empty) if waits else []
        return [store for store in stores if self.entries[store].refusal is None]

    def _decision(self) -> election.Decision | None:
        known = self._empty, self._names, self.register, self.found
        return election.decide(self.groups, self.seated, self._answers(), self.behavior, self.uuid, *known)

    def _stuck(self, held: Collection[int], in_use: Collection[int]) -> bool:
        return Registration._stuck(self, held, in_use) or self._decision() is None

    def _open(self, now_ns: int) -> list[Action]:
        """An attempt may fail, without memory for example: the next one is made after the interval."""
        if self.is_open or now_ns < self._open_again_ns:
            return []
        if not self.entries:
            self._open_again_ns = now_ns + self.interval_ns
            return self.start()
        granted = self._in_phase(Phase.GRANTED)
        if not granted or len(granted) <= len(self._in_use() & self.seated):
            return []
        if granted != self.seated and not (self._is_over(now_ns) and self._sufficient(granted)):
            return []
        decision = self._decision()
        if decision is None:  # what an operator says, or a disk that is mended, is heard by asking again
            due = [store for store in self._answers() if now_ns - self.entries[store].granted_ns >= self.interval_ns]
            return self._ask_again(due, now_ns)
        if stale := self._stale(decision.uuid):
            return [each for s in stale for each in (reg.GiveUp(s, decision.uuid), *self._ask(s, now_ns))]
        incarnation = max(decision.incarnation, self.least)
        if unpromised := self._promised_less(incarnation):
            self.least = incarnation
            return self._ask_again(unpromised, now_ns)
        self._open_again_ns = now_ns + self.interval_ns
        self.uuid, self.begins = decision.uuid, decision.begins
        self.counted = {
            store: grant.begun
            for store, grant in self._answers().items()
            if grant.uuid == decision.uuid and store not in decision.contested
        }
        self.over = election.all_over(list(self._answers().values()), self.register, decision.uuid)
        gone = reg.Forgot(decision.forgot, decision.start_sqn)
        told: list[Action] = [gone] if decision.forgot and gone != self._told_gone else []
        self._told_gone = gone
        return [*told, reg.Open(incarnation, decision.start_sqn)]

    def _ask_again(self, stores: Iterable[int], now_ns: int) -> list[Action]:
        """Leaves these stores, which have granted, and registers there anew."""
        actions: list[Action] = []
        for store in stores:
            entry = self.entries[store]
            assert entry.grant is not None
            entry.again = True
            actions += [reg.GiveUp(store, entry.grant.uuid), *self._ask(store, now_ns)]
        return actions

    def _promised_less(self, incarnation: int) -> list[int]:
        """Stores that could still let a later claimant open an incarnation below this one, or this one
        itself.

        Then a BEGIN that reaches few stores would be the newest for ever, and make void what becomes stable
        under that other one.
        """
        return [store for store, grant in sorted(self._answers().items()) if 0 < grant.promised < incarnation]

    def lives(self, of: Collection[int] | None = None) -> dict[str, int]:
        """Stores (``of`` these) that have granted, by their own names -> the life of each, as BEGIN tells
        it."""
        told = election.lives(self.grants(), self.register, self.uuid)
        names = {grant.name for store, grant in self.grants().items() if of is None or store in of}
        return {name: life for name, life in told.items() if name in names}

    def exclusions(self, store: int) -> list[int]:
        """Of this store by the operator, after which it has to learn."""
        return election.to_learn(store, self.grants(), self._names) if store in self.grants() else []

    def open_by(self, by_ns: int) -> None:
        """Somebody waits: after an attempt that failed the next one is made at this time, if not before."""
        self._open_again_ns = min(self._open_again_ns, by_ns)

    def beyond(self, incarnation: int, now_ns: int) -> list[Action]:
        """A ring or a board line shows that somebody has had the incarnation that was to be opened: this one
        is to be next."""
        self.least, self._open_again_ns = max(self.least, incarnation), now_ns
        return self._open(now_ns)

    def _pause_ns(self) -> int:
        """Shorter for who has the RegID elsewhere: a claimant takes a store in turn with giving up, and may
        do so in step."""
        return Registration._pause_ns(self) // (2 if self.was_complete else 1)

    def refusal(self, since_ns: int = 0) -> reg.Refusal | None:
        """Also: enough stores grant, but may not decide without one that refuses, and not because of another
        claimant."""
        found = Registration.refusal(self, since_ns)
        settled = self._in_phase(Phase.GRANTED, Phase.REFUSED) == self.seated
        if found is not None or self.is_open or not settled or not self._answers() or self._decision() is not None:
            return found
        lasting = {
            store
            for store in self._refused_since(since_ns)
            if (said := self.entries[store].refusal) is not None
            and said.code not in {"busy", "failed", "reg_id_in_use"}
        }
        return self._reason(lasting)

    def _stale(self, uuid: bytes) -> list[int]:
        """Stores that were asked before another one reported more, and now can read its log: their answers
        are too old to decide by (docs/design.md 14). What is less when they are asked again is all that they
        can know."""
        reports = {
            store: (grant.incarnation, grant.next_sqn)
            for store, grant in self._answers().items()
            if grant.incarnation and grant.uuid == uuid
        }
        most = max(reports.values(), default=(0, 0))
        since = min((self.entries[store].granted_ns for store in reports if reports[store] == most), default=0)
        late = [store for store in sorted(self.seated) if reports.get(store, most) < most]
        return [store for store in late if self.entries[store].asked_ns < since]

    def opened(self, incarnation: int, start_sqn: int, now_ns: int) -> list[Action]:
        """The stream was created; BEGIN goes to every store that has a seat and granted. Backups are left."""
        self.incarnation, self.start_sqn = incarnation, start_sqn
        if not self.entries:
            self.complete = True
            return [reg.Complete(start_sqn, True)]
        actions: list[Action] = []
        for store, entry in enumerate(self.entries):
            if store not in self.seated:
                if entry.phase is Phase.GRANTED and entry.grant is not None:
                    actions.append(reg.GiveUp(store, entry.grant.uuid))
                entry.phase, entry.grant = Phase.IDLE, None
            elif entry.phase is Phase.GRANTED:
                actions += self._announce(store, now_ns)
        return actions

    def begun(self, store: int, next_sqn: int, now_ns: int, *, catching_up: bool = False) -> list[Action]:
        """BEGIN is durable at the store. ``next_sqn``: the source's next number now."""
        entry = self.entries[store]
        if entry.grant is not None:
            entry.grant = replace(entry.grant, uuid=self.uuid)
        if entry.phase is not Phase.ANNOUNCED:
            return []
        entry.phase, entry.gone = Phase.CATCHING_UP if catching_up else Phase.ACTIVE, False
        entry.told, entry.hollow = None, False
        return self._complete(next_sqn, now_ns)

    def refused(self, store: int, refusal: reg.Refusal) -> list[Action]:
        """The store said no. Before anything was sent that may mean that somebody else has begun since the
        stores granted: to BEGIN, or because stores are in use, or another source's. Then this incarnation is
        void. One that could not do it ("failed") is asked again, and the others do not wait for it."""
        entry = self.entries[store]
        self.found.pop(store, None)  # it may know the source by another name
        asked, entry.pending, entry.again = entry.pending, None, False
        if entry.phase is Phase.ASKED and asked is not None and asked != self.incarnation:
            return self._ask(store, entry.asked_ns)  # it may be in use by the stream that was opened since
        if self.was_complete or not self.is_open:
            return Registration.refused(self, store, refusal)
        if entry.phase is Phase.ANNOUNCED and refusal.code == "busy":
            return self._abandon(entry.asked_ns)
        actions = Registration.refused(self, store, refusal)
        free, in_use = self.seated - self._in_use() - self._overtaken(), self._in_use() & self.seated
        half = len(free) <= len(in_use)  # where one group will do, two could be complete
        hopeless = half or not self._sufficient(free)
        return actions + self._abandon(entry.asked_ns) if hopeless else actions

    def _overtaken(self) -> set[int]:
        """Stores where nothing had begun when they granted, and now something has under another identity."""
        refused = {s for s, entry in enumerate(self.entries) if entry.refusal and entry.refusal.code == "other_source"}
        return {store for store in refused if (grant := self.entries[store].grant) and not grant.incarnation}

    def _abandon(self, now_ns: int) -> list[Action]:
        """Its stream must not stay: it is the newest, and has an owner who lives."""
        self.incarnation, self.begins, self.found = 0, (), {}
        actions: list[Action] = [reg.Abandon()]
        for store, entry in enumerate(self.entries):
            if entry.grant is not None and entry.up and entry.pending is None:
                actions.append(reg.GiveUp(store, entry.grant.uuid))
            refused, entry.grant = entry.phase is Phase.REFUSED, None
            entry.phase = entry.phase if refused else Phase.DOWN
            if entry.up and not refused:
                actions += self._ask(store, now_ns)
        return actions

    def caught_up(self, store: int, next_sqn: int, now_ns: int) -> list[Action]:
        """The store has what its peers have."""
        entry = self.entries[store]
        if entry.phase is not Phase.CATCHING_UP:
            return []
        entry.phase = Phase.ACTIVE
        return self._complete(next_sqn, now_ns)

    def _complete(self, next_sqn: int, now_ns: int) -> list[Action]:
        """The first time every seat is waited for as long as the interval lasts; after a loss, what the
        groups need will do."""
        active = self.active()
        if not self._holds():  # also by one more: a group that becomes active, and is not complete
            self.complete = False
            return []
        if self.complete:
            return []
        if not self.was_complete and active != self.seated and not self._is_over(now_ns):
            return []
        self.complete = self.was_complete = True
        return [reg.Complete(next_sqn, active == self.seated)]

    # Stores that go, and return -----------------------------------------------------------------------------

    def disconnected(self, store: int, now_ns: int) -> list[Action]:
        """The store is dead, or its link broke: it does not count until it has registered again."""
        entry = self.entries[store]
        was, entry.up, entry.refusals, entry.same, entry.pending, entry.again = entry.phase, False, 0, 0, None, False
        if was is Phase.IDLE:
            return []
        entry.phase = Phase.DOWN
        if store not in self.seated:
            return []
        told = self._unresponsive(store) if was in TAKES_PART else []
        entry.gone = True
        return told + self._reseat(now_ns)

    def look(
        self, store: int, beat: int, next_sqn: int, now_ns: int, *, catching_up: bool, full: bool = False
    ) -> list[Action]:
        """What the store's line on the board says now; for every store that takes part, every ``look_ns``."""
        if self._heartbeats[store].look(beat, now_ns):
            return self.silent(store, now_ns)
        caught_up = [] if catching_up else self.caught_up(store, next_sqn, now_ns)
        return caught_up + self.heard(store, next_sqn, now_ns, catching_up=catching_up) + self._room(store, full)

    def _room(self, store: int, full: bool) -> list[Action]:
        """A store without room keeps its seat: it goes on by itself. Said once, until it has room."""
        entry = self.entries[store]
        if entry.full == full or entry.phase not in {Phase.CATCHING_UP, Phase.ACTIVE}:
            return []
        entry.full = full
        number = self.groups.of[store]
        take = [each for each in self.active() & set(self.groups.members(number)) if not self.entries[each].full]
        return [reg.Full(store, len(take), self.groups.needed(number))] if full else []

    def silent(self, store: int, now_ns: int) -> list[Action]:
        """Its heartbeat has stood still for ume_store_activity_timeout: it does not count until it goes
        on."""
        entry = self.entries[store]
        if entry.phase not in {Phase.CATCHING_UP, Phase.ACTIVE}:
            return []
        entry.phase, entry.gone = Phase.SUSPENDED, True
        return self._unresponsive(store) + self._reseat(now_ns)

    def heard(self, store: int, next_sqn: int, now_ns: int, *, catching_up: bool = False) -> list[Action]:
        """The heartbeat goes on."""
        entry = self.entries[store]
        if entry.phase is Phase.IDLE and entry.gone:
            entry.gone = False
            return self._reseat(now_ns)
        if entry.phase is not Phase.SUSPENDED:
            return []
        entry.phase, entry.gone = Phase.CATCHING_UP if catching_up else Phase.ACTIVE, False
        return self._complete(next_sqn, now_ns)

    def _unresponsive(self, store: int, *, answered: bool = True) -> list[Action]:
        lost = self.complete and not self._holds()
        if lost:
            self.complete = False
        number = self.groups.of[store]
        registered = len(self.active() & set(self.groups.members(number)))
        return [reg.Unresponsive(store, lost, registered, self.groups.needed(number), answered)]

    def _reseat(self, now_ns: int) -> list[Action]:
        """Gives each seat whose store is unresponsive to the next backup of its group that is there."""
        actions: list[Action] = []
        for store in sorted(self.seated):
            if not self.entries[store].gone:
                continue
            for backup in self.groups.members(self.groups.of[store]):
                entry = self.entries[backup]
                if backup in self.seated or not entry.up or entry.gone:
                    continue
                self.seated = self.seated - {store} | {backup}
                entry.again = False  # of what it grants now the program has not been told
                actions.append(reg.Seated(backup, store))
                if self.is_open:
                    self.entries[store].phase = Phase.IDLE
                    actions += self._ask(backup, now_ns)
                elif entry.phase is Phase.GRANTED and entry.grant is not None:
                    actions += [reg.Granted(backup, entry.grant), *self._open(now_ns)]
                break
        return actions

    def tick(self, now_ns: int, next_sqn: int = 0) -> list[Action]:
        """Asks again what is due; does with fewer stores when the first interval is over; tells who has not
        answered."""
        actions = self._retries(now_ns) + self._open(now_ns)
        if not self.complete:  # also by one less: a group that is not active any more is not waited for
            actions += self._complete(next_sqn if self.was_complete else self.start_sqn, now_ns)
        silent = self._overdue(now_ns, Phase.DOWN, Phase.ASKED, Phase.ANNOUNCED)
        actions += [each for store in silent for each in self._unresponsive(store, answered=False)]
        return actions + self._reseat(now_ns) if silent else actions

    def waiting_for(self) -> list[int]:
        """Stores with a seat that do not do their part now."""
        done = Phase.ACTIVE if self.is_open else Phase.GRANTED
        return sorted(self.seated - self._in_phase(done))

    def why(self, names: Sequence[str]) -> str:
        """What it waits for, for a program that has waited long enough. ``names``: of the stores."""
        refused = [(names[s], self.entries[s].refusal) for s in sorted(self._refused_since(0))]
        said = [f"{name} refuses: {refusal.text}" for name, refusal in refused if refusal is not None]
        if said:  # that store is there, and knows why
            return "; ".join(said)
        if not self.is_open and (
            reason := election.obstacle(
                self.groups, self.seated, self._answers(last=True), names, self._empty, self.register, self.found
            )
        ):
            return reason
        waiting = self.waiting_for()
        if not waiting:  # each has done its part: what is missing comes now, or came since the caller looked
            done = [names[store] for store in sorted(self.seated)]
            return f"{', '.join(done) or 'no store'} {'have' if len(done) > 1 else 'has'} answered"
        return "waiting for " + ", ".join(names[store] for store in waiting)
