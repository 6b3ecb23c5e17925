"""Stores that are whole and not in sight: what they may have is not lost, and is neither left out nor
acknowledged."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from spark.stream_kit import ALL, SESSION, acks, numbers, passed, read
from support.leftovers import remove_objects
from support.receiving import send, source, until

import holdfast as hf
from holdfast.cli.store_exclude import exclude
from holdfast.engine.log.catalog import TopicSource, topic_sources
from holdfast.engine.log.register import register_directory
from holdfast.engine.memory.domain import Domain, domain_directory
from holdfast.spark.batch_reader import BatchReader
from holdfast.spark.errors import DataLossError, StoresAwayError
from holdfast.spark.losses import losses_in
from holdfast.spark.offsets import as_offset
from holdfast.spark.options import parse
from holdfast.spark.schema import columns_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from process.conftest import ThreadStore

    Run = Callable[..., ThreadStore]

SMALL = {"repository-size-threshold": 1 << 20, "repository-size-limit": 2 << 20}
BOTH = pytest.mark.parametrize("strict", ["true", "false"])


def reboot() -> None:
    """It takes $XDG_RUNTIME_DIR, and with it the files that say who the stores are."""
    remove_objects(domain_directory())
    shutil.rmtree(domain_directory())


def at_stores(ctx: hf.Context, size: str, *names: str, **options: Any) -> hf.Source:
    stores = {"ume_store_name": [f"{name}:0:0" for name in names], "ume_store_group": [f"0:{size}"]}
    src = ctx.source("quotes", options={**stores, **options})
    src.wait_registered(90)
    return src


def one() -> TopicSource:
    (found,) = topic_sources(None)
    return found


def at(found: TopicSource, number: int) -> dict[str, Any]:
    return as_offset({(found.topic, found.key): number})


def planned(reader: Any, **options: Any) -> tuple[Any, Any]:
    """The first batch of a query that dies then."""
    query = reader(**options)
    start = query.initialOffset()
    end = query.latestOffset(passed(start), ALL)
    query.stop()
    return start, end


@BOTH
def test_a_batch_is_not_left_out_before_its_stores_are_started(run_store: Run, reader: Any, strict: str) -> None:
    """The query is up first after a reboot: it neither ends nor acknowledges what it has not read."""
    store = run_store(kind="disk")
    with hf.Context() as ctx:
        source(ctx, 10)
        start, end = planned(reader, failOnDataLoss=strict, session=SESSION)
    store.stop()
    reboot()
    early = reader(failOnDataLoss=strict, session=SESSION)
    for ask in ("plan", "look"):
        with pytest.raises(StoresAwayError, match=f"there is no domain {domain_directory()}.*start its stores") as away:
            early.partitions(passed(start), passed(end)) if ask == "plan" else early.latestOffset(passed(end), ALL)
        assert away.value.retriable
    early.stop()
    run_store(kind="disk")
    again = reader(failOnDataLoss=strict, session=SESSION)
    assert read(again, start, end) == list(range(10))
    again.latestOffset(passed(end), ALL)
    until("acknowledged when it was read", lambda: acks() == [10])
    assert losses_in(domain_directory()) == []


@BOTH
@pytest.mark.parametrize("known", ["by the register", "by the offset"])
def test_another_store_that_is_up_first_proves_nothing(run_store: Run, reader: Any, strict: str, known: str) -> None:
    """It has never heard of the source. Whose it is the register says, and the query's own offsets."""
    store = run_store("a", kind="disk")
    with hf.Context() as ctx:
        source(ctx, 10, **({"ume_session_id": "7"} if known == "by the register" else {}))
        start, end = planned(reader, failOnDataLoss=strict)
    store.stop()
    reboot()
    if known == "by the register":
        assert list(register_directory(domain_directory()).iterdir())
        del end["stores"]
    run_store("b", kind="disk")
    early = reader(failOnDataLoss=strict)
    with pytest.raises(StoresAwayError, match=r"numbers 0\.\.9 are at no store in sight, .* a \(it has not run in"):
        early.partitions(passed(start), passed(end))
    assert early.latestOffset(passed(end), ALL) == end, "nothing is to be read: it waits"
    drains = reader(failOnDataLoss=strict)
    drains.prepareForTriggerAvailableNow()
    with pytest.raises(StoresAwayError, match="is at no store in sight"):
        drains.latestOffset(passed(end), ALL)
    run_store("a", kind="disk")
    assert read(early, start, end) == list(range(10))


