"""The audit finds what was planted, names who has it wrong, and finds nothing where nothing is."""

from __future__ import annotations

import shutil
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from support.handmade_stores import Shelves

import holdfast as hf
from holdfast.engine.log.check import check_store
from holdfast.engine.log.state_file import ReceiverState
from holdfast.spark.pipeline import evidence
from holdfast.spark.pipeline.audit import AuditCheckpoint, audit
from holdfast.spark.pipeline.checkpoint import CheckpointFile, CheckpointInUseError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession
    from support.handmade_feed import Log

    from holdfast.spark.pipeline.findings import Audit
    from holdfast.spark.pipeline.progress import Progress

SHORT = 90.0
COUNT = 200


@pytest.fixture
def shelves(tmp_path: Path) -> Iterator[Shelves]:
    made = Shelves(tmp_path, stores=list("abc"))
    yield made
    made.close()


def opened(shelves: Shelves, names: str = "abc", **state: Any) -> list[Log]:
    """Logs of these stores, in which incarnation 1 has begun."""
    logs = []
    for name in names:
        log = shelves.store(name, **state)
        assert log is not None
        log.begin(1, 0)
        logs.append(log)
    return logs


def filled(shelves: Shelves, names: str = "abc", **state: Any) -> list[Log]:
    logs = opened(shelves, names, **state)
    for log in logs:
        log.plain(0, COUNT - 1)
    return logs


def look(shelves: Shelves, **more: Any) -> Audit:
    return audit(directories=shelves.directories, **more)


def said(found: Audit) -> list[tuple[str, str, int, int]]:
    return [(each.kind, each.store or each.receiver, each.first, each.next) for each in found.findings]


# Messages ---------------------------------------------------------------------------------------------------


def test_three_equal_logs_give_no_finding(shelves: Shelves) -> None:
    filled(shelves)
    found = look(shelves)
    assert said(found) == []
    assert found.messages == 3 * COUNT
    (source,) = found.sources
    assert (source.topic, source.oldest, source.quorum_next, source.next) == ("quotes", 0, COUNT, COUNT)
    assert [(at.store, at.messages, at.behind, at.lacks) for at in source.stores] == [
        (name, COUNT, 0, []) for name in "abc"
    ]
    assert [at.oldest_sent_ns for at in source.stores] == [1, 1, 1], "the retention horizon"


def test_a_flipped_byte_is_damage_at_that_store_and_no_divergence(shelves: Shelves) -> None:
    _, b, _ = filled(shelves)
    b.flip(b"77")
    found = look(shelves)
    assert said(found) == [("damaged", "b", 77, 78)]
    assert found.findings[0].text == "number 77 is damaged at store b, and there at another one"
    assert [at.lacks for at in found.sources[0].stores] == [[], [(77, 78)], []]


def test_what_is_damaged_everywhere_is_a_gap(shelves: Shelves) -> None:
    logs = filled(shelves)
    for log in logs:
        log.flip(b"50")
    logs[0].flip(b"51")
    found = look(shelves)
    assert said(found) == [("gap", "", 50, 51), ("damaged", "a", 51, 52)]
    assert "damaged at a; damaged at b; damaged at c" in found.findings[0].text


def test_what_was_lost_by_all_is_a_gap_and_by_one_is_that_ones(shelves: Shelves) -> None:
    a, b, c = opened(shelves)
    for log in (a, b, c):
        log.plain(0, 9)
    for log in (a, b, c):
        log.lost(10, 19)
    b.plain(20, 29)
    c.plain(20, 29)
    a.lost(20, 24)
    a.plain(25, 29)
    assert said(look(shelves)) == [("gap", "", 10, 20), ("lost", "a", 20, 25)]


