"""Peers that are broken or hostile, names that somebody removes, a wall clock that jumps: whoever is not hit goes on as before.

A store and the processes of a source that will be spoiled are processes of their own. A source and a receiver beside them, here,
must not notice. What the spoiled ones themselves make of it is their affair, but nobody dies of a signal.
"""

from __future__ import annotations

import random
import threading
import time
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from process.children import preload
from process.group_scene import GroupScene
from process.oracle import Finding
from process.spawn import Worker, until
from process.torture_group import remove_objects

import holdfast as hf
from holdfast.engine.domain import SHM_DIR, Domain, unlink_object
from torture_lab.lab import Lab, Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SHORT = 60.0
OPTIONS = {"ume_store_name": ["a:0:0"], "ring_size": 1 << 18, "ume_flight_size": 1000}
PREAMBLE = 128
SPOIL_BYTES = 64
DAY_NS = 86_400 * 10**9


def run(lab: Lab) -> Outcome:
    """Each trouble a few times, or for longer."""
    preload()
    outcome = Outcome()
    rounds = lab.figure(1, 5, 100)
    for turn in range(rounds):
        _steps(lab, outcome, f"clock-{turn}")  # before this process has a context: it forks
    outcome.plant(caught=_sees_garbage_that_it_is_given(lab))
    for turn in range(rounds):
        for kind in ("stream", "board"):
            _guarded(outcome, f"garbage in a {kind}", _spoilt, lab, outcome, f"{kind}-{turn}", kind)
        _guarded(outcome, "names removed", _unnamed, lab, outcome, f"names-{turn}")
    return outcome


def _guarded(outcome: Outcome, what: str, scene: object, *arguments: object) -> None:
    assert callable(scene)
    try:
        scene(*arguments)
    except (AssertionError, hf.Error) as found:
        outcome.found(f"{what}: {type(found).__name__}: {found}")


# Garbage ----------------------------------------------------------------------------------------------------------------------


@contextmanager
def _spoiling(path: Path, seed: int) -> Iterator[list[int]]:
    """Random bytes into an object, everywhere but in its preamble, until the end. Yields how often."""
    times, stop = [0], threading.Event()

    def spoil() -> None:
        pick = np.random.default_rng(seed)
        size = path.stat().st_size
        with path.open("r+b", buffering=0) as file:
            while not stop.wait(0.0002):
                file.seek(int(pick.integers(PREAMBLE, size - SPOIL_BYTES)))
                file.write(pick.integers(0, 256, SPOIL_BYTES, np.uint8).tobytes())
                times[0] += 1

    thread = threading.Thread(target=spoil)
    thread.start()
    try:
        yield times
    finally:
        stop.set()
        thread.join()


def _objects(domain: str, kind: str) -> list[str]:
    found = Domain(domain, join=False)
    try:
        return [item.name for item in found.objects() if item.kind == kind]
    finally:
        found.close()


def _store(lab: Lab, domain: str) -> Worker:
    where = lab.root / domain
    where.mkdir()
    return Worker("store", where, directory=str(where / "a"), kind="disk", domain=domain).start().wait_ready()


def _spoilt(lab: Lab, outcome: Outcome, domain: str, kind: str) -> None:
    """A source and its receiver work on an object that is spoiled; a store reads it; others share store and domain."""
    where = lab.root / domain
    workers = [_store(lab, domain)]
    common: dict[str, Any] = {"domain": domain, "topic": "spoiled", "seed": 1}
    try:
        source = Worker("source", where, session=1, options=OPTIONS, **common).start().wait_ready()
        receiver = Worker("receiver", where, session=2, rows=str(where / "rows"), **common).start()
        workers += [source, receiver]
        until("it is received", (where / "rows").exists)
        (name,) = _objects(domain, kind)
        with _spoiling(SHM_DIR / name, lab.seed) as times:
            outcome.count("messages", _others_work(domain, lab.figure(200, 1000, 3000)))
        outcome.count("times spoiled", times[0])
        with hf.Context(domain=domain) as ctx, ctx.source("after", options=OPTIONS) as late:
            late.wait_registered(SHORT)
            late.send(b"the store is well")
            late.wait_stable(timeout=SHORT)
        workers[0].check_alive()
        for worker in workers[1:]:
            assert worker.process is not None
            status = worker.process.poll()
            assert status is None or status > 0, f"the {worker.role} died of signal {-(status or 0)}"
    finally:
        for worker in workers:
            worker.discard()
        remove_objects(domain)


