"""hf.read: what stores and rings have of a topic is read, by whoever does not take part; and what it cannot
know is an error."""

from __future__ import annotations

import itertools
import os
import signal
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.leftovers import objects_of
from support.receiving import SHORT, options, send, source, until_no_ring
from support.topic_reading import numbers, payloads

import holdfast as hf
from holdfast.engine.log.catalog import topic_sources
from holdfast.engine.log.column_reader import Columns, Gap, Records
from holdfast.engine.log.reader import Block
from holdfast.engine.log.ring_copy import RingCopy
from holdfast.engine.memory.domain import domain_directory
from holdfast.engine.memory.mapping import attach_board, read_lines
from holdfast.engine.tools import snapshot

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from process.conftest import ThreadStore
    from support.stalled_store import Scene

    Run = Callable[..., ThreadStore]

SENT = [b"one", b"", b"\x00\xff", b"x" * 1000, b"y" * 150_000, b"", b"z" * 64]
"""Fragments are 64 KiB: the fifth has three."""


def when(number: int, topic: str = "quotes") -> datetime:
    """The time of a message, as far as a datetime has it: not after it."""
    frames = np.concatenate([batch.frames for batch in hf.read(topic)])
    time_ns = int(frames["timestamp_ns"][frames["sequence_number"] == number][0])
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time_ns // 1000)


# What was sent is what is read ------------------------------------------------------------------------------


@pytest.mark.parametrize("running", [True, False])
@pytest.mark.parametrize("kind", ["memory", "disk"])
def test_a_closed_source_is_read_with_its_store_alive_or_dead(run_store: Run, kind: str, running: bool) -> None:
    store = run_store("a", kind)
    with hf.Context() as ctx:
        src = ctx.source("quotes", options=options())
        src.wait_registered(SHORT)
        last = [src.send(data) for data in SENT]
        src.wait_stable(timeout=SHORT)
        src.close()
        until_no_ring(ctx.domain)
    if not running:
        store.stop()
    (batch,) = hf.read("quotes")
    assert [bytes(batch.payload(i)) for i in range(len(batch))] == SENT
    assert batch.to_arrow().to_pylist() == SENT
    assert batch.frames["sequence_number"].tolist() == last
    assert batch.frames["fragments"].tolist() == [1, 1, 1, 1, 3, 1, 1]
    assert batch.topic == "quotes"
    assert batch.source.startswith("holdfast:quotes:")


def test_what_only_the_ring_of_a_live_source_has_is_read(scene: Scene) -> None:
    src = scene.source(ume_flight_size=100)
    send(src, 3)
    scene.stand_still()
    for number in range(3, 6):
        time.sleep(0.002)
        src.send(b"%d" % number, timeout=SHORT)
    assert [source.any_next for source in topic_sources(None)] == [3], "no store has more"
    assert payloads(hf.read("quotes")) == [b"%d" % number for number in range(6)]
    assert numbers(hf.read("quotes", 2, 5)) == [2, 3, 4]
    assert numbers(hf.read("quotes", when(4))) == [4, 5]
    assert numbers(hf.read("quotes", when(1), when(5))) == [1, 2, 3, 4]


def test_a_source_without_stores_is_read_from_its_ring_as_far_as_that_goes(caplog: pytest.LogCaptureFixture) -> None:
    with hf.Context() as ctx:
        src = ctx.source("ticks", options={"ring_size": 1 << 17, "fragment_size": 4096})
        src.wait_registered(SHORT)
        for number in range(400):
            src.send(b"%d" % number * 300)
        found = numbers(hf.read("ticks"))
        assert found == list(range(found[0], 400))
        assert 0 < found[0] < 399
        assert numbers(hf.read("ticks", 390, 395)) == list(range(390, 395))
        (batch, *_) = hf.read("ticks", 398)
        assert bytes(batch.payload(0)) == b"398" * 300
        assert numbers(hf.read("ticks", when(found[0], "ticks"))) == found
        (name,) = [item.name for item in ctx.domain.objects() if item.kind == "stream"]
        ring = RingCopy.attach(name)
        assert ring is not None
        assert ring.first_since(0, 0, Block(), 400) == found[0], "what lies before it is gone"
        src.send(bytes(10_000))  # 400..402
        with caplog.at_level("WARNING"):
            assert numbers(hf.read("ticks", 399, 402)) == [399]
            assert numbers(hf.read("ticks", 401)) == [402]
        assert caplog.text == "", "nothing is missing"


