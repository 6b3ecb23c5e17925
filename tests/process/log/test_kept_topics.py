"""Which sources stores keep of a topic, and how far a quorum of them has each: from files, with every process
alive or dead."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from process.conftest import ThreadStore
from support.handmade_stores import Shelves
from support.receiving import SHORT, options, until

import holdfast as hf
from holdfast import StoreConfig
from holdfast.engine.log.catalog import (
    StoreLog,
    TopicSource,
    cut_points,
    directory_uuid,
    first_number_since,
    topic_sources,
)
from holdfast.engine.log.state_file import StateFile
from holdfast.engine.rules.quorum import INTERGROUP, INTRAGROUP, Intergroup, Intragroup
from holdfast.engine.rules.reconcile import BEGINS_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.handmade_feed import Log

    Run = Callable[..., ThreadStore]

THREE = list("abc")
SECOND = 10**9


@pytest.fixture
def shelves(tmp_path: Path) -> Iterator[Shelves]:
    made = Shelves(tmp_path, stores=THREE, sizes=[3, 0, 0, 0, 0], groups=[0, 0, 0], begins=[(1, 0)])
    yield made
    made.close()


def one(shelves: Shelves) -> TopicSource:
    """The only source, with everything closed."""
    shelves.close()
    (source,) = topic_sources(None, shelves.directories)
    return source


def fill(shelves: Shelves, name: str, held: tuple[int, int] | None, **state: Any) -> Log | None:
    """A store that has these numbers, [first, following); None: it has no log."""
    log = shelves.store(name, log=held is not None, **state)
    if log is not None and held is not None:
        log.begin(1, 0)
        if held[0] < held[1]:
            log.plain(held[0], held[1] - 1)
    return log


Held = tuple[int, int] | None


@pytest.mark.parametrize(
    ("held", "lost_below", "oldest", "quorum_next", "any_next"),
    [
        ([(0, 10), (0, 10), (0, 10)], (0, 0, 0), 0, 10, 10),
        ([(0, 10), (0, 10), (0, 4)], (0, 0, 0), 0, 10, 10),
        ([(0, 10), (0, 4), (0, 7)], (0, 0, 0), 0, 7, 10),
        ([(0, 10), (0, 4), (0, 4)], (0, 0, 0), 0, 4, 10),
        ([(0, 10), (0, 7), None], (0, 0, 0), 0, 7, 10),
        ([(3, 10), None, None], (0, 0, 0), 3, 3, 10),
        ([(5, 10), (5, 10), (0, 0)], (0, 0, 0), 5, 10, 10),
        # A store that came late never had what lies below its first number.
        ([(0, 10), (5, 10), (0, 3)], (0, 5, 0), 0, 3, 10),
        # It has let them go: it had them.
        ([(0, 10), (5, 10), (0, 3)], (0, 0, 0), 0, 10, 10),
        # All have passed them, so nobody will get them any more.
        ([(0, 10), (5, 10), (7, 10)], (0, 5, 7), 0, 10, 10),
        # Nobody retains 3 and 4, so they are not waited for.
        ([(5, 10), (5, 10), (0, 3)], (0, 5, 0), 0, 10, 10),
    ],
)
def test_how_far_a_quorum_has_what_can_be_had(
    shelves: Shelves, held: list[Held], lost_below: tuple[int, ...], oldest: int, quorum_next: int, any_next: int
) -> None:
    for name, numbers, lost in zip(THREE, held, lost_below, strict=True):
        fill(shelves, name, numbers, lost_below=lost)
    source = one(shelves)
    assert (source.oldest, source.quorum_next, source.any_next) == (oldest, quorum_next, any_next)
    assert [log.store for log in source.logs] == [
        n for n, numbers in zip(THREE, held, strict=True) if numbers is not None
    ]
    assert [(log.oldest, log.next) for log in source.logs] == [numbers for numbers in held if numbers is not None]


@pytest.mark.parametrize(("intergroup", "quorum_next"), [("any", 10), ("all-active", 10), ("majority", 4), ("all", 4)])
def test_groups_of_stores_decide_as_they_were_declared(
    shelves: Shelves, intergroup: Intergroup, quorum_next: int
) -> None:
    """A group of one that has 10, and a group of two whose quorum has 4."""
    behaviors = {"intergroup": INTERGROUP.index(intergroup)}
    groups: dict[str, Any] = {"sizes": [1, 2, 0, 0, 0], "groups": [0, 1, 1], **behaviors}
    for name, following in zip(THREE, (10, 4, 7), strict=True):
        fill(shelves, name, (0, following), **groups)
    assert one(shelves).quorum_next == quorum_next


@pytest.mark.parametrize(("intragroup", "quorum_next"), [("quorum", 7), ("all-active", 7), ("all", 4)])
def test_one_group_decides_as_it_was_declared(shelves: Shelves, intragroup: Intragroup, quorum_next: int) -> None:
    for name, following in zip(THREE, (10, 4, 7), strict=True):
        fill(shelves, name, (0, following), intragroup=INTRAGROUP.index(intragroup))
    assert one(shelves).quorum_next == quorum_next


def test_a_backup_that_has_it_counts(shelves: Shelves) -> None:
    """The third of a group of two; who has a seat now, only the source knew."""
    for name, held in zip(THREE, ((0, 10), None, (0, 9)), strict=True):
        fill(shelves, name, held, sizes=[2, 0, 0, 0, 0])
    assert one(shelves).quorum_next == 9


@pytest.mark.parametrize(("lost_below", "quorum_next"), [(0, 4), (5, 4), (0, 9), (5, 9)])
def test_a_store_that_keeps_no_messages_counts_for_none(shelves: Shelves, lost_below: int, quorum_next: int) -> None:
    """Its log says up to where the source has sent, and that all of it is lost there."""
    fill(shelves, "a", (0, 9))
    fill(shelves, "b", (0, quorum_next), lost_below=lost_below)
    log = fill(shelves, "c", (0, 0), repository="no-cache", lost_below=20)
    assert log is not None
    log.lost(0, 19)
    source = one(shelves)
    assert [log.store for log in source.logs] == ["a", "b"]
    assert (source.quorum_next, source.any_next) == (quorum_next, 9)


def test_a_source_whose_stores_keep_no_messages_is_not_listed(shelves: Shelves) -> None:
    fill(shelves, "a", (0, 0), repository="no-cache")
    shelves.close()
    assert topic_sources(None, shelves.directories) == []


def test_a_store_that_nobody_has_heard_of_counts_as_declared(shelves: Shelves) -> None:
    """Its directory was not given: a group of three with one of them is no quorum."""
    fill(shelves, "a", (0, 10))
    assert (one(shelves).quorum_next, one(shelves).any_next) == (0, 10)


def test_what_a_newer_incarnation_made_void_is_not_there(shelves: Shelves) -> None:
    """C was away when incarnation 2 began at 8."""
    a, b, c = (fill(shelves, name, (0, 10)) for name in THREE)
    assert a is not None
    assert b is not None
    assert c is not None
    for log in (a, b):
        log.begin(2, 8)
    for name in "ab":
        shelves.store(name, incarnation=2, start_sqn=8, begins=[(1, 0), (2, 8)])
    a.append(8, [b"new 8"])
    source = one(shelves)
    assert [log.next for log in source.logs] == [9, 8, 8]
    assert (source.quorum_next, source.any_next) == (8, 9)


@pytest.mark.parametrize(("first", "offered"), [(2, 10), (3, 0)])
def test_what_may_be_void_by_a_begin_that_everybody_has_forgotten_is_not_there(
    shelves: Shelves, first: int, offered: int
) -> None:
    """Stores a and b remember BEGINs from ``first`` on, as many as a table takes; c was away since the first
    one."""
    later = [(number, 10) for number in range(first, first + BEGINS_MAX)]
    for name in "ab":
        log = fill(shelves, name, (0, 10))
        assert log is not None
        for incarnation, start in later:
            log.begin(incarnation, start)
        log.plain(10, 11)
        shelves.store(name, incarnation=later[-1][0], start_sqn=10, begins=later)
    fill(shelves, "c", (0, 10))
    logs = {log.store: (log.oldest, log.next) for log in one(shelves).logs}
    assert logs == {"a": (0, 12), "b": (0, 12), "c": (0, offered)}


def test_the_registration_id_is_that_of_the_first_declared_store(shelves: Shelves) -> None:
    for name, registration_id in (("c", 30), ("b", 20)):
        fill(shelves, name, (0, 1), registration_id=registration_id, session_id=5, stores=["a", "c", "b"])
    source = one(shelves)
    assert (source.registration_id, source.session_id, source.topic) == (30, 5, "quotes")
    assert source.key == f"30/{shelves.uuid.hex()[:8]}"
    assert source.uuid == shelves.uuid.hex()


def test_a_source_without_a_log_is_not_listed(shelves: Shelves) -> None:
    for name in THREE:
        fill(shelves, name, None)
    assert topic_sources(None, shelves.directories) == []


def test_directories_may_be_relative_and_given_twice(shelves: Shelves, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever reads the logs may be in another directory by then."""
    fill(shelves, "a", (0, 3))
    shelves.close()
    monkeypatch.chdir(shelves.path)
    (source,) = topic_sources(None, ["store-a", shelves.path / "store-a"])
    assert [log.path for log in source.logs] == [str(shelves.logs["a"].path)]