def _others_work(domain: str, messages: int) -> int:
    with hf.Context(domain=domain) as ctx:
        source = ctx.source("others", options=OPTIONS)
        source.wait_registered(SHORT)
        receiver = ctx.receiver("others")
        for number in range(messages):
            assert source.send(b"%d" % number, timeout=SHORT) == number
            message = receiver.receive(timeout=SHORT)
            assert message is not None
            assert bytes(message) == b"%d" % number
            message.release()
        source.wait_stable(timeout=SHORT)
    return messages


def _sees_garbage_that_it_is_given(lab: Lab) -> bool:
    """The control: the judge sees that the messages of a ring were spoiled."""
    scene = GroupScene(lab.root / "given", "given", lab.seed, kinds=("disk",), forked=True)
    try:
        with scene:
            scene.start()
            goal = scene.processed + 50
            until("work", lambda: scene.processed >= goal, scene.look)
            (name,) = _objects("given", "stream")
            with _spoiling(SHM_DIR / name, lab.seed):
                until(
                    "work",
                    lambda: scene.processed >= goal + 10_000,
                    scene.look,
                    *(w.check_alive for w in scene.workers),
                )
    except Finding:
        return True
    finally:
        remove_objects("given")
    return False


# Names ------------------------------------------------------------------------------------------------------------------------


def _unnamed(lab: Lab, outcome: Outcome, domain: str) -> None:
    """Somebody removes everything of the domain from /dev/shm: who has it open goes on, and who comes later starts anew."""
    store = _store(lab, domain)
    try:
        with hf.Context(domain=domain) as ctx:
            source = ctx.source("names", options=OPTIONS)
            source.wait_registered(SHORT)
            receiver = ctx.receiver("names")
            for number in range(200):
                assert source.send(b"%d" % number, timeout=SHORT) == number
                if number == 100:
                    for kind in ("stream", "board", "bells"):
                        for name in _objects(domain, kind):
                            unlink_object(name)
                            outcome.count("names removed")
                message = receiver.receive(timeout=SHORT)
                assert message is not None
                assert bytes(message) == b"%d" % number
                message.release()
            source.wait_stable(timeout=SHORT)
            outcome.count("messages", 200)
        store.check_alive()
    finally:
        store.discard()
        remove_objects(domain)


# Clocks -----------------------------------------------------------------------------------------------------------------------


def _set_clocks(real: Callable[[], int], step: int) -> None:
    """What processes that are forked from now on take for the time."""

    def time_ns() -> int:
        return real() + step

    def seconds() -> float:
        return time_ns() / 1e9

    time.time_ns, time.time = time_ns, seconds


def _reached(scene: GroupScene, goal: int) -> bool:
    return scene.processed >= goal


def _steps(lab: Lab, outcome: Outcome, domain: str) -> None:
    """Every process reads a wall clock that is days off, each by another amount, and off by another one in its next life."""
    pick = random.Random(f"{lab.seed} {domain}")
    real = time.time_ns
    scene = GroupScene(lab.root / domain, domain, lab.seed, forked=True)
    try:
        with scene:
            for _ in range(3):
                for worker in scene.workers:
                    step = pick.randint(-3, 3) * DAY_NS
                    _set_clocks(real, step)
                    worker.start()
                    outcome.count("clocks stepped")
                until("it goes on", partial(_reached, scene, scene.processed + 100), scene.look)
                scene.kill(*scene.workers)
            for worker in scene.workers:
                worker.start()
            outcome.count("messages", scene.finish())
    except Finding as found:
        outcome.found(f"clocks: {found}")
    finally:
        _set_clocks(real, 0)
        remove_objects(domain)
