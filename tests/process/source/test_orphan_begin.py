"""Readers beside an orphan BEGIN (docs/semantics.md A.3): it reached one store, and the others went on
without it.

Versions up to 0.1.0 left such BEGINs where a store was away, and the board was gone. Store a has BEGINs 2 and
3 from 100. Stores b and c have decided 2 from 100, and 100..199 are stable there. The logs are written by
hand, or real stores are made to do it.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest
from support.handmade_feed import Log, Ring, Stage, numbers
from support.handmade_stores import Shelves
from support.kept_messages import kept, log_of
from support.leftovers import remove_objects
from support.receiving import SESSION, Told, take
from support.restarted_source import SHORT, SOURCE
from support.three_stores import everywhere
from support.three_stores import send as send_more
from support.workers import until

import holdfast as hf
from holdfast.engine.events import receiver as events
from holdfast.engine.log.catalog import TopicSource, topic_sources
from holdfast.engine.log.column_reader import Columns, Gap, Records
from holdfast.engine.log.compare import compare_stores
from holdfast.engine.log.info_file import published_below
from holdfast.engine.log.reader import Block, Logs
from holdfast.engine.log.sight import on_record
from holdfast.engine.log.state_file import SourceState
from holdfast.engine.rules.reconcile import FOR_EVER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from process.conftest import ThreadStore

    Run = Callable[..., ThreadStore]

LISTED: dict[str, Any] = {"stores": list("abc"), "sizes": [3, 0, 0, 0, 0], "groups": [0, 0, 0]}
RIGHT, ORPHAN = [(1, 0), (2, 100)], [(1, 0), (2, 100), (3, 100)]


@pytest.fixture
def shelves(tmp_path: Path) -> Iterator[Shelves]:
    directories = {name: str(tmp_path / f"store-{name}") for name in "abc"}
    made = Shelves(tmp_path, directories=directories, **LISTED)
    yield made
    made.close()


def orphaned(shelves: Shelves, *, sent: int = 200, start: int = 100) -> None:
    """``sent``: 100 up to this one are at b and c. ``start``: of the orphan."""
    for name in "abc":
        begins = [*RIGHT, (3, start)] if name == "a" else RIGHT
        state: dict[str, Any] = {"incarnation": begins[-1][0], "begins": begins, "declared": begins[-1][0]}
        log = shelves.store(name, **state)
        assert log is not None
        log.begin(1, 0)
        log.plain(0, 99)
        for begin in begins[1:]:
            log.begin(*begin)
        if name != "a" and sent > 100:
            log.plain(100, sent - 1)
    shelves.close()


def away(shelves: Shelves, name: str) -> Callable[[], None]:
    """Nothing of this store can be read. Returns what brings it back."""
    here, there = shelves.path / f"store-{name}", shelves.path / "away"
    here.rename(there)
    return lambda: void(there.rename(here))


def void(_: object) -> None:
    """For a lambda."""


def send(src: hf.Source, count: int) -> None:
    """This many messages, when it may."""
    src.wait_registered(SHORT)
    send_more(src, count)


def one(shelves: Shelves) -> TopicSource:
    (source,) = topic_sources(None, shelves.directories)
    return source


def paths(shelves: Shelves) -> list[str]:
    return [str(shelves.path / f"store-{name}" / "logs" / shelves.uuid.hex()) for name in "abc"]


def read(records: Records) -> list[bytes | Gap]:
    found: list[bytes | Gap] = []
    while (item := records.read()) is not None:
        if isinstance(item, Columns):
            found += [item.values[item.offsets[i] : item.offsets[i + 1]].tobytes() for i in range(item.count)]
        else:
            found.append(item)
    records.close()
    return found


# What is kept, read without a store -------------------------------------------------------------------------


def test_what_is_stable_is_shown_and_read(shelves: Shelves) -> None:
    orphaned(shelves)
    source = one(shelves)
    assert [(log.store, log.oldest, log.next) for log in source.logs] == [("a", 0, 100), ("b", 0, 200), ("c", 0, 200)]
    assert (source.oldest, source.quorum_next, source.any_next) == (0, 200, 200)
    assert read(Records(source.logs, 0, source.quorum_next)) == numbers(0, 199)


def test_where_a_store_that_is_away_decides_nothing_is_read_from_there_and_nothing_is_a_gap(shelves: Shelves) -> None:
    """b and c may be right, or a and c: 100 may be a message that was stable, or a number that is void."""
    orphaned(shelves)
    back = away(shelves, "c")
    source = one(shelves)
    assert (source.quorum_next, source.any_next) == (100, 100)
    assert read(Records(source.logs, 0, source.any_next)) == numbers(0, 99)
    back()
    assert one(shelves).quorum_next == 200


def test_a_store_whose_log_cannot_be_read_says_by_its_state_what_it_has_begun(shelves: Shelves) -> None:
    orphaned(shelves)
    shutil.rmtree(shelves.path / "store-c" / "logs")
    source = one(shelves)
    assert (source.quorum_next, source.any_next) == (100, 200), "b alone has the rest"
    assert read(Records(source.logs, 0, source.any_next)) == numbers(0, 199)


def test_the_list_of_the_begin_that_holds_counts(shelves: Shelves) -> None:
    """The orphan declared a alone, with d: by that list a would be half of a quorum."""
    orphaned(shelves)
    other: dict[str, Any] = {"stores": list("ad"), "sizes": [2, 0, 0, 0, 0], "groups": [0, 0]}
    shelves.store("a", incarnation=3, begins=ORPHAN, declared=3, **other)
    shelves.store("d", log=False, incarnation=0, stores=[])
    assert one(shelves).quorum_next == 200, "d has not begun"


def test_stores_are_compared_up_to_where_the_orphan_begins(shelves: Shelves) -> None:
    orphaned(shelves)
    (found,) = compare_stores([shelves.path / f"store-{name}" for name in "bc"])
    assert (found.next, found.difference) == (200, None)
    (found,) = compare_stores([shelves.path / f"store-{name}" for name in "abc"])
    assert (found.next, found.difference) == (100, None)


def test_a_list_is_bounded_by_a_begin_that_holds() -> None:
    uuid = bytes(16)
    own = SourceState(uuid, "quotes", 7, 0, 3, stores=["a", "d"], begins=list(ORPHAN))
    rest = SourceState(uuid, "quotes", 7, 0, 2, stores=["b", "c"], begins=list(RIGHT))
    assert on_record([own, rest])["c"] == 100
    assert on_record([own, rest], tables=[tuple(ORPHAN), tuple(RIGHT)])["c"] == FOR_EVER


# A feed -----------------------------------------------------------------------------------------------------


def test_logs_are_read_by_the_begin_that_holds_whenever_the_orphan_is_seen(shelves: Shelves) -> None:
    """Also by who has judged before anything was sent under the right one, and before a was there."""
    orphaned(shelves, sent=100)
    logs, block = Logs(paths(shelves)), Block()
    assert logs.read(99, block)
    assert (logs.begun, logs.disputed) == ((2, 100), False)
    assert not logs.read(100, block)
    for name in "bc":
        log = Log(shelves.path / f"store-{name}" / "logs" / shelves.uuid.hex(), shelves.uuid)
        log.plain(100, 199)
        log.close()
    assert logs.read(150, block)
    assert logs.begun == (2, 100)
    assert published_below((2, 100), paths(shelves)) == 200
    logs.close()


def test_a_begin_that_completes_is_taken(shelves: Shelves) -> None:
    orphaned(shelves, sent=150)
    logs, block = Logs(paths(shelves)), Block()
    assert logs.read(149, block)
    a, b = (Log(shelves.path / f"store-{name}" / "logs" / shelves.uuid.hex(), shelves.uuid) for name in "ab")
    b.begin(3, 100)
    assert not logs.read(149, block) or logs.begun == (3, 100)
    logs.learn()
    assert logs.begun == (3, 100), "a quorum has it"
    logs.close()
    a.close()
    b.close()


def test_a_begin_under_which_something_was_sent_is_taken_whoever_has_it(shelves: Shelves) -> None:
    """It was complete on another list, say. A reader has looked at it before, and did not take it."""
    orphaned(shelves, sent=100)
    logs, block = Logs(paths(shelves)), Block()
    assert not logs.read(100, block)
    assert logs.begun == (2, 100)
    a = Log(shelves.path / "store-a" / "logs" / shelves.uuid.hex(), shelves.uuid)
    a.plain(100, 100)
    assert logs.read(100, block)
    assert logs.begun == (3, 100)
    logs.close()
    a.close()


def test_a_feed_waits_and_says_so_until_what_decides_can_be_read(tmp_path: Path, domain: str, shelves: Shelves) -> None:
    orphaned(shelves)
    back = away(shelves, "c")
    stage = Stage(tmp_path, domain)
    try:
        feed = stage.open(0, begun=(2, 100), paths=paths(shelves)[::-1])
        assert stage.drain() == numbers(0, 99)
        stage.now_ns += 10 * 10**9
        assert stage.drain() == [("late", 100, [shelves.uuid.hex()])]
        feed.late = lambda *_: False  # whoever is given up: b has the number
        stage.now_ns += 10 * 10**9
        assert stage.drain() == [], "neither the message nor a loss"
        back()
        assert stage.drain() == [*numbers(100, 199), "ended"]
    finally:
        stage.close()


def test_a_block_ends_where_the_tables_part(shelves: Shelves) -> None:
    """The orphan begins in the middle of a segment of b."""
    orphaned(shelves, start=150)
    away(shelves, "c")
    logs, block = Logs(paths(shelves)), Block()
    logs.begun = 2, 100
    assert logs.read(100, block)
    assert (block.left, logs.agreed) == (50, 150)
    assert not logs.read(150, block)
    assert logs.disputed
    logs.close()


def test_a_ring_that_has_begun_goes_on(tmp_path: Path, domain: str, shelves: Shelves) -> None:
    """Its number is below the orphan's."""
    orphaned(shelves)
    stage = Stage(tmp_path, domain)
    try:
        ring = Ring(stage, 2, 100)
        ring.send(110)
        stage.open(0, begun=(2, 100), paths=paths(shelves))
        assert stage.drain() == numbers(0, 209)
        assert stage.feed is not None
        assert stage.feed.ring is not None
    finally:
        stage.close()


