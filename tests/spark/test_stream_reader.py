"""The streaming reader in the order in which Spark calls it, crashes included; stores are real, Spark is not
there."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from pyspark.sql.streaming.datasource import ReadMaxBytes, ReadMaxRows
from pyspark.sql.types import StructType
from spark.stream_kit import ALL, SESSION, acks, numbers, passed, read
from support.receiving import of_readers, send, source, until

import holdfast as hf
from holdfast.engine.log.catalog import topic_sources
from holdfast.engine.memory.domain import domain_directory
from holdfast.spark import stream_reader as stream_reader_module
from holdfast.spark.errors import DataLossError
from holdfast.spark.losses import losses_in
from holdfast.spark.offsets import as_offset, positions_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from process.conftest import ThreadStore


# Offsets ----------------------------------------------------------------------------------------------------


def test_a_new_query_and_what_comes_later(run_store: Callable[..., ThreadStore], ctx: hf.Context, reader: Any) -> None:
    run_store()
    src = source(ctx, 10)
    query = reader()
    start = query.initialOffset()
    assert numbers(start) == [0]
    assert query.initialOffset() == start
    end = query.latestOffset(passed(start), ALL)
    assert numbers(end) == [10]
    assert read(query, start, end) == list(range(10))
    assert json.dumps(query.latestOffset(passed(end), ALL)) == json.dumps(end), "nothing new: the same text"
    assert query.partitions(passed(end), passed(end)) == []
    send(src, 5)
    assert numbers(query.latestOffset(passed(end), ALL)) == [15]
    assert numbers(query.reportLatestOffset()) == [15]


@pytest.mark.parametrize("given", [{"topic": "quota"}, {"domain": "nowhere"}])
def test_what_nobody_keeps_is_waited_for_or_an_error_at_the_end(
    run_store: Callable[..., ThreadStore], ctx: hf.Context, reader: Any, caplog: pytest.LogCaptureFixture,
    given: dict[str, str],
) -> None:  # fmt: skip
    run_store()
    source(ctx, 3)
    said = (
        "there is no domain 'nowhere'" if "domain" in given else "no store keeps topic 'quota'; did you mean 'quotes'"
    )
    drains = reader(**given, session=SESSION)
    drains.prepareForTriggerAvailableNow()
    with pytest.raises(hf.ConfigError, match=said):
        drains.initialOffset()
    waits = reader(**given, session=SESSION)
    assert numbers(waits.initialOffset()) == []
    assert [said in told for told in of_readers(caplog)] == [True]
    assert numbers(waits.latestOffset(passed(waits.initialOffset()), ALL)) == []
    assert not (Path(os.environ["HOLDFAST_DIR"]) / "nowhere").exists()
    with hf.Context() as other:
        if "topic" in given:
            source(other, 2, topic="quota")
            assert numbers(waits.latestOffset(passed(waits.initialOffset()), ALL)) == [2]


def test_latest_is_one_place_however_often_spark_asks(
    run_store: Callable[..., ThreadStore], ctx: hf.Context, reader: Any
) -> None:
    run_store()
    src = source(ctx, 10)
    query = reader(startingOffsets=None)
    start = query.initialOffset()
    assert numbers(start) == [10], "a stream starts at the end by default"
    assert query.latestOffset(passed(start), ALL) == start
    assert query.partitions(passed(start), passed(start)) == []
    send(src, 5)
    end = query.latestOffset(passed(start), ALL)
    assert query.initialOffset() == start, "Spark asks again for the start of its first batch"
    assert read(query, query.initialOffset(), end) == list(range(10, 15))


def test_stores_that_were_set_back(
    run_store: Callable[..., ThreadStore], ctx: hf.Context, reader: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """What comes under the numbers that were read is not read: it is told. Offsets never go back."""
    run_store()
    source(ctx, 10)
    query, lenient = reader(), reader(failOnDataLoss="false")
    (name,) = positions_of(query.initialOffset())
    ahead = as_offset({name: 12})
    with pytest.raises(DataLossError, match=r"numbers 10\.\.11 are gone"):
        query.latestOffset(passed(ahead), ALL)
    for _ in range(2):
        assert lenient.latestOffset(passed(ahead), ALL) == ahead
    assert caplog.text.count("10..11") == 1


def test_an_idle_query_does_not_look_all_the_time(
    run_store: Callable[..., ThreadStore], ctx: hf.Context, reader: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_store()
    src = source(ctx, 10)
    monkeypatch.setattr(stream_reader_module, "LOOK_PAUSE", 1e9)
    monkeypatch.setattr(stream_reader_module, "LOOK_PAUSE_MAX_S", 1e9)
    query = reader()
    end = query.latestOffset(passed(query.initialOffset()), ALL)
    send(src, 1)
    assert query.latestOffset(passed(end), ALL) == end, "not now"
    monkeypatch.setattr(query, "_look_s", 0.0)
    assert numbers(query.latestOffset(passed(end), ALL)) == [11], "but when it is due"


def test_a_new_source_is_read_from_its_first_number(
    run_store: Callable[..., ThreadStore], ctx: hf.Context, reader: Any
) -> None:
    run_store()
    source(ctx, 3)
    query = reader(startingOffsets="latest")
    start = query.initialOffset()
    source(ctx, 4)
    ctx.source("quotes", options={"ume_store_name": ["a:0:0"]}).wait_registered(
        30
    )  # never sends: no reason for a batch
    end = query.latestOffset(passed(start), ALL)
    assert sorted(numbers(end)) == [3, 4]
    assert read(query, start, end) == [0, 1, 2, 3]
    assert read(reader(), start, end) == [0, 1, 2, 3], "planned again by the next life: the same rows"


def test_a_new_source_that_has_lost_its_first_numbers(
    run_store: Callable[..., ThreadStore], ctx: hf.Context, reader: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Retention was faster than the query: it is told, or goes on behind the loss."""
    run_store(**{"repository-size-threshold": 1 << 20, "repository-size-limit": 2 << 20})
    query, lenient = reader(), reader(failOnDataLoss="false", maxRecordsPerTrigger=3)
    start = query.initialOffset()
    assert numbers(start) == numbers(lenient.initialOffset()) == []
    oldest = expire(source(ctx))
    for _ in range(2):
        with pytest.raises(DataLossError, match=rf"numbers 0\.\.{oldest - 1} are expired"):
            query.latestOffset(passed(start), ALL)
    end = lenient.latestOffset(passed(start), ReadMaxRows(3))
    assert numbers(end) == [oldest + 3], "the limit is of what can be read"
    (part,) = lenient.partitions(passed(start), passed(end))
    assert (part.first, part.stop) == (oldest, oldest + 3), "no task walks through what is gone"
    assert read(lenient, start, end) == list(range(oldest, oldest + 3))
    with pytest.raises(DataLossError, match=rf"numbers 0\.\.{oldest - 1} are expired"):
        query.partitions(passed(start), passed(end))  # planned again after a crash
    assert caplog.text.count(f"0..{oldest - 1}") == 1
    (topic, key) = topic_sources(None)[0].topic, topic_sources(None)[0].key
    assert lenient.reportLatestOffset()["lost"] == {topic: {key: oldest}}
    assert "lost" not in query.reportLatestOffset()
    again = reader(failOnDataLoss="false")
    assert read(again, start, end) == list(range(oldest, oldest + 3)), "the next life plans the same batch"
    (loss,) = losses_in(domain_directory())
    assert (loss.topic, loss.source, loss.first, loss.last, loss.why) == (topic, key, 0, oldest - 1, "expired")


