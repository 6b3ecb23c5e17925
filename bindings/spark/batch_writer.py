"""A DataFrame that is published: ``df.write.format("holdfast").mode("append")``.

Spark repeats no commit of a batch write: if it fails, the job has failed. With ``txnAppId`` and ``txnVersion`` (Delta's names,
for ``foreachBatch``) a job that is run again publishes what the one before did not, and nothing twice. Without them every write
is another one: rows wait in a directory of its own, and go when it ends or when its driver is dead.
"""

from __future__ import annotations

import hashlib
import logging
import os
import secrets
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, cast

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from .committing import abort, commit
from .options import OptionError, parse
from .place import boot_id
from .publishing import slot
from .writing import (
    TRANSACTION,
    Written,
    plan_of,
    publish_rows,
    spark_directory,
    stage_rows,
    writer_directory,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["ONCE", "BatchWriter", "lives"]

_log = logging.getLogger("holdfast")

ONCE = "once-"
"""Directories of writes without an identity begin so; then the driver, and a random part."""


class BatchWriter(DataSourceArrowWriter):
    """Tasks stage their rows, and the commit publishes them (committing.py).

    Raises:
        OptionError, UsageError: options, mode or columns that cannot be written.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        parsed = parse(options, "write")
        if bool(parsed.txn_app_id) != (parsed.txn_version is not None):
            raise OptionError("txnAppId and txnVersion go together", hint="give both, or neither")
        if parsed.txn_app_id and parsed.delivery == "at_least_once":
            raise OptionError("txnAppId is for delivery=exactly_once", hint="leave one of them away")
        self._version = parsed.txn_version
        if self._version is not None:
            digest = hashlib.blake2b(parsed.txn_app_id.encode(), digest_size=16).hexdigest()
            self._who = f"{TRANSACTION}{digest}"
        else:
            self._who = f"{ONCE}{driver()}-{secrets.token_hex(8)}"
        self._plan = plan_of(parsed, schema, overwrite=overwrite, who=self._who)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """One task. It does not make the directory: one that is late would bring back what an abort removed."""
        if self._plan.options.delivery == "at_least_once":
            publish_rows(self._plan, iterator)
            return Written()
        task = TaskContext.get()
        partition = task.partitionId() if task is not None else 0
        return stage_rows(self._plan, self._who, self._version or 0, partition, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """All tasks are done. With a txnVersion that was published before, it is a no-op."""
        written = cast("list[Written | None]", messages)
        if self._version is not None:
            commit(self._plan.options, written, self._version)
            return
        with slot(spark_directory(self._plan.options)) as name:
            commit(self._plan.options, written, 0, publish_as=name)
        self._leave(written)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """The job failed. What it had published already stays; without a txnVersion nobody goes on with it."""
        written = cast("list[Written | None]", messages)
        if self._version is not None:
            abort(written)
        else:
            self._leave(written)

    def _leave(self, written: list[Written | None]) -> None:
        """Removes its directory, and those of writes whose driver is dead."""
        own = {Path(message.directory) for message in written if message is not None and message.directory}
        own.add(writer_directory(self._plan.options, self._who))
        for directory in own:
            shutil.rmtree(directory, ignore_errors=True)
            for other in directory.parent.glob(f"{ONCE}*"):
                if not lives(other.name.removeprefix(ONCE)):
                    shutil.rmtree(other, ignore_errors=True)


# Whose it is ------------------------------------------------------------------------------------------------------------


def driver() -> str:
    """Names the process that a write belongs to: the JVM above this one, else this one. ``<boot>-<pid>-<start>``.

    Python processes of Spark come and go while a write is under way; the JVM stays.
    """
    own = found = os.getpid()
    while found > 1:
        name, parent, _ = _process(found)
        if name == "java":
            break
        found = parent
    found = found if found > 1 else own
    return f"{_boot()}-{found}-{_process(found)[2]}"


def lives(name: str) -> bool:
    """The process of :func:`driver` is there; also true of what is not such a name: that is not ours to judge."""
    boot, _, rest = name.partition("-")
    pid, _, start = rest.partition("-")
    if not pid.isdigit() or not start:
        return True
    try:
        return boot == _boot() and _process(int(pid))[2] == start.partition("-")[0]
    except OSError:
        return False


def _boot() -> str:
    return boot_id().replace("-", "")


def _process(pid: int) -> tuple[str, int, str]:
    """Name, parent, and start in clock ticks since boot, of a process."""
    name, _, rest = Path(f"/proc/{pid}/stat").read_text().partition("(")[2].rpartition(")")
    words = rest.split()
    return name, int(words[1]), words[19]
