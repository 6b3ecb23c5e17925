"""Histories of one source: lives on changing lists of stores, which are away, unreadable, wiped, and restored from backups.

Run by the product: :func:`holdfast.engine.voting.decide`, the promises of a store's state, the BEGIN tables. Modelled: what a
store holds, who reaches whom, who reads whose files. The judge counts copies by rules of its own, in :meth:`Declared.stable`, and
knows each message by its content:

* a number that was stable is given to nobody else, while any log has what it was, whether that can be read now or not;
* where all copies of it went with wiped or restored directories, it is given again only if the decision says so;
* no BEGIN makes void what is stable, neither at a store that takes it nor by the table that is decided in the end;
* when every store that was ever declared has answered, there is a decision.

A history is a row of choices. :func:`every` goes through all of them, :func:`some` draws at random.
"""

from __future__ import annotations

import copy
import itertools
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from holdfast.engine import voting
from holdfast.engine.quorum import Groups
from holdfast.engine.reconcile import FOR_EVER, LogView, Table, after_begin, void_from
from holdfast.engine.registration import Grant
from holdfast.engine.reports import Configuration, Seen, farthest
from holdfast.engine.store_state import SourceState

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from holdfast.engine.quorum import Consensus, Intergroup, Intragroup

T = TypeVar("T")
OURS = b"o" * 16


class LostError(AssertionError):
    """What the judge says."""


class Choices:
    """Answers of a history's questions: those given, then the first of each."""

    def __init__(self, given: Sequence[int] = (), dice: random.Random | None = None) -> None:
        self.given = given
        self.dice = dice
        self.made: list[tuple[int, int]] = []
        """(answer, out of how many)."""

    def pick(self, options: Sequence[T]) -> T:
        """One of these."""
        place = len(self.made)
        if self.dice is not None:
            answer = self.dice.randrange(len(options))
        else:
            answer = self.given[place] if place < len(self.given) else 0
        self.made.append((answer, len(options)))
        return options[answer]


def every(run: Callable[[Choices], object]) -> int:
    """All histories. Returns how many; who raises says by which choices."""
    given: list[int] = []
    for count in itertools.count(1):
        choices = Choices(given)
        _tell(run, choices)
        made = choices.made
        while made and made[-1][0] + 1 == made[-1][1]:
            made.pop()
        if not made:
            return count
        given = [answer for answer, _ in made]
        given[-1] += 1
    raise AssertionError("never")


def some(run: Callable[[Choices], object], seeds: Iterable[int]) -> None:
    """One history for each seed."""
    for seed in seeds:
        _tell(run, Choices(dice=random.Random(seed)))


def _tell(run: Callable[[Choices], object], choices: Choices) -> None:
    try:
        run(choices)
    except AssertionError as error:
        error.add_note(f"choices: {[answer for answer, _ in choices.made]}")
        raise


@dataclass(frozen=True)
class Declared:
    """A list of stores, as a program declares it. ``of``: the group of each; of a group, as many as its size have a seat."""

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


class Kept(NamedTuple):
    """A message in a log."""

    incarnation: int
    content: int


@dataclass
class Disk:
    """The directory of a store."""

    lives: list[int]
    state: SourceState | None = None
    """None: it has never heard of the source."""
    log: dict[int, Kept] = field(default_factory=dict)
    end: int = 0
    wiped: bool = False
    """It is not the first one of its store."""

    def view(self) -> LogView:
        """What the log says of itself."""
        return LogView(tuple(self.state.begins) if self.state is not None else (), self.end)

    def void(self, table: Table) -> dict[int, Kept]:
        """What of the log does not hold by ``table``."""
        return {number: kept for number, kept in self.log.items() if number >= void_from(table, kept.incarnation)}


