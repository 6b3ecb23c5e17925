"""holdfast topics as Spark tables and streams: ``spark.read.format("holdfast").option("topic",
"orders").load()``.

Importing it makes sure that Spark will find a Java (java.py), so it comes before the first session is made.
Where PySpark or pyarrow is not installed it raises MissingExtraError, which is an ImportError.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from ..extras import required
from .java import ensure_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["BUILDER_DEFAULTS", "SESSION_DEFAULTS", "ensure_java", "register"]

BUILDER_DEFAULTS: dict[str, bool | float | int | str | None] = {"spark.python.unix.domain.socket.enabled": "true"}
"""What can be set before the session is there, and not later: ``builder.config(map=BUILDER_DEFAULTS)``. By
Unix sockets workers send up to half as many rows again."""
SESSION_DEFAULTS = {
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.session.timeZone": "UTC",
}
"""What :func:`register` sets."""


def register(spark: SparkSession) -> None:
    """Registers the format ``holdfast`` with this session, and sets SESSION_DEFAULTS in it.

    The format is found without it, too, where Spark's workers can import ``pyspark_holdfast``; filters are
    then not pushed down. A warning says which executors run elsewhere: of those that have come up by now.
    """
    from .executors import warn_of_executors
    from .source import HoldfastSource

    spark.dataSource.register(HoldfastSource)
    for name, value in SESSION_DEFAULTS.items():
        spark.conf.set(name, value)
    warn_of_executors(spark)


for _module in ("pyspark", "pyarrow"):
    required(_module)
if "pyspark.worker_util" not in sys.modules:  # Spark's own workers need no Java
    ensure_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # Spark's choice is python3 of the path, whatever that is
