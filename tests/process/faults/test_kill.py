"""kill -9 and SIGSTOP of real processes, at every failpoint and between: nothing stable is lost, numbers have
no gap."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.failpoints import ROLES, failpoints
from support.kill_scene import Scene
from support.oracle import Content
from support.worker import CHILD, LOST_QUORUM, SENT, STABLE, STOP
from support.workers import Worker, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SEED = 20_260_101
AT_CREATION = "segment."
"""Objects that several processes may create: the first one passes these, in a domain that is new."""
AT_CLOSE = "board.closed"
WITH_NEW_LIFE = ("begin.", "roll.", "log.fallocate")
"""A store passes them when a source begins anew."""
WHEN_FULL = "retire."
AT_MEMORY = "drain.appended"
IN_VIEWS = "reader.pinned"
TESTS = Path(__file__).resolve().parents[2]
AT_ONCE = ("bell.", "board.", "log.fsync", "open.", "process.", "segment.", "wait.")
"""Passed once or twice in a life: the first time it is."""


@pytest.fixture
def make_scene(tmp_path: Path, own_domain: str) -> Iterator[Callable[..., Scene]]:
    made: list[Scene] = []

    def make(**options: object) -> Scene:
        made.append(Scene(tmp_path, own_domain, SEED, **options))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for scene in made:
        scene.__exit__()


def die_at(scene: Scene, victim: Worker, name: str, pick: random.Random) -> None:
    """The victim, which is not running, passes the failpoint while the others run, and dies of it."""
    scene.judge(victim)
    victim.start(f"{name}=kill@{1 if name.startswith((*AT_ONCE, *WITH_NEW_LIFE)) else pick.randint(1, 40)}")
    if name.startswith(WITH_NEW_LIFE):
        until(f"{victim.role} is ready or dead", lambda: victim.ready or victim.died(), scene.look)
        scene.kill(scene.source)
        scene.source.start()
    elif name == AT_CLOSE:
        until(f"{victim.role} is ready", lambda: victim.ready, scene.look)
        scene.go_on()
        if victim.role == "store":
            victim.send(signal.SIGTERM)
        victim.words[STOP] = 1
    until(f"{victim.role} dies at {name}", lambda: victim.process is None or victim.died(), scene.look)
    victim.words[STOP] = 0


def names_of(role: str) -> list[str]:
    return [name for name, passes in failpoints() if passes == role]


def in_a_new_domain(role: str, name: str) -> bool:
    return name.startswith(AT_CREATION) and role != "source"


@pytest.mark.parametrize("role", ROLES)
def test_killed_at_any_failpoint_it_loses_nothing(role: str, make_scene: Callable[..., Scene]) -> None:
    pick = random.Random(role)
    scene = make_scene(source_options={"ume_flight_size": 20})
    victim = {"source": scene.source, "store": scene.store, "receiver": scene.receiver}[role]
    scene.start()
    scene.go_on()
    scene.kill(victim)
    for name in names_of(role):
        if in_a_new_domain(role, name) or name.startswith((WHEN_FULL, AT_MEMORY)):
            continue  # has a test of its own below
        victim.settings = replace(victim.settings, form={"receiver": "receive"}.get(role, "mixed"))
        if name == IN_VIEWS:
            victim.settings = replace(victim.settings, form="batch")
        die_at(scene, victim, name, pick)
    victim.start()
    scene.go_on()
    assert scene.finish() > 100


@pytest.mark.parametrize(("role", "name"), [pair[::-1] for pair in failpoints() if in_a_new_domain(*pair[::-1])])
def test_killed_while_it_makes_shared_objects_it_leaves_no_hindrance(
    role: str, name: str, make_scene: Callable[..., Scene]
) -> None:
    scene = make_scene()
    victim = scene.store if role == "store" else scene.receiver
    victim.start(f"{name}=kill@1").wait_died()
    scene.start()
    scene.go_on()
    assert scene.finish() > 20


@pytest.mark.parametrize(
    "name", [name for name in names_of("store") if name.startswith(("log.staged", "log.copied", AT_MEMORY))]
)
def test_a_memory_store_killed_at_a_failpoint_loses_nothing(name: str, make_scene: Callable[..., Scene]) -> None:
    scene = make_scene(kind="memory")
    scene.start(scene.source, scene.receiver)
    for nth in (1, 7):
        die_at(scene, scene.store, name, random.Random(nth))
    scene.store.start()
    scene.go_on()
    assert scene.finish() > 20


@pytest.mark.parametrize("name", [name for name in names_of("store") if name.startswith(WHEN_FULL)])
def test_a_store_killed_while_it_retires_a_segment_keeps_what_it_retains(
    name: str, make_scene: Callable[..., Scene]
) -> None:
    limit = {"repository-disk-file-size-limit": 800_000}
    scene = make_scene(options=limit, segment_bytes=1 << 18, forms=("batch",))
    scene.lets_go = True
    scene.start(scene.source, scene.receiver)
    die_at(scene, scene.store, name, random.Random(1))
    scene.store.start()
    scene.go_on()
    scene.finish()


def test_every_failpoint_has_its_test() -> None:
    store = set(names_of("store"))
    assert AT_MEMORY in store
    assert IN_VIEWS in names_of("receiver")
    assert all(any(name.startswith(part) for name in store) for part in (WHEN_FULL, *WITH_NEW_LIFE))
    assert {role for role, name in ((r, n) for n, r in failpoints()) if in_a_new_domain(role, name)} == {
        "store",
        "receiver",
    }


# Moments that no failpoint names ----------------------------------------------------------------------------


def seed_with_fragments(at: int) -> int:
    """A seed whose message number ``at`` has three fragments or more, and comes behind ``at`` plain ones."""
    for seed in range(1000):
        content = Content(seed)
        lengths = content.lengths(range(at + 1)).tolist()
        if lengths[at] > 2 * content.fragment and max(lengths[:at], default=0) <= content.fragment:
            return seed
    raise AssertionError("no such seed")


def test_a_source_killed_between_two_fragments_leaves_nothing_of_the_message(tmp_path: Path, own_domain: str) -> None:
    at = 5
    with Scene(tmp_path, own_domain, seed_with_fragments(at)) as scene:
        scene.source.settings = replace(scene.source.settings, form="send")
        scene.start(scene.store, scene.receiver)
        scene.source.start(f"source.copied=kill@{at + 2}")  # one of its fragments is committed, this one is filled
        until("the source dies", scene.source.died, scene.look)
        scene.judge(scene.source)
        assert scene.traces.end() == at
        scene.source.start()
        scene.go_on()
        until("it is whole", lambda: scene.processed > at + 3, scene.look)
        scene.finish()


def test_a_source_loses_its_quorum_with_its_store_and_goes_on_when_it_returns(make_scene: Callable[..., Scene]) -> None:
    scene = make_scene(window=2**40)
    scene.start()
    scene.go_on()

    def told(times: int) -> bool:
        return bool(scene.source.words[LOST_QUORUM] >= times)

    def stable_beyond(number: int) -> bool:
        return bool(scene.source.words[STABLE] > number)

    for life in (1, 2):
        scene.kill(scene.store)
        until("the source is told", partial(told, life), scene.look)
        lost_at = int(scene.source.words[SENT])
        scene.store.start()
        until("the source goes on", partial(stable_beyond, lost_at), scene.look)
        scene.go_on(1000)
    scene.source.check_alive()
    scene.finish()


def test_all_three_killed_at_once_come_back_with_everything(make_scene: Callable[..., Scene]) -> None:
    scene = make_scene(source_options={"ume_flight_size": 100_000})
    scene.start()
    for _ in range(3):
        scene.go_on(500)
        scene.kill(*scene.workers)
        scene.start()
    scene.go_on()
    assert scene.finish() > 1500


@pytest.mark.parametrize("form", ["receive", "batch"])
def test_what_was_processed_and_not_acknowledged_comes_again_flagged(
    form: str, make_scene: Callable[..., Scene], tmp_path: Path
) -> None:
    hold = tmp_path / "hold"
    scene = make_scene(forms=(form,))
    scene.receiver.settings = replace(scene.receiver.settings, hold=str(hold))
    scene.start()
    scene.go_on()
    hold.touch()
    until("it has processed one more", lambda: scene.receiver.words[SENT] > 0, scene.look)
    scene.kill(scene.receiver)
    assert scene.rows[0].high == scene.receiver.words[SENT]
    assert scene.rows[0].delivered < scene.rows[0].high, "what was not released is not acknowledged"
    hold.unlink()
    scene.receiver.start()
    scene.go_on()
    assert scene.rows[0].repeated > 0, "Rows has checked the flag of each"
    scene.finish()


def test_a_stopped_store_is_not_replaced_and_nothing_goes_over_what_it_has_not_read(
    make_scene: Callable[..., Scene],
) -> None:
    scene = make_scene(window=2**40)
    scene.start()
    scene.go_on()
    scene.store.send(signal.SIGSTOP)
    source = scene.source.words
    until("the source waits", lambda: source[SENT] >= source[STABLE] + 200, scene.look)
    other = [sys.executable, str(TESTS / "support" / "worker.py"), "store", scene.store.settings.encode()]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")]),
    }
    refused = subprocess.run(other, env=environment, capture_output=True, text=True, check=False)
    assert "DirectoryInUseError" in refused.stderr
    assert source[SENT] <= source[STABLE] + 300, "flight size"
    scene.store.send(signal.SIGCONT)
    scene.go_on(1000)
    scene.finish()


def test_a_stopped_receiver_that_holds_a_view_stops_nobody_and_goes_on_from_the_store(
    make_scene: Callable[..., Scene], tmp_path: Path
) -> None:
    hold = tmp_path / "hold"
    hold.touch()
    scene = make_scene(
        forms=("late", "receive"), source_options={"ring_size": 1 << 16, "ume_flight_size": 50}, window=2**40
    )
    scene.receiver.settings = replace(scene.receiver.settings, hold=str(hold))
    scene.start()
    until("it holds a view", lambda: scene.receiver.words[SENT] > 0, scene.look)
    scene.receiver.send(signal.SIGSTOP)
    goal = scene.rows[1].high + 3000  # several rings
    until("the source went on", lambda: scene.rows[1].high >= goal, scene.look)
    scene.receiver.send(signal.SIGCONT)
    hold.unlink()
    scene.go_on()
    scene.finish()


def test_a_zombie_is_dead(make_scene: Callable[..., Scene]) -> None:
    scene = make_scene()
    scene.start()
    scene.go_on()
    zombies = []
    for worker in scene.workers:
        assert worker.process is not None
        worker.strike()
        until("it is a zombie", partial(is_zombie, worker.process.pid))
        zombies.append(worker.process)
        worker.process = None  # nobody reaps it yet
        scene.judge(worker)
        worker.start()
    scene.go_on()
    assert all(is_zombie(zombie.pid) for zombie in zombies)
    for zombie in zombies:
        zombie.wait()
    scene.finish()


def is_zombie(pid: int) -> bool:
    return state(pid) == "Z"


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_child_that_keeps_sockets_open_does_not_keep_its_dead_parents_registration(
    make_scene: Callable[..., Scene],
) -> None:
    scene = make_scene()
    scene.source.settings = replace(scene.source.settings, fork=True)
    scene.start()
    scene.go_on()
    child = int(scene.source.words[CHILD])
    try:
        scene.kill(scene.source)
        scene.source.settings = replace(scene.source.settings, fork=False)
        scene.source.start()
        until("the next life is registered", lambda: scene.source.ready, scene.look)
        scene.go_on()
        assert state(child) == "S", "it was there all the time"
    finally:
        os.kill(child, signal.SIGKILL)
    scene.finish()


def test_a_store_starts_although_somebody_stands_still_in_the_middle_of_claiming_a_line(
    make_scene: Callable[..., Scene],
) -> None:
    scene = make_scene()
    scene.start(scene.store, scene.source)
    until("the source has begun", lambda: scene.source.ready, scene.look)
    scene.receiver.start("board.turn=stop@1")
    assert scene.receiver.process is not None
    stopped = scene.receiver.process.pid
    until("the receiver stands still, and it is its turn", lambda: state(stopped) == "T", scene.look)
    scene.kill(scene.store)
    scene.store.start()
    for _ in range(50):  # one turn is waited for 50 ms: what gives up after that has ended by now
        scene.store.check_alive()
        time.sleep(0.02)
    os.kill(stopped, signal.SIGCONT)
    until("the store is ready", lambda: scene.store.ready, scene.store.check_alive)
    scene.go_on()
    scene.finish()


# The torture itself -----------------------------------------------------------------------------------------


def torture(*arguments: str) -> subprocess.CompletedProcess[str]:
    script = TESTS / "torture_lab" / "kills.py"
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(script.parents[1]), os.environ.get("PYTHONPATH", "")]),
    }
    return subprocess.run(
        [sys.executable, str(script), *arguments], env=environment, capture_output=True, text=True, check=False
    )


def test_a_short_torture_finds_nothing() -> None:
    done = torture("--kills", "60", "--core", "30", "--exec", "6", "--seed", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 lost, 0 reordered, 0 resurrected, 0 duplicated beyond the ack batch" in done.stdout


@pytest.mark.parametrize("core", ["1000", "0"], ids=["c_level", "three_stores"])
def test_the_torture_finds_a_store_that_publishes_before_it_copies(core: str) -> None:
    plan = ("--kills", "1000", "--core", core, "--exec", "0", "--seed", "1")
    done = torture(*plan, "--mutant", "drain.publish_early")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "oracle.Finding" in done.stderr
    assert "--seed 1 --mutant drain.publish_early" in done.stdout


@pytest.mark.parametrize(
    ("error", "planted"),
    [("Finding", [[1, 1]]), ("Stuck", [[0, 1]]), ("OSError", [[0, 1]]), ("KeyboardInterrupt", [])],
)
def test_nothing_but_what_the_judges_see_catches_a_planted_bug(
    error: str, planted: list[list[int]], tmp_path: Path
) -> None:
    program = (
        "import sys; from torture_lab import kills; from support.oracle import Finding, Stuck\n"
        f"def fail(*_): raise {error}\n"
        "kills._torture = fail; sys.argv[1:] = ['--mutant', 'some']; sys.exit(kills.main())"
    )
    environment = {**os.environ, "PYTHONPATH": str(TESTS), "HOLDFAST_EVIDENCE": str(tmp_path)}
    subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert [json.loads(path.read_text())["planted"] for path in tmp_path.glob("torture_planted-*")] == planted
    assert len(list(tmp_path.iterdir())) == len(planted)