def test_another_payload_under_a_good_checksum_is_a_divergence_of_the_outvoted_store(shelves: Shelves) -> None:
    a, b, c = opened(shelves)
    for log in (a, c):
        log.plain(0, 99)
    b.plain(0, 39)
    b.append(40, [b"another"])
    b.append(41, [b"41"], time_ns=2)
    b.plain(42, 99)
    found = look(shelves)
    (each,) = found.findings
    assert (each.kind, each.store, each.first, each.next) == ("divergence", "b", 40, 42)
    assert each.text == "2 messages within numbers 40..41 differ at b (time, payload): not what a, c have"
    assert [at.diverges for at in found.sources[0].stores] == [[], [(40, 42)], []]
    assert not any(check_store(directory).damaged for directory in shelves.directories), "each log is good by itself"


def test_two_stores_that_differ_are_both_named(shelves: Shelves) -> None:
    a, b = opened(shelves, "ab")
    a.append(0, [b"0"], [b"one"])
    b.append(0, [b"0"], [b"two"])
    found = look(shelves)
    (each,) = found.findings
    assert [at.diverges for at in found.sources[0].stores] == [[(1, 2)]] * 2
    assert (each.store, each.first, each.text.partition(": ")[2]) == ("a,b", 1, "which of them is right cannot be told")


def test_a_message_that_has_other_numbers_elsewhere_is_a_divergence(shelves: Shelves) -> None:
    a, b, c = opened(shelves)
    for log in (a, c):
        log.append(0, [b"x"], [b"long ", b"message"], [b"y"])
    b.append(0, [b"x"], [b"long "], [b"message"], [b"y"])
    (each,) = look(shelves).findings
    assert (each.kind, each.store, each.first, each.next) == ("divergence", "b", 1, 3)
    assert "extent" in each.text


SMALL = {"first_segment_bytes": 16384, "max_segment_bytes": 16384, "retain_bytes": 65536}


def test_what_retention_took_at_one_store_is_no_finding_and_shows_as_its_horizon(shelves: Shelves) -> None:
    short = shelves.store("a", log_config=SMALL)
    assert short is not None
    short.begin(1, 0)
    for log in (short, *opened(shelves, "bc")):
        for number in range(300):
            log.append(number, [b"%900d" % number], time_ns=1000 + number)
    found = look(shelves)
    assert said(found) == []
    a, b, _ = found.sources[0].stores
    assert a.oldest > 20
    assert (a.messages, a.oldest_sent_ns) == (300 - a.oldest, 1000 + a.oldest)
    assert (b.oldest, b.messages, b.oldest_sent_ns) == (0, 300, 1000)


