"""Messages of one source as columns: each once, whole, from whichever store has it; and what is told where
none has."""

from __future__ import annotations

import errno
import itertools
import os
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import google_crc32c
import pytest
from support.handmade_stores import Shelves
from support.receiving import SHORT, options, until

import holdfast as hf
from holdfast.engine.log import columns
from holdfast.engine.log.catalog import TopicSource, topic_sources
from holdfast.engine.log.column_reader import FRAGMENTED, Columns, Gap, Records
from holdfast.engine.log.undeliverable import MarkFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray
    from process.conftest import ThreadStore
    from support.handmade_feed import Log

    Run = Callable[..., ThreadStore]

SENT = [b"one", b"", b"\x00\xff", b"x" * 1000, b"y" * 150_000, b"", b"z" * 64]
"""Fragments are 64 KiB: the fifth has three."""


@pytest.fixture
def shelves(tmp_path: Path) -> Iterator[Shelves]:
    made = Shelves(tmp_path, stores=list("abc"))
    yield made
    made.close()


def opened(shelves: Shelves, *names: str, **log_config: int) -> list[Log]:
    """New logs of stores, in which incarnation 1 has begun."""
    logs = []
    for name in names:
        log = shelves.store(name, log_config=log_config)
        assert log is not None
        log.begin(1, 0)
        logs.append(log)
    return logs


def look(shelves: Shelves) -> TopicSource:
    (source,) = topic_sources(None, shelves.directories)
    return source


def everything(records: Records, rows: int = 65536, max_bytes: int = 16 << 20) -> list[Columns | Gap]:
    found: list[Columns | Gap] = []
    while (item := records.read(rows, max_bytes)) is not None:
        if isinstance(item, Columns):
            assert 0 < item.count <= rows
            assert item.values.size <= max_bytes or item.count == 1
        found.append(item)
    assert records.read() is None, "the end stays the end"
    records.close()
    return found


def payloads(made: Columns) -> list[bytes]:
    return [made.values[begin:end].tobytes() for begin, end in itertools.pairwise(made.offsets.tolist())]


def flat(items: Sequence[Columns | Gap]) -> list[tuple[int, int, bytes] | Gap]:
    """(first number, last number, payload) of each message, and the gaps between them."""
    found: list[tuple[int, int, bytes] | Gap] = []
    for item in items:
        if isinstance(item, Gap):
            found.append(item)
        else:
            numbers = zip(
                item.first_sequence_number.tolist(), item.sequence_number.tolist(), payloads(item), strict=True
            )
            found += numbers
    return found


def texts(items: Sequence[Columns | Gap]) -> list[bytes | Gap]:
    return [item if isinstance(item, Gap) else item[2] for item in flat(items)]


def numbers(first: int, last: int) -> list[bytes]:
    """Payloads of Log.plain."""
    return [b"%d" % number for number in range(first, last + 1)]


# What was sent is what is read ------------------------------------------------------------------------------


@pytest.mark.parametrize("running", [True, False])
@pytest.mark.parametrize("kind", ["memory", "disk"])
def test_what_was_sent_is_read_with_the_stores_alive_or_dead(run_store: Run, kind: str, running: bool) -> None:
    stores = [run_store(name, kind) for name in "abc"]
    with hf.Context() as ctx:
        src = ctx.source("quotes", options=options(*"abc"))
        src.wait_registered(SHORT)
        last = [src.send(data) for data in SENT]
        src.wait_stable(timeout=SHORT)
        until("all stores have all", lambda: [log.next for log in topic_sources(None)[0].logs] == [last[-1] + 1] * 3)
    for store in stores if not running else []:
        store.stop()
    (source,) = topic_sources(None)
    for name in "abc":
        (made,) = everything(Records(source.logs, 0, source.quorum_next, crc=True, stores=[name]))
        assert isinstance(made, Columns)
        assert (made.count, made.store) == (len(SENT), name)
        assert payloads(made) == SENT
        assert made.sequence_number.tolist() == last == [0, 1, 2, 3, 6, 7, 8]
        assert made.first_sequence_number.tolist() == [0, 1, 2, 3, 4, 7, 8]
        assert made.flags.tolist() == [0, 0, 0, 0, FRAGMENTED, 0, 0]
        assert made.timestamp_ns.tolist() == sorted(made.timestamp_ns.tolist())
        assert made.crc is not None
        assert made.crc.tolist() == [google_crc32c.value(data) for data in SENT]


