"""What must hold, whatever goes wrong: README's table of faults, row by row. The judge shares no code with
the product. It knows what programs have seen, and looks for the bytes of a message in the files of the
stores.

A message is told by its mark, twelve bytes that no other one has. It is *kept* from the moment when send()
has returned: the ring outlives its source, and the stores drain it. A power cut takes what is not stable.
What is stable is kept for as long as the faults have left enough of its copies.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import holdfast
from simulator.lives import Loss, Message, Parting, ReceiverLife, Skip, SourceLife
from simulator.native import lib
from simulator.shape import AGE_S, LIFETIME_MS, LIMIT, NUMBERS_MAX, RECOVERED
from simulator.told import Told
from simulator.world import world

if TYPE_CHECKING:
    from simulator.machine import Machine
    from simulator.world import Process

__all__ = ["BrokenError", "Judge"]


class BrokenError(AssertionError):
    """Something that must hold does not."""


class Judge:
    """See the module."""

    def __init__(self, machine: Machine) -> None:
        self.machine, self.shape = machine, machine.shape
        self.told = Told(self)
        self.messages: dict[bytes, Message] = {}
        self.marks = 0
        """Given out so far: none is used twice."""
        self.lives: list[SourceLife] = []
        self.receivers: list[ReceiverLife] = []
        self.consumed: dict[int, set[bytes]] = defaultdict(set)
        """Session -> messages that its programs were done with."""
        self.closed: dict[int, dict[bytes, Parting]] = defaultdict(dict)
        """Session -> what lives of it were done with that have closed cleanly: that never comes again to who
        is remembered."""
        self.broken = ""
        """What did not hold first."""
        self.bytes = 0
        """Sent so far."""
        self.skips: dict[int, list[Skip]] = defaultdict(list)
        """Of each session."""
        self.joined: dict[int, int] = {}
        """Session -> how many messages there were when it was registered, of a receiver-paced source. Stores
        that have lost what was in memory may tell it an earlier start; that is not kept for it."""

    def fail(self, *what: object) -> None:
        """Raises BrokenError: the hub stops the seed."""
        text = " ".join(map(str, what))
        world.note("BROKEN", text)
        self.broken = self.broken or text  # a callback's error would end in the product's log
        raise BrokenError(text)

    # Copies -------------------------------------------------------------------------------------------------

    def holders(self, mark: bytes, *, durable: bool = False) -> set[int]:
        """Stores in whose files the bytes of a message are: on disk, where their level says so."""
        lib.sim_held += 1
        found = set()
        for index, level in enumerate(self.shape.levels):
            path = self.machine.disk(index).encode()  # the names that lead to it count, too
            if lib.sim_holds(path, mark, len(mark), durable and level == "disk"):
                found.add(index)
        lib.sim_held -= 1
        return found

    def before_loss(self, lost: int | None = None) -> None:
        """Files will be destroyed, of one store; None: what is on no disk. Who has a message now, has had it
        when it is called stable later."""
        for message in self.messages.values():
            holders = self.holders(message.mark, durable=True)
            if not message.stable:
                message.had |= self.holders(message.mark) if self.shape.on_reception else holders
                self._is_still_to_be_drained(message)
            message.volatile = {store for store in holders if self.shape.levels[store] == "memory"}
            message.safe = {store for store in holders if store != lost and self.shape.levels[store] == "disk"}

    def lose(self, *, quorum: bool) -> None:
        """Files were destroyed: a message is kept where a copy is left; after a power cut, if it was stable,
        a quorum of them."""
        holders = {mark: self.holders(mark) for mark in self.messages}
        remembered = any(holders.values())
        if self.shape.has("paced") and not quorum:  # a store lets go of what is consumed: who has what, nobody knows
            self._forget()
            return
        for mark, message in self.messages.items():
            if message.kept and quorum:
                enough = self.shape.enough(holders[mark], message.life.declared)
                due = message.stable and self.keeps(message) and not self._is_done_with(message)
                if due and not enough and self.shape.enough(message.safe, message.life.declared):
                    self.fail(f"{mark!r} was stable at {sorted(message.safe)}, and {sorted(holders[mark])} have it")
                # Who has lost what was in memory knows it and decides nothing: of each set that decides, one
                # store has a copy. Over several groups that does not follow.
                known = holders[mark] | message.volatile if len(self.shape.sizes) == 1 else holders[mark]
                message.kept = (
                    message.stable and bool(holders[mark]) and self.shape.enough(known, message.life.declared)
                )
            elif message.kept:
                left = holders[mark] - message.leftover
                message.kept = bool(left) or (remembered and self._is_in_ring(message))

    def loses_state(self, store: int) -> None:
        """It keeps its logs, and has forgotten whose they are."""
        for message in self.messages.values():
            message.unknown.add(store)

    def _is_still_to_be_drained(self, message: Message) -> None:
        """Of a message that is not stable: a ring has it as long as too few stores have had it. A source that
        gives up by force tells so later."""
        if not self.keeps(message) or self.shape.has("paced") or message.last < 0 or message.life.forced:
            return
        if not self._is_in_ring(message) and not self.shape.enough(message.had, message.life.declared):
            self.fail(f"the ring with {message.mark!r} has gone, and only {sorted(message.had)} have had it")

    def recorded_lost(self, store: str, first: int, last: int) -> None:
        """A store writes down that nobody has these numbers."""
        world.note("calls lost", store, first, last)
        for message in self.messages.values():
            if message.first <= last and message.last >= first and message.stable and self.keeps(message):
                others = {each for each in self.holders(message.mark) if self.shape.names[each] != store}
                if others and not self.shape.has("paced"):
                    self.fail(f"{store} calls {first}..{last} lost, and {sorted(others)} have {message.mark!r}")

    def _is_in_ring(self, message: Message) -> bool:
        """It is not stable, and its ring is there. Stores drain that, if one remembers the source."""
        there = lib.sim_holds(b"/dev/shm", message.mark, len(message.mark), lib.SIM_SHALLOW)
        return not message.stable and bool(there)

    # Sources ------------------------------------------------------------------------------------------------

    def begins(self, process: Process) -> SourceLife:
        """A program makes a source."""
        life = SourceLife(len(self.lives), process)
        self.lives.append(life)
        return life

    def new_mark(self, life: SourceLife) -> bytes:
        """A message is about to be sent."""
        self.marks += 1
        mark = b"<%03d.%06d>" % (life.number, self.marks)
        self.messages[mark] = Message(mark, life, self.marks)
        return mark

    def not_sent(self, life: SourceLife, mark: bytes) -> None:
        """send() has raised: nothing was published."""
        del life
        del self.messages[mark]

    def registered(self, life: SourceLife, start: int) -> None:
        """RegistrationComplete."""
        world.note("registered", life.process.name, start)
        life.named = life.source.uuid.hex()[:12]
        if life.start is None:
            if self._is_forgotten(self._source_gone_ns()):
                self._forget_source()
            self.told.begins(life, start)
            life.start = start

    def sent(self, life: SourceLife, mark: bytes, last: int, size: int) -> None:
        """send() has returned."""
        message = self.messages[mark]
        message.last = last
        world.note("sent", life.process.name, mark.decode(), last, size)
        before = max(life.marks, default=None)
        first = message.first = last - max(1, -(-size // self.shape.fragment)) + 1
        self.bytes, message.size = self.bytes + size, size
        message.upto, message.sent_ns = self.bytes, int(lib.sim_now_ns)
        if before is not None and first != before + 1:
            self.fail(f"{mark!r} has {first}..{last}, and {before} came before it")
        for number in range(first, last + 1):
            life.marks[number] = mark
        message.kept = not life.careless
        others = [each for each in self.lives if each is not life and not (each.careless or life.careless)]
        rivals = [each for each in others if each.begun and each.process.alive]
        if self.shape.lists[1:]:  # where no declared store knows a source, it is a new one (engine/log/register.py)
            rivals = [each for each in rivals if each.source.uuid == life.source.uuid]
        life.begun = True
        if rivals and not any(each.process in self.machine.closing for each in rivals):
            self.fail(f"{life.process.name} sends, and {rivals[0].process.name} lives and has sent")
        if life.unsettled:
            self._settle(life)

    def closes(self, life: SourceLife) -> None:
        """It has closed cleanly: the next one may come."""
        life.begun = False

    def flies(self, life: SourceLife, *, over: bool) -> None:
        """FlightSizeNotification: one and the other in turn, and the first one with a full flight."""
        world.note("flies", life.process.name, "over" if over else "under")
        unstable = len(life.marks.keys() - life.said) + NUMBERS_MAX * sum(
            each.last < 0 for each in self.messages.values()
        )
        if over == life.over or (over and not self.shape.has("paced") and unstable < self.shape.flight):
            self.fail(f"{life.process.name} is told {over} after {life.over}, with {unstable} in flight at most")
        life.over = over

    def deregisters(self, life: SourceLife) -> None:
        """What it has sent is wanted no more."""
        world.note("deregisters", life.process.name)
        life.left = True
        self._forget_source()

    def _forget_source(self) -> None:
        """Nor what anybody has had of it: who finds it at a store that was not told, or finds the next one,
        begins anew."""
        self._forget()
        self.closed.clear()
        self.joined.clear()
        for receiver in self.receivers:
            receiver.due.clear()
            receiver.started.clear()

    def _forget(self) -> None:
        for message in self.messages.values():
            message.kept = False

    def ended(self, process: Process) -> None:
        """A process is no more."""
        for life in self.lives:
            if life.process is process and not life.ended_ns:
                life.ended_ns = int(lib.sim_now_ns)
                if life.forced:  # what it has given up last, it may have told nobody
                    self._gives_up(life)
        for receiver in self.receivers:
            if receiver.process is process and not receiver.ended_ns:
                receiver.ended_ns = int(lib.sim_now_ns)

    def _gives_up(self, life: SourceLife) -> None:
        for message in self.messages.values():
            if message.life is life and not message.stable:
                message.kept = False

    def _source_gone_ns(self) -> int:
        """Since when no source is registered; 0: one is, or none ever was."""
        held = [life for life in self.lives if life.start is not None]
        return 0 if any(not life.ended_ns for life in held) else max((life.ended_ns for life in held), default=0)

    def _is_forgotten(self, gone_ns: int) -> bool:
        """Who is gone since then may be forgotten."""
        return self.shape.has("lifetimes") and 0 < gone_ns <= int(lib.sim_now_ns) - int(LIFETIME_MS * 0.8e6)

    def keeps(self, message: Message) -> bool:
        """It is still to be had."""
        return message.kept and not self._is_forgotten(self._source_gone_ns()) and not self._is_outgrown(message)

    def _is_outgrown(self, message: Message) -> bool:
        """Stores may let it go for their limits."""
        if self.shape.has("limits") and not self.shape.has("paced") and self.bytes - message.upto > LIMIT // 4:
            return True
        return self.shape.has("ages") and int(lib.sim_now_ns) - message.sent_ns > AGE_S * 0.8e9

    def is_due(self, message: Message, session: int) -> bool:
        """A receiver must have it."""
        if not self.keeps(message) or any(each.has(message) for each in self.skips[session]):
            return False
        return self.is_waited_for(message, session)

    def is_waited_for(self, message: Message, session: int) -> bool:
        """What a receiver-paced source's stores keep for a receiver."""
        if not self.shape.has("paced"):
            return True
        known = not self.told.is_strange(message, session) and message.order > self.joined.get(session, self.marks)
        return known and self.shape.pace(session) == 1

    def stable(self, life: SourceLife, first: int, last: int, client_data: object) -> None:
        """MessageStable."""
        world.note("stable", life.process.name, first, last)
        if isinstance(client_data, bytes) and client_data not in self.messages:
            self.fail(f"{client_data!r} is called stable, and was never sent")
        life.said.update(range(first, last + 1))
        life.unsettled.update(range(first, last + 1))
        self._settle(life)

    def _settle(self, life: SourceLife) -> None:
        """What is called stable is held by enough stores, from now on."""
        for number in sorted(life.unsettled & life.marks.keys()) if not life.left else ():
            message = self.messages[life.marks[number]]
            if message.stable or not life.said.issuperset(range(message.first, message.last + 1)):
                continue
            life.unsettled.difference_update(range(message.first, message.last + 1))
            message.stable, message.kept = True, message.kept or life.careless
            holders = self.holders(message.mark, durable=not self.shape.on_reception) | message.had
            excused = self._is_outgrown(message) or self._is_done_with(message)
            if not self.shape.enough(holders, life.declared) and not excused:
                self.fail(f"{message.mark!r} is called stable, and stores {sorted(holders)} have it")
            message.strange = self.told.strangers(holders)
            self.told.kept()

    def _is_done_with(self, message: Message) -> bool:
        """All receivers that a receiver-paced source waits for have consumed it: stores need not have it."""
        waited = [session for session in self.joined if message.order > self.joined[session]]
        return self.shape.has("paced") and all(self.has_had(message.mark, session) for session in waited)

    def has_had(self, mark: bytes, session: int) -> bool:
        """It was consumed; or a start has skipped it, and the next acknowledgement covers that, unless the
        receiver was new to all stores (docs/semantics.md F.1)."""
        skipped = any(each.counts() and each.has(self.messages[mark]) for each in self.skips[session])
        return skipped or mark in self.consumed[session]

    def _was_had(self, mark: bytes) -> bool:
        """By any receiver, or one was told that nobody has it (docs/semantics.md G.3)."""
        return self.told.is_lost(mark) or any(self.has_had(mark, each) for each in range(1, self.shape.receivers + 1))

    def reclaimed(self, life: SourceLife, first: int, last: int, *, forced: bool) -> None:
        """MessageReclaimed."""
        world.note("reclaimed", life.process.name, first, last, forced)
        life.forced |= forced
        for number in range(first, last + 1) if forced else ():
            if number in life.marks and not self.messages[life.marks[number]].stable:
                self.messages[life.marks[number]].kept = False
        early = [number for number in range(first, last + 1) if number in life.marks and number not in life.said]
        if early and not forced and self.shape.mode != 0:
            self.fail(f"{life.process.name} has reclaimed {early}, which it never called stable")
        for number in range(first, last + 1) if self.shape.unique and not forced else ():
            mark = life.marks.get(number)
            if mark is not None and not self._was_had(mark):
                self.fail(f"{life.process.name} has reclaimed {number}, and nobody has consumed {mark!r}")

    def confirmed(self, life: SourceLife, first: int, last: int) -> None:
        """DeliveryConfirmation."""
        for number in range(first, last + 1):
            mark = life.marks.get(number)
            if mark is not None and not self._was_had(mark):
                self.fail(f"{number} is confirmed, and nobody has consumed {mark!r}")

    # Receivers ----------------------------------------------------------------------------------------------

    def joins(self, process: Process, session: int, *, ordered: bool) -> ReceiverLife:
        """A program makes a receiver. Not ``ordered``: messages come in the order of their arrival."""
        life = ReceiverLife(process, session, ordered=ordered)
        self.receivers.append(life)
        return life

    def starts(self, life: ReceiverLife, source: str, number: int) -> None:
        """RegistrationComplete: this number is due. What is below was consumed, or is kept no more."""
        world.note("starts at", life.process.name, source, number)
        if source not in life.started:
            life.started.add(source)
            self._returns(life)
            if self.shape.starts(life.session):
                self._may_skip(life, source, number)
            if not (self.lives and self.lives[-1].left):  # else it is new to the identity that comes next
                self.joined.setdefault(life.session, self.marks)
            life.due.setdefault(source, number)
            life.heard[source].add(number - 1)
            missed = [
                message.mark
                for message in self.messages.values()
                if self.is_due(message, life.session)
                and 0 <= message.last < number
                and message.mark not in self.consumed[life.session]
            ]
            if missed:
                self.fail(f"{life.process.name} starts at {number}, and has never had {missed}")

    def chooses(self, life: ReceiverLife, source: str, low: int, number: int) -> None:
        """The program's recovery callback wants to start at ``number``, also amid a message, where the
        session's position is ``low``: everything below that was acknowledged."""
        world.note("chooses", life.process.name, low, number)
        life.chosen[source] = number
        self._returns(life)
        acked = [each for each in self.skips[life.session] if each.acked]
        for message in self.messages.values():
            below = 0 <= message.last < low and message.mark not in self.consumed[life.session]
            kept = below and self.keeps(message) and self.is_waited_for(message, life.session)
            if kept and not any(each.has(message) for each in acked):
                self.fail(f"{life.process.name} has the position {low}, and nobody has acknowledged {message.mark!r}")

    def acknowledges_skipped(self, life: ReceiverLife) -> None:
        """The program is about to say that it wants nothing of what its start has skipped."""
        if life.skip is not None:
            life.skip.acked = True

    def _may_skip(self, life: ReceiverLife, source: str, number: int) -> None:
        """This start may skip what is below ``number``: no more than the program has asked for."""
        unsure = sum(each.last < 0 for each in self.messages.values()) * NUMBERS_MAX
        newest = max((each.last for each in self.messages.values()), default=-1) + unsure
        limits = {"limited": newest - RECOVERED, "new": newest + 1, "chosen": life.chosen.get(source, 0)}
        if number <= limits[self.shape.starts(life.session)]:
            known, old = life.session in self.joined, self.told.is_old(life, source)
            skip = life.skip = life.skipped = Skip(number, self.marks, known=known, old=old)
            skip.acked = source in life.due  # it has had a message already
            self.skips[life.session].append(skip)

    def _returns(self, life: ReceiverLife) -> None:
        """A session that was gone for long may have been forgotten."""
        held = [each for each in self.receivers if each.session == life.session and each is not life and each.due]
        if held and self._is_forgotten(max(each.ended_ns for each in held)):
            self._forgets(life.session)

    def delivered(self, life: ReceiverLife, source: str, first: int, last: int, data: bytes) -> None:
        """A message has come: in order, nothing left out, as it was sent."""
        mark = data[:12]
        world.note("delivered", life.process.name, first, last, mark)
        message = self.messages.get(mark)
        if message is None:
            self.fail(f"{life.process.name} got {data!r} as {first}..{last}, which nobody has sent")
            return
        if message.size not in {0, len(data)} or data.count(b".", len(mark)) != len(data) - len(mark):
            self.fail(f"{life.process.name} got {mark!r}, and {len(data)} bytes that were not sent so")
        if message.last >= 0 and (message.first, message.last) != (first, last):
            self.fail(f"{mark!r} was sent as {message.first}..{message.last}, and comes as {first}..{last}")
        life.heard[source].add(last)
        self.told.holds(life)
        if not life.ordered:
            return
        due = life.due.get(source)
        newer = message.life.number > life.sent_by.get(source, -1) or self.told.is_left(life.sent_by[source])
        if due is not None and first < due and not newer:
            self.fail(f"{life.process.name} got {first} where {due} was due")
        if due is not None and first > due:
            self.passes_over(life, source, due, first - 1)
        parting = self.closed[life.session].get(mark)
        if parting and self.told.is_remembered(life, parting) and last < life.chosen.get(source, 2**63):
            self.fail(f"{life.process.name} got {mark!r} again, which it had consumed before it closed")
        life.due[source] = last + 1
        life.sent_by[source] = message.life.number

    def consumes(self, life: ReceiverLife, data: bytes) -> None:
        """The program is done with it, and with what it has skipped."""
        self.acknowledges_skipped(life)
        self.consumed[life.session].add(data[:12])
        life.had.add(data[:12])

    def not_consumed(self, life: ReceiverLife, had: set[bytes]) -> None:
        """It has only had these: the others were overwritten while it looked at them."""
        self.consumed[life.session] &= had
        life.had &= had

    def passes_over(self, life: ReceiverLife, source: str, first: int, last: int) -> None:
        """Nobody has these of a source."""
        consumed = self.consumed[life.session]
        of = [each for each in self.messages.values() if source.endswith(each.life.named)]
        there = [each for each in of if each.first <= last and each.last >= first]
        if missed := [each.mark for each in there if each.mark not in consumed and self.is_due(each, life.session)]:
            self.fail(f"{life.process.name} goes on behind {first}..{last}, and {missed} are kept")
        if life.sent_by or not life.new:
            life.gaps.update(range(first, last + 1))
            life.losses.append(Loss(source, first, last, self.marks))

    def left(self, life: ReceiverLife) -> None:
        """It has closed cleanly."""
        if life.untold():
            self.fail(f"{life.process.name} was never told of {life.untold()}")
        if not life.left:
            self.closed[life.session].update(dict.fromkeys(life.had, self.told.parts(life.session)))

    def leaves(self, life: ReceiverLife) -> None:
        """It is deregistered."""
        world.note("deregisters", life.process.name)
        life.left = True
        self._forgets(life.session)

    def _forgets(self, session: int) -> None:
        """Nobody remembers what it had, nor has to keep anything for it."""
        self.closed[session].clear()
        self.joined.pop(session, None)

    def power_cut(self) -> None:
        """Acknowledgements may go back."""
        self.closed.clear()
        for message in self.messages.values():
            message.leftover.update(store for store, level in enumerate(self.shape.levels) if level == "memory")
        self.lose(quorum=True)

    # The end ------------------------------------------------------------------------------------------------

    def ends_with(self, process: Process, error: BaseException) -> None:
        """A program's thread has raised this."""
        is_store = process in self.machine.stores.values()
        misuse = isinstance(error, BrokenError) or (isinstance(error, holdfast.ConfigError) and not is_store)
        if misuse or not isinstance(error, (holdfast.Error, OSError)):
            raise error

    def missing(self) -> str:
        """What is still to come, now that everything is well; empty: nothing."""
        for message in self.messages.values():
            for session in range(1, self.shape.receivers + 1):
                lacks = message.mark not in self.consumed[session] and self.is_due(message, session)
                if lacks and not (self.shape.lists[1:] and self._is_left_behind(message)):
                    return f"receiver {session} has not had {message.mark!r} ({message.first}..{message.last})"
        return self.told.missing()

    def _is_left_behind(self, message: Message) -> bool:
        """The stores that have it left are too few to register with, and no later life has declared them: who
        has changed the list has left it there."""
        known = self.holders(message.mark) - message.unknown
        return not self.shape.enough(known, message.life.declared)
