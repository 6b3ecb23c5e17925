"""Whoever stands beside the soak: the commands of an operator, one after the other, and
receivers that are thrown away. What each says is judged at once (words.py)."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from soak.actors import bound
from soak.changing import LATE, SPOILED_TOPIC, Changes
from soak.judge import Role
from soak.plan import STORES, TOPICS
from soak.programs import Settings
from soak.records import Log
from soak.tails import Tail
from soak.words import Said, check_doctor, check_failure, check_stat, is_wiped, lags_behind, lines_of_recv

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from soak.words import Facts

__all__ = ["FINISHED_TOPICS", "HOLDFAST", "SHELL_TOPIC", "Operator"]

PATIENCE_S = 60.0
"""No command takes as long."""
LOOK_S = 0.5
SHELL_TOPIC = "soak.shell"
FINISHED_TOPICS = (SHELL_TOPIC, SPOILED_TOPIC)
"""Their sources are over most of the time."""
HOLDFAST = (sys.executable, "-m", "holdfast")


@dataclass
class Operator:
    """``facts``: what is so from a moment until now. ``domain``, ``where``: of the soak; stores have their
    directories in ``where``."""

    domain: str
    where: Path
    seed: int
    pause_s: float
    facts: Callable[[float, float], Facts]
    program: Callable[[str, Settings], list[str]]
    findings: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    readers: dict[str, Role] = field(default_factory=dict)
    """Throw-away receivers of all kinds, by the name of their records."""
    shell: list[str] = field(default_factory=list)
    """Lines that ``holdfast send`` has called stable."""
    shell_sent: tuple[float, set[str]] = field(default_factory=lambda: (0.0, set[str]()))
    """When it had sent the last ones, and at which stores."""

    def __post_init__(self) -> None:
        self._draw = random.Random(self.seed)
        self.changes = Changes(
            self.run, self.facts, self.where, self.where / "run" / self.domain, self.seed, self.findings
        )
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._work, args=(turn,)) for turn in (self._command, self._throw)]

    def start(self) -> None:
        """Begins, in threads of its own."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Ends when what is under way has ended."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _work(self, turn: Callable[[int], None]) -> None:
        number = 0
        while not self._stop.wait(self.pause_s):
            try:
                turn(number)
            except Exception as why:  # what cannot be read is a finding, and no end of the thread
                self.findings.append(f"operator: {type(why).__name__}: {why}")
            number += 1

    # Commands -----------------------------------------------------------------------------------------------

    def run(self, *words: str, given: bytes = b"") -> Said:
        """One command, to its end."""
        begin = time.monotonic()
        full = [*HOLDFAST, *words]
        self.counts[" ".join(word for word in words[:2] if word.replace("-", "").isalpha())] += 1
        try:
            done = subprocess.run(bound(full), input=given, capture_output=True, timeout=PATIENCE_S, check=False)
        except subprocess.TimeoutExpired as late:
            out, err = (text.decode(errors="replace") if text else "" for text in (late.stdout, late.stderr))
            return Said(words, LATE, out, f"not within {PATIENCE_S:.0f} s: {err}", begin, time.monotonic())
        out, err = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
        return Said(words, done.returncode, out, err, begin, time.monotonic())

    def _command(self, number: int) -> None:
        turns = (
            self._stat, self._doctor, self._recv, self.changes.sweep, self._events, self._send, self.changes.refused, self._stat,
            self._check, lambda: self.changes.spoil(number), self._gc, self._read, self.changes.mark, self._compare, self._dump,
            self.changes.all_domains, self._gc, self._finished, self._orphans,
        )  # fmt: skip
        turns[number % len(turns)]()

    def _facts(self, said: Said) -> Facts:
        return self.facts(said.begin, said.end)

    def _stat(self) -> None:
        said = self.run("stat", "--json")
        self.findings += check_failure(said, [0]) or check_stat(said, self._facts(said))

    def _doctor(self) -> None:
        said = self.run("doctor", "--json")
        self.findings += check_failure(said, [0, 1]) or check_doctor(said, self._facts(said))

    def _gc(self) -> None:
        for words in (["gc", "--dry-run"], ["gc"]):
            self.findings += check_failure(self.run(*words), [0])

    def _events(self) -> None:
        self.findings += check_failure(self.run("events", "--json"), [0])

    def _orphans(self) -> None:
        """It only lists; other domains of this user are there as well."""
        self.findings += check_failure(self.run("gc", "--orphans"), [0])

    def _check(self) -> None:
        self._check_stores("store", "check")

    def _compare(self) -> None:
        self._check_stores("store", "check", "--compare")

    def _check_stores(self, *words: str) -> None:
        """A store that is away, or was wiped, has less than the others, and may have no directory."""
        said = self.check_until_level(*words)
        calm = self._facts(said).stores_calm and not is_wiped(said, FINISHED_TOPICS)
        self.findings += check_failure(said, [0] if calm else [0, 1, 2])

    def check_until_level(self, *words: str) -> Said:
        """What a check of all stores says; again and again, while one of them is behind in what is over."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            said = self.run(*words, *(str(self.where / store) for store in STORES))
            if not lags_behind(said, FINISHED_TOPICS) or time.monotonic() > deadline:
                return said
            time.sleep(LOOK_S)

    def _dump(self) -> None:
        store = self._draw.choice(STORES)
        said = self.run("store", "dump", "--terse", str(self.where / store))
        self.findings += check_failure(said, [0] if self._facts(said).stores[store].calm else [0, 2])

    def _finished(self) -> None:
        said = self.run("store", "deregister", "--finished", "--older-than", "7d", "--dry-run")
        allowed = [0] if self._facts(said).stores_calm else [0, 1, 3]
        self.findings += check_failure(said, allowed)
        for topic in TOPICS.values():
            if f"would deregister topic {topic!r}" in said.out:
                self.findings.append(f"store deregister --finished: it would forget {topic}: {said.out}")

    def _send(self) -> None:
        """Its lines are stable when it says so."""
        lines = [f"shell {len(self.shell) + k}" for k in range(3)]
        said = self.run("send", SHELL_TOPIC, *(f"--store={name}" for name in STORES), given="\n".join(lines).encode())
        facts = self._facts(said)
        self.findings += check_failure(said, [0] if facts.stores_calm else [0, 3, 4])
        if said.status == 0:
            self.shell += lines
            self.shell_sent = said.end, {name for name, who in facts.stores.items() if who.calm}

    # Receivers that are thrown away -------------------------------------------------------------------------

    def _recv(self) -> None:
        """All that there is of a topic, from the oldest kept to what was stable before, at least."""
        topic = self._draw.choice([*TOPICS.values()])
        said = self.run("recv", "--exit-at-end", "--json", topic)
        facts = self._facts(said)
        failed = check_failure(said, [0] if facts.stores_calm else [0, 4])
        self.findings += failed
        if not failed and said.status == 0:
            self._new_log("recv", topic).say_all(lines := lines_of_recv(said.out, topic))
            self._reached("recv --exit-at-end", max((int(str(line[3])) for line in lines), default=-1), topic, facts)

    def _reached(self, what: str, last: int, topic: str, facts: Facts) -> None:
        if last < facts.sources[topic].stable:
            self.findings.append(
                f"{what} {topic}: it ended at {last}, and {facts.sources[topic].stable} was stable before"
            )

    def _read(self) -> None:
        """The same by ``hf.read``."""
        topic = self._draw.choice([*TOPICS.values()])
        name, begin = self._name("read", topic), time.monotonic()
        said = self._run_program("reading", Settings(name, str(self._path(name)), self.domain, topic, 0, 1))
        facts = self.facts(begin, time.monotonic())
        failed = check_failure(said, [0] if facts.stores_calm else [0, 1])
        self.findings += failed
        if not failed and said.status == 0:
            tail = Tail(self._path(name))
            tail.look()
            self._reached("hf.read", tail.got.get(topic, -1), topic, facts)

    def _throw(self, number: int) -> None:
        """A receiver without a session that leaves after some messages, or is killed."""
        topic = self._draw.choice([*TOPICS.values()])
        name = self._name("throwaway", topic)
        told = Settings(name, str(self._path(name)), self.domain, topic, 0, 1, count=self._draw.randint(1, 400))
        command = bound(self.program(self._draw.choice(("one", "batch", "callback")), told))
        self.counts["throw-away receivers"] += 1
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
        killed = number % 2 == 0
        try:
            _, err = process.communicate(timeout=0.3 + 2 * self._draw.random() if killed else PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            _, err = process.communicate()
            if not killed:
                self.findings.append(f"{name}: it has not had {told.count} messages within {PATIENCE_S:.0f} s")
        if process.returncode not in (0, -signal.SIGKILL):
            self.findings.append(f"{name}: status {process.returncode}: {err.decode(errors='replace')[-600:]}")

    def _run_program(self, kind: str, told: Settings) -> Said:
        begin = time.monotonic()
        self.counts["hf.read"] += 1
        done = subprocess.run(bound(self.program(kind, told)), capture_output=True, timeout=PATIENCE_S, check=False)
        words: Sequence[str] = (kind, told.topic)
        return Said(words, done.returncode, "", done.stderr.decode(errors="replace"), begin, time.monotonic())

    def _name(self, kind: str, topic: str) -> str:
        name = f"{kind}-{len(self.readers)}"
        self.readers[name] = Role("one", [topic], session=False)
        return name

    def _path(self, name: str) -> Path:
        return self.where / f"{name}.records"

    def _new_log(self, kind: str, topic: str) -> Log:
        return Log(self._path(self._name(kind, topic)))
