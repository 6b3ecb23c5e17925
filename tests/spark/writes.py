"""Writers as Spark drives them, without Spark: made anew and pickled for every task and commit; and what
reached the stores.

Run as a program it is one commit of a streaming query that dies at a named point: ``python writes.py
SETTINGS`` (JSON, as `Commit` writes it).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.serializers import CPickleSerializer
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from holdfast.spark.batch_writer import BatchWriter
from holdfast.spark.stream_writer import StreamWriter

Row = tuple[str, bytes]
"""Topic and value."""

PICKLER: Any = CPickleSerializer()
TOPIC_VALUE = StructType([StructField("topic", StringType()), StructField("value", BinaryType())])


OPTIONS = {"stores": "a,b,c", "option.ume_registration_interval": "3000", "commitTimeout": "90s"}


class Task:
    """What a task knows of itself."""

    def __init__(self, partition: int, properties: Mapping[str, str]) -> None:
        self._partition, self._properties = partition, properties

    def partitionId(self) -> int:  # noqa: N802  (Spark's name)
        return self._partition

    def getLocalProperty(self, name: str) -> str | None:  # noqa: N802
        return self._properties.get(name)


def rows(batch: int, partition: int, count: int = 300, topics: Sequence[str] = ("x", "y")) -> list[Row]:
    return [(topics[i % len(topics)], b"%d.%d.%d" % (batch, partition, i)) for i in range(count)]


def by_topic(*parts: Sequence[Row]) -> dict[str, list[bytes]]:
    found: dict[str, list[bytes]] = {}
    for part in parts:
        for topic, value in part:
            found.setdefault(topic, []).append(value)
    return found


def staged(place: Path) -> list[str]:
    return sorted(path.name for path in place.rglob("*.arrow"))


def batches(rows: Sequence[Row], size: int = 1000) -> list[pa.RecordBatch]:
    """Arrow, as Spark hands it to a writer of (topic, value)."""
    schema = pa.schema([("topic", pa.string()), ("value", pa.binary())])
    parts = [rows[at : at + size] for at in range(0, len(rows), size)]
    return [pa.record_batch([[t for t, _ in part], [v for _, v in part]], schema=schema) for part in parts]


def copy(thing: Any) -> Any:
    """As it comes out of Spark's pickling."""
    return PICKLER.loads(PICKLER.dumps(thing))


class Query:
    """A streaming query that writes: its options, its ID, its checkpoint as far as writers look at it."""

    def __init__(
        self, options: Mapping[str, str], where: Path, name: str = "0b5c7e0e-6f3a-4c53-8a44-1f1e5d9b6a77"
    ) -> None:
        self.name = name
        self.checkpoint = where / "checkpoint"
        self.checkpoint.mkdir(exist_ok=True)
        (self.checkpoint / "metadata").write_text(json.dumps({"id": name}))
        self.options = {**options, "checkpointLocation": str(self.checkpoint)}

    @property
    def place(self) -> Path:
        """Where its writer's things lie."""
        return self.checkpoint / "holdfast"

    def writer(self) -> StreamWriter:
        return StreamWriter(self.options, TOPIC_VALUE, overwrite=False)

    def tasks(self, batch: int, partitions: Sequence[Sequence[Row]]) -> list[Any]:
        """All tasks of a micro-batch; returns their messages."""
        return [self.task(batch, partition, batches(rows)) for partition, rows in enumerate(partitions)]

    def task(self, batch: int, partition: int, given: Any) -> Any:
        properties = {"sql.streaming.queryId": self.name, "streaming.sql.batchId": str(batch)}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(TaskContext, "_taskContext", Task(partition, properties))
            return copy(copy(self.writer()).write(iter(given)))

    def run(self, batch: int, partitions: Sequence[Sequence[Row]]) -> None:
        """A whole micro-batch."""
        self.writer().commit(self.tasks(batch, partitions), batch)


def write(options: Mapping[str, str], partitions: Sequence[Sequence[Row]]) -> None:
    """A whole batch write."""
    writer = BatchWriter(options, TOPIC_VALUE, overwrite=False)
    copy(writer).commit(batch_tasks(writer, partitions))


def batch_tasks(writer: BatchWriter, partitions: Sequence[Sequence[Row]]) -> list[Any]:
    messages = []
    for partition, rows in enumerate(partitions):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(TaskContext, "_taskContext", Task(partition, {}))
            messages.append(copy(copy(writer).write(iter(batches(rows)))))
    return messages


# Dying ------------------------------------------------------------------------------------------------------


