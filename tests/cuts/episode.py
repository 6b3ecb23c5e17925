"""A system through several power cuts: what is drawn, how it is run, and the end in which all that was stable
must come.

Each life of the machine is a list of steps, drawn before it begins: disks are mounted, stores, the source and
the receiver start in any order, some stores stay away, some are killed and come back, and somewhere in the
middle the power goes. A step that waits for progress also ends when the source says again and again that it
waits: with too few stores it may do nothing.
"""

from __future__ import annotations

import mmap
import random
import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Self

from cuts.actors import Actor, Sending, receive, send, serve
from cuts.journal import Journal, Receiver
from cuts.machine import Machine
from support.oracle import Finding, Stuck

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from cuts.shapes import Shape

__all__ = ["Episode", "Life", "drawn_life"]

DEADLINE_S = 120.0
WAITS = 4
"""A source that has said so often that it waits is not waited for."""
LAST_COUNT = 20
AHEAD = 200
"""Numbers that the source may send beyond what a step waits for, so that it is at work when the next one
comes."""
RECEIVER, NEWCOMER = "receiver", "newcomer"
SESSIONS = {RECEIVER: 6, NEWCOMER: 7}

Step = tuple[str, str | int]
"""``mount S``, ``start S``, ``ready S``, ``kill S`` of a store; ``source``, ``receiver`` start one, killed
before if it runs; ``stable N``: until this many more are stable; ``got N``: until the receiver has this many
more; ``moves N``: this many are stable of those that the source may send from now on, and it must come.
``rests S``: until all that the source may send is stable, and the store S has its next segment, too. ``vanish
S``: its disk is gone; ``repair S``: and is back, with its store dead."""


@dataclass(frozen=True)
class Life:
    """Between two power cuts. ``another_boot``: the cut at its end changes the boot id. ``writes_back``: the
    kernel has written some files before it, as this seed has it; 0: none that nobody synced."""

    steps: Sequence[Step]
    another_boot: bool = True
    writes_back: int = 0


def drawn_life(draw: random.Random, stores: str, *, first: bool) -> Life:
    """In the first life every store is there: a source is new only where all of its stores say so."""
    everyone = first or draw.random() < 0.4
    there = [*stores] if everyone else draw.sample(stores, draw.randint(1, len(stores)))
    draw.shuffle(there)
    seen = [name for name in stores if name not in there and draw.random() < 0.5]
    steps: list[Step] = [("mount", name) for name in (*there, *seen)]
    starting: list[Step] = []
    for name in there:
        starting += [("start", name), ("ready", name)] if draw.random() < 0.5 else [("start", name)]
    for actor in ("source", RECEIVER):
        starting.insert(draw.randint(0, len(starting)), (actor, ""))
    steps += starting
    if draw.random() < 0.85 or first:
        steps.append(("stable", draw.randint(1, 200)))
        steps += _troubles(draw, stores, there, seen)
    return Life(steps, draw.random() < 0.8, draw.choice((0, draw.getrandbits(32))))


def _troubles(draw: random.Random, stores: str, there: list[str], seen: list[str]) -> list[Step]:
    steps: list[Step] = []
    away = [name for name in stores if name not in there]
    for _ in range(draw.randint(0, 3)):
        what = draw.random()
        if what < 0.45 and there:
            name = there.pop(draw.randrange(len(there)))
            away.append(name)
            seen.append(name)
            steps.append(("kill", name))
        elif what < 0.75 and away:
            name = away.pop(draw.randrange(len(away)))
            there.append(name)
            steps += [("start", name)] if name in seen else [("mount", name), ("start", name)]
        else:
            steps.append((draw.choice(("source", RECEIVER)), ""))
        if draw.random() < 0.8:
            steps.append((draw.choice(("stable", "stable", "got")), draw.randint(1, 150)))
    return steps


def vanishing_life(draw: random.Random, shape: Shape, *, repaired: bool) -> Life:
    """All stores are there, and the disk of one of them vanishes: under its store at work, or while that is
    dead, or before it starts. Where the others are enough the source goes on. ``repaired``: the disk is back
    before the power goes."""
    names = draw.sample(shape.stores, len(shape.stores))
    lost, *others = names
    when = draw.choice(("at work", "dead", "before it starts"))
    steps: list[Step] = [("mount", name) for name in names]
    for name in others if when == "before it starts" else names:
        steps += [("start", name), ("ready", name)] if draw.random() < 0.5 else [("start", name)]
    steps += [("source", ""), (RECEIVER, "")]
    steps.append(("stable", draw.randint(1, 200)))
    if when == "dead":
        steps.append(("kill", lost))
    steps.append(("vanish", lost))
    if when != "at work" and draw.random() < 0.7:
        steps.append(("start", lost))
    goes_on = "moves" if shape.suffice(others) and when != "before it starts" else "stable"
    steps.append((goes_on, draw.randint(1, 300)))
    if repaired:
        steps += [("repair", lost), ("start", lost), ("stable", draw.randint(1, 100))]
        if others:
            steps += [("kill", draw.choice(others)), ("stable", draw.randint(1, 100))]
    return Life(steps, draw.random() < 0.8, draw.choice((0, draw.getrandbits(32))))


