"""A receiver process: the real registration, start and gap rules (engine/receiver/delivery_controller.py,
registrar.py, feed.py, reader.py).

Two threads: the context's (links, the SRI, acks) and the program's, which receives and consumes.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, cast

from simulation.config import INTERVAL_NS, PATIENCE_NS
from simulation.leaving import ReceiverLeaving
from simulation.link import Link
from simulation.memory import LOST, NO_PIN, RECEIVER, Line, Message, Ring, Sri
from simulation.world import Process

from holdfast.engine.control import wire
from holdfast.engine.receiver.ack_window import AckWindow
from holdfast.engine.rules import reconcile
from holdfast.engine.rules import registration as reg
from holdfast.engine.rules.receiver_registration import ReceiverRegistration
from holdfast.engine.rules.reports import Configuration, agreed_below, readers_tables
from holdfast.engine.rules.start_and_gap import Gap, start_number

if TYPE_CHECKING:
    from collections.abc import Generator

    from simulation.machine import Machine

TOPIC = "t"
HOLDS = 3
"""Messages that the program holds at most."""
SLOTS = 2
"""Of an ack window at first: it grows."""


class Receiver:
    """A process with one receiver: it has an DeliveryController for each source that it comes upon."""

    def __init__(self, machine: Machine, session: int) -> None:
        self.machine, self.world, self.session = machine, machine.world, session
        self.process = Process(self.world, f"receiver {session}")
        self.controllers: dict[bytes, DeliveryController] = {}
        self.links = [Link(self.process, store, name) for store, name in enumerate(machine.config.names)]
        self.process.run(self.context(), self.program())

    def context(self) -> Generator[None, None, None]:
        """Discovery, links, timers, acks."""
        while True:
            for uuid in self.machine.discover():
                if uuid not in self.controllers:
                    self.controllers[uuid] = DeliveryController(self, uuid)
            for link in self.links:
                if not link.idle:
                    link.turn()
                    if self.world.cut():
                        yield
            for controller in list(self.controllers.values()):
                controller.tick()
                if self.world.cut():
                    yield
                controller.acknowledge()
            yield

    def program(self) -> Generator[None, None, None]:
        """Receives, and consumes what it holds in any order."""
        while True:
            for controller in list(self.controllers.values()):
                if controller.window is not None:
                    if len(controller.held) < HOLDS:
                        yield from controller.receive()
                    if self.world.calm:
                        controller.acknowledge_skipped()
                    if controller.held and (self.world.calm or self.world.chance(0.5)):
                        controller.consume(self.world.below(len(controller.held)))
            yield


class DeliveryController:
    """One source at one receiver."""

    def __init__(self, receiver: Receiver, uuid: bytes) -> None:
        machine = receiver.machine
        self.receiver, self.machine, self.world, self.uuid = receiver, machine, receiver.world, uuid
        self.truth, self.session = machine.truth, receiver.session
        self.mode = machine.config.modes[receiver.session - 1] if machine.config.paced is not None else 0
        self.proposal = self.world.uuid()
        self.registration = ReceiverRegistration(
            machine.groups, INTERVAL_NS, machine.config.consensus, stagger=self.world.random()
        )
        self.answers: dict[int, wire.ReceiverGranted] = {}
        self.seen = [(0, 0)] * machine.config.stores
        self.window: AckWindow | None = None
        self.line: Line | None = None
        self.begun = 0, 0
        self.table: reconcile.Table = ()
        """As the logs that were looked into say."""
        self.next = 0
        self.held: list[tuple[int, Message]] = []
        self.leaving: ReceiverLeaving | None = None
        """It has deregistered: it receives, and acknowledges nothing."""
        self.skipped: tuple[int, int] | None = None
        """[first, start) that this start has skipped, and nothing was acknowledged since."""
        self._gap = Gap(PATIENCE_NS)
        self._sri: tuple[Sri | None, bool] = None, True
        """What was followed last; its source lives."""
        for link in receiver.links:
            link.listeners.append(self)
            if link.uuid is not None:
                self.link_up(link.store)

    # Registration -------------------------------------------------------------------------------------------

    def link_up(self, store: int) -> None:
        if self.leaving is not None:
            self.leaving.link_up(cast("Any", self.receiver.links[store]))
            return
        self.act(self.registration.connected(store, self.world.now))

    def link_down(self, store: int) -> None:
        self.act(self.registration.disconnected(store))

    def rings(self) -> list[Ring]:
        """Newest first."""
        return [ring for (uuid, _), ring in sorted(self.world.rings.items(), reverse=True) if uuid == self.uuid]

    def ring(self) -> Ring | None:
        """The newest that says something: one without a message may never have begun anywhere, and what one
        older than the newest BEGIN has left is void, or in the logs."""
        begun = max(self.begun, self.table[-1] if self.table else self.begun)[0]
        newest = next((ring for ring in self.rings() if ring.tail or ring.incarnation <= begun), None)
        return newest if newest is None or newest.incarnation >= self.begun[0] else None

    def tick(self) -> None:
        """Timers, and what the SRI says."""
        if self.leaving is not None:
            self.leaving.tick(self.world.now)
            return
        ring = next((ring for ring in self.rings() if ring.sri is not None), None)
        live = ring is not None and not ring.closed and not self.world.dead(ring.owner)
        if ring is not None and (ring.sri, live) != self._sri:
            self._sri = ring.sri, live
            self.follow(ring, live)
        self.act(self.registration.tick(self.world.now))

    def follow(self, ring: Ring, live: bool) -> None:
        """Registers again with exactly the stores that the source has registered with since; when it
        registers with nobody any more, whoever has kept it will do."""
        assert ring.sri is not None
        versions = ring.sri.versions
        expected = {store for store, version in enumerate(versions) if version > 0}
        if not live and not self.registration.complete:
            expected = set(range(len(versions)))
        self.act(self.registration.expect(expected, self.world.now))
        for store, version in enumerate(versions):
            if version > 0 and (ring.incarnation, version) > self.seen[store]:
                self.seen[store] = ring.incarnation, version
                self.act(self.registration.again(store, self.world.now))

    def act(self, actions: list[reg.Action]) -> None:
        """Carries out what the machine decides."""
        for action in actions:
            match action:
                case reg.Ask(store):
                    link = self.receiver.links[store]
                    request = wire.RegisterReceiver(
                        link.next_id(), self.uuid, TOPIC, 0, self.session, self.proposal, self.line is not None,
                        identity=self.registration.asked_as(store), paced=self.mode,
                    )  # fmt: skip
                    link.ask(request, partial(self.answered, store))
                case reg.GiveUp(store, uuid):
                    link = self.receiver.links[store]
                    link.ask(wire.Leave(link.next_id(), "receiver", self.uuid, uuid), lambda _: None)
                case reg.Complete(low):
                    self.join(low)
                case _:
                    pass

    def answered(self, store: int, answer: Any) -> None:
        """What a store says."""
        if self.leaving is not None:
            if isinstance(answer, wire.ReceiverGranted):  # it was on its way
                self.leaving.start({store: answer})
        elif isinstance(answer, wire.ReceiverGranted):
            self.answers[store] = answer
            grant = reg.Grant(
                answer.registration_id,
                answer.uuid,
                answer.next_sqn,
                answer.old,
                answer.acknowledged_under,
                tuple(answer.begins),
                high_sqn=answer.high_sqn,
            )
            self.act(self.registration.granted(store, grant, self.world.now))
        elif isinstance(answer, wire.Refused):
            self.act(self.registration.refused(store, reg.Refusal(answer.code, answer.text)))

    def join(self, low: int) -> None:
        """Takes a line, decides where to start."""
        board = self.world.board(self.uuid)
        answers = list(self.answers.values())
        identity = self.registration.identity or self.proposal
        line = board.claim(self.receiver.process, RECEIVER, identity, "")
        if line is None:
            self.truth.fail(f"two live receivers with session {self.session}")
        self.line = line
        self.begun = self.registration.tables()[-1][-1]
        ring = self.ring()
        high = (
            max([*(answer.high_sqn for answer in answers), (ring.end_number() if ring is not None else 0) or low]) - 1
        )
        skips = self.machine.config.skips and not self.world.calm and self.world.chance(0.5)
        chosen = self.world.pick(self.truth.beginnings(self.uuid, low, high + 1)) if skips else low
        start = start_number(low, high, 0, chosen).sequence_number
        position = min(low, high + 1)
        known = all(a.old and (a.uuid, a.incarnation) == (identity, self.begun[0]) for a in answers)
        self.truth.joins(self.uuid, self.session, position, identity, known=known)
        line.confirms, line.session = True, self.session
        line.rebase(self.begun[0], self.void_since(line.ack_stream))
        self.cover(position, start)
        if start > position:
            self.skipped = position, start
            self.truth.skips(self.uuid, self.session, position, start)
        self.window, self.next = AckWindow(start, slots=SLOTS), start

    def cover(self, position: int, start: int) -> None:
        """The line says what is acknowledged, and not what the start skips."""
        line = self.line
        assert line is not None
        kept = line.to > 0 and line.from_ <= position <= line.ack
        old = any(answer.old for answer in self.answers.values())
        line.cover(line.from_ if kept else position if old else max(position, start))
        line.acknowledge(position)

    def void_since(self, incarnation: int) -> int:
        """Where what was acknowledged under an older incarnation ends: several may have begun since."""
        return min(self.begun[1], reconcile.void_from(self.registration.tables()[-1], incarnation))

    # Acks ---------------------------------------------------------------------------------------------------

    def acknowledge(self) -> None:
        """The timer: the consumed prefix, under the incarnation that it was read in."""
        if self.window is not None and self.line is not None and self.leaving is None:
            self.line.rebase(*self.begun)
            if not self.window.settled:
                self.window.advance()
            ack = self.window.ack
            if ack > (self.skipped[1] if self.skipped is not None else self.line.ack):
                self.tell(ack)
            elif ack < self.line.ack:  # of an earlier life
                self.truth.covers(self.uuid, self.session, ack, self.line.ack)

    def tell(self, ack: int) -> None:
        """An acknowledgement; the first one covers what the start skipped."""
        assert self.line is not None
        if self.skipped is not None:
            self.truth.covers_skipped(self.uuid, self.session, *self.skipped, self.begun[0])
            self.skipped = None
        self.line.acknowledge(ack)
        self.truth.acknowledges(self.uuid, self.line.uuid, ack, self.begun[0])

    def acknowledge_skipped(self) -> None:
        """The program gives up what the start skipped."""
        if self.skipped is not None and self.window is not None and self.line is not None and self.leaving is None:
            self.line.rebase(*self.begun)
            self.tell(self.window.ack)

    def deregister(self) -> None:
        """The stores are to forget it."""
        if self.answers and self.leaving is None:
            self.world.note("unregister", self.session)
            self.leaving = ReceiverLeaving(self)
            self.leaving.start(self.answers)

    def consume(self, index: int) -> None:
        """The program is done with a message."""
        assert self.window is not None
        slot, message = self.held.pop(index)
        self.truth.consumes(self.uuid, self.session, message)
        self.window.consumed(slot)

    # The feed -----------------------------------------------------------------------------------------------

    def receive(self) -> Generator[None, None, None]:
        """The next message, from whoever has it."""
        ring = self.ring()
        if ring is not None:
            self.begin(ring.incarnation, ring.start)
            if ring.start <= self.next and not ring.passed(self.next - ring.start):
                yield from self.in_place(ring) if self.world.chance(0.4) else self.copied(ring)
                return
        self.from_logs(ring)

    def begin(self, incarnation: int, start: int) -> bool:
        """A new incarnation: what was delivered from its start on is void, and so are acks of it
        (docs/design.md 13)."""
        if incarnation <= self.begun[0]:
            return False
        self.begun = incarnation, start
        self.truth.rewinds(self.uuid, self.session, start)
        assert self.window is not None
        self.world.note("receiver", self.session, "begins", incarnation, start)
        self.next = min(self.next, start)
        self.window.rebase(start)
        if self.skipped is not None and self.skipped[1] > start:
            self.skipped = (self.skipped[0], start) if self.skipped[0] < start else None
        self.held = [(slot, message) for slot, message in self.held if message.first < start]
        return True

    def copied(self, ring: Ring) -> Generator[None, None, None]:
        """Copy, then look at the trail (docs/design.md 7)."""
        position = self.next - ring.start
        message = ring.look(position)
        if self.world.cut():
            yield
        if message is not None:
            message = ring.copy(position, message)
        if self.world.cut():
            yield
        if self.overrun(ring, position) or self.next - ring.start != position:
            return
        if message is not None:
            self.deliver(message)

    def overrun(self, ring: Ring, position: int) -> bool:
        """The ring may have gone over it."""
        return ring.passed(position)

    def in_place(self, ring: Ring) -> Generator[None, None, None]:
        """A view: pin, then look at the trail; look again when it is released (docs/design.md 6)."""
        line, position = self.line, self.next - ring.start
        assert line is not None
        for _ in range(0 if self.world.calm else self.world.below(4)):
            yield
        line.pin_stream, line.pin = ring.incarnation, position
        if self.world.cut():
            yield
        if not self.pinned(ring, position) or (message := ring.look(position)) is None:
            line.pin = NO_PIN
            return
        view = self.truth.view(ring, position, position + message.last - message.first + 1, self.receiver.process)
        for _ in range(self.world.below(4)):
            yield
        line.pin = NO_PIN
        good = self.intact(ring, position) and self.next - ring.start == position
        self.truth.unview(view, message, good=good)
        if good:
            self.deliver(message)

    def pinned(self, ring: Ring, position: int) -> bool:
        """The pin came in time: the trail, loaded after it was stored, is not above it (docs/design.md 6)."""
        return not ring.passed(position)

    def intact(self, ring: Ring, position: int) -> bool:
        """The trail has not passed the view (docs/design.md 6)."""
        return not ring.passed(position)

    def deliver(self, message: Message) -> None:
        """To the program."""
        assert self.window is not None
        self.truth.delivers(self.uuid, self.session, message)
        self.next = message.last + 1
        self.held.append((self.window.delivered(message.first, message.last), message))

    def from_logs(self, ring: Ring | None) -> None:
        """From whichever log has it, valid under the newest table of BEGINs that is known."""
        logs = [self.machine.log_of(name, self.uuid) for name in self.machine.config.names]
        there = [log for log in logs if log is not None]
        tables = self.tables()
        self.table = tables[-1]
        if self.table and self.begin(*self.table[-1]):
            return
        if self.next >= agreed_below(tables):  # a store that nobody can read decides
            return
        for log in there:
            message = log.at(self.next)
            if message is None or message.content == LOST or message.first != self.next:
                continue
            if message.last < reconcile.void_from(self.table, message.incarnation):
                self.deliver(message)
                return
        behind = [found for log in there if (found := log.behind(self.next)) is not None]
        newer = [*behind, ring.oldest_number()] if ring is not None else behind
        open_ = [
            name
            for name, log in zip(self.machine.config.names, logs, strict=True)
            if log is None or log.behind(self.next) is None
        ]
        undecided = sum(not self.machine.lacks(name, self.uuid, self.next, self.begun) for name in open_)
        onward = self._gap.verdict(self.next, newer, undecided, self.world.now)
        if onward is None:
            return
        if undecided and not any(self.next < log.floor for log in there):
            self._gap.again(self.world.now)  # late: who cannot be read may have it
        else:
            self.lose(onward - 1)

    def tables(self) -> list[reconcile.Table]:
        """As engine/log/reader.py asks for them."""
        names = self.machine.config.names
        logs = {name: self.machine.log_of(name, self.uuid) for name in names}
        views = {
            name: reconcile.LogView(log.begins, log.next)
            if log is not None
            else reconcile.LogView((), 0)
            if self.machine.lacks(name, self.uuid, self.next, self.begun)
            else None
            for name, log in logs.items()
        }
        older = [view.begins for view in views.values() if view is not None and view.incarnation <= self.begun[0]]
        sure = reconcile.newest_table([self.table, *older])
        if sure[-1:] != (self.begun,):  # only the ring says so yet
            sure = reconcile.after_begin(sure, (), *self.begun)
        return readers_tables(views, [(0, Configuration(tuple(names), self.machine.groups))], sure=sure)

    def lose(self, last: int) -> None:
        """Nobody has the numbers from the one that is due to ``last``."""
        assert self.window is not None
        self.truth.loses(self.uuid, self.session, self.next, last)
        self.window.lost(self.next, last)
        self.next = last + 1
