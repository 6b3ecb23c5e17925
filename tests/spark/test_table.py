"""The archive's directory of Parquet files, without Spark: what readers find in it after a failure at every
step."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import holdfast as hf
from holdfast.engine.native.sync import sync_data, sync_directory
from holdfast.spark import whole_file
from holdfast.spark.pipeline import table as table_module
from holdfast.spark.pipeline.checkpoint import CheckpointInUseError
from holdfast.spark.pipeline.table import By, ParquetTable, Published

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path


SYNCS: list[tuple[Any, str]] = [
    (module, name) for module in (table_module, whole_file) for name in ("sync_data", "sync_directory")
]


class Killed(BaseException):
    """Nothing catches it."""


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return checkpoint_of(tmp_path / "checkpoint", "query-1")


def checkpoint_of(path: Path, query: str) -> Path:
    path.mkdir()
    (path / "metadata").write_text(json.dumps({"id": query}))
    return path


def commit(checkpoint: Path, batch: int) -> None:
    """As Spark does."""
    for name, line in (("offsets", '{"topics":{"t":{"1/ab":7}},"v":1}'), ("commits", "{}")):
        (checkpoint / name).mkdir(exist_ok=True)
        (checkpoint / name / str(batch)).write_text(f"v1\n{line}")


def put(table: ParquetTable, batch: int, *parts: Sequence[int], folder: str = "date=2013-01-01/topic=t") -> Published:
    """A micro-batch with a file for each part, as Spark leaves it."""
    staged = table.stage(batch)
    (staged / folder).mkdir(parents=True)
    (staged / "_SUCCESS").touch()
    for index, part in enumerate(parts):
        pq.write_table(pa.table({"n": pa.array(part, pa.int64())}), staged / folder / f"part-{index:05}-c0.parquet")
        (staged / folder / f".part-{index:05}-c0.parquet.crc").touch()
    return table.publish(batch, staged)


def rows(path: Path) -> list[int]:
    found = ds.dataset(path, format="parquet", partitioning="hive").to_table()
    return sorted(found.column("n").to_pylist()) if found.num_rows else []


def test_micro_batches_are_put_into_partitions_under_their_number(tmp_path: Path, checkpoint: Path) -> None:
    with ParquetTable(tmp_path / "t", "date,topic", checkpoint) as table:
        done = put(table, 0, [1, 2], [3], [])
        assert (done.files, done.rows) == (2, 3), "no empty file"
        put(table, 1, [4], folder="date=2013-01-02/topic=a%2Fb")
    files = sorted(str(path.relative_to(tmp_path / "t")) for path in (tmp_path / "t").rglob("*.parquet"))
    assert files == [
        "date=2013-01-01/topic=t/part-0-0.parquet",
        "date=2013-01-01/topic=t/part-0-1.parquet",
        "date=2013-01-02/topic=a%2Fb/part-1-0.parquet",
    ]
    assert rows(tmp_path / "t") == [1, 2, 3, 4]
    found = ds.dataset(tmp_path / "t", partitioning="hive").to_table().to_pylist()
    assert {row["topic"] for row in found} == {"t", "a/b"}
    assert not list((tmp_path / "t").rglob("*.crc"))


def test_by_batch_there_is_a_directory_for_each(tmp_path: Path, checkpoint: Path) -> None:
    with ParquetTable(tmp_path / "t", "batch", checkpoint) as table:
        put(table, 7, [1], folder=".")
    assert [path.parent.name for path in (tmp_path / "t").rglob("*.parquet")] == ["batch=7"]


STEPS = ("sync", "rename", "unlink")


@pytest.mark.parametrize("split", [([10], [11, 12], [13]), ([10, 11], [12, 13])], ids=["more files", "fewer files"])
@pytest.mark.parametrize("step", STEPS)
def test_killed_at_any_step_a_batch_is_written_again_and_nothing_is_there_twice(
    tmp_path: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch, step: str, split: Sequence[Sequence[int]]
) -> None:
    """Also when it is killed in the repetition; and in no state do readers see a row twice, or lack one of
    another batch."""
    path, before, now, survived = tmp_path / "t", [0, 1], [10, 11, 12, 13], 0
    with ParquetTable(path, "date,topic", checkpoint) as table:
        put(table, 0, [0], [1])
        put(table, 1, [10, 11], [12, 13])  # and then it was killed: not committed
    for calls in range(40):
        with monkeypatch.context() as patch:
            _die_at(patch, step, calls)
            table = ParquetTable(path, "date,topic", checkpoint)
            try:
                put(table, 1, *split)
                survived += 1
            except Killed:
                pass
            finally:
                table.close()
        seen = rows(path)
        assert len(set(seen)) == len(seen)
        assert set(before) <= set(seen) <= {*before, *now}
        if survived:
            break
        with ParquetTable(path, "date,topic", checkpoint) as table:
            put(table, 1, [10, 11], [12, 13])
        assert rows(path) == before + now
    assert survived, "there was a run without a kill"
    assert calls > 1, "and some with"
    assert rows(path) == before + now


def _die_at(patch: pytest.MonkeyPatch, step: str, calls: int) -> None:
    left = calls

    def dying(original: Callable[..., Any]) -> Callable[..., Any]:
        def dies(*args: Any, **more: Any) -> Any:
            nonlocal left
            if not left:
                raise Killed
            left -= 1
            return original(*args, **more)

        return dies

    for holder, name in SYNCS if step == "sync" else [(os, step)]:
        patch.setattr(holder, name, dying(getattr(holder, name)))


def test_files_are_on_disk_before_their_names_and_the_names_before_the_end(
    tmp_path: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark commits a batch, and its messages are acknowledged, because publish has returned."""
    rename, steps = os.rename, []

    def file_synced(fd: int) -> None:
        steps.append(f"sync {os.path.basename(os.readlink(f'/proc/self/fd/{fd}'))}")
        sync_data(fd)

    def synced(path: Path) -> None:
        steps.append(f"sync {path.name}")
        sync_directory(path)

    def renamed(source: Any, target: Any) -> None:
        steps.append(f"rename {os.path.basename(source)}")
        rename(source, target)

    with ParquetTable(tmp_path / "t", "date,topic", checkpoint) as table:
        put(table, 0, [0])
        monkeypatch.setattr(table_module, "sync_data", file_synced)
        monkeypatch.setattr(table_module, "sync_directory", synced)
        monkeypatch.setattr(os, "rename", renamed)
        put(table, 1, [1])
    assert steps[:2] == ["sync part-00000-c0.parquet", "rename part-00000-c0.parquet"]
    assert sorted(steps[2:]) == ["sync date=2013-01-01", "sync t", "sync topic=t"]