def expire(src: hf.Source) -> int:
    """Sends until the oldest messages are gone; returns which number is the oldest then."""
    for _ in range(200):  # several fit into a segment, where a read is cut
        src.send(bytes(20_000), timeout=90)
    src.wait_stable(timeout=90)
    until("retention", lambda: topic_sources(None)[0].oldest > 0)
    return topic_sources(None)[0].oldest


def test_a_query_that_ends_with_what_is_there_does_not_pass_it_by_a_loss(
    run_store: Callable[..., ThreadStore], ctx: hf.Context, reader: Any
) -> None:
    run_store(**{"repository-size-threshold": 1 << 20, "repository-size-limit": 2 << 20})
    src = source(ctx, 3)
    lenient = reader(failOnDataLoss="false")
    lenient.prepareForTriggerAvailableNow()
    start = lenient.initialOffset()
    assert expire(src) > 3
    end = lenient.latestOffset(passed(start), ALL)
    assert numbers(end) == [3]
    assert lenient.partitions(passed(start), passed(end)) == []
    assert [(loss.first, loss.last) for loss in losses_in(domain_directory())] == [(0, 2)]


def test_a_source_keeps_its_name_when_another_store_names_it(
    run_store: Callable[..., ThreadStore], ctx: hf.Context, reader: Any
) -> None:
    """The RegID in a name is one store's."""
    run_store("a")
    source(ctx, 10)
    query = reader(session=SESSION)
    ((topic, key),) = positions_of(query.initialOffset())
    old = f"99/{key.partition('/')[2]}"
    start = as_offset({(topic, old): 4})
    end = query.latestOffset(passed(start), ALL)
    assert positions_of(end) == {(topic, old): 10}
    assert read(query, start, end) == list(range(4, 10))
    assert positions_of(query.reportLatestOffset()) == {(topic, old): 10}
    until("acknowledged under the old name", lambda: acks() == [4])


