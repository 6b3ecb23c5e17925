"""What a source, its store and its receivers owe a program, said without the code that decides
(docs/semantics.md A, D, F, G).

``Scenario`` drives a World step by step and compares after each step. A step is a method with plain
arguments, so that a list of them can be written down and played again.
"""

from __future__ import annotations

from typing import Any

from model.persistence_world import Message, Receiver, Source, World

from holdfast.engine.events import source as events
from holdfast.engine.rules.notification import NoticeConfig
from holdfast.engine.rules.quorum import Groups
from holdfast.engine.rules.retention import RetentionConfig

SESSIONS = (11, 12)
NAMES = ("start_store", "crash_store", "drain", "save_acks", "start_source", "crash_source", "send", "refresh", "overwrite",
         "start_receiver", "crash_receiver", "receive", "release", "tick")  # fmt: skip


class Scenario:
    """See the module. Options of the source are the scenario's."""

    def __init__(
        self, *, stability: int | None, confirmation: int, unique: int, flight: int, retained: int,
        deaf: bool,
    ) -> None:  # fmt: skip
        self.world = World()
        self.stability, self.confirmation, self.unique = stability, confirmation, unique
        self.flight, self.retained = flight, retained
        self.deaf = deaf
        """The second receiver does not allow confirmed delivery."""
        self.sent: list[Message] = []
        self.registration_ids: dict[str, int] = {}
        self.acked: dict[int, int] = {}
        """Session -> number below which the program had consumed everything, at the last ack timer."""
        self.consumed: dict[int, set[int]] = {session: set() for session in SESSIONS}
        self.confirmed: dict[int, set[int]] = {session: set() for session in SESSIONS}
        """What a receiver's ack says that it has consumed; a loss is consumed by nobody, and holds nothing
        back."""
        self.forced_below = 0
        self.sending: Source | None = None
        self._begin_told()

    def _begin_told(self) -> None:
        """What the source object that lives now has told."""
        self.start = self.next
        self.told_stable = self.told_released = self.start
        self.told_confirmed: set[tuple[int, int]] = set()
        self.told_store: set[int] = set()

    @property
    def next(self) -> int:
        return self.sent[-1].last + 1 if self.sent else 0

    @property
    def source(self) -> Source | None:
        alive = [source for source in self.world.sources if source.machine.is_open]
        assert len(alive) <= 1, "two hold one RegID"
        return alive[0] if alive else None

    def play(self, steps: list[tuple[str, dict[str, Any]]]) -> None:
        """Plays a list of steps."""
        for name, arguments in steps:
            assert name in NAMES
            getattr(self, name)(**arguments)
            self.check()

    # The store ----------------------------------------------------------------------------------------------

    def start_store(self) -> None:
        """It comes back with what was on its disk, and everybody registers again."""
        store = self.world.store
        if store.up:
            return
        store.start()
        for source in self.world.sources:
            source.connect()
        self._begun()

    def crash_store(self) -> None:
        """Its process is gone; log and saved state are not."""
        self.world.store.crash()
        for source in self.world.sources:
            source.act(source.machine.disconnected(0, self.world.now))

    def drain(self, most: int) -> None:
        """The store reads some messages."""
        self.world.store.drain(most)

    def save_acks(self) -> None:
        """The store's lazy saving."""
        if self.world.store.up:
            self.world.store.save_acks()

    # The source ---------------------------------------------------------------------------------------------

    def start_source(self) -> None:
        """A program starts; while another one lives, it is refused, and waits."""
        if len(self.world.sources) >= 2:
            return
        config = RetentionConfig(Groups.single(1), self.unique)
        notices = NoticeConfig(True, self.stability, self.confirmation, True, False, "t")
        living = self.source
        source = Source(self.world, config, notices, self.flight, self.retained)
        self.world.sources.append(source)
        if not self.world.store.up:
            return
        source.connect()
        if living is not None:
            assert source.refused, "a second live claimant"
            assert self.source is living
        self._begun()

    def _begun(self) -> None:
        """If another source object has begun: its numbers go on behind the last one that was published."""
        source, ring = self.source, self.world.ring
        self._who("source", source)
        if source is not None and ring is not None and source is not self.sending:
            self.sending = source
            assert ring.start == self.next
            self._begin_told()

    def crash_source(self) -> None:
        """kill -9 of the one that has the RegID; who waits for it is granted at once."""
        living = self.source
        if living is None:
            return
        self.world.sources.remove(living)
        if self.world.store.up:
            for source in self.world.sources:
                self.world.now += 200_000_000
                source.tick()
            self._begun()

    def send(self, fragments: int, data: bool) -> None:
        """One message; ``data``: with client data, a different object each time."""
        source, ring = self.source, self.world.ring
        if source is None or ring is None or not source.machine.may_send:
            return
        assert source.retention is not None
        in_flight = ring.next - source.retention.settled
        client_data = f"data of {self.next}" if data else None
        forced_before = source.retention.forced
        message = source.send(fragments, client_data)
        if message is None:
            assert in_flight > 0
            assert in_flight + fragments > self.flight, "blocked with room in the flight"
            return
        assert in_flight == 0 or in_flight + fragments <= self.flight
        assert message.first == self.next
        self.sent.append(message)
        if source.retention.forced > forced_before:
            self.forced_below = ring.released
        assert ring.next - ring.released <= max(self.retained, fragments)

    def overwrite(self, numbers: int) -> None:
        """The ring goes on over what is released."""
        ring = self.world.ring
        if ring is not None:
            end = min(ring.trail + numbers, ring.released)
            while ring.trail < end:
                ring.trail = ring.messages[ring.trail].last + 1

    def refresh(self) -> None:
        """The source looks at the board. Every event is compared with what the program may be told."""
        if self.source is not None:
            for event in self.source.refresh():
                if isinstance(event, events.MessageStable):
                    self._stable(event)
                elif isinstance(event, events.MessageReclaimed):
                    self._reclaimed(event)
                elif isinstance(event, events.DeliveryConfirmation):
                    self._confirmation(event)
                else:
                    assert isinstance(event, events.MessageNotStable)
            self._told_all()

    # Receivers ----------------------------------------------------------------------------------------------

    def start_receiver(self, session: int) -> None:
        """A program starts, or starts again: it goes on behind what it had acknowledged, and not a number
        later."""
        world = self.world
        if session in world.receivers or not world.store.up or world.ring is None or world.store.source is None:
            return
        receiver = Receiver(world, session, not (self.deaf and session == SESSIONS[1]))
        world.receivers[session] = receiver
        self._who(f"receiver {session}", receiver)
        oldest = min(world.store.log, default=0)
        expected = max(self.acked[session], oldest) if session in self.acked else oldest
        assert receiver.next == expected, "recovery starts behind the acknowledgement"
        self.consumed[session] = set()
        self.acked[session] = receiver.next

    def crash_receiver(self, session: int) -> None:
        """kill -9: what it held is delivered again."""
        self.world.receivers.pop(session, None)

    def receive(self, session: int, most: int) -> None:
        """In order, without a gap or a repetition, and what was sent."""
        receiver = self.world.receivers.get(session)
        for _ in range(most if receiver is not None else 0):
            assert receiver is not None
            expected = receiver.next
            message = receiver.receive()
            if message is None:
                return
            if message.lost:
                assert all(n < self.forced_below for n in range(message.first, message.last + 1)), (
                    "lost, though not forced"
                )
                self.consumed[session] |= set(range(message.first, message.last + 1))
            else:
                assert message in self.sent
                assert message.first == expected

    def release(self, session: int, index: int) -> None:
        """The program consumes one of those that it holds, in any order."""
        receiver = self.world.receivers.get(session)
        if receiver is not None and receiver.held:
            message = receiver.release(index % len(receiver.held))
            self.consumed[session] |= set(range(message.first, message.last + 1))

    def tick(self, session: int) -> None:
        """The ack is the contiguous prefix of what was consumed: nothing more, and nothing less."""
        receiver = self.world.receivers.get(session)
        if receiver is None:
            return
        receiver.tick()
        prefix = self.acked[session]
        while prefix in self.consumed[session]:
            self.confirmed[session].add(prefix)
            prefix += 1
        self.acked[session] = prefix
        assert self.world.board[receiver.uuid].ack == prefix, "the ack is the contiguous prefix"

    # What must hold -----------------------------------------------------------------------------------------

    def check(self) -> None:
        """After every step: nothing is released that is not stable and confirmed, but by force."""
        source, ring = self.source, self.world.ring
        assert self.source is None or self.next == (ring.next if ring is not None else 0)
        if source is None or ring is None:
            return
        for number in range(max(self.start, self.forced_below), ring.released):
            assert self._is_stored(number), "released before it was stable"
            assert self._confirmers(number) >= self.unique, "released before it was confirmed"

    def _who(self, role: str, holder: Source | Receiver | None) -> None:
        """A session keeps its RegID, and no two have the same."""
        if holder is None or not holder.registration_id:
            return
        known = self.registration_ids.setdefault(role, holder.registration_id)
        assert known == holder.registration_id, "a session has another RegID than before"
        assert len(set(self.registration_ids.values())) == len(self.registration_ids), "one RegID for two"

    def _is_stored(self, number: int) -> bool:
        return any(m.first <= number <= m.last and not m.lost for m in self.world.store.log.values())

    def _confirmers(self, number: int) -> int:
        allowed = SESSIONS[:1] if self.deaf else SESSIONS
        return sum(number in self.confirmed[session] for session in allowed)

    def _data(self, first: int, last: int, *, per_number: bool) -> object:
        """What an event about first..last brings back: of the message that ends with it, or that ``last``
        belongs to."""
        message = next(m for m in self.sent if m.first <= last <= m.last)
        return message.client_data if per_number or message.last == last else None

    def _stable(self, event: events.MessageStable) -> None:
        first, last = event.first_sequence_number, event.sequence_number
        per_number = self.stability in (1, 3)
        assert self.stability != 0
        assert event.client_data == self._data(first, last, per_number=per_number), "client data"
        assert all(self._is_stored(n) for n in range(first, last + 1)), "called stable, and no store has it"
        if per_number:
            assert first == last
            assert last not in self.told_store, "told twice"
            self.told_store.add(last)
            whole = bool(event.flags & events.StableFlags.WHOLE_MESSAGE_STABLE)
            assert not whole or self.stability == 3
        else:
            assert first >= self.told_stable, "in order, once"
            assert all(n < self.forced_below for n in range(self.told_stable, first)), "left out"
            self.told_stable = last + 1
            if self.stability == 2:
                assert Message(first, last, event.client_data) in self.sent, "per message"

    def _reclaimed(self, event: events.MessageReclaimed) -> None:
        first, last = event.first_sequence_number, event.sequence_number
        assert first == self.told_released, "in order, once"
        self.told_released = last + 1
        assert event.flags is not None
        if event.flags & events.ReclaimedFlags.FORCED:
            assert last < self.forced_below
        per_number = self.stability in (1, 3)
        assert first == last or not per_number
        assert event.client_data == self._data(first, last, per_number=per_number), "client data"

    def _confirmation(self, event: events.DeliveryConfirmation) -> None:
        first, last = event.first_sequence_number, event.sequence_number
        session = next(
            s for s in SESSIONS if self.registration_ids.get(f"receiver {s}") == event.receiver_registration_id
        )
        assert not (self.deaf and session == SESSIONS[1]), "confirmed by a receiver that does not allow it"
        unit = (session, last)
        assert unit not in self.told_confirmed, "confirmed twice"
        self.told_confirmed.add(unit)
        assert all(n in self.confirmed[session] for n in range(first, last + 1)), "confirmed, and not consumed"
        assert event.client_data == self._data(first, last, per_number=True), "client data"
        reached = all(self._confirmers(n) >= self.unique for n in range(first, last + 1))
        if event.flags & events.ConfirmationFlags.UNIQUEACKS:
            assert self.unique
            assert reached
        if self.confirmation == 2:
            assert any((m.first, m.last) == (first, last) for m in self.sent), "per message"
        else:
            assert first == last

    def _told_all(self) -> None:
        """Nothing that the source has seen is left untold."""
        source, ring = self.source, self.world.ring
        if source is None or ring is None or source.retention is None:
            return
        line = self.world.board["store"]
        stored = line.ack if line.incarnation == source.machine.incarnation else self.start
        if self.stability is None or self.stability == 2:
            assert self.told_stable >= min(stored, ring.next) or self.forced_below > self.told_stable
        assert self.told_released == ring.released
