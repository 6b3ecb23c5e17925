"""One source, two receivers and one store: the real machines, wired by the plainest glue there is.

Rings, logs and boards are lists and dicts here; their C code has a model of its own (test_stream_log.py).
What runs is the code that decides: Registry and SourceState (store), SourceRegistration, Retention and
Notices (source), ReceiverRegistration, start_number and AckWindow (receiver). A crash loses a process's
objects and keeps what is in shared memory or on disk.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from holdfast.engine.events.source import ConfirmationFlags
from holdfast.engine.log.state_file import State
from holdfast.engine.receiver import ack_window
from holdfast.engine.rules import registration as reg
from holdfast.engine.rules import start_and_gap
from holdfast.engine.rules.notification import NoticeConfig, Notices
from holdfast.engine.rules.notification import Receiver as Confirmer
from holdfast.engine.rules.quorum import Groups
from holdfast.engine.rules.receiver_registration import ReceiverRegistration
from holdfast.engine.rules.retention import Retention, RetentionConfig
from holdfast.engine.rules.source_registration import SourceRegistration
from holdfast.engine.store.registry import Registry

if TYPE_CHECKING:
    from holdfast.engine.log.state_file import ReceiverState, SourceState

FOR_EVER = 2**63
SOURCE_SESSION = 7
TOPIC = "t"


class Message(NamedTuple):
    """Numbers first..last; ``client_data`` is what events must bring back; ``lost``: a record that nobody has
    them."""

    first: int
    last: int
    client_data: object = None
    lost: bool = False


@dataclass
class Ring:
    """A source's stream. What lies below ``trail`` is overwritten."""

    incarnation: int
    start: int
    messages: dict[int, Message] = field(default_factory=dict)
    next: int = 0
    released: int = 0
    trail: int = 0
    open: bool = True

    def __post_init__(self) -> None:
        self.next = self.released = self.trail = self.start


@dataclass
class Line:
    """A participant's line on the board. It outlives its owner."""

    since: int
    ack: int
    incarnation: int
    registration_id: int = 0
    confirms: bool = False


class Store:
    """A store: ``disk`` and ``log`` survive a crash, ``registry`` does not."""

    def __init__(self, world: World) -> None:
        self.world = world
        state = State("S", b"S" * 16, 1, 2**32 - 3)
        self.disk = msgspec.msgpack.encode(state)
        self.log: dict[int, Message] = {}
        self.appended = 0
        self.registry: Registry | None = None
        self.start()

    @property
    def up(self) -> bool:
        return self.registry is not None

    def start(self) -> None:
        self.registry = Registry(msgspec.msgpack.decode(self.disk, type=State))

    def crash(self) -> None:
        self.registry = None

    def save(self) -> None:
        assert self.registry is not None
        self.disk = msgspec.msgpack.encode(self.registry.state)

    def drain(self, most: int) -> None:
        """Reads the ring; what it has missed is lost for ever (docs/design.md 8): the line says so before its
        ack passes it."""
        ring, line = self.world.ring, self.world.board["store"]
        if ring is None or not self.up:
            return
        self.appended = max(self.appended, ring.start)
        for _ in range(most):
            if self.appended < ring.trail:
                self.log[self.appended] = Message(self.appended, ring.trail - 1, lost=True)
                line.since = self.appended = ring.trail
            if self.appended >= ring.next:
                break
            message = ring.messages[self.appended]
            self.log[message.first] = message
            self.appended = message.last + 1
        line.ack = max(line.ack, self.appended)

    def register_source(self, session: int, registration_id: int, uuid: bytes, alive: bool) -> reg.Grant | reg.Refusal:
        assert self.registry is not None
        claimed = self.registry.claim_source(TOPIC, registration_id, session, uuid)
        if isinstance(claimed, reg.Refusal):
            return claimed
        source, old = claimed
        if alive:
            return reg.Refusal("reg_id_in_use", "a living process has it", registration_id=source.registration_id)
        self.drain(10**6)
        self.save()
        return reg.Grant(source.registration_id, source.uuid, self.appended, old, source.incarnation)

    def begin(self, uuid: bytes, incarnation: int, start: int) -> None:
        assert self.registry is not None
        self.save_acks()
        source = self.source(uuid)
        source.begin(incarnation, start)
        self.save()
        self.world.board["store"].incarnation = incarnation

    def register_receiver(self, session: int, uuid: bytes) -> reg.Grant | reg.Refusal:
        assert self.registry is not None
        source = self.registry.state.sources[0]
        claimed = self.registry.claim_receiver(source, TOPIC, 0, session, uuid)
        if isinstance(claimed, reg.Refusal):
            return claimed
        receiver, old = claimed
        self.take_ack(source, receiver, FOR_EVER)
        if not old:
            receiver.ack = min(self.log, default=0)
            self.save()
        return reg.Grant(receiver.registration_id, receiver.uuid, receiver.ack, old)

    def take_ack(self, source: SourceState, receiver: ReceiverState, most: int) -> None:
        """What the line says counts, even ahead of what this store has read; what is saved is not ahead of
        it."""
        line = self.world.board.get(receiver.uuid)
        if line is not None:
            receiver.ack = max(receiver.ack, min(source.clamp(line.ack, line.incarnation), most))

    def save_acks(self) -> None:
        if self.registry is not None:
            for source in self.registry.state.sources:
                for receiver in source.receivers:
                    self.take_ack(source, receiver, self.appended)
            self.save()

    def source(self, uuid: bytes) -> SourceState:
        assert self.registry is not None
        found = self.registry.source(uuid)
        assert found is not None
        return found


