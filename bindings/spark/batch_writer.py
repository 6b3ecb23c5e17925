"""A DataFrame that is published: ``df.write.format("holdfast").mode("append")``.

Spark repeats no commit of a batch write: if it fails, the job has failed. With ``txnAppId`` and
``txnVersion`` (Delta's names, for ``foreachBatch``) a job that is run again publishes what the one before did
not, and nothing twice (transactions.py).

Rows wait in a directory of each write's own, and go when it ends, or when its driver is dead (alive.py).
"""

from __future__ import annotations

import secrets
import shutil
from typing import TYPE_CHECKING, cast

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from .alive import hold, let_go, over
from .committing import commit
from .options import OptionError, parse
from .publishing import slot
from .transactions import commit_version
from .writing import Written, make_place, plan_of, publish_rows, spark_directory, stage_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["ONCE", "BatchWriter"]

ONCE = "once-"
"""Directories of writes begin so."""


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
        self._who = f"{ONCE}{secrets.token_hex(16)}"
        self._plan = plan_of(parsed, schema, overwrite=overwrite)
        if parsed.delivery == "exactly_once":
            make_place(self._directory)
            hold(self._directory)

    @property
    def _directory(self) -> Path:
        return self._plan.staging.directory(self._who)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """One task. It does not make the directory: one that is late would bring back what an abort
        removed."""
        if self._plan.options.delivery == "at_least_once":
            publish_rows(self._plan, iterator)
            return Written()
        task = TaskContext.get()
        partition = task.partitionId() if task is not None else 0
        return stage_rows(self._plan, self._who, self._plan.options.txn_version or 0, partition, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """All tasks are done. With a txnVersion that was published before, it is a no-op."""
        written = cast("list[Written | None]", messages)
        if self._plan.options.txn_version is not None:
            commit_version(self._plan, written)
        else:
            with slot(spark_directory(self._plan.options)) as name:
                commit(self._plan.options, written, 0, publish_as=name)
        self._leave()

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """The job failed. What it had published already stays; without a txnVersion nobody goes on with
        it."""
        self._leave()

    def _leave(self) -> None:
        """Removes its directory, and those of writes whose driver is dead."""
        shutil.rmtree(self._directory, ignore_errors=True)
        let_go(self._directory)
        for other in self._directory.parent.glob(f"{ONCE}*"):
            with over(other) as dead:
                if dead:
                    shutil.rmtree(other, ignore_errors=True)