@pytest.mark.parametrize("kind", ["memory", "disk"])
def test_what_was_stable_is_read_when_the_stores_were_killed(tmp_path: Path, kind: str) -> None:
    stores = [hf.spawn_store(hf.StoreConfig(name, tmp_path / f"store-{name}", type=kind), SHORT) for name in "abc"]
    try:
        with hf.Context() as ctx:
            src = ctx.source("quotes", options=options(*"abc"))
            src.wait_registered(SHORT)
            for number in range(1000):
                src.send(b"%d" % number)
            src.wait_stable(timeout=SHORT)
            for store in stores:
                os.kill(store.pid, signal.SIGKILL)
                store.wait(SHORT)
            (source,) = topic_sources(None)
            assert (source.quorum_next, source.any_next) == (1000, 1000)
            assert texts(everything(Records(source.logs, 0, 1000))) == numbers(0, 999)
    finally:
        for store in stores:
            store.stop()


def test_what_a_quorum_has_can_be_read_while_more_is_sent(run_store: Run) -> None:
    for name in "abc":
        run_store(name, "memory")
    count, read = 20_000, 0
    with hf.Context() as ctx:
        src = ctx.source("quotes", options=options(*"abc"))
        src.wait_registered(SHORT)
        sender = threading.Thread(target=lambda: [src.send(b"%d" % number, timeout=SHORT) for number in range(count)])
        sender.start()
        until("there is a log", lambda: topic_sources(None))
        while read < count:
            following = topic_sources(None)[0].quorum_next
            assert following >= read
            assert texts(everything(Records(topic_sources(None)[0].logs, read, following))) == numbers(
                read, following - 1
            )
            read = following
        sender.join()


def test_the_columns_have_their_types_and_an_offset_more_than_rows(shelves: Shelves) -> None:
    (log,) = opened(shelves, "a")
    log.plain(0, 4)
    (made,) = everything(Records(look(shelves).logs, 0, 5, crc=True))
    assert isinstance(made, Columns)
    assert made.crc is not None
    arrays: dict[str, list[NDArray[Any]]] = {
        "<i8": [made.sequence_number, made.first_sequence_number, made.timestamp_ns, made.crc],
        "<i4": [made.flags, made.offsets],
        "|u1": [made.values],
    }
    for kind, found in arrays.items():
        assert all(array.dtype.str == kind and array.flags.c_contiguous and array.ndim == 1 for array in found)
    assert made.offsets.tolist() == [0, 1, 2, 3, 4, 5]


def test_without_values_there_are_none_and_their_checksums_all_the_same(shelves: Shelves) -> None:
    (log,) = opened(shelves, "a")
    log.append(0, [b"ab", b"", b"c"], [b""], [b"d"])
    (made,) = everything(Records(look(shelves).logs, 0, 5, values=False, crc=True), max_bytes=1)
    assert isinstance(made, Columns)
    assert (made.count, made.values.size, made.offsets.size) == (3, 0, 0)
    assert made.crc is not None
    assert made.crc.tolist() == [google_crc32c.value(data) for data in (b"abc", b"", b"d")]
    (bare,) = everything(Records(look(shelves).logs, 0, 5))
    assert isinstance(bare, Columns)
    assert bare.crc is None


def test_ranges_that_meet_give_each_message_once_wherever_they_are_cut(shelves: Shelves) -> None:
    (log,) = opened(shelves, "a")
    log.append(0, [b"0"], [b"1", b"2", b"3"], [b""], [b"5", b"6"])
    logs = look(shelves).logs
    whole = flat(everything(Records(logs, 0, 7)))
    assert whole == [(0, 0, b"0"), (1, 3, b"123"), (4, 4, b""), (5, 6, b"56")]
    for one, other in itertools.combinations_with_replacement(range(8), 2):
        parts = [(0, one), (one, other), (other, 7)]
        assert [message for part in parts for message in flat(everything(Records(logs, *part)))] == whole
    for stop in range(8):
        records = Records(logs, 0, stop)
        everything(records)
        assert records.number == stop