class Source:
    """A source object, from its registration to its death."""

    def __init__(
        self, world: World, config: RetentionConfig, notices: NoticeConfig, flight: int, retained: int
    ) -> None:
        self.world = world
        self.config, self.notices = config, Notices(notices, ("S",))
        self.flight, self.retained = flight, retained
        self.machine = SourceRegistration(Groups.single(1), 3_000_000_000, "majority", world.fresh_uuid())
        self.retention: Retention | None = None
        self.registration_id = 0
        self.refused = False

    def connect(self) -> None:
        self.act(self.machine.connected(0, self.world.now))

    def tick(self) -> None:
        self.act(self.machine.tick(self.world.now))

    def act(self, actions: list[reg.Action]) -> None:
        world, store = self.world, self.world.store
        for action in actions:
            if isinstance(action, reg.Ask):
                alive = any(other is not self and other.machine.is_open for other in world.sources)
                answer = store.register_source(SOURCE_SESSION, 0, self.machine.uuid, alive)
                if isinstance(answer, reg.Refusal):
                    self.refused = True
                    self.act(self.machine.refused(0, answer))
                else:
                    self.registration_id = answer.registration_id
                    self.act(self.machine.granted(0, answer, world.now))
            elif isinstance(action, reg.Open):
                world.ring = Ring(action.incarnation, action.start_sqn)
                self.retention = Retention(self.config, self.notices, action.start_sqn)
                self.act(self.machine.opened(action.incarnation, action.start_sqn, world.now))
            elif isinstance(action, reg.Announce):
                store.begin(self.machine.uuid, self.machine.incarnation, self.machine.start_sqn)
                assert world.ring is not None
                self.act(self.machine.begun(0, world.ring.next, world.now))

    def send(self, fragments: int, client_data: object) -> Message | None:
        """None: the flight is full, and nothing happened."""
        ring, retention = self.world.ring, self.retention
        assert ring is not None
        assert retention is not None
        if ring.next - retention.settled > 0 and ring.next - retention.settled + fragments > self.flight:
            return None
        forced = ring.released
        while forced < ring.next and ring.next - forced + fragments > self.retained:
            forced = ring.messages[forced].last + 1
        self.release(forced, forced=True)
        message = Message(ring.next, ring.next + fragments - 1, client_data)
        ring.messages[message.first] = message
        ring.next = message.last + 1
        if client_data is not None or self.notices.records_all:
            retention.sent(message.first, message.last, client_data)
        return message

    def release(self, below: int, *, forced: bool = False) -> None:
        ring, retention = self.world.ring, self.retention
        assert ring is not None
        assert retention is not None
        if below > ring.released:
            retention.next = ring.next
            ring.released = below
            retention.release(below, forced=forced)

    def refresh(self) -> list[object]:
        """Reads the board, settles, releases; what it tells the program."""
        world, retention, ring = self.world, self.retention, self.world.ring
        if retention is None or ring is None:
            return []
        retention.next = ring.next
        line = world.board["store"]
        if line.incarnation == self.machine.incarnation:
            retention.stored(0, line.since, line.ack)
        for uuid, own in world.board.items():
            if isinstance(uuid, bytes) and own.confirms and own.incarnation == self.machine.incarnation:
                who = Confirmer(uuid, own.registration_id, ConfirmationFlags(0))
                retention.confirmed(who, own.since, own.ack)
        self.release(retention.advance(world.now))
        told, self.notices.queue = self.notices.queue, []
        return told