class World:
    """The stores, and the judge's book."""

    writes = True
    """There is a register."""
    lazy_promises = False
    """Planted: a promise is on disk with the next BEGIN only."""

    def __init__(self, names: str) -> None:
        self.life = 0
        self.disks = {name: Disk([self.next_life()]) for name in names}
        self.copies: dict[str, Disk] = {}
        self.claimants = 0
        self.sent = 0
        self.stable: dict[int, int] = {}
        """Number -> what it was when it was stable."""
        self.holders: dict[int, set[str]] = {}
        """Number -> who made it stable."""
        self.declared: list[Declared] = []
        """Who has been, as the sources of this host have it in their register."""
        self.below: dict[Declared, int] = {}
        """From this number on another one has been in force."""
        self.lives: dict[str, int] = {}
        """Store -> the life in which it last took part, as the register has it."""
        self.told: set[int] = set()
        """Of these a decision has said that they may be gone."""
        self.begun = False
        """Something has, somewhere."""
        self.decided = self.waited = 0

    def next_life(self) -> int:
        """Of a directory that is opened; no other has had it."""
        self.life += 1
        return self.life

    # What befalls a store -------------------------------------------------------------------------------------------------

    def wipe(self, name: str) -> None:
        """Its directory is gone, with another one in its place."""
        self.disks[name] = Disk([self.next_life()], wiped=True)

    def save(self, name: str) -> None:
        """A backup is made of it."""
        self.copies[name] = copy.deepcopy(self.disks[name])

    def restore(self, name: str) -> None:
        """The backup takes its place."""
        if name in self.copies:
            self.disks[name] = copy.deepcopy(self.copies[name])

    def forget(self, name: str) -> None:
        """Its log is gone, and its state is not: one in memory, after a reboot."""
        disk = self.disks[name]
        if disk.state is not None:
            disk.log, disk.end = {}, 0
            disk.state.learner |= disk.state.incarnation > 0

    # A life of the source -------------------------------------------------------------------------------------------------

    def answers(
        self, declared: Declared, up: Collection[str], blind: bool, hidden: Collection[str], claimant: bytes, least: int
    ) -> dict[int, Grant]:
        """What the stores that are up grant. ``blind``: none can read another's files; ``hidden``: nobody can read these."""
        grants = {}
        for index, name in enumerate(declared.stores):
            if name in up:
                unread = set(self.disks) - {name} if blind else set(hidden) - {name}
                grants[index] = self._grant(name, unread, claimant, least)
        return grants

    def _grant(self, name: str, unread: Collection[str], claimant: bytes, least: int) -> Grant:
        disk = self.disks[name]
        state = disk.state
        if state is None:  # it knows whom it is told of, and whom it reads nothing of
            state = disk.state = SourceState(claimant.ljust(16, b"\0"), "quotes", 7, 0)
        own = disk.view()
        written = [store for each in self.declared for store in each.stores]
        others = [store for store in dict.fromkeys([*state.stores, *written]) if store != name] if state.stores else []
        seen = [Seen(name, name, own)]
        for store in others:
            told, wrote = ({each[store]} if store in each else set() for each in (state.peers, self.lives))
            seen.append(self._seen(store, unread, told, wrote))
        known = farthest(seen)
        state.promise(claimant, known.incarnation, least)
        groups = Groups.told(state.sizes, state.groups, state.intragroup, state.intergroup) if state.stores else None
        return Grant(
            7, state.uuid, known.end, state.incarnation > 0, known.incarnation, known.begins, votes=not state.learner,
            opened=disk.lives[-1], peers=dict(state.peers), name=name, lives=list(disk.lives), promised=state.promised,
            seen=tuple(seen), configuration=Configuration(tuple(state.stores), groups) if groups is not None else None,
        )  # fmt: skip

    def _seen(self, name: str, unread: Collection[str], told: set[int], wrote: set[int]) -> Seen:
        """As store_info.seen_at reads a peer's files."""
        disk = self.disks[name]
        if name in unread:
            return Seen(name, name, None, "away")
        state = disk.state
        missed = any(life > disk.lives[0] and life not in disk.lives for life in told | wrote)
        begun = told or any(life not in disk.lives for life in wrote)
        if missed or (begun and (state is None or not state.incarnation)):
            return Seen(name, name, None, "not that life")
        if state is not None and state.learner:
            return Seen(name, name, None, "has lost")
        return Seen(name, name, disk.view())

    def ask(
        self, declared: Declared, up: Collection[str], grants: dict[int, Grant], hidden: Collection[str],
        behavior: Consensus, claimant: bytes,
    ) -> voting.Decision | None:  # fmt: skip
        """The product's decision."""
        place = {name: index for index, name in enumerate(declared.stores)}
        empty = {  # dead, and their state can be read and knows nothing; a wiped one is not the store that was known
            place[name]
            for name in declared.stores
            if name not in up and name not in hidden and self.disks[name].state is None and not self.disks[name].wiped
        }
        seated = {place[name] for name in declared.seats(up)}
        written = tuple(Configuration(tuple(each.stores), each.groups, self.below[each]) for each in self.declared)
        register = {OURS: voting.Written(written, dict(self.lives))}
        return voting.decide(
            declared.groups,
            seated,
            grants,
            behavior,
            claimant.ljust(16, b"\0"),
            empty,
            tuple(declared.stores),
            register,
        )

    def live(
        self, declared: Declared, up: Collection[str], choices: Choices, *, hidden: Collection[str] = (),
        blind: bool = False, behavior: Consensus = "lowest",
    ) -> bool:  # fmt: skip
        """One claimant: it asks, opens, says BEGIN to some, sends a message, and dies. True: it had a decision."""
        self.claimants += 1
        claimant = b"%d" % self.claimants
        for name in up:
            self.disks[name].lives.append(self.next_life())
        before = {name: copy.deepcopy(self.disks[name].state) for name in up}
        grants = self.answers(declared, up, blind, hidden, claimant, 0)
        found = self.ask(declared, up, grants, hidden, behavior, claimant)
        if found is not None:
            grants = self.answers(declared, up, blind, hidden, claimant, found.incarnation)
            found = self.ask(declared, up, grants, hidden, behavior, claimant)
        if found is None:
            self.waited += 1
            self._forget_promises(before)
            return False
        self.decided += 1
        self.told |= {number for number in self.stable if found.forgot and number >= found.start_sqn}
        if found.uuid != OURS and any(self.disks[name].log for name in up):
            raise LostError(f"another identity begins on {sorted(up)}, where messages are kept")
        if found.uuid != OURS and self.begun:
            return True  # a source of its own: who asked knows nothing of the other one
        seats = declared.seats(up) & set(up)
        told = {grant.name: grant.opened for grant in grants.values()}
        if self.writes:  # on disk, before anybody begins
            self.declared += [declared] if declared not in self.declared else []
            self.below[declared] = FOR_EVER
            self.lives.update({name: told[name] for name in declared.seats(up) if name in told})
        reached = choices.pick([sorted(seats), sorted(seats)[:1], []])
        begun = [name for name in reached if self.begin(name, declared, found, told, claimant)]
        if declared.enough(begun):
            self.judge_start(found, up)
            self.below |= {each: min(self.below[each], found.start_sqn) for each in self.below if each != declared}
            self.send(declared, begun, found, choices, set(self.disks) if blind else set(hidden))
        else:
            self._forget_promises({name: state for name, state in before.items() if name not in begun})
        return True

    def _forget_promises(self, before: dict[str, SourceState | None]) -> None:
        """Killed before the promise was on disk."""
        if self.lazy_promises:
            for name, state in before.items():
                self.disks[name].state = state

    def begin(
        self, name: str, declared: Declared, found: voting.Decision, told: dict[str, int], claimant: bytes
    ) -> bool:
        """BEGIN at a store; False: it refuses."""
        disk = self.disks[name]
        state = disk.state
        assert state is not None
        if self.refuses(state, found.incarnation, claimant) or found.incarnation < state.incarnation:
            return False
        missed = state.incarnation not in {found.incarnation, *(begin[0] for begin in found.begins)}
        if missed and disk.end > state.start_sqn:
            return False
        table = after_begin(state.begins, found.begins, found.incarnation, found.start_sqn)
        for number, kept in disk.void(table).items():
            if self.stable.get(number) == kept.content:
                raise LostError(f"BEGIN{table[-1]} makes void at {name} what is stable: number {number}")
            del disk.log[number]
        disk.end = min([disk.end, *(start for incarnation, start in table if incarnation > state.incarnation)])
        state.uuid, self.begun = OURS, True
        state.take(table)
        state.stores, state.peers = list(declared.stores), dict(told)
        state.sizes, state.groups = list(declared.sizes), list(declared.of)
        groups = declared.groups
        state.intragroup = ("quorum", "all-active", "all").index(groups.intragroup)
        state.intergroup = ("any", "all-active", "majority", "all").index(groups.intergroup)
        return True

    def refuses(self, state: SourceState, incarnation: int, claimant: bytes) -> bool:
        """As the desk does (engine/store_sources.py)."""
        another = incarnation == state.promised and claimant != state.promised_to
        return incarnation < state.promised or another

    def judge_start(self, found: voting.Decision, up: Collection[str]) -> None:
        """Numbers from the start on are given to new messages."""
        for number in [number for number in self.stable if number >= found.start_sqn]:
            left = [name for name, disk in self.disks.items() if self._has(disk, number)]
            if left:
                raise LostError(f"starts at {found.start_sqn}, and number {number} was stable: {left} have it")
            if number not in self.told and self.holders[number] <= self._forgetful(up):
                raise LostError(
                    f"starts at {found.start_sqn}, number {number} was stable and is gone, and nobody is told"
                )
            del self.stable[number]

    def _forgetful(self, up: Collection[str]) -> set[str]:
        """Of those that answer: who has no state, has lost its log, or has not had a life that another one of them remembers."""
        found = set()
        for name in up:
            disk = self.disks[name]
            states = [self.disks[each].state for each in up]
            remembered = [state.peers[name] for state in states if state is not None and name in state.peers]
            missed = any(life > disk.lives[0] and life not in disk.lives for life in remembered)
            if missed or disk.state is None or not disk.state.incarnation or disk.state.learner:
                found.add(name)
        return found

    def _has(self, disk: Disk, number: int) -> bool:
        kept = disk.log.get(number)
        return kept is not None and kept.content == self.stable[number]

    def send(
        self, declared: Declared, begun: list[str], found: voting.Decision, choices: Choices, hidden: set[str]
    ) -> None:
        """Who has begun reads what it lacks from those that can be read; one message; the source is dead."""
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
        number = found.start_sqn
        for name in having:
            disk = self.disks[name]
            disk.log[number] = Kept(found.incarnation, self.sent)
            disk.end = number + 1
        if declared.stable(begun, having):
            self.stable[number], self.holders[number] = self.sent, set(having)

    def _fill(self, name: str, start: int, hidden: Collection[str]) -> None:
        disk = self.disks[name]
        table = disk.view().begins
        for number in range(start):
            for other in [] if number in disk.log else [self.disks[each] for each in self.disks if each not in hidden]:
                if number in other.log and number < void_from(table, other.log[number].incarnation):
                    disk.log[number] = other.log[number]
        disk.end = max(disk.end, start)

    # The end --------------------------------------------------------------------------------------------------------------

    def judge_end(self, declared: Declared) -> None:
        """Everybody is there, and can be read."""
        names = set(declared.stores) | {
            store for disk in self.disks.values() if disk.state is not None for store in disk.state.stores
        }
        names |= {store for each in self.declared for store in each.stores}
        claimant = b"last"
        up = set(declared.stores)
        grants = self.answers(declared, up, False, (), claimant, 0)
        found = self.ask(declared, up, grants, (), "lowest", claimant)
        if found is None and names == up:
            raise LostError(f"all of {sorted(names)} have answered, and there is no decision")
        if found is None or found.uuid != OURS:
            return
        self.told |= {number for number in self.stable if found.forgot and number >= found.start_sqn}
        self.judge_start(found, up)
        table = (*found.begins, (found.incarnation, found.start_sqn))
        for number, content in self.stable.items():
            left = {name: disk for name, disk in self.disks.items() if self._has(disk, number)}
            if left and all(number in disk.void(table) for disk in left.values()):
                raise LostError(f"by {table} number {number} is void, and it was stable as {content}: {sorted(left)}")


def subsets(names: str) -> Iterator[str]:
    """But the empty one, large ones first."""
    for size in range(len(names), 0, -1):
        yield from map("".join, itertools.combinations(names, size))