def test_a_peer_that_was_started_says_where_the_others_are(run_store: Run, reader: Any) -> None:
    """Their directories are read before they run."""
    stores = [run_store(name, kind="disk") for name in "ab"]
    with hf.Context() as ctx:
        src = at_stores(ctx, "2", *"ab")
        send(src, 10)
        start, end = planned(reader)
    for store in stores:
        store.stop()
    reboot()
    run_store("b", kind="disk")
    assert [log.store for log in one().logs] == ["a", "b"]
    assert one().away == ()
    assert read(reader(), start, end) == list(range(10))


def test_a_domain_in_which_nothing_ran_proves_nothing(run_store: Run, reader: Any) -> None:
    store = run_store(kind="disk")
    with hf.Context() as ctx:
        source(ctx, 10)
        start, end = planned(reader)
    store.stop()
    reboot()
    Domain(join=False).close()  # whoever was first
    end.pop("stores")  # of an older release
    with pytest.raises(StoresAwayError, match=r"any store \(none has run in"):
        reader().partitions(passed(start), passed(end))


@pytest.fixture
def half(run_store: Run, wipe: Callable[[str], None]) -> TopicSource:
    """A source at a, which has everything, and b, where retention has taken the first; a's volume is not
    mounted yet."""
    a = run_store("a", kind="disk")
    b = run_store("b", kind="memory", **SMALL)
    with hf.Context() as ctx:
        src = at_stores(ctx, "2", *"ab", ring_size=1 << 20)
        for _ in range(60):
            src.send(bytes(65_000), timeout=90)
        src.wait_stable(timeout=90)
        until("retention at b", lambda: one().logs[1].oldest > 0 and [log.next for log in one().logs] == [60, 60])
        whole = one()
    a.stop()
    b.stop()
    assert whole.oldest == 0
    wipe("a")
    return whole


@BOTH
def test_a_volume_that_is_mounted_late_moves_no_offset(
    half: TopicSource, reader: Any, wipe: Callable[[str], None], strict: str
) -> None:
    query = reader(failOnDataLoss=strict)
    start, oldest = at(half, 0), one().oldest
    for ask in ("plan", "look"):
        with pytest.raises(StoresAwayError, match=rf"numbers 0\.\.{oldest - 1} .* a \(.*store-a is not there\)"):
            query.partitions(passed(start), at(half, 60)) if ask == "plan" else query.latestOffset(passed(start), ALL)
    wipe("a")
    end = query.latestOffset(passed(start), ALL)
    assert read(query, start, end) == list(range(60))
    assert losses_in(domain_directory()) == []


def test_a_batch_read_of_numbers_that_are_away(half: TopicSource, reader: Any) -> None:
    def plan(number: int) -> list[int]:
        text = json.dumps({"quotes": {half.key: number}})
        options = {"topic": "quotes", "failOnDataLoss": "false", "startingOffsets": text, "readFrom": "any"}
        return [part.stop for part in BatchReader(options, columns_of(parse(options, "batch"))).partitions()]

    with pytest.raises(StoresAwayError, match="mount their directories"):
        plan(0)
    assert plan(one().oldest)[-1] == 60, "what is in sight can be read"


def test_a_store_that_was_given_up_is_not_waited_for(half: TopicSource, reader: Any) -> None:
    assert exclude("a", 10, None) == 0
    with pytest.raises(DataLossError, match="are expired"):
        reader().latestOffset(passed(at(half, 0)), ALL)


