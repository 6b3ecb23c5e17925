"""Topics whose sources are over, and whose logs their stores have closed: read by batches and by streams; and
what a streaming query leaves behind of them (engine/receiver/visits.py)."""

from __future__ import annotations

import os
import resource
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from spark.stream_kit import ALL, SESSION, numbers, passed, read
from spark.test_stream_query import to_parquet
from support.receiving import options, send, until
from support.shelved_logs import kept, open_files, over, shelve_at_once, shelved
from support.three_stores import everywhere

import holdfast as hf
from holdfast.engine.memory.domain import Domain
from holdfast.engine.receiver import leaving, visits
from holdfast.engine.tools import snapshot
from holdfast.engine.tools.finished import Candidate, candidates
from holdfast.spark import session as session_module
from holdfast.spark.batch_reader import BatchReader
from holdfast.spark.errors import DataLossError, PlacementError
from holdfast.spark.options import parse
from holdfast.spark.schema import columns_of
from holdfast.spark.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from process.conftest import ThreadStore
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

MANY = 3
LACKS = f"session {SESSION:#x} lacks {{}} numbers"


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log is shelved as soon as it may be."""
    shelve_at_once(monkeypatch)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session is registered with two sources that are over, and leaves the others."""
    monkeypatch.setattr(leaving, "IDLE_MAX", 2)
    monkeypatch.setattr(visits.Visits, "at_once", 4)


def all_over(ctx: hf.Context, store: ThreadStore, count: int = MANY) -> list[bytes]:
    """Sources with three messages each; their logs are shelved."""
    uuids = [over(ctx, each + 1) for each in range(count)]
    shelved(store, *uuids)
    return uuids


def batch(**more: str) -> BatchReader:
    given = {"topic": "quotes", "columns": "sequence_number", **more}
    return BatchReader(given, columns_of(parse(given, "batch")))


def rows(reader: BatchReader) -> list[int]:
    """What a batch read gives."""
    return [
        number
        for part in reader.partitions()
        for found in reader.read(part)
        for number in found.column("sequence_number").to_pylist()
    ]


def seen() -> list[Candidate]:
    """The sources, as ``holdfast store deregister --finished`` sees them."""
    domain = Domain(None, join=False)
    try:
        return candidates(domain, 0, None, force=False)
    finally:
        domain.close()


def owed() -> list[tuple[str, ...]]:
    return [each.owed for each in seen()]


def acknowledged(store: ThreadStore, uuids: Sequence[bytes]) -> list[int]:
    """What the session has acknowledged of each, by the store's state."""
    return [each.ack for uuid in uuids for each in kept(store, uuid).receivers if each.session_id == SESSION]


@pytest.mark.parametrize("kind", ["memory", "disk"])
@pytest.mark.parametrize("runs", [True, False])
def test_a_batch_read_opens_no_log_at_the_store(
    run_store: Callable[..., ThreadStore], ctx: hf.Context, kind: str, runs: bool
) -> None:
    store = run_store("a", kind)
    uuids = all_over(ctx, store)
    if not runs:
        store.stop()
    assert rows(batch()) == [0, 1, 2] * MANY
    assert rows(batch(startingOffsets="earliest", readFrom="store:a", maxRecordsPerPartition="2")) == [0, 1, 2] * MANY
    assert not store.store.holdings.drainer.repositories, "nobody has asked for a log"
    # The store looks at boards now and then, for a moment.
    logs = [path for path in open_files() if not path.endswith(".b") and any(uuid.hex() in path for uuid in uuids)]
    assert not logs


@pytest.mark.parametrize("kind", ["memory", "disk"])
def test_a_task_elsewhere_is_refused_as_ever(run_store: Callable[..., ThreadStore], ctx: hf.Context, kind: str) -> None:
    all_over(ctx, run_store("a", kind))
    made = batch()
    part = made.partitions()[0]
    assert len(list(made.read(part))) == 1
    for place in (
        replace(part.place, boot="another"),
        replace(part.place, stores=tuple(replace(each, uuid="00" * 16) for each in part.place.stores)),
    ):
        with pytest.raises(PlacementError) as told:
            list(made.read(replace(part, place=place)))
        assert told.value.code == "HF_PLACEMENT"


