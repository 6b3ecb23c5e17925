"""No thread can be started: a program and a store are told which limit is why, and a store goes on with those
that it has. RLIMIT_NPROC holds for other users than root, so the processes are a stranger's."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.leftovers import remove_objects
from support.limited_role import LimitedRole
from support.workers import until

import holdfast as hf
from holdfast.engine.native import threads
from holdfast.engine.native.limits import Use
from holdfast.engine.native.runtime import threading
from holdfast.engine.store import drainer as drainer_module
from holdfast.engine.store.store import Store, StoreConfig
from holdfast.engine.store.syncers import MOST, Syncers

if TYPE_CHECKING:
    from collections.abc import Iterator

RING = 1 << 16
USER = 1_000_000 + os.getpid() % 100_000
"""Nobody else's, also not that of the same test beside this one: the limit counts all threads of a user."""

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")


class Stranger:
    """Processes of that user, in a directory of its own."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.roles: list[LimitedRole] = []

    def begin(self, name: str, *arguments: str) -> LimitedRole:
        role = LimitedRole(self.base / f"{name}.log", *arguments, ROLE_USER=str(USER), HOME=str(self.base))
        self.roles.append(role)
        return role

    def store(self, *threads: str) -> LimitedRole:
        return self.begin("store", "store", str(self.base / "a"), *threads)


@pytest.fixture
def stranger(monkeypatch: pytest.MonkeyPatch, own_domain: str) -> Iterator[Stranger]:
    base = Path(f"/tmp/hf-{os.getpid()}-threads")  # enterable: the session's own directory is closed to others
    base.mkdir(mode=0o700)
    os.chown(base, USER, USER)
    monkeypatch.setenv("HOLDFAST_DIR", str(base / "domains"))
    made = Stranger(base)
    try:
        yield made
    finally:
        for role in made.roles:
            role.discard()
        os.seteuid(USER)
        remove_objects(base / "domains" / own_domain)
        os.seteuid(0)
        shutil.rmtree(base)


def is_named(said: str, role: LimitedRole) -> None:
    """With what is used: all threads of that user."""
    who = f"process {role.pid}, for the threads of uid {USER},"
    found = re.search(rf"no thread can be started: RLIMIT_NPROC of {who} is (\d+), (\d+) are used", said)
    assert found, said
    assert int(found[2]) >= int(found[1]) > 0, said
    assert "ulimit -u" in said


def test_a_program_whose_context_gets_no_thread_is_told_and_gets_one_when_there_is_room(stranger: Stranger) -> None:
    store = stranger.store()
    until("it is ready", lambda: "store a is ready" in store.log.read_text())
    program = stranger.begin("program", "program")
    program("leave", "threads", 0)
    said = program("context")
    assert said.startswith("LimitReachedError: EAGAIN: thread holdfast-context-")
    is_named(said, program)
    program("room")
    assert program("context") == ""
    assert program("source", "quotes", RING) == program("registered", "quotes") == program("send", "quotes", "x") == ""


@pytest.mark.parametrize("spare", [0, 1, 2])
def test_a_store_that_gets_too_few_threads_says_so_and_ends(stranger: Stranger, spare: int) -> None:
    """Its drain thread, its helper, and the one that serves."""
    store = stranger.store(str(spare))
    assert store.process.wait(90) == 1
    text = store.log.read_text()
    is_named(text, store)
    assert "Traceback" not in text
    assert "is ready" not in text
    again = stranger.store()
    until("the directory is free", lambda: "store a is ready" in again.log.read_text())


def test_a_store_that_gets_no_more_threads_goes_on(stranger: Stranger) -> None:
    """Who syncs several logs at a time was to be started with the second log: the drain thread died of it,
    and the store with it."""
    store = stranger.store()
    until("it is ready", lambda: "store a is ready" in store.log.read_text())
    store("leave", "threads", 0)
    program = stranger.begin("program", "program")
    assert program("context") == ""
    for topic in ("a", "b", "c"):
        assert program("source", topic, RING) == program("registered", topic) == ""
    assert program("send_to_all", 200) == ""
    assert program("close", "a") == ""
    assert program("send", "b", "goes on") == ""
    text = store.log.read_text()
    is_named("".join(line for line in text.splitlines() if "synced one after the other" in line), store)
    assert "Traceback" not in text
    store("room")
    assert program("send_to_all", 200) == ""


@pytest.mark.parametrize("started", [0, 1, MOST - 1])
def test_logs_are_synced_one_after_the_other_and_nothing_twice(monkeypatch: pytest.MonkeyPatch, started: int) -> None:
    """Also where some of the threads start: what a pool has kept that failed is not done later, and it is not
    taken for one that has all its threads."""
    syncers = Syncers("a")
    done: list[int] = []
    left, start = [0], threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if not left[0]:
            raise RuntimeError("can't start new thread")
        left[0] -= 1
        start(thread)

    def sync(number: int) -> int:
        done.append(number)
        return -number

    try:
        with monkeypatch.context() as full:
            full.setattr(threading.Thread, "start", refuse)
            for _ in range(3):
                left[0] = started
                assert syncers.map(sync, range(6)) == [0, -1, -2, -3, -4, -5]
        assert done == [*range(6)] * 3
        together = threading.Barrier(MOST)
        assert sorted(syncers.map(lambda number: together.wait(60) * 0 + number, range(MOST))) == [*range(MOST)]
        with monkeypatch.context() as full:
            full.setattr(threading.Thread, "start", refuse)
            assert sorted(syncers.map(sync, range(6))) == [-5, -4, -3, -2, -1, 0], "all its threads are there"
    finally:
        syncers.close()


def test_a_limit_that_is_not_known_is_not_blamed(monkeypatch: pytest.MonkeyPatch) -> None:
    uses = [
        Use("pids.max", "control group /x", 5, 100, "raise it"),
        Use("kernel.threads-max", "the machine", 7, 900, ""),
    ]
    monkeypatch.setattr(threads, "_uses", lambda: iter(uses))
    error = threads.no_thread("thread x")
    assert (type(error), str(error)) == (
        hf.SystemCallError,
        f"EAGAIN: thread x: no thread can be started; {error.hint}",
    )
    uses[0] = uses[0]._replace(used=97)
    error = threads.no_thread("thread x")
    assert isinstance(error, hf.LimitReachedError)
    assert str(error) == (
        "EAGAIN: thread x: no thread can be started: pids.max of control group /x is 100, 97 are used; raise it"
    )


def test_the_control_groups_of_a_process_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    files = {
        "/proc/self/cgroup": "8:pids:/docker/x\n4:memory:/y\n0::/system.slice/a.service\n",
        "/sys/fs/cgroup/system.slice/pids.max": "max\n",
        "/sys/fs/cgroup/system.slice/a.service/pids.max": "64\n",
        "/sys/fs/cgroup/system.slice/a.service/pids.current": "63\n",
        "/sys/fs/cgroup/pids/docker/pids.max": "99\n", "/sys/fs/cgroup/pids/docker/pids.current": "1\n",
    }  # fmt: skip
    monkeypatch.setattr(threads, "read_text", files.get)
    found = [(use.whose, use.used, use.most) for use in threads._uses() if use.limit == "pids.max"]
    groups = "control group /sys/fs/cgroup/"
    assert found == [(f"{groups}pids/docker", 1, 99), (f"{groups}system.slice/a.service", 63, 64)]


def test_a_store_whose_second_thread_cannot_be_started_closes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start = threads.start_thread

    def only_the_first(thread: threading.Thread) -> None:
        if thread.name == "holdfast-segments":
            raise threads.no_thread(thread.name)
        start(thread)

    store = Store(StoreConfig("a", tmp_path / "a"))
    with monkeypatch.context() as full:
        full.setattr(drainer_module, "start_thread", only_the_first)
        with pytest.raises(hf.SystemCallError, match="holdfast-segments: no thread"):
            store.open()
        store.close()
    again = Store(StoreConfig("a", tmp_path / "a"))
    again.open()
    again.close()
