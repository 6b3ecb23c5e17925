"""What programs are told, held against what is true: the part of the judge that hears events and counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from simulator.lives import Loss, Parting
from simulator.native import lib
from simulator.shape import PACED_LIMIT, PATIENCE_MS, PIN_MS, RETAINED_S
from simulator.world import world

if TYPE_CHECKING:
    from collections.abc import Collection

    from simulator.judge import Judge
    from simulator.lives import Message, ReceiverLife, SourceLife
    from simulator.world import Process

__all__ = ["Told"]


class Told:
    """Of one seed."""

    def __init__(self, judge: Judge) -> None:
        self._judge, self._shape = judge, judge.shape
        self._ids: dict[str, dict[int, str]] = {}
        """Store -> RegID -> whose it is."""
        self._forgotten: dict[str, int] = {}
        """Store -> when it has told that it has forgotten the source."""
        self._newest: dict[str, int] = {}
        """Store -> the newest life of the source that has registered there."""
        self._before_cut = 0
        """Lives of receivers before the first power cut."""
        self._moved: set[int] = set()
        """Stores whose directory was replaced: what was stable there may be told again."""
        self._unrecorded: set[str] = set()
        """Stores whose disks have been read-only: what they grant then, they say, is not recorded."""

        self._replaced: set[str] = set()
        """Stores that have not started since their files were replaced: what a program hears of them is of
        before."""

    def _stores(self, index: int) -> str:
        return self._shape.names[index]

    # Registrations ------------------------------------------------------------------------------------------

    def begins(self, life: SourceLife, start: int) -> None:
        """A source registers. Where no store knows it, and each that has messages of it has lost its state
        since, it is a new one (docs/design.md 15), and what those have is nobody's."""
        judge = self._judge
        if life.known:
            return
        before = [each for each in judge.messages.values() if each.kept and each.life is not life]
        anew = [each for each in before if each.life.source.uuid != life.source.uuid or each.first >= start]
        if any(each.unknown for each in anew) and all(judge.holders(each.mark) <= each.unknown for each in anew):
            for message in anew:
                message.kept = False

    def lost(self, life: ReceiverLife, source: str, first: int | None, last: int) -> None:
        """The program is told that nobody has these."""
        world.note("lost", life.process.name, first, last)
        if first is not None:
            self._judge.passes_over(life, source, first, last)
        life.told |= {last}
        if first is None:  # a burst tells its last number only, and begins behind what has come below that
            first = max((number + 1 for number in life.heard[source] if number <= last), default=0)
            life.burst = max(life.burst, last)
        life.losses.append(Loss(source, first, last, self._judge.marks))

    def skipped(self, life: ReceiverLife) -> None:
        """The program is told what its start has skipped. It may be told before it hears of the start."""
        world.note("skipped", life.process.name)
        life.told_of_skip = True

    def _untold_skip(self, life: ReceiverLife) -> bool:
        """It has skipped what a receiver-paced source's stores keep for it, and nobody has said so."""
        judge, skip = self._judge, life.skipped
        if skip is None or life.told_of_skip or not skip.known or not self._shape.has("paced"):
            return False
        had, acked = judge.consumed[life.session], [each for each in judge.skips[life.session] if each.acked]
        left = [each for each in judge.messages.values() if skip.has(each) and each.mark not in had]
        owed = [each for each in left if judge.keeps(each) and judge.is_waited_for(each, life.session)]
        return any(not any(other.has(each) for other in acked if other is not skip) for each in owed)

    def is_lost(self, mark: bytes) -> bool:
        """A receiver was told that nobody has this message. That counts as consumed, so it is acknowledged,
        and an acknowledgement is a confirmation (docs/semantics.md D.4, G.3)."""
        message = self._judge.messages[mark]
        return any(loss.has(message) for each in self._judge.receivers for loss in each.losses)

    def registers(self, store: str, registration_id: int, who: str) -> None:
        """RegistrationSuccess: a RegID is one participant's, and nobody else ever gets it."""
        if store in self._unrecorded | self._replaced:
            return
        whose = self._ids.setdefault(store, {}).setdefault(registration_id, who)
        if whose != who:
            self._judge.fail(f"store {store} gives RegID {registration_id} to {who}, and it is of {whose}")

    def receiver_registers(self, life: ReceiverLife, store: str, registration_id: int, *, old: bool) -> None:
        """The same, of a receiver."""
        life.strange &= bool(life.started) or self._shape.names.index(store) not in self._knowing(life.session)
        self.registers(store, registration_id, f"receiver {life.session}")
        life.new &= bool(life.started) or not old
        if old:
            life.knowing.add(self._shape.names.index(store))

    def holds(self, life: ReceiverLife) -> None:
        """Something has come to it. A session has one receiver at a time: another one that has had something
        is dead by now, or was told to close."""
        judge = self._judge
        others = [each for each in judge.receivers if each.session == life.session and each.holds and each is not life]
        living = [each.process for each in others if each.process.alive and each.process not in judge.machine.closing]
        if living:
            judge.fail(f"{life.process.name} is delivered to, and {living[0].name} of its session lives")
        life.holds = True

    def parts(self, session: int) -> Parting:
        """A life of this session closes. Where enough stores have registered it, and kept their files since,
        and the others are too few to register with, its next life goes on where this one has ended."""
        known, enough = self._knowing(session), self._shape.enough
        sure = all(enough(known, each) and not enough({*each} - known, each) for each in self._shape.lists)
        return Parting(frozenset(known), sure)

    def is_remembered(self, life: ReceiverLife, parting: Parting) -> bool:
        """One of those stores must have answered, or one has. Where a backup that does not know the session
        has a seat, none need have (docs/semantics.md F.1)."""
        return parting.sure or bool(parting.knowing & life.knowing & self._knowing(life.session))

    def _knowing(self, session: int) -> set[int]:
        who, names = f"receiver {session}", self._shape.names
        return {index for index, name in enumerate(names) if who in self._ids.get(name, {}).values()}

    def is_left(self, number: int) -> bool:
        """That life was deregistered: who finds its source at a store that was not told of it begins anew."""
        return any(each.left and each.number == number for each in self._judge.lives)

    def is_old(self, life: ReceiverLife, source: str) -> bool:
        """A store says that it knows its session, of which an earlier life has had messages of this source:
        also where lifetimes may be over. They run where a life was registered, so some stores may have
        forgotten it, and others not; one that has not is enough (docs/semantics.md F.1)."""
        every = [each for each in self._judge.receivers if each.session == life.session and each is not life]
        before = [each for each in every if source in each.heard and each.had]
        return self._shape.has("lifetimes") and not life.new and bool(before) and not before[-1].left

    def is_strange(self, message: Message, session: int) -> bool:
        """Stores have this that may never have known a receiver: a backup that took a seat when it was away,
        or another group, where any will do, that was down when it registered (docs/semantics.md J.1)."""
        return bool(self._shape.backups) or session in self.strangers(message.had) or session in message.strange

    def strangers(self, had: set[int]) -> frozenset[int]:
        """Sessions that none of these stores knows, where one of several groups will do."""
        every = range(1, self._shape.receivers + 1) if self._shape.any_group and had else ()
        return frozenset(session for session in every if had.isdisjoint(self._knowing(session)))

    def comes_anew(self, life: ReceiverLife, source: str, number: int) -> None:
        """Of several groups of which any will do another one has answered than those that know its session:
        it has no state, and starts at the current number (docs/semantics.md F.1, J.1)."""
        if self._shape.any_group and life.new and life.strange and source not in life.started:
            for message in self._judge.messages.values():
                if 0 <= message.last < number:
                    message.strange |= {life.session}

    def goes_on(self, life: ReceiverLife, source: str, number: int) -> None:
        """RegistrationComplete: a store knows the receiver, so it starts where an earlier life has come to at
        most. What was let go since comes as a loss."""
        judge = self._judge
        form = self._shape.forms[life.session - 1]
        if life.new or source in life.started or form in {"arrival", "batch"}:  # a batch is told when it is let go
            return
        if self._shape.has("starts") or self._shape.has("paced"):
            return
        since = [
            each for each in judge.receivers[self._before_cut :] if each.session == life.session and each is not life
        ]
        if any(source not in each.due for each in since):  # new to stores that had not saved it: it never heard so
            return
        due = [each.due[source] for each in judge.receivers if each.session == life.session and source in each.due]
        if due and number > max(due):
            judge.fail(f"{life.process.name} starts at {number}, and {max(due)} was due to it")

    def power_cut(self) -> None:
        """Stores may have forgotten that a receiver had joined."""
        self._before_cut = self._before_cut or len(self._judge.receivers)

    def source_registers(self, life: SourceLife, store: str, registration_id: int, *, old: bool) -> None:
        """The same, of a source. Who was deregistered there is known no more."""
        self.registers(store, registration_id, "the source")
        self._newest[store] = max(self._newest.get(store, 0), life.number)
        forgotten = self._forgotten.get(store, 0)
        others = [each for each in self._judge.lives if each is not life and not each.left]
        if any(not 0 < each.ended_ns < forgotten for each in others):  # it may have registered since
            self._forgotten.pop(store, None)
        elif old and 0 < forgotten < life.begun_ns:
            self._judge.fail(f"store {store} knows {life.process.name}, and has told that it has forgotten it")
        life.known |= old
        if not old:
            self._forgotten.pop(store, None)

    def careless(self, process: Process) -> None:
        """It has dropped its own lock. What it sends from now on, nobody need have drained."""
        world.note("careless", process.name)
        for life in self._judge.lives:
            life.careless |= life.process is process

    def forgets(self, life: SourceLife, store: str) -> None:
        """DeregistrationSuccess of a source. A program that stood still hears late of it: where a newer life
        has registered there meanwhile, the store knows that one."""
        if self._newest.get(store, 0) <= life.number:
            self._forgotten[store] = int(lib.sim_now_ns)

    def records_nothing(self, index: int) -> None:
        """A store's disk is read-only from now on."""
        self._unrecorded.add(self._stores(index))

    def restored(self, index: int) -> None:
        """A store's files are others: what it has given and forgotten, it does not know."""
        self._ids.pop(self._stores(index), None)
        self._replaced.add(self._stores(index))
        self._forgotten.pop(self._stores(index), None)
        self._moved.add(index)

    def starts(self, index: int) -> None:
        """A store does."""
        self._replaced.discard(self._stores(index))

    def swapped(self, *both: int) -> None:
        """Each of two stores has the other one's files."""
        one, other = map(self._stores, both)
        for known in (self._ids, self._forgotten):
            there: dict[str, Any] = {one: known.pop(other, None), other: known.pop(one, None)}
            known.update({store: what for store, what in there.items() if what is not None})
        for some in (self._unrecorded, self._replaced):
            if len(some & {one, other}) == 1:
                some ^= {one, other}
        self._moved.update(both)

    # Stability ----------------------------------------------------------------------------------------------

    def stable(self, life: SourceLife, event: Any, *, by_store: bool) -> None:
        """MessageStable: once for each number, and once for each store and number."""
        numbers = range(event.first_sequence_number, event.sequence_number + 1)
        if by_store:
            moved = life.declared[event.store_index] in self._moved
            twice = [number for number in numbers if (event.store_index, number) in life.stored and not moved]
            life.stored.update((event.store_index, number) for number in numbers)
        else:
            twice = [number for number in numbers if number in life.said]
        if twice:
            self._judge.fail(f"{life.process.name} is told again that {twice} are stable")

    def given_up(self, life: SourceLife, first: int, last: int) -> None:
        """MessageNotStable, for its lifetime is over: nothing that was called stable, and nothing that was
        sent a moment ago."""
        world.note("given up", life.process.name, first, last)
        if taken := sorted(life.said & set(range(first, last + 1))):
            self._judge.fail(f"{life.process.name} gives up {taken}, which it has called stable")
        young = [message for message in self._between(life, first, last) if _age_ns(message) < PATIENCE_MS * 1e6]
        if young:
            self._judge.fail(f"{life.process.name} gives up {young[0].mark!r}, which it has just sent")

    def released(self, life: SourceLife, first: int, last: int) -> None:
        """MessageReclaimed, by no force: it is old enough."""
        if self._shape.has("ages") and self._shape.sends != "smart":  # it does not look at ages
            young = [message for message in self._between(life, first, last) if _age_ns(message) < RETAINED_S * 1e9]
            if young:
                self._judge.fail(f"{life.process.name} lets {young[0].mark!r} go, which it has just sent")

    def _between(self, life: SourceLife, first: int, last: int) -> list[Message]:
        marks = [life.marks[number] for number in range(first, last + 1) if number in life.marks]
        return [self._judge.messages[mark] for mark in marks]

    def kept(self) -> None:
        """What is called stable, and a receiver-paced source's receivers have not had, fits into a store."""
        judge = self._judge
        if not (self._shape.has("limits") and self._shape.has("paced")):
            return
        waited = [each for each in judge.messages.values() if each.stable and each.kept and not self._is_let_go(each)]
        if sum(message.size for message in waited) > PACED_LIMIT:
            waited = [each for each in waited if not self._is_let_go(each, judge.holders(each.mark) | each.had)]
        if (size := sum(message.size for message in waited)) > PACED_LIMIT:
            judge.fail(f"{size} bytes are called stable that receivers have not had, and stores keep {PACED_LIMIT}")

    def _is_let_go(self, message: Message, holders: Collection[int] = ()) -> bool:
        """No receiver that holds messages up waits for it; or a store that knows none keeps it for nobody: of
        ``holders``, one is enough where any group will do (docs/semantics.md J.1)."""
        judge = self._judge
        waited = [each for each in judge.joined if judge.is_waited_for(message, each)]
        unasked = {
            each
            for each in waited
            if self._shape.any_group and self._shape.enough({*holders} - self._knowing(each), message.life.declared)
        }
        return all(each in unasked or judge.has_had(message.mark, each) for each in waited)

    # Room ---------------------------------------------------------------------------------------------------

    def woken(self, life: SourceLife) -> None:
        """Wakeup."""
        world.note("woken", life.process.name)
        life.wakeups += 1
        life.refused = False

    def refused(self, life: SourceLife, wakeups: int) -> None:
        """A send has raised WouldBlockError; ``wakeups``: before it. One that came meanwhile may be its
        own."""
        life.refused = life.wakeups == wakeups

    def missing(self) -> str:
        """What is still to be told: of numbers that a receiver went on behind, and that there is room again;
        empty: nothing."""
        for receiver in self._judge.receivers:
            if receiver.process.alive and receiver.untold():
                return f"{receiver.process.name} was not told of {receiver.untold()}"
            if receiver.process.alive and self._untold_skip(receiver):
                return f"{receiver.process.name} was not told what its start has skipped"
        for life in self._judge.lives:
            if life.over and life.process.alive:
                return f"{life.process.name} was never told that it is below its flight size"
        for life in self._judge.lives:
            if life.process.alive and (idle := self._idle(life)):
                return f"of {life.process.name} {idle}"
        for life in self._judge.lives:
            if (
                life.refused
                and life.process.alive
                and not life.left
                and life.marks
                and life.said.issuperset(life.marks)
            ):
                return f"{life.process.name} was refused, and never woken"
        return ""

    def _idle(self, life: SourceLife) -> str:
        """What its stores still have to do: each that has a seat has caught up with it, and every seat is
        taken. Empty: nothing. Where a claimant that never came to send has begun, with a greater incarnation,
        a store takes nothing of this one until its next life (docs/design.md 13)."""
        if life.start is None:
            return "nothing is known"
        orphans = any(each.start is None for each in self._judge.lives)
        excused = life.outdone if orphans else set()
        busy = {name: state for name, state in life.stores.items() if state not in {"active", "idle"}}
        busy = {name: state for name, state in busy.items() if state != "down" or name not in excused}
        active = list(life.stores.values()).count("active")
        taken = active + len(excused) >= sum(self._shape.sizes)
        return f"stores are {busy}" if busy else "" if taken else f"{active} stores are active"

    # Views --------------------------------------------------------------------------------------------------

    def evicted(self, name: str, asked_ns: int, frames: list[tuple[int, int, bytes]], count: int) -> None:
        """A batch of ``count`` messages that was asked for then is void. Its ``frames`` were looked at before
        the program heard so. The source that wants its room back waits before it writes there."""
        held = int(lib.sim_now_ns) - asked_ns
        world.note("evicted", name, held)
        whole = len(frames) == count and all(self._is_whole(*frame) for frame in frames)
        if held < PIN_MS * 1e6 and not whole:
            self._judge.fail(f"{name} has looked at a batch for {held} ns, and it was overwritten")

    def _is_whole(self, first: int, last: int, data: bytes) -> bool:
        message = self._judge.messages.get(data[:12])
        return message is not None and message.last in {-1, last} and message.first in {-1, first}


def _age_ns(message: Message) -> int:
    return int(lib.sim_now_ns) - message.begun_ns