def test_what_is_behind_the_first_batch_of_a_run_was_not_committed(tmp_path: Path, checkpoint: Path) -> None:
    """A power cut may set Spark's checkpoint back; the batches are then other ones."""
    with ParquetTable(tmp_path / "t", "date,topic", checkpoint) as table:
        for batch in range(12):
            put(table, batch, [batch])
    with ParquetTable(tmp_path / "t", "date,topic", checkpoint) as table:
        assert rows(tmp_path / "t") == list(range(12)), "not before there is something else"
        put(table, 9, [9, 10])
        assert rows(tmp_path / "t") == list(range(11))
        put(table, 10, [11])
    assert rows(tmp_path / "t") == list(range(12))


def test_a_file_that_is_not_whole_is_not_put_in(tmp_path: Path, checkpoint: Path) -> None:
    with ParquetTable(tmp_path / "t", "batch", checkpoint) as table:
        put(table, 0, [1], folder=".")
        staged = table.stage(0)
        staged.mkdir(parents=True)
        (staged / "part-0.parquet").write_bytes(b"PAR1 and no more")
        with pytest.raises(pa.ArrowInvalid):
            table.publish(0, staged)
        assert rows(tmp_path / "t") == [1]


def test_what_a_killed_run_has_staged_is_read_by_nobody_and_goes(tmp_path: Path, checkpoint: Path) -> None:
    with ParquetTable(tmp_path / "t", "batch", checkpoint) as table:
        put(table, 0, [1], folder=".")
        staged = table.stage(1)
        staged.mkdir(parents=True)
        pq.write_table(pa.table({"n": [2]}), staged / "part-0.parquet")
        assert table.stage(1) != staged, "Spark may still write there"
    assert rows(tmp_path / "t") == [1]
    ParquetTable(tmp_path / "t", "batch", checkpoint).close()
    assert not staged.exists()


def test_one_process_at_a_time(tmp_path: Path, checkpoint: Path) -> None:
    with ParquetTable(tmp_path / "t", "batch", checkpoint), pytest.raises(CheckpointInUseError, match=str(os.getpid())):
        ParquetTable(tmp_path / "t", "batch", checkpoint)
    ParquetTable(tmp_path / "t", "batch", checkpoint).close()


def test_a_table_belongs_to_one_query_and_one_way_to_partition(tmp_path: Path, checkpoint: Path) -> None:
    path = tmp_path / "t"
    with ParquetTable(path, "batch", checkpoint) as table:
        put(table, 0, [1], folder=".")
    with pytest.raises(hf.ConfigError, match="partitioned by batch, not by date,topic"):
        ParquetTable(path, "date,topic", checkpoint)
    for other in (checkpoint_of(tmp_path / "other", "query-2"), tmp_path / "none"):
        with pytest.raises(hf.ConfigError, match=f"{other} is not the checkpoint .* that was {checkpoint}"):
            ParquetTable(path, "batch", other)
    wrong: Any = "month"
    with pytest.raises(hf.ConfigError, match="month"):
        ParquetTable(path, wrong, checkpoint)
    ParquetTable(path, "batch", checkpoint).close()


@pytest.mark.parametrize("by", ["batch", "date,topic"])
def test_a_new_table_is_not_begun_where_something_else_is(tmp_path: Path, checkpoint: Path, by: By) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "notes.txt").touch()
    with pytest.raises(hf.ConfigError, match="holds other files"):
        ParquetTable(tmp_path / "t", by, checkpoint)
    assert (tmp_path / "t" / "notes.txt").exists()


def test_nor_by_a_query_that_has_done_batches_elsewhere(tmp_path: Path, checkpoint: Path) -> None:
    commit(checkpoint, 4)
    with pytest.raises(hf.ConfigError, match="has done 5 batches"):
        ParquetTable(tmp_path / "t", "batch", checkpoint)


@pytest.mark.parametrize("text", ["", "[]", '{"uuid": "x"}'])
def test_a_checkpoint_that_is_none_is_told(tmp_path: Path, checkpoint: Path, text: str) -> None:
    with ParquetTable(tmp_path / "t", "batch", checkpoint) as table:
        put(table, 0, [1], folder=".")
    (checkpoint / "metadata").write_text(text)
    with pytest.raises(hf.CorruptionError, match="metadata"):
        ParquetTable(tmp_path / "t", "batch", checkpoint)
    commit(checkpoint, 0)
    (checkpoint / "offsets" / "0").write_text("v1\n")
    with pytest.raises(hf.CorruptionError, match="checkpoint of a query"):
        ParquetTable(tmp_path / "new", "batch", checkpoint)
