"""Receivers that nobody asked to keep leave nothing at stores that see their end, and lose nothing before
(docs/semantics.md A.4)."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.paced_source import DISK, LIMIT, SIZE
from support.paced_source import SOURCE as PACED
from support.workers import until

import holdfast as hf
from holdfast.engine.log.state_file import StateFile
from holdfast.engine.memory.domain import Domain
from holdfast.engine.tools import snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from process.conftest import ThreadStore

    from holdfast.engine.log.state_file import ReceiverState

SHORT = 90.0
SOON = {"receiver-activity-timeout": 20, "source-check-interval": 5}
SOURCE = {"ume_store_name": ["a:0:0"], "ring_size": 1 << 17, "fragment_size": 4096}
LOOKS = 10

RECEIVING = """
import os, sys, time
import holdfast as hf
options = eval(sys.argv[1])
if "callback" in options:
    options["ume_registration_extended_function"] = lambda info, wanted=options.pop("callback"): wanted
with hf.Context(options={"ume_ack_batching_interval": 1}) as ctx:
    rcv = ctx.receiver("quotes", options=options)
    for line in sys.stdin:
        if line == "close\\n":
            rcv.close()
            print("closed", flush=True)
        elif line == "fork\\n":
            if os.fork() == 0:
                os.close(1)
                time.sleep(300)
            print("forked", flush=True)
        else:
            with rcv.receive(timeout=90) as message:
                print(bytes(message).decode(), flush=True)
