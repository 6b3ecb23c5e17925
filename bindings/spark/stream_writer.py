"""A streaming query that publishes: ``df.writeStream.format("holdfast")``.

Spark pickles the writer to its tasks, and makes another one for every commit, in a process that may be
another one (docs/design.md S.2): so it holds options and nothing else. The query's ID comes to the commit
with the tasks' messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from ..engine.errors import UsageError
from .committing import abort, commit
from .options import parse
from .writing import Written, plan_of, publish_rows, stage_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["StreamWriter"]


class StreamWriter(DataSourceStreamArrowWriter):
    """Exactly once by default: tasks stage their rows, and the commit of a micro-batch publishes them
    (committing.py).

    Raises:
        OptionError, UsageError: options, mode or columns that cannot be written.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        self._plan = plan_of(parse(options, "stream write"), schema, overwrite=overwrite)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """One task."""
        if self._plan.options.delivery == "at_least_once":
            publish_rows(self._plan, iterator)
            return Written()
        task = TaskContext.get()
        query = task.getLocalProperty("sql.streaming.queryId") if task is not None else None
        batch = task.getLocalProperty("streaming.sql.batchId") if task is not None else None
        if task is None or query is None or batch is None:
            raise UsageError("this is not a task of a streaming query", hint='write with df.write.format("holdfast")')
        return stage_rows(self._plan, query, int(batch), task.partitionId(), iterator, make=True)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  (Spark's name)
        """All tasks of a micro-batch are done. Repeated, it is a no-op."""
        commit(self._plan.options, cast("list[Written | None]", messages), batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """The micro-batch failed; Spark repeats it when the query starts again."""
        abort(cast("list[Written | None]", messages))
