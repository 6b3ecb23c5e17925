"""What the judge knows of programs and of messages."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

from simulator.native import lib

if TYPE_CHECKING:
    from simulator.world import Process

__all__ = ["Loss", "Message", "Parting", "ReceiverLife", "Skip", "SourceLife"]


class SourceLife:
    """One program's source, from its start to its end."""

    def __init__(self, number: int, process: Process) -> None:
        self.number, self.process = number, process
        self.declared: tuple[int, ...] = ()
        """The stores that it declares."""
        self.source: Any = None
        self.named = ""
        """How receivers call it, at its end."""
        self.marks: dict[int, bytes] = {}
        """Number of a fragment -> the message that it is of, as send() has returned it."""
        self.start: int | None = None
        self.said: set[int] = set()
        """Numbers that it has called stable."""
        self.unsettled: set[int] = set()
        """Of these, the ones whose messages are not yet known to be stable."""
        self.stored: set[tuple[int, int]] = set()
        """(store, number) that an event was about."""
        self.stores: dict[str, str] = {}
        """What it says of its stores, when it has last sent."""
        self.outdone: set[str] = set()
        """Stores that have refused it, because a greater incarnation has begun there."""
        self.wakeups = 0
        self.refused = False
        """A send has found no room, and no Wakeup has come since."""
        self.begun_ns = int(lib.sim_now_ns)
        self.known = False
        """A store that it has registered with knew it."""
        self.forced = False
        """It has given some up by force."""
        self.begun = self.over = False
        """``over``: it was told that it is over its flight size, and not yet that it is below it again."""
        self.left = self.deregistered = False
        self.careless = False
        """Its process has dropped its own lock: it may go on for a moment, and another one may have begun."""
        self.ended_ns = 0
        """When its process ended; 0: it lives."""


class ReceiverLife:
    """One program's receiver, from its start to its end."""

    def __init__(self, process: Process, session: int, *, ordered: bool) -> None:
        self.process, self.session = process, session
        self.ordered = ordered
        self.heard: defaultdict[str, set[int]] = defaultdict(set)
        """Source -> last numbers of its messages that have come, and the number before its start."""
        self.due: dict[str, int] = {}
        """Source -> the number that comes next."""
        self.started: set[str] = set()
        """Sources of which it was told where it starts: perhaps after the first message."""
        self.had: set[bytes] = set()
        """Messages that its program was done with."""
        self.new = True
        """No store knew it when it was registered: what was gone before its first message is no loss."""
        self.strange = True
        """None of these stores had ever registered its session."""
        self.gaps: set[int] = set()
        """Numbers that it went on behind; the program is told why, on another thread, perhaps later."""
        self.burst = -1
        """Everything up to it was told at once."""
        self.told: set[int] = set()
        """Of these, the ones that it was told of."""
        self.losses: list[Loss] = []
        """What it went on behind, or was told of."""
        self.knowing: set[int] = set()
        """Stores that knew its session when it was registered."""
        self.sent_by: dict[str, int] = {}
        """Source -> the life that sent what came last."""
        self.chosen: dict[str, int] = {}
        """Source -> where the program wants to start."""
        self.skip: Skip | None = None
        """What its start has skipped, until the program has acknowledged that."""
        self.skipped: Skip | None = None
        """The same, for good."""
        self.told_of_skip = False
        """The program was."""
        self.deregistered = self.left = self.holds = False
        self.ended_ns = 0

    def untold(self) -> list[int]:
        """Numbers that it went on behind without a word."""
        return sorted(number for number in self.gaps - self.told if number > self.burst)


class Loss:
    """Numbers of a source that nobody has: of the first ``marks`` messages. Later ones may get them."""

    __slots__ = ("first", "last", "marks", "source")

    def __init__(self, source: str, first: int, last: int, marks: int) -> None:
        self.source, self.first, self.last, self.marks = source, first, last, marks

    def has(self, message: Message) -> bool:
        """One of these is of it."""
        there = message.first <= self.last and message.last >= self.first and message.order <= self.marks
        return there and self.source.endswith(message.life.named)


class Parting(NamedTuple):
    """A receiver has closed cleanly."""

    knowing: frozenset[int]
    """Stores that knew its session then."""
    sure: bool
    """The others are too few to register with."""


class Skip:
    """What a start of a receiver has skipped: messages that begin below ``below``, of the first ``marks``."""

    __slots__ = ("acked", "below", "known", "marks", "old")

    def __init__(self, below: int, marks: int, *, known: bool, old: bool) -> None:
        self.below, self.marks, self.known, self.old = below, marks, known, old
        """``known``: the session was registered before, and nobody may have forgotten it. ``old``: or may
        have, and a store has not."""
        self.acked = False
        """By the first acknowledgement behind it, or by itself."""

    def counts(self) -> bool:
        """The next acknowledgement covers it, or has; of who may be forgotten only that can be said."""
        return self.known or (self.old and self.acked)

    def has(self, message: Message) -> bool:
        """It has skipped this one."""
        return message.first < self.below and message.order <= self.marks


class Message:
    """One message, from the moment before it is sent."""

    __slots__ = (
        "begun_ns", "first", "had", "kept", "last", "leftover", "life", "mark", "order", "safe", "sent_ns", "size", "stable",
        "strange", "unknown", "upto", "volatile",
    )  # fmt: skip

    def __init__(self, mark: bytes, life: SourceLife, order: int) -> None:
        self.mark, self.life, self.order = mark, life, order
        self.upto = self.sent_ns = self.size = 0
        """Bytes that were sent up to its end, and when."""
        self.begun_ns = int(lib.sim_now_ns)
        """Before it was sent."""
        self.safe: set[int] = set()
        """Stores that had it on disk at the last look, and have not lost their files since."""
        self.volatile: set[int] = set()
        """Memory stores that had it at the last look: each knows when it has lost its messages."""
        self.unknown: set[int] = set()
        """Stores that have lost their state since: they may have its bytes, and not know whose they are."""
        self.leftover: set[int] = set()
        """Memory stores whose power went since: bytes in their files may be of before, and they know it."""
        self.first = self.last = -1
        self.stable = self.kept = False
        self.had: set[int] = set()
        """Stores that had it before their files were destroyed."""
        self.strange: frozenset[int] = frozenset()
        """Sessions of receivers that none of its stores knew when it became stable, or that have come back to
        stores that never knew them."""

    def swapped(self, one: int, other: int) -> None:
        """What one store has, the other one has from now on."""
        for stores in (self.safe, self.volatile, self.unknown, self.leftover):
            both = stores & {one, other}
            if len(both) == 1:
                stores ^= {one, other}
