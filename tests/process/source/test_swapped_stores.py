"""Stores that are started under other names than before: no copy of a message counts for two of them, and
each keeps its messages for itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.three_stores import SHORT, SOURCE, everywhere, send
from support.workers import Worker, stand_still, until

import holdfast as hf

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from process.conftest import ThreadStore

BOTH: dict[str, Any] = {**SOURCE, "ume_store_name": ["a:0:0", "b:0:0"]}


@pytest.fixture
def run_process(tmp_path: Path, own_domain: str) -> Iterator[Callable[[str, str], Worker]]:
    """Starts a store in a process of its own, by name, on this directory: a line tells by its owner's process
    who has it."""
    started: list[Worker] = []

    def run(name: str, directory: str) -> Worker:
        started.append(Worker("store", tmp_path, domain=own_domain, name=name, directory=str(tmp_path / directory)))
        return started[-1].start().wait_ready()

    yield run
    for worker in started:
        worker.discard()


def sent_and_killed(src: hf.Source, data: bytes, *stores: Worker) -> None:
    """None of the stores has the message. They stand when it is sent: with them dead, the source may have no
    quorum any more."""
    for store in stores:
        assert store.process is not None
        stand_still(store.process.pid)
    src.send(data)
    for store in stores:
        store.discard()


def test_a_store_on_the_directory_of_another_one_does_not_count_for_both(
    run_process: Callable[[str, str], Worker],
) -> None:
    """It has that one's line on the board, and the source has not heard that this one is gone for good."""
    stores = [run_process("a", "store-a"), run_process("b", "store-b")]
    with hf.Context(session_id=7) as ctx, ctx.source("quotes", options=BOTH) as src:
        everywhere(src)
        send(src, 1)
        sent_and_killed(src, b"1", *stores)
        run_process("a", "store-b")
        until("a has it", lambda: src.stats().stores["a"].stable_sequence_number == 1)
        assert src.stats().stores["b"].stable_sequence_number == -1
        with pytest.raises(hf.StabilityTimeout):
            src.wait_stable(timeout=0)
        run_process("b", "store-a")
        src.wait_stable(timeout=SHORT)


def test_what_a_directory_was_counted_for_under_one_name_it_does_not_count_for_under_another(
    run_process: Callable[[str, str], Worker],
) -> None:
    stores = {name: run_process(name, f"store-{name}") for name in "ab"}
    with hf.Context(session_id=7) as ctx, ctx.source("quotes", options=BOTH) as src:
        everywhere(src)
        send(src, 1)
        sent_and_killed(src, b"1", stores["b"])
        until("a has it", lambda: src.stats().stores["a"].stable_sequence_number == 1)
        stores["a"].discard()
        run_process("b", "store-a")
        until("b has it", lambda: src.stats().stores["b"].stable_sequence_number == 1)
        with pytest.raises(hf.StabilityTimeout):
            src.wait_stable(timeout=0)
        run_process("a", "store-b")
        src.wait_stable(timeout=SHORT)


def test_a_sequential_source_that_waits_hears_a_store_that_has_started_again(
    run_process: Callable[[str, str], Worker],
) -> None:
    """It looks at the board, and at nothing else, while it waits."""
    store = run_process("a", "store-a")
    options = {**SOURCE, "ume_store_name": ["a:0:0"]}
    sequential = {"operational_mode": "sequential"}
    with hf.Context(session_id=7, options=sequential) as ctx, ctx.source("quotes", options=options) as src:
        src.wait_registered(SHORT)
        send(src, 1)
        sent_and_killed(src, b"1", store)
        run_process("a", "store-a")
        src.wait_stable(timeout=SHORT)


def test_a_memory_store_leaves_alone_what_another_one_of_its_name_keeps(run_store: Callable[..., ThreadStore]) -> None:
    """That one has another name now. Its messages lie where it has put them first."""

    def sent(*names: str) -> None:
        options = {**SOURCE, "ume_store_name": [f"{name}:0:0" for name in names]}
        with hf.Context(session_id=7) as ctx, ctx.source("quotes", options=options) as src:
            everywhere(src)
            send(src, 1)

    first = run_store("a", directory="first")
    sent("a")
    first.stop()
    stores = [run_store("z", directory="first"), run_store("a", directory="second")]
    sent("z", "a")
    assert [len(each.store.state.sources) for each in stores] == [1, 1]
    logs = [next(each.store.logs.iterdir()) for each in stores]
    assert logs[0].name == logs[1].name, "it is the same source"
    assert logs[0].resolve() != logs[1].resolve()


def seated(src: hf.Source, seats: int) -> None:
    until("all seats are taken", lambda: [at.state for at in src.stats().stores.values()].count("active") == seats)
    src.wait_registered(SHORT)


@pytest.mark.parametrize(("seats", "lives"), [(1, True), (2, True), (2, False)])
def test_a_store_that_loses_its_state_and_one_that_is_exchanged_with_it_keep_all_messages(
    run_store: Callable[..., ThreadStore], tmp_path: Path, seats: int, lives: bool
) -> None:
    """Simulator seeds 16454 and 13715. ``lives``: the source is registered with the store again. Without that
    and with one seat no store would know it, and it would be a new one (docs/design.md 15)."""
    options = {**BOTH, "ume_store_group": [f"0:{seats}"], "ume_registration_interval": 60_000 if seats == 1 else 100}
    stores = {name: run_store(name, "disk") for name in "ab"}

    def lose_state() -> None:
        stores["a"].stop()
        for file in (tmp_path / "store-a").glob("state.*"):
            file.unlink()

    with hf.Context(session_id=7) as ctx:
        with ctx.source("quotes", options=options) as src:
            src.wait_registered(SHORT)
            seated(src, seats)
            send(src, 3)
            if lives:
                lose_state()
                until("it is missed", lambda: src.stats().stores["a"].state != "active")
                stores["a"] = run_store("a", "disk")
                seated(src, seats)
                send(src, 1)
        if not lives:
            lose_state()
        for store in stores.values():
            store.stop()
        run_store("a", "disk", directory="store-b")
        run_store("b", "disk", directory="store-a")
        with ctx.source("quotes", options=options) as src:
            src.wait_registered(SHORT)
            assert src.next_sequence_number == 3 + lives
            src.send(b"last")
            src.wait_stable(timeout=SHORT)
            with hf.Context(session_id=9) as other, other.receiver("quotes") as rcv:
                for number in range(4 + lives):
                    with rcv.receive(SHORT) as message:  # type: ignore[union-attr]  # it comes
                        assert message.sequence_number == number
