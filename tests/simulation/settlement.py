"""What becomes of a source's messages after they were sent: the real retention, notices and flight
(engine/source/settlement.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulation.config import CHECK_NS
from simulation.told import Told

from holdfast.engine.events.source import ConfirmationFlags
from holdfast.engine.rules.flight import Flight, InFlight, Limits, Refused
from holdfast.engine.rules.notification import NoticeConfig, Notices
from holdfast.engine.rules.notification import Receiver as Confirmer
from holdfast.engine.rules.retention import Retention, RetentionConfig

if TYPE_CHECKING:
    from simulation.memory import Board, Line, Message, Ring
    from simulation.source import Source


class Settlement:
    """Of one ring, from its opening on."""

    def __init__(self, source: Source, ring: Ring, board: Board) -> None:
        self.source, self.world, self.ring, self.board = source, source.world, ring, board
        self.config, self.truth = source.machine.config, source.machine.truth
        config = self.config
        self.notices = Notices(NoticeConfig(config.mode is not None, config.mode, config.confirmation), config.names)
        conditions = RetentionConfig(source.machine.groups, config.unique, config.age_ns, config.lifetime_ns)
        self.retention = Retention(conditions, self.notices, ring.start)
        self.flight = Flight(Limits(config.flight, 0, config.retained))
        self.told = Told(self)
        self.messages: dict[int, Message] = {}
        """By first number."""
        self.released = 0
        """Position in the ring."""
        self._stable = ring.start
        """As it was looked at last."""
        self._unproven: list[Message] = []
        """When it was looked at last."""
        self._check_ns = 0

    def sent(self, message: Message) -> None:
        """A message was committed, and the next number is not raised yet."""
        if self.notices.records_any:
            self.retention.sent(message.first, message.last)

    def turn(self) -> None:
        """The context's thread: reads the board, settles, releases, tells; what has outlived its time goes by
        force."""
        self.refresh()
        if self.flight.waits:
            self._tell_room()
        if self.world.now >= self._check_ns:
            self._check_ns = self.world.now + CHECK_NS
            below = self.retention.outlived(self.world.now)
            if below > self.retention.stable:
                self.truth.outlived(self.between(self.retention.stable, below))
                self.retention.give_up(below)
                self._force(below)
        self.told.hear()

    def refresh(self) -> None:
        """Reads the board, settles, releases."""
        retention, source = self.retention, self.source
        retention.next = source.next
        for store, line in source.lines().items():
            if self.counts(line):
                retention.stored(store, line.from_, min(line.ack, line.to))
        self._confirmations()
        below = retention.advance(self.world.now)
        before, self._stable = self._stable, retention.stable
        if self._stable < before:
            self.truth.fail(f"stable went back from {before} to {self._stable}")
        if self._stable > before:
            self.world.note("stable", self._stable)
            self.truth.stable(self.ring.uuid, self.between(before, self._stable))
        if self._unproven:
            open_ = {message.first for message in self._given_up()}
            self.truth.stable(self.ring.uuid, [m for m in self._unproven if m.first not in open_])
        self._release(below)
        self._unproven = self._given_up()

    def counts(self, line: Line) -> bool:
        """An ack of an older incarnation may be of numbers that BEGIN made void."""
        return line.ack_stream == self.ring.incarnation

    def _confirmations(self) -> None:
        """What receivers have consumed."""
        if not self.config.unique and not self.notices.confirms:
            return
        present = []
        for uuid, line in self.board.receivers().items():
            if line.state == "active":
                present.append(uuid)
            if self.counts(line):
                confirmer = Confirmer(uuid, line.session, ConfirmationFlags(0))
                self.retention.confirmed(confirmer, line.from_, min(line.ack, line.to))
        self.retention.present(present)

    def _given_up(self) -> list[Message]:
        """Released by force, and not known to be stable."""
        return [message for low, high in self.retention.unproven for message in self.between(low, high)]

    def between(self, low: int, high: int) -> list[Message]:
        """Messages with a number in [low, high)."""
        return [message for first, message in self.messages.items() if first < high and message.last >= low]

    def _release(self, below: int, *, forced: bool = False) -> None:
        """Lets numbers go: their slots may be written again. Only whole messages."""
        retention, ring = self.retention, self.ring
        if below > retention.released:
            if not forced:
                going = self.between(retention.released, below)
                self.truth.releases(ring.uuid, going, below, retention.stable)
            retention.release(below, forced=forced)
            self._stable = max(self._stable, retention.stable)  # what was given up was not stable
            self.released = below - ring.start

    def _force(self, below: int) -> None:
        if below > self.retention.released:
            self.truth.forced |= below > self.retention.stable
            self.world.note("forced", below)
            self._release(below, forced=True)

    # Room ---------------------------------------------------------------------------------------------------

    @property
    def in_flight(self) -> int:
        """Fragments that are not settled."""
        return self.retention.in_flight + self.source.next - self.retention.next

    @property
    def retained(self) -> int:
        """Fragments that are not released."""
        return self.ring.tail - self.released

    def reclaim(self, fragments: int) -> None:
        """Room by release, else by force (docs/semantics.md D.2), where the options allow so little."""
        self.refresh()
        below, end = self.retention.released, self.source.next
        while below < end and end - below + fragments > self.config.retained:
            below = self.messages[below].last + 1
        self._force(below)

    def refuse(self, fragments: int) -> None:
        """A send raised WouldBlockError: the program tries again when it is woken."""
        self.flight.refuse(Refused(fragments, 0, fragments, 0))

    def _tell_room(self) -> None:
        """Also when nothing has moved: room may have come between an attempt and its refusal."""
        self.flight.wakeup(InFlight(self.in_flight, 0), self.retained, self.world.now)
