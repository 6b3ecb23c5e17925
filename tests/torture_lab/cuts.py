"""Power cuts of whole systems: stores with an image each, backups and groups, a source and receivers, all of
them processes.

cuts/episode.py draws and runs one system; cuts/journal.py is the judge. In some systems a disk vanishes
before the power does: it gives and takes nothing any more, and a sync fails once. Each bug is planted in
systems that can show it.
"""

from __future__ import annotations

import contextlib
import random
import re
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest import mock

from cuts.episode import RECEIVER, Episode, Life, Step
from cuts.shapes import SHAPES
from support.forked_workers import preload
from support.oracle import Finding

from holdfast.engine.rules import election
from torture_lab.lab import LOST, Lab, Outcome
from torture_lab.power import own_mounts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from cuts.shapes import Shape

__all__ = ["run"]

CUTS_PER_EPISODE = 4
DISKS_PER_EPISODE = 3
PLANTED_TRIES = 5
ELECTION, ANSWERS = "holdfast.engine.rules.election.", "holdfast.engine.store.answers."
DECIDE = election.decide
BY_NAME = {shape.name: shape for shape in SHAPES}


def _up(stores: str) -> list[Step]:
    up: list[Step] = [step for name in stores for step in (("mount", name), ("start", name), ("ready", name))]
    return [*up, ("source", ""), (RECEIVER, ""), ("stable", 200)]


class Planted(NamedTuple):
    """A bug, and the lives of a system in which it loses messages."""

    shape: str
    lives: Sequence[Life]
    failpoints: str = ""
    patched: Mapping[str, object] = MappingProxyType({})
    """Decisions of the product, and what they are replaced by."""
    said: re.Pattern[str] = LOST
    """What the judge finds."""

    @contextlib.contextmanager
    def begin(self) -> Iterator[None]:
        """While it lasts, processes that are forked have it."""
        with contextlib.ExitStack() as stack:
            for decision, instead in self.patched.items():
                stack.enter_context(mock.patch(decision, instead))
            yield


def _begins_again(*known: Any, **more: Any) -> election.Decision | None:
    """What has begun begins once more, from where the numbers go on."""
    found = DECIDE(*known, **more)
    if found is None or not found.begins:
        return found
    *before, newest = found.begins
    return found._replace(incarnation=newest[0], begins=tuple(before))


def _never(*_: object) -> None:
    """A store refuses nothing."""


B_GOES_ON = Life([*_up("ab"), ("kill", "a"), ("stable", 200)])
A_ALONE: list[Step] = [("mount", "a"), ("start", "a"), ("source", ""), ("stable", 20)]
A_RESTS: list[Step] = [("mount", "a"), ("start", "a"), ("ready", "a"), ("source", ""), ("rests", "a")]
"""A disk that vanishes in the middle of a sync takes the journal of its file system with it: no later sync
succeeds, and there is nothing to believe."""
PLANTED = {
    "nothing is synced": Planted("three", [Life(_up("abc"))], "log.skip_sync=mutant"),
    "a head is believed with its store dead": Planted(
        "one and a backup", [B_GOES_ON, Life([("mount", "b"), *A_ALONE])], "logr.believe_head=mutant"
    ),
    "a store that cannot be read counts as empty": Planted(
        "one and a backup", [B_GOES_ON, Life(A_ALONE)], patched={ELECTION + "_least": lambda _: (0, {})}
    ),
    "a sync is believed behind one that failed": Planted(
        "one", [Life([*A_RESTS, ("vanish", "a"), ("moves", 100)])], "log.believe=mutant"
    ),
    "two lives are one incarnation": Planted(  # two lines of defence, each of which is enough
        "one",
        [Life([*A_RESTS[:-1], ("moves", 100)])] * 2,
        patched={ELECTION + "decide": _begins_again, ANSWERS + "too_late": _never},
        said=re.compile("are both incarnation"),
    ),
}


def run(lab: Lab) -> Outcome:
    """150 cuts, or 2,000 (or 10), and 20 disks that vanish, or 200 (or 2). Each planted bug is looked for in
    a few systems."""
    own_mounts(lab)
    preload()
    outcome = Outcome()
    cut_systems(lab, outcome, lab.figure(10, 150, 2000))
    lose_disks(lab, outcome, lab.figure(2, 20, 200))
    for what, planted in PLANTED.items():
        caught = any(_caught(lab, planted, turn) for turn in range(PLANTED_TRIES))
        outcome.plant(caught=caught)
        if not caught:
            print(f"planted, and not caught: {what}", flush=True)
    return outcome


def shapes(seed: int) -> Iterator[Shape]:
    """All of them, again and again, each time in another order."""
    draw = random.Random(seed)
    while True:
        yield from draw.sample(SHAPES, len(SHAPES))


def cut_systems(lab: Lab, outcome: Outcome, cuts: int) -> None:
    """Until there were this many power cuts, or as many findings."""
    for number, shape in enumerate(shapes(lab.seed)):
        left = cuts - outcome.counts.get("cuts", 0)
        if left <= 0 or len(outcome.findings) >= cuts:
            return
        seed = lab.seed * 100_003 + number
        lives = min(left, random.Random(seed).randint(1, CUTS_PER_EPISODE))
        _episode(lab, outcome, shape, seed, partial(Episode.drawn, cuts=lives))


def lose_disks(lab: Lab, outcome: Outcome, disks: int) -> None:
    """Until this many disks have vanished, each under a system that then loses its power, too."""
    for number, shape in enumerate(shapes(lab.seed)):
        left = disks - outcome.counts.get("vanished", 0)
        if left <= 0 or len(outcome.findings) >= disks:
            return
        seed = lab.seed * 100_003 + number
        _episode(lab, outcome, shape, seed, partial(Episode.vanishing, lives=min(left, DISKS_PER_EPISODE)))


def _episode(lab: Lab, outcome: Outcome, shape: Shape, seed: int, live: Callable[[Episode], None]) -> None:
    with _system(lab, shape, seed) as episode:
        try:
            live(episode)
        except Finding as found:
            outcome.found(f"{found}\n  {episode.tale()}")
    outcome.count("systems")
    for what, times in vars(episode.count).items():
        outcome.count(what, times)


def _system(lab: Lab, shape: Shape, seed: int, failpoints: str = "") -> Episode:
    return Episode(shape, seed, lab.root / "machine", lab.root / "run", failpoints)


def _caught(lab: Lab, planted: Planted, turn: int) -> bool:
    with planted.begin(), _system(lab, BY_NAME[planted.shape], lab.seed + turn, planted.failpoints) as episode:
        try:
            for life in planted.lives:
                episode.live(life)
            episode.finish()
        except Finding as found:
            return planted.said.search(str(found)) is not None
    return False
