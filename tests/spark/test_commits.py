"""Commits that are repeated, that die at any point, that meet each other: every row is published once."""

from __future__ import annotations

import os
import random
import shutil
import signal
from pathlib import Path

import pytest
from spark import writes
from spark.three_stores import NAMES, House, published
from spark.writes import (
    OPTIONS,
    POINTS,
    TOPIC_VALUE,
    Query,
    Row,
    batch_tasks,
    by_topic,
    commit_and_die,
    commit_and_kill,
    copy,
    rows,
    staged,
    write,
)

import holdfast as hf
from holdfast.engine.memory.domain import SHM_DIR, Domain, domain_directory, unlink_object
from holdfast.spark import source_cache
from holdfast.spark.alive import let_go
from holdfast.spark.batch_writer import BatchWriter
from holdfast.spark.errors import PlacementError
from holdfast.spark.ledger import Ledger, LedgerInUseError
from holdfast.spark.publishing import Publisher, session_of


@pytest.fixture
def query(tmp_path: Path) -> Query:
    return Query(OPTIONS, tmp_path)


def test_a_repeated_commit_is_a_no_op(house: House, query: Query) -> None:
    first = query.tasks(0, [rows(0, 0)])
    query.writer().commit(first, 0)
    query.writer().commit(first, 0)
    query.run(0, [rows(0, 0), rows(0, 1)])  # the batch is repeated, with other rows
    query.run(1, [rows(1, 0)])
    assert published() == by_topic(rows(0, 0), rows(1, 0))
    assert staged(query.place) == []


@pytest.mark.parametrize("point", POINTS)
def test_a_commit_that_dies_is_finished_by_the_next(house: House, query: Query, point: str) -> None:
    query.run(0, [rows(0, 0)])
    parts = [rows(1, partition) for partition in range(3)]
    commit_and_die(query, 1, query.tasks(1, parts), point)
    other = parts if point == "before_intent" else [parts[2], parts[0], rows(9, 9)]
    query.run(1, other)  # Spark repeats the batch; a shuffle has moved its rows
    query.run(2, [rows(2, 0)])
    assert published() == by_topic(rows(0, 0), *parts, rows(2, 0))
    assert staged(query.place) == []


def test_commits_that_are_killed_at_any_moment(house: House, query: Query) -> None:
    chance = random.Random(7)
    kept: list[list[Row]] = []
    for batch in range(3):
        parts = [rows(batch, partition, 20_000) for partition in range(2)]
        for _ in range(3):
            commit_and_kill(query, batch, query.tasks(batch, parts), chance.uniform(0, 0.06))
        query.run(batch, parts)
        kept += parts
    assert published() == by_topic(*kept)
    assert staged(query.place) == []


@pytest.mark.parametrize("point", ["after_intent", "half_published", "published_not_stable"])
def test_a_commit_that_dies_again_is_finished_all_the_same(house: House, query: Query, point: str) -> None:
    parts = [rows(0, partition) for partition in range(3)]
    tasks = query.tasks(0, parts)
    commit_and_die(query, 0, tasks, "half_published")
    commit_and_die(query, 0, tasks, point)
    query.run(0, parts)
    assert published() == by_topic(*parts)


def test_another_fragment_size_goes_on_where_the_one_before_ended(house: House, query: Query) -> None:
    parts = [[("x", b"%d" % i + b"." * size) for i in range(20)] for size in (100, 5000)]
    query.options["option.fragment_size"] = "512"
    tasks = query.tasks(0, [[*parts[0], *parts[1]]])
    commit_and_die(query, 0, tasks, "half_published")
    query.options["option.fragment_size"] = "4096"
    with pytest.MonkeyPatch.context() as patch:  # it goes on, and fails behind some more rows
        patch.setattr(Publisher, "send", writes._halfway(Publisher.send))
        patch.setattr(writes, "die", _fail)
        with pytest.raises(RuntimeError, match="as asked"):
            query.writer().commit(tasks, 0)
    query.options["option.fragment_size"] = "1024"
    query.run(0, parts)
    assert published() == by_topic(*parts)


def _fail(*_: object) -> None:
    raise RuntimeError("as asked")


