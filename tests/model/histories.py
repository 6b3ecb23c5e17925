"""Histories of one source: lives on changing lists of stores, which are away, unreadable, wiped, and restored
from backups; with a register that is lost, or restored, alone or together with a store.

Run by the product: :func:`holdfast.engine.rules.election.decide`, the promises of a store's state, the BEGIN
tables, and what is void by them. Modelled: what a store holds, who reaches whom, who reads whose files. The
judge counts copies and finds void records by rules of its own, in :meth:`Declared.stable` and verdicts.py,
and knows each message by its content:

* a number that was stable is given to nobody else, while any log has what it was, whether that can be read
  now or not;
* where all copies went with wiped or restored directories, it is given again only if the decision says so;
* what was stable only with what an excluded store has is given up, until that has learned;
* no BEGIN makes void what is stable, neither at a store that takes it nor by the table that is decided in the
  end; and who takes it keeps nothing that it makes void;
* when every store that was ever declared has answered, or is excluded, there is a decision.

The register adds to what the stores say, and takes nothing from it. So what only it knew is lost with it:
that is counted (``World.only_written``), where the register as it was written would have led to another
decision, and no register at all to this loss as well: one that was restored is never worse than none.
"""

from __future__ import annotations

import copy
import itertools
from functools import partial
from typing import TYPE_CHECKING

from model.answers import OURS, Answers
from model.censuses import Host
from model.declared import Register
from model.disk import Disk, Kept
from model.verdicts import LostError, OnlyWrittenError, gist, makes_void, renumbers, table_of

from holdfast.engine.rules import election
from holdfast.engine.rules.reconcile import after_begin
from holdfast.engine.rules.registration import Grant
from holdfast.engine.store.answers import keeps_promise

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from model.choices import Choices
    from model.declared import Declared

    from holdfast.engine.log.state_file import SourceState
    from holdfast.engine.rules.quorum import Consensus

    Question = Callable[[], tuple[election.Decision | None, dict[int, Grant]]]


