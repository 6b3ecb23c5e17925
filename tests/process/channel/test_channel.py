"""Channels: record batches in place, with back-pressure, over the deaths of both ends."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from support.timed import Calls, median_ns, timed

import holdfast as hf
from holdfast.channel import ShmChannel
from holdfast.engine.channel.channel import CAPACITY_MAX, CAPACITY_MIN, LIFE, ChannelReader, ChannelWriter
from holdfast.engine.channel.names import channel_uuid
from holdfast.engine.memory.domain import Domain, open_object
from holdfast.engine.tools.gc import sweep

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WAIT = 90.0
SMALL = 1 << 18

WRITE = """
import sys, numpy as np, pyarrow as pa
from holdfast.channel import ShmChannel
name, first, count, capacity, how = sys.argv[1], *map(int, sys.argv[2:5]), sys.argv[5]
with ShmChannel(name, capacity=capacity) as channel:
    for k in range(first, first + count):
        channel.write(pa.record_batch({"k": np.full(500, k), "x": np.arange(500) * k}))
        print(k, flush=True)
    if how == "finish":
        channel.finish()
    while how == "hang":  # until there is no room
        channel.write(pa.record_batch({"k": np.zeros(500)}), timeout=None)
"""
READ = """
import sys
from holdfast.channel import ShmChannel
name, keep = sys.argv[1], int(sys.argv[2])
held = []
with ShmChannel(name) as channel:
    for batch in channel:
        k = batch["k"][0].as_py()
        held = [*held, batch][-keep:] if keep else []
        print(k, flush=True)
        del batch
