"""What a deregistered source leaves in shared memory: nothing, where its stores answer; and where they do
not, or it is killed, nobody waits for it, and a store or `holdfast gc` takes it away (docs/semantics.md
F.7)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from support.command_line import run, stat
from support.workers import until

import holdfast as hf
from holdfast.cli.operate import deregister
from holdfast.engine.client import context as context_module
from holdfast.engine.log.stale_rings import StaleRings, unlink_deregistered
from holdfast.engine.memory.domain import SHM_DIR, Domain
from holdfast.engine.store import expiry
from holdfast.engine.store.expiry import Expiry
from holdfast.engine.tools.gc import sweep
from holdfast.engine.tools.snapshot import ends

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import Any

    from process.conftest import ThreadStore

    from holdfast.engine.control import wire

SHORT = 90.0
PROGRAM = """
import os, sys, time
import holdfast as hf

names = [f"{name}:0:0" for name in sys.argv[2]]
with hf.Context() as ctx:
    src = ctx.source("quotes", options={"ume_store_name": names, "ring_size": 1 << 16})
    src.wait_registered(90)
    src.wait_stable(src.send(b"one"), timeout=90)
    if sys.argv[1] == "waits":
        print("ready", flush=True)
        sys.stdin.readline()
    src.deregister()
    if sys.argv[1] != "leaves":
        os.kill(os.getpid(), 9)
    begun = time.monotonic()
sys.exit(7 if time.monotonic() - begun >= 1 else 0)
"""
LATE = 7
"""How it ends where its stores took longer than a close waits for them."""


@pytest.fixture
def there() -> Iterator[Domain]:
    domain = Domain()
    yield domain
    domain.close()


def left(domain: Domain) -> list[str]:
    """What there is of sources."""
    return [item.kind for item in domain.objects() if item.uuid]


def program(how: str, stores: str = "a") -> int:
    return subprocess.run([sys.executable, "-c", PROGRAM, how, stores], check=False).returncode


def no_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """No store takes anything away, a ring that is drained neither."""
    monkeypatch.setattr(StaleRings, "tidy", lambda *_: None)
    monkeypatch.setattr(Expiry, "_let_go_deregistered", lambda _: None)


def all_forgot(store: ThreadStore) -> None:
    until("the store forgets it", lambda: not store.store.state.sources)


@pytest.mark.parametrize("stores", ["a", "ab"])
def test_a_program_that_leaves_at_once_leaves_nothing(
    run_store: Callable[..., ThreadStore], there: Domain, monkeypatch: pytest.MonkeyPatch, stores: str
) -> None:
    no_look(monkeypatch)
    for name in stores:
        run_store(name, "disk")
    while (code := program("leaves", stores)) == LATE:
        sweep(there, everything=True)
    assert code == 0
    assert left(there) == []


def test_a_store_takes_away_what_a_program_that_was_killed_leaves(
    run_store: Callable[..., ThreadStore], there: Domain
) -> None:
    run_store("a", "disk")
    assert program("is killed") == -signal.SIGKILL
    until("a store has taken its names away", lambda: left(there) == [])


def test_nobody_waits_for_what_a_program_that_was_killed_leaves_and_gc_takes_it_away(
    run_store: Callable[..., ThreadStore], there: Domain, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_look(monkeypatch)
    store = run_store("a", "disk")
    assert program("is killed") == -signal.SIGKILL
    all_forgot(store)
    assert "stream" in left(there)
    until("its state says so", lambda: ends(there, "quotes") == {})
    assert run("recv", "quotes", "--exit-at-end") == (0, "", "")
    assert run("gc")[0] == 0
    assert left(there) == []


def test_it_stays_while_another_store_keeps_the_source(
    run_store: Callable[..., ThreadStore], there: Domain, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Which was dead, and was not asked."""
    store = run_store("a", "disk")
    config = hf.StoreConfig("b", tmp_path / "other", there.name)
    other = hf.spawn_store(config, timeout=SHORT)
    child = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "waits", "ab"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    os.kill(other.pid, signal.SIGKILL)
    other.wait(SHORT)
    look = Expiry._let_go_deregistered
    no_look(monkeypatch)
    child.communicate("go\n")
    assert child.returncode == -signal.SIGKILL
    all_forgot(store)
    stored = left(there)
    assert "stream" in stored
    look(store.store._expiry)
    assert left(there) == stored
    assert run("gc")[0] == 0
    assert "stream" in left(there), "what a store that is away may still want stays"
    assert ends(there, "quotes"), "a store has its messages"
    other = hf.spawn_store(config, timeout=SHORT)
    try:
        (row,) = stat()["sources"]
        deregister("b", row["registration_ids"]["b"], 0, False, SHORT, None)
        look(store.store._expiry)
        assert left(there) == []
    finally:
        other.stop()
        other.wait(SHORT)


