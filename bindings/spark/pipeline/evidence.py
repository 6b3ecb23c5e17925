"""What the logs of a source say about a range of numbers, each by itself and one against the others.

:func:`look` is a plain function of values that can be pickled: a Spark task runs it, or this process.
Payloads stay where they are: of each message there is the CRC-32C of its bytes, its first number, its time
and its flags. Nothing runs per message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from ...engine.log.column_reader import Columns, Gap, Records, Why

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from ...engine.log.catalog import StoreLog
    from ..splits import Range

    Rows = NDArray[np.int64]
    """(n, 5): a message per row, by its last number; the columns are those below."""

__all__ = ["Divergence", "Hole", "RangeLook", "StoreLook", "encoded_look", "look"]

LAST, FIRST, TIME, FLAGS, CRC = range(5)
FIELDS = {FIRST: "extent", TIME: "time", FLAGS: "flags", CRC: "payload"}
"""What two stores can disagree about, by column."""
WINDOW = 65536
"""Numbers that are compared at a time, and messages that are read at a time."""


class Hole(msgspec.Struct, frozen=True):
    """Numbers ``first`` .. ``next - 1``, which one store's log does not give."""

    first: int
    next: int
    why: Why


class StoreLook(msgspec.Struct):
    """What one store has of a range."""

    store: str
    messages: int = 0
    holes: list[Hole] = msgspec.field(default_factory=list)
    doubles: list[tuple[int, int]] = msgspec.field(default_factory=list)
    """First and last number of a message that has numbers of the one before it."""


class Divergence(msgspec.Struct, frozen=True):
    """Stores have something else under one number: ``messages`` times in ``first`` .. ``next - 1``."""

    stores: list[str]
    """Those that are outvoted by the others; all that have the number, where none is."""
    first: int
    next: int
    messages: int
    fields: list[str]
    """What differs: ``payload``, ``time``, ``flags``, ``extent`` (its first number)."""


class RangeLook(msgspec.Struct):
    """A range of one source."""

    topic: str
    key: str
    first: int
    stop: int
    stores: list[StoreLook]
    divergences: list[Divergence] = msgspec.field(default_factory=list)


def look(part: Range) -> RangeLook:
    """Reads a range from each of its logs. What retention takes meanwhile is no hole.

    Raises:
        SystemCallError: a log is there, and this process cannot read it.
    """
    sides = [_Side(part, log) for log in part.logs if max(part.first, log.oldest) < min(part.stop, log.next)]
    found = RangeLook(part.topic, part.key, part.first, part.stop, [side.look for side in sides])
    try:
        for begin in range(part.first, part.stop, WINDOW):
            end = min(begin + WINDOW, part.stop)
            found.divergences += disagreements({side.look.store: side.take(end) for side in sides})
    finally:
        for side in sides:
            side.close()
    return found


def encoded_look(part: Range) -> bytes:
    """The same for a task: a RangeLook as msgpack."""
    return msgspec.msgpack.encode(look(part))


class _Side:
    """One log, read in order."""

    def __init__(self, part: Range, log: StoreLog) -> None:
        self.look = StoreLook(log.store)
        self._next = max(part.first, log.oldest)
        """The number that has to come; the first message may begin before it."""
        stop = min(part.stop, log.next)
        self._records = Records(part.logs, self._next, stop, values=False, crc=True, stores=[log.store])
        self._begun = self._ended = False
        self._rows = np.empty((0, 5), np.int64)

    def take(self, end: int) -> Rows:
        """Its messages whose last number is below ``end``; none twice."""
        while not self._ended and (not len(self._rows) or self._rows[-1, LAST] < end):
            self._more()
        at = int(np.searchsorted(self._rows[:, LAST], end))
        taken, self._rows = self._rows[:at], self._rows[at:]
        return taken

    def _more(self) -> None:
        found = self._records.read(WINDOW)
        if found is None:
            self._ended = True
        elif isinstance(found, Gap):
            if found.why != "expired":
                self.look.holes.append(Hole(*found))
            self._next, self._begun = found.next, True
        else:
            rows, holes, doubles = judged(_rows(found), self._next, begun=self._begun)
            self.look.messages += len(rows)
            self.look.holes += holes
            self.look.doubles += doubles
            self._begun = True
            if len(rows):
                self._next = int(rows[-1, LAST]) + 1
                self._rows = np.concatenate([self._rows, rows])

    def close(self) -> None:
        self._records.close()


