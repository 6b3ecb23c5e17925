"""What stores and readers do over pages that the disk does not give; test_bad_sectors.py runs it,
sectors_shim.c preloaded."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from support.command_line import run
from support.damaged_stores import NAMES, PAYLOAD, clean, filled, held, log_of, place, received, segment
from support.receiving import SHORT, options, until
from support.three_stores import waits

import holdfast as hf
from holdfast.engine.log.check import check_log, check_store
from holdfast.engine.log.info_file import Unknown, peer_view
from holdfast.engine.memory.domain import Domain, unlink_object
from holdfast.engine.rules.reconcile import LogView
from holdfast.engine.store import acks

if TYPE_CHECKING:
    from collections.abc import Callable

    from process.conftest import ThreadStore

    Run = Callable[..., ThreadStore]

PAGE = 4096
EARLY, COUNT = 1000, 3000
SENT = [f"{number:>{PAYLOAD}}".encode() for number in range(COUNT)]


def spoil(path: Path, first: int, behind: int) -> None:
    with Path(os.environ["HF_BAD_SECTORS"]).open("a") as bad:
        bad.write(f"{path.stat().st_ino} {first} {behind}\n")


def spoil_page(directory: Path, number: int, pages: int = 1) -> None:
    at = place(directory, number) // PAGE * PAGE
    spoil(segment(directory), at, at + pages * PAGE)


def publish(src: hf.Source, count: int) -> None:
    for number in range(src.next_sequence_number, src.next_sequence_number + count):
        src.send(f"{number:>{PAYLOAD}}".encode(), timeout=SHORT)
    src.wait_stable(timeout=SHORT)


def kept(run_store: Run, tmp_path: Path, names: str = NAMES, *, early: str = "") -> list[Path]:
    """Stores that have stopped, all with COUNT messages except for ``early``, which has EARLY.

    The head of the first one is as old as a power cut leaves it.
    """
    stores = [run_store(name, "disk") for name in names]
    directories = [tmp_path / f"store-{name}" for name in names]
    with hf.Context() as ctx:
        src = ctx.source("quotes", options=options(*names, ume_session_id=77))
        src.wait_registered(SHORT)
        publish(src, EARLY)
        until("all have it", lambda: all(held(store) == EARLY for store in stores))
        old = (log_of(directories[0]) / "head").read_bytes()
        if early:
            stores[names.index(early)].stop()
        publish(src, COUNT - EARLY)
        rest = [store for name, store in zip(names, stores, strict=True) if name != early]
        until("all have it", lambda: all(held(store) == COUNT for store in rest))
    for store in stores:
        store.stop()
    with (log_of(directories[0]) / "head").open("r+b") as head:
        head.write(old)
    joined = Domain(join=False)
    for item in joined.objects():  # what a power cut takes
        unlink_object(item.name)
    joined.close()
    return directories


def learner(store: ThreadStore) -> bool:
    (source,) = store.store.state.sources
    return source.learner


def test_a_bad_page_is_told_stepped_around_and_repaired(run_store: Run, tmp_path: Path) -> None:
    directories = kept(run_store, tmp_path)
    spoil_page(directories[0], 500)
    code, out, _ = run("store", "check", str(directories[0]), "--json")
    assert code == 5
    found = [one for store in json.loads(out) for log in store["logs"] for one in log["findings"]]
    (finding,) = (one for one in found if one["first"] <= 500 < one["next"])
    assert finding["kind"] == "unreadable"
    for name in NAMES:
        run_store(name, "disk")
    assert received(COUNT) == SENT
    until("it is repaired", lambda: clean(directories[0]))
    assert 500 in filled(directories[0])


def test_what_a_program_holds_is_its_own(run_store: Run, tmp_path: Path) -> None:
    (directory,) = kept(run_store, tmp_path, "a")
    run_store("a", "disk")
    with hf.Context() as ctx:
        rcv = ctx.receiver("quotes")
        message = rcv.receive(timeout=SHORT)
        assert message is not None
        batch = rcv.receive_batch(max_messages=100, timeout=SHORT)
        assert batch is not None
        table, view = batch.to_arrow(), memoryview(message.data)
        before = table.to_pylist()
        spoil(segment(directory), 0, 1 << 30)  # whatever is read from now on
        assert bytes(view) == SENT[0]
        assert table.to_pylist() == before
        view.release()
        message.release()


def test_an_unknown_end_has_no_say_until_it_is_repaired(run_store: Run, tmp_path: Path) -> None:
    directories = kept(run_store, tmp_path)
    spoil_page(directories[0], COUNT - 300, pages=10_000)
    assert isinstance(peer_view(log_of(directories[0])), Unknown)
    a = run_store("a", "disk")
    assert learner(a)
    assert isinstance(peer_view(log_of(directories[0])), Unknown)
    b = run_store("b", "disk")
    until("it has caught up from b alone", lambda: held(a) == COUNT)
    acks.save(a.store.holdings)
    until("its say is back", lambda: not learner(a))
    view = peer_view(log_of(directories[0]))
    assert isinstance(view, LogView)
    assert view.next_sqn == COUNT
    b.stop()
    run_store("c", "disk")
    with hf.Context() as ctx:
        src = ctx.source("quotes", options=options(*NAMES, ume_session_id=77))
        src.wait_registered(SHORT)
        assert src.next_sequence_number == COUNT
    assert received(COUNT) == SENT
    assert not list(log_of(directories[0]).glob("unsure"))


def test_an_unknown_end_waits_for_who_may_know_more(run_store: Run, tmp_path: Path) -> None:
    directories = kept(run_store, tmp_path, early="c")
    spoil_page(directories[0], COUNT - 300, pages=10_000)
    (tmp_path / "store-b").rename(tmp_path / "away")  # it acknowledged the rest together with a
    a = run_store("a", "disk")
    run_store("c", "disk")
    assert learner(a)
    assert check_store(directories[0]).damaged
    with hf.Context() as ctx:
        src = ctx.source("quotes", options=options(*NAMES, ume_session_id=77))
        waits(src, "a has no state of it, or not all; b, which may have, is not there")
        assert learner(a)
        (tmp_path / "away").rename(tmp_path / "store-b")
        run_store("b", "disk")
        src.wait_registered(SHORT)
        assert src.next_sequence_number == COUNT
    assert received(COUNT) == SENT


def test_a_single_store_begins_behind_what_it_may_have_acknowledged(run_store: Run, tmp_path: Path) -> None:
    (directory,) = kept(run_store, tmp_path, "a")
    spoil_page(directory, COUNT - 300, pages=10_000)
    a = run_store("a", "disk")
    assert held(a) < COUNT
    assert check_store(directory).damaged
    with hf.Context() as ctx:
        src = ctx.source("quotes", options=options("a", ume_session_id=77))
        src.wait_registered(SHORT)
        start = src.next_sequence_number
        assert start >= COUNT
        src.send(b"new")
        src.wait_stable(timeout=SHORT)
        assert received(COUNT - 400) == SENT[: COUNT - 400]
    mark = log_of(directory) / "unsure"
    assert not mark.exists()
    mark.write_text("no numbers")
    assert "does not give its end" in check_log(mark.parent).error