def test_an_unreadable_state_is_refused_where_the_directory_was_given(shelves: Shelves) -> None:
    fill(shelves, "a", (0, 3))
    shelves.close()
    for slot in shelves.directories[0].glob("state.*"):
        slot.write_bytes(slot.read_bytes()[:-1])
    with pytest.raises(hf.CorruptionError, match=r"neither state\.0 nor state\.1 is valid"):
        topic_sources(None, shelves.directories)


def test_a_directory_that_is_no_stores_is_refused(tmp_path: Path) -> None:
    with pytest.raises(hf.ConfigError, match="is not a store's directory"):
        topic_sources(None, [tmp_path])


# In a domain ------------------------------------------------------------------------------------------------


def publish(ctx: hf.Context, topic: str, count: int) -> int:
    """The number behind the last one."""
    src = ctx.source(topic, options=options(*THREE))
    src.wait_registered(SHORT)
    for number in range(count):
        src.send(b"%d" % number)
    src.wait_stable(timeout=SHORT)
    return src.next_sequence_number


@pytest.mark.parametrize("kind", ["memory", "disk"])
def test_a_domain_tells_the_same_alive_and_dead(run_store: Run, tmp_path: Path, kind: str) -> None:
    stores = [run_store(name, kind) for name in THREE]
    with hf.Context() as ctx:
        for topic, count in (("quotes", 10), ("orders", 5), ("quotes", 3)):
            assert publish(ctx, topic, count) == count
        until("all have all", lambda: [s.quorum_next for s in topic_sources(None)] == [5, *nexts()])
        until(
            "no log is behind", lambda: all([at.next for at in s.logs] == [s.any_next] * 3 for s in topic_sources(None))
        )
        alive = topic_sources(None)
    assert [source.topic for source in alive] == ["orders", "quotes", "quotes"]
    assert sorted(source.any_next for source in alive) == [3, 5, 10]
    assert all([log.store for log in source.logs] == THREE for source in alive)
    assert topic_sources(None, wanted=lambda topic: topic == "orders") == alive[:1]
    assert topic_sources(None, wanted=lambda _: False) == []
    for store in stores:
        store.stop()
    assert topic_sources(None) == alive
    if kind == "disk":
        assert topic_sources("other", [tmp_path / f"store-{name}" for name in THREE]) == alive