def test_a_ring_that_overtakes_the_look_is_read_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """What its source writes over in that moment is lost to it; the rest is not."""
    fill, tries = RingCopy.fill, list[int]()

    def overtaken(ring: RingCopy, number: int, *more: Any) -> bool:
        tries.append(number)
        return len(tries) > overtakes and bool(fill(ring, number, *more))

    monkeypatch.setattr(RingCopy, "fill", overtaken)
    with hf.Context() as ctx:
        src = ctx.source("ticks", options={"ring_size": 1 << 17})
        src.wait_registered(SHORT)
        src.send(b"0")
        for overtakes in (1, 7):
            tries.clear()
            assert numbers(hf.read("ticks")) == [0], overtakes


def test_how_far_it_reads_is_settled_by_the_call(run_store: Run) -> None:
    run_store("a")
    with hf.Context() as ctx:
        src = source(ctx, 5)
        before = hf.read("quotes")
        send(src, 5)
        assert numbers(before) == list(range(5))
        assert numbers(hf.read("quotes")) == list(range(10))


def test_what_the_ring_has_lost_in_between_is_read_from_the_logs(
    run_store: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The logs are behind when they are asked; then the ring goes on over what they lacked."""
    run_store("a")
    with hf.Context() as ctx:
        src = source(ctx, 0, ring_size=1 << 17, fragment_size=4096)
        real, real_read = RingCopy.fill, Records.read
        went_on: list[int] = []

        def fill(self: RingCopy, number: int, block: Block, stop: int) -> bool | None:
            if not went_on:
                went_on.append(number)
                for _ in range(400):
                    src.send(bytes(1000), timeout=SHORT)
                src.wait_stable(timeout=SHORT)
            return real(self, number, block, stop)

        def read(self: Records, rows: int, max_bytes: int) -> Columns | Gap | None:
            return real_read(self, rows, max_bytes) if went_on else Gap(0, 5, "missing")

        send(src, 5)
        reading = hf.read("quotes")
        monkeypatch.setattr(RingCopy, "fill", fill)
        monkeypatch.setattr(Records, "read", read)
        assert numbers(reading) == list(range(5))
        assert went_on == [0]


# From where, to where ---------------------------------------------------------------------------------------


@pytest.fixture
def ten(run_store: Run) -> list[datetime]:
    """Ten messages of one source, sent in ten different milliseconds; when each was sent."""
    run_store("a", "disk")
    with hf.Context() as ctx:
        src = source(ctx)
        for _ in range(10):
            send(src, 1)
            time.sleep(0.002)
    return [when(number) for number in range(10)]


def test_both_ends_are_numbers_or_times(ten: list[datetime]) -> None:
    every = list(range(10))
    tick = timedelta(microseconds=1)
    for start, end in itertools.combinations_with_replacement(range(10), 2):
        assert numbers(hf.read("quotes", start, end)) == every[start:end]
        assert numbers(hf.read("quotes", ten[start], ten[end])) == every[start:end]
        assert numbers(hf.read("quotes", ten[start] + tick, end)) == every[start + 1 : end]
    assert numbers(hf.read("quotes", 3)) == every[3:]
    assert numbers(hf.read("quotes", end=3)) == every[:3]
    assert numbers(hf.read("quotes", 5, 2**62)) == every[5:]
    assert numbers(hf.read("quotes", 10)) == []
    assert numbers(hf.read("quotes", ten[-1] + timedelta(days=1))) == []
    assert numbers(hf.read("quotes", ten[0] - timedelta(days=1), ten[-1] + timedelta(days=1))) == every


def test_a_message_belongs_to_the_range_that_holds_its_last_number(run_store: Run) -> None:
    run_store("a")
    with hf.Context() as ctx:
        src = source(ctx)
        src.send(bytes(150_000))  # 0..2
        src.send(b"3")
        src.wait_stable(timeout=SHORT)
        for store in ("in the ring", "in the log"):
            for first, end, found in [(0, 2, []), (0, 3, [2]), (1, 3, [2]), (2, 4, [2, 3]), (3, 4, [3])]:
                assert numbers(hf.read("quotes", first, end)) == found, store
            src.close()
            until_no_ring(ctx.domain)


def test_sources_come_one_after_another_by_the_time_of_their_first_message(run_store: Run) -> None:
    run_store("a")
    with hf.Context() as ctx:
        made = [ctx.source("quotes", options=options()) for _ in range(3)]
        for src in made:
            src.wait_registered(SHORT)
        order = [2, 0, 1]
        for index in [*order, *order]:
            made[index].send(b"%d" % index)
            time.sleep(0.002)
        for src in made:
            src.wait_stable(timeout=SHORT)
        assert payloads(hf.read("quotes")) == [b"2", b"2", b"0", b"0", b"1", b"1"]
        made[2].close()
        assert payloads(hf.read("quotes", 1)) == [b"2", b"0", b"1"]


# It is nobody -----------------------------------------------------------------------------------------------


def everything_in(directory: Path) -> dict[str, tuple[int, int, int]]:
    """Each file below it, with what changes when it is written."""
    looked = {path: path.lstat() for path in directory.rglob("*")}
    return {str(path): (found.st_ino, found.st_size, found.st_mtime_ns) for path, found in looked.items()}


def test_it_leaves_nothing_behind(scene: Scene) -> None:
    src = scene.source(ume_flight_size=100)
    send(src, 50)
    scene.stand_still()  # it writes nothing of its own now
    domain = scene.context.domain
    for _ in range(50):
        src.send(b"x", timeout=SHORT)
    (identity,) = {item.uuid for item in domain.objects() if item.kind == "board"}

    def world() -> tuple[object, ...]:
        shared = {name: os.stat(f"/dev/shm/{name}").st_ino for name in objects_of(domain.path)}
        with attach_board(domain, identity, writable=False) as board:
            lines = [(line.line.role, line.line.owner_pid) for line in read_lines(board, domain, test=False)]
        receivers = snapshot.take(domain).receivers
        return everything_in(domain.path), everything_in(domain.path.parent), shared, lines, receivers

    before = world()
    assert len(before[3]) == 1, "a store"  # type: ignore[arg-type]  # a list
    assert before[4] == []
    reading = hf.read("quotes")
    first = next(reading)
    assert world() == before, "nor while it reads"
    assert len(first) + len(numbers(reading)) == 100
    del reading, first
    assert world() == before


def test_a_process_that_only_reads_joins_nothing(run_store: Run, tmp_path: Path) -> None:
    """Each process that takes part has a lock file in the domain."""
    run_store("a", "disk")
    with hf.Context() as ctx:
        source(ctx, 3)
    before = sorted((domain_directory() / "processes").iterdir())
    child = os.fork()
    if child == 0:
        good = numbers(hf.read("quotes")) == [0, 1, 2]
        os._exit(0 if good and sorted((domain_directory() / "processes").iterdir()) == before else 1)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("kind", ["memory", "disk"])
def test_a_killed_store_is_read(tmp_path: Path, kind: str) -> None:
    store = hf.spawn_store(hf.StoreConfig("a", tmp_path / "store-a", type=kind), SHORT)
    with hf.Context() as ctx:
        source(ctx, 1000)
        os.kill(store.pid, signal.SIGKILL)
        assert numbers(hf.read("quotes")) == list(range(1000))
    store.stop()
    assert numbers(hf.read("quotes")) == list(range(1000))
