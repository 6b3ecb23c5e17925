"""The matrix: every failpoint of the C core × killed, stopped, failed with EIO or ENOSPC × one, two and three
stores.

A cell is one process that passes one point and suffers there, while the others work. After a kill it is
started again; after a stop it goes on; an error is the program's or the store's to deal with. In each case
the judge beside them (group_scene.py) sees that nothing that was called stable is lost, that numbers have no
gap and no repetition, and that work goes on.

Errors are put where the core asks a system call, the points of HF_FAIL_STATUS. A sync that failed takes the
log out of use for good (docs/design.md 20), so these cells have a scene of their own each, and what is asked
is less: everything stable is readable, and who ended did so with an error of ours.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from support.failpoints import failpoints, repair_points, status_points
from support.forked_workers import preload
from support.group_scene import WINDOW, GroupScene
from support.leftovers import remove_objects
from support.oracle import Finding
from support.worker import STOP
from support.workers import until

from holdfast.engine.native.core import ffi, lib
from torture_lab.lab import LOST, Lab, Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.workers import Worker

AT_ONCE = ("bell.", "board.", "log.fsync", "open.", "process.", "segment.", "wait.")
"""Passed once or twice in a life: the first time it is."""
WITH_NEW_LIFE = ("begin.", "roll.", "log.fallocate")
"""A store passes them when a source begins anew."""
WHEN_FULL = "retire."
BY_CHANCE = "retire.renamed"
"""Passed only where no spare segment was made ahead: test_kill.py has it."""
AT_CLOSE = "board.closed"
AT_CREATION = "segment."
"""Objects that several processes may create: the first one passes these, in a domain that is new."""
IN_REPAIR = "fill."
"""A store passes them when it finds damage that another store can mend."""
OF_MEMORY = ("drain.appended",)
IN_VIEWS = "reader.pinned"
OF_NAMES = "log.fsync"
"""A store that has never run does not start where the names that lead to it may not be on disk, nor later in
this boot (docs/design.md 20): so it is one that has run, and the names are those of a log."""
PROGRESS = 20
FAILED = 70
"""Exit status of a child that an error has ended (forked_workers.py)."""
ERRNO_S = 1.0
"""How long a scene with a failed call is watched when it does not go on."""
OPTIONS = {"repository-disk-file-size-limit": 800_000}
SEGMENT = 1 << 18


def run(lab: Lab) -> Outcome:
    """All cells with three seeds, or with ten; in a tiny run, a few of them."""
    preload()
    outcome = Outcome()
    for turn in range(lab.figure(0, 3, 10)):
        for stores in (1, 2, 3):
            Matrix(lab, outcome, lab.seed + turn, stores).run()
    if not lab.size:
        Matrix(lab, outcome, lab.seed, 1).taste()
    outcome.plant(caught=_finds_early_publication(lab))
    return outcome


def points_of(role: str) -> list[str]:
    """The points that a process of this role can pass at all."""
    names = [name for name, passes in failpoints() if passes == role]
    return names + (repair_points() if role == "store" else [])


class Matrix:
    """All cells of one number of stores. ``mutant``: a bug that is switched on in the stores."""

    def __init__(self, lab: Lab, outcome: Outcome, seed: int, stores: int, mutant: str = "") -> None:
        self.lab, self.outcome, self.stores = lab, outcome, stores
        self.random = random.Random(f"{seed} {stores} {mutant}")
        self.mutant = mutant
        self._number = 0
        self._damaged = 0
        """Messages of the scene that were damaged so far."""

    def run(self) -> None:
        """Every cell."""
        for action in ("kill", "stop"):
            for role in ("source", "store", "receiver"):
                names = [name for name in points_of(role) if not self._apart(role, name)]
                self.row(action, role, names)
            for role, name in self._in_new_domains():
                self.row(action, role, [name], fresh=True)
            retire = [name for name in points_of("store") if name.startswith(WHEN_FULL) and name != BY_CHANCE]
            for name in retire:  # each with full segments that a store of one life has written
                self.row(action, "store", [name], retaining=True)
            self.row(action, "store", list(OF_MEMORY), kind="memory")
        for name in sorted(status_points()):
            for role in ("source", "store", "receiver"):
                if name in points_of(role) and not (name.startswith(IN_REPAIR) and self.stores < 2):
                    for error in ("EIO", "ENOSPC"):
                        self.fail(role, name, error)

    def taste(self) -> None:
        """A few cells of each kind."""
        pick = self.random
        self.row("kill", "store", pick.sample([n for n in points_of("store") if n.startswith(("log.", "drain.s"))], 3))
        self.row("stop", "receiver", pick.sample([n for n in points_of("receiver") if n.startswith("reader.")], 1))
        self.fail("store", "log.pwrite", "ENOSPC")

    def _apart(self, role: str, name: str) -> bool:
        """It needs a scene of another kind."""
        if name.startswith(IN_REPAIR):
            return self.stores < 2
        return name.startswith((WHEN_FULL, *OF_MEMORY)) or (name.startswith(AT_CREATION) and role != "source")

    def _in_new_domains(self) -> list[tuple[str, str]]:
        return [(r, n) for r in ("store", "receiver") for n in points_of(r) if n.startswith(AT_CREATION)]

    def scene(self, kind: str = "disk", *, retaining: bool = False) -> tuple[GroupScene, str]:
        """A new one, and the name of its domain."""
        self._number += 1
        self._damaged = 0
        domain = f"{'p' if self.mutant else 'm'}{self.stores}-{self._number}"
        where = self.lab.root / f"{domain}-{self.random.getrandbits(32):x}"
        kinds = (kind,) * self.stores
        options = {"ume_flight_size": 300 if retaining else 20}
        scene = GroupScene(where, domain, self.random.getrandbits(48), kinds=kinds, forked=True, source_options=options)
        if retaining:
            scene.lets_go = True
            scene.lead = WINDOW  # what a log of that limit holds is more: a receiver that begins late misses nothing
            for store in scene.stores:
                store.settings = replace(store.settings, options=dict(OPTIONS), segment_bytes=SEGMENT)
        return scene, domain

    def row(
        self, action: str, role: str, names: list[str], *, kind: str = "disk", fresh: bool = False,
        retaining: bool = False,
    ) -> None:  # fmt: skip
        """One scene, one cell after the other. ``fresh``: the point is passed in a domain where nothing is
        yet."""
        scene, domain = self.scene(kind, retaining=retaining)
        try:
            with scene:
                if not fresh:
                    scene.start()
                    go_on(scene)
                for name in names:
                    self._cell(scene, action, role, name, fresh=fresh)
                if not retaining:
                    self.outcome.count("messages", scene.finish())
                else:
                    kill_all(scene)
                    for _, log in scene.logs():
                        log.verify_all()
        except Finding as found:
            self.outcome.found(f"{self.stores} stores, {role}, {action}: {found}")
        finally:
            remove_objects(domain)

    def _cell(self, scene: GroupScene, action: str, role: str, name: str, *, fresh: bool) -> None:
        victim = {"source": scene.source, "store": scene.stores[-1], "receiver": scene.receivers[0]}[role]
        if name == IN_VIEWS:
            victim = scene.receivers[1]
        if name.startswith(IN_REPAIR):
            caught_up(scene, victim)
        if victim.process is not None:
            scene.kill(victim)
        if name.startswith(IN_REPAIR):
            damage(scene, victim, self._damaged, self.random)
            self._damaged += 1
        first = name.startswith((*AT_ONCE, *WITH_NEW_LIFE, IN_REPAIR, WHEN_FULL))
        spec = f"{name}={action}@{1 if first else self.random.randint(1, 20)}"
        victim.start(";".join(part for part in (spec, self.mutant if role == "store" else "") if part))
        try:
            suffer(scene, victim, action, name, look=not fresh)
            if fresh:
                for worker in scene.workers:
                    if worker.process is None:
                        worker.start()
            elif action == "kill":
                victim.start()
            go_on(scene)
        except Finding as found:
            raise Finding(f"at {name}: {found}") from found
        self.outcome.count("cells")
        self.outcome.count({"kill": "kills", "stop": "stops"}[action])

    def fail(self, role: str, name: str, error: str) -> None:
        """One call fails in one process, once."""
        scene, domain = self.scene()
        victim = {"source": scene.source, "store": scene.stores[-1], "receiver": scene.receivers[0]}[role]
        errors = self.lab.root / "errors"
        nth = 1 if name.startswith((*AT_ONCE, *WITH_NEW_LIFE, IN_REPAIR)) else self.random.randint(1, 8)
        try:
            with scene, said_to(errors):
                if name.startswith(IN_REPAIR):
                    scene.start()
                    go_on(scene)
                    caught_up(scene, victim)
                    scene.kill(victim)
                    damage(scene, victim, 0, self.random)
                elif not name.startswith(AT_CREATION):
                    for worker in scene.workers:
                        if worker is not victim:
                            worker.start()
                if (role, name) == ("store", OF_NAMES):
                    victim.start().wait_ready()
                    scene.kill(victim)
                victim.start(f"{name}=errno:{error}@{nth}")
                look = partial(watch, scene, victim, errors)
                said = f"failpoint {name}"
                failed = partial(until, said, lambda: said in errors.read_text().splitlines(), look)
                if name.startswith(AT_CREATION):  # alone, it is the one that creates
                    failed()
                for worker in scene.workers:
                    if worker.process is None:
                        worker.start()
                if name.startswith((AT_CREATION, *WITH_NEW_LIFE)) and role == "store":
                    until("the store is open or gone", lambda: victim.ready or not victim.process, look)
                    self._go_on_after(scene, victim, name)
                failed()
                self._watch(scene, victim, look, mended=not name.startswith(IN_REPAIR))
        except Finding as found:
            self.outcome.found(f"{self.stores} stores, {role} at {name}, {error}: {found}")
        finally:
            remove_objects(domain)
        self.outcome.count("cells")
        self.outcome.count("errors")

    @staticmethod
    def _go_on_after(scene: GroupScene, store: Worker, name: str) -> None:
        """What the others need after this store's first look at the world has failed."""
        if not name.startswith(AT_CREATION):
            if scene.source.process is not None:
                scene.kill(scene.source)
            scene.source.start()
        elif store.process is None:  # stores that know nothing wait for each other (docs/design.md 15)
            store.start()

    def _watch(self, scene: GroupScene, victim: Worker, look: Callable[[], None], *, mended: bool) -> None:
        """It goes on, or it does not: what was called stable is there, and whoever ended said why.
        ``mended``: no log is damaged; else the victim's is, and its repair has failed."""
        goal, deadline = scene.processed + PROGRESS, time.monotonic() + ERRNO_S
        while scene.processed < goal and time.monotonic() < deadline:
            look()
            time.sleep(0.001)
        others = [store for store in scene.stores if store is not victim]
        if victim in scene.stores and len(others) >= scene.quorum:
            until(f"{goal} is processed by the others", lambda: scene.processed >= goal, look)
        end_all(scene, look)
        stable = int(scene.source.words[2])
        held = scene.held_by_quorum()
        if held < stable:
            raise Finding(f"everything below {stable} was called stable, a quorum of the logs has {held}")
        for store, log in scene.logs():
            if store is victim and not mended:
                continue
            try:
                log.rewind()
                log.verify()
            except Finding as found:
                raise Finding(f"the log of store {store.settings.name}: {found}") from found


