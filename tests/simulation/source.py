"""A source process: the real registration over a simulated ring (engine/source/session.py,
csrc/stream/send.c).

Two threads: the context's (links, timers, stability) and the program's, which sends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from simulation.config import ACTIVITY_NS, CHECK_NS, INTERVAL_NS, PIN_NS
from simulation.leaving import SourceLeaving
from simulation.link import Link
from simulation.memory import NO_PIN, Board, Line, Message, Ring, Sri
from simulation.settlement import Settlement
from simulation.world import Process

from holdfast.engine.control import wire
from holdfast.engine.control.grants import grant_of
from holdfast.engine.rules import registration as reg
from holdfast.engine.rules.quorum import INTERGROUP, INTRAGROUP
from holdfast.engine.rules.source_registration import SourceRegistration

if TYPE_CHECKING:
    from collections.abc import Generator

    from simulation.machine import Machine

SESSION = 7
TOPIC = "t"


class Source:
    """See the module. One object in its own process."""

    def __init__(self, machine: Machine) -> None:
        self.machine, self.world = machine, machine.world
        self.process = Process(self.world, "source")
        self.proposal = self.world.uuid()
        self.registration = SourceRegistration(
            machine.groups, INTERVAL_NS, "majority", self.proposal, stagger=self.world.random(),
            silence_ns=ACTIVITY_NS, look_ns=CHECK_NS, names=machine.config.names,
        )  # fmt: skip
        self.ring: Ring | None = None
        self.board: Board | None = None
        self.settlement: Settlement | None = None
        self.versions = [0] * machine.config.stores
        self.closed = False
        self.leaving: SourceLeaving | None = None
        """It has deregistered."""
        self.sending = False
        """A send is on its way: a close waits for its end."""
        self._looked_ns = 0
        self._uuids: dict[int, bytes] = {}
        self._admitted = 0
        """Position up to which the ring may be written, the word behind included."""
        self._granted = -1
        """Trail of a grant that waits for a pin until ``_granted_ns``."""
        self._granted_ns = 0
        names = machine.config.names
        self.links = [Link(self.process, store, name, self) for store, name in enumerate(names)]
        machine.truth.sources.append(self)
        self.process.run(self.context(), self.program())

    @property
    def may_send(self) -> bool:
        """Registration is complete, and the predicate holds."""
        return self.registration.may_send and not self.closed

    @property
    def next(self) -> int:
        """The next message's number."""
        return self.ring.start + self.ring.tail if self.ring is not None else self.registration.start_sqn

    # The context's thread -----------------------------------------------------------------------------------

    def context(self) -> Generator[None, None, None]:
        """Links, timers, stability."""
        self.act(self.registration.start())
        while not self.closed:
            for link in self.links:
                if not link.idle:
                    link.turn()
                    if self.world.cut():
                        yield
            self.act(self.registration.tick(self.world.now, self.next))
            if self.settlement is not None:
                self.look()
                self.settlement.turn()
            yield
        while True:
            if self.leaving is not None:
                for link in self.links:
                    link.turn()
                self.leaving.tick(self.world.now)
            yield

    def link_up(self, store: int) -> None:
        if self.leaving is not None:
            self.leaving.link_up(cast("Any", self.links[store]))
        self.act(self.registration.connected(store, self.world.now))

    def link_down(self, store: int) -> None:
        self.act(self.registration.disconnected(store, self.world.now))

    def look(self) -> None:
        """The stores' heartbeats, and whether they still catch up."""
        now = self.world.now
        if now - self._looked_ns < CHECK_NS:
            return
        self._looked_ns = now
        for store, line in self.lines().items():
            self.act(self.registration.look(store, line.heartbeat, self.next, now, catching_up=line.catching_up))

    def lines(self) -> dict[int, Line]:
        """Of the stores that it has registered with."""
        assert self.board is not None
        found = self.board.stores()
        return {store: found[uuid] for store, uuid in self._uuids.items() if uuid in found}

    def act(self, actions: list[reg.Action]) -> None:
        """Carries out what the machine decides."""
        if self.closed or not actions:
            return
        announced = [action.store for action in actions if isinstance(action, reg.Announce)]
        for store in announced:
            self.versions[store] += 1
        if announced and self._uuids:
            self.write_sri()
        for action in actions:
            match action:
                case reg.Ask(store):
                    self.ask(store)
                case reg.Open(incarnation, start):
                    self.open(incarnation, start)
                case reg.Announce(store):
                    self.announce(store)
                case reg.Abandon():
                    self.abandon()
                case reg.Seated() if self._uuids:
                    self.write_sri()
                case reg.GiveUp(store, uuid):
                    link = self.links[store]
                    own = self.registration.uuid  # a BEGIN that was refused may have renamed what was granted
                    link.ask(wire.Leave(link.next_id(), "source", uuid, own), lambda _: None)
                case reg.Complete():
                    self.machine.truth.may_send(self)
                case _:
                    pass
        if self.settlement is not None:
            self.settlement.retention.registered(self.registration.seated, self.registration.active())

    def close(self) -> None:
        """A clean close: the ring is closed, and the stores are told that the RegID is free."""
        self.closed = True
        self.world.note("close")
        if self.ring is not None:
            self.ring.closed = True
            if not self.registration.was_complete:  # nothing was sent in it
                self.world.rings.pop((self.ring.uuid, self.ring.incarnation), None)
        for store, link in enumerate(self.links):
            slot, uuid = self.registration.entries[store], self.registration.uuid
            if slot.grant is not None or slot.pending is not None:
                link.ask(wire.Leave(link.next_id(), "source", uuid, self.proposal), lambda _: None)

    def deregister(self) -> None:
        """The stores are to forget it."""
        granted = [store for store, slot in enumerate(self.registration.entries) if slot.grant is not None]
        if self.closed or self.ring is None or not granted:
            return
        self.world.note("deregister", granted)
        self.closed = self.ring.closed = True
        self.machine.truth.leaves(self.registration.uuid, self.ring.incarnation)
        self.leaving = SourceLeaving(self)
        self.leaving.add(granted)

    def ask(self, store: int) -> None:
        """Registers."""
        link = self.links[store]
        request = wire.RegisterSource(
            link.next_id(), TOPIC, 0, SESSION, self.registration.uuid, self.registration.incarnation,
            claimant=self.proposal, least=self.registration.least,
        )  # fmt: skip
        link.ask(request, lambda answer: self.answered(store, answer))

    def answered(self, store: int, answer: Any) -> None:
        """What a store says."""
        now = self.world.now
        match answer:
            case wire.SourceGranted() if self.leaving is not None:
                self.leaving.crossed(store, answer)
            case _ if self.leaving is not None:
                pass
            case wire.SourceGranted():
                grant = grant_of(answer, self.machine.config.names[store])
                self.world.note("grant", store, answer.next_sqn, answer.incarnation, answer.votes)
                self.act(self.registration.granted(store, grant, now))
            case wire.Begun():
                uuid = self.links[store].uuid
                assert uuid is not None
                self._uuids[store] = uuid
                self.write_sri()  # not before: without BEGIN receivers stay with what was before this incarnation
                self.world.note("begun", store, answer.next_sqn, answer.catching_up)
                self.act(self.registration.begun(store, self.next, now, catching_up=answer.catching_up))
            case wire.Refused():
                self.world.note("refused", store, answer.code)
                self.act(self.registration.refused(store, reg.Refusal(answer.code, answer.text)))

    def announce(self, store: int) -> None:
        """BEGIN to a store."""
        link, machine = self.links[store], self.registration
        grants = [slot.grant for slot in machine.entries if slot.grant is not None]
        own = machine.entries[store].grant
        request = wire.Begin(
            link.next_id(), machine.uuid, machine.incarnation, machine.start_sqn, "", list(self.machine.config.names),
            own.uuid if own is not None else b"", list(machine.begins), {each.name: each.opened for each in grants},
            list(machine.groups.sizes), list(machine.groups.of), INTRAGROUP.index(machine.groups.intragroup),
            INTERGROUP.index(machine.groups.intergroup), self.proposal, machine.exclusions(store),
        )  # fmt: skip

        def answered(answer: Any) -> None:
            if machine.incarnation == request.incarnation:  # it was not abandoned since
                self.answered(store, answer)

        link.ask(request, answered)

    def open(self, incarnation: int, start: int) -> None:
        """Board and ring of the incarnation."""
        world, uuid, config = self.world, self.registration.uuid, self.machine.config
        self.board = self.board_of(uuid)
        unused = self.unused(uuid, incarnation)
        if unused > incarnation:  # nobody has promised that one yet
            self.act(self.registration.beyond(unused, world.now))
            return
        self.machine.truth.opens(uuid, incarnation, start)
        self.ring = world.rings[uuid, incarnation] = Ring(world, uuid, incarnation, start, config.slots, self.process)
        self.machine.truth.rings[uuid].append(self.ring)
        self._admitted = config.slots
        self.settlement = Settlement(self, self.ring, self.board)
        self.act(self.registration.opened(incarnation, start, world.now))

    def unused(self, uuid: bytes, incarnation: int) -> int:
        """Also where the stores that knew of one are gone: the board outlives them, and so does a ring that
        never began."""
        found = max([incarnation, *(line.ack_stream + 1 for line in self.world.board(uuid).lines)])
        while (uuid, found) in self.world.rings:
            found += 1
        return found

    def abandon(self) -> None:
        """Nothing was sent in the ring: it goes as if it had not been."""
        assert self.ring is not None
        self.ring.closed = True
        self.world.rings.pop((self.ring.uuid, self.ring.incarnation), None)
        self.world.note("abandon", self.ring.incarnation)
        self.ring = self.settlement = None
        self.versions = [0] * self.machine.config.stores
        self._uuids.clear()

    def board_of(self, uuid: bytes) -> Board:
        """Of the identity: whatever incarnation (docs/design.md 9)."""
        return self.world.board(uuid)

    def write_sri(self) -> None:
        """Which stores, for receivers and for whoever cares for the ring when it is dead."""
        ring, config, machine = self.ring, self.machine.config, self.registration
        if ring is not None:
            version = ring.sri.version + 1 if ring.sri is not None else 1
            uuids = tuple(link.uuid or b"" for link in self.links)
            versions = tuple(v if i in machine.seated else 0 for i, v in enumerate(self.versions))
            ring.sri = Sri(version, config.names, uuids, versions)

    # The program's thread -----------------------------------------------------------------------------------

    def program(self) -> Generator[None, None, None]:
        """Sends, when it may."""
        while True:
            yield
            while self.may_send and self.ring is not None and self.world.chance(self.machine.eagerness):
                if self.settlement is not None and self.settlement.flight.waits:
                    break
                config = self.machine.config
                largest = min(3, config.slots // 4, config.flight if config.paced is not None else 3)
                self.sending = True
                sent = yield from self.send(1 if self.world.chance(0.8) else 1 + self.world.below(largest))
                self.sending = False
                if not sent:
                    break

    def send(self, fragments: int) -> Generator[None, None, bool]:
        """One message. False: there is no room, and nothing happened."""
        ring, settlement, config = self.ring, self.settlement, self.machine.config
        assert ring is not None
        assert settlement is not None
        if settlement.in_flight and settlement.in_flight + fragments > config.flight:
            if config.waits:
                if self.world.cut():
                    yield
                settlement.refuse(fragments)
            return False
        if settlement.retained and settlement.retained + fragments > config.retained:
            settlement.reclaim(fragments)
            if settlement.retained and settlement.retained + fragments > config.retained:
                return False
        need = self.room(ring, fragments)
        while need > self._admitted:
            if not (yield from self.raise_trail(need)):
                return False
        message = Message(self.next, self.next + fragments - 1, self.machine.content(), ring.incarnation)
        self.machine.truth.writes(ring, message, settlement.released)
        ring.write(ring.tail, message)
        if self.world.cut():
            yield
        settlement.messages[message.first] = message
        self.machine.truth.sends(ring.uuid, message)
        ring.commit(ring.tail)
        if self.world.cut():
            yield
        settlement.sent(message)
        ring.tail += fragments
        return True

    @staticmethod
    def room(ring: Ring, fragments: int) -> int:
        """Up to where a message is written: behind it comes the next commit word, which is zeroed
        (docs/design.md 4)."""
        return ring.tail + fragments + 1

    def raise_trail(self, need: int) -> Generator[None, None, bool]:
        """The trail goes up, then pins are looked at (docs/design.md 6). False: not now."""
        ring, settlement = self.ring, self.settlement
        assert ring is not None
        assert settlement is not None
        if self._granted >= 0:
            if self.pinned(ring, self._admitted - ring.slots, self._granted):
                if self.world.now < self._granted_ns:
                    return False
                self.machine.truth.evicts(ring, self._granted)
            self._admitted, self._granted = self._granted + ring.slots, -1
            return True
        least = need - ring.slots
        if least > settlement.released:
            return False
        trail = min(settlement.released, least + ring.slots // 8)
        ring.trail = trail
        if self.world.cut():
            yield
        if self.pinned(ring, self._admitted - ring.slots, trail):
            self._granted, self._granted_ns = trail, self.world.now + PIN_NS
            return False
        self._admitted = trail + ring.slots
        return True

    def pinned(self, ring: Ring, low: int, high: int) -> bool:
        """Somebody reads in place in [low, high)."""
        assert self.board is not None
        return any(
            low <= line.pin < high and line.pin != NO_PIN and line.pin_stream == ring.incarnation
            for line in self.board.lines if line.state == "active"
        )  # fmt: skip