class Receiver:
    """A receiver object. Delivers one message a call; the program holds what it has not released."""

    def __init__(self, world: World, session: int, confirms: bool) -> None:
        self.world, self.session, self.confirms = world, session, confirms
        self.machine = ReceiverRegistration(Groups.single(1), 3_000_000_000, "majority")
        self.window: ack_window.AckWindow | None = None
        self.uuid, self.registration_id = world.fresh_uuid(), 0
        self.next = 0
        self.held: list[tuple[int, Message]] = []
        self.act(self.machine.connected(0, world.now))

    def act(self, actions: list[reg.Action]) -> None:
        for action in actions:
            if isinstance(action, reg.Ask):
                answer = self.world.store.register_receiver(self.session, self.uuid)
                assert isinstance(answer, reg.Grant)
                self.uuid, self.registration_id = answer.uuid, answer.registration_id
                self.act(self.machine.granted(0, answer, self.world.now))
            elif isinstance(action, reg.Complete):
                self.join(action.sequence_number)

    def join(self, low: int) -> None:
        world = self.world
        assert world.ring is not None
        high = max(world.ring.next, world.store.appended) - 1
        start = start_and_gap.start_number(low, high, 0, low).sequence_number
        self.window, self.next = ack_window.AckWindow(start, slots=4), start
        before = world.board.get(self.uuid)
        ack = max(start, before.ack if before is not None else 0)
        world.board[self.uuid] = Line(start, ack, world.ring.incarnation, self.registration_id, self.confirms)

    def receive(self) -> Message | None:
        """The next message or loss, from the ring if it has it, else from the log."""
        ring, store = self.world.ring, self.world.store
        assert ring is not None
        assert self.window is not None
        if ring.trail <= self.next < ring.next:
            message = ring.messages.get(self.next)
        else:
            message = store.log.get(self.next) if self.next < store.appended else None
        if message is None:
            return None
        self.next = message.last + 1
        if message.lost:
            self.window.lost(message.first, message.last)
        else:
            self.held.append((self.window.delivered(message.first, message.last), message))
        return message

    def release(self, index: int) -> Message:
        assert self.window is not None
        slot, message = self.held.pop(index)
        self.window.consumed(slot)
        return message

    def tick(self) -> None:
        """The ack timer."""
        line, ring = self.world.board[self.uuid], self.world.ring
        assert self.window is not None
        assert ring is not None
        line.incarnation = ring.incarnation  # the store drains each ring to its end: no incarnation starts below an ack
        ack = self.window.advance()
        if ack is not None:
            line.ack = max(line.ack, ack)


class World:
    """Shared memory and processes."""

    def __init__(self) -> None:
        self.now = 0
        self._uuids = 0
        self.ring: Ring | None = None
        self.board: dict[object, Line] = {"store": Line(0, 0, 0)}
        self.store = Store(self)
        self.sources: list[Source] = []
        self.receivers: dict[int, Receiver] = {}

    def fresh_uuid(self) -> bytes:
        self._uuids += 1
        return self._uuids.to_bytes(16, "big")
