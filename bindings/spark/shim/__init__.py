"""Found by Spark by its name: a top-level package ``pyspark_*`` with ``DefaultSource`` is registered as a
data source."""

from holdfast.spark.source import HoldfastSource as DefaultSource

__all__ = ["DefaultSource"]
