"""What the commands of an operator say, held against what is so: each says the truth, in time, and fails only
when something is wrong.

A statement about a process is judged where that process was at work, or absent, for the whole time of the
command: in between both are true.
"""

from __future__ import annotations

import json
import re
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from soak.programs import FRAGMENT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "Facts",
    "Said",
    "Who",
    "check_doctor",
    "check_failure",
    "check_killed",
    "check_stat",
    "is_wiped",
    "lags_behind",
    "lines_of_recv",
]

MACHINE = {"shm", "removeipc", "membarrier", "directory", "others", "orphans"}
"""Findings of doctor about the machine, or other domains on it: no business of the soak's."""
TRACEBACK = re.compile(r"Traceback \(most recent call last\)|Fatal Python error|Segmentation fault")


@dataclass(frozen=True)
class Said:
    """A command that has ended."""

    words: Sequence[str]
    status: int
    out: str
    err: str
    begin: float
    end: float


@dataclass
class Who:
    """What is known of one process over the time of a command."""

    calm: bool
    absent: bool
    pid: int
    """At its end; of the whole time, where it was calm."""
    stable: int = -1
    """Source: highest number that was reported stable before the command."""
    sent: int = 0
    """Source: behind the last number whose send has begun by the end of the command."""
    got: Mapping[str, int] = field(default_factory=dict)
    """Receiver: highest number by the end of the command, by topic."""


@dataclass
class Facts:
    """What is so over the time of a command."""

    stores: Mapping[str, Who]
    sources: Mapping[str, Who]
    """By topic."""
    receivers: Mapping[str, Who]

    @property
    def calm(self) -> bool:
        """Nobody was troubled."""
        return all(who.calm for group in (self.stores, self.sources, self.receivers) for who in group.values())

    @property
    def stores_calm(self) -> bool:
        """No store was."""
        return all(who.calm for who in self.stores.values())


def check_failure(said: Said, allowed: Sequence[int]) -> list[str]:
    """A traceback, or an exit status that the command may not have now."""
    name = "holdfast " + " ".join(said.words)
    found = []
    if TRACEBACK.search(said.err) or TRACEBACK.search(said.out):
        found.append(f"{name}: a traceback: {said.err[-600:]}")
    if said.status not in allowed:
        found.append(f"{name}: status {said.status}, not one of {list(allowed)}: {(said.err or said.out)[-600:]}")
    return found


def is_wiped(said: Said, topics: Sequence[str]) -> bool:
    """A comparison in which a store has no log of some of these topics, and nothing else differs: their
    sources were over when the store was wiped, and have not registered again."""
    return _differs_only(said, topics, ("it has no log of this source",))


def lags_behind(said: Said, topics: Sequence[str]) -> bool:
    """As :func:`is_wiped`, or the store has nothing in that log yet: such a source has registered again, and
    is over again before the store has caught up. It has to: who compares again sees that."""
    return not is_wiped(said, topics) and _differs_only(
        said, topics, ("it has no log of this source", "they share no number")
    )


def _differs_only(said: Said, topics: Sequence[str], reasons: tuple[str, ...]) -> bool:
    lines = said.out.splitlines()
    differ = [place for place, line in enumerate(lines) if "DIFFERENT" in line]
    why = [line for line in lines if line.startswith(" ")]
    ours = {topic for place in differ for topic in topics if lines[place].startswith(f"{topic}:")}
    return (
        said.status == 1
        and len(ours) == len(differ) > 0
        and all(any(reason in line for reason in reasons) for line in why)
    )


def check_stat(said: Said, facts: Facts) -> list[str]:
    """``stat --json``: who lives, and how far each is."""
    told = json.loads(said.out)
    found = []
    rows = {row["name"]: row for row in told["stores"]}
    for name, who in facts.stores.items():
        row = rows.get(name)
        if who.calm and (row is None or row["state"] != "running" or row["pid"] != who.pid):
            found.append(f"stat: store {name} runs as {who.pid}: {row}")
        if who.absent and row is not None and row["state"] == "running":
            found.append(f"stat: store {name} does not run: {row}")
    for topic, who in facts.sources.items():
        found += _source(topic, who, [row for row in told["sources"] if row["topic"] == topic], facts)
    for name, who in facts.receivers.items():
        mine = [row for row in told["receivers"] if row["name"] == name]
        for row in mine:
            if who.absent and row["alive"]:
                found.append(f"stat: receiver {name} does not run: {row}")
            if row["ack"] > who.got.get(row["topic"], -1) and (row["alive"] or who.absent):
                found.append(f"stat: receiver {name} had {who.got}: {row}")
        if who.calm and not any(row["alive"] and row["pid"] == who.pid for row in mine):
            found.append(f"stat: receiver {name} lives as {who.pid}: {mine}")
    return found


def _source(topic: str, who: Who, rows: list[dict[str, Any]], facts: Facts) -> list[str]:
    if len(rows) > 1:
        return [f"stat: one source of {topic}, and {len(rows)} rows"]
    if not rows:
        return [f"stat: the source of {topic} lives, and is not there"] if who.calm else []
    (row,) = rows
    found = []
    if who.calm and (row["state"] != "live" or row["pid"] != who.pid):
        found.append(f"stat: the source of {topic} lives as {who.pid}: {row}")
    if who.absent and row["alive"]:
        found.append(f"stat: the source of {topic} does not run: {row}")
    if row["next"] > who.sent or row["stable"] >= max(1, who.sent):
        found.append(f"stat: the source of {topic} has sent up to {who.sent}: {row}")
    if facts.stores_calm and (row["next"] <= who.stable or row["stable"] < who.stable):
        found.append(f"stat: of {topic} {who.stable} was stable: {row}")
    return found


def check_doctor(said: Said, facts: Facts) -> list[str]:
    """``doctor --json``: in a calm domain nothing needs attention, and the status says what the findings
    say."""
    told = json.loads(said.out)
    bad = [each for each in told if not each["ok"]]
    found = []
    if (said.status == 1) != bool(bad):
        found.append(f"doctor: status {said.status} with {len(bad)} findings that are not good")
    ours = [each for each in bad if each["check"] not in MACHINE]
    if facts.calm and ours:
        found.append(f"doctor: all is calm, and it says {ours}")
    for each in ours:
        for name, who in facts.stores.items():
            if who.calm and re.search(rf"\bstore {name}\b.*(killed|does not exist)", each["found"]):
                found.append(f"doctor: store {name} runs: {each}")
    return found


def check_killed(said: Said, store: str, pid: int) -> list[str]:
    """``doctor --json`` while this store is dead, which was killed as ``pid``: one finding names it, with how
    it is started again."""
    told = json.loads(said.out)
    named = [each for each in told if each["found"] == f"store {store} was killed (pid {pid})" and not each["ok"]]
    helps = all(f"holdfast store run --name {store} " in each["remedy"] for each in named)
    if len(named) == 1 and helps and said.status == 1:
        return []
    return [
        f"doctor: store {store} was killed as {pid}, status {said.status}: {[each for each in told if not each['ok']]}"
    ]


def lines_of_recv(out: str, topic: str) -> list[tuple[object, ...]]:
    """What ``recv --json`` printed, as records of a receiver."""
    lines: list[tuple[object, ...]] = []
    for text in out.splitlines():
        row = json.loads(text)
        data = row["data"].encode()
        last = row["sequence_number"]
        first = last - max(0, len(data) - 1) // FRAGMENT
        lines.append(("got", topic, first, last, len(data), zlib.crc32(data), int(row["retransmit"])))
    return lines
