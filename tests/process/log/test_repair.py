"""Repair and comparison of logs that the tests write by hand (engine/log/repair.py,
engine/log/compare.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.handmade_feed import Log

from holdfast.engine.log import compare
from holdfast.engine.log.check import check_log
from holdfast.engine.log.compare import compare_stores
from holdfast.engine.log.repair import Gap, LogRepair
from holdfast.engine.log.unsure import readable
from holdfast.engine.native.core import lib
from holdfast.engine.rules.scrub_schedule import Range

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

UUID = b"source of a test"


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Log]]:
    """Logs in directories as stores have them; all closed at the end."""
    made: list[Log] = []

    def one(name: str, uuid: bytes = UUID, **config: int) -> Log:
        logs = tmp_path / name / "logs"
        logs.mkdir(parents=True)
        made.append(Log(logs / UUID.hex(), uuid, **config))
        return made[-1]

    yield one
    for log in made:
        log.close()


def repaired(log: Log, *peers: Log) -> LogRepair:
    with LogRepair(log.path, [peer.path for peer in peers]) as repair:
        return repair.run()


def compared(*logs: Log) -> tuple[int, int, int | None]:
    """Range, and the number of the first difference."""
    (found,) = compare_stores([log.path.parent.parent for log in logs])
    return found.first, found.next, found.difference.number if found.difference else None


def whole(log: Log, count: int) -> Log:
    log.begin(1, 0)
    log.plain(0, count - 1)
    return log


def test_each_number_comes_from_whoever_has_it(make: Callable[..., Log]) -> None:
    a, b, c = (make(name) for name in "abc")
    for log, first, last in ((a, 10, 29), (b, 20, 25), (c, 12, 14)):
        log.begin(1, 0)
        log.plain(0, first - 1)
        log.lost(first, last)
        log.plain(last + 1, 40)
    done = repaired(a, c, b)
    assert (done.filled, done.left) == ([Range(10, 30)], [])
    assert repaired(b, a, c).left == repaired(c, a, b).left == []
    assert compared(a, b, c) == (0, 41, None)


def test_what_nobody_has_is_left_and_the_rest_is_filled(make: Callable[..., Log]) -> None:
    a, b = make("a"), make("b")
    a.begin(1, 0)
    a.plain(0, 9)
    a.lost(10, 29)
    a.plain(30, 40)
    b.begin(1, 0)
    b.plain(0, 14)
    b.lost(15, 17)
    b.plain(18, 40)
    done = repaired(a, b)
    assert done.filled == [Range(10, 15), Range(18, 30)]
    assert done.left == [Gap(15, 18, "lost")]
    assert repaired(a, b).filled == []
    assert compared(a, b) == (0, 41, None), "both lack the same"


def test_a_hole_is_filled_and_until_then_its_numbers_may_have_been_acknowledged(make: Callable[..., Log]) -> None:
    """A store whose disk did not give 10..29 is sure of them when they are there again, or when nobody has
    them."""
    a, b, c = make("a"), make("b"), whole(make("c"), 41)
    for log, lacks in ((a, "hole"), (b, "lost")):
        whole(log, 10)
        getattr(log, lacks)(10, 29)
        log.plain(30, 40)
    assert (readable(a.path, 10, 30), readable(b.path, 10, 30)) == (False, True)
    assert compared(a, b) == (0, 41, None), "both lack the same"
    assert compared(a, c) == (0, 41, 10)
    assert repaired(a, b).left == [Gap(10, 30, "hole")]
    assert repaired(a, b, c).filled == [Range(10, 30)]
    assert readable(a.path, 10, 30)
    assert compared(a, c) == (0, 41, None)


def test_one_damaged_message_before_a_sync_record_is_all_that_is_filled(make: Callable[..., Log]) -> None:
    """A sync record carries a position; a look-up that met one behind the damage took it for the number to go
    on at."""
    a, b = (make(name, level=lib.HF_LEVEL_DISK) for name in "ab")
    for log in (a, b):
        log.begin(1, 0)
        for number in range(40):
            log.plain(number, number)
    a.flip(b"7")
    with LogRepair(a.path, [b.path], [Range(7, 40)]) as repair:
        assert repair.run().filled == [Range(7, 8)]


def test_a_hole_between_two_incarnations_is_filled(make: Callable[..., Log]) -> None:
    a, b = make("a"), whole(make("b"), 50)
    whole(a, 20)
    for log in (a, b):
        log.begin(2, 50)
        log.plain(50, 60)
    assert repaired(a).left == [Gap(20, 50, "hole")]
    assert repaired(a, b).filled == [Range(20, 50)]
    assert compared(a, b) == (0, 61, None)


def test_a_fill_ends_where_the_incarnation_of_its_origin_does(make: Callable[..., Log]) -> None:
    a, b = make("a"), whole(make("b"), 50)
    b.begin(2, 50)
    b.plain(50, 99)
    whole(a, 20)
    a.begin(3, 100)
    a.plain(100, 110)
    assert repaired(a, b).filled == [Range(20, 50), Range(50, 100)]


def test_numbers_that_a_later_incarnation_took_over_do_not_come_back(make: Callable[..., Log]) -> None:
    """C was away when incarnation 2 began at 45: its own 45 to 49 are void, and it does not know."""
    a, b, c = (whole(make(name), 50) for name in "abc")
    for log in (a, b):
        log.begin(2, 45)
        log.append(45, *([b"new %d" % number] for number in range(45, 60)))
    a.flip(b"new 46")
    c.flip(b"42")
    assert repaired(a, c).left == [Gap(46, 47, "damage")], "C has a 46, and it is void"
    assert repaired(a, c, b).filled == [Range(46, 47)]
    assert repaired(c, a).filled == [Range(42, 43)]
    assert compared(a, b) == (0, 60, None)
    assert compared(a, c) == (0, 45, None), "C retains nothing valid behind"


def test_a_fill_is_void_once_a_later_incarnation_takes_its_numbers_over(make: Callable[..., Log]) -> None:
    a, b = (whole(make(name), 50) for name in "ab")
    a.flip(b"46")
    a.flip(b"43")
    assert repaired(a, b).filled == [Range(43, 44), Range(46, 47)]
    for log in (a, b):
        log.begin(2, 45)
        log.append(45, *([b"new %d" % number] for number in range(45, 60)))
    assert compared(a, b) == (0, 60, None)
    a.flip(b"new 46")
    assert compared(a, b) == (0, 60, 46), "the old 46 is not taken for it"
    assert repaired(a, b).filled == [Range(46, 47)]
    assert compared(a, b) == (0, 60, None)


def test_a_fill_that_is_damaged_in_its_turn_is_replaced(make: Callable[..., Log]) -> None:
    a, b = whole(make("a"), 50), whole(make("b"), 50)
    for number in range(40, 48):
        a.flip(b"%d" % number)
    assert repaired(a, b).filled == [Range(40, 48)]
    (fill,) = a.path.glob("fill-*")
    data = bytearray(fill.read_bytes())
    data[4096 + 3 * 64 + 32] ^= 1
    fill.write_bytes(data)
    assert check_log(a.path).damaged
    assert repaired(a, b).filled == [Range(43, 44)]
    assert not check_log(a.path).damaged
    for log in (a, b):
        log.begin(2, 45)
        log.append(45, *([b"new %d" % number] for number in range(45, 60)))
    data[0] ^= 1
    fill.write_bytes(data)
    assert check_log(a.path).damaged
    assert repaired(a, b).filled == [Range(40, 43), Range(44, 45)]
    assert not check_log(a.path).damaged, "nothing is missed of the rest, which is void"
    assert compared(a, b) == (0, 60, None)


def test_messages_larger_than_any_buffer_are_copied(make: Callable[..., Log]) -> None:
    a, b = make("a"), make("b")
    for log in (a, b):
        log.begin(1, 0)
        log.plain(0, 3)
        log.append(4, [b"%d" % i * 60_000 for i in range(10, 50)])
        log.plain(44, 46)
    a.flip(b"19" * 60_000)
    assert repaired(a, b).filled == [Range(4, 44)]
    assert compared(a, b) == (0, 47, None)
    assert not check_log(a.path).damaged


def test_what_is_more_than_one_fill_takes_becomes_several(make: Callable[..., Log]) -> None:
    a, b = make("a", max_segment_bytes=4 << 20), make("b")
    piece = bytes(1 << 16)
    for log in (a, b):
        log.begin(1, 0)
        for number in range(0, 72 * 16, 16):
            log.append(number, *([piece] for _ in range(16)))
        log.plain(72 * 16, 72 * 16 + 5)
    b.close()
    for path in sorted(a.path.glob("seg-*"))[:-1]:
        path.write_bytes(bytes(8192))
    done = repaired(a, b)
    assert done.left == []
    assert len(done.filled) > 1
    assert all(path.stat().st_size <= lib.HF_FILL_MAX + 4096 for path in a.path.glob("fill-*"))
    assert compared(a, b)[2] is None


def test_logs_of_other_sources_and_missing_ones_are_no_peers(make: Callable[..., Log]) -> None:
    a, b = whole(make("a"), 9), whole(make("b", b"another source of"[:16]), 9)
    a.flip(b"5")
    with LogRepair(a.path, [b.path, a.path.parent / "nothing"]) as repair:
        assert repair.run().left == [Gap(5, 6, "damage")]


@pytest.mark.parametrize(
    ("change", "number"),
    [
        (lambda log: log.append(5, [b"five"], [b"6"]), 5),
        (lambda log: log.append(5, [b"5", b"6"]), 5),
        (lambda log: log.append(5, [b"5"], [b"six"]), 6),
        (lambda log: (log.plain(5, 5), log.lost(6, 6)), 6),
    ],
)
def test_the_first_difference_is_named(make: Callable[..., Log], change: Callable[[Log], object], number: int) -> None:
    a, b, c = (whole(make(name), 5) for name in "abc")
    a.plain(5, 6)
    b.plain(5, 6)
    change(c)
    for log in (a, b, c):
        log.plain(7, 9)
    assert compared(a, b) == (0, 10, None)
    assert compared(a, b, c) == (0, 10, number)
    assert compared(c, b, a) == (0, 10, number)


def test_only_what_all_of_them_keep_is_compared(make: Callable[..., Log]) -> None:
    a, b = make("a"), make("b")
    a.begin(1, 0)
    a.plain(7, 20)
    whole(b, 15)
    assert compared(a, b) == (7, 15, None)


def retiring(monkeypatch: pytest.MonkeyPatch, log: Log, keep: int, at: int) -> list[int]:
    """The store of ``log`` lets everything below ``keep`` go when the comparison has read up to ``at``.
    Returns what was read."""
    read: list[int] = []
    fetch = compare._Side.fetch

    def first(side: Any, number: int) -> None:
        if number >= at and keep not in read:
            read.append(keep)
            assert lib.hf_log_release(log.handle, keep) == lib.HF_OK
        fetch(side, number)

    monkeypatch.setattr(compare._Side, "fetch", first)
    return read


@pytest.mark.parametrize(("at", "keep", "found"), [(0, 40, (40, 90)), (30, 60, (60, 90)), (30, 88, (88, 90))])
def test_what_is_let_go_during_a_comparison_is_no_difference(
    make: Callable[..., Log], monkeypatch: pytest.MonkeyPatch, at: int, keep: int, found: tuple[int, int]
) -> None:
    monkeypatch.setattr(compare, "BLOCK_BYTES", 10 * 64)
    a, b = whole(make("a"), 90), whole(make("b"), 90)
    read = retiring(monkeypatch, b, keep, at)
    assert compared(a, b) == (*found, None)
    assert read == [keep], "it was let go in the middle"
    assert compared(b, a) == (keep, 90, None)


def test_all_that_was_compared_is_let_go_meanwhile(make: Callable[..., Log], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "BLOCK_BYTES", 10 * 64)
    a, b = whole(make("a"), 90), whole(make("b"), 90)
    retiring(monkeypatch, b, 90, 30)
    assert compared(a, b) == (0, 30, None)
    assert compared(a, b) == (90, 90, None), "they end alike, and one has let go of what the other keeps"


def test_a_range_that_is_let_go_before_it_is_read_is_read_again(
    make: Callable[..., Log], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both go on meanwhile."""
    a, b = whole(make("a"), 90), whole(make("b"), 90)
    fetch, fetched = compare._Side.fetch, [0]

    def later(side: Any, number: int) -> None:
        if not fetched[0]:
            for log in (a, b):
                log.plain(90, 99)
            assert lib.hf_log_release(b.handle, 90) == lib.HF_OK
        fetched[0] += 1
        fetch(side, number)

    monkeypatch.setattr(compare._Side, "fetch", later)
    assert compared(a, b) == (90, 100, None)


