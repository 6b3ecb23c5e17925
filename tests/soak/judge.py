"""The judge of the soak: what sources have sent and were promised, against what receivers have got and were
told. It reads records (records.py) and nothing of the product.

* A number that was reported stable keeps its message. No later life of the source begins at it or below.
* A message is one that was sent before, byte for byte. Within one life of a receiver none comes twice, and in
  order, where the receiver is ordered. What comes again in a later life says so (retransmit). Behind a clean
  close of a program that had consumed all nothing comes again; nor does what was acknowledged explicitly.
* In the end a session has every message that was stable, or was told its loss. A loss is excused only where
  the stores may have let the message go: they keep ``limit`` bytes per source, so as much was sent behind it.
  A receiver without a session begins at the oldest message kept, and lacks nothing from there to its last.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from soak.records import Line

__all__ = ["CLEAN", "Kept", "Role", "Source", "Verdict", "judge"]

CLEAN = {"one", "batch", "callback"}
"""Kinds that have consumed all they got when their context closes."""
FRAME_BYTES = 64
"""A fragment's share of a log beside its payload, at most: a header, and room up to a multiple of 32."""
KEPT_SHARE = 0.75
"""A log lets an eighth of its limit go at once; this leaves another eighth for indexes and seals."""


@dataclass(frozen=True)
class Kept:
    """What a store keeps of a source: ``limit`` bytes."""

    limit: int

    def may_be_gone(self, behind: int) -> bool:
        """Of a message with this many bytes of a log behind it."""
        return behind >= self.limit * KEPT_SHARE


@dataclass(frozen=True)
class Role:
    """A receiver. ``topics``: all that it receives. ``session``: it owes every message; else only those
    between its first and its last."""

    kind: str
    topics: Sequence[str]
    session: bool = True


@dataclass
class Verdict:
    """What the judge says."""

    findings: list[str] = field(default_factory=list)
    stable: int = 0
    """Messages."""
    got: int = 0
    excused: int = 0
    """Messages lost to a session because it was away for longer than stores keep them, and told so."""

    def found(self, what: str) -> None:
        """Something is wrong."""
        self.findings.append(what)


@dataclass(frozen=True)
class Sent:
    """One call of send; the source may have died in it."""

    at: float
    last: int
    length: int
    crc: int


class Source:
    """What one topic's source has said, over all lives."""

    def __init__(self, topic: str, lines: Sequence[Line], verdict: Verdict) -> None:
        self.topic = topic
        self.sent: dict[int, list[Sent]] = defaultdict(list)
        """By first number; several where a life died before anybody had the message."""
        self.end = 0
        self._stable: set[int] = set()
        highest = -1
        for line in lines:
            match line.kind, line.numbers:
                case "sends", (first, last, length, crc):
                    self.sent[first].append(Sent(line.at, last, length, crc))
                    self.end = max(self.end, last + 1)
                case "start", (number,):
                    if number <= highest:
                        verdict.found(f"{topic}: a life begins at {number}, and {highest} was stable before")
                case "stable", (first, last):
                    self._stable.update(range(first, last + 1))
                    highest = max(highest, last)
                case "done", (end,):
                    self._stable.update(range(end))
        self.stable = sorted(
            first for first, calls in self.sent.items() if self._stable.issuperset(range(first, calls[-1].last + 1))
        )
        """First numbers of messages that were reported stable."""
        calls = sorted((calls[-1].at, first) for first, calls in self.sent.items())
        self._times = [at for at, _ in calls]
        self._firsts = sorted(self.sent)
        sizes = [self._bytes(self.sent[first][-1]) for first in self._firsts]
        self._until = list(accumulate(sizes, initial=0))
        """Bytes of a log below each of ``_firsts``."""

    def _bytes(self, sent: Sent) -> int:
        return sent.length + FRAME_BYTES

    def behind(self, number: int, at: float) -> int:
        """Bytes of a log that were sent behind a number until then."""
        return max(0, self._until[bisect.bisect_right(self._times, at)] - self._until[self._place(number)])

    def _place(self, number: int) -> int:
        return bisect.bisect_right(self._firsts, number)

    def message_of(self, number: int) -> int:
        """First number of the message that has this one, or -1."""
        place = self._place(number)
        first = self._firsts[place - 1] if place else -1
        return first if first >= 0 and number <= self.sent[first][-1].last else -1

    def is_one(self, line: Line) -> bool:
        """A message that somebody got is one that was sent before."""
        first, last, length, crc = line.numbers[:4]
        return any(
            (sent.last, sent.length, sent.crc) == (last, length, crc) and sent.at <= line.at
            for sent in self.sent.get(first, ())
        )


