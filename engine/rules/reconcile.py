"""What the stores of one source must agree on: which BEGINs hold, how far the log goes, how a hole is filled
(docs/design.md 13-15).

No I/O. A table is a log's list of BEGINs, (incarnation, its first number), oldest first. BEGIN(k, s) makes
the records from ``s`` on of all older incarnations void.

Of several tables the one whose newest BEGIN is greatest is right as a whole, and never their union: an entry
that it lacks is a BEGIN that a dying source got to too few stores. Nothing was sent under it, and taken in
later it would void what has become stable since. A BEGIN that a quorum has made durable is in every newer
table: each BEGIN carries the table that it was built on, its source took that from a quorum of stores, and
two quorums meet. Where one group will do, they need not; nor does a quorum say that no BEGIN with a greater
number reached anybody else. So stores read each other's files, and sources the board
(tests/unit/rules/test_few_begins.py) and the host's register, which has each number before its first BEGIN is
sent. A store that nobody can read may come back with such a BEGIN when a reboot has taken the board, and the
register was lost.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from .start_and_gap import Gap

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = [
    "BEGINS_MAX", "DONE", "FOR_EVER", "WAIT", "BeginOf", "CatchUpRule", "Hole", "LogView", "Lost", "StartAt", "Table",
    "after_begin", "forgotten_from", "lost_acknowledged", "newest", "newest_table", "published_end", "tells_void",
    "void_from",
]  # fmt: skip

BEGINS_MAX = 64
"""Entries that a table remembers: HF_INCARNATIONS of the log's head."""
FOR_EVER = 2**64 - 1
PATIENCE_NS = 1_000_000_000
"""How long a number is awaited from a store that is behind or cannot be read now, before a hole is left for
it."""

BeginOf = tuple[int, int]
"""(incarnation, its first number)."""
Table = tuple[BeginOf, ...]


def newest_table(tables: Iterable[Sequence[BeginOf]]) -> Table:
    """The one that is right; empty without any.

    Where a BEGIN that never reached a quorum was seen by nobody who opened the next incarnation, and the
    register did not have it, both have one number: what more stores know is right.
    """
    every = [tuple(table) for table in tables if table]
    known = Counter(table[-1] for table in every)
    return max(every, key=lambda table: (table[-1][0], known[table[-1]], table[-1][1]), default=())


def void_from(table: Sequence[BeginOf], incarnation: int) -> int:
    """Records of ``incarnation`` are valid below this number."""
    return min((start for number, start in table if number > incarnation), default=FOR_EVER)


def published_end(
    table: Sequence[BeginOf], logs: Iterable[tuple[int, int]], ring: tuple[int, int] | None = None, acked: int = 0
) -> int:
    """Number behind the last message that is known to be published and not void. ``logs``, ``ring``: (number
    behind their last one, their incarnation).

    A ring that a dead source has left, or a log that missed a BEGIN, goes on above that one's first number.
    A receiver that started behind these numbers would never have what is sent under them again. The ring of
    the newest incarnation says it all. Where there is none, the logs that can be asked may be behind, and
    what was ``acked`` was there.
    """
    newest = max((incarnation for incarnation, _ in table), default=0)
    ends = [*logs, *([ring] if ring is not None else [])]
    if ring is None or ring[1] < newest:
        ends.append((acked, newest))
    return max(min(end, void_from(table, incarnation)) for end, incarnation in ends)


def forgotten_from(table: Sequence[BeginOf], own: BeginOf) -> int:
    """Records of a log whose newest BEGIN is ``own`` are known to be valid below this number.

    A full table has forgotten what came before its first entry. A BEGIN that the log has missed, too, may
    have made void what it has under its own newest one (csrc/log/bounds.c has the same rule).
    """
    incarnation, start = own
    forgot = len(table) == BEGINS_MAX and incarnation + 1 < table[0][0]
    return start if forgot else FOR_EVER


def tells_void(table: Table, log: LogView) -> bool:
    """A log that takes over ``table`` knows which of its records are void: it has missed no BEGIN that
    everybody has forgotten, or has no message that such a one may have made void."""
    return not log.begins or forgotten_from(table, log.begins[-1]) >= log.next_sqn