def test_a_ring_of_another_life_keeps_all_of_them(
    run_store: Callable[..., ThreadStore], there: Domain, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_look(monkeypatch)
    store = run_store("a", "disk")
    assert program("is killed") == -signal.SIGKILL
    all_forgot(store)
    (uuid,) = {item.uuid for item in there.objects() if item.uuid}
    stored, another = left(there), SHM_DIR / there.stream_name(uuid, 9)
    another.touch(mode=0o600)
    unlink_deregistered(there, uuid)
    assert left(there) == [*stored, "stream"]
    another.unlink()

    def is_gone() -> bool:
        unlink_deregistered(there, uuid)
        return left(there) == []

    until("the store has let go of the ring, too", is_gone)


def test_what_another_store_keeps_is_read_once_for_all_that_is_left(
    run_store: Callable[..., ThreadStore], there: Domain, monkeypatch: pytest.MonkeyPatch
) -> None:
    """10,000 left beside 10,000 kept were compared 10^8 times."""
    look = Expiry._let_go_deregistered
    no_look(monkeypatch)
    store = run_store("a", "disk").store
    run_store("b", "disk")
    looked: list[bytes] = []
    going: list[bytes] = []

    class Kept:
        """A source in the state of store b."""

        def __init__(self, uuid: bytes) -> None:
            self._uuid = uuid

        @property
        def uuid(self) -> bytes:
            looked.append(self._uuid)
            return self._uuid

    uuids = [bytes([number]) * 16 for number in range(1, 5)]
    rings = [SHM_DIR / there.stream_name(uuid, 1) for uuid in uuids]
    for ring in rings:
        ring.touch(mode=0o600)
    try:
        store.sources.left |= set(uuids)
        state = SimpleNamespace(sources=[Kept(uuid) for uuid in uuids[:2]])
        monkeypatch.setattr(expiry, "state_of", lambda *_: state)
        monkeypatch.setattr(expiry, "unlink_deregistered", lambda _, uuid: going.append(uuid))
        look(store._expiry)
        assert (sorted(going), looked) == (uuids[2:], uuids[:2])
        monkeypatch.setattr(expiry, "state_of", lambda *_: None)
        look(store._expiry)
        assert sorted(going) == uuids[2:], "of a store that cannot be read nobody knows what it keeps"
    finally:
        for ring in rings:
            ring.unlink()


def test_leaving_waits_for_the_answers_a_second_in_all(monkeypatch: pytest.MonkeyPatch, own_domain: str) -> None:
    """However many stores do not answer."""

    class Clock:
        now = 0

        def monotonic_ns(self) -> int:
            return self.now

    class Silent:
        def settle(self, timeout_ns: int, clock: Callable[[], int], asked: set[int] | None) -> None:
            assert clock() == now.now
            assert asked is None
            waited.append(timeout_ns)
            now.now += max(0, timeout_ns) if len(waited) > 1 else 400_000_000

    class Child:
        def leave_requests(self) -> list[tuple[Any, wire.Leave]]:
            return []

    now, waited = Clock(), list[int]()
    with hf.Context(own_domain, options={"operational_mode": "sequential"}) as ctx:
        links: list[Any] = [Silent(), Silent(), Silent()]
        with monkeypatch.context() as patch:
            patch.setattr(context_module, "time", now)
            ctx.leave(Child(), None, links)
    assert waited == [1_000_000_000, 600_000_000, 0]
