"""One soak, from the start of the first store to the verdict."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections import Counter, deque
from functools import partial
from typing import TYPE_CHECKING, Self

import msgspec
from support.leftovers import objects_of

from soak.actors import AWAY, Actor, bound, tail_of
from soak.commands import FINISHED_TOPICS, HOLDFAST, SHELL_TOPIC, Operator
from soak.following import Follower, check_followed
from soak.growth import Samples, of_directory, of_process, of_shared_memory
from soak.judge import Kept, Role, judge
from soak.lies import LIES, caught, false_changes, false_words, leak_is_found, silence_is_found
from soak.plan import RECEIVERS, SOURCES, STORES, TOPICS, Trouble, topics_of, troubles
from soak.programs import Settings
from soak.records import read
from soak.silence import Silence, check_silences
from soak.tails import Tail
from soak.words import Facts, Who, is_wiped

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from soak.following import Change

__all__ = ["Scene"]

LIMIT = 2 << 20
"""Bytes that a store keeps of a source: a minute's messages."""
RATE = 60.0
SETTLE_S = 60.0
END_S = 120.0
"""Nobody takes as long to be at work again, or to have the rest at the end."""
SESSIONS = {name: number for number, name in enumerate([*SOURCES, *RECEIVERS], 1)}
SAMPLE_S = 2.0
WIPES = {"wipe", "adopt"}
BLOWS = {"wipe": "kill", "adopt": "kill", "exclude": "kill", "leave": "close", "silence": "stop"}
"""What is done to the process, where that has another name."""
KILLS = {"kill", "exclude"}
"""The process is dead then, and the directory is there."""
ENDS_MAX = 3
GROWTH_MIN_S = 480.0
"""A shorter run ends before logs are full, every kind of receiver has read one, and `gc` has had its turn."""