# Real stores ------------------------------------------------------------------------------------------------


class Scene:
    """Stores a, b and c; a has been away with two BEGINs, as of claimants that died."""

    def __init__(self, run_store: Run, kind: str, path: Path, domain: str) -> None:
        self.run, self.kind, self.path = run_store, kind, path
        stores = {name: run_store(name, kind) for name in "abc"}
        with hf.Context(session_id=7) as ctx, self.source(ctx) as src:
            everywhere(src)
            send(src, 100)
            until("all have it", lambda: all(len(kept(store)) == 100 for store in stores.values()))
        for store in stores.values():
            store.stop()
        kept_at = log_of(path / "store-a")
        log = Log(kept_at, bytes.fromhex(kept_at.name))
        for orphan in (2, 3):
            log.begin(orphan, 100)
        log.close()
        (path / "store-a").rename(path / "away")
        remove_objects(domain)
        self.stores = [run_store(name, kind) for name in "bc"]

    def source(self, ctx: hf.Context) -> hf.Source:
        return ctx.source("quotes", options={**SOURCE, "ume_store_name": list("abc")})

    def returns(self) -> None:
        """a does."""
        shutil.move(self.path / "away", self.path / "store-a")
        self.stores.append(self.run("a", self.kind))
        begun = [store.store.state.sources[0].begins[-1] for store in self.stores]
        assert begun == [(2, 100), (2, 100), (3, 100)]