"""


def batch_of(k: int, rows: int = 500) -> pa.RecordBatch:
    return pa.record_batch({"k": np.full(rows, k), "x": np.arange(rows) * k})


def names(domain: str) -> list[str]:
    there = Domain(domain, join=False)
    try:
        return sorted(item.kind for item in there.objects() if item.kind != "bells")
    finally:
        there.close()


@pytest.fixture
def domain_of(own_domain: str) -> Iterator[Domain]:
    there = Domain(own_domain)
    yield there
    there.close()


@pytest.fixture
def program() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []

    def start(code: str, *arguments: object) -> subprocess.Popen[str]:
        argv = [sys.executable, "-c", code, *map(str, arguments)]
        started.append(subprocess.Popen(argv, stdout=subprocess.PIPE, text=True))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def lines(process: subprocess.Popen[str], count: int) -> list[int]:
    assert process.stdout is not None
    return [int(process.stdout.readline()) for _ in range(count)]


def kill(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()


def read_all(channel: ShmChannel, count: int) -> list[int]:
    found = []
    for _ in range(count):
        batch = channel.read(WAIT)
        assert batch is not None
        k = batch["k"][0].as_py()
        assert batch.equals(batch_of(k, batch.num_rows))
        found.append(k)
        del batch
    return found


@pytest.mark.parametrize("kind", ["plain", "nested", "dictionary", "nulls", "empty", "no columns"])
def test_what_is_read_is_what_was_written(kind: str) -> None:
    batches: dict[str, pa.RecordBatch] = {
        "plain": batch_of(7),
        "nested": pa.record_batch({"l": pa.array([[1, 2], [], None]), "s": pa.array([{"a": 1}, {"a": None}, None])}),
        "dictionary": pa.record_batch({"d": pa.array(["x", "y", "x"]).dictionary_encode()}),
        "nulls": pa.record_batch({"n": pa.nulls(3), "b": pa.array([b"", None, b"\0"])}),
        "empty": batch_of(1, 0),
        "no columns": pa.record_batch([], schema=pa.schema([])),
    }
    with ShmChannel("t") as writer, ShmChannel("t") as reader:
        writer.write(batches[kind])
        writer.finish()
        assert [batch.equals(batches[kind]) for batch in reader] == [True]
        assert reader.finished


def test_a_batch_is_read_in_place_and_stays_as_long_as_it_is_looked_at() -> None:
    with ShmChannel("t", capacity=SMALL) as writer, ShmChannel("t") as reader:
        writer.write(batch_of(1))
        first = reader.read(WAIT)
        assert first is not None
        column = first["x"].slice(10, 5)  # a view of a view
        address = first["x"].buffers()[1].address
        assert any(low <= address < high for low, high in _mappings(".c1"))
        del first
        count = fill(writer)
        assert column.to_pylist() == [10, 11, 12, 13, 14]
        assert read_all(reader, count) == list(range(count))
        assert fill(writer) == 0  # the column holds its place, and what lies behind it goes on holding
        assert column.to_pylist() == [10, 11, 12, 13, 14]
        del column
        writer.write(batch_of(0), timeout=WAIT)


def fill(writer: ShmChannel) -> int:
    """Writes until there is no room. Returns how many batches went in."""
    for k in range(1000):
        try:
            writer.write(batch_of(k), timeout=0)
        except hf.WouldBlockError:
            return k
    raise AssertionError("there is always room")


def _mappings(suffix: str) -> list[tuple[int, int]]:
    found = []
    with open("/proc/self/maps") as maps:
        for line in maps:
            if suffix in line:
                low, high = line.split()[0].split("-")
                found.append((int(low, 16), int(high, 16)))
    return found


def test_a_writer_that_waits_is_woken_by_what_is_let_go() -> None:
    with ShmChannel("t", capacity=SMALL) as writer, ShmChannel("t") as reader:
        done = threading.Event()

        def write() -> None:
            for k in range(200):
                writer.write(batch_of(k), timeout=WAIT)
            writer.finish(WAIT)
            done.set()

        thread = threading.Thread(target=write)
        thread.start()
        assert [int(batch["k"][0].as_py()) for batch in reader] == list(range(200))
        thread.join(WAIT)
        assert done.is_set()


def test_a_batch_that_is_too_large_goes_in_slices_and_a_row_that_is_says_so() -> None:
    with ShmChannel("t", capacity=CAPACITY_MIN) as writer, ShmChannel("t") as reader:
        whole = pa.record_batch({"k": np.arange(10_000)})
        got: list[pa.RecordBatch] = []
        thread = threading.Thread(target=lambda: got.extend(pa.record_batch(b.to_pydict()) for b in reader))
        thread.start()
        writer.write(whole, timeout=WAIT)
        with pytest.raises(hf.MessageTooLargeError) as raised:
            writer.write(pa.record_batch({"b": [b"x" * CAPACITY_MIN]}))
        writer.finish(WAIT)
        thread.join(WAIT)
        assert raised.value.limit < CAPACITY_MIN // 4
        assert raised.value.option == "capacity"
        assert len(got) > 4
        assert pa.Table.from_batches(got).to_pydict() == whole.to_pydict()


def test_what_a_killed_writer_had_written_is_read_and_the_next_one_goes_on(
    program: Callable[..., subprocess.Popen[str]], own_domain: str
) -> None:
    capacity = 1 << 21
    with ShmChannel("t") as reader:
        assert reader.read(0) is None  # it may come first
        one = program(WRITE, "t", 0, 20, capacity, "hang")
        lines(one, 20)
        kill(one)
        two = program(WRITE, "t", 20, 20, capacity, "hang")
        lines(two, 20)
        kill(two)
        assert reader.peer is None
        assert names(own_domain) == ["board", "channel", "channel"]
        found = [batch["k"][0].as_py() for batch in iter(lambda: reader.read(0.5), None)]
        assert [k for k in found if k] == list(range(1, 40))
        assert read_everything_left(reader) == []
        assert names(own_domain) == ["board"]
        assert program(WRITE, "t", 40, 2, capacity, "finish").wait(WAIT) == 0
        assert read_all(reader, 2) == [40, 41]
        assert reader.read(WAIT) is None
        assert reader.finished
    assert names(own_domain) == []


def read_everything_left(reader: ShmChannel) -> list[int]:
    found = []
    while (batch := reader.read(0.2)) is not None:
        found.append(batch["k"][0].as_py())
        del batch
    return found


@pytest.mark.parametrize("keep", [0, 3])
def test_the_next_reader_gets_what_a_killed_one_had_not_let_go(
    program: Callable[..., subprocess.Popen[str]], keep: int
) -> None:
    with ShmChannel("t", capacity=1 << 20) as writer:
        for k in range(10):
            writer.write(batch_of(k))
        one = program(READ, "t", keep)
        assert lines(one, 10) == list(range(10))
        kill(one)
        for k in range(10, 15):
            writer.write(batch_of(k), timeout=WAIT)
        writer.finish(WAIT)
        two = program(READ, "t", 0)
        out, _ = two.communicate(timeout=WAIT)
        found = [int(k) for k in out.split()]
        # It may have been killed before it let go of the last one.
        assert found == list(range(10 - keep, 15)) if keep else found in (list(range(10, 15)), list(range(9, 15)))


def test_a_batch_of_a_ring_that_is_read_is_read_again_if_its_reader_dies(
    program: Callable[..., subprocess.Popen[str]], own_domain: str
) -> None:
    assert program(WRITE, "t", 0, 3, SMALL, "close").wait(WAIT) == 0
    assert program(WRITE, "t", 3, 3, SMALL, "close").wait(WAIT) == 0
    one = program(READ, "t", 4)  # holds batches of both lives
    assert lines(one, 6) == list(range(6))
    kill(one)
    assert names(own_domain).count("channel") == 2
    with ShmChannel("t") as reader:
        assert read_all(reader, 4) == [2, 3, 4, 5]
        assert read_everything_left(reader) == []


def test_a_channel_has_one_end_of_each_kind(program: Callable[..., subprocess.Popen[str]]) -> None:
    writer, reader = ShmChannel("t"), ShmChannel("t")
    with writer, reader:
        writer.write(batch_of(1))
        read_all(reader, 1)
        assert writer.peer == reader.peer == os.getpid()
        with pytest.raises(hf.UsageError, match=f"has a writer: process {os.getpid()}"):
            ShmChannel("t").write(batch_of(1))
        with pytest.raises(hf.UsageError, match="has a reader"):
            ShmChannel("t").read(0)
        with pytest.raises(hf.UsageError, match="this end writes"):
            writer.read()
        with pytest.raises(hf.UsageError, match="this end reads"):
            reader.write(batch_of(1))
    with pytest.raises(hf.UsageError, match="is closed"):
        writer.write(batch_of(1))
    with ShmChannel("t") as again:
        again.write(batch_of(2))
        assert again.peer is None


def test_an_end_that_is_dropped_makes_room_for_the_next_one() -> None:
    ShmChannel("t").write(batch_of(1))
    assert read_all(ShmChannel("t"), 1) == [1]
    with ShmChannel("t") as writer, ShmChannel("t") as reader:
        writer.write(batch_of(2))
        assert read_all(reader, 1) == [2]


def test_a_forked_child_can_do_nothing_with_an_end_and_harms_nothing() -> None:
    with ShmChannel("t") as writer, ShmChannel("t") as reader:
        writer.write(batch_of(1))
        held = reader.read(WAIT)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                with pytest.raises(hf.ForkedHandleError):
                    writer.write(batch_of(9), timeout=0)
                with pytest.raises(hf.ForkedHandleError):
                    reader.read(0)
                writer.close()
                reader.close()
                del held
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        assert held is not None
        assert held.equals(batch_of(1))
        writer.write(batch_of(2))
        assert read_all(reader, 1) == [2]


def test_what_a_forked_child_lets_go_of_stays_for_the_next_reader(
    own_domain: str, program: Callable[..., subprocess.Popen[str]]
) -> None:
    writer = program(WRITE, "t", 0, 2, SMALL, "close")
    lines(writer, 2)
    writer.wait()
    with ShmChannel("t") as reader:
        held = [reader.read(WAIT), reader.read(WAIT)]
        assert reader.read(0) is None  # the ring is read to its end
        child = os.fork()
        if child == 0:
            code = 1
            try:
                held.clear()
                gc.collect()
                reader.remove()
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        assert names(own_domain) == ["board", "channel"]
    with ShmChannel("t") as reader:
        assert read_all(reader, 2) == [0, 1]


def test_what_a_writer_left_that_died_while_it_made_its_ring_holds_nobody_up(domain_of: Domain) -> None:
    name = domain_of.channel_name(channel_uuid("t"), 1)
    os.close(open_object(name, create=True))
    with ShmChannel("t") as writer, ShmChannel("t") as reader:
        writer.write(batch_of(1))
        assert read_all(reader, 1) == [1]


def test_a_reader_sleeps_while_it_holds_the_last_batch_of_a_writer_that_is_gone() -> None:
    with ShmChannel("t") as reader:
        with ShmChannel("t") as writer:
            writer.write(batch_of(1))
        held = reader.read(WAIT)
        with mock.patch.object(ChannelReader, "_wait", timed(ChannelReader._wait, waits := Calls())):
            while len(waits) < 10:  # one read of half a second, if the machine is not busy
                assert reader.read(0.5) is None
        assert median_ns(waits) > 10_000_000, "sleeps of 50 ms, and some that end at a tick; who spins has none"
        assert held is not None


@pytest.mark.parametrize("order", ["after", "before"])
def test_the_next_life_is_the_next_readings(order: str, own_domain: str) -> None:
    """Two streams of batches under one name; the second one may begin before the first one is read."""
    first, second = ShmChannel("t"), ShmChannel("t")
    first.write(batch_of(1))
    first.finish()
    with pytest.raises(hf.UsageError, match="no more"):
        first.write(batch_of(2))
    first.close()
    if order == "before":
        second.write(batch_of(2))
    with ShmChannel("t") as reader:
        held = list(reader)
        assert reader.finished
    if order == "after":
        assert names(own_domain) == []
        second.write(batch_of(2))
    with second, ShmChannel("t") as reader:
        assert read_all(reader, 1) == [2]
        second.finish()
        assert list(reader) == []
    assert held[0].equals(batch_of(1))
    assert names(own_domain) == []


def test_what_is_no_record_batch_is_refused_and_what_follows_is_read() -> None:
    raw = ChannelWriter("t", capacity=SMALL)
    for data in (b"garbage", b"\xff\xff\xff\xff" + b"\x7f" * 60):
        raw.claim(len(data))[:] = data
        raw.commit()
    raw.claim(100)[:] = bytes(100)
    raw.abort()
    raw.close()
    with ShmChannel("t") as writer, ShmChannel("t") as reader:
        writer.write(batch_of(3))
        for _ in range(2):
            with pytest.raises(hf.CorruptionError, match="no record batch"):
                reader.read(WAIT)
        assert read_all(reader, 1) == [3]


@pytest.mark.parametrize(("arguments", "match"), [(("", 1 << 20), "1 to 200"), (("x" * 201, 1 << 20), "not 201")])
def test_bad_names(arguments: tuple[str, int], match: str) -> None:
    with pytest.raises(hf.ConfigError, match=match):
        ShmChannel(arguments[0], capacity=arguments[1]).write(batch_of(1))


@pytest.mark.parametrize("capacity", [0, -1, CAPACITY_MIN - 1, CAPACITY_MAX + 1])
def test_bad_capacities(capacity: int) -> None:
    with pytest.raises(hf.ConfigError, match=str(capacity)):
        ShmChannel("t", capacity=capacity).write(batch_of(1))


def test_a_block_outlives_its_reader() -> None:
    with ShmChannel("t") as writer:
        writer.write(batch_of(5))
        reader = ShmChannel("t")
        batch = reader.read(WAIT)
        reader.close()
        del reader
        assert batch is not None
        assert batch.equals(batch_of(5))


def test_gc_leaves_a_channel_alone_while_an_end_lives_and_removes_it_then(
    program: Callable[..., subprocess.Popen[str]], own_domain: str
) -> None:
    domain = Domain(own_domain)
    one = program(WRITE, "t", 0, 3, SMALL, "hang")
    lines(one, 3)
    assert [item for item in sweep(domain) if item.kind in {"channel", "board"}] == []
    kill(one)
    reader = program(READ, "t", 9)
    lines(reader, 3)
    assert [item for item in sweep(domain) if item.kind in {"channel", "board"}] == []
    kill(reader)
    gone = [item for item in sweep(domain) if item.kind in {"channel", "board"}]
    assert sorted((item.kind, item.remove) for item in gone) == [("board", True), ("channel", True)]
    assert names(own_domain) == []
    domain.close()


def test_gc_does_not_take_what_it_cannot_read_for_what_nobody_needs(domain_of: Domain) -> None:
    with ShmChannel("t") as writer, ShmChannel("t") as reader:
        writer.write(batch_of(1))
        board = Path("/dev/shm") / domain_of.board_name(channel_uuid("t"))
        with board.open("r+b") as file:  # as another version's is
            head = file.read(12)
            file.seek(8)
            file.write(b"\xff\xff\xff\x7f")
        found = [item for item in sweep(domain_of) if item.kind == "channel"]
        assert [(item.remove, "layout" in item.why) for item in found] == [(False, True)]
        with board.open("r+b") as file:
            file.write(head)
        assert read_all(reader, 1) == [1]


def test_the_longest_wait_ends_at_a_signal() -> None:
    """A reader that waits for ever notices ^C."""
    code = "from holdfast.channel import ShmChannel\nprint(1, flush=True)\nShmChannel('t').read()"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        deadline = time.monotonic() + WAIT
        while process.poll() is None and time.monotonic() < deadline:
            process.send_signal(signal.SIGINT)
            time.sleep(0.05)
        assert process.poll() is not None
    finally:
        process.kill()
        process.communicate()


def test_numbers_and_one_position_say_where_a_reader_is() -> None:
    with ChannelWriter("t", capacity=SMALL) as writer, ChannelReader("t") as reader:
        taken: list[Any] = []
        for size in (1, 100, writer.block_max):
            writer.claim(size)[:] = bytes(size)
            writer.commit()
            taken.append(reader.read(WAIT))
        assert [block.number for block in taken] == [(1 << LIFE) + n for n in range(3)]
        assert [block.size for block in taken] == [1, 100, writer.block_max]
        for block in [*reversed(taken), *taken]:
            block.release()
        with pytest.raises(hf.MessageTooLargeError):
            writer.claim(writer.block_max + 1)
        with pytest.raises(hf.MessageTooLargeError):
            writer.claim(0)