def test_neither_plans_nor_tasks_have_all_logs_open(
    run_store: Callable[..., ThreadStore], ctx: hf.Context, reader: Any
) -> None:
    """With fewer descriptors than logs."""
    store, count = run_store("a", "disk"), 40
    all_over(ctx, store, count)
    store.stop()
    ctx.close()
    query = reader(maxBytesPerTrigger=1 << 30, maxRecordsPerTrigger=10**6)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(open_files()) + 20, limits[1]))
    try:
        start = query.initialOffset()
        end = query.latestOffset(passed(start), query.getDefaultReadLimit())
        assert read(query, start, end) == [0, 1, 2] * count
        assert rows(batch()) == [0, 1, 2] * count
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_what_is_committed_is_let_go_and_nothing_before(
    run_store: Callable[..., ThreadStore], ctx: hf.Context, reader: Any
) -> None:
    """Over the end of a driver and the replay of its last batch."""
    store = run_store("a", "disk")
    uuids = all_over(ctx, store)
    given = {"session": SESSION, "maxRecordsPerTrigger": 6}
    query = reader(**given)
    limit = query.getDefaultReadLimit()
    start = query.initialOffset()
    assert owed() == [(LACKS.format(3),)] * MANY
    first = query.latestOffset(passed(start), limit)
    assert numbers(first) == [2, 2, 2]
    assert read(query, start, first) == [0, 1] * MANY
    assert owed() == [(LACKS.format(3),)] * MANY, "Spark has committed nothing"
    second = query.latestOffset(passed(first), limit)
    assert owed() == [(LACKS.format(1),)] * MANY
    assert len(query._session.receiver.controllers) == MANY
    query.stop()  # offsets/1 is written, commits/1 is not
    shelved(store, *uuids)
    assert owed() == [(LACKS.format(1),)] * MANY
    assert [each.keep for each in seen()] == [LACKS.format(1)] * MANY
    again = reader(**given)
    assert read(again, first, second) == [2] * MANY
    assert owed() == [(LACKS.format(1),)] * MANY
    assert again.latestOffset(passed(second), limit) == second
    until("it is let go", lambda: not again._session.receiver._all)
    shelved(store, *uuids)
    assert acknowledged(store, uuids) == [3] * MANY
    assert owed() == [()] * MANY
    assert [each.keep for each in seen()] == [""] * MANY
    again.stop()
    after = reader(**given)
    assert after.partitions(passed(second), passed(second)) == []
    assert after.latestOffset(passed(second), limit) == second
    assert not after._session.receiver._all, "all is acknowledged: no log is opened for it"
    shelved(store, *uuids)