def test_stores_may_be_declared_by_other_names(tmp_path: Path) -> None:
    stores = [
        ThreadStore(StoreConfig(n, tmp_path / f"store-{n}", type="disk", port=10320 + i)) for i, n in enumerate("ab")
    ]
    try:
        with hf.Context() as ctx:
            src = ctx.source("quotes", options={"ume_store": ["127.0.0.1:10320:0:0", "127.0.0.1:10321:0:0"]})
            src.wait_registered(SHORT)
            src.wait_stable(src.send(b"x"), timeout=SHORT)
            until("both have it", lambda: all(log.next == 1 for log in topic_sources(None)[0].logs))
            registration_id = src.registration_ids["127.0.0.1:10320"]
    finally:
        for store in stores:
            store.stop()
    for found in (topic_sources(None), topic_sources(None, [store.store.directory.path for store in stores])):
        (source,) = found
        assert ([log.store for log in source.logs], source.quorum_next) == (["a", "b"], 1)
        assert source.registration_id == registration_id


def test_a_state_that_is_being_written_is_looked_at_again(shelves: Shelves, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(shelves, "a", (0, 3))
    shelves.close()
    load, seen = StateFile.load, []

    def torn(file: StateFile) -> object:
        seen.append(file)
        if len(seen) == 2:  # the first one is a look at what lies in the directory
            raise hf.CorruptionError("both slots were written meanwhile")
        return load(file)

    monkeypatch.setattr(StateFile, "load", torn)
    assert len(topic_sources(None, shelves.directories)) == 1
    assert len(seen) == 3


def nexts() -> list[int]:
    return [source.any_next for source in topic_sources(None) if source.topic == "quotes"]


def test_a_store_that_was_wiped_has_nothing(run_store: Run, tmp_path: Path) -> None:
    stores = [run_store(name, "disk") for name in THREE]
    with hf.Context() as ctx:
        publish(ctx, "quotes", 10)
        until("all have all", lambda: [log.next for log in topic_sources(None)[0].logs] == [10] * 3)
    for store in stores:
        store.stop()
    shutil.rmtree(tmp_path / "store-a")
    for there in (False, True):
        if there:  # another store's directory under its path
            shutil.copytree(tmp_path / "store-b", tmp_path / "store-a")
        (source,) = topic_sources(None)
        assert [log.store for log in source.logs] == ["b", "c"]
        assert source.quorum_next == 10
    for slot in (tmp_path / "store-b").glob("state.*"):
        slot.write_bytes(b"?")
    (source,) = topic_sources(None)
    assert ([log.store for log in source.logs], source.quorum_next, source.any_next) == (["c"], 0, 10)


# Times and cuts ---------------------------------------------------------------------------------------------


@pytest.fixture
def hourly(shelves: Shelves) -> TopicSource:
    """Messages of two fragments, 0 and 1, 2 and 3, ...: the first one sent at second 0, the next at second
    10, and so on."""
    for name, count in (("a", 6), ("b", 8)):
        log = shelves.store(name)
        assert log is not None
        log.begin(1, 0)
        for number in range(count):
            log.append(2 * number, [b"x", b"y"], time_ns=10 * number * SECOND)
    return one(shelves)


@pytest.mark.parametrize(
    ("second", "number"),
    [(-5, 0), (0, 0), (1, 2), (10, 2), (11, 4), (50, 10), (51, 12), (70, 14), (71, 16), (1000, 16)],
)
def test_the_first_message_since_a_time(hourly: TopicSource, second: int, number: int) -> None:
    assert first_number_since(hourly, second * SECOND) == number


def test_the_first_message_since_a_time_behind_a_clock_that_was_set_back(shelves: Shelves) -> None:
    log = shelves.store("a")
    assert log is not None
    log.begin(1, 0)
    times = [0, 10, 20, 30, 5, 15, 25, 35]
    for number, second in enumerate(times):
        log.append(number, [b"x"], time_ns=second * SECOND)
    source = one(shelves)
    for second in range(-1, 37):
        found = first_number_since(source, second * SECOND)
        assert found == len(times) or times[found] >= second
        assert found == 0 or times[found - 1] < second


def test_the_first_message_since_a_time_of_an_empty_log(shelves: Shelves) -> None:
    fill(shelves, "a", (0, 0))
    assert first_number_since(one(shelves), 0) == 0


def test_cuts_are_where_segments_begin(shelves: Shelves) -> None:
    log = shelves.store("a")
    assert log is not None
    log.begin(1, 0)
    log.plain(0, 9)
    log.roll()
    log.append(10, *([b"x", b"y", b"z"] for _ in range(5)))
    log.roll()
    log.plain(25, 25)
    log.roll()
    log.plain(26, 45)
    source = one(shelves)
    assert source.any_next == 46
    assert cut_points(source, 0, 46) == [10, 25, 26]
    assert cut_points(source, 10, 26) == [25], "what lies inside"
    assert cut_points(source, 30, 46) == []
    segment = sorted(log.path.glob("seg-*"))[1]
    data = bytearray(segment.read_bytes())
    data[152] ^= 1  # its first number
    segment.write_bytes(data)
    assert cut_points(source, 0, 46) == [25, 26], "a header that is damaged tells nothing"


def test_cuts_are_of_the_log_that_has_the_range(shelves: Shelves) -> None:
    for name, first, following, roll in (("a", 0, 20, 15), ("b", 10, 40, 25)):
        log = shelves.store(name)
        assert log is not None
        log.begin(1, 0)
        log.plain(first, roll - 1)
        log.roll()
        log.plain(roll, following - 1)
    source = one(shelves)
    assert cut_points(source, 0, 20) == [15]
    assert cut_points(source, 15, 40) == [25]
    kept = source.logs[0]
    assert kept == StoreLog("a", kept.path, 0, 20, kept.directory, kept.uuid)
    assert directory_uuid(Path(kept.directory)) == kept.uuid