@pytest.mark.parametrize("rows", [1, 2, 3, 7, 100])
@pytest.mark.parametrize("max_bytes", [1, 5, 99, 1 << 20])
def test_columns_are_as_small_as_they_are_wanted(shelves: Shelves, rows: int, max_bytes: int) -> None:
    (log,) = opened(shelves, "a")
    said = [bytes([65 + number]) * (number * number % 40) for number in range(20)]
    log.append(0, *([data] for data in said))
    assert texts(everything(Records(look(shelves).logs, 0, 20), rows, max_bytes)) == said


def test_many_blocks_become_one(shelves: Shelves) -> None:
    (log,) = opened(shelves, "a")
    for first in range(0, 30_000, 1000):
        log.plain(first, first + 999)
    (made,) = everything(Records(look(shelves).logs, 3, 29_990))
    assert isinstance(made, Columns)
    assert payloads(made) == numbers(3, 29_989)
    assert made.sequence_number.tolist() == list(range(3, 29_990))


def test_a_message_that_is_larger_than_any_block_comes_alone(shelves: Shelves) -> None:
    (log,) = opened(shelves, "a", max_segment_bytes=16 << 20)
    large = [bytes([part]) * 50_000 for part in range(100)]
    log.append(0, [b"before"])
    log.append(1, large)
    log.append(101, [b"behind"])
    found = everything(Records(look(shelves).logs, 0, 102), max_bytes=1 << 20)
    assert texts(found) == [b"before", b"".join(large), b"behind"]
    assert len(found) == 3


def test_a_message_that_no_column_can_hold_is_refused(shelves: Shelves, monkeypatch: pytest.MonkeyPatch) -> None:
    (log,) = opened(shelves, "a")
    log.append(0, [b"x" * 100], [b"x" * 101])
    monkeypatch.setattr(columns, "VALUES_MAX", 100)
    records = Records(look(shelves).logs, 0, 2)
    first = records.read()
    assert isinstance(first, Columns)
    assert first.count == 1
    with pytest.raises(hf.MessageTooLargeError, match="101 bytes, the limit is 100; leave the values out"):
        records.read()
    records.close()
    assert len(everything(Records(look(shelves).logs, 0, 2, values=False), rows=1)) == 2


# Which store, and what none has -----------------------------------------------------------------------------


def test_what_is_damaged_at_one_store_is_read_from_another(shelves: Shelves) -> None:
    a, b = opened(shelves, "a", "b")
    for log in (a, b):
        log.plain(100, 139)
    shelves.close()
    a.flip(b"117")
    b.flip(b"125")
    logs = look(shelves).logs
    found = everything(Records(logs, 100, 140))
    assert texts(found) == numbers(100, 139)
    assert {item.store for item in found if isinstance(item, Columns)} == {"a", "b"}
    for name, bad in (("a", 117), ("b", 125)):
        alone = everything(Records(logs, 100, 140, stores=[name]))
        assert texts(alone) == [*numbers(100, bad - 1), Gap(bad, bad + 1, "damaged"), *numbers(bad + 1, 139)]
        assert [item.store for item in alone if isinstance(item, Columns)] == [name, name]


def test_what_is_damaged_everywhere_is_a_gap(shelves: Shelves) -> None:
    a, b = opened(shelves, "a", "b")
    for log in (a, b):
        log.plain(100, 139)
    shelves.close()
    for log, text in ((a, b"117"), (b, b"117"), (b, b"118")):
        log.flip(text)
    found = texts(everything(Records(look(shelves).logs, 100, 140)))
    assert found == [*numbers(100, 116), Gap(117, 118, "damaged"), *numbers(118, 139)]


