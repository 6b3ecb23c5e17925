"""``txnAppId`` and ``txnVersion``: a version is published once in each topic of each domain, and records of
0.1.0 still count."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark import TaskContext
from spark import writes
from spark.three_stores import House, published
from spark.writes import OPTIONS, TOPIC_VALUE, Row, Task, batch_tasks, batches, by_topic, copy, rows, write

from holdfast.spark import source_cache
from holdfast.spark.batch_writer import BatchWriter
from holdfast.spark.committing import commit
from holdfast.spark.options import parse
from holdfast.spark.publishing import Publisher
from holdfast.spark.transactions import publisher_of
from holdfast.spark.writing import plan_of, stage_rows

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

PAIR = {**OPTIONS, "txnAppId": "night", "txnVersion": "7"}


def options(version: int = 7, **more: str) -> dict[str, str]:
    return {**PAIR, "txnVersion": str(version), **more}


def values(*parts: Sequence[Row]) -> list[bytes]:
    return [value for part in parts for _, value in part]


def _fail(*_: object) -> None:
    raise RuntimeError("as asked")


def write_and_fail(given: dict[str, str], parts: Sequence[Sequence[Row]], point: str = "send") -> None:
    """A write whose commit fails half way, and that Spark aborts then."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Publisher, point, writes._halfway(Publisher.send) if point == "send" else _fail)
        patch.setattr(writes, "die", _fail)
        writer = BatchWriter(given, TOPIC_VALUE, overwrite=False)
        messages = batch_tasks(writer, parts)
        with pytest.raises(RuntimeError, match="as asked"):
            copy(writer).commit(messages)
        copy(writer).abort(messages)


def write_as_before(given: dict[str, str], part: Sequence[Row]) -> None:
    """As 0.1.0 wrote it: one record for all topics, its rows beside it, without a place."""
    parsed = parse(given, "write")
    plan = plan_of(parsed, TOPIC_VALUE, overwrite=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TaskContext, "_taskContext", Task(0, {}))
        patch.setattr("holdfast.spark.committing.written_place", lambda _: None)
        version = parsed.txn_version
        assert version is not None
        message = stage_rows(plan, publisher_of(parsed), version, 0, iter(batches(part)), make=True)
        commit(plan.options, [message], version)
    source_cache.release()  # its process ends


# Topics -----------------------------------------------------------------------------------------------------


def test_one_pair_is_published_once_in_each_topic(house: House) -> None:
    for _ in range(2):  # foreachBatch is repeated
        for number, topic in enumerate(["orders", "alarms"]):
            write(options(topic=topic), [rows(7, number)])
    write(options(8, topic="orders"), [rows(8, 0)])
    write(options(7, topic="orders"), [rows(7, 0)])
    assert published() == {"orders": values(rows(7, 0), rows(8, 0)), "alarms": values(rows(7, 1))}


def test_topics_that_rows_name_count_one_by_one(house: House) -> None:
    write(PAIR, [rows(7, 0, topics=["x", "y"])])
    write(PAIR, [rows(7, 1, topics=["y", "z"])])
    write(PAIR, [rows(7, 1, topics=["z"])])
    assert published() == by_topic(rows(7, 0), [row for row in rows(7, 1, topics=["y", "z"]) if row[0] == "z"])


def test_another_application_is_another_pair(house: House) -> None:
    write(options(topic="orders"), [rows(7, 0)])
    write(options(topic="orders", txnAppId="day"), [rows(7, 1)])
    assert sorted(published()["orders"]) == sorted(values(rows(7, 0), rows(7, 1)))


def test_writes_of_one_pair_at_the_same_time_take_no_rows_from_each_other(house: House) -> None:
    first, second = (BatchWriter(PAIR, TOPIC_VALUE, overwrite=False) for _ in range(2))
    parts = rows(7, 0, topics=["x"]), rows(7, 0, topics=["y"])
    staged = [batch_tasks(writer, [part]) for writer, part in zip((first, second), parts, strict=True)]
    copy(first).commit(staged[0])
    copy(second).commit(staged[1])
    assert published() == by_topic(*parts)


def test_a_staging_directory_that_two_domains_share(
    house: House, other_house: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = options(stagingDirectory=str(tmp_path / "staging"))
    write(given, [rows(7, 0)])
    with monkeypatch.context() as patch:
        patch.setenv("HOLDFAST_DOMAIN", other_house)
        for _ in range(2):
            write(given, [rows(7, 1)])
        assert published() == by_topic(rows(7, 1))
    write(given, [rows(7, 2)])
    assert published() == by_topic(rows(7, 0))


# Half published ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", ["send", "wait_stable"])
def test_a_version_that_failed_half_way_goes_on_with_its_first_rows(house: House, tmp_path: Path, point: str) -> None:
    given = options(stagingDirectory=str(tmp_path / "staging"))
    parts = [rows(7, 0), rows(7, 1)]
    write_and_fail(given, parts, point)
    write({**given, "topic": "alarms"}, [rows(7, 5)])  # has no part in it
    write(given, [rows(9, 9)])  # the job is repeated, and its rows are others
    assert published() == {**by_topic(*parts), "alarms": values(rows(7, 5))}
    assert writes.staged(tmp_path / "staging") == []


def test_a_repeated_job_without_rows_finishes_what_it_began(house: House) -> None:
    write_and_fail(PAIR, [rows(7, 0)])
    write(PAIR, [[]])
    assert published() == by_topic(rows(7, 0))


def test_what_fails_before_it_is_intended_leaves_nothing(house: House, tmp_path: Path) -> None:
    write_and_fail(options(stagingDirectory=str(tmp_path)), [rows(7, 0)], "admit")
    assert writes.staged(tmp_path) == []


# Records of 0.1.0 -------------------------------------------------------------------------------------------


def test_what_an_older_version_has_published_is_published(house: House) -> None:
    write_as_before(options(topic="orders"), rows(7, 0))
    write(options(6, topic="orders"), [rows(6, 0)])
    write(options(7, topic="orders"), [rows(7, 0)])
    write(options(7, topic="alarms"), [rows(7, 1)])  # which 0.1.0 has dropped
    write(options(8, topic="orders"), [rows(8, 0)])
    assert published() == {"orders": values(rows(7, 0), rows(8, 0)), "alarms": values(rows(7, 1))}


def test_what_an_older_version_has_published_counts_in_its_domain(
    house: House, other_house: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = options(stagingDirectory=str(tmp_path / "staging"))
    write_as_before(given, rows(7, 0))
    with monkeypatch.context() as patch:
        patch.setenv("HOLDFAST_DOMAIN", other_house)
        write(given, [rows(7, 1)])
        assert published() == by_topic(rows(7, 1))
    write(given, [rows(7, 0)])
    assert published() == by_topic(rows(7, 0))


@pytest.mark.parametrize("by_column", [True, False])
def test_what_an_older_version_has_half_published_is_finished(house: House, by_column: bool) -> None:
    given: dict[str, Any] = PAIR if by_column else options(topic="x")
    part = rows(7, 0, topics=["x"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Publisher, "send", writes._halfway(Publisher.send))
        patch.setattr(writes, "die", _fail)
        with pytest.raises(RuntimeError, match="as asked"):
            write_as_before(given, part)
    write(options(topic="alarms"), [rows(7, 1)])
    write(given, [rows(9, 9, topics=["x"])])
    write(given, [rows(9, 9, topics=["x"])])
    assert published() == {"x": values(part), "alarms": values(rows(7, 1))}