def test_only_what_a_quorum_has(
    run_store: Callable[..., ThreadStore], ctx: hf.Context, reader: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_store()
    source(ctx, 10)
    (found,) = topic_sources(None)
    behind = msgspec.structs.replace(found, quorum_next=4)
    monkeypatch.setattr(stream_reader_module, "selected", lambda *_: [behind])
    for read_from, stop in (("quorum", 4), ("any", 10), ("store:a", 10)):
        query = reader(readFrom=read_from)
        start = query.initialOffset()
        assert numbers(query.latestOffset(passed(start), ALL)) == [stop]
        assert numbers(query.reportLatestOffset()) == [10]
        query.prepareForTriggerAvailableNow()
        assert numbers(query.latestOffset(passed(start), ALL)) == [stop]


# Limits -----------------------------------------------------------------------------------------------------


def test_limits(run_store: Callable[..., ThreadStore], ctx: hf.Context, reader: Any) -> None:
    run_store()
    source(ctx, 100)
    start = reader().initialOffset()
    by_rows, by_bytes, waiting = (
        reader(maxRecordsPerTrigger=30),
        reader(maxBytesPerTrigger=500),
        reader(minRecordsPerTrigger=101, maxTriggerDelay="1h"),
    )
    assert by_rows.getDefaultReadLimit() == ReadMaxRows(30)
    assert by_bytes.getDefaultReadLimit() == ReadMaxBytes(500)
    assert reader().getDefaultReadLimit() == ALL
    assert numbers(by_rows.latestOffset(passed(start), by_rows.getDefaultReadLimit())) == [30]
    assert numbers(by_bytes.latestOffset(passed(start), by_bytes.getDefaultReadLimit())) == [14], (
        "500 of 32 and 1.9 bytes"
    )
    assert waiting.latestOffset(passed(start), waiting.getDefaultReadLimit()) == start
    assert numbers(waiting.latestOffset(passed(start), ALL)) == [100], "a trigger that wants everything gets it"
    both = reader(maxRecordsPerTrigger=30, maxBytesPerTrigger=500)
    assert numbers(both.latestOffset(passed(start), both.getDefaultReadLimit())) == [14]


def test_available_now_reads_what_was_there_and_ends(
    run_store: Callable[..., ThreadStore], ctx: hf.Context, reader: Any
) -> None:
    run_store()
    src = source(ctx, 100)
    query = reader(maxRecordsPerTrigger=60, minRecordsPerTrigger=50, maxTriggerDelay="1h")
    query.prepareForTriggerAvailableNow()
    offsets = [query.initialOffset()]
    send(src, 50)
    source(ctx, 7)
    limit = query.getDefaultReadLimit()
    while len(offsets) < 2 or offsets[-1] != offsets[-2]:
        offsets.append(query.latestOffset(passed(offsets[-1]), limit))
    assert [numbers(offset) for offset in offsets] == [[0], [60], [100], [100]], (
        "neither newer messages nor newer sources"
    )
    assert sorted(numbers(query.reportLatestOffset())) == [7, 150], "the lag is told all the same"


# Data loss --------------------------------------------------------------------------------------------------


def test_a_source_that_is_gone(
    run_store: Callable[..., ThreadStore], ctx: hf.Context, reader: Any, caplog: pytest.LogCaptureFixture
) -> None:
    run_store()
    src = source(ctx, 6)
    query = reader()
    start = query.initialOffset()
    end = query.latestOffset(passed(start), ALL)
    src.deregister()
    src.close()
    until("forgotten", lambda: not topic_sources(None))
    with pytest.raises(DataLossError, match=r"numbers 0\.\.5 are gone"):
        query.partitions(passed(start), passed(end))
    assert query.latestOffset(passed(end), ALL) == end, "it stays in the offsets"
    assert query.partitions(passed(end), passed(end)) == []
    with caplog.at_level(logging.WARNING, "holdfast"):
        assert reader(failOnDataLoss="false").partitions(passed(start), passed(end)) == []
    assert "0..5" in caplog.text


@pytest.mark.parametrize("more", [0, 3])
def test_a_first_batch_begins_where_it_began(
    run_store: Callable[..., ThreadStore], ctx: hf.Context, reader: Any, more: int
) -> None:
    """Spark asks for ``latest`` again after a crash in its first batch, and gets another place: the batch
    says its own."""
    run_store()
    src = source(ctx, 6)
    query = reader(startingOffsets="latest")
    start = query.initialOffset()
    send(src, 2)
    end = query.latestOffset(passed(start), ALL)
    send(src, more)
    again = reader(startingOffsets="latest")
    assert read(again, again.initialOffset(), end) == [6, 7]
    assert read(again, end, end) == [], "planned for another source's sake, as Spark does"
    following = again.latestOffset(passed(end), ALL)
    assert read(again, end, following) == list(range(8, 8 + more))
    assert ("began" in following) == (more == 0)


@pytest.mark.parametrize("more", [0, 3])
def test_a_first_batch_of_an_older_release_does_not_say_where_it_began(
    run_store: Callable[..., ThreadStore], ctx: hf.Context, reader: Any, caplog: pytest.LogCaptureFixture, more: int
) -> None:
    run_store()
    src = source(ctx, 6)
    source(ctx, 3)
    query = reader(startingOffsets="latest")
    start = query.initialOffset()
    send(src, 2)
    end = as_offset(positions_of(query.latestOffset(passed(start), ALL)))
    assert read(query, start, end) == [6, 7], "a source with nothing new is no loss"
    send(src, more)
    again = reader(startingOffsets="latest")
    with pytest.raises(DataLossError, match=r"7\.\.7 are left out, and what came before"):
        again.partitions(passed(again.initialOffset()), passed(end))
    lenient = reader(startingOffsets="latest", failOnDataLoss="false")
    assert lenient.partitions(passed(lenient.initialOffset()), passed(end)) == []
    assert "7..7 are left out" in caplog.text
    following = lenient.latestOffset(passed(end), ALL)
    assert read(lenient, end, following) == list(range(8, 8 + more)), "and the query goes on"


def test_nothing_is_open_before_the_first_question(run_store: Callable[..., ThreadStore], reader: Any) -> None:
    run_store()
    query = reader(session=SESSION)
    assert query._session is None
    assert isinstance(query._plan.schema, StructType)
    query.stop()