def test_what_all_stores_lost_is_a_gap_and_ends_with_the_range(shelves: Shelves) -> None:
    a, b = opened(shelves, "a", "b")
    for log, first, last in ((a, 10, 29), (b, 20, 39)):
        log.plain(0, first - 1)
        log.lost(first, last)
        log.plain(last + 1, 50)
    logs = look(shelves).logs
    found = texts(everything(Records(logs, 5, 45)))
    assert found == [*numbers(5, 19), Gap(20, 30, "lost"), *numbers(30, 44)]
    assert texts(everything(Records(logs, 22, 25))) == [Gap(22, 25, "lost")]
    assert texts(everything(Records(logs, 0, 50, stores=["b", "no such store"])))[20] == Gap(20, 40, "lost")


def test_a_hole_is_read_from_another_store_and_what_no_log_gives_is_not_called_lost(shelves: Shelves) -> None:
    a, b = opened(shelves, "a", "b")
    for log, first, last in ((a, 10, 29), (b, 20, 39)):
        log.plain(0, first - 1)
        log.hole(first, last)
        log.plain(last + 1, 50)
    logs = look(shelves).logs
    assert texts(everything(Records(logs, 5, 45))) == [*numbers(5, 19), Gap(20, 30, "missing"), *numbers(30, 44)]
    assert texts(everything(Records(logs, 25, 45, stores=["a"]))) == [Gap(25, 30, "missing"), *numbers(30, 44)]


def test_what_an_operator_marked_counts_as_lost(shelves: Shelves) -> None:
    (a,) = opened(shelves, "a")
    a.plain(0, 9)
    assert MarkFile(a.path).add(1, [(3, 4)])
    assert texts(everything(Records(look(shelves).logs, 0, 10))) == [*numbers(0, 2), Gap(3, 5, "lost"), *numbers(5, 9)]


def test_what_is_void_is_not_read_from_a_store_that_does_not_know_it(shelves: Shelves) -> None:
    """C was away when incarnation 2 began at 45."""
    a, b, c = opened(shelves, "a", "b", "c")
    for log in (a, b, c):
        log.plain(0, 49)
    for log in (a, b):
        log.begin(2, 45)
        log.append(45, *([b"new %d" % number] for number in range(45, 60)))
    logs = look(shelves).logs
    for stores in ([], ["c"]):
        found = texts(everything(Records(logs, 0, 60, stores=stores)))
        assert found[:45] == numbers(0, 44)
        assert found[45:] == [Gap(45, 60, "missing")] if stores else [b"new %d" % number for number in range(45, 60)]


def test_what_retention_takes_while_it_is_read_is_a_gap(shelves: Shelves) -> None:
    (log,) = opened(shelves, "a", first_segment_bytes=16384, max_segment_bytes=16384, retain_bytes=65536)
    said = [b"%06d" % number + b"." * 500 for number in range(400)]
    log.append(0, *([data] for data in said[:5]))
    log.append(5, *([data] for data in said[5:10]))
    records = Records(look(shelves).logs, 0, 300)
    first = records.read(rows=3)
    assert isinstance(first, Columns)
    for number in range(10, 300):
        log.append(number, [said[number]])
    oldest = look(shelves).oldest
    assert oldest > 20
    rest = texts(everything(records))
    taken = len(rest) - (300 - oldest) - 1
    assert taken in {0, 7}, "what was in a block already, or not"
    assert rest == [*said[3 : 3 + taken], Gap(3 + taken, oldest, "expired"), *said[oldest:300]]
    assert texts(payload_range(shelves, 0, 300))[0] == Gap(0, oldest, "expired")


def payload_range(shelves: Shelves, first: int, stop: int) -> list[Columns | Gap]:
    return everything(Records(look(shelves).logs, first, stop))


def test_a_segment_that_is_gone_is_read_from_another_store_and_else_is_a_gap(shelves: Shelves) -> None:
    a, b = opened(shelves, "a", "b")
    for log in (a, b):
        log.plain(0, 9)
        log.roll()
        log.plain(10, 19)
        log.roll()
        log.plain(20, 29)
    shelves.close()
    logs = look(shelves).logs
    sorted(a.path.glob("seg-*"))[1].unlink()
    assert texts(everything(Records(logs, 0, 30))) == numbers(0, 29)
    sorted(b.path.glob("seg-*"))[1].unlink()
    found = texts(everything(Records(logs, 0, 30)))
    assert found == [*numbers(0, 9), Gap(10, 20, "damaged"), *numbers(20, 29)]


