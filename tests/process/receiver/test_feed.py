"""Who has the next number? Rings, logs, losses and incarnations, over logs that are written by hand and a
clock that is turned.

docs/semantics.md F.2 (a range that one store lacks is read from another), F.4 (loss), C and docs/design.md 13
(numbers are no identities).
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from support.handmade_feed import PATIENCE_S, Ring, Stage, numbers

from holdfast.engine.log.columns import new_entries, read_only_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LATER_NS = PATIENCE_S * 10**9


@pytest.fixture
def stage(tmp_path: Path, domain: str) -> Iterator[Stage]:
    made = Stage(tmp_path, domain)
    yield made
    made.close()


# Loss (F.4) -------------------------------------------------------------------------------------------------


def test_leading_loss_is_told_at_once_when_every_store_says_gone(stage: Stage) -> None:
    for name in "ab":
        log = stage.log(name)
        log.begin(1, 0)
        log.plain(50, 60)
    stage.open(5)
    assert stage.drain() == [("lost", 5, 49), *numbers(50, 60), "ended"]


def test_who_has_no_past_starts_where_the_logs_begin_now_when_his_start_was_let_go(stage: Stage) -> None:
    """Its segment was retired between the grant and the first look: once, and before the second look."""
    log = stage.log("a")
    log.begin(1, 0)
    log.plain(50, 60)
    log.lost(61, 63)
    log.plain(64, 66)
    feed = stage.open(5)
    feed.skipped = lambda first, last: stage.told.append(("skipped", first, last))
    assert stage.drain() == [("skipped", 5, 49), *numbers(50, 60), ("lost", 61, 63), *numbers(64, 66), "ended"]


def test_who_has_no_past_meets_a_loss_that_is_none_of_retirement(stage: Stage) -> None:
    log = stage.log("a")
    log.begin(1, 0)
    log.lost(0, 3)
    log.plain(4, 6)
    stage.open(0).skipped = lambda first, last: stage.told.append(("skipped", first, last))
    assert stage.drain() == [("lost", 0, 3), *numbers(4, 6), "ended"]


def test_who_has_no_past_is_told_of_what_is_let_go_behind_what_it_was_given(stage: Stage) -> None:
    first, second = stage.log("a"), stage.log("b")
    first.begin(1, 0)
    first.plain(0, 4)
    second.begin(1, 0)
    second.plain(50, 60)
    feed = stage.open(0, paths=[str(first.path)])
    feed.skipped = lambda first, last: stage.told.append(("skipped", first, last))
    assert stage.drain()[:5] == numbers(0, 4)
    feed.use_logs([str(second.path)])
    assert stage.drain()[:1] == [("lost", 5, 49)]


def test_a_lost_record_is_stepped_over_at_once(stage: Stage) -> None:
    log = stage.log("a")
    log.begin(1, 0)
    log.plain(0, 3)
    log.lost(4, 6)
    log.plain(7, 8)
    stage.open(0)
    assert stage.drain() == [*numbers(0, 3), ("lost", 4, 6), *numbers(7, 8), "ended"]


def test_a_hole_that_no_store_has_is_stepped_over_at_once_when_all_were_read(stage: Stage) -> None:
    log = stage.log("a")
    log.begin(1, 0)
    log.plain(0, 3)
    log.hole(4, 6)
    log.plain(7, 8)
    stage.open(0).skipped = lambda first, last: stage.told.append(("skipped", first, last))
    assert stage.drain() == [*numbers(0, 3), ("lost", 4, 6), *numbers(7, 8), "ended"]


@pytest.mark.parametrize("lacks", ["hole", "lost"])
def test_a_hole_is_late_until_the_store_that_may_have_it_can_be_read(stage: Stage, lacks: str) -> None:
    """By the word of one store nothing is lost; nor is the source at its end where a log goes on."""
    first, second, third = stage.log("a"), stage.log("b"), stage.log("c")
    for log in (first, second, third):
        log.begin(1, 0)
    for log in (first, second):
        log.plain(0, 3)
        getattr(log, lacks)(4, 6)
        log.plain(7, 9)
    third.plain(0, 5)
    hidden = third.path.rename(third.path.with_name("hidden"))
    stage.open(0)
    assert stage.drain() == numbers(0, 3)
    for _ in range(3):
        stage.now_ns += LATER_NS
        assert stage.drain() == [("late", 4, ["c"])]
        assert stage.drain() == [], "told once in each patience"
    hidden.rename(third.path)
    assert stage.drain() == numbers(4, 5)
    third.lost(6, 6)
    third.plain(7, 9)
    assert stage.drain() == [("lost", 6, 6), *numbers(7, 9), "ended"]


@pytest.mark.parametrize("lacks", ["hole", "lost"])
def test_what_one_store_lacks_is_read_from_another(stage: Stage, lacks: str) -> None:
    first, second = stage.log("a"), stage.log("b")
    for log in (first, second):
        log.begin(1, 0)
    first.plain(0, 3)
    getattr(first, lacks)(4, 6)
    first.plain(7, 9)
    second.plain(0, 9)
    stage.open(0)
    assert stage.drain() == [*numbers(0, 9), "ended"]


def test_a_store_whose_files_are_gone_is_replaced_by_another(stage: Stage) -> None:
    second = stage.log("b")
    second.begin(1, 0)
    second.plain(0, 9)
    stage.open(0, paths=[str(stage.path / "never"), "", str(second.path)])
    assert stage.drain() == numbers(0, 9)


def test_damage_in_one_store_is_read_from_another(stage: Stage) -> None:
    first, second = stage.log("a"), stage.log("b")
    for log in (first, second):
        log.begin(1, 0)
        log.plain(0, 999)
    first.flip(b"500")
    stage.open(0)
    assert stage.drain() == [*numbers(0, 999), "ended"]


def test_damage_in_the_only_store_costs_exactly_what_is_damaged(stage: Stage) -> None:
    log = stage.log("a")
    log.begin(1, 0)
    log.plain(0, 999)
    log.flip(b"500")
    stage.open(0)
    assert stage.drain() == [*numbers(0, 499), ("lost", 500, 500), *numbers(501, 999), "ended"]


def lapped(stage: Stage) -> Ring:
    """A ring that has gone over its first numbers several times."""
    ring = Ring(stage, 1, 0)
    ring.send(500, pad=1000)
    return ring


def test_what_the_ring_overtook_and_a_slow_store_has_not_got_is_late_until_it_lacks_it(stage: Stage) -> None:
    log = stage.log("a")
    log.begin(1, 0)
    log.plain(0, 9)
    ring = lapped(stage)
    stage.open(0)
    assert stage.drain() == numbers(0, 9), "the store may still get 10"
    stage.now_ns += LATER_NS - 1
    assert stage.drain() == []
    stage.now_ns += 1
    assert stage.drain() == [("late", 10, ["a"])]
    log.lost(10, ring.next - 2)
    lost, *rest = stage.drain()
    assert lost[:2] == ("lost", 10)  # type: ignore[index]
    assert rest == numbers(lost[2] + 1, ring.next - 1)  # type: ignore[index]
    assert len(rest) > 10


def test_what_the_slow_store_gets_in_time_is_not_lost(stage: Stage) -> None:
    log = stage.log("a")
    log.begin(1, 0)
    log.plain(0, 9)
    ring = lapped(stage)
    stage.open(0)
    assert stage.drain() == numbers(0, 9)
    stage.now_ns += LATER_NS - 1
    assert stage.drain() == []
    log.plain(10, 20)
    assert stage.drain() == numbers(10, 20)
    stage.now_ns += 1
    assert stage.drain() == [], "21 has been missing for no time yet"
    log.plain(21, ring.next - 1)
    assert stage.drain() == numbers(21, ring.next - 1)


def test_one_store_began_later_and_another_cannot_be_read_is_late(stage: Stage) -> None:
    log = stage.log("a")
    log.begin(1, 0)
    log.plain(50, 60)
    stage.open(5, paths=[str(log.path), str(stage.path / "down")])
    assert stage.drain() == []
    for _ in range(3):
        stage.now_ns += LATER_NS
        assert stage.drain() == [("late", 5, ["down"])]


def test_one_store_has_let_it_go_and_another_cannot_be_read_is_awaited_then_lost(stage: Stage) -> None:
    log = stage.kept("a")
    log.begin(1, 0)
    log.plain(0, 49)
    log.roll()
    log.plain(50, 60)
    log.release(50)
    stage.open(5, paths=[str(log.path), str(stage.path / "down")])
    assert stage.drain() == []
    stage.now_ns += LATER_NS - 1
    assert stage.drain() == []
    stage.now_ns += 1
    assert stage.drain() == [("lost", 5, 49), *numbers(50, 60)]


def test_what_was_never_published_is_awaited_for_ever(stage: Stage) -> None:
    log = stage.log("a")
    log.begin(1, 0)
    log.plain(0, 9)
    stage.open(0)
    assert stage.drain() == [*numbers(0, 9), "ended"]
    stage.now_ns += 100 * LATER_NS
    assert stage.drain() == []
    log.plain(10, 11)
    assert stage.drain() == numbers(10, 11)


def test_without_stores_what_the_ring_overtook_is_lost_at_once(stage: Stage) -> None:
    ring = lapped(stage)
    stage.open(0)
    lost, *rest = stage.drain()
    assert lost[:2] == ("lost", 0)  # type: ignore[index]
    assert rest == numbers(lost[2] + 1, ring.next - 1)  # type: ignore[index]


# Incarnations (docs/design.md 13) ---------------------------------------------------------------------------


def test_begin_in_the_middle_of_a_message_voids_all_of_it(stage: Stage) -> None:
    """The old message 4..8 is cut by BEGIN(2, 6): 4 and 5 are lost, 6 is the new one, whole."""
    log = stage.log("a")
    log.begin(1, 0)
    log.plain(0, 3)
    log.append(4, [b"old4", b"old5", b"old6", b"old7", b"old8"])
    log.plain(9, 9)
    log.begin(2, 6)
    log.append(6, [b"new6"], [b"new7", b"+8"])
    stage.open(0, begun=(2, 6))
    assert stage.drain() == [*numbers(0, 3), ("lost", 4, 5), b"new6", b"new7+8", "ended"]


def test_a_new_ring_that_begins_in_the_middle_of_a_message_is_read_from_its_start(stage: Stage) -> None:
    log = stage.log("a")
    log.begin(1, 0)
    log.plain(0, 3)
    log.append(4, [b"old4", b"old5", b"old6"])
    ring = Ring(stage, 2, 5)
    log.begin(2, 5)
    ring.send(3)
    stage.open(0, begun=(2, 5))
    assert stage.drain() == [*numbers(0, 3), ("lost", 4, 4), *numbers(5, 7)]


@pytest.mark.parametrize("line", [True, False], ids=["in place", "copied"])
def test_a_reader_ahead_of_a_new_incarnation_goes_back_to_its_start(stage: Stage, line: bool) -> None:
    old = Ring(stage, 1, 0)
    old.send(10)
    log = stage.log("a")
    log.begin(1, 0)
    feed = stage.open(0, line=None if line else -1)
    assert stage.drain() == numbers(0, 9)
    log.begin(2, 7)
    new = Ring(stage, 2, 7)
    new.send(4)
    feed.newer = True  # as the context's thread says when it sees the new ring
    assert stage.drain() == [("begun", 2, 7), *numbers(7, 10)]
    old.remove()


def test_a_reader_of_logs_ahead_of_a_new_incarnation_goes_back_to_its_start(stage: Stage) -> None:
    log = stage.log("a")
    log.begin(1, 0)
    log.plain(0, 9)
    stage.open(0)
    assert stage.drain() == [*numbers(0, 9), "ended"]
    log.begin(2, 7)
    log.append(7, [b"new7"], [b"new8"], [b"new9"], [b"new10"])
    assert stage.drain() == [("begun", 2, 7), "began", b"new7", b"new8", b"new9", b"new10", "ended"]


def test_a_start_that_the_program_chose_beyond_a_known_begin_stays(stage: Stage) -> None:
    log = stage.log("a")
    log.begin(1, 0)
    log.begin(2, 5)
    log.plain(5, 9)
    stage.open(8, begun=(2, 5))
    assert stage.drain() == [*numbers(8, 9), "ended"]


def test_what_a_store_holds_that_missed_a_new_incarnation_is_void(stage: Stage) -> None:
    behind, log = stage.log("behind"), stage.log("a")
    behind.begin(1, 0)
    behind.plain(0, 3)
    behind.append(4, [b"old4", b"old5"])
    behind.plain(6, 9)
    log.begin(1, 0)
    log.plain(0, 4)
    log.begin(2, 5)
    log.append(5, [b"new5"], [b"new6"])
    feed = stage.open(3, paths=[str(behind.path)])
    assert stage.drain() == [b"3", b"old4old5", *numbers(6, 9), "ended"], "nobody has told it better yet"
    feed.use_logs([str(behind.path), str(log.path)])
    assert stage.drain() == [("begun", 2, 5), "began", b"new5", b"new6", "ended"]
    feed.close()
    stage.open(3, begun=(2, 5))
    assert stage.drain() == [b"3", b"4", b"new5", b"new6", "ended"]


@pytest.mark.parametrize("known", [(1, 0), (3, 8)], ids=["not yet known", "known"])
def test_a_store_that_missed_several_incarnations_is_read_by_the_whole_table_of_another(
    stage: Stage, known: tuple[int, int]
) -> None:
    behind, log = stage.log("behind"), stage.log("a")
    behind.begin(1, 0)
    behind.append(0, *([b"old%d" % number] for number in range(10)))
    log.begin(1, 0)
    log.plain(4, 4)
    log.begin(2, 5)
    log.plain(5, 7)
    log.begin(3, 8)
    log.plain(8, 9)
    stage.open(3, begun=known)
    began = [] if known == (3, 8) else [("begun", 3, 8)]
    assert stage.drain() == [*began, b"old3", b"old4", *numbers(5, 9), "ended"], "5..7 were sent anew by incarnation 2"


def test_a_begin_that_reached_one_store_alone_voids_nothing_at_the_others(stage: Stage) -> None:
    alone, log = stage.log("alone"), stage.log("a")
    alone.begin(1, 0)
    alone.plain(0, 4)
    alone.begin(2, 5)  # its source died before any other store knew of it
    log.begin(1, 0)
    log.plain(0, 7)
    log.begin(3, 8)
    log.plain(8, 9)
    stage.open(3, begun=(1, 0))
    assert stage.drain() == [("begun", 3, 8), *numbers(3, 9), "ended"]


@pytest.mark.parametrize("line", [True, False], ids=["in place", "copied"])
def test_a_ring_that_has_begun_nowhere_is_none_and_the_one_before_it_goes_on(stage: Stage, line: bool) -> None:
    """Its source died between the making of the ring and BEGIN, or was refused."""
    log = stage.log("a")
    log.begin(1, 0)
    ring = Ring(stage, 1, 0)
    ring.send(5)
    feed = stage.open(0, line=None if line else -1)
    assert stage.drain() == numbers(0, 4)
    phantom = Ring(stage, 2, 3, began=False)
    feed.newer = True
    ring.send(5)
    assert stage.drain() == numbers(5, 9)
    phantom.remove()
    Ring(stage, 2, 8).send(1)
    feed.newer = True
    assert stage.drain() == [("begun", 2, 8), b"8"], "with another start than the one that never was"
    Ring(stage, 3, 9, began=False)
    Ring(stage, 4, 9).send(1)
    feed.newer = True
    assert stage.drain() == [("begun", 4, 9), b"9"]


def test_a_ring_that_has_begun_nowhere_does_not_hide_the_end(stage: Stage) -> None:
    log = stage.log("a")
    log.begin(1, 0)
    ring = Ring(stage, 1, 0)
    ring.send(3)
    feed = stage.open(0)
    assert stage.drain() == numbers(0, 2)
    Ring(stage, 2, 3, began=False)
    ring.end()
    assert stage.drain() == ["ended"]
    log.plain(0, 2)
    ring.remove()
    feed.newer = True
    assert stage.drain() == []
    feed.close()
    stage.open(0)
    assert stage.drain() == [*numbers(0, 2), "ended"], "nor from the logs alone"


def test_a_ring_has_begun_when_a_store_says_so_before_its_source_does(stage: Stage) -> None:
    log = stage.log("a")
    log.begin(1, 0)
    log.plain(0, 2)
    stage.open(0)
    assert stage.drain() == [*numbers(0, 2), "ended"]
    ring = Ring(stage, 2, 3, began=False)
    log.begin(2, 3)
    assert stage.drain() == [("begun", 2, 3), "began"], "it has not ended again"
    ring.begin()
    ring.send(1)
    assert stage.drain() == [b"3"]


def test_a_feed_that_is_closed_reads_nothing_any_more(stage: Stage) -> None:
    log = stage.log("a")
    log.begin(1, 0)
    log.plain(0, 9)
    feed = stage.open(0)
    assert feed.receive(stage.slot)
    feed.close()
    assert stage.drain() == []


# Sources that end, and stores that are wiped ----------------------------------------------------------------


def test_the_end_is_told_once_after_the_last_message_and_a_new_life_begins_again(stage: Stage) -> None:
    log = stage.log("a")
    log.begin(1, 0)
    ring = Ring(stage, 1, 0)
    ring.send(3)
    feed = stage.open(0)
    assert stage.drain() == numbers(0, 2)
    ring.end()
    assert stage.drain() == ["ended"]
    assert feed.ended
    log.plain(0, 2)
    ring.remove()
    feed.newer = True
    assert stage.drain() == []
    again = Ring(stage, 2, 3)
    again.send(1)
    assert stage.drain() == [("begun", 2, 3), "began", b"3"]
    assert not feed.ended


def test_the_end_of_a_source_that_died_is_told_after_its_last_message(stage: Stage) -> None:
    ring = Ring(stage, 1, 0)
    ring.send(3)
    feed = stage.open(0)
    feed.orphaned, feed.newer = 1, True  # as the context's thread says when the owner's lock is free
    assert stage.drain() == [*numbers(0, 2), "ended"]
    feed.newer = True
    assert stage.drain() == []


def test_a_store_that_was_wiped_and_came_back_is_opened_again(stage: Stage) -> None:
    log = stage.log("a")
    log.begin(1, 0)
    log.plain(0, 3)
    stage.open(0)
    assert stage.drain() == [*numbers(0, 3), "ended"]
    log.close()
    shutil.rmtree(log.path)
    new = stage.log("a")
    new.begin(1, 0)
    new.plain(0, 6)
    assert stage.drain() == numbers(4, 6)


def test_a_view_of_a_log_is_not_written_again_by_the_messages_that_follow(stage: Stage) -> None:
    log = stage.log("a")
    log.begin(1, 0)
    log.plain(0, 9)
    feed = stage.open(0)
    view = feed.batch(new_entries(4), 4, 1 << 20)
    assert view is not None
    assert stage.drain() == [*numbers(4, 9), "ended"]
    log.plain(10, 19)
    assert stage.drain() == numbers(10, 19)
    assert [view.gather(index) for index in range(view.count)] == numbers(0, 3)


def test_a_view_of_a_log_shows_what_was_read_and_nothing_else(stage: Stage) -> None:
    """The block's memory is not cleared first: behind what was read lies what this process left there."""
    log = stage.log("a")
    log.begin(1, 0)
    log.plain(0, 9)
    view = stage.open(0).batch(new_entries(4), 4, 1 << 20)
    assert view is not None
    last = view.entries[view.count - 1]
    shown = len(read_only_bytes(view.memory))
    assert last.offset + last.length <= shown == 10 * 64  # of each, a granule of header and one of payload
