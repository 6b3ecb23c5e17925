"""What `holdfast events -f` says over a whole soak, held against what happened.

* Whoever is at work for a while is shown as it is: the process that it is now. Who is away for a while is not
  shown as one that lives.
* Nothing is told of the coming and going of somebody who was at work all the time; and of one thing no look
  says two things. So there is no flood.
* A number was sent before, and within one calm time a source's stable number never falls.
"""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from soak.actors import bound, tail_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from soak.actors import Actor

__all__ = ["LIVING", "LOOK_S", "Change", "Follower", "check_followed", "read_changes"]

LOOK_S = 10.0
"""Longer than this, and than it takes to look, nothing stays unsaid."""
SILENT_S = 60.0
"""Sources send all the time: it does not take as long to look."""
END_S = 30.0
STATUS = 128 + signal.SIGTERM
LIVING = {"running", "live"}


@dataclass(frozen=True, slots=True)
class Change:
    """One line. ``at``: CLOCK_MONOTONIC."""

    at: float
    event: str
    state: str
    name: str
    topic: str
    about: tuple[object, ...]
    """What the line is about."""
    pid: int
    number: int


def read_changes(path: Path, clock_s: float) -> list[Change]:
    """All lines. ``clock_s``: CLOCK_REALTIME minus CLOCK_MONOTONIC. Raises ValueError and KeyError for a line
    that is none."""
    found = []
    for text in path.read_text().splitlines():
        row = json.loads(text)
        names = ("event", "name", "topic", "source", "registration_id", "session_id")
        about = tuple(row[name] for name in names)
        found.append(
            Change(row["time_ns"] / 1e9 - clock_s, row["event"], row["state"], row["name"], row["topic"], about, row["pid"],
                   row["number"])
        )  # fmt: skip
    return found


def check_followed(
    changes: Sequence[Change],
    actors: Mapping[tuple[str, str], Actor],
    sent: Mapping[str, int],
    begin: float,
    end: float,
) -> list[str]:
    """``actors``: by event and name, of a source its topic. ``sent``: behind the last number, by topic.
    ``begin``, ``end``: of the command, which may be slow on a busy machine: at its longest look as well."""
    looks = sorted({begin, *(each.at for each in changes), end})
    gaps = [after - before for before, after in itertools.pairwise(looks)]
    if len(looks) < 3 or max(gaps) > SILENT_S:
        return [f"events -f: {len(changes)} lines, and nothing for {max(gaps):.0f} s"]
    begin, look_s = looks[1], LOOK_S + max(gaps[1:])
    found = []
    for (event, name), actor in actors.items():
        mine = [each for each in changes if each.event == event and name in {each.name, each.topic}]
        found += _coming_and_going(f"events -f: {event} {name}", event, actor, mine, (begin, end), look_s)
    for topic, following in sent.items():
        beyond = [each for each in changes if each.topic == topic and each.number >= following]
        if beyond:
            found.append(f"events -f: {topic} has sent up to {following - 1}: {beyond[0]}")
        falls = _falls([each for each in changes if each.event == "stability" and each.topic == topic])
        spans = [*actors["source", topic].calm_spans(begin, end)]
        found += [
            f"events -f: what is stable has fallen: {fall}"
            for fall in falls
            if any(since + look_s < fall.at < until for since, until, _ in spans)
        ]
    twice = [key for key, count in Counter((each.at, each.about) for each in changes).items() if count > 1]
    if twice:
        found.append(f"events -f: said twice in one look: {twice[0]}")
    return found


def _falls(changes: Sequence[Change]) -> list[Change]:
    pairs = itertools.pairwise(changes)
    return [after for before, after in pairs if after.number < before.number]


def _coming_and_going(
    what: str, event: str, actor: Actor, changes: Sequence[Change], span: tuple[float, float], look_s: float
) -> list[str]:
    begin, end = span
    found = []
    for since, until, pid in actor.calm_spans(begin, end):
        if until - since < look_s:
            continue
        states = _states(changes, until)
        living = {each.pid for each in states if each.state in LIVING}
        if living != {pid}:
            found.append(f"{what} is process {pid} from {since:.1f} to {until:.1f}: {states}")
        false = [each for each in changes if since + look_s < each.at < until]
        if event != "receiver" and false:  # those come and go with sources, too
            found.append(f"{what} was at work from {since:.1f} to {until:.1f}: {false}")
    for since, until in actor.absences():
        if begin < since and min(until, end) - since > look_s:
            states = _states(changes, min(until, end))
            if any(each.state in LIVING for each in states):
                found.append(f"{what} was away from {since:.1f} to {until:.1f}: {states}")
    return found


def _states(changes: Sequence[Change], until: float) -> list[Change]:
    """The last that was said of each thing by then."""
    return [*{each.about: each for each in changes if each.at <= until}.values()]


class Follower:
    """The command, from its start to its end. ``where``: for what it says."""

    def __init__(self, where: Path) -> None:
        self.begin, self.over = float("inf"), float("-inf")
        self.changes: list[Change] = []
        self._out, self._err = where / "events.out", where / "events.err"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Of the command, or 0."""
        return self._process.pid if self._process is not None else 0

    def start(self, holdfast: Sequence[str]) -> None:
        """``holdfast``: how the command is called."""
        self.begin = time.monotonic()
        with self._out.open("wb") as out, self._err.open("wb") as err:
            command = bound([*holdfast, "events", "-f", "--json"])
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err)

    def end(self) -> str:
        """Says what is wrong with how it ended, or nothing; ``changes`` has what it said."""
        process, self._process = self._process, None
        assert process is not None
        self.over = time.monotonic()
        process.send_signal(signal.SIGTERM)
        try:
            status = process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            status = process.wait()
        self.changes = read_changes(self._out, time.time() - time.monotonic())
        said = tail_of(self._err)
        return f"events -f: status {status} after SIGTERM: {said}" if status != STATUS or said else ""

    def discard(self) -> None:
        """Whatever has happened."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
