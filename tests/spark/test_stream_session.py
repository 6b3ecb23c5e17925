"""The streaming query as a registered receiver: what it acknowledges and when, and who else may have its
session."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from spark.stream_kit import ALL, SESSION, acks, numbers, passed, read
from support.receiving import send, source, until

import holdfast as hf
from holdfast.engine.log.catalog import topic_sources
from holdfast.engine.memory.domain import Domain
from holdfast.engine.store.receivers import ReceiverDesk
from holdfast.engine.tools import snapshot
from holdfast.spark import session as session_module
from holdfast.spark.offsets import as_offset

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from process.conftest import ThreadStore


SAID = "acknowledgements wait, and are tried again: store a failed to do this: "


def test_acknowledgements_follow_what_spark_has_made_durable(
    run_store: Callable[..., ThreadStore], ctx: hf.Context, reader: Any
) -> None:
    run_store()
    src = source(ctx, 10)
    query = reader(session=SESSION, maxRecordsPerTrigger=4)
    limit = query.getDefaultReadLimit()
    start = query.initialOffset()
    first = query.latestOffset(passed(start), limit)
    assert acks() == [0], "a new query has read nothing"
    assert read(query, start, first) == [0, 1, 2, 3]
    second = query.latestOffset(passed(first), limit)
    assert acks() == [4], "its first batch is committed: Spark would not ask behind it"
    query.commit(passed(first))
    assert read(query, first, second) == [4, 5, 6, 7]
    third = query.latestOffset(passed(second), limit)
    assert query.latestOffset(passed(third), limit) == third, "the end of an AvailableNow run"
    assert acks() == [10]
    query.commit(passed(first))
    assert acks() == [10], "never back"
    send(src, 1)
    assert acks() == [10]


def test_a_new_query_at_the_end_acknowledges_nothing_that_it_skips(
    run_store: Callable[..., ThreadStore], ctx: hf.Context, reader: Any
) -> None:
    """Also when it waits long: each idle trigger asks with the same start."""
    run_store()
    src = source(ctx, 10)
    query = reader(session=SESSION, startingOffsets="latest")
    start = query.initialOffset()
    for _ in range(3):
        assert query.latestOffset(passed(start), ALL) == start
    assert acks() == [0]
    send(src, 2)
    end = query.latestOffset(passed(start), ALL)
    assert acks() == [0]
    query.latestOffset(passed(end), ALL)
    assert acks() == [12]


def test_after_a_crash_the_logged_batch_is_first(
    run_store: Callable[..., ThreadStore], ctx: hf.Context, reader: Any
) -> None:
    run_store()
    source(ctx, 10)
    query = reader(session=SESSION, maxRecordsPerTrigger=4)
    start = query.initialOffset()
    first = query.latestOffset(passed(start), query.getDefaultReadLimit())
    second = query.latestOffset(passed(first), query.getDefaultReadLimit())
    query.commit(passed(first))
    query.stop()  # offsets/1 is written, commits/1 is not
    again = reader(session=SESSION, maxRecordsPerTrigger=4)
    assert read(again, first, second) == [4, 5, 6, 7]
    assert acks() == [4], "the batch is not done"
    third = again.latestOffset(passed(second), again.getDefaultReadLimit())
    assert acks() == [8], "and now it is"
    assert numbers(third) == [10]


def test_after_a_crash_in_the_first_batch_it_begins_anew(
    run_store: Callable[..., ThreadStore], ctx: hf.Context, reader: Any
) -> None:
    """Spark has no start of it in its checkpoint, and asks for the initial offset again."""
    run_store()
    source(ctx, 10)
    query = reader(session=SESSION, maxRecordsPerTrigger=4)
    first = query.latestOffset(passed(query.initialOffset()), query.getDefaultReadLimit())
    query.stop()
    again = reader(session=SESSION, maxRecordsPerTrigger=4)
    assert read(again, again.initialOffset(), first) == [0, 1, 2, 3]
    assert acks() == [0]
    again.latestOffset(passed(first), again.getDefaultReadLimit())
    assert acks() == [4]


def test_an_acknowledgement_that_fails_is_made_up_for(
    run_store: Callable[..., ThreadStore], ctx: hf.Context, reader: Any, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """An exception in commit would end the query."""
    run_store()
    source(ctx, 6)
    query = reader(session=SESSION)
    end = query.latestOffset(passed(query.initialOffset()), ALL)

    def fails(uuid: bytes, number: int) -> None:
        raise OSError("the disk of the test is full")

    with monkeypatch.context() as patch:
        patch.setattr(query._session.receiver, "acknowledge_below", fails)
        query.commit(passed(end))
    assert "the disk of the test is full" in caplog.text
    assert acks() == [0]
    query.latestOffset(passed(end), ALL)
    assert acks() == [6]


@pytest.mark.parametrize(
    ("mode", "after_latest", "after_commit"), [("commit", 0, 6), ("none", 0, 0), ("progress", 6, 6)]
)
def test_modes(
    run_store: Callable[..., ThreadStore], ctx: hf.Context, reader: Any, mode: str, after_latest: int, after_commit: int
) -> None:
    run_store()
    source(ctx, 6)
    query = reader(session=SESSION, ackMode=mode)
    end = query.latestOffset(passed(query.initialOffset()), ALL)
    query.latestOffset(passed(end), ALL)
    assert acks() == [after_latest]
    query.commit(passed(end))
    assert acks() == [after_commit]


def test_a_session_has_the_sources_that_are_read_and_no_others(
    run_store: Callable[..., ThreadStore], ctx: hf.Context, reader: Any
) -> None:
    """Two queries may share a session if they share no source."""
    run_store()
    source(ctx, 3)
    source(ctx, 5)
    keys = {found.any_next: found.key for found in topic_sources(None)}
    for count in (3, 5):
        query = reader(topic=None, assign=json.dumps({"quotes": [keys[count]]}), session=SESSION)
        end = query.latestOffset(passed(query.initialOffset()), ALL)
        query.commit(passed(end))
    assert sorted(acks()) == [3, 5]


def test_a_query_reads_on_when_the_store_was_wiped_that_gave_its_source_the_regid(
    run_store: Callable[..., ThreadStore], ctx: hf.Context, reader: Any, wipe: Callable[[str], None]
) -> None:
    """With ``assign``: its offsets know the source. A new query is told."""
    stores = {name: run_store(name, "disk") for name in "abc"}
    src = source(ctx, 10, ume_store_name=list("abc"))
    (before,) = topic_sources(None)
    given = {"topic": None, "assign": json.dumps({"quotes": [str(before.registration_id)]}), "session": SESSION}
    end = (query := reader(**given)).latestOffset(passed(query.initialOffset()), ALL)
    query.stop()
    stores["a"].stop()
    wipe("a")
    run_store("a", "disk")
    send(src, 5)
    until("another RegID", lambda: topic_sources(None)[0].registration_id != before.registration_id)
    again = reader(**given)
    again.prepareForTriggerAvailableNow()
    later = again.latestOffset(passed(end), ALL)
    assert numbers(later) == [15]
    assert read(again, end, later) == list(range(10, 15))
    assert again.latestOffset(passed(later), ALL) == later
    until("it has one identity at all stores", lambda: acks() == [15])
    new = reader(**given)
    new.prepareForTriggerAvailableNow()
    with pytest.raises(hf.ConfigError, match=r"has no source.*its sources are: .*another one when that was wiped"):
        new.initialOffset()


def test_stores_that_are_down_never_end_a_query(
    run_store: Callable[..., ThreadStore], ctx: hf.Context, reader: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything is read from their files; the acknowledgements count when they are back."""
    monkeypatch.setattr(session_module, "STORES_S", 0.1)
    store = run_store(kind="disk")
    src = source(ctx, 6)
    src.close()
    store.stop()
    query = reader(session=SESSION)
    start = query.initialOffset()
    end = query.latestOffset(passed(start), ALL)
    assert read(query, start, end) == list(range(6))
    query.commit(passed(end))
    assert query.latestOffset(passed(end), ALL) == end
    run_store(kind="disk")
    until("acknowledged", lambda: acks() == [6])