@pytest.mark.usefixtures("few")
def test_a_run_that_ends_has_acknowledged_also_what_it_is_not_registered_with(
    run_store: Callable[..., ThreadStore], ctx: hf.Context, reader: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark may end the process when the last question is answered."""
    store, count = run_store("a", "disk"), 12
    uuids = all_over(ctx, store, count)
    query = reader(session=SESSION)
    query.prepareForTriggerAvailableNow()
    start = query.initialOffset()
    assert owed() == [(LACKS.format(3),)] * count
    end = query.latestOffset(passed(start), ALL)
    until("it has left most", lambda: len(query._session.receiver._all) <= 2)
    assert read(query, start, end) == [0, 1, 2] * count
    assert query.latestOffset(passed(end), ALL) == end
    assert owed() == [()] * count, "by the boards and the states"
    query.stop()
    shelved(store, *uuids)
    assert acknowledged(store, uuids) == [3] * count


@pytest.mark.usefixtures("few")
def test_a_query_that_is_stopped_takes_its_acknowledgements_along(
    run_store: Callable[..., ThreadStore], ctx: hf.Context, reader: Any
) -> None:
    store, count = run_store("a", "disk"), 12
    uuids = all_over(ctx, store, count)
    query = reader(session=SESSION)
    start = query.initialOffset()
    end = query.latestOffset(passed(start), ALL)
    query.commit(passed(end))
    query.stop()
    shelved(store, *uuids)
    assert acknowledged(store, uuids) == [3] * count


def test_a_source_that_comes_back_is_read_on_without_gap_or_repetition(
    run_store: Callable[..., ThreadStore], ctx: hf.Context, reader: Any
) -> None:
    store = run_store("a", "disk")
    (uuid,) = all_over(ctx, store, 1)
    query = reader(session=SESSION)
    start = query.initialOffset()
    end = query.latestOffset(passed(start), ALL)
    assert read(query, start, end) == [0, 1, 2]
    assert query.latestOffset(passed(end), ALL) == end
    until("it is let go", lambda: not query._session.receiver._all)
    shelved(store, uuid)
    with ctx.source("quotes", options=options(ume_session_id=1)) as src:
        everywhere(src)
        send(src, 2)
        more = query.latestOffset(passed(end), ALL)
        assert read(query, end, more) == [3, 4]
        assert query.latestOffset(passed(more), ALL) == more
        until("it is acknowledged", lambda: query._session.receiver.acknowledged() == {uuid: 5})
        send(src, 1)
    last = query.latestOffset(passed(more), ALL)
    assert read(query, more, last) == [5]
    assert query.latestOffset(passed(last), ALL) == last
    query.stop()
    shelved(store, uuid)
    assert acknowledged(store, [uuid]) == [6]


def test_a_second_query_of_the_session_is_refused_where_the_first_is_registered_with_nothing(
    run_store: Callable[..., ThreadStore], ctx: hf.Context, reader: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When a source comes back, the first one has it."""
    monkeypatch.setattr(session_module, "HELD_S", 0.0)
    all_over(ctx, run_store("a", "disk"))
    query = reader(session=SESSION)
    start = query.initialOffset()
    end = query.latestOffset(passed(start), ALL)
    assert query.latestOffset(passed(end), ALL) == end
    until("it has left", lambda: not query._session.receiver._all)
    second = reader(session=SESSION)
    with pytest.raises(hf.RegIdInUseError, match=f"session id {SESSION:#x} is held by process {os.getpid()} since"):
        second.initialOffset()
    with ctx.source("quotes", options=options(ume_session_id=1)) as src:
        everywhere(src)
        send(src, 1)
        more = query.latestOffset(passed(end), ALL)
        assert read(query, end, more) == [3]
    second.stop()
    query.stop()
    assert sorted(numbers(reader(session=SESSION).latestOffset(passed(more), ALL))) == [3, 3, 4]


@pytest.mark.parametrize("fails", [True, False])
def test_what_is_forgotten_by_force_is_lost(
    run_store: Callable[..., ThreadStore], ctx: hf.Context, reader: Any, fails: bool
) -> None:
    store = run_store("a", "disk")
    uuids = all_over(ctx, store)
    query = reader(session=SESSION, failOnDataLoss=str(fails).lower())
    start = query.initialOffset()
    end = query.latestOffset(passed(start), ALL)
    query.stop()
    shelved(store, *uuids)
    store.store.holdings.forget(kept(store, uuids[0]), names=lambda _: True)
    again = reader(session=SESSION, failOnDataLoss=str(fails).lower())
    if fails:
        with pytest.raises(DataLossError, match="gone: no store keeps this source any more"):
            read(again, start, end)
    else:
        assert read(again, start, end) == [0, 1, 2] * (MANY - 1)
        assert again.latestOffset(passed(end), ALL) == end
        assert acknowledged(store, uuids[1:]) == [3] * (MANY - 1) or again._session.receiver.pending == 0


def test_a_session_waits_for_positions_as_long_as_they_come(
    run_store: Callable[..., ThreadStore], ctx: hf.Context, own_domain: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of sources take longer than a store that does not answer is waited for."""
    uuids = all_over(ctx, run_store("a", "disk"), 5)
    clock, positions = [0.0], dict.fromkeys(uuids, 0)
    session = Session(parse({"topic": "quotes", "session": str(SESSION)}, "stream"))
    try:
        known: list[bytes] = []

        def sleep(_: float) -> None:
            clock[0] += session_module.SLOW_S - 0.5
            known.append(uuids[len(known)])

        monkeypatch.setattr(session.receiver, "acknowledged", lambda: {uuid: positions[uuid] for uuid in known})
        with monkeypatch.context() as patch:
            patch.setattr(type(session.receiver), "pending", 1)
            patch.setattr(session_module, "time", SimpleNamespace(sleep=sleep, monotonic=lambda: clock[0]))
            session.join({*uuids})
        assert known == uuids
    finally:
        session.close()


# With Spark -------------------------------------------------------------------------------------------------


def frame(spark: SparkSession, domain: str, **more: object) -> DataFrame:
    given = {"domain": domain, "topic": "quotes", "startingOffsets": "earliest", "session": SESSION, **more}
    made = spark.readStream.format("holdfast").option("columns", "sequence_number,value,source_reg_id")
    return made.options(**{name: str(value) for name, value in given.items()}).load()


def table(spark: SparkSession, where: Path) -> list[tuple[int, int]]:
    """How often each number is in the table."""
    found = spark.read.parquet(str(where / "out")).groupBy("sequence_number").count().collect()
    return sorted((row[0], row[1]) for row in found)


def living() -> list[object]:
    """Receivers that are registered now."""
    domain = Domain(None, join=False)
    try:
        return [row for row in snapshot.take(domain).receivers if row.alive]
    finally:
        domain.close()


def until_spark(what: str, true: Callable[[], object]) -> None:
    """Waits; on a busy machine Spark needs minutes."""
    deadline = time.monotonic() + 300
    while not true():
        assert time.monotonic() < deadline, f"the time is over: {what}"
        time.sleep(0.05)


def goes_on(query: StreamingQuery) -> bool:
    """Fails with the query's own error where it has ended."""
    if (error := query.exception()) is not None:
        raise error
    return query.isActive


@pytest.mark.spark
@pytest.mark.timeout(1500)
def test_with_spark(
    spark: SparkSession, run_store: Callable[..., ThreadStore], ctx: hf.Context, domain: str, tmp_path: Path
) -> None:
    """A batch and a running query over sources that are over; one of them lives again meanwhile."""
    store = run_store("a", "disk")
    uuids = all_over(ctx, store)
    reader = spark.read.format("holdfast").options(domain=domain, topic="quotes", columns="sequence_number")
    assert sorted(row[0] for row in reader.load().collect()) == sorted([0, 1, 2] * MANY)
    assert not store.store.holdings.drainer.repositories
    query: StreamingQuery = to_parquet(frame(spark, domain), tmp_path, processingTime="100 milliseconds")
    try:
        until_spark("all is acknowledged", lambda: goes_on(query) and acknowledged(store, uuids) == [3] * MANY)
        shelved(store, *uuids)
        until_spark("nobody is registered", lambda: not living())
        assert query.isActive
        assert owed() == [()] * MANY
        with ctx.source("quotes", options=options(ume_session_id=2)) as src:
            everywhere(src)
            send(src, 2)
            until_spark("that, too", lambda: goes_on(query) and sorted(acknowledged(store, uuids)) == [3, 3, 5])
    finally:
        query.stop()
    assert query.exception() is None
    assert table(spark, tmp_path) == [(0, MANY), (1, MANY), (2, MANY), (3, 1), (4, 1)]
    shelved(store, *uuids)
    last = to_parquet(frame(spark, domain), tmp_path, availableNow=True)
    assert last.awaitTermination(300)
    assert table(spark, tmp_path) == [(0, MANY), (1, MANY), (2, MANY), (3, 1), (4, 1)]
    shelved(store, *uuids)
    assert not living()
