"""A replay publishes everything once, in one order, at the pace that is asked for, and after a kill goes on
where it was."""

from __future__ import annotations

import contextlib
import itertools
import json
import random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from spark.replays import replay_and_die
from support.handmade_stores import Shelves
from support.receiving import until_no_ring

import holdfast as hf
from holdfast.engine.log.catalog import topic_sources
from holdfast.engine.log.column_reader import Gap, Records
from holdfast.engine.memory.domain import Domain
from holdfast.spark.errors import DataLossError
from holdfast.spark.pipeline import replay
from holdfast.spark.pipeline.checkpoint import CheckpointFile
from holdfast.spark.pipeline.recorded import ArchiveInput, LogInput, Position, merged, opened
from holdfast.spark.publishing import Publisher

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from support.handmade_feed import Log

    from holdfast.spark.pipeline.progress import Progress

STORES = {"stores": "a"}
Row = tuple[int, int, int, bytes]
"""RegID, number, time, payload."""

pytestmark = pytest.mark.usefixtures("own_domain")


def write(path: Path, rows: Sequence[Row], *, group: int = 1000, **more: Any) -> Path:
    """A Parquet file of an archive; ``more``: columns."""
    ids, numbers, times, values = zip(*rows, strict=True)
    columns = {
        "source_reg_id": pa.array(ids, pa.int64()),
        "sequence_number": pa.array(numbers, pa.int64()),
        "timestamp_ns": pa.array(times, pa.int64()),
        "value": pa.array(values, pa.binary()),
        **more,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path, row_group_size=group)
    return path


def line(source: int, numbers: Sequence[int], time_ns: int = 0) -> list[Row]:
    return [(source, number, time_ns + number, b"%d/%d" % (source, number)) for number in numbers]


def said(topic: str = "again") -> list[bytes]:
    """What is published there, by source in the order of their numbers."""
    found: list[bytes] = []
    for source in topic_sources(None):
        if source.topic != topic:
            continue
        records = Records(source.logs, source.oldest, source.any_next)
        while (part := records.read()) is not None:
            assert not isinstance(part, Gap)
            data = part.values.tobytes()
            found += [data[begin:end] for begin, end in itertools.pairwise(part.offsets.tolist())]
        records.close()
    return found


def order(path: Path, positions: dict[str, Position] | None = None) -> list[bytes]:
    """In which an archive is replayed."""
    recording = opened(ArchiveInput(str(path), ""))
    return [value for part in merged(recording, positions or {}) for value in part.values.to_pylist()]


# The order --------------------------------------------------------------------------------------------------


def test_a_source_comes_by_its_numbers_and_sources_by_their_times(tmp_path: Path) -> None:
    write(tmp_path / "part-0-0.parquet", [(7, 1, 10, b"a1"), (7, 0, 5, b"a0"), (8, 0, 7, b"b0"), (8, 1, 30, b"b1")])
    write(tmp_path / "part-1-0.parquet", [(7, 2, 20, b"a2"), (8, 2, 31, b"b2")])
    assert order(tmp_path) == [b"a0", b"b0", b"a1", b"a2", b"b1", b"b2"]


def test_a_clock_that_stepped_back_does_not_turn_the_numbers_round(tmp_path: Path) -> None:
    write(tmp_path / "part-0-0.parquet", [(7, 0, 100, b"a0"), (7, 1, 3, b"a1"), (7, 2, 4, b"a2"), (8, 0, 101, b"b0")])
    assert order(tmp_path) == [b"a0", b"a1", b"b0", b"a2"], "a1 counts as sent at 101, a2 at 102"


def test_the_order_is_the_same_wherever_it_is_cut_and_begun_again(tmp_path: Path) -> None:
    """Sources with equal times, in files that overlap; and from each position on, what follows is what
    followed before."""
    dice = random.Random(5)
    rows = []
    for source in (3, 5, 9):
        now = 0
        for number in range(200):
            now += dice.choice([-3, 0, 0, 1, 4])
            rows.append((source, number, now, b"%d/%d" % (source, number)))
    write(tmp_path / "one" / "part.parquet", rows)
    whole = order(tmp_path / "one")
    dice.shuffle(rows)
    for at in range(6):
        write(tmp_path / "two" / f"part-{at}.parquet", rows[at * 100 : at * 100 + 100], group=dice.choice([7, 20, 100]))
    assert order(tmp_path / "two") == whole
    positions: dict[str, Position] = {}
    recording = opened(ArchiveInput(str(tmp_path / "one"), ""))
    passed = 0
    for part in merged(recording, {}):
        for number, sent_ns, source in zip(part.number, part.sent_ns, part.source, strict=True):
            positions[recording.sources[source]] = Position(int(number) + 1, int(sent_ns))
            passed += 1
            if passed % 37 == 0:
                assert order(tmp_path / "two", positions) == whole[passed:]
    assert passed == 600