def test_a_number_that_one_lacks_in_the_middle_is_a_difference_also_while_others_are_let_go(
    make: Callable[..., Log], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare, "BLOCK_BYTES", 10 * 64)
    a, b = whole(make("a"), 90), make("b")
    b.begin(1, 0)
    b.plain(0, 69)
    b.lost(70, 70)
    b.plain(71, 89)
    retiring(monkeypatch, b, 60, 30)
    assert compared(a, b) == (60, 90, 70)


def test_a_comparison_that_reads_its_range_once_is_caught(
    make: Callable[..., Log], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: what 0.1.0 did."""
    read = compare._Side.range
    ranges: dict[Any, tuple[int, int]] = {}
    monkeypatch.setattr(compare._Side, "range", lambda side: ranges.setdefault(side, read(side)))
    with pytest.raises(AssertionError, match=r"assert \(0, 90, \d+\)"):
        test_what_is_let_go_during_a_comparison_is_no_difference(make, monkeypatch, 30, 60, (60, 90))


def test_logs_that_share_no_number_are_not_equal(make: Callable[..., Log]) -> None:
    a, b = whole(make("a"), 20), make("b")
    b.begin(1, 0)
    b.plain(30, 40)
    for pair in ((a, b), (b, a)):
        (found,) = compare_stores([log.path.parent.parent for log in pair])
        assert (found.first, found.next) == (30, 30)
        assert found.difference is not None
        assert found.difference.directory == str(a.path.parent.parent)
        assert found.difference.text == (
            f"its log ends before number 20, and the one in {b.path.parent.parent} begins with 30: they share no number"
        )
    empty = make("c")
    empty.begin(1, 0)
    assert compared(a, empty) == (0, 0, 0), "a store that has nothing has not the same"
    assert compared(empty, empty) == (0, 0, None)


def test_repair_within_a_range_looks_at_nothing_else(make: Callable[..., Log]) -> None:
    a, b = whole(make("a"), 90), whole(make("b"), 90)
    a.flip(b"15")
    a.flip(b"75")
    with LogRepair(a.path, [b.path], [Range(10, 20)]) as repair:
        assert repair.run().filled == [Range(15, 16)]
    assert repaired(a, b).filled == [Range(75, 76)]
