"""kill -9 between grant and BEGIN, of the claimant or of a store (docs/design.md 13): the next claimant
starts behind everything that is stable, and by its number nobody else has begun.

The stores' processes are killed, too, and boards and rings removed, as by a reboot: what a store has promised
is then known from its directory alone.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from support.kept_messages import kept
from support.leftovers import remove_objects
from support.stores_process import House
from support.three_stores import SHORT, SOURCE, everywhere
from support.workers import until

import holdfast as hf
from holdfast.engine.control import wire
from holdfast.engine.log.state_file import SourceState, StateFile
from holdfast.engine.store.clients import Client

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from process.conftest import ThreadStore

    RunStore = Callable[..., ThreadStore]

SESSION = 7
PATIENT = {**SOURCE, "ume_registration_interval": 60_000}
"""It asks a store once, and begins when all three have granted."""

CLAIMANT = """
import os, signal, sys
import holdfast as hf
from holdfast.engine.control import wire
from holdfast.engine.source.session import SourceSession

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def die_of_a_grant(self, store, answer, answered=SourceSession._answered):
    if isinstance(answer, wire.SourceGranted):
        die()
    answered(self, store, answer)

if sys.argv[1] == "one grant":
    SourceSession._answered = die_of_a_grant
if sys.argv[1] == "all grants":
    SourceSession._announce = die
hf.Context(session_id=SESSION).source("quotes", options=PATIENT).wait_registered(90)
"""

STORE = """
import os, signal, sys
from holdfast.engine.store.sources import SourceDesk
from holdfast.engine.store.store import Store, StoreConfig

def die_before_it_answers(self, *asked, number=SourceDesk._number):
    number(self, *asked)
    os.kill(os.getpid(), signal.SIGKILL)

