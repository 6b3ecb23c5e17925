"""Somebody removes all names of a domain from /dev/shm, repeatedly: who has them open goes on, who comes
later starts anew.

A group of three stores, a source and two receivers run free meanwhile, each a process; and for every removal
there is a new source with a receiver in this process, hit in the middle of their work. The control takes the
pages, not the names alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from support.group_scene import GroupScene
from support.leftovers import remove_objects
from support.workers import until

from holdfast.engine.memory.domain import SHM_DIR, unlink_object
from torture_lab.load import in_steps, objects

if TYPE_CHECKING:
    from collections.abc import Callable

    from torture_lab.lab import Lab, Outcome

__all__ = ["plant", "unnamed"]

NEWCOMERS_SEND = 50


def unnamed(lab: Lab, outcome: Outcome, domain: str) -> None:
    """Some removals under load."""

    def strike(number: int) -> None:
        if number == NEWCOMERS_SEND // 2:
            outcome.count("names removed", _hit(domain, unlink_object))
            outcome.count("removals under load")

    scene = GroupScene(lab.root / domain, domain, lab.seed)
    try:
        with scene:
            scene.start()
            _goes_on(scene)
            until(
                "all stores take part",
                lambda: len(ends := scene.ends()) == len(scene.stores) and min(ends) > 0,
                scene.look,
            )
            for turn in range(lab.figure(3, 5, 10)):
                outcome.count("messages", in_steps(domain, f"newcomer-{turn}", NEWCOMERS_SEND, strike))
                _goes_on(scene)
            outcome.count("messages", scene.finish())
    finally:
        remove_objects(domain)


def plant(lab: Lab, outcome: Outcome) -> None:
    """The control: they do not go on."""
    scene = GroupScene(lab.root / "pages", "pages", lab.seed)
    try:
        with outcome.catches("ended by itself"), scene:
            scene.start()
            _goes_on(scene)
            _hit("pages", lambda name: (SHM_DIR / name).open("r+b").truncate(0))
            _goes_on(scene)
    finally:
        remove_objects("pages")


def _hit(domain: str, what: Callable[[str], object]) -> int:
    names = objects(domain, "stream", "board", "bells")
    for name in names:
        what(name)
    return len(names)


def _goes_on(scene: GroupScene) -> None:
    goal = scene.processed + 500
    until("it goes on", lambda: scene.processed >= goal, scene.look, *(worker.check_alive for worker in scene.workers))