class Scene:
    """``where``: a directory of its own; HOLDFAST_DIR lies in it. ``every``: seconds between two troubles."""

    def __init__(self, where: Path, domain: str, seed: int, seconds: float, every: float) -> None:
        self.where, self.domain, self.seed, self.seconds, self.every = where, domain, seed, seconds, every
        self.findings: list[str] = []
        self.counts: Counter[str] = Counter()
        self.samples = Samples()
        self.story: list[str] = []
        self.planted = self.caught = 0
        self._killed_is_told = False
        """A store was killed, and `doctor` was asked meanwhile."""
        self._began = time.monotonic()
        self._waits: dict[str, subprocess.Popen[str]] = {}
        self._back: list[tuple[float, Actor, str]] = []
        self._tails = {name: Tail(self._records(name)) for name in [*SOURCES, *RECEIVERS]}
        self._told = 0
        self.stores = {name: self._actor(name, "store", self._store) for name in STORES}
        self.sources = {name: self._actor(name, "source", self._source) for name in SOURCES}
        self.receivers = {name: self._actor(name, "receiver", self._receiver) for name in RECEIVERS}
        self.actors = {**self.stores, **self.sources, **self.receivers}
        pause = min(2.0, every / 8)
        self.operator = Operator(domain, where, seed, pause, self.facts, self._program)
        self.follower = Follower(where)

    # Commands -----------------------------------------------------------------------------------------------

    def _actor(self, name: str, role: str, command: Callable[[str, int], list[str]]) -> Actor:
        return Actor(name, role, partial(command, name), self.where / f"{name}.out", self._settled)

    def _records(self, name: str) -> Path:
        return self.where / f"{name}.records"

    def _store(self, name: str, _: int) -> list[str]:
        limit = f"repository-disk-file-size-limit={LIMIT}"
        return [*HOLDFAST, "store", "run", "-n", name, "--dir", str(self.where / name), "-o", limit, "--verbose"]

    def _program(self, kind: str, told: Settings) -> list[str]:
        return [sys.executable, "-m", "soak.programs", kind, msgspec.json.encode(told).decode()]

    def _source(self, name: str, life: int) -> list[str]:
        told = Settings(
            name, str(self._records(name)), self.domain, TOPICS[name], SESSIONS[name], life, self.seed, RATE, [*STORES]
        )
        return self._program("source", told)

    def _receiver(self, name: str, life: int) -> list[str]:
        topics = topics_of(name)
        where = topics[0] if len(topics) == 1 else r"^soak[.]s\d$"
        return self._program(name, Settings(name, str(self._records(name)), self.domain, where, SESSIONS[name], life))

    # The run ------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.operator.stop()
        self.follower.discard()
        for wait in self._waits.values():
            wait.kill()
            wait.wait()
        for actor in self.actors.values():
            actor.discard()

    def run(self) -> None:
        """All of it; what is wrong is in ``findings`` then."""
        for actor in self.stores.values():
            actor.start()
        self._until_settled([*self.stores.values()])
        for actor in [*self.receivers.values(), *self.sources.values()]:
            actor.start()
        self._until_settled([*self.actors.values()])
        self._tell("all are at work")
        self.follower.start(HOLDFAST)
        self.operator.start()
        self._soak()
        self.operator.stop()
        self._open_files()
        self._finish()

    def _soak(self) -> None:
        begin, sampled = time.monotonic(), 0.0
        plan = deque(troubles(self.seed, self.seconds, self.every))
        while (now := time.monotonic() - begin) < self.seconds:
            if (
                plan
                and plan[0].at <= now
                and self._may(plan[0])
                and self.operator.changes.still.acquire(blocking=False)
            ):
                try:
                    self._strike(plan.popleft())
                finally:
                    self.operator.changes.still.release()
            self._look()
            if now - sampled >= SAMPLE_S:
                sampled = now
                self._sample(now / self.seconds)
            time.sleep(0.05)

    def _may(self, trouble: Trouble) -> bool:
        """One store at a time: two of three are a quorum. Nobody is struck who has not come back."""
        busy = self.stores.values() if trouble.whom in self.stores else [self.actors[trouble.whom]]
        return not any(actor.troubled for actor in busy)

    def _strike(self, trouble: Trouble) -> None:
        actor, what = self.actors[trouble.whom], trouble.what
        pid = actor.pid
        self._tell(f"{what} {trouble.whom} for {trouble.for_s:.1f} s")
        self.counts[what] += 1
        self._found(actor.strike(BLOWS.get(what, what)))
        actor.windows[-1].what = what
        if what in WIPES:
            shutil.rmtree(self.where / trouble.whom)
        if trouble.whom in self.stores and what in KILLS and (trouble.for_s or not self._killed_is_told):
            self._killed_is_told = True
            self.operator.changes.killed(trouble.whom, pid)
        if what == "adopt":
            self.operator.changes.adopt(trouble.whom)
        if what == "exclude":
            self.operator.changes.exclude(trouble.whom)
            self._begin_anew()
        self._back.append((time.monotonic() + trouble.for_s, actor, what))

    def _begin_anew(self) -> None:
        """A source that starts now waits for nobody who is excluded, and ends the exclusion."""
        calm = [trouble for name in SOURCES if self._may(trouble := Trouble(0.0, "kill", name, 0.0))]
        if calm:
            self._strike(calm[self.counts["exclude"] % len(calm)])

    def _look(self) -> None:
        now = time.monotonic()
        for entry in [entry for entry in self._back if entry[0] <= now]:
            self._back.remove(entry)
            _, actor, _ = entry
            if actor.stands:
                actor.go_on()
            else:
                actor.start()
        for actor in self.actors.values():
            if actor.process is not None and actor.process.poll() is not None:
                self._found(f"{actor.name} ended by itself, status {actor.process.returncode}: {tail_of(actor.errors)}")
                actor.process = None
                if actor.life > sum(self.counts[what] for what in AWAY) + ENDS_MAX:
                    raise RuntimeError(f"{actor.name} ends by itself again and again")
                actor.windows.append(actor.windows[-1].__class__(now, "end"))
                actor.start()
            elif actor.troubled and actor.process is not None and not actor.stands:
                self._settle(actor, now)

    def _settle(self, actor: Actor, now: float) -> None:
        window = actor.windows[-1]
        if self._settled(actor):
            window.until = time.monotonic()
            self._tell(f"{actor.name} is back, {window.until - window.absent:.1f} s after it runs again")
        elif now - window.absent > SETTLE_S:
            window.until = now
            self._found(f"{actor.name} is not at work {SETTLE_S:.0f} s after it runs again: {tail_of(actor.errors)}")

    def _settled(self, actor: Actor) -> bool:
        """A store: when `store wait` says so; others, when they have registered, or at once after a stop."""
        if actor.role != "store":
            return actor.windows[-1].what == "stop" or self._tails[actor.name].registered_since(actor.windows[-1].begin)
        if actor.name not in self._waits:
            command = bound([*HOLDFAST, "store", "wait", actor.name, "--timeout", str(SETTLE_S)])
            self._waits[actor.name] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
        wait = self._waits[actor.name]
        if wait.poll() is None:
            return False
        said, _ = self._waits.pop(actor.name).communicate()
        self.counts["store wait"] += 1
        if wait.returncode == 0:
            return True
        window = actor.windows[-1]
        # It starts just now. At first nobody knows its name; of one that was wiped `gc --all` takes it.
        early = {3, 2} if window.what in {"start", *WIPES} else {3}
        if wait.returncode not in early or time.monotonic() - window.absent > SETTLE_S / 2:
            self._found(f"store wait {actor.name}: status {wait.returncode}: {said}")
        return False

    def _until_settled(self, actors: list[Actor]) -> None:
        while any(actor.troubled for actor in actors):
            self._look()
            time.sleep(0.05)

    # What is so ---------------------------------------------------------------------------------------------

    def facts(self, begin: float, end: float) -> Facts:
        """Of the time from ``begin`` to ``end``, which is now. Called by another thread."""
        return Facts(
            {name: self._who(actor, begin, end) for name, actor in self.stores.items()},
            {TOPICS[name]: self._who(actor, begin, end) for name, actor in self.sources.items()},
            {name: self._who(actor, begin, end) for name, actor in self.receivers.items()},
        )

    def _who(self, actor: Actor, begin: float, end: float) -> Who:
        pid = actor.pid
        who = Who(actor.was_calm(begin - 1, time.monotonic()), actor.was_absent(begin, end), pid)
        tail = self._tails.get(actor.name)
        if tail is not None:
            tail.look()
            who.stable, who.sent, who.got = tail.stable_before(begin), tail.sent, dict(tail.got)
        return who

    def _sample(self, at: float) -> None:
        for group in (self.stores, self.sources, self.receivers):
            seen = [values for actor in group.values() if actor.pid and (values := of_process(actor.pid))]
            if seen:
                role = next(iter(group.values())).role
                self.samples.add(f"largest {role}", at, {what: max(each[what] for each in seen) for what in seen[0]})
        self.samples.add("events -f", at, of_process(self.follower.pid))
        for name in STORES:
            self.samples.add(f"directory of store {name}", at, of_directory(self.where / name))
        self.samples.add("directory of the domain", at, of_directory(self.where / "run"))
        self.samples.add("shared memory", at, of_shared_memory(objects_of(self.domain)))
        said = sum(actor.errors.read_bytes().count(b"\n") for actor in self.stores.values())
        self.samples.add("logs of stores", at, {"lines": float(said - self._told)})
        self._told = said

    def _open_files(self) -> None:
        """What the receiver that has most of them has open, for the one who looks into it."""
        pid = max(
            (actor.pid for actor in self.receivers.values() if actor.pid),
            key=lambda pid: of_process(pid).get("descriptors", 0),
        )
        with contextlib.suppress(OSError):
            names = Counter(os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd"))
            self._tell(f"{next(a.name for a in self.receivers.values() if a.pid == pid)} has open: {dict(names)}")

    # The end ------------------------------------------------------------------------------------------------

    def _finish(self) -> None:
        """All come back, sources send no more, and everybody gets the rest."""
        self._back = [(0.0, actor, what) for _, actor, what in self._back]
        self._look()
        self._until_settled([*self.actors.values()])
        for actor in self.sources.values():
            if actor.process is not None:
                actor.process.send_signal(10)
        ends = self._wait_for_ends()
        self._wait_for_receivers(ends)
        self._shell()
        self._newcomer(ends)
        for words in (["store", "check"], ["store", "check", "--compare"]):
            said = self.operator.check_until_level(*words)
            if said.status and not is_wiped(said, FINISHED_TOPICS):
                self._found(f"at the end: {' '.join(words)}: status {said.status}: {said.out}{said.err}")
        self._found(self.follower.end())
        for group in (self.receivers, self.sources, self.stores):
            for actor in group.values():
                self._found(actor.end())
        said = self.operator.run("store", "repair", *(str(self.where / name) for name in STORES))
        if said.status:
            self._found(f"at the end: store repair: status {said.status}: {said.out}{said.err}")
        self._judge()

    def _wait_for_ends(self) -> dict[str, int]:
        deadline = time.monotonic() + END_S
        while time.monotonic() < deadline:
            self._look()
            tails = {TOPICS[name]: self._tails[name] for name in SOURCES}
            for tail in tails.values():
                tail.look()
            if all(tail.done for tail in tails.values()):
                return {topic: tail.done for topic, tail in tails.items()}
            time.sleep(0.1)
        late = {name: tail_of(self._records(name), 300) for name in SOURCES if not self._tails[name].done}
        self._found(f"sources are not done {END_S:.0f} s after the last message: {late}")
        return {TOPICS[name]: self._tails[name].done for name in SOURCES}

    def _wait_for_receivers(self, ends: dict[str, int]) -> None:
        deadline = time.monotonic() + END_S
        lacking: dict[str, dict[str, int]] = {}
        while time.monotonic() < deadline:
            self._look()
            lacking = {}
            for name in RECEIVERS:
                tail = self._tails[name]
                tail.look()
                behind = {
                    topic: tail.got.get(topic, -1)
                    for topic in topics_of(name)
                    if tail.got.get(topic, -1) < ends[topic] - 1
                }
                if behind:
                    lacking[name] = behind
            if not lacking:
                return
            time.sleep(0.1)
        said = {name: tail_of(self._records(name), 300) for name in lacking}
        self._found(f"receivers lack the end, {ends}: {lacking}; {said}")

    def _shell(self) -> None:
        """What the shell's programs sent is there, in the order in which they sent it, unless two of three
        stores have been wiped since: the source was over, so nobody gave it back to them."""
        sent_at, keep = self.operator.shell_sent
        wiped = {
            name
            for name, actor in self.stores.items()
            if any(window.what in WIPES and window.until > sent_at for window in actor.windows)
        }
        if len(keep - wiped) < 2:
            return
        said = self.operator.run("recv", "--exit-at-end", SHELL_TOPIC)
        sent = self.operator.shell
        got = [line for line in said.out.splitlines() if line in set(sent)]
        if said.status or (sent and got != sent):
            self._found(
                f"the shell sent {sent[:5]} to {sent[-3:]}, recv ({said.status}) has {got[:5]} to {got[-3:]}: {said.err}"
            )
        rows = msgspec.json.decode(self.operator.run("stat", "--json").out)["sources"]
        if sent and len([row for row in rows if row["topic"] == SHELL_TOPIC]) != 1:
            self._found(f"the shell's programs have left not one source: {rows}")

    def _newcomer(self, ends: dict[str, int]) -> None:
        """A receiver that comes now gets all that is kept."""
        name = "newcomer"
        self._tails[name] = Tail(self._records(name))
        told = Settings(name, str(self._records(name)), self.domain, r"^soak[.]s\d$", 99, 1)
        actor = Actor(
            name, "receiver", lambda _: self._program("one", told), self.where / "newcomer.out", self._settled
        )
        actor.start()
        deadline = time.monotonic() + END_S
        tail = self._tails[name]
        while any(tail.got.get(topic, -1) < end - 1 for topic, end in ends.items()):
            if time.monotonic() > deadline:
                self._found(f"a new receiver lacks the end, {ends}: {tail.got}")
                break
            tail.look()
            time.sleep(0.1)
        self._found(actor.end())
        for topic in TOPICS.values():
            self.operator.readers[f"{name}-{topic}"] = Role("one", [topic], session=False)

    def _judge(self) -> None:
        sources = {TOPICS[name]: read(self._records(name)) for name in SOURCES}
        receivers = {name: (Role(name, topics_of(name)), read(self._records(name))) for name in RECEIVERS}
        for name, role in self.operator.readers.items():
            file = name.partition("-soak")[0]
            lines = [line for line in read(self._records(file)) if line.topic in {"", *role.topics}]
            receivers[name] = (role, lines)
        verdict = judge(sources, receivers, Kept(LIMIT))
        silences = [each for k, name in enumerate(STORES) for each in Silence.of(k, self.stores[name], self.sources)]
        self.findings += check_silences(silences, sources)
        told = [
            *false_words(self.operator.changes.judged),
            *false_changes(self.follower.changes, self._followed),
            *silence_is_found(silences, sources),
        ]
        self.planted = len(LIES) + 1 + len(told)
        self.caught = caught(sources, receivers, Kept(LIMIT), "one") + leak_is_found(self.samples) + sum(told)
        self.counts += self.operator.counts
        self.counts["stable messages"] = verdict.stable
        self.counts["messages received"] = verdict.got
        self.counts["told losses"] = verdict.excused
        self.findings += [*verdict.findings, *self.operator.findings, *self._followed(self.follower.changes)]
        if self.seconds >= GROWTH_MIN_S:
            self.findings += self.samples.findings()

    def _followed(self, changes: Sequence[Change]) -> list[str]:
        actors = {("store", name): actor for name, actor in self.stores.items()}
        actors |= {("source", TOPICS[name]): actor for name, actor in self.sources.items()}
        actors |= {("receiver", name): actor for name, actor in self.receivers.items()}
        sent = {TOPICS[name]: self._tails[name].sent for name in SOURCES}
        return check_followed(changes, actors, sent, self.follower.begin, self.follower.over)

    # Telling ------------------------------------------------------------------------------------------------

    def _tell(self, what: str) -> None:
        line = f"{time.monotonic() - self._began:7.1f} {time.monotonic():.1f} {what}"
        self.story.append(line)
        print(line, flush=True)

    def _found(self, what: str) -> None:
        if what:
            self._tell(f"FOUND {what}")
            self.findings.append(what)