@contextlib.contextmanager
def said_to(path: Path) -> Iterator[None]:
    """What the processes that are started now write to stderr goes into this file."""
    kept = os.dup(2)
    with path.open("wb") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def watch(scene: GroupScene, victim: Worker, errors: Path) -> None:
    """Judges. The victim may have ended with an error of ours; where the stores are no quorum without it, so
    may the others.

    A source that has never begun may end, too, when the victim refuses it: it may wait for all its stores
    (docs: the guide), and its program is told which one refuses. It is started again, and the store tries
    again.
    """
    scene.look()
    source = scene.source
    ended = victim in scene.stores and source.process is not None and source.process.poll() == FAILED
    if ended and f"HF_REGISTRATION: store {victim.settings.name} " in errors.read_text():
        source.process = None
        source.start()
    spare = victim not in scene.stores or len(scene.stores) - 1 >= scene.quorum
    for worker in [victim] if spare else scene.workers:
        process = worker.process
        if process is None or process.poll() is None:
            continue
        worker.process = None
        said = errors.read_text().rstrip().rpartition("\n")[2]
        if process.returncode != FAILED or not said.startswith("holdfast.engine.errors."):
            raise Finding(f"the {worker.role} ended with status {process.returncode}: {said}")
        if worker is victim and victim in scene.stores and not scene.processed:  # a new source may wait for it
            victim.start()


