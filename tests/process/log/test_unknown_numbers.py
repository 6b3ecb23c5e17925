"""hf.read where something cannot be known: numbers and sources that no store in sight has are an error, and
not silence, unless nobody else can have them."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from process.conftest import ThreadStore
from support.handmade_stores import Shelves
from support.leftovers import remove_objects
from support.receiving import SHORT, options, send, source, until, until_no_ring
from support.topic_reading import numbers, until_error

import holdfast as hf
from holdfast import StoreConfig
from holdfast.cli.store_exclude import exclude
from holdfast.engine.log import topic_reader
from holdfast.engine.log.catalog import topic_sources
from holdfast.engine.log.info_file import StoreInfo, write_info
from holdfast.engine.log.register import Entry
from holdfast.engine.log.state_file import StateFile
from holdfast.engine.memory.domain import Domain, domain_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from support.handmade_feed import Log

    Run = Callable[..., ThreadStore]


@pytest.fixture
def two(run_store: Run) -> None:
    """Five messages at a and b, which are dead; both are needed for a quorum."""
    made = [run_store(name, "disk") for name in "ab"]
    with hf.Context() as ctx:
        src = ctx.source("quotes", options=options("a", "b", ume_session_id="7"))
        src.wait_registered(SHORT)
        send(src, 5)
        until("both have them", lambda: all(log.next == 5 for log in topic_sources(None)[0].logs))
        src.close()
        until_no_ring(ctx.domain)
    for store in made:
        store.stop()


def test_one_of_two_stores_is_enough_for_what_both_had(two: None, wipe: Callable[[str], None]) -> None:
    wipe("a")
    assert numbers(hf.read("quotes")) == list(range(5))


def test_a_topic_whose_only_store_cannot_be_read_is_not_empty(run_store: Run, wipe: Callable[[str], None]) -> None:
    store = run_store("a", "disk")
    with hf.Context() as ctx:
        source(ctx, 5).close()
        until_no_ring(ctx.domain)
    store.stop()
    assert list(hf.read("nobody")) == []
    wipe("a")
    for topic in ("quotes", "nobody"):
        found, error = until_error(hf.read(topic))
        assert found == []
        assert isinstance(error, hf.StoresAwayError)
        assert error.stores == ("a",)
        assert topic in str(error)
        assert "store-a is not there" in str(error)
    wipe("a")
    assert numbers(hf.read("quotes")) == list(range(5))


def test_a_topic_that_nobody_in_sight_knows_may_be_at_a_store_that_is_away_until_that_is_given_up(
    two: None, wipe: Callable[[str], None]
) -> None:
    wipe("a")
    assert until_error(hf.read("nobody"))[0] == []
    assert exclude("a", 10, None) == 0
    assert list(hf.read("nobody")) == []


def test_a_store_is_given_up_by_any_name_that_it_is_known_by(tmp_path: Path, wipe: Callable[[str], None]) -> None:
    """A source may declare it by its port; the operator may have given up that name."""
    declared = {"127.0.0.1:10320": "a", "127.0.0.1:10321": "b"}
    made = [
        ThreadStore(StoreConfig(name, tmp_path / f"store-{name}", type="disk", port=int(place.rpartition(":")[2])))
        for place, name in declared.items()
    ]
    try:
        with hf.Context() as ctx:
            src = ctx.source("quotes", options={"ume_store": [f"{place}:0:0" for place in declared]})
            src.wait_registered(SHORT)
            send(src, 5)
            until("both have them", lambda: all(log.next == 5 for log in topic_sources(None)[0].logs))
            src.close()
            until_no_ring(ctx.domain)
    finally:
        for store in made:
            store.stop()
    wipe("b")
    assert [away.store for away in topic_sources(None)[0].away] == ["b"]
    assert isinstance(until_error(hf.read("nobody"))[1], hf.StoresAwayError)
    file = StateFile(tmp_path / "store-a")
    state = file.load()
    assert state is not None
    state.excluded["127.0.0.1:10321"] = 1
    file.save(state)
    assert topic_sources(None)[0].away == ()
    assert list(hf.read("nobody")) == []


def test_a_source_that_cannot_be_read_comes_behind_those_that_can(run_store: Run, tmp_path: Path) -> None:
    store = run_store("a", "disk")
    with hf.Context() as ctx:
        for _ in range(6):  # of each a third number, whatever the order of their identities
            source(ctx, 3).close()
        until_no_ring(ctx.domain)
    store.stop()
    for log in sorted((tmp_path / "store-a" / "logs").iterdir())[::2]:
        shutil.rmtree(log)
    found, error = until_error(hf.read("quotes"))
    assert found == [0, 1, 2] * 3
    assert isinstance(error, hf.StoresAwayError)


def test_a_log_that_is_gone_is_not_an_empty_one(two: None, tmp_path: Path) -> None:
    for name in "ab":
        (log,) = (tmp_path / f"store-{name}" / "logs").iterdir()
        shutil.rmtree(log)
    found, error = until_error(hf.read("quotes"))
    assert found == []
    assert isinstance(error, hf.StoresAwayError)
    assert error.stores == ("a", "b")
    assert exclude("a", 10, None) == exclude("b", 10, None) == 0
    assert list(hf.read("quotes")) == []


def test_what_only_a_store_of_an_earlier_list_has_is_not_taken_for_lost(
    only_a_has_5_to_9_and_is_away: None, wipe: Callable[[str], None]
) -> None:
    remove_objects(domain_directory())  # the ring may still be there
    found, error = until_error(hf.read("quotes"))
    assert found == list(range(5))
    assert isinstance(error, hf.StoresAwayError)
    assert error.stores == ("a",)
    assert "numbers from 5 on" in str(error)
    assert numbers(hf.read("quotes", end=5)) == list(range(5)), "what is asked for is all there"
    wipe("a")
    assert numbers(hf.read("quotes")) == list(range(10))
    wipe("a")
    assert exclude("a", 10, None) == 0
    assert numbers(hf.read("quotes")) == list(range(5)), "the operator has given it up"


# Logs written by hand ---------------------------------------------------------------------------------------


@pytest.fixture
def shelves(tmp_path: Path) -> Iterator[Shelves]:
    made = Shelves(tmp_path, stores=list("abc"), sizes=[3, 0, 0, 0, 0], groups=[0, 0, 0], begins=[(1, 0)])
    yield made
    made.close()


def opened(shelves: Shelves, *names: str, **more: Any) -> list[Log]:
    """New logs of stores in this test's domain, in which incarnation 1 has begun."""
    domain, logs = Domain(join=False), []
    for name in names:
        log = shelves.store(name, **more)
        assert log is not None
        log.begin(1, 0)
        logs.append(log)
        directory = shelves.path / f"store-{name}"
        state = StateFile(directory).load()
        assert state is not None
        write_info(domain, StoreInfo(name, state.uuid, str(directory), str(directory / "logs"), "disk", 1, 1, 1))
    domain.close()
    return logs