class Session:
    """What one receiver got of one topic, over all lives."""

    def __init__(self, name: str, role: Role, source: Source, kept: Kept, verdict: Verdict) -> None:
        self._name, self._role, self._source, self._kept, self._verdict = name, role, source, kept, verdict
        self.got: set[int] = set()
        self._this_life: set[int] = set()
        self._high = -1
        """Last number that this life got."""
        self._floor = -1
        """Nothing up to here may come again in another life."""
        self._acked = -1
        self._bursts: list[tuple[float, int]] = []
        self._lost: list[tuple[float, int]] = []

    def _found(self, what: str) -> None:
        self._verdict.found(f"{self._name}: {self._source.topic}: {what}")

    def begin(self, *, clean: bool) -> None:
        """Another life; ``clean``: the one before had closed its context."""
        self._floor = max(self._floor, self._acked)
        if clean and self._role.kind in CLEAN and self.got:
            self._floor = max(self._floor, *self.got)
        self._this_life, self._high = set(), -1

    def knows(self, line: Line) -> bool:
        """A row of a batch that a kill left open is what was sent, unless it was evicted meanwhile."""
        return self._source.is_one(line)

    def take(self, line: Line) -> None:
        """One message."""
        first, last, *_, again = line.numbers
        if not self._source.is_one(line):
            self._found(f"{first} to {last} came as nobody has sent it: {line.numbers}")
        if first in self._this_life:
            self._found(f"{first} came twice in one life")
        if self._role.kind != "arrival" and first <= self._high:
            self._found(f"{first} came behind {self._high}")
        if first <= self._floor:
            self._found(f"{first} came again, and {self._floor} was acknowledged before")
        if first in self.got and not again:
            self._found(f"{first} came again without the flag of a retransmission")
        self._this_life.add(first)
        self.got.add(first)
        self._high = max(self._high, last)
        self._verdict.got += 1

    def told(self, line: Line) -> None:
        """``acked``, ``lost`` or ``burst``."""
        (number,) = line.numbers
        if line.kind == "acked":
            self._acked = max(self._acked, number)
        elif line.kind == "lost":
            self._lost.append((line.at, number))
        else:
            self._bursts.append((line.at, number))

    def finish(self, end: int) -> None:
        """All that is stable below ``end`` is here, or was told lost; each loss is excused or a finding."""
        needed = set(self._source.stable)
        lost = {number: at for at, number in self._lost}
        for at, number in self._bursts:
            lost |= dict.fromkeys(self._run(number, lost), at)
        for number, at in lost.items():
            first = self._source.message_of(number)
            if first in needed and not self._kept.may_be_gone(self._source.behind(number, at)):
                behind = self._source.behind(number, at)
                self._found(f"{number} was told lost with {behind} bytes behind it, and stores keep {self._kept.limit}")
            self._verdict.excused += first in needed and first not in self.got
        low = 0 if self._role.session else min(self.got, default=end)
        missing = sorted(first for first in needed - self.got - lost.keys() if low <= first < end)
        if missing:
            self._found(f"{len(missing)} stable messages did not come and nobody told of it: {missing[:10]}")

    def _run(self, last: int, lost: Mapping[int, float]) -> list[int]:
        """The numbers of a burst: those up to ``last`` that did not come, without a break."""
        run = []
        while last >= 0 and last not in lost and self._source.message_of(last) not in self.got:
            run.append(last)
            last -= 1
        return run

    def end_of_throwaway(self) -> int:
        """Behind the last message that it got."""
        return max(self.got, default=-1) + 1


def judge(
    sources: Mapping[str, Sequence[Line]], receivers: Mapping[str, tuple[Role, Sequence[Line]]], kept: Kept
) -> Verdict:
    """Everything. ``sources``: records by topic; ``receivers``: by name."""
    verdict = Verdict()
    known = {topic: Source(topic, lines, verdict) for topic, lines in sources.items()}
    verdict.stable = sum(len(source.stable) for source in known.values())
    for name, (role, lines) in receivers.items():
        sessions = {topic: Session(name, role, known[topic], kept, verdict) for topic in role.topics}
        _walk(lines, sessions, verdict, name)
        for session in sessions.values():
            session.finish(2**63 if role.session else session.end_of_throwaway())
    return verdict


def _walk(lines: Sequence[Line], sessions: Mapping[str, Session], verdict: Verdict, name: str) -> None:
    """Line by line. Rows of a batch count unless it was evicted; those that a kill left open count, too."""
    rows: list[Line] = []
    closed = False
    for line in lines:
        if line.topic and line.topic not in sessions and line.kind != "trouble":
            verdict.found(f"{name}: {line.kind} of topic {line.topic!r}, which it does not receive")
            continue
        match line.kind:
            case "life":
                _take([row for row in rows if sessions[row.topic].knows(row)], sessions)
                rows.clear()
                for session in sessions.values():
                    session.begin(clean=closed)
                closed = False
            case "got":
                sessions[line.topic].take(line)
            case "row":
                rows.append(line)
            case "whole":
                _take(rows, sessions)
            case "evicted":
                rows.clear()
            case "closed":
                closed = True
            case "acked" | "lost" | "burst":
                sessions[line.topic].told(line)
    _take([row for row in rows if sessions[row.topic].knows(row)], sessions)


def _take(rows: list[Line], sessions: Mapping[str, Session]) -> None:
    for row in rows:
        sessions[row.topic].take(row)
    rows.clear()