def test_an_abort_after_a_failed_commit_leaves_what_the_next_one_needs(house: House, query: Query) -> None:
    tasks = query.tasks(0, [rows(0, 0)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Publisher, "wait_stable", _fail)
        with pytest.raises(RuntimeError, match="as asked"):
            query.writer().commit(tasks, 0)
    query.writer().abort([*tasks, None], 0)
    again = query.tasks(0, [rows(9, 9)])
    query.writer().abort(again, 0)  # this one has no intent
    assert len(staged(query.place)) == 1
    query.run(0, [rows(9, 9)])
    assert published() == by_topic(rows(0, 0))


def test_an_aborted_batch_leaves_nothing(house: House, query: Query) -> None:
    query.writer().abort(query.tasks(0, [rows(0, 0)]), 0)
    assert staged(query.place) == []
    writer = BatchWriter(OPTIONS, TOPIC_VALUE, overwrite=False)
    tasks = batch_tasks(writer, [rows(0, 0)])
    directory = Path(tasks[0].directory)
    assert len(staged(directory)) == 1
    copy(writer).abort([*tasks, None])
    with pytest.raises(hf.UsageError, match="the write was aborted"):
        batch_tasks(writer, [rows(0, 0)])  # a task that Spark has not killed yet
    assert not directory.exists()
    assert published() == {}


def test_what_a_killed_attempt_has_staged_is_swept_by_the_commit(house: House, query: Query) -> None:
    query.tasks(0, [rows(0, 0)])  # its executor is lost, and the task runs again elsewhere
    query.run(0, [rows(0, 0)])
    assert staged(query.place) == []


def test_what_a_killed_driver_has_staged_is_swept_by_a_later_write(house: House, own_domain: str) -> None:
    writer = BatchWriter(OPTIONS, TOPIC_VALUE, overwrite=False)
    lost, kept = writer, BatchWriter(OPTIONS, TOPIC_VALUE, overwrite=False)
    directories = [Path(batch_tasks(each, [rows(0, 0)])[0].directory) for each in (lost, kept)]
    let_go(directories[0])  # as the kernel does
    write(OPTIONS, [rows(1, 0)])
    assert [directory.exists() for directory in directories] == [False, True]


def test_stores_that_lost_everything_get_the_batch_from_its_beginning(house: House, query: Query) -> None:
    query.run(0, [rows(0, 0)])
    parts = [rows(1, 0), rows(1, 1)]
    commit_and_die(query, 1, query.tasks(1, parts), "half_published")
    house.stop()
    for name in NAMES:
        shutil.rmtree(house.where / name)
    _forget_memory()
    house.stores = {name: house.start(name) for name in NAMES}
    commit_and_die(query, 1, query.tasks(1, parts), "half_published")  # and once more
    query.run(1, parts)
    assert published() == by_topic(*parts)


@pytest.mark.parametrize("stopped", ["abc", "bc"])
def test_a_reboot_that_takes_what_was_only_in_the_ring(tmp_path: Path, query: Query, stopped: str) -> None:
    """With all of the stores stopped the rows are lost, with two of them they are at one store, and not
    stable."""
    configs = {name: hf.StoreConfig(name, tmp_path / name, type="disk") for name in NAMES}
    stores = {name: hf.spawn_store(config, 90) for name, config in configs.items()}
    try:
        query.run(0, [rows(0, 0)])
        parts = [rows(1, partition) for partition in range(3)]
        pids = [stores[name].pid for name in stopped]
        commit_and_die(query, 1, query.tasks(1, parts), "published_not_stable", stop=pids)
        for store in stores.values():
            os.kill(store.pid, signal.SIGKILL)
            store.wait(90)
        _forget_memory()
        stores = {name: hf.spawn_store(config, 90) for name, config in configs.items()}
        query.run(1, [rows(9, 9)])
        query.run(2, [rows(2, 0)])
        assert published() == by_topic(rows(0, 0), *parts, rows(2, 0))
    finally:
        source_cache.release()
        for store in stores.values():
            store.stop()


def _forget_memory() -> None:
    """What a reboot takes: rings, boards, the logs of memory stores."""
    domain = Domain(None, join=False)
    for item in domain.objects():
        if item.kind == "logs":
            shutil.rmtree(SHM_DIR / item.name)
        elif item.kind != "bells":  # this process uses them on
            unlink_object(item.name)
    domain.close()


@pytest.mark.parametrize(
    ("foreign", "message"),
    [
        pytest.param(1000, "another program has published with its session ID", id="behind the batch"),
        pytest.param(1, "from number 150 on there are other messages than the rows", id="in the place of rows"),
    ],
)
def test_another_publisher_with_the_session_is_noticed(house: House, query: Query, foreign: int, message: str) -> None:
    parts = [rows(0, 0, topics=["x"])]
    commit_and_die(query, 0, query.tasks(0, parts), "half_published")
    with hf.Context(session_id=session_of(query.name, "x")) as context:
        source = context.source("x", options={"ume_store_name": list(NAMES), "ume_registration_interval": 3000})
        source.wait_registered(90)
        for _ in range(foreign):
            source.send(b"foreign")
        source.wait_stable(timeout=90)
    with pytest.raises(hf.CorruptionError, match=message):
        query.run(0, parts)


def test_two_commits_of_one_query_exclude_each_other(house: House, query: Query) -> None:
    query.options["commitTimeout"] = "100ms"
    tasks = query.tasks(0, [rows(0, 0)])
    with Ledger(query.place, 0), pytest.raises(LedgerInUseError, match=f"process {os.getpid()} holds") as caught:
        query.writer().commit(tasks, 0)
    assert caught.value.pid == os.getpid()
    query.options["commitTimeout"] = OPTIONS["commitTimeout"]
    query.writer().commit(tasks, 0)
    assert published() == by_topic(rows(0, 0))


def test_a_holder_of_the_session_is_waited_for_and_named(house: House, query: Query) -> None:
    tasks = query.tasks(0, [rows(0, 0, topics=["x"])])
    with Publisher(query.writer()._plan.options, query.name) as before:
        before.open(["x"])
        query.options["commitTimeout"] = "10s"  # it takes all of that; the stores answer in less
        with pytest.raises(hf.RegIdInUseError, match=f"process {os.getpid()}"):
            query.writer().commit(tasks, 0)
    query.options["commitTimeout"] = OPTIONS["commitTimeout"]
    query.writer().commit(tasks, 0)
    assert published() == by_topic(rows(0, 0, topics=["x"]))


def test_damage_is_found_before_anything_is_published(house: House, query: Query) -> None:
    (message,) = query.tasks(0, [rows(0, 0)])
    path = query.place / "rows" / message.file.name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(hf.CorruptionError, match="the task wrote"):
        query.writer().commit([message], 0)
    path.unlink()
    with pytest.raises(hf.UsageError, match=r"staged on host .*, is not on"):
        query.writer().commit([message], 0)
    assert published() == {}


def test_a_batch_that_cannot_be_finished_says_what_to_do(house: House, query: Query) -> None:
    parts = [rows(0, 0), rows(0, 1)]
    commit_and_die(query, 0, query.tasks(0, parts), "published_one_part")
    lost = query.place / "rows" / staged(query.place)[0]
    lost.rename(lost.with_suffix(".away"))
    with pytest.raises(
        hf.CorruptionError, match=r"batch 0 is being published.*bring that file back, or remove .*ledger"
    ):
        query.run(0, parts)
    lost.with_suffix(".away").rename(lost)
    query.run(0, parts)
    assert published() == by_topic(*parts)


def test_a_half_published_batch_goes_on_nowhere_else(
    house: House, other_house: str, query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    query.run(0, [rows(0, 0)])
    parts = [rows(1, 0), rows(1, 1)]
    commit_and_die(query, 1, query.tasks(1, parts), "half_published")
    here = domain_directory()
    with monkeypatch.context() as patch:
        patch.setenv("HOLDFAST_DOMAIN", other_house)
        said = rf"batch 1 is half published in domain {here} .*start it again with domain"
        with pytest.raises(PlacementError, match=rf"{said}.* and stores a,b,c; or remove {query.place}/ledger"):
            query.run(1, parts)
        assert published() == {}
    query.run(1, parts)
    assert published() == by_topic(rows(0, 0), *parts)
    with monkeypatch.context() as patch:
        patch.setenv("HOLDFAST_DOMAIN", other_house)
        query.run(2, [rows(2, 0)])  # whole batches may go anywhere
        assert published() == by_topic(rows(2, 0))


def test_a_record_without_a_place_goes_on_where_it_is(
    house: House, other_house: str, query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = [rows(0, 0), rows(0, 1)]
    commit_and_die(query, 0, query.tasks(0, parts), "half_published")
    with Ledger(query.place, 0) as ledger:
        assert ledger.record.intent is not None
        ledger.record.intent.place = None  # as 0.1.0 wrote it
        ledger.save()
    monkeypatch.setenv("HOLDFAST_DOMAIN", other_house)
    query.run(0, [rows(9, 9)])
    assert published() == by_topic(*parts)


def test_a_damaged_record_is_not_believed(house: House, query: Query) -> None:
    query.run(0, [rows(0, 0)])
    record = query.place / "ledger"
    data = bytearray(record.read_bytes())
    data[-2] ^= 1
    record.write_bytes(data)
    with pytest.raises(hf.CorruptionError, match="its checksum is wrong"):
        query.run(0, [rows(0, 0)])
    assert published() == by_topic(rows(0, 0))


def test_stores_that_are_away_fail_the_commit_and_not_the_batch(house: House, query: Query) -> None:
    query.run(0, [rows(0, 0)])
    house.stores["a"].stop()
    house.stores["b"].stop()
    query.options["commitTimeout"] = "500ms"
    with pytest.raises(hf.RegistrationTimeout):
        query.run(1, [rows(1, 0)])
    for name in "ab":
        house.stores[name] = house.start(name)
    query.options["commitTimeout"] = OPTIONS["commitTimeout"]
    query.run(1, [rows(1, 0)])
    assert published() == by_topic(rows(0, 0), rows(1, 0))