def test_a_store_whose_disk_is_full_never_ends_a_query(
    run_store: Callable[..., ThreadStore], ctx: hf.Context, reader: Any, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """It refuses, and grants when there is room; that is said once."""
    monkeypatch.setattr(session_module, "STORES_S", 0.0)
    monkeypatch.setattr(session_module, "HELD_S", 0.0)
    run_store(kind="disk")
    source(ctx, 6)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no room of the test")

    with monkeypatch.context() as patch:
        patch.setattr(ReceiverDesk, "_record", full)
        query = reader(session=SESSION)
        start = query.initialOffset()
        end = query.latestOffset(passed(start), ALL)
        assert read(query, start, end) == list(range(6))
        until("it is said", lambda: query.latestOffset(passed(end), ALL) == end and SAID in caplog.text)
        for _ in range(20):
            assert query.latestOffset(passed(end), ALL) == end
    assert caplog.text.count(SAID) == 1
    query.commit(passed(end))
    until("acknowledged", lambda: acks() == [6])


def test_a_query_without_a_session_registers_nothing(
    run_store: Callable[..., ThreadStore], ctx: hf.Context, reader: Any
) -> None:
    run_store()
    source(ctx, 6)
    query = reader()
    end = query.latestOffset(passed(query.initialOffset()), ALL)
    query.commit(passed(end))
    domain = Domain(None, join=False)
    assert snapshot.take(domain).receivers == []
    domain.close()


QUERY = """
import json, sys, time
from holdfast.spark import session
from holdfast.spark.options import parse
from holdfast.spark.schema import columns_of
from holdfast.spark.stream_reader import StreamReader
from pyspark.sql.streaming.datasource import ReadAllAvailable
session.STORES_S = 60.0  # a busy machine: without, it may begin before it has registered
given = {"topic": "quotes", "startingOffsets": "earliest", "session": sys.argv[1]}
query = StreamReader(given, columns_of(parse(given, "stream")))
end = query.latestOffset(query.initialOffset(), ReadAllAvailable())
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def other_query(own_domain: str) -> Iterator[Callable[[], subprocess.Popen[str]]]:
    """Another process with a query of the same session; it has registered."""
    made: list[subprocess.Popen[str]] = []

    def begin() -> subprocess.Popen[str]:
        command = [sys.executable, "-c", QUERY, str(SESSION)]
        made.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        assert made[-1].stdout is not None
        assert made[-1].stdout.readline() == "ready\n"
        return made[-1]

    yield begin
    for process in made:
        process.kill()
        process.communicate()


def test_a_second_query_with_the_session_is_refused_and_told_who_has_it(
    run_store: Callable[..., ThreadStore], ctx: hf.Context, reader: Any, monkeypatch: pytest.MonkeyPatch,
    other_query: Callable[[], subprocess.Popen[str]],
) -> None:  # fmt: skip
    monkeypatch.setattr(session_module, "HELD_S", 3.0)  # a store is asked several times meanwhile
    monkeypatch.setattr(session_module, "ASKED_AGAIN_S", 60.0)
    run_store()
    source(ctx, 6)
    first = other_query()
    query = reader(session=SESSION)
    with pytest.raises(hf.RegIdInUseError, match=str(first.pid)):
        query.initialOffset()
    again = reader(session=SESSION)
    (source_now,) = topic_sources(None)
    batch = as_offset({(source_now.topic, source_now.key): 0}), as_offset({(source_now.topic, source_now.key): 6})
    with pytest.raises(hf.RegIdInUseError, match=str(first.pid)):
        again.partitions(*map(passed, batch))  # a restart begins here
    assert acks() == [0], "it has acknowledged nothing"


def test_a_session_of_a_killed_query_is_taken_over(
    run_store: Callable[..., ThreadStore],
    ctx: hf.Context,
    reader: Any,
    other_query: Callable[[], subprocess.Popen[str]],
) -> None:
    """Also while it is still dying: the refusal is waited out."""
    run_store()
    source(ctx, 6)
    first = other_query()
    query = reader(session=SESSION)
    killer = subprocess.Popen(["sh", "-c", f"sleep 1; kill -9 {first.pid}"])
    start = query.initialOffset()
    assert killer.wait() == 0
    end = query.latestOffset(passed(start), ALL)
    query.latestOffset(passed(end), ALL)
    assert acks() == [6]