def away(shelves: Shelves, name: str) -> None:
    """A store that has run here, and whose directory is not there."""
    (directory,) = [path for path in shelves.directories if path.name == f"store-{name}"]
    directory.rename(shelves.path / "elsewhere")


def test_numbers_that_no_store_has_are_left_out_when_all_were_read(
    shelves: Shelves, caplog: pytest.LogCaptureFixture
) -> None:
    for log in opened(shelves, *"abc"):
        log.plain(0, 9)
        log.hole(10, 14)
        log.plain(15, 19)
    assert numbers(hf.read("quotes")) == [*range(10), *range(15, 20)]
    assert "10..14" in caplog.text


def test_numbers_that_no_store_in_sight_has_are_an_error_while_one_is_away(shelves: Shelves) -> None:
    for log in opened(shelves, *"abc"):
        log.plain(0, 9)
        log.hole(10, 14)
        log.plain(15, 19)
    away(shelves, "c")
    found, error = until_error(hf.read("quotes"))
    assert found == list(range(10))
    assert isinstance(error, hf.StoresAwayError)
    assert error.stores == ("c",)
    assert "10..14" in str(error)
    assert numbers(hf.read("quotes", 15)) == list(range(15, 20)), "it is alone, and nothing is stable with it"


def test_what_is_damaged_everywhere_is_an_error_that_says_how_to_go_on(shelves: Shelves) -> None:
    logs = opened(shelves, *"abc")
    for log in logs:
        log.plain(0, 99)
    logs[0].flip(b"50")
    assert numbers(hf.read("quotes")) == list(range(100)), "two have it"
    for log in logs[1:]:
        log.flip(b"50")
    found, error = until_error(hf.read("quotes"))
    assert found == list(range(50))
    assert isinstance(error, hf.CorruptionError)
    assert "start=51" in str(error)
    assert numbers(hf.read("quotes", 51)) == list(range(51, 100))