def after_begin(own: Sequence[BeginOf], told: Sequence[BeginOf], incarnation: int, start: int) -> Table:
    """A store's table after BEGIN(incarnation, start) that was built on the table ``told``.

    ``told`` replaces what the store believed; older than its first entry is only what it does not remember.
    Without ``told`` (no store that granted knew anything) the store's own entries stay. Raises ValueError
    when ``own`` is newer than ``incarnation``.
    """
    if own and own[-1][0] > incarnation:
        raise ValueError(f"incarnation {incarnation} is over: {own[-1][0]} has begun")
    first = told[0][0] if told else incarnation
    kept = [begin for begin in own if begin[0] < first] + [begin for begin in told if begin[0] < incarnation]
    return (*kept, (incarnation, start))[-BEGINS_MAX:]


class LogView(NamedTuple):
    """What a log says of itself."""

    begins: Table
    next_sqn: int
    """Number behind the last published message that is valid by its own table."""

    @property
    def incarnation(self) -> int:
        """Of its newest BEGIN; 0 without one."""
        return self.begins[-1][0] if self.begins else 0

    @property
    def end(self) -> int:
        """Where numbering goes on by this log: never below its newest BEGIN, also while what lies before is
        still a hole here."""
        return max(self.next_sqn, self.begins[-1][1]) if self.begins else self.next_sqn


def newest(own: LogView, peers: Iterable[LogView]) -> LogView:
    """What a store reports of a source: the farthest end of the logs that know the newest BEGIN, its own one
    among them."""
    views = [own, *peers]
    table = newest_table(view.begins for view in views)
    return LogView(table, max(view.end for view in views if view.begins[-1:] == table[-1:]))


def lost_acknowledged(log: LogView, ack: int, ack_stream: int) -> bool:
    """The log has not what its store's board line says, ``ack`` under incarnation ``ack_stream``: a restored
    backup, for example.

    A line goes over to an incarnation only when its BEGIN is durable (docs/design.md 15).
    """
    return log.incarnation > 0 and (log.incarnation, log.next_sqn) < (ack_stream, ack)


@dataclass(frozen=True, slots=True)
class Lost:
    """Every store on record was read, and none has ``first``..``last``: to be recorded before anything newer
    is appended."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Hole:
    """This log lacks ``first``..``last``, and a store that could not be read may have them: recorded as a
    hole, to be filled."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class StartAt:
    """An empty log begins with this number: what lies below is not a hole, it was never kept here."""

    number: int


WAIT: Literal["wait"] = "wait"
"""A store may still give it."""
DONE: Literal["done"] = "done"
"""The stores have no more."""


class CatchUpRule:
    """Fills the hole [held, goal) of one log from its peers' logs, oldest number first. ``empty``: the log
    has no message yet.

    ``goal`` is the oldest number in the ring that the store reads; None: there is no ring, and it wants
    whatever the peers have.
    """

    def __init__(self, *, empty: bool, patience_ns: int = PATIENCE_NS) -> None:
        self._empty = empty
        self._gap = Gap(patience_ns)

    def wants(self, held: int, goal: int | None) -> bool:
        """There is a hole: ``held``, the number behind the last one in the log, is to be read from a peer."""
        return goal is None or held < goal

    def filled(self) -> None:
        """A peer gave messages."""
        self._empty = False

    def missing(
        self, held: int, goal: int | None, behind: Sequence[int], undecided: int, now_ns: int
    ) -> Lost | Hole | StartAt | Literal["wait", "done"]:
        """No peer gave ``held``: what now? Ignorance is never a loss: only what all peers are known to lack
        is one.

        Args:
            behind: where the logs of those go on that will never have it.
            undecided: peers that are behind, or cannot be read now.
            now_ns: CLOCK_MONOTONIC.
        """
        newer = [number for number in behind if goal is None or number < goal]
        newer += [] if goal is None else [goal]
        if not any(number > held for number in newer):
            return DONE
        number = self._gap.verdict(held, newer, undecided, now_ns)
        if number is None:
            return WAIT
        if self._empty:
            return StartAt(number)
        return Hole(held, number - 1) if undecided else Lost(held, number - 1)