"""


class Receiving:
    """A process with one receiver that does what it is told."""

    def __init__(self, **options: Any) -> None:
        command = [sys.executable, "-c", RECEIVING, repr(options)]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(command, start_new_session=True, **pipes)

    def does(self, word: str) -> str:
        """What it answers to ``word``; "" at its end."""
        self.asks(word)
        return self.answer()

    def asks(self, word: str) -> None:
        """Does not wait for the answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()

    def answer(self) -> str:
        """The next one."""
        assert self.process.stdout is not None
        return str(self.process.stdout.readline().strip())

    def close(self) -> None:
        """Its pipes."""
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()

    def dies(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.wait(SHORT)

    def leaves(self) -> None:
        """A clean end."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(SHORT) == 0


@pytest.fixture
def receiving() -> Iterator[Callable[..., Receiving]]:
    started: list[Receiving] = []

    def start(**options: Any) -> Receiving:
        started.append(Receiving(**options))
        return started[-1]

    yield start
    for each in started:
        with contextlib.suppress(ProcessLookupError):  # with what it has forked
            os.killpg(each.process.pid, signal.SIGKILL)
        each.process.wait(SHORT)
        each.close()


@pytest.fixture
def src() -> Iterator[Callable[..., hf.Source]]:
    """Makes the one source, with two messages."""
    with hf.Context() as ctx:

        def make(**options: Any) -> hf.Source:
            made = ctx.source("quotes", options={**SOURCE, **options})
            made.wait_registered(SHORT)
            for data in (b"0", b"1"):
                made.send(data)
            return made

        yield make


def receivers(store: ThreadStore) -> list[ReceiverState]:
    return [receiver for source in store.store.state.sources for receiver in source.receivers]


def on_disk(store: ThreadStore) -> list[ReceiverState]:
    state = StateFile(Path(store.store.config.directory)).load()
    return [receiver for source in state.sources for receiver in source.receivers] if state is not None else []


def looks(store: ThreadStore, count: int = LOOKS) -> None:
    expiry = store.store._expiry
    for _ in range(count):
        due = expiry.due_s
        until("the store looks", lambda: expiry.due_s != due)  # noqa: B023


def shown(domain: str) -> list[snapshot.ReceiverRow]:
    here = Domain(domain, join=False)
    try:
        return snapshot.take(here).receivers
    finally:
        here.close()


@pytest.mark.parametrize("end", ["leaves", "dies"])
@pytest.mark.parametrize("names", ["a", "ab"])
def test_it_leaves_nothing_at_any_store_nor_a_row_in_what_is_shown(
    run_store: Callable[..., ThreadStore], src: Any, receiving: Any, own_domain: str, end: str, names: str
) -> None:
    stores = [run_store(name, "disk", **SOON) for name in names]
    src(ume_store_name=[f"{name}:0:0" for name in names])
    it = receiving()
    assert it.does("receive") == "0"
    until("all stores know it", lambda: all(len(receivers(store)) == 1 for store in stores))
    assert [row.alive for row in shown(own_domain)] == [True]
    getattr(it, end)()
    until("all stores have forgotten it", lambda: not any(map(receivers, stores)))
    until("on disk, too", lambda: not any(map(on_disk, stores)))
    assert shown(own_domain) == []


@pytest.mark.parametrize(
    ("row", "of_store", "of_receiver"),
    [
        ("a session", {}, {"ume_session_id": 5}),
        ("a callback that names a RegID", {}, {"callback": 7}),
        ("a callback that takes what it is given, and may name it again", {}, {"callback": 0}),
        ("a lifetime of the receiver's", {}, {"ume_state_lifetime": 600_000}),
        ("a lifetime of the store's", {"receiver-state-lifetime": 600_000}, {}),
    ],
)
@pytest.mark.parametrize("end", ["leaves", "dies"])
def test_what_somebody_asked_to_keep_stays(
    run_store: Callable[..., ThreadStore], src: Any, receiving: Any, row: str, of_store: Any, of_receiver: Any, end: str
) -> None:
    store = run_store("a", **SOON, **of_store)
    src()
    it = receiving(**of_receiver)
    assert it.does("receive") == "0"
    getattr(it, end)()
    until(f"{row}: its absence is noticed", lambda: receivers(store)[0].gone_ns)
    looks(store)
    assert len(receivers(store)) == 1, row


def test_a_regid_that_a_callback_names_is_kept_though_the_store_gave_it_to_a_throw_away(
    run_store: Callable[..., ThreadStore], src: Any, receiving: Any
) -> None:
    store = run_store("a", **SOON, **{"receiver-state-lifetime": 600_000})
    src()
    it = receiving()
    assert it.does("receive") == "0"
    until("it is acknowledged", lambda: receivers(store)[0].ack == 1)
    it.dies()
    heir = receiving(callback=receivers(store)[0].registration_id)
    assert heir.does("receive") == "1"
    assert [(each.ephemeral, each.holder) for each in receivers(store)] == [(False, (0, 0, 0))]


@pytest.mark.parametrize("end", ["dies", "leaves"])
def test_who_ends_while_the_store_is_down_goes_at_its_next_start(
    run_store: Callable[..., ThreadStore], src: Any, receiving: Any, end: str
) -> None:
    store = run_store("a", "disk", **SOON)
    src()
    it = receiving()
    assert it.does("receive") == "0"
    store.stop()
    assert len(on_disk(store)) == 1
    getattr(it, end)()
    store = run_store("a", "disk", **SOON)
    until("it has gone", lambda: not receivers(store))


def test_who_closes_while_the_store_is_down_goes_though_its_process_lives(
    run_store: Callable[..., ThreadStore], src: Any, receiving: Any
) -> None:
    store = run_store("a", "disk", **SOON)
    src()
    it = receiving()
    assert it.does("receive") == "0"
    store.stop()
    assert it.does("close") == "closed"
    store = run_store("a", "disk", **SOON)
    until("it has gone", lambda: not receivers(store))
    assert it.process.poll() is None


def test_a_store_that_restarts_under_it_takes_nothing_from_it(
    run_store: Callable[..., ThreadStore], src: Any, receiving: Any
) -> None:
    store = run_store("a", "disk", **SOON)
    src()
    it = receiving()
    assert it.does("receive") == "0"
    until("it is acknowledged", lambda: receivers(store)[0].ack == 1)
    (before,) = receivers(store)
    store.stop()
    store = run_store("a", "disk", **SOON)
    looks(store)
    (after,) = receivers(store)
    assert (after.uuid, after.registration_id, after.ack) == (before.uuid, before.registration_id, 1)
    assert it.does("receive") == "1"


@pytest.mark.parametrize("board", ["its line is there", "its line is gone"])
def test_a_link_that_is_cut_takes_nothing_from_who_lives(
    run_store: Callable[..., ThreadStore], src: Any, receiving: Any, own_domain: str, board: str
) -> None:
    store = run_store("a", "disk", **SOON)
    src()
    it = receiving()
    assert it.does("receive") == "0"
    until("it is acknowledged", lambda: receivers(store)[0].ack == 1)
    (before,) = receivers(store)
    path = store.store.holdings.domain.socket_path("a")
    path.rename(path.with_suffix(".away"))  # nobody connects again
    pid = it.process.pid
    for client in store.store.receivers._clients:
        if client.pid == pid:
            client.sock.shutdown(socket.SHUT_RDWR)
    until("the store has noticed", lambda: pid not in {client.pid for client in store.store.receivers._clients})
    if board == "its line is gone":
        store.store.receivers.holder = lambda *_: None  # type: ignore[method-assign]
    looks(store)
    assert [(each.uuid, each.ack) for each in receivers(store)] == [(before.uuid, 1)]
    it.dies()
    until("its process is dead", lambda: not receivers(store))


def test_a_forked_child_that_keeps_its_socket_does_not_keep_it(
    run_store: Callable[..., ThreadStore], src: Any, receiving: Any
) -> None:
    store = run_store("a", **SOON)
    src()
    it = receiving()
    assert it.does("receive") == "0"
    assert it.does("fork") == "forked"
    looks(store)
    assert len(receivers(store)) == 1
    it.dies()
    until("its process is dead, and the connection still open", lambda: not receivers(store))


@pytest.mark.parametrize("end", ["leaves", "dies"])
def test_a_receiver_paced_source_waits_for_it_while_it_lives_and_no_longer(
    run_store: Callable[..., ThreadStore], receiving: Any, end: str
) -> None:
    store = run_store("a", "disk", **(DISK | SOON))
    with hf.Context() as ctx:
        src = ctx.source("quotes", options=PACED)
        src.wait_registered(SHORT)
        it = receiving(ume_receiver_paced_persistence=1)
        it.asks("receive")
        until("it has joined", lambda: any(row.alive for row in shown(ctx.domain.path.name)))
        for _ in range(LIMIT // SIZE):
            src.send(b"x" * SIZE, timeout=SHORT)
        assert it.answer() != ""
        looks(store)
        assert src.stable_sequence_number < LIMIT // SIZE - 1, "what it has not acknowledged is withheld"
        getattr(it, end)()
        src.wait_stable(timeout=SHORT)
        assert receivers(store) == []


def test_of_a_shelved_log_it_goes_without_opening_that(
    run_store: Callable[..., ThreadStore], src: Any, receiving: Any
) -> None:
    store = run_store("a", "disk", **SOON)
    made = src()
    it = receiving()
    assert it.does("receive") == "0"
    (source,) = store.store.state.sources
    (kept,) = receivers(store)
    made.close()
    store.stop()
    it.dies()
    store = run_store("a", "disk", **SOON)
    until("it has gone", lambda: not receivers(store))
    (source,) = store.store.state.sources
    source.receivers.append(kept)  # as if a crash had brought it back behind the shelving
    source.shelved = source.incarnation
    until("it has gone again", lambda: not receivers(store))
    assert source.is_shelved
