"""The commands of an operator that change something, beside the soak. What each says is judged at once
(deeds.py), where nobody was troubled meanwhile; what it must not do, the other judges find."""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from support.leftovers import prefix_of

from soak.deeds import (
    check_adopted,
    check_all_domains,
    check_excluded,
    check_forgotten,
    check_marked,
    check_refused,
    check_spoiled,
    check_swept,
)  # fmt: skip
from soak.judge import Source, Verdict
from soak.plan import SOURCES, STORES, TOPICS
from soak.records import read
from soak.words import check_failure, check_killed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from soak.words import Facts, Said

__all__ = ["LATE", "SPOILED_TOPIC", "Changes"]

SPOILED_TOPIC = "soak.spoiled"
SPOILED_SESSION = 0x500
LINES = 5
LATE = 124
"""A command that was not awaited: others have as many domains as they like."""
RING_S = 15.0
"""A ring that nobody needs has gone by then, or is not waited for."""


@dataclass
class Changes:
    """``run``: one command. ``facts``: what is so from a moment until now. ``domain``: its directory, which
    lies in ``where``, the soak's."""

    run: Callable[..., Said]
    facts: Callable[[float, float], Facts]
    where: Path
    domain: Path
    seed: int
    findings: list[str]
    still: threading.Lock = field(default_factory=threading.Lock)
    """Whoever holds it troubles nobody, and nobody else troubles anybody."""
    judged: dict[str, tuple[Callable[[Said], list[str]], Said]] = field(default_factory=dict)
    """The last word of each kind that was found true, and its check: lies.py has it said wrong."""

    def __post_init__(self) -> None:
        self._draw = random.Random(self.seed)

    def _judge(self, kind: str, check: Callable[[Said], list[str]], said: Said) -> bool:
        found = check(said)
        self.findings += found
        if not found:
            self.judged[kind] = check, said
        return not found

    def _calm(self) -> bool:
        now = time.monotonic()
        return self.facts(now, now).stores_calm

    def _regid(self, topic: str, store: str) -> int:
        """Of the topic's source, or 0."""
        return int(self._sources().get(topic, {"registration_ids": {}})["registration_ids"].get(store, 0))

    def _sources(self) -> dict[str, Any]:
        """What `stat` says of each topic's source."""
        rows: list[dict[str, Any]] = msgspec.json.decode(self.run("stat", "--json").out)["sources"]
        return {row["topic"]: row for row in rows}

    # Of the scene: a store has just been killed -------------------------------------------------------------

    def killed(self, store: str, pid: int) -> None:
        """`doctor` says that this store was killed, as long as it is away."""
        said = self.run("doctor", "--json")
        failed = check_failure(said, [1, LATE])
        self.findings += failed
        if not failed and said.status != LATE:
            self._judge("doctor, a store is killed", lambda said: check_killed(said, store, pid), said)

    def exclude(self, name: str) -> None:
        """Nobody waits for it when the next source starts."""
        said = self.run("store", "exclude", name)
        facts = self.facts(said.begin, said.end)
        self._judge(
            "exclude", lambda said: check_excluded(said, name, [each for each in STORES if each != name], facts), said
        )

    def adopt(self, name: str) -> None:
        """It was wiped, too."""
        self._judge("adopt", partial(check_adopted, name=name), self.run("store", "adopt-empty", name))

    # Turns of the operator ----------------------------------------------------------------------------------

    def sweep(self) -> None:
        """`gc --all` gives up what dead sources have left in their rings; a quorum runs, and has it."""
        with self.still:
            said = self.run("gc", "--all", "--domain", self.domain.name)
            uuids = {topic: row["uuid"] for topic, row in self._sources().items()}
            facts = self.facts(said.begin, time.monotonic())
            places = str(self.where), f"/dev/shm/{prefix_of(self.domain)}"
            self._judge("gc", lambda said: check_swept(said, facts, uuids, places), said)

    def all_domains(self) -> None:
        """Only looking: the others are somebody else's."""
        for words in (["stat", "--json"], ["doctor", "--json"], ["gc", "--dry-run"]):
            said = self.run(*words, "--all-domains")
            facts = self.facts(said.begin, said.end)
            failed = check_failure(said, [*range(6), LATE])
            self.findings += failed
            if not failed and said.status != LATE:
                check = partial(check_all_domains, domain=str(self.domain), facts=facts)
                self._judge(f"{words[0]} --all-domains", check, said)

    def refused(self) -> None:
        """What runs is neither excluded, nor adopted, nor forgotten."""
        with self.still:
            if not self._calm():
                return
            store, name = self._draw.choice(STORES), self._draw.choice(SOURCES)
            said = self.run("store", "exclude", store)
            self._judge("exclude, refused", lambda said: check_refused(said, 2, f"store {store} runs"), said)
            said = self.run("store", "adopt-empty", store)
            self._judge("adopt-empty, refused", lambda said: check_refused(said, 3, "is in use"), said)
            number = self._regid(TOPICS[name], store)
            source = self.facts(said.begin, time.monotonic()).sources[TOPICS[name]]
            if source.calm and number:
                said = self.run("store", "deregister", store, "--source", str(number))
                self._judge(
                    "deregister, refused",
                    lambda said: check_refused(said, 1, f"is held by process {source.pid} "),
                    said,
                )

    def mark(self) -> None:
        """A message of a source that lives, at the same store each time: the others still deliver it."""
        place = self._draw.randrange(len(SOURCES))
        topic, store = TOPICS[SOURCES[place]], STORES[place]
        with self.still:
            now = time.monotonic()
            facts = self.facts(now, now)
            number = facts.sources[topic].stable - self._draw.randint(0, 200)
            if not (facts.stores_calm and facts.sources[topic].calm) or number < 0:
                return
            sent = Source(topic, read(self.where / f"{SOURCES[place]}.records"), Verdict())
            first = sent.message_of(number)
            last, source = sent.sent[first][-1].last, self._regid(topic, store)
            if source:
                said = self.run("store", "mark", store, "--source", str(source), "--numbers", str(number))
                self._judge("mark", partial(check_marked, store=store, source=source, first=first, last=last), said)

    # A source that is over: a message marked at all stores, then forgotten ----------------------------------

    def spoil(self, number: int) -> None:
        """All its life. Only what happens in a calm domain is judged; the rest is for the next time."""
        lines = [f"spoiled {number} {k}" for k in range(LINES)]
        calm, given = self._calm(), "\n".join(lines).encode()
        said = self.run("send", SPOILED_TOPIC, *(f"--store={name}" for name in STORES), given=given)
        calm = calm and self.facts(said.begin, said.end).stores_calm
        self.findings += check_failure(said, [0] if calm else [0, 3, 4])
        row = self._until_stored() if calm else None
        if said.status or row is None:
            return
        with self.still:
            if not self.facts(said.begin, time.monotonic()).stores_calm:
                return
            spoiled = self._draw.randrange(LINES)
            number = row["next"] - LINES + spoiled
            for store, source in row["registration_ids"].items():
                said = self.run("store", "mark", store, "--source", str(source), "--numbers", str(number))
                self._judge("mark", partial(check_marked, store=store, source=source, first=number, last=number), said)
            if row["next"] == LINES:
                said = self.run("recv", "--exit-at-end", "--session", str(SPOILED_SESSION), SPOILED_TOPIC)
                self._judge("recv", lambda said: check_spoiled(said, lines, lines[spoiled]), said)
            self._forget(row, self._draw.choice((True, False)))

    def _until_stored(self) -> dict[str, Any] | None:
        deadline = time.monotonic() + RING_S
        while time.monotonic() < deadline:
            row: dict[str, Any] | None = self._sources().get(SPOILED_TOPIC)
            if row is not None and row["state"] == "stored":
                return row
            time.sleep(0.2)
        return None

    def _forget(self, row: dict[str, Any], finished: bool) -> None:
        """By `--finished`, when a session has acknowledged all of it; or each receiver, then the source, at
        each store."""
        forced = ["--force"] if row["next"] != LINES else []
        words = ["store", "deregister", "--finished", "--older-than", "0s", "--topic", SPOILED_TOPIC, *forced]
        if finished or forced:
            texts = (
                f"deregistered topic '{SPOILED_TOPIC}', RegID ",
                f": numbers 0..{row['next'] - 1}, ",
                "deregistered 1 sources",
            )
            self._judge("deregister --finished", partial(self._forgotten, texts=texts), self.run(*words))
        else:
            for store, receiver in self._receivers(row):
                said = self.run(*self._one(row, store), "--receiver", str(receiver))
                end = f"store {store}: receiver {receiver} of source {row['registration_ids'][store]} deregistered; " \
                    f"it had acknowledged up to number {row['next'] - 1}"  # fmt: skip
                self._judge("deregister a receiver", partial(self._forgotten, texts=(end,)), said)
            for store in STORES:
                end = f"deregistered with its messages; it had stored up to number {row['next'] - 1}"
                self._judge("deregister", partial(self._forgotten, texts=(end,)), self.run(*self._one(row, store)))
        if (left := self._sources().get(SPOILED_TOPIC)) is not None:
            self.findings.append(f"the source of {SPOILED_TOPIC} was deregistered at all stores, and is there: {left}")

    @staticmethod
    def _forgotten(said: Said, texts: Sequence[str]) -> list[str]:
        return check_forgotten(said, *texts)

    def _one(self, row: dict[str, Any], store: str) -> list[str]:
        return ["store", "deregister", store, "--source", str(row["registration_ids"][store])]

    def _receivers(self, row: dict[str, Any]) -> Iterator[tuple[str, int]]:
        for store in STORES:
            said = self.run("store", "dump", "--terse", "--json", "--topic", SPOILED_TOPIC, str(self.where / store))
            self.findings += check_failure(said, [0])
            for text in said.out.splitlines():
                for receiver in msgspec.json.decode(text).get("receivers", []):
                    yield store, receiver["registration_id"]
