"""``format("holdfast")``: what Spark asks for, and who does it. Nothing heavy is imported until Spark
asks."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceArrowWriter,
        DataSourceReader,
        DataSourceStreamArrowWriter,
        DataSourceStreamReader,
    )
    from pyspark.sql.types import StructType

__all__ = ["HoldfastSource"]

PUSHDOWN = "pyspark.sql.worker.data_source_pushdown_filters"


class HoldfastSource(DataSource):
    """Topics as tables and streams; the options are those of options.OPTIONS."""

    @classmethod
    def name(cls) -> str:
        """What ``format()`` and ``USING`` say."""
        return "holdfast"

    def schema(self) -> StructType:
        """The columns, for whoever brings no schema."""
        from .options import parse
        from .schema import columns_of

        return columns_of(parse(self.options, "schema"))

    def reader(self, schema: StructType) -> DataSourceReader:
        """For ``spark.read``."""
        from .batch_reader import BatchReader, FilteringBatchReader

        return (FilteringBatchReader if filters_are_pushed() else BatchReader)(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  (Spark's names)
        """For ``spark.readStream``."""
        from .stream_reader import StreamReader

        return StreamReader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """For ``df.write``."""
        from .batch_writer import BatchWriter

        return BatchWriter(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        """For ``df.writeStream``."""
        from .stream_writer import StreamWriter

        return StreamWriter(self.options, schema, overwrite)


def filters_are_pushed() -> bool:
    """Whether this is the process in which Spark pushes filters down.

    Spark refuses a reader that can take filters where ``spark.sql.python.filterPushdown.enabled`` is false,
    and tells the reader nothing; but it pushes them in a worker program of its own, which runs for nothing
    else.
    """
    main = sys.modules.get("__main__")
    return PUSHDOWN in sys.modules or getattr(getattr(main, "__spec__", None), "name", None) == PUSHDOWN