@pytest.fixture
def scene(run_store: Run, tmp_path: Path, own_domain: str) -> Scene:
    return Scene(run_store, "disk", tmp_path, own_domain)


def test_a_receiver_gets_what_is_stable_before_the_source_begins_anew(scene: Scene) -> None:
    """The source is dead. Then it begins, and the receiver goes on."""
    with hf.Context(session_id=7) as ctx:
        with scene.source(ctx) as src:
            send(src, 100)
        scene.returns()
        told = Told()
        with hf.Context() as other:
            rcv = other.receiver("quotes", on_event=told)
            assert take(rcv, 200) == list(range(200))
            with scene.source(ctx) as src:
                send(src, 10)
                assert take(rcv, 10) == list(range(200, 210))
            assert not told.of(events.UnrecoverableLoss)


@pytest.mark.parametrize("joined_before", [True, False])
def test_a_receiver_of_a_source_that_lives_goes_on_and_so_do_its_acknowledgements(
    scene: Scene, joined_before: bool
) -> None:
    batched = {"ume_ack_batching_interval": 5}
    with hf.Context(session_id=7) as ctx, scene.source(ctx) as src:
        send(src, 60)
        with hf.Context(session_id=SESSION, options=batched) as other:
            rcv = other.receiver("quotes")
            assert take(rcv, 150) == list(range(150))
            if joined_before:
                scene.returns()
                send(src, 40)
                assert take(rcv, 50) == list(range(150, 200))
        if not joined_before:
            scene.returns()
            send(src, 40)
        send(src, 5)
        with hf.Context(session_id=SESSION, options=batched) as other:
            rcv = other.receiver("quotes")
            start = 200 if joined_before else 150
            assert take(rcv, 205 - start) == list(range(start, 205)), "from where it was, and nothing twice"