@BOTH
def test_stores_that_lag_do_not_speak_for_those_that_are_away(
    run_store: Run, reader: Any, wipe: Callable[[str], None], strict: str
) -> None:
    """c has stopped at 60; a and b have 100, and are mounted late. No part of a batch passes for the
    whole."""
    a, b, c = (run_store(name, kind="disk") for name in "abc")
    with hf.Context() as ctx:
        src = at_stores(ctx, "3", *"abc")
        send(src, 60)
        until("c has them", lambda: [log.next for log in one().logs] == [60] * 3)
        c.stop()
        send(src, 40)
        until("and the others more", lambda: [log.next for log in one().logs] == [100, 100, 60])
        whole = one()
    a.stop()
    b.stop()
    for name in "ab":
        wipe(name)
    query = reader(failOnDataLoss=strict)
    with pytest.raises(StoresAwayError, match=r"numbers 60\.\.99 "):
        query.partitions(passed(at(whole, 50)), passed(at(whole, 100)))
    with pytest.raises(StoresAwayError, match=r"numbers 60\.\.99 "):
        query.latestOffset(passed(at(whole, 100)), ALL)
    assert "lost" not in query.reportLatestOffset()
    assert losses_in(domain_directory()) == []
    for name in "ab":
        wipe(name)
    assert read(query, at(whole, 50), at(whole, 100)) == list(range(50, 100))


def test_a_part_of_a_batch_that_is_gone_is_said(run_store: Run, reader: Any) -> None:
    """Its stores are all in sight, and have less than the batch: the batch was planned, and the stores were
    set back."""
    run_store()
    with hf.Context() as ctx:
        source(ctx, 10)
    found = one()
    with pytest.raises(DataLossError, match=r"numbers 10\.\.11 are gone: its stores were set back"):
        reader().partitions(passed(at(found, 8)), passed(at(found, 12)))
    lenient = reader(failOnDataLoss="false")
    assert read(lenient, at(found, 8), at(found, 12)) == [8, 9]
    assert [(loss.first, loss.last) for loss in losses_in(domain_directory())] == [(10, 11)]


@BOTH
def test_a_task_that_no_longer_sees_a_store_skips_nothing(
    run_store: Run, reader: Any, store_directory: Callable[[str], Path], strict: str
) -> None:
    """Its disk fails between planning and reading."""
    stores = [run_store(name, kind="disk") for name in "ab"]
    with hf.Context() as ctx:
        src = at_stores(ctx, "2", *"ab")
        send(src, 10)
        with ctx.turning():  # so that the source does not know yet that it has no quorum
            stores[1].stop()  # it lags from here on
            src.send(b"x")
        until("a has it", lambda: one().any_next == 11)
    stores[0].stop()
    query = reader(failOnDataLoss=strict, readFrom="any")
    (part,) = query.partitions(passed(at(one(), 0)), passed(at(one(), 11)))
    for slot in store_directory("a").glob("state.*"):
        slot.write_bytes(b"?")
    (log,) = (store_directory("a") / "logs").iterdir()
    log.rename(store_directory("a") / "moved")
    with pytest.raises(StoresAwayError, match=r"numbers 10\.\.10 .*neither state\.0 nor state\.1 is valid"):
        list(query.read(part))
    assert losses_in(domain_directory()) == []


def test_a_task_knows_which_stores_were_away_when_it_was_planned(half: TopicSource, reader: Any) -> None:
    """The plan has the logs in sight alone, and they cannot say it."""
    query = reader(failOnDataLoss="false", readFrom="any")
    first = query.partitions(passed(at(half, one().oldest)), passed(at(half, 60)))[0]
    with pytest.raises(StoresAwayError, match=r"numbers 0\.\..* a \("):
        list(query.read(replace(first, first=0)))
    assert losses_in(domain_directory()) == []


# No domain --------------------------------------------------------------------------------------------------


def test_a_query_that_ends_with_what_is_there_needs_its_domain(
    run_store: Run, reader: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    run_store(kind="disk")
    with hf.Context() as ctx:
        source(ctx, 10)
    found = one()
    monkeypatch.setenv("HOLDFAST_DIR", str(tmp_path / "typo"))
    for start in (at(found, 4), as_offset({})):
        query = reader()
        query.prepareForTriggerAvailableNow()
        with pytest.raises(StoresAwayError, match=f"{tmp_path}/typo/.*HOLDFAST_DIR"):
            query.latestOffset(passed(start), ALL)
    assert numbers(reader().latestOffset(passed(as_offset({})), ALL)) == [], (
        "a continuous one waits for its first source"
    )
    assert not (tmp_path / "typo").exists()