def die(*_: object) -> None:
    """kill -9: nothing that Python would do at the end is done."""
    os.kill(os.getpid(), signal.SIGKILL)


def _nth(function: Callable[..., Any], number: int, *, before: bool) -> Callable[..., Any]:
    """``function`` that dies in its call ``number`` (from 1), before or after it has done its work."""
    calls = 0

    def called(*arguments: Any, **more: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == number and before:
            die()
        result = function(*arguments, **more)
        if calls == number:
            die()
        return result

    return called


def _halfway(send: Callable[..., Any]) -> Callable[..., Any]:
    def called(publisher: Any, topic: str, values: Any) -> None:
        send(publisher, topic, values.slice(0, len(values) // 2))
        die()

    return called


def plant(point: str) -> None:
    """This process dies at ``point``, one of POINTS."""
    from holdfast.spark import committing
    from holdfast.spark.ledger import Ledger
    from holdfast.spark.publishing import Publisher

    holder, name, wrap = POINTS[point](committing, Ledger, Publisher)
    setattr(holder, name, wrap(getattr(holder, name)))


Point = Callable[[Any, Any, Any], tuple[Any, str, Callable[[Any], Any]]]
POINTS: dict[str, Point] = {
    "before_intent": lambda _, ledger, __: (ledger, "save", lambda f: _nth(f, 1, before=True)),
    "after_intent": lambda _, ledger, __: (ledger, "save", lambda f: _nth(f, 1, before=False)),
    "half_published": lambda _, __, publisher: (publisher, "send", _halfway),
    "published_one_part": lambda _, __, publisher: (publisher, "send", lambda f: _nth(f, 2, before=False)),
    "published_not_stable": lambda _, __, publisher: (publisher, "wait_stable", lambda f: _nth(f, 1, before=True)),
    "stable_not_recorded": lambda _, __, publisher: (publisher, "wait_stable", lambda f: _nth(f, 1, before=False)),
    "before_done": lambda _, ledger, __: (ledger, "save", lambda f: _nth(f, 2, before=True)),
    "done_not_swept": lambda _, ledger, __: (ledger, "save", lambda f: _nth(f, 2, before=False)),
}  # fmt: skip


def when_intended(act: Callable[[], object]) -> None:
    """Calls ``act`` whenever this process has put a record on disk: first the intent."""
    from holdfast.spark.ledger import Ledger

    save = Ledger.save

    def saved(ledger: Ledger) -> None:
        save(ledger)
        act()

    pytest.MonkeyPatch().setattr(Ledger, "save", saved)


def stand_still(pids: Sequence[int]) -> None:
    """When this returns, every thread of theirs stands."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    for pid in pids:
        while not all(map(_stands, Path(f"/proc/{pid}/task").iterdir())):
            time.sleep(0.001)


def _stands(task: Path) -> bool:
    """A thread, by its directory in /proc. One that has ended does."""
    try:
        return (task / "stat").read_text().rpartition(")")[2].split()[0] == "T"
    except (FileNotFoundError, ProcessLookupError):
        return True


def commit_and_die(query: Query, batch: int, messages: list[Any], point: str, stop: Sequence[int] = ()) -> None:
    """Commits in a process of its own, which is killed at ``point``. ``stop``: processes that stand still
    from the intent on."""
    settings = [query.options, batch, PICKLER.dumps(messages).hex(), point, list(stop)]
    done = subprocess.run([sys.executable, __file__, json.dumps(settings)], capture_output=True, text=True, timeout=200)
    assert done.returncode == -signal.SIGKILL, done.stderr


def commit_and_kill(query: Query, batch: int, messages: list[Any], after: float) -> None:
    """Commits in a process of its own, which is killed ``after`` seconds from its intent on, if it has not
    finished."""
    settings = [query.options, batch, PICKLER.dumps(messages).hex(), "", []]
    with subprocess.Popen([sys.executable, __file__, json.dumps(settings)], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() in {"intended\n", ""}
        try:
            assert child.wait(after) == 0
        except subprocess.TimeoutExpired:
            child.kill()


def main() -> None:
    """See the module."""
    options, batch, messages, point, stop = json.loads(sys.argv[1])
    if point:
        plant(point)
        when_intended(partial(stand_still, stop))
    else:
        when_intended(partial(print, "intended", flush=True))
    StreamWriter(options, TOPIC_VALUE, overwrite=False).commit(PICKLER.loads(bytes.fromhex(messages)), batch)


if __name__ == "__main__":
    main()