def kill_all(scene: GroupScene) -> None:
    """One after the other, each judged."""
    for worker in scene.workers:
        if worker.process is not None:
            scene.kill(worker)


def end_all(scene: GroupScene, look: Callable[[], None]) -> None:
    """As kill_all, where some may end by themselves: ``look`` judges these."""
    for worker in scene.workers:
        look()
        if worker.process is None:
            continue
        worker.process.send_signal(signal.SIGSTOP)  # from here on it ends no more, or has
        look()
        if worker.process is not None:
            scene.kill(worker)


def go_on(scene: GroupScene) -> None:
    """Until every receiver has processed this many numbers more."""
    goal = scene.processed + PROGRESS
    until(f"{goal} is processed", lambda: scene.processed >= goal, scene.look, *(w.check_alive for w in scene.workers))


def caught_up(scene: GroupScene, store: Worker) -> None:
    """Until this store, too, has what the receivers have now."""
    number = scene.processed

    def there() -> bool:
        log = dict(scene.logs()).get(store)
        return log is not None and log.range()[1] >= number

    until(f"store {store.settings.name} has {number}", there, scene.look)


def suffer(scene: GroupScene, victim: Worker, action: str, name: str, *, look: bool) -> None:
    """Waits until the victim, which was started with the point armed, has passed it and died there, or
    stands."""

    def gone() -> bool:
        if action == "stop":
            return stands(victim)
        return victim.process is None or victim.died()

    judge = scene.look if look else time.monotonic
    if name.startswith(WITH_NEW_LIFE):
        until(f"{victim.role} is ready or gone", lambda: victim.ready or gone(), judge)
        if not gone():
            scene.kill(scene.source)
            scene.source.start()
    elif name == AT_CLOSE:
        until(f"{victim.role} is ready", lambda: victim.ready, judge)
        go_on(scene)  # so that it has a line
        if victim.role == "store":
            victim.send(signal.SIGTERM)
        victim.words[STOP] = 1
    until(f"{victim.role}: {action}", gone, judge)
    if action == "kill":
        victim.words[STOP] = 0
        scene.judge(victim)
        return
    if victim in scene.stores and len(scene.stores) - 1 >= scene.quorum and look:
        others = [worker for worker in scene.workers if worker is not victim]
        goal = scene.processed + PROGRESS
        until(f"{goal} without it", lambda: scene.processed >= goal, scene.look, *(w.check_alive for w in others))
    victim.send(signal.SIGCONT)
    if name == AT_CLOSE:
        process = victim.process
        assert process is not None
        until(f"the {victim.role} ends", lambda: process.poll() is not None)
        status, victim.process, victim.words[STOP] = process.returncode, None, 0
        if status:
            raise Finding(f"the {victim.role} ended with status {status}")
        scene.judge(victim)
        victim.start()


