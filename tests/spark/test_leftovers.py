"""``holdfast gc`` removes of Spark's writers what nobody will ever need, and nothing that keeps a batch from
being sent twice."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from spark.three_stores import House, published
from spark.writes import OPTIONS, TOPIC_VALUE, Query, batch_tasks, commit_and_die, rows, write
from support.command_line import run

from holdfast.engine.memory.domain import Domain
from holdfast.spark import source_cache
from holdfast.spark.alive import let_go
from holdfast.spark.batch_writer import BatchWriter
from holdfast.spark.ledger import Ledger

CHECKPOINTS = {
    "away": "file://{}",
    "remote": "hdfs://node{}",
    "somewhere": "{}",
    "half": "file://{}",
    "busy": "file://{}",
    "broken": "file://{}",
    "staging": "file://{}",
}
"""Of queries whose checkpoint was not in sight of their writers: nobody can say that it is gone."""


def gc(place: Path, *words: str) -> dict[str, str]:
    """What was done with each writer's directory in ``place`` that it tells of."""
    code, out, err = run("gc", *words)
    assert (code, err) == (0, "")
    found = [line.partition(f" writer {place}/") for line in out.splitlines()]
    return {what.replace(":", " ").partition(" ")[0]: did for did, of_writers, what in found if of_writers}


def test_what_is_removed_and_what_is_kept(house: House, own_domain: str, tmp_path: Path) -> None:
    place = Path(os.environ["HOLDFAST_DIR"]) / own_domain / "spark"
    queries = {}
    for name, checkpoint in CHECKPOINTS.items():
        (tmp_path / name).mkdir()
        query = queries[name] = Query(OPTIONS, tmp_path / name, f"query-{name}")
        (query.checkpoint / "metadata").unlink()
        query.options["checkpointLocation"] = checkpoint.format(query.checkpoint)
        query.tasks(0, [rows(0, 0, 4, ["x"])]) if name == "staging" else query.run(0, [rows(0, 0, 4, ["x"])])
    source_cache.release()
    half = queries["half"]
    part = rows(1, 0, 4, ["x"])
    commit_and_die(half, 1, half.tasks(1, [part]), "half_published")
    shutil.rmtree(queries["away"].checkpoint)
    (place / "query-broken" / "ledger").write_bytes(b"00000000 {}")
    write({**OPTIONS, "txnAppId": "job", "txnVersion": "1"}, [rows(0, 0, 4, ["x"])])
    (transaction,) = place.glob("txn-*")
    writer, dead = (BatchWriter(OPTIONS, TOPIC_VALUE, overwrite=False) for _ in range(2))
    batch_tasks(dead, [rows(0, 0, 4)])
    let_go(dead._directory)  # as the kernel does

    there = {path.name for path in place.iterdir() if path.is_dir()}
    told = there - {writer._who, "query-busy"}
    removed = {dead._who}
    assert len(there) == len(CHECKPOINTS) + 3
    with Ledger(place / "query-busy", 0):
        assert gc(place, "--dry-run") == {name: "would remove" if name in removed else "kept" for name in told}
        assert {path.name for path in place.iterdir() if path.is_dir()} == there
        assert gc(place) == {name: "removed" if name in removed else "kept" for name in told}
    assert {path.name for path in place.iterdir() if path.is_dir()} == there - removed
    assert gc(place)["query-half"] == "kept"
    half.run(1, [part])
    assert [value for value in published()["x"] if value.startswith(b"1.")] == [value for _, value in part]
    assert transaction.exists()
    shutil.rmtree(place / writer._who)


def test_without_spark_they_are_not_looked_at(own_domain: str, tmp_path: Path) -> None:
    place = Path(os.environ["HOLDFAST_DIR"]) / own_domain / "spark"
    Domain(join=False).close()
    (place / "query").mkdir(parents=True)
    (tmp_path / "pyspark.py").write_text("raise ModuleNotFoundError('No module named pyspark', name='pyspark')")
    code, out, err = run("gc", PYTHONPATH=str(tmp_path))
    assert (code, err) == (0, "")
    assert f"kept writer {place}: not looked at: this needs pyspark, which is not installed" in out
    assert (place / "query").exists()
