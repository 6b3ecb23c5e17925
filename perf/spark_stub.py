"""A data source that reads nothing: one Arrow batch again and again. What Spark takes for it, it takes for
any Python source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

BATCH = 65536
PARTS = 8


class StubReader(DataSourceReader):
    """``rows`` rows over PARTS tasks."""

    def __init__(self, rows: int, schema: StructType) -> None:
        self._rows = rows
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """Equal shares."""
        return [InputPartition(self._rows // PARTS) for _ in range(PARTS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The share, in batches of BATCH rows."""
        import pyarrow as pa

        schema = to_arrow_schema(self._schema, timezone="UTC")
        sample = {"value": bytes(64), "topic": "rows"}
        columns = [pa.repeat(pa.scalar(sample.get(field.name, 1), field.type), BATCH) for field in schema]
        whole = pa.RecordBatch.from_arrays(columns, schema=schema)
        for begin in range(0, partition.value, BATCH):
            yield whole.slice(0, min(BATCH, partition.value - begin))


class StubSource(DataSource):
    """``format("stub")``, with the columns of ``format("holdfast")``."""

    @classmethod
    def name(cls) -> str:
        """What ``format()`` says."""
        return "stub"

    def schema(self) -> str:
        """As holdfast's."""
        return (
            "value BINARY, topic STRING, source_reg_id BIGINT, sequence_number BIGINT, timestamp TIMESTAMP, "
            "timestamp_ns BIGINT, flags INT"
        )

    def reader(self, schema: StructType) -> DataSourceReader:
        """See StubReader."""
        return StubReader(int(self.options["rows"]), schema)