@dataclass
class Count:
    """What an episode did."""

    cuts: int = 0
    stable: int = 0
    got: int = 0
    lives: int = 0
    vanished: int = 0
    """Disks."""
    waits: int = 0
    """Steps that ended because the source only waited."""


@dataclass
class Episode:
    """One system. ``where``: a directory that is not there yet; ``run``: HOLDFAST_DIR. ``failpoints``: armed
    in each store."""

    shape: Shape
    seed: int
    where: Path
    run: Path
    failpoints: str = ""
    count: Count = field(default_factory=Count)

    def __enter__(self) -> Self:
        self._draw = random.Random(self.seed)
        self._machine = Machine(self.where, self.shape.stores, self.run, keeps_run=self._draw.random() < 0.5)
        self._machine.__enter__()
        self._options = self.shape.options() | {
            "ume_registration_interval": self._draw.choice((100, 100, 1000)),
            "ume_store_activity_timeout": self._draw.choice((1000, 10_000)),
        }
        self.journal = Journal(self.seed)
        self.receivers = {name: Receiver(name) for name in SESSIONS}
        self._actors: dict[str, Actor] = {}
        self._life = 0
        """Of the source."""
        self._slow = 0
        self._limit = mmap.mmap(-1, 8)
        self.story: list[str] = [f"{self.shape}, {self._options}, seed {self.seed}"]
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._kill([*self._actors])
        except Finding as found:  # another one ends the episode already
            self.story.append(str(found))
        finally:
            self._machine.__exit__()

    # Lives --------------------------------------------------------------------------------------------------

    def live(self, life: Life) -> None:
        """Its steps, and the cut. Raises Finding."""
        for verb, what in life.steps:
            self._step(verb, what)
        if life.writes_back:
            self._machine.write_back(random.Random(life.writes_back))
            self.story.append("some files are written back")
        self._kill([*self._actors])
        self._machine.cut(another_boot=life.another_boot)
        self.count.cuts += 1
        self.story.append(f"cut{'' if life.another_boot else ' (the boot id stays)'}; stable to {self.journal.highest}")

    def drawn(self, cuts: int) -> None:
        """This many lives, as the seed has them, and the end."""
        for number in range(cuts):
            self.live(drawn_life(self._draw, self.shape.stores, first=number == 0))
        self.finish()

    def vanishing(self, lives: int) -> None:
        """This many lives in each of which a disk vanishes, behind one in which the source becomes known; and
        the end."""
        up: list[Step] = [step for name in self.shape.stores for step in (("mount", name), ("start", name))]
        self.live(Life([*up, ("source", ""), (RECEIVER, ""), ("stable", self._draw.randint(20, 200))]))
        for _ in range(lives):
            self.live(vanishing_life(self._draw, self.shape, repaired=self._draw.random() < 0.5))
        self.finish()

    def finish(self) -> None:
        """All stores come back, or those that the behaviours require: all that was ever stable is delivered.
        Raises Finding."""
        names = [*self.shape.stores]
        self._draw.shuffle(names)
        back = names[: self._draw.randint(1, len(names))]
        if not self.shape.required(set(back) & self.journal.took_part) or not self.journal.stable:
            back = names
        for name in back:
            self._step("mount", name)
            self._step("start", name)
        self._step(RECEIVER, "")
        self._start_source(LAST_COUNT)
        self._step(NEWCOMER, "")
        self._until("the source is at its end", self.journal.whole)
        self._until("the receiver has all that is stable", lambda: not self._missing(RECEIVER))
        self._until("a new receiver has all that is stable", lambda: not self._missing(NEWCOMER))
        self._kill([*self._actors])
        self.count.stable += len(self.journal.stable)
        self.count.got += sum(receiver.messages for receiver in self.receivers.values())
        self.count.lives += self._life

    def _missing(self, name: str) -> list[int]:
        receiver = self.receivers[name]
        return self.journal.missing(receiver) if receiver.following >= self.journal.end else [receiver.following]

    # Steps --------------------------------------------------------------------------------------------------

    def _step(self, verb: str, what: str | int) -> None:
        self.story.append(f"{verb} {what}")
        if verb == "mount":
            self._machine.mount(str(what))
        elif verb == "start":
            directory = str(self._machine.disk(str(what)) / "store")
            self._start(str(what), partial(serve, str(what), directory, "cuts"), self.failpoints)
        elif verb == "ready":
            store = self._actors[str(what)]
            self._until(f"store {what} is ready", lambda: any("ready to accept" in line for line in store.lines))
        elif verb == "kill":
            self._kill([str(what)])
        elif verb == "source":
            self._start_source(0)
        elif verb in SESSIONS:
            self._start(verb, partial(receive, "cuts", SESSIONS[verb]))
        elif verb == "rests":
            self._until("nothing is left to be synced", partial(self._rests, str(what)))
        elif verb == "vanish":
            self._machine.vanish(str(what))
            self.count.vanished += 1
        elif verb == "repair":
            self._kill([str(what)])
            self._machine.repair(str(what))
        else:
            self._go_on(verb, int(what))

    def _rests(self, store: str) -> bool:
        """A spare has its name when it is synced (csrc/log/roll.c)."""
        if not self.journal.highest + 1 == self.journal.sent >= int.from_bytes(self._limit[:8], "little"):
            return False
        return any((self._machine.disk(store) / "store" / "logs").glob("*/spare"))

    def _go_on(self, verb: str, more: int) -> None:
        """Lets the source send this many more, and some beyond."""
        before = int.from_bytes(self._limit[:8], "little")
        self._allow(max(before, (before if verb == "moves" else self.journal.sent) + more + AHEAD))
        if verb == "moves":  # what it might send before may have been stable before
            self._until(f"{before + more} is stable", lambda: self.journal.highest >= before + more)
        elif verb == "got":
            receiver = self.receivers[RECEIVER]
            goal = receiver.messages + more
            self._until(f"the receiver has {goal} messages", lambda: receiver.messages >= goal, self._slow + WAITS)
        else:
            goal = len(self.journal.stable) + more
            self._until(f"{goal} are stable", lambda: len(self.journal.stable) >= goal, self._slow + WAITS)

    def _allow(self, limit: int) -> None:
        self._limit[:8] = limit.to_bytes(8, "little")

    def _start_source(self, count: int) -> None:
        self._kill(["source"])
        self._life += 1
        self._allow(self.journal.sent + AHEAD)
        told = Sending("cuts", self.seed, self._life, self._options, self._limit, count)
        self._start("source", partial(send, told))

    def _start(self, name: str, work: Callable[[], object], failpoints: str = "") -> None:
        self._kill([name])
        self._actors[name] = Actor(name, work, failpoints)

    def _kill(self, names: Sequence[str]) -> None:
        """All at once; then whatever they have said is heard."""
        dying = [name for name in names if name in self._actors]
        for name in dying:
            self._actors[name].strike()
        for name in dying:
            self._actors[name].bury()
        self._hear()
        for name in dying:
            self._actors.pop(name).close()

    def _hear(self) -> None:
        """Receivers are judged first by what they said last: what the source has called stable since was not
        said to them yet."""
        heard = {
            name: self._actors[name].hear()
            for name in ("source", *SESSIONS, *self.shape.stores)
            if name in self._actors
        }
        for name in SESSIONS:
            for line in heard.get(name, []):
                self.journal.receiver_said(self.receivers[name], line)
        for line in heard.get("source", []):
            self._slow += line.startswith("slow")
            self.journal.source_said(self._life, line)

    def _until(self, what: str, true: Callable[[], object], waits: float = float("inf")) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while True:
            self._hear()
            if true():
                return
            self._look_after_the_living()
            if self._slow >= waits:
                self.count.waits += 1
                self.story.append("the source only waits")
                return
            if time.monotonic() > deadline:
                raise Stuck(f"waited {DEADLINE_S:.0f} s: {what}")
            time.sleep(0.002)

    def _look_after_the_living(self) -> None:
        """A store whose disk has vanished may end, and say why; no signal may end anybody."""
        for name, actor in list(self._actors.items()):
            if actor.ended():
                if name not in self._machine.vanished or (actor.status or 0) < 0:
                    raise Finding(f"{name} ended by itself, status {actor.status}")
                self.story.append(f"store {name} ends, status {actor.status}")
                self._kill([name])

    def tale(self) -> str:
        """What happened, and the last that each process said."""
        last = [f"{name}: {line}" for name, actor in self._actors.items() for line in actor.lines[-6:]]
        return "\n  ".join([*self.story, *last])