def test_a_number_that_is_there_twice_is_an_error(tmp_path: Path) -> None:
    write(tmp_path / "part-0-0.parquet", line(7, [0, 1, 2]))
    write(tmp_path / "part-1-0.parquet", line(7, [2, 3]))
    with pytest.raises(hf.CorruptionError, match="number 2 of source 7 twice"):
        order(tmp_path)


def test_what_begins_with_an_underscore_is_not_there(tmp_path: Path) -> None:
    write(tmp_path / "date=2013-01-01" / "topic=flights" / "part-0-0.parquet", line(7, [0, 1]))
    write(tmp_path / "_staging" / "5" / "part.parquet", line(7, [2]))
    assert order(tmp_path) == [b"7/0", b"7/1"]


def test_one_topic_of_several_is_chosen_by_directory_or_by_column(tmp_path: Path) -> None:
    write(tmp_path / "one" / "topic=a" / "part.parquet", line(7, [0]))
    write(tmp_path / "one" / "topic=b" / "part.parquet", line(8, [0]))
    write(tmp_path / "two" / "batch=0" / "part.parquet", line(7, [0]) + line(8, [0]), topic=pa.array(["a", "b"]))
    for place in ("one", "two"):
        with pytest.raises(hf.ConfigError, match="the archive has topics a, b"):
            opened(ArchiveInput(str(tmp_path / place), ""))
        with pytest.raises(hf.ConfigError, match="the archive has no topic 'c', but a, b"):
            opened(ArchiveInput(str(tmp_path / place), "c"))
        recording = opened(ArchiveInput(str(tmp_path / place), "b"))
        assert [part.values.to_pylist() for part in merged(recording, {})] == [[b"8/0"]]
        assert recording.total == 1


def test_an_archive_without_payloads_is_none(tmp_path: Path) -> None:
    pq.write_table(pa.table({"carrier": ["UA"]}), tmp_path / "part-0-0.parquet")
    with pytest.raises(hf.ConfigError, match="has no column source_reg_id, sequence_number, timestamp_ns, value"):
        opened(ArchiveInput(str(tmp_path), ""))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "state.0").write_bytes(b"something else")
    with pytest.raises(hf.ConfigError, match="has a file that is not Parquet"):
        opened(ArchiveInput(str(tmp_path / "other"), ""))
    with pytest.raises(hf.ConfigError, match="there is no archive at"):
        opened(ArchiveInput(str(tmp_path / "nowhere"), ""))


# Publishing -------------------------------------------------------------------------------------------------


def test_an_archive_is_published_as_it_was(run_store: Callable[..., Any], tmp_path: Path) -> None:
    run_store("a")
    write(tmp_path / "in" / "part-0-0.parquet", line(7, range(3000)) + line(8, range(100)), group=500)
    told: list[Progress] = []
    done = replay.replay(ArchiveInput(str(tmp_path / "in"), ""), "again", speed=0, options=STORES, progress=told.append)
    assert said() == order(tmp_path / "in")
    assert (done.messages, done.before, done.first, done.next) == (3100, 0, 0, 3100)
    assert (told[-1].done, told[-1].total, told[-1].unit) == (3100, 3100, "messages")


def test_without_a_checkpoint_a_replay_begins_anew(run_store: Callable[..., Any], tmp_path: Path) -> None:
    run_store("a")
    write(tmp_path / "in" / "part-0-0.parquet", line(7, range(5)))
    for _ in range(2):
        done = replay.replay(ArchiveInput(str(tmp_path / "in"), ""), "again", speed=0, options=STORES)
    assert said() == order(tmp_path / "in") * 2
    assert (done.first, done.next) == (5, 10), "from the same source, whose session nobody holds meanwhile"


