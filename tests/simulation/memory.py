"""Shared memory: rings and boards, word by word as far as readers and writers race (csrc/stream/stream.h,
csrc/board/board.h).

One fragment takes one slot of a ring: position = number - start. A slot has a commit word, 0 or its position
+ 1, and a payload: the message that the fragment is of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from simulation.world import Process, World

FOR_EVER = 2**62
NO_PIN = FOR_EVER
LINES_MAX = 128
STORE, RECEIVER = "store", "receiver"


class Message(NamedTuple):
    """A message, or with ``content`` LOST a record that nobody has first..last. ``incarnation``: that it was
    written under."""

    first: int
    last: int
    content: int
    incarnation: int


LOST = -1
TORN = -2


class Sri(NamedTuple):
    """What a ring's header says of its source's registration."""

    version: int
    stores: tuple[str, ...]
    uuids: tuple[bytes, ...]
    versions: tuple[int, ...]
    """0: the source is not registered with it."""


class Ring:
    """The stream of one incarnation. Its source writes; ``owner`` is that process, whose lock proves it
    alive."""

    def __init__(self, world: World, uuid: bytes, incarnation: int, start: int, slots: int, owner: Process) -> None:
        self.world = world
        self.uuid, self.incarnation, self.start, self.slots, self.owner = uuid, incarnation, start, slots, owner
        self.words = [0] * slots
        self.data: list[Message | None] = [None] * slots
        self.tail = 0
        """At most one send behind the committed end."""
        self.trail = 0
        """What lies below may be overwritten."""
        self.closed = False
        self.sri: Sri | None = None
        self.heartbeat = world.now

    # The source ---------------------------------------------------------------------------------------------

    def write(self, position: int, message: Message) -> None:
        """Payloads of a message at the tail, its later commit words, and the zero behind it (docs/design.md
        4, 16)."""
        end = position + message.last - message.first + 1
        self.words[end % self.slots] = 0
        for at in range(end - 1, position - 1, -1):
            self.data[at % self.slots] = message
            if at > position:
                self.words[at % self.slots] = at + 1

    def commit(self, position: int) -> None:
        """The first fragment's word, last of all."""
        self.words[position % self.slots] = position + 1

    # Readers ------------------------------------------------------------------------------------------------

    def end(self) -> int:
        """Position behind the last committed message: walked from the tail."""
        at = self.tail
        while at < self.tail + self.slots and self.word_fits(at):
            message = self.data[at % self.slots]
            assert message is not None
            at += message.last - message.first + 1
        return at

    def end_number(self) -> int:
        """Number behind the last committed message."""
        return self.start + self.end()

    def slot(self, position: int, fragment: int) -> int:
        """Where a fragment of a message at ``position`` lies: the ring is mapped twice, so that none of them
        wraps (docs/design.md 5)."""
        return (position + fragment) % self.slots

    def copy(self, position: int, message: Message) -> Message:
        """The payload of a message that was found there, as it is when it is copied: torn, if its fragments
        do not fit."""
        first = self.data[position % self.slots]
        for fragment in range(1, message.last - message.first + 1):
            if self.data[self.slot(position, fragment)] is not first:
                return Message(message.first, message.last, TORN, 0)
        return first or Message(message.first, message.last, TORN, 0)

    def word_fits(self, position: int) -> bool:
        """The word there was written for this position, not for an earlier or a later lap (docs/design.md
        4)."""
        return self.words[position % self.slots] == position + 1

    def look(self, position: int) -> Message | None:
        """The message whose commit word is there."""
        if not self.word_fits(position):
            return None
        return self.data[position % self.slots]

    def passed(self, position: int) -> bool:
        """What was read at ``position`` may have been overwritten meanwhile (docs/design.md 7)."""
        return self.trail > position

    def oldest_number(self) -> int:
        """Number of the oldest message that is certainly there: the trail may lie inside one."""
        message = self.data[self.trail % self.slots] if self.word_fits(self.trail) else None
        at = self.start + self.trail
        return at if message is None or message.first == at else message.last + 1


class Line:
    """A participant's line on a board. It outlives its owner."""

    __slots__ = ("ack", "ack_stream", "catching_up", "claim", "confirms", "from_", "heartbeat", "level", "owner", "pin",
                 "pin_stream", "role", "session", "state", "to", "uuid")  # fmt: skip

    def __init__(self) -> None:
        self.owner: Process | None = None
        self.claim = 0
        """Changes with each claim: with the owner's process it is the owner word."""
        self.describe("", b"", "", keep=False)

    def describe(self, role: str, uuid: bytes, level: str, *, keep: bool) -> None:
        """What a claim writes; a participant that comes back keeps what its line said."""
        self.role, self.uuid, self.level = role, uuid, level
        self.session = 0
        self.state = "active"
        self.heartbeat = 0
        self.pin = self.pin_stream = NO_PIN
        self.catching_up = self.confirms = False
        if not keep:
            self.from_ = self.to = self.ack = self.ack_stream = 0

    def cover(self, since: int) -> None:
        """It counts for numbers from ``since`` on."""
        self.from_, self.to = since, FOR_EVER

    def rebase(self, incarnation: int, start: int) -> None:
        """Acks from now on are of this incarnation; what the old one acknowledged beyond its start is void
        (docs/design.md 13)."""
        if self.ack_stream < incarnation:
            self.ack = min(self.ack, start)
            if self.to > start:
                self.from_ = min(self.from_, start)
            self.ack_stream = incarnation

    def acknowledge(self, ack: int) -> None:
        """Never backwards."""
        self.ack = max(self.ack, ack)


class Board:
    """The lines of one source identity: of every incarnation (docs/design.md 9)."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.lines: list[Line] = []
        self._claims = 0

    def claim(self, process: Process, role: str, uuid: bytes, level: str) -> Line | None:
        """A line for a participant: its own, else a new one, else one of somebody dead or gone. None: it
        holds one, alive."""
        own = [line for line in self.lines if line.role == role and line.uuid == uuid]
        if any(self.alive(line) for line in own):
            return None
        if own:
            line = own[0]
        elif len(self.lines) < LINES_MAX:
            line = Line()
            self.lines.append(line)
        else:
            line = min((each for each in self.lines if not self.alive(each)), key=lambda each: each.heartbeat)
        line.describe(role, uuid, level, keep=bool(own) and line.level == level)
        self._claims += 1
        line.owner, line.claim = process, self._claims
        return line

    def alive(self, line: Line) -> bool:
        """Its owner is not proved dead."""
        return line.owner is not None and not self.world.dead(line.owner)

    @staticmethod
    def release(line: Line) -> None:
        """A clean close: its ack stays readable."""
        line.owner, line.state = None, "closed"

    def stores(self) -> dict[bytes, Line]:
        """Lines of stores, by their uuid."""
        return {line.uuid: line for line in self.lines if line.role == STORE}

    def receivers(self) -> dict[bytes, Line]:
        """Lines of receivers, by their uuid."""
        return {line.uuid: line for line in self.lines if line.role == RECEIVER}