def stands(victim: Worker) -> bool:
    """The process is stopped. Raises Finding if it has ended."""
    victim.check_alive()
    assert victim.process is not None
    stat = Path(f"/proc/{victim.process.pid}/stat").read_text()
    return stat.rpartition(")")[2].split()[0] == "T"


def damage(scene: GroupScene, store: Worker, nth: int, pick: random.Random) -> None:
    """A bit of a payload that this store published early, and that its peers have, is flipped: of another one
    for each ``nth``, for what was mended once is not mended again."""
    log = dict(scene.logs())[store]
    path = log.path / FIRST_SEGMENT
    with path.open("r+b") as file:
        there = list(beginnings(file.read()))
        if len(there) < nth + 2:
            raise Finding(f"store {store.settings.name} has only {len(there)} messages in {path}")
        at, length = there[nth + 1]
        at += pick.randrange(lib.HF_GRANULE, length)  # not in the header, by which the next one is found
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ 1 << pick.randrange(8)]))


def beginnings(segment: bytes) -> Iterator[tuple[int, int]]:
    """(offset, bytes) of the first frame of each message, header included."""
    at, flags = FRAMES_AT, ffi.offsetof("struct hf_frame", "flags")
    while length := int.from_bytes(segment[at : at + 4], "little"):
        if segment[at + flags] & lib.HF_FRAME_FIRST:
            yield at, length
        at += -(-length // lib.HF_GRANULE) * lib.HF_GRANULE


FIRST_SEGMENT = "seg-0000000000000000"
FRAMES_AT = 8192
"""Of a segment file: where its first frame lies (base/layout.h)."""


def _finds_early_publication(lab: Lab) -> bool:
    """A store that calls stable what it has not copied yet, killed before it copies."""
    outcome = Outcome()
    Matrix(lab, outcome, lab.seed, 1, "drain.publish_early=mutant").row("kill", "store", ["log.staged"] * 5)
    return outcome.times_found(LOST) > 0