def _rows(columns: Columns) -> Rows:
    assert columns.crc is not None  # it was asked for
    rows = np.empty((columns.count, 5), np.int64)
    rows[:, LAST], rows[:, FIRST] = columns.sequence_number, columns.first_sequence_number
    rows[:, TIME], rows[:, FLAGS], rows[:, CRC] = columns.timestamp_ns, columns.flags, columns.crc
    return rows


def judged(rows: Rows, number: int, *, begun: bool) -> tuple[Rows, list[Hole], list[tuple[int, int]]]:
    """What comes next in a log whose next number is ``number``: its messages, each number once; holes that
    nobody told; doubles.

    ``begun``: something was read before; else the first message may begin before ``number``.
    """
    ends = np.maximum.accumulate(np.concatenate([[number - 1], rows[:, LAST]]))[:-1]
    """Highest number before each message."""
    over = rows[:, FIRST] <= ends
    if len(rows) and not begun and rows[0, LAST] >= number:
        over[0] = False
    holes = [Hole(int(ends[i]) + 1, int(rows[i, FIRST]), "missing") for i in np.flatnonzero(rows[:, FIRST] > ends + 1)]
    doubles = [(int(rows[i, FIRST]), int(rows[i, LAST])) for i in np.flatnonzero(over)]
    return rows[rows[:, LAST] > ends], holes, doubles


def disagreements(sides: Mapping[str, Rows]) -> list[Divergence]:
    """Where stores that have a number do not have the same under it. Each store's rows ascend strictly in
    LAST.

    The majority of those that have it is believed. Without one nobody can say who is wrong, and all of them
    are named.
    """
    arrays = list(sides.values())
    if all(np.array_equal(arrays[0], other) for other in arrays[1:]):
        return []
    everything = np.concatenate(arrays)
    who = np.repeat(np.arange(len(arrays)), [len(rows) for rows in arrays])
    numbers, column = np.unique(everything[:, LAST], return_inverse=True)
    _, kind = np.unique(everything, axis=0, return_inverse=True)
    there = np.full((len(arrays), len(numbers)), -1)
    there[who, column.reshape(-1)] = kind.reshape(-1)
    has = there >= 0
    votes = np.array([np.sum(there == mine, axis=0) for mine in there]) * has
    best = votes.max(axis=0)
    undecided = np.sum(votes == best, axis=0, where=has) > best
    wrong = has & (best < has.sum(axis=0)) & ((votes < best) | undecided)
    return _told(list(sides), wrong, everything, column.reshape(-1))


def _told(stores: list[str], wrong: NDArray[Any], everything: Rows, column: NDArray[Any]) -> list[Divergence]:
    """One for each set of stores. ``wrong``: (stores, numbers); ``column``: the number of each row."""
    found = []
    at = np.flatnonzero(wrong.any(axis=0))
    for pattern in np.unique(wrong[:, at], axis=1).T:
        here = at[(wrong[:, at] == pattern[:, None]).all(axis=0)]
        rows = everything[np.isin(column, here)]
        rows = rows[np.lexsort((rows[:, FIRST], rows[:, LAST]))]
        same = rows[1:, LAST] == rows[:-1, LAST]
        fields = [name for field, name in FIELDS.items() if np.any(same & (rows[1:, field] != rows[:-1, field]))]
        names = [name for name, is_wrong in zip(stores, pattern, strict=True) if is_wrong]
        first, following = int(rows[:, FIRST].min()), int(rows[:, LAST].max()) + 1
        found.append(Divergence(names, first, following, len(here), fields))
    return sorted(found, key=lambda each: each.first)