def test_pauses_are_kept_and_scaled(
    run_store: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock of the test's: at each moment exactly that is out which was sent by then."""
    run_store("a")
    second = 10**9
    rows = [(7, number, number * second, b"%d" % number) for number in range(10)]
    write(tmp_path / "in" / "part-0-0.parquet", rows)
    now = 1000.0
    out: list[tuple[float, int]] = []

    class Clock:
        @staticmethod
        def monotonic() -> float:
            return now

        @staticmethod
        def sleep(seconds: float) -> None:
            nonlocal now
            assert 0 < seconds <= replay.NAP_SECONDS
            now += seconds

    whole = Publisher.send

    def send(publisher: Any, topic: str, values: Any) -> None:
        out.append((round(now - 1000, 3), len(values)))
        whole(publisher, topic, values)

    monkeypatch.setattr(replay, "time", Clock)
    monkeypatch.setattr(Publisher, "send", send)
    replay.replay(ArchiveInput(str(tmp_path / "in"), ""), "again", speed=1, options=STORES)
    assert out == [(float(at), 1) for at in range(10)]
    out.clear()
    now = 1000.0
    replay.replay(ArchiveInput(str(tmp_path / "in"), ""), "faster", speed=4, options=STORES)
    assert out == [(at / 4, 1) for at in range(10)]


def test_a_store_s_log_is_replayed(run_store: Callable[..., Any], publish: Callable[..., Any]) -> None:
    for name in "ab":
        run_store(name)
    sent = [b"%d" % i for i in range(500)] + [b"x" * 150_000, b"last"]
    publish("orders", sent, "ab")
    given = LogInput({"topic": "orders", "readFrom": "store:b"})
    told: list[Progress] = []
    done = replay.replay(given, "again", speed=0, options={"stores": "a,b"}, progress=told.append)
    assert said() == sent
    assert (done.messages, told[-1].done, told[-1].total, told[-1].unit) == (502, 504, 504, "numbers")


@pytest.fixture
def torn(tmp_path: Path) -> Iterator[Shelves]:
    """A log that lacks numbers."""
    made = Shelves(tmp_path / "shelves", stores=["a"])
    log: Log | None = made.store("a")
    assert log is not None
    log.begin(1, 0)
    log.plain(0, 9)
    log.lost(10, 14)
    log.plain(15, 19)
    yield made
    made.close()


def test_what_no_store_has_ends_a_replay_unless_it_may(run_store: Callable[..., Any], torn: Shelves) -> None:
    run_store("a")
    options = {"topic": "quotes", "directory": str(torn.directories[0])}
    with pytest.raises(DataLossError, match=r"numbers 10\.\.14 are lost"):
        replay.replay(LogInput(options), "again", speed=0, options=STORES)
    replay.replay(LogInput({**options, "failOnDataLoss": "false"}), "less", speed=0, options=STORES)
    assert said("less") == [b"%d" % number for number in (*range(10), *range(15, 20))]


# Killed -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("send", "part"), [(1, 0.0), (1, 0.5), (2, 0.3), (3, 1.0)])
def test_a_killed_replay_goes_on_without_gap_or_duplicate(
    run_store: Callable[..., Any], tmp_path: Path, send: int, part: float
) -> None:
    run_store("a")
    rows = line(7, range(3000), 5) + [(8, n, 2 * n, b"%d" % n * (20_000 if n % 100 == 0 else 1)) for n in range(1000)]
    where = tmp_path / "in"
    for at in range(4):
        write(where / f"part-{at}-0.parquet", rows[at * 1000 : at * 1000 + 1000], group=300)
    checkpoint = tmp_path / "replay.json"
    replay_and_die(where, "again", checkpoint, send=send, part=part)
    with contextlib.closing(Domain(None, join=False)) as joined:
        until_no_ring(joined)  # the store has what the dead one has sent
    out = len(said())
    write(where / "part-9-0.parquet", line(7, [5000], -10_000))  # the archive grows: that is of no concern
    done = replay.replay(ArchiveInput(str(where), ""), "again", speed=0, checkpoint=checkpoint, options=STORES)
    (where / "part-9-0.parquet").unlink()
    assert said() == order(where)
    assert (done.before, done.messages) == (out, 4000 - out)
    again = replay.replay(ArchiveInput(str(where), ""), "again", speed=0, checkpoint=checkpoint, options=STORES)
    assert (again.messages, again.before) == (0, 4000), "it is finished"
    assert len(said()) == 4000


def test_a_replay_that_is_killed_again_and_again(run_store: Callable[..., Any], tmp_path: Path) -> None:
    run_store("a")
    where = tmp_path / "in"
    for at in range(5):
        write(where / f"part-{at}-0.parquet", line(7, range(at * 400, at * 400 + 400)), group=200)
    for part in (0.1, 0.9, 0.5):
        replay_and_die(where, "again", tmp_path / "replay.json", send=2, part=part)
    replay.replay(ArchiveInput(str(where), ""), "again", speed=0, checkpoint=tmp_path / "replay.json", options=STORES)
    assert said() == order(where)


def test_other_fragments_after_a_kill_are_counted_as_they_were(
    run_store: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_store("a")
    where = tmp_path / "in"
    write(where / "part-0-0.parquet", [(7, n, n, b"%04d" % n * 500) for n in range(50)])
    monkeypatch.setattr(replay, "SAVE_SECONDS", 0.0)
    whole = Publisher.send

    def send(publisher: Any, topic: str, values: Any) -> None:
        whole(publisher, topic, values.slice(0, 20))
        raise KeyboardInterrupt

    small = {**STORES, "option.fragment_size": "1024"}
    with monkeypatch.context() as patch:
        patch.setattr(Publisher, "send", send)
        with pytest.raises(KeyboardInterrupt):
            replay.replay(ArchiveInput(str(where), ""), "again", speed=0, checkpoint=tmp_path / "r.json", options=small)
    done = replay.replay(ArchiveInput(str(where), ""), "again", speed=0, checkpoint=tmp_path / "r.json", options=STORES)
    assert (done.before, done.messages, done.next) == (20, 30, 20 * 2 + 30)
    assert said() == order(where)


def test_a_checkpoint_speaks_of_stable_messages_only(
    run_store: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_store("a")
    write(tmp_path / "in" / "part-0-0.parquet", line(7, range(1000)), group=100)
    monkeypatch.setattr(replay, "SAVE_SECONDS", 0.0)
    stable = True
    saves = 0
    send, wait, save = Publisher.send, Publisher.wait_stable, CheckpointFile.save

    def sent(*arguments: Any) -> None:
        nonlocal stable
        stable = False
        send(*arguments)

    def waited(publisher: Publisher) -> None:
        nonlocal stable
        wait(publisher)
        stable = True

    def saved(*arguments: Any) -> None:
        nonlocal saves
        assert stable
        saves += 1
        save(*arguments)

    monkeypatch.setattr(Publisher, "send", sent)
    monkeypatch.setattr(Publisher, "wait_stable", waited)
    monkeypatch.setattr(CheckpointFile, "save", saved)
    given = ArchiveInput(str(tmp_path / "in"), "")
    replay.replay(given, "again", speed=0, checkpoint=tmp_path / "r.json", options=STORES)
    assert saves == 12, "before the first one, after each row group, at the end"


def test_a_checkpoint_is_of_one_replay(run_store: Callable[..., Any], tmp_path: Path) -> None:
    run_store("a")
    checkpoint = tmp_path / "replay.json"
    where = tmp_path / "in"
    write(where / "part-0-0.parquet", line(7, range(1000)), group=100)
    replay_and_die(where, "again", checkpoint, send=3, part=1.0)
    with pytest.raises(hf.ConfigError, match="the checkpoint is of a replay of"):
        replay.replay(ArchiveInput(str(where), ""), "other", speed=0, checkpoint=checkpoint, options=STORES)
    with pytest.raises(hf.ConfigError, match="the checkpoint is of a replay of"):
        replay.replay(LogInput({"topic": "again"}), "again", speed=0, checkpoint=checkpoint, options=STORES)
    write(where / "part-0-0.parquet", line(7, range(999)), group=100)
    with pytest.raises(hf.ConfigError, match="when this replay began"):
        replay.replay(ArchiveInput(str(where), ""), "again", speed=0, checkpoint=checkpoint, options=STORES)


def test_stores_that_have_lost_what_they_had_are_noticed(run_store: Callable[..., Any], tmp_path: Path) -> None:
    run_store("a")
    checkpoint = tmp_path / "replay.json"
    where = tmp_path / "in"
    write(where / "part-0-0.parquet", line(7, range(1000)), group=100)
    replay_and_die(where, "again", checkpoint, send=3, part=1.0)
    saved = json.loads(checkpoint.read_text())
    checkpoint.write_text(json.dumps({**saved, "number": 900}))
    with pytest.raises(hf.CorruptionError, match="its source goes on at 300"):
        replay.replay(ArchiveInput(str(where), ""), "again", speed=0, checkpoint=checkpoint, options=STORES)
    checkpoint.write_text(json.dumps({**saved, "number": 198, "fragment": 1}))
    with pytest.raises(hf.CorruptionError, match="where none of its messages ends"):
        replay.replay(ArchiveInput(str(where), ""), "again", speed=0, checkpoint=checkpoint, options=STORES)


def test_a_speed_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(hf.ConfigError, match="speed -1"):
        replay.replay(ArchiveInput(str(tmp_path), ""), "again", speed=-1, options=STORES)