class World(Answers):
    """The stores, and the judge's book."""

    writes = True
    """There is a register."""
    writes_events = True
    """What changes in the middle of a life is written, too."""
    lazy_promises = False
    """Planted: a promise is on disk with the next BEGIN only."""

    def __init__(self, names: str) -> None:
        self.life = 0
        self.disks = {name: Disk([self.next_life()]) for name in names}
        self.host = Host()
        self.copies: dict[str, Disk] = {}
        self.claimants = self.exclusions = 0
        self.sent = 0
        self.stable: dict[int, int] = {}
        """Number -> what it was when it was stable."""
        self.holders: dict[int, set[str]] = {}
        """Number -> who made it stable."""
        self.suffices: dict[int, Callable[[Collection[str]], bool]] = {}
        """Number -> whether it would be stable with these stores alone."""
        self.excluded_then: dict[int, int] = {}
        """Number -> the last exclusion when it became stable."""
        self.register, self.written, self.whole = Register(), Register(), Register()
        """As it is, and all that was to be written: the same, until something befalls the register."""
        self.saved = Register()
        """A copy of the register."""
        self.damaged = self.harmed = False
        """The register is not what was written."""
        self.parted = False
        """By the register as it was written, the decision would have been another one."""
        self.only_written = False
        """What was lost with it was all that knew of something stable."""
        self.events = 0
        """In the middle of lives."""
        self.instead: Callable[[Register], election.Decision | None] = lambda _: None
        """What would have been decided with another register: ``whole`` is what was to be written before."""
        self.forgetful: set[str] = set()
        self.excluded: set[tuple[str, int]] = set()
        """Whom the operator has excluded, and the number of that, as those that answer remember it; not for a
        source that has started since with some that remembered it."""
        self.spent: set[int] = set()
        """Those exclusions: who was excluded is waited for again."""
        self.used: set[int] = set()
        """Some store has taken in a BEGIN that was decided with them, or after them."""
        self.learning: dict[str, list[int]] = {}
        """Exclusions that each store learns after, with the BEGIN of this life."""
        self.over: set[int] = set()
        """Exclusions that are over with the BEGIN of this life, as its source knows them."""
        self.told: set[int] = set()
        """Of these a decision has said that they may be gone."""
        self.begun = False
        """Something has, somewhere."""
        self.decided = self.waited = self.proved = 0

    def next_life(self) -> int:
        """Of a directory that is opened; no other has had it."""
        self.life += 1
        return self.life

    # A life of the source -----------------------------------------------------------------------------------

    def decide(
        self, declared: Declared, up: Collection[str], hidden: Collection[str], blind: bool, behavior: Consensus,
        claimant: bytes,
    ) -> tuple[election.Decision | None, dict[int, Grant]]:  # fmt: skip
        """What a claimant comes to, who asks until all have promised what it opens; and the last answers."""
        grants = self.answers(declared, up, blind, hidden, claimant, 0)
        found = self.ask(declared, up, grants, hidden, behavior, claimant)
        if found is not None:
            grants = self.answers(declared, up, blind, hidden, claimant, found.incarnation)
            found = self.ask(declared, up, grants, hidden, behavior, claimant)
        return found, grants

    def _instead(self, disks: dict[str, Disk], question: Question, register: Register) -> election.Decision | None:
        now = self.disks, self.register
        self.disks, self.register = copy.deepcopy(disks), register
        try:
            return question()[0]
        finally:
            self.disks, self.register = now

    def lost(self, text: str, by: Callable[[election.Decision], bool]) -> None:
        """A number is, ``by`` a decision. Raises LostError, or OnlyWrittenError."""

        without = self.instead(Register()) if self.parted else None
        if without is None or without.uuid != OURS or not by(without):
            raise LostError(text)
        self.only_written = True
        raise OnlyWrittenError(text)

    def live(
        self, declared: Declared, up: Collection[str], choices: Choices, *, hidden: Collection[str] = (),
        blind: bool = False, behavior: Consensus = "lowest", eventful: bool = False,
    ) -> bool:  # fmt: skip
        """One claimant: it asks, opens, says BEGIN to some, sends a message, and dies; ``eventful``: not
        before something has happened, and another message. True: it had a decision."""
        self.claimants += 1
        claimant = b"%d" % self.claimants
        for name in up:
            self.open(name)
        before = {name: copy.deepcopy(self.disks[name].state) for name in up}
        for name in up:
            self.claim(name, claimant.ljust(16, b"\0"))
        question = partial(self.decide, declared, up, hidden, blind, behavior, claimant)
        self._prepare(up, question)
        found, grants = question()
        if found is None:
            self.waited += 1
            given_up = {name for name, number in self.heard(up) & self.excluded if number not in self.used}
            if not (self.harmed or blind or hidden) and self.disks.keys() - set(up) <= given_up:
                raise LostError(f"all but {given_up}, which are excluded, have answered: there is no decision")
            self._forget_promises(before)
            return False
        self.decided += 1
        if not any(grant.incarnation for grant in grants.values()):
            self.proved += self.ask(declared, up, grants, hidden, behavior, claimant, censuses=False) is None
        self._part(found)
        if found.uuid != OURS and any(self.disks[name].log for name in up):
            raise LostError(f"another identity begins on {sorted(up)}, where messages are kept")
        if found.uuid != OURS and self.begun:  # a source of its own: who asked knows nothing of the other one
            if left := {number: held for number in self.stable if (held := {*self._left(number)} & {*declared.stores})}:
                raise LostError(f"another identity begins, and declared stores have what is stable: {left}")
            return True
        seats = declared.seats(up) & set(up)
        lives = election.lives(grants, {OURS: self.register.written}, OURS)
        told = {name: life for name, life in lives.items() if name in seats}
        self.over = set(election.all_over(list(grants.values()), {OURS: self.register.written}, OURS))
        self.learning = self._to_learn(declared, up)
        self._write(declared, found.incarnation, told)
        reached = choices.pick([sorted(seats), sorted(seats)[:1], []])
        begun = [name for name in reached if self.begin(name, declared, found, told, claimant)]
        self.used |= {number for name in up if begun for number in self.disks[name].excluded.values()}
        if declared.enough(begun):
            self.judge_start(found)
            self.spent |= {number for name in up for number in self.disks[name].excluded.values()}
            for register in self.registers:
                register.complete(declared, found.incarnation, found.start_sqn, self.over)
            unread = set(self.disks) if blind else set(hidden)
            self.send(declared, begun, found, choices, unread)
            if eventful and self.happen(declared, up, begun, found, told, choices):
                self.send(declared, begun, found, choices, unread, count=2)
        else:
            self._forget_promises({name: state for name, state in before.items() if name not in begun})
        if self.parted:
            raise OnlyWrittenError(f"begins at {found.start_sqn}")
        return True

    def _prepare(self, up: Collection[str], question: Question) -> None:
        """What somebody remembers, and what would be decided otherwise, by the stores as they are now."""
        self.whole, self.forgetful = copy.deepcopy(self.written), self._forgetful(up)
        said = {each for name in up for each in self.disks[name].excluded.items()}
        self.excluded = {(name, number) for name, number in said if number not in self.spent}
        if self.damaged:
            self.instead = partial(self._instead, copy.deepcopy(self.disks), question)

    def _part(self, found: election.Decision) -> None:
        self.told |= {number for number in self.stable if found.forgot and number >= found.start_sqn}
        self.parted = self.damaged and gist(found) != gist(self.instead(self.whole))

    @property
    def registers(self) -> list[Register]:
        """Those that something is written to."""
        return [self.written, self.register] if self.writes else [self.written]

    def _write(self, declared: Declared, incarnation: int, lives: dict[str, int], *, event: bool = False) -> None:
        """On disk, before any of these begins."""
        for register in self.registers if self.writes_events or not event else [self.written]:
            register.declare(declared, incarnation, lives)

    def happen(
        self, declared: Declared, up: Collection[str], begun: list[str], found: election.Decision, told: dict[str, int],
        choices: Choices,
    ) -> bool:  # fmt: skip
        """In the middle of a life a store dies and a backup takes its seat, one comes late, or one starts
        again. ``begun`` is who takes part. True: something has happened, and the source goes on."""
        seats = declared.seats(up)
        moves = [
            (store, spare) for store in begun for spare in declared.spares(store) if spare in up and spare not in seats
        ]
        late = [("", store) for store in seats if store not in up]
        dead, new = choices.pick([("", ""), *moves, *late, ("", begun[0])])
        if not new:
            return False
        self.events += 1
        begun[:] = [store for store in begun if store not in {dead, new}]
        if not dead:
            self.open(new)
        self.claim(new, OURS)
        told[new] = self._life_to_tell(new, told)
        if new not in self.learning or not dead:  # it registers in the middle of this life
            self.learning[new] = self._to_learn(declared, {*up, new})[new]
        self._write(declared, found.incarnation, {new: told[new]}, event=True)
        if self.begin(new, declared, found, told):
            begun.append(new)
            for register in self.registers:
                register.over.update(self.learning[new])
        return declared.enough(begun)

    def _to_learn(self, declared: Declared, up: Collection[str]) -> dict[str, list[int]]:
        """As the source tells it with BEGIN, by what these grant."""
        grants = {}
        for store, name in enumerate(declared.stores):
            disk = self.disks[name]
            served = tuple(disk.state.served) if disk.state is not None else ()
            if name in up:
                known = dict(disk.excluded)
                grants[store] = Grant(7, OURS, 0, False, name=name, exclusions=known, served=served, configuration=None)
        return {grant.name: election.to_learn(store, grants, declared.stores) for store, grant in grants.items()}

    def _life_to_tell(self, name: str, told: dict[str, int]) -> int:
        """As the source has it of what the stores were told, and of the register."""
        disk, remembered = self.disks[name], [lives[name] for lives in (told, self.register.lives) if name in lives]
        missed = [life for life in remembered if life > disk.known_lives[0] and life not in disk.known_lives]
        return max(missed, default=disk.lives[-1])

    def _forget_promises(self, before: dict[str, SourceState | None]) -> None:
        """Killed before the promise was on disk."""
        if self.lazy_promises:
            for name, state in before.items():
                self.disks[name].state = state

    def begin(
        self, name: str, declared: Declared, found: election.Decision, told: dict[str, int], claimant: bytes = b""
    ) -> bool:
        """BEGIN at a store; False: it refuses. ``claimant``: of a source that is open nowhere yet."""
        disk = self.disks[name]
        state = disk.state
        assert state is not None
        if not keeps_promise(state, found.incarnation, claimant) or found.incarnation < state.incarnation:
            return False
        missed = state.incarnation not in {found.incarnation, *(begin[0] for begin in found.begins)}
        if missed and disk.end > state.start_sqn:
            return False
        state.learn(self.learning[name])
        if found.incarnation > state.incarnation:
            state.readmit([*self.over, *disk.excluded.values()])
        table = after_begin(state.begins, found.begins, found.incarnation, found.start_sqn)
        holding = disk.holding(table)
        for number, kept in disk.log.items():
            void = makes_void(number, kept, found)
            if (
                (void or number not in holding)
                and self.stable.get(number) == kept.content
                and name in self._left(number)
            ):
                text = f"BEGIN{table[-1]} makes void at {name} what is stable: number {number}"
                self.lost(text, partial(makes_void, number, kept))
            if void and number in holding:
                raise LostError(
                    f"BEGIN{table[-1]} makes void number {number} of {kept.incarnation}, and {name} keeps it"
                )
        disk.log = holding
        disk.end = min([disk.end, *(start for incarnation, start in table if incarnation > state.incarnation)])
        state.uuid, self.begun = OURS, True
        state.take(table)
        state.stores, state.peers = list(declared.stores), dict(told)
        state.taken += [told[name]] * (told[name] not in disk.known_lives)
        state.sizes, state.groups = list(declared.sizes), list(declared.of)
        groups = declared.groups
        state.intragroup = ("quorum", "all-active", "all").index(groups.intragroup)
        state.intergroup = ("any", "all-active", "majority", "all").index(groups.intergroup)
        return True

    def judge_start(self, found: election.Decision) -> None:
        """Numbers from the start on are given to new messages."""
        for number in [number for number in self.stable if number >= found.start_sqn]:
            left = self._left(number)
            if left:
                text = f"starts at {found.start_sqn}, and number {number} was stable: {left} have it"
                self.lost(text, partial(renumbers, number))
            elif number not in self.told and self.holders[number] <= self.forgetful:
                text = f"starts at {found.start_sqn}, number {number} was stable and is gone, and nobody is told"
                self.lost(text, partial(renumbers, number, silently=True))
            del self.stable[number]

    def _forgetful(self, up: Collection[str]) -> set[str]:
        """Of those that answer: who has no state, has lost its log, or has not had a life that another one of
        them remembers, or what was to be written before."""
        found = set()
        for name in up:
            disk = self.disks[name]
            states = [self.disks[each].state for each in up]
            told = [self.whole.lives, *(state.peers for state in states if state is not None)]
            remembered = [each[name] for each in told if name in each]
            lives = disk.known_lives
            missed = any(life > lives[0] and life not in lives for life in remembered)
            if missed or disk.state is None or not disk.state.incarnation or disk.state.learner:
                found.add(name)
        return found

    def _left(self, number: int) -> list[str]:
        """Who has it still; nobody, where it was stable only with what is given up: it was, when a store was
        excluded that has it."""
        given_up = {name for name, exclusion in self.excluded if exclusion > self.excluded_then[number]}
        left = [name for name, disk in self.disks.items() if name not in given_up and self._has(disk, number)]
        return left if not self.holders[number] & given_up or self.suffices[number](left) else []

    def _has(self, disk: Disk, number: int) -> bool:
        kept = disk.log.get(number)
        return kept is not None and kept.content == self.stable[number]

    def send(
        self, declared: Declared, begun: list[str], found: election.Decision, choices: Choices, hidden: set[str],
        count: int = 1,
    ) -> None:  # fmt: skip
        """Who has begun reads what it lacks from those that can be read; the ``count``th message of the life,
        and those before it from the source's ring."""
        for name in begun:
            self._fill(name, found.start_sqn, hidden - {name})
        readable = all(store not in hidden for store in declared.stores)
        for name in begun:
            state = self.disks[name].state
            if state is not None and readable:
                state.learner = False
        sets = [set(each) for size in range(1, len(begun) + 1) for each in itertools.combinations(begun, size)]
        enough = [each for each in sets if declared.stable(begun, each)]
        least = [each for each in enough if not any(other < each for other in enough)]
        having = choices.pick([*least, {begun[0]}])
        self.sent += 1
        for number in range(found.start_sqn, found.start_sqn + count):
            content = self.sent - (found.start_sqn + count - 1 - number)
            for name in having:
                disk = self.disks[name]
                disk.log[number] = Kept(found.incarnation, content)
                disk.end = max(disk.end, number + 1)
            if declared.stable(begun, having) and number not in self.stable:
                self.stable[number], self.holders[number] = content, set(having)
                self.suffices[number], self.excluded_then[number] = (
                    partial(declared.stable, list(begun)),
                    self.exclusions,
                )

    def _fill(self, name: str, start: int, hidden: Collection[str]) -> None:
        disk = self.disks[name]
        table, found = disk.view().begins, dict[int, Kept]()
        for other in [each for other, each in self.disks.items() if other not in hidden]:
            found.update({number: kept for number, kept in other.holding(table).items() if number < start})
        disk.log = {**found, **disk.log}
        disk.end = max(disk.end, start)

    # The end ------------------------------------------------------------------------------------------------

    def judge_end(self, declared: Declared) -> None:
        """Everybody is there, and can be read."""
        names = set(declared.stores) | {
            store for disk in self.disks.values() if disk.state is not None for store in disk.state.stores
        }
        names |= {store for each in self.register.lists for store in each.stores}
        up = {name for name in declared.stores if self.claim(name, b"last".ljust(16, b"\0")) is not None}
        question = partial(self.decide, declared, up, (), False, "lowest", b"last")
        self._prepare(up, question)
        found, _ = question()
        if found is None and names == up:
            raise LostError(f"all of {sorted(names)} have answered, and there is no decision")
        if found is None or found.uuid != OURS:
            return
        self._part(found)
        self.judge_start(found)
        for number, content in self.stable.items():
            left = {name: self.disks[name] for name in self._left(number)}

            def void(by: election.Decision, n: int = number, copies: Collection[Disk] = left.values()) -> bool:
                return bool(copies) and all(makes_void(n, disk.log[n], by) for disk in copies)

            if void(found):
                self.lost(
                    f"by {table_of(found)} number {number} is void, and was stable as {content}: {sorted(left)}", void
                )