SourceDesk._number = die_before_it_answers
store = Store(StoreConfig("a", sys.argv[1], type="disk"))
store.open()
print("open", flush=True)
store.run()
"""


def claimant(dies_of: str) -> subprocess.Popen[bytes]:
    """A process that claims the source at all three stores. ``dies_of``: one grant, all grants (its ring is
    there, and BEGIN is not sent), or nothing."""
    code = CLAIMANT.replace("SESSION", str(SESSION)).replace("PATIENT", repr(PATIENT))
    return subprocess.Popen([sys.executable, "-c", code, dies_of])


def dies(process: subprocess.Popen[bytes]) -> None:
    assert process.wait(SHORT) == -signal.SIGKILL


def on_disk(path: Path, name: str) -> SourceState:
    """What the directory of a store says of the source."""
    state = StateFile(path / name).load()
    assert state is not None
    (source,) = state.sources
    return source


def payloads(life: int, numbers: range) -> list[tuple[int, bytes]]:
    return [(number, b"%d in life %d" % (number, life)) for number in numbers]


def live(life: int, numbers: range) -> None:
    """A life of the source at all three stores, which gives these numbers to messages that say the life. It
    hears all of them before it begins: a quorum that promised less would do, if the others are slow."""
    with hf.Context(session_id=SESSION) as ctx, ctx.source("quotes", options=PATIENT) as src:
        everywhere(src)
        assert src.next_sequence_number == numbers[0]
        for _, payload in payloads(life, numbers):
            src.send(payload)
        src.wait_stable(timeout=SHORT)


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    """Stores a, b and c in a process of their own, which has 0..4 of life 1."""
    made = House(tmp_path, {name: {"type": "disk"} for name in "abc"})
    made.open()
    try:
        live(1, range(5))
        until("all have it", lambda: all(len(kept(tmp_path / name)) == 5 for name in "abc"))
        yield made
    finally:
        made.kill()


@pytest.fixture
def reboot(run_store: RunStore, own_domain: str) -> Callable[[], dict[str, ThreadStore]]:
    """When all stores are dead: nothing is left but their directories, and they start."""

    def start() -> dict[str, ThreadStore]:
        remove_objects(own_domain)
        return {name: run_store(name, "disk", directory=name) for name in "abc"}

    return start


def judge(stores: dict[str, ThreadStore], begins: list[tuple[int, int]]) -> None:
    """A last life has these BEGINs, and each number has one content, at every store."""
    live(2, range(5, 10))
    until("all have it", lambda: all(len(kept(store)) == 10 for store in stores.values()))
    for store in stores.values():
        (source,) = store.store.state.sources
        assert source.begins == begins
        assert kept(store) == payloads(1, range(5)) + payloads(2, range(5, 10))


@pytest.mark.parametrize("dies_of", ["one grant", "all grants"])
def test_a_claimant_that_dies_of_its_grants(
    house: House, tmp_path: Path, reboot: Callable[[], dict[str, ThreadStore]], dies_of: str
) -> None:
    if dies_of == "one grant":
        house.tell("stop", "b", "c")
    dies(claimant(dies_of))
    house.kill()
    asked = "a" if dies_of == "one grant" else "abc"
    said = {name: on_disk(tmp_path, name) for name in "abc"}
    assert {name: source.promised for name, source in said.items()} == {name: 1 + (name in asked) for name in "abc"}
    assert all(source.begins == [(1, 0)] for source in said.values())
    judge(reboot(), [(1, 0), (3, 5)])


def test_what_was_promised_to_a_later_claimant_is_kept(
    house: House, tmp_path: Path, reboot: Callable[[], dict[str, ThreadStore]]
) -> None:
    """Two die before BEGIN, and the stores with them. BEGIN of the first one comes late."""
    dies(claimant("all grants"))
    first = {name: on_disk(tmp_path, name).promised_to for name in "abc"}
    dies(claimant("all grants"))
    house.kill()
    stores = reboot()
    for name, store in stores.items():
        (source,) = store.store.state.sources
        assert (source.promised, source.promised_to != first[name]) == (3, True)
        ours, theirs = socket.socketpair()
        with ours, theirs:
            late = wire.Begin(1, source.uuid, 2, 5, "", list("abc"), begins=[(1, 0)], claimant=first[name])
            answer = store.store.sources.begin(Client(ours, 1), late)
        assert isinstance(answer, wire.Refused)
        assert answer.text == "incarnation 2 was not promised: a later claimant was told 3"
    judge(stores, [(1, 0), (4, 5)])


@pytest.fixture
def store_dies_of_a_promise(house: House, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Store a alone, in a process of its own: its promise is on disk, and not answered."""
    house.tell("stop", "a")
    process = subprocess.Popen([sys.executable, "-c", STORE, str(tmp_path / "a")], stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout as said:
        assert said.readline() == b"open\n"
    yield process
    process.kill()
    process.wait()


def test_a_claimant_goes_on_without_a_store_that_dies_of_its_promise(
    house: House, store_dies_of_a_promise: subprocess.Popen[bytes], tmp_path: Path, run_store: RunStore
) -> None:
    house.tell("stop", "b", "c")  # which might let it begin before that store is asked
    with hf.Context(session_id=SESSION) as ctx, ctx.source("quotes", options=SOURCE) as src:
        dies(store_dies_of_a_promise)
        assert on_disk(tmp_path, "a").promised == 2
        house.tell("start", "b", "c")
        src.wait_registered(SHORT)
        for number, payload in payloads(2, range(5, 10)):
            assert src.send(payload) == number
        src.wait_stable(timeout=SHORT)
        store = run_store("a", "disk", directory="a")
        everywhere(src)
        (source,) = store.store.state.sources
        assert (source.begins, source.promised) == ([(1, 0), (2, 5)], 2)
        until("it has all of it", lambda: kept(store) == payloads(1, range(5)) + payloads(2, range(5, 10)))


def test_what_a_store_has_promised_without_an_answer_is_kept(
    house: House,
    store_dies_of_a_promise: subprocess.Popen[bytes],
    tmp_path: Path,
    reboot: Callable[[], dict[str, ThreadStore]],
) -> None:
    """Nobody else was there, and the claimant dies, too."""
    house.tell("stop", "b", "c")
    with claimant("nothing") as process:
        try:
            dies(store_dies_of_a_promise)
        finally:
            process.kill()
    assert {name: on_disk(tmp_path, name).promised for name in "abc"} == {"a": 2, "b": 1, "c": 1}
    house.kill()
    judge(reboot(), [(1, 0), (3, 5)])