def begun(shelves: Shelves, name: str, begins: list[tuple[int, int]]) -> Log:
    """A store that has these BEGINs in its state, and 0..3 of the first one in its log."""
    log = shelves.store(name, incarnation=begins[-1][0], begins=begins, declared=begins[-1][0])
    assert log is not None
    log.begin(*begins[0])
    log.plain(0, 3)
    return log


@pytest.fixture
def stage(tmp_path: Path, domain: str) -> Iterator[Stage]:
    made = Stage(tmp_path, domain)
    yield made
    made.close()


def test_a_begin_that_is_nobodys_newest_holds(shelves: Shelves, stage: Stage) -> None:
    """4..19 are stable at b and c under 2; then each of them got an orphan of its own. a has what life 1
    left."""
    for name, orphan in (("b", 3), ("c", 4)):
        log = begun(shelves, name, [(1, 0), (2, 4), (orphan, 20)])
        log.begin(2, 4)
        log.plain(4, 19)
        log.begin(orphan, 20)
    begun(shelves, "a", [(1, 0)]).append(4, *([b"void %d" % number] for number in range(4, 15)))
    shelves.close()
    stage.open(0, begun=(1, 0), paths=paths(shelves))
    assert stage.drain() == [("begun", 2, 4), *numbers(0, 19), "ended"]


def test_a_table_that_is_made_up_is_asked_for_again(shelves: Shelves, stage: Stage) -> None:
    """The ring says BEGIN 4; c, which has what led to it, cannot be read at first. a has an orphan that makes
    4..29 void."""
    log = begun(shelves, "a", [(1, 0), (2, 4), (3, 4)])
    log.begin(2, 4)
    log.begin(3, 4)
    for name, begins in (("b", [(1, 0), (2, 4)]), ("c", [(1, 0), (2, 4), (4, 30)])):
        log = begun(shelves, name, begins)
        log.begin(2, 4)
        log.plain(4, 29)
        if name == "c":
            log.begin(4, 30)
            log.plain(30, 39)
    shelves.close()
    back = away(shelves, "c")
    ring = Ring(stage, 4, 30)
    ring.begin()
    ring.send(10)
    stage.open(4, begun=(4, 30), paths=paths(shelves))
    assert stage.drain() == []
    back()
    assert stage.drain() == numbers(4, 39)


def test_a_message_that_goes_over_a_disputed_number_is_disputed(shelves: Shelves, stage: Stage) -> None:
    """4..6 is one message of life 1. a has a BEGIN from 5, and c, which may have it, too, cannot be read. c
    has let 4..6 go."""
    for name in "abc":
        log = begun(shelves, name, [(1, 0), (2, 5)] if name == "a" else [(1, 0)])
        log.append(4, [b"4", b"5", b"6"])
        if name == "c":
            log.roll()
        log.plain(7, 9)
        if name == "c":
            log.release(7)
        if name == "a":
            log.begin(2, 5)
    shelves.close()
    back = away(shelves, "c")
    stage.open(0, begun=(1, 0), paths=paths(shelves))
    assert stage.drain() == numbers(0, 3)
    back()
    assert stage.drain() == [b"456", *numbers(7, 9), "ended"]