def test_logs_that_are_not_here_are_one_gap(shelves: Shelves) -> None:
    (log,) = opened(shelves, "a")
    log.plain(0, 9)
    logs = look(shelves).logs
    Path(log.path).rename(shelves.path / "elsewhere")
    assert texts(everything(Records(logs, 2, 10))) == [Gap(2, 10, "missing")]


def test_a_log_that_this_process_cannot_open_is_an_error_and_no_gap(
    shelves: Shelves, monkeypatch: pytest.MonkeyPatch
) -> None:
    (log,) = opened(shelves, "a")
    log.plain(0, 9)
    records = Records(look(shelves).logs, 0, 10)
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        with pytest.raises(hf.Error, match=r"EMFILE: .*Too many open files"):
            look(shelves)
        with pytest.raises(hf.Error, match=r"EMFILE: .*Too many open files"):
            records.read()
    assert texts(everything(records)) == numbers(0, 9), "it goes on where it was"


def refuse(path: str, *_: object, **__: object) -> int:
    raise OSError(errno.EMFILE, "Too many open files", path)


def test_a_forked_child_does_not_read_on(shelves: Shelves) -> None:
    (log,) = opened(shelves, "a")
    log.plain(0, 9)
    records = Records(look(shelves).logs, 0, 10)
    assert isinstance(records.read(rows=10), Columns)
    records = Records(look(shelves).logs, 0, 12)
    records.read(rows=10)
    child = os.fork()
    if child == 0:
        try:
            records.read()
        except hf.ForkedHandleError:
            os._exit(7)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_numbers_that_are_not_published_are_a_gap(shelves: Shelves) -> None:
    """What was there when the range was planned, and a newer incarnation has made void since, may never
    come."""
    (log,) = opened(shelves, "a")
    log.plain(0, 9)
    assert texts(everything(Records(look(shelves).logs, 8, 12))) == [b"8", b"9", Gap(10, 12, "missing")]


@pytest.mark.parametrize(("first", "stop"), [(-1, 4), (5, 4), (0, 2**63)])
def test_a_range_that_is_none_is_refused(shelves: Shelves, first: int, stop: int) -> None:
    (log,) = opened(shelves, "a")
    log.plain(0, 9)
    with pytest.raises(hf.UsageError, match=f"numbers {first}..{stop - 1} are no range"):
        Records(look(shelves).logs, first, stop)


def test_logs_that_are_none_are_refused(shelves: Shelves) -> None:
    opened(shelves, "a")
    with pytest.raises(hf.UsageError, match="no log of x, y to read; stores that have one: a"):
        Records(look(shelves).logs, 0, 1, stores=["x", "y"])
    with pytest.raises(hf.UsageError, match="no log of any store to read"):
        Records([], 0, 1)
    for rows, max_bytes in ((0, 1), (1, 0)):
        with pytest.raises(hf.UsageError, match="both are at least 1"):
            Records(look(shelves).logs, 0, 1).read(rows, max_bytes)


def test_what_a_later_begin_makes_void_is_not_read_as_soon_as_a_ring_tells_of_it(shelves: Shelves) -> None:
    (log,) = opened(shelves, "a")
    log.plain(0, 9)
    logs = look(shelves).logs
    assert texts(everything(Records(logs, 0, 10))) == numbers(0, 9)
    made = Records(logs, 0, 10, begun=(2, 5))
    assert texts(everything(made))[:5] == numbers(0, 4)
    assert not set(numbers(5, 9)) & set(texts(everything(Records(logs, 0, 10, begun=(2, 5)))))
    assert made.incarnation == 2


def test_it_goes_on_where_it_is_told_to(shelves: Shelves) -> None:
    (log,) = opened(shelves, "a")
    log.plain(0, 9)
    records = Records(look(shelves).logs, 0, 10)
    assert records.read(2) is not None
    records.seek(7)
    assert texts(everything(records)) == numbers(7, 9)


def test_an_empty_range_has_nothing(shelves: Shelves) -> None:
    opened(shelves, "a")
    assert everything(Records(look(shelves).logs, 3, 3)) == []