def test_where_all_of_it_is_damaged_it_is_not_taken_for_empty(shelves: Shelves) -> None:
    for log in opened(shelves, *"abc"):
        log.plain(0, 9)
        for number in range(10):
            log.flip(b"%d" % number)
    found, error = until_error(hf.read("quotes"))
    assert found == []
    assert isinstance(error, hf.CorruptionError)


@pytest.mark.parametrize("wiped", ["it knows nothing", "it learns", "no"])
def test_a_store_that_was_wiped_may_have_made_stable_what_another_one_has(shelves: Shelves, wiped: str) -> None:
    """a has 0..9 and knows that it never had more. Whether 10 and on is stable with c, which is away, is b's
    word, and it has none any more."""
    for log in opened(shelves, *"abc", learner=wiped == "it learns"):
        log.plain(0, 9)
    if wiped == "it knows nothing":
        directory = shelves.path / "store-b"
        state = StateFile(directory).load()
        assert state is not None
        state.sources.clear()
        StateFile(directory).save(state)
    assert numbers(hf.read("quotes")) == list(range(10)), "all are in sight"
    away(shelves, "c")
    if wiped == "no":
        assert numbers(hf.read("quotes")) == list(range(10))
        return
    found, error = until_error(hf.read("quotes"))
    assert found == list(range(10))
    assert isinstance(error, hf.StoresAwayError)
    assert "from 10 on" in str(error)
    assert numbers(hf.read("quotes", end=10)) == list(range(10))


@pytest.mark.parametrize(("lost_below", "found"), [(0, list(range(5, 10))), (5, [])])
def test_what_was_let_go_is_no_question_and_what_was_never_there_is(
    shelves: Shelves, lost_below: int, found: list[int]
) -> None:
    """a and b have 5..9 left. Either they had 0..4, too, and retention took them; or they came late, and c,
    which is away, may have them."""
    for log in opened(shelves, *"abc", lost_below=lost_below):
        log.plain(0, 9)
        log.release(5)
    assert numbers(hf.read("quotes")) == list(range(5, 10))
    away(shelves, "c")
    if found:
        assert numbers(hf.read("quotes")) == numbers(hf.read("quotes", 2)) == found
    else:
        assert until_error(hf.read("quotes"))[0] == []
        assert until_error(hf.read("quotes", 2))[0] == []
        assert until_error(hf.read("quotes", datetime(1970, 1, 1, tzinfo=UTC)))[0] == []
    assert numbers(hf.read("quotes", 5)) == list(range(5, 10))


@pytest.mark.parametrize(("stores", "asked"), [("c", True), ("cd", True), ("abc", False), ("d", False)])
def test_a_source_that_only_the_register_knows_is_a_question_where_its_stores_are_away(
    shelves: Shelves, monkeypatch: pytest.MonkeyPatch, stores: str, asked: bool
) -> None:
    for log in opened(shelves, *"abc"):
        log.plain(0, 9)
    away(shelves, "c")
    count = len(stores)
    entry = Entry("f" * 32, (tuple(stores), (count, 0, 0, 0, 0), (0,) * count, 0, 0), {})
    monkeypatch.setattr(topic_reader, "entries_of", lambda *_: [entry])
    if asked:
        found, error = until_error(hf.read("quotes"))
        assert found == list(range(10)), "first, what can be read"
        assert isinstance(error, hf.StoresAwayError)
        assert error.stores == ("c",)
    else:
        assert numbers(hf.read("quotes")) == list(range(10))