def test_ranges_are_audited_alike_wherever_they_are_cut(shelves: Shelves, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in the middle of messages with several fragments, and window by window."""
    a, b, c = opened(shelves)
    for log in (a, b, c):
        for first in range(0, 300, 3):
            data = b"other" if log is b and first == 150 else b"%d" % first
            log.append(first, [data, b"and", b"more"])
    a.flip(b"222")
    whole = look(shelves)
    assert said(whole) == [("divergence", "b", 150, 153), ("damaged", "a", 222, 225)]
    assert whole.messages == 299
    monkeypatch.setattr(evidence, "WINDOW", 7)
    assert said(look(shelves)) == said(whole)
    monkeypatch.setattr("holdfast.spark.splits.TASKS", 300)
    monkeypatch.setattr("holdfast.spark.splits.TASKS_PER_CORE", 300)
    monkeypatch.setattr(
        "holdfast.spark.pipeline.audit.Options", lambda **given: _options(**{**given, "max_records_per_partition": 4})
    )
    cut = look(shelves)
    assert (said(cut), cut.messages) == (said(whole), whole.messages)


def test_windows_are_of_numbers_not_of_messages(shelves: Shelves, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a store that lacks some, what is read at a time lies elsewhere."""
    a, b, c = opened(shelves)
    a.lost(0, 9)
    a.plain(10, 99)
    b.append(0, *([b"x%d" % number] for number in range(100)))
    c.plain(0, 99)
    monkeypatch.setattr(evidence, "WINDOW", 7)
    found = [each for each in look(shelves).findings if each.first >= 14]
    assert {(each.kind, each.store) for each in found} == {("divergence", "b")}
    assert [each.first for each in found] == list(range(14, 100, 7))


def _options(**given: Any) -> Any:
    from holdfast.spark.options import Options

    return Options(**given)


# Who is behind ----------------------------------------------------------------------------------------------


def test_a_store_that_is_behind_is_named_with_what_it_lacks(shelves: Shelves) -> None:
    a, b, c = opened(shelves)
    a.plain(0, 99)
    b.plain(0, 99)
    c.plain(0, 59)
    found = look(shelves)
    assert said(found) == [("behind", "c", 60, 100)]
    assert [at.behind for at in found.sources[0].stores] == [0, 0, 40]
    assert said(look(shelves, max_lag=40)) == []
    assert said(look(shelves, max_lag=39)) != []


def test_what_no_quorum_has_is_unstable(shelves: Shelves) -> None:
    a, b, c = opened(shelves)
    a.plain(0, 99)
    b.plain(0, 79)
    c.plain(0, 79)
    found = look(shelves)
    assert said(found) == [("behind", "b", 80, 100), ("behind", "c", 80, 100), ("unstable", "", 80, 100)]
    assert found.findings[2].text.endswith("; a has")


def test_receivers_of_directories_are_those_that_may_come_back(shelves: Shelves) -> None:
    filled(shelves)
    early, late = ReceiverState(b"r" * 16, 3, 0x2A, 10), ReceiverState(b"r" * 16, 3, 0x2A, 40)
    gone, done = ReceiverState(b"g" * 16, 4, 0, 0), ReceiverState(b"d" * 16, 5, 0x2B, COUNT)
    shelves.store("a", receivers=[early, gone])
    shelves.store("b", receivers=[late, done])
    found = look(shelves)
    assert [(each.session_id, each.ack, each.lag) for each in found.receivers] == [
        (0x2A, 39, COUNT - 40), (0x2B, COUNT - 1, 0),
    ]  # fmt: skip
    assert said(found) == [("lag", "session 0x2a", 40, COUNT)], "acknowledgements are copied lazily: the highest is it"


def test_what_a_receiver_did_not_have_in_time_is_expired(shelves: Shelves) -> None:
    log = shelves.store("a", log_config=SMALL, stores=["a"])
    assert log is not None
    log.begin(1, 0)
    for number in range(300):
        log.append(number, [b"%900d" % number])
    shelves.store("a", stores=["a"], receivers=[ReceiverState(b"r" * 16, 3, 0x2A, 10)])
    found = look(shelves)
    oldest = found.sources[0].oldest
    assert oldest > 20
    assert said(found) == [("lag", "session 0x2a", 10, 300), ("expired", "session 0x2a", 10, oldest)]


# A domain that lives ----------------------------------------------------------------------------------------


def test_who_lives_is_given_time_to_get_there(
    run_store: Callable[..., Any], publish: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abc":
        run_store(name)
    publish("orders", [b"%d" % i for i in range(50)], "abc")
    with hf.Context(session_id=0x99, options={"ume_ack_batching_interval": 1}) as context:
        receiver = context.receiver("orders")

        def consume() -> None:
            message = receiver.receive(timeout=SHORT)
            assert message is not None
            message.release()

        consume()
        deadline = time.monotonic() + SHORT
        while (
            not (found := audit(["orders"], patience=0)).receivers
            or found.receivers[0].ack < 0
            or any(each.kind == "behind" for each in found.findings)
        ):
            assert time.monotonic() < deadline
        assert said(found) == [("lag", "session 0x99", 1, 50)]
        assert found.findings[0].text == "receiver session 0x99 has not acknowledged numbers 1..49"
        left = iter(range(49))
        sleep = time.sleep

        def wait(seconds: float) -> None:
            if threading.current_thread() is threading.main_thread() and next(left, None) is not None:
                consume()
            sleep(seconds / 10)

        monkeypatch.setattr("holdfast.spark.pipeline.audit.time.sleep", wait)
        found = audit(["orders"], patience=SHORT)
        monkeypatch.undo()
        assert said(found) == []
        assert [(each.session_id, each.ack, each.lag) for each in found.receivers] == [(0x99, 49, 0)]
        first, last = found.samples
        assert (first.lags["orders > session 0x99"], last.lags["orders > session 0x99"]) == (49, 0)


def test_what_is_published_while_the_audit_runs_is_not_asked_for(shelves: Shelves) -> None:
    a, _, _ = filled(shelves)
    told: list[Progress] = []

    def go_on(progress: Progress) -> None:
        if progress.done:
            a.plain(COUNT, COUNT + 9)
        told.append(progress)

    assert said(look(shelves, progress=go_on)) == []
    assert [(each.done, each.total) for each in told] == [(0, COUNT), (COUNT, COUNT)]
    assert said(look(shelves, max_lag=0))[0] == ("behind", "b", COUNT, COUNT + 10), "the next one does"


def test_a_store_that_stopped_is_behind_and_is_not_waited_for(
    run_store: Callable[..., Any], publish: Callable[..., Any]
) -> None:
    stores = {name: run_store(name) for name in "abc"}
    publish("orders", [b"%d" % i for i in range(20)], "abc", ume_session_id=7)
    stores["b"].stop()
    publish("orders", [b"%d" % i for i in range(20)], "abc", ume_session_id=7)
    found = audit(domain=None, patience=1e9)  # nobody who lives is behind
    assert said(found) == [("behind", "b", 20, 40)]
    assert found.findings[0].text.endswith("it does not run")
    run_store("b")
    assert said(audit(patience=SHORT)) == [], "it catches up"


def test_a_store_that_lost_its_log_is_absent(run_store: Callable[..., Any], publish: Callable[..., Any]) -> None:
    stores = {name: run_store(name, "disk") for name in "ab"}
    directories = {name: store.store.directory.path for name, store in stores.items()}
    publish("orders", [b"one", b"two"], "ab")
    for store in stores.values():
        store.stop()
    shutil.rmtree(directories["a"] / "logs")
    assert said(audit(patience=0)) == [("absent", "a", 0, 2), ("unstable", "", 0, 2)]
    shutil.rmtree(directories["b"] / "logs")
    (each,) = audit(patience=0).findings
    assert (each.kind, each.store, each.text) == ("absent", "a,b", "none of its stores has a log of this source: a, b")
    assert said(audit(directories=list(directories.values()))) == [], "nothing that they show says so"


def test_a_store_that_was_wiped_is_absent_and_one_that_keeps_no_messages_is_not(
    run_store: Callable[..., Any], publish: Callable[..., Any]
) -> None:
    stores = {name: run_store(name, kind) for name, kind in (("a", "disk"), ("b", "disk"), ("c", "no-cache"))}
    publish("orders", [b"one", b"two"], "abc")
    assert said(audit(patience=SHORT)) == []
    directory = stores["b"].store.directory.path
    stores["b"].stop()
    shutil.rmtree(directory)
    run_store("b", "disk")
    assert ("absent", "b", 0, 2) in said(audit(patience=0))


def test_what_retention_takes_while_the_audit_runs_is_no_finding(shelves: Shelves) -> None:
    log = shelves.store("a", log_config=SMALL, stores=["a"])
    assert log is not None
    log.begin(1, 0)
    for number in range(30):
        log.append(number, [b"%900d" % number])

    def go_on(progress: Progress) -> None:
        if not progress.done:
            for number in range(30, 400):
                log.append(number, [b"%900d" % number])

    found = look(shelves, progress=go_on)
    assert (said(found), found.messages) == ([], 0)
    assert found.sources[0].oldest > 30


def test_what_is_mended_while_the_audit_runs_is_no_finding(shelves: Shelves) -> None:
    _, b, _ = filled(shelves)
    b.flip(b"77")

    def mend(progress: Progress) -> None:
        if progress.done:
            b.flip(bytes([ord("7") ^ 16]) + b"7")

    found = look(shelves, progress=mend)
    assert (said(found), found.sources[0].stores[1].lacks) == ([], [])


def test_a_topic_that_nobody_keeps_is_an_error(run_store: Callable[..., Any], publish: Callable[..., Any]) -> None:
    run_store("a")
    publish("orders", [b"one"])
    with pytest.raises(hf.ConfigError, match="no store keeps topic 'order'"):
        audit(["order"])


# The checkpoint ---------------------------------------------------------------------------------------------


def test_an_audit_goes_on_behind_what_was_in_order(shelves: Shelves, tmp_path: Path) -> None:
    logs = filled(shelves)
    checkpoint = tmp_path / "audit.json"
    assert look(shelves, checkpoint=checkpoint).messages == 3 * COUNT
    again = look(shelves, checkpoint=checkpoint)
    assert (again.messages, again.sources[0].audited_from) == (0, COUNT)
    for log in logs:
        log.plain(COUNT, COUNT + 9)
    assert look(shelves, checkpoint=checkpoint).messages == 30
    assert len(again.samples) == 4, "the lags of each audit, at its mark and at its end"


def test_what_was_not_in_order_is_read_again_until_it_is(shelves: Shelves, tmp_path: Path) -> None:
    _, b, _ = filled(shelves)
    checkpoint = tmp_path / "audit.json"
    b.flip(b"77")
    for _ in range(2):
        assert said(look(shelves, checkpoint=checkpoint)) == [("damaged", "b", 77, 78)]
    b.flip(bytes([ord("7") ^ 16]) + b"7")
    assert look(shelves, checkpoint=checkpoint).sources[0].audited_from == 77
    assert look(shelves, checkpoint=checkpoint).sources[0].audited_from == COUNT


def test_a_store_that_is_behind_is_not_passed_by_the_checkpoint(shelves: Shelves, tmp_path: Path) -> None:
    a, b, c = opened(shelves)
    a.plain(0, 99)
    c.plain(0, 99)
    b.plain(0, 59)
    checkpoint = tmp_path / "audit.json"
    look(shelves, checkpoint=checkpoint)
    b.append(60, [b"wrong"])
    b.plain(61, 99)
    assert said(look(shelves, checkpoint=checkpoint)) == [("divergence", "b", 60, 61)]


def test_a_killed_audit_goes_on_where_it_was(shelves: Shelves, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(shelves)
    monkeypatch.setattr("holdfast.spark.pipeline.audit.SAVE_SECONDS", 0.0)
    monkeypatch.setattr(
        "holdfast.spark.pipeline.audit.Options", lambda **given: _options(**{**given, "max_records_per_partition": 50})
    )

    def die(progress: Progress) -> None:
        if progress.done >= 100:
            raise KeyboardInterrupt

    checkpoint = tmp_path / "audit.json"
    with pytest.raises(KeyboardInterrupt):
        look(shelves, checkpoint=checkpoint, progress=die)
    found = look(shelves, checkpoint=checkpoint)
    assert (found.messages, found.sources[0].audited_from) == (3 * (COUNT - 100), 100)


def test_a_checkpoint_is_one_process_s_and_of_one_kind(shelves: Shelves, tmp_path: Path) -> None:
    filled(shelves)
    checkpoint = tmp_path / "audit.json"
    with CheckpointFile(checkpoint, AuditCheckpoint), pytest.raises(CheckpointInUseError, match="process"):
        look(shelves, checkpoint=checkpoint)
    checkpoint.write_text('{"type":"replay"}')
    with pytest.raises(hf.CorruptionError, match="no checkpoint of this"):
        look(shelves, checkpoint=checkpoint)
    assert checkpoint.read_text() == '{"type":"replay"}', "it is left as it is"


# Spark ------------------------------------------------------------------------------------------------------


@pytest.mark.spark
def test_spark_finds_the_same(shelves: Shelves, spark: SparkSession) -> None:
    a, b, c = opened(shelves)
    for log in (a, b, c):
        log.plain(0, 29)
        log.append(30, [b"other" if log is c else b"30"])
        log.plain(31, COUNT - 1)
    b.flip(b"77")
    here = look(shelves)
    told: list[Progress] = []
    there = look(shelves, spark=spark, progress=told.append)
    assert said(here) == [("divergence", "c", 30, 31), ("damaged", "b", 77, 78)]
    assert (there.findings, there.sources, there.messages) == (here.findings, here.sources, here.messages)
    assert told[-1].done == COUNT
