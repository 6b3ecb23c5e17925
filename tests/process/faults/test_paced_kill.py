"""kill -9 around a receiver-paced source (docs/semantics.md J.1): what waits for a receiver stays, what was
acknowledged is gone.

paced_scene.py judges after every death. The mass of such kills is a part of the torture.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.paced_scene import PacedGroupScene
from support.workers import Worker, until

from holdfast.engine.native.core import lib

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SEED = 20_260_202
POINTS = {
    "disk": ("reader.copied@7", "log.synced@7", "log.published@7", "drain.synced@7", "board.turn@1"),
    "memory": ("log.copied@7", "log.published@7", "drain.appended@7"),
}
"""Where a store of this kind stores, publishes and acknowledges; and where it takes its line over."""


@pytest.fixture
def make_scene(tmp_path: Path, own_domain: str) -> Iterator[Callable[..., PacedGroupScene]]:
    made: list[PacedGroupScene] = []

    def make(*kinds: str) -> PacedGroupScene:
        made.append(PacedGroupScene(tmp_path, own_domain, SEED, kinds=kinds))
        return made[-1].start()

    yield make
    for scene in made:
        scene.__exit__()


def go_on(scene: PacedGroupScene, messages: int = 30) -> None:
    """Until both receivers have processed this many numbers more."""
    goal = scene.processed + messages
    until(f"{goal} is processed", lambda: scene.processed >= goal, scene.look)


def die(scene: PacedGroupScene, victim: Worker, point: str) -> None:
    """It dies at this failpoint while the others run, is judged, and started again."""
    scene.kill(victim)
    victim.start(point)
    until(f"it dies at {point}", victim.died, scene.look)
    scene.judge(victim)
    victim.start()
    go_on(scene)


@pytest.mark.parametrize("kind", POINTS)
def test_a_store_killed_at_a_failpoint_lets_nothing_go_that_is_waited_for(
    make_scene: Callable[..., PacedGroupScene], kind: str
) -> None:
    scene = make_scene(kind)
    go_on(scene)
    for point in POINTS[kind]:
        die(scene, scene.stores[0], point.replace("@", "=kill@"))
    assert scene.finish() > 100


def withheld(scene: PacedGroupScene) -> bool:
    """A store holds what it does not acknowledge."""
    return any(line.position > line.ack for line in scene.traces.lines(lib.HF_ROLE_STORE))


@pytest.mark.parametrize("role", ["source", "receiver", "store", "all"])
def test_killed_while_stability_is_withheld(make_scene: Callable[..., PacedGroupScene], role: str) -> None:
    """One receiver is dead, so the store is as full as it may be, and the source stands."""
    scene = make_scene("disk")
    go_on(scene)
    dead = scene.receivers[0]
    scene.kill(dead)
    until("stability is withheld", lambda: withheld(scene), scene.look)
    victims = [worker for worker in scene.workers if worker is not dead and role in {worker.role, "all"}]
    scene.kill(*victims)
    for victim in victims:
        victim.start()
    until("they are back", lambda: all(victim.ready for victim in victims), scene.look)
    until("stability is withheld again", lambda: withheld(scene), scene.look)
    scene.judge(scene.stores[0])
    dead.start()
    go_on(scene, 500)
    scene.finish()


def test_a_receiver_that_dies_again_and_again_gets_everything_that_it_had_not_acknowledged(
    make_scene: Callable[..., PacedGroupScene],
) -> None:
    scene = make_scene("disk", "disk", "disk")
    go_on(scene)
    for _ in range(3):
        scene.kill(*scene.receivers)
        for worker in scene.receivers:
            worker.start()
        go_on(scene, 300)
    assert scene.finish() > 900
