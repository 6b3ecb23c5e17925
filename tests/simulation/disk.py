"""What a store keeps in files: its state and one log per source, with what of it is on disk (docs/design.md
20-23; csrc/log/log.h).

A kill leaves all that was written; a power cut leaves what was synced, and of the rest what it likes, of
which a log keeps the part before the first hole. A log of a memory store lies in shared memory and is gone
after a power cut.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from simulation.memory import LOST, Message

from holdfast.engine.rules import reconcile

if TYPE_CHECKING:
    from simulation.world import World

DISK, MEMORY = "disk", "memory"
SEGMENT = 4
"""Messages of a segment: this many go at once."""


class Log:
    """The log of one source at one store. Appended is what its store wrote, published what everybody
    reads."""

    def __init__(self, level: str, keeps: int = 0) -> None:
        self.level, self.keeps = level, keeps
        self.records: list[Message] = []
        """Valid ones, in order."""
        self.synced = self.published = 0
        """This many of them are on disk, and published."""
        self.begins: reconcile.Table = ()
        self.appended = 0
        """Number behind the last one that was appended."""
        self.next = 0
        """The same, of what is published."""
        self.poisoned = False
        self.floor = 0
        """Below, everything was let go."""
        self._at: dict[int, Message] = {}

    # The store ----------------------------------------------------------------------------------------------

    @property
    def incarnation(self) -> int:
        """Of the newest BEGIN, 0 without one."""
        return self.begins[-1][0] if self.begins else 0

    @property
    def empty(self) -> bool:
        """Nothing was ever appended."""
        return not self.records and not self.floor

    @property
    def oldest(self) -> int:
        """First number that is kept."""
        return self.records[0].first if self.records else self.next

    @property
    def dirty(self) -> bool:
        """Something is appended and not published."""
        return self.published < len(self.records) or self.next < self.appended

    def begin(self, table: reconcile.Table) -> None:
        """A new table, durable: what it makes void ends the log."""
        if table == self.begins:
            return
        self.sync()
        self.appended = self.next = min(self.next, reconcile.void_from(table, self.incarnation))
        self.begins = table
        for index, record in enumerate(self.records):
            if record.last >= reconcile.void_from(table, record.incarnation):
                self.appended = self.next = min(self.next, record.first)
                self._cut(index)
                break
        self.floor = min(self.floor, self.next)

    def _cut(self, kept: int) -> None:
        for record in self.records[kept:]:
            for number in range(record.first, record.last + 1):
                del self._at[number]
        del self.records[kept:]
        self.synced, self.published = min(self.synced, kept), min(self.published, kept)

    def start_at(self, number: int) -> None:
        """An empty log begins there."""
        assert self.empty
        self.appended = self.next = number

    def append(self, first: int, last: int, content: int) -> None:
        """A message, or a record that nobody has first..last, behind what is there."""
        assert first == self.appended or (self.empty and first > self.appended), "a hole, or it is there already"
        record = Message(first, last, content, self.incarnation)
        self.records.append(record)
        for number in range(first, last + 1):
            self._at[number] = record
        self.appended = last + 1

    def shorten(self) -> list[Message]:
        """The oldest segment goes, if enough is kept without it. What went."""
        if not self.keeps or len(self.records) < self.keeps + SEGMENT or self.published < SEGMENT:
            return []
        return self.let_go(SEGMENT)

    def let_go(self, count: int) -> list[Message]:
        """This many of the oldest go. What went."""
        gone = self.records[:count]
        del self.records[:count]
        for record in gone:
            for number in range(record.first, record.last + 1):
                del self._at[number]
            self.floor = record.last + 1
        self.synced, self.published = max(0, self.synced - len(gone)), max(0, self.published - len(gone))
        return gone

    def sync(self) -> None:
        """fdatasync, then publish."""
        if self.level == DISK:
            self.synced = len(self.records)
        self.published, self.next = len(self.records), self.appended

    def power_cut(self, world: World) -> None:
        """Of what was not synced, some pages are there; the log ends before the first one that is not."""
        kept = self.synced + world.below(len(self.records) - self.synced + 1)
        if kept < len(self.records):
            self.appended = self.records[kept].first
            self._cut(kept)
        self.synced = self.published = kept
        self.next = self.appended

    # Readers ------------------------------------------------------------------------------------------------

    def view(self) -> reconcile.LogView:
        """What it says of itself."""
        return reconcile.LogView(self.begins, self.next)

    def at(self, number: int) -> Message | None:
        """The published record of this number, as this log has it."""
        return self._at.get(number) if number < self.next else None

    def behind(self, number: int) -> int | None:
        """Where it goes on, if it will never have ``number``; None: it may still get it."""
        if number >= self.next:
            return None
        record = self._at.get(number)
        return record.last + 1 if record is not None else min((n for n in self._at if n > number), default=self.next)

    def content(self) -> dict[int, int]:
        """Number -> content, of what is published; what is lost is left out."""
        return {n: record.content for n, record in self._at.items() if n < self.next and record.content != LOST}


class Directory:
    """A store's directory. ``saved`` is the newest state slot, ``synced`` the newest one on disk."""

    def __init__(self, generation: int) -> None:
        self.generation = generation
        self.saved: bytes | None = None
        self.synced: bytes | None = None
        self.logs: dict[bytes, Log] = {}
        self.full = False
        """ENOSPC: appends fail."""
        self.failing = False
        """EIO: the next sync fails, and poisons its log for good."""

    def save(self, state: bytes, *, sync: bool = True) -> None:
        """Two slots in turn: the last synced one is there until the next one is on disk, too."""
        self.saved = state
        if sync:
            self.synced = state

    def sync(self, log: Log) -> bool:
        """fdatasync of a log. False: it failed, and the log is poisoned."""
        if self.failing and log.level == DISK:
            log.poisoned = True
            return False
        log.sync()
        return True

    def certain(self) -> set[int]:
        """Contents that a power cut leaves."""
        logs = [log for log in self.logs.values() if log.level == DISK]
        return {record.content for log in logs for record in log.records[: log.synced]}

    def contents(self) -> set[int]:
        """All that lies here."""
        return {record.content for log in self.logs.values() for record in log.records}

    def power_cut(self, world: World) -> None:
        """What a boot finds."""
        if world.chance(0.5):
            self.saved = self.synced
        for uuid, log in list(self.logs.items()):
            if log.level == MEMORY:
                del self.logs[uuid]
            else:
                log.power_cut(world)
        self.full = False

    def backup(self) -> Directory:
        """A copy, as of now, without what lies in memory."""
        there = copy.deepcopy(self)
        there.logs = {uuid: log for uuid, log in there.logs.items() if log.level == DISK}
        there.full = there.failing = False
        return there
