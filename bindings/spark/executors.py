"""A word of warning before a plan fails in its tasks: this session has executors on other hosts than the
driver's.

What decides is the place that each task checks (place.py); this only compares names, so it may speak where
all is well. A ``format("holdfast")`` is planned in processes that do not know the session's executors: those
that do call it.
"""

from __future__ import annotations

import logging
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["executor_hosts", "warn_of_executors"]

_log = logging.getLogger("holdfast")
_told: set[tuple[str, ...]] = set()


def executor_hosts(spark: SparkSession) -> list[str]:
    """Where executors of this session have come up by now, in Spark's words; none where it does not tell
    (Connect)."""
    try:
        infos = spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos()
    except Exception:  # a remote session has no context; a stopped one no tracker: nothing depends on this
        return []
    return sorted({str(info.host()) for info in infos})


def warn_of_executors(spark: SparkSession) -> None:
    """Says in the log, once, that executors run elsewhere."""
    own = {spark.conf.get("spark.driver.host", ""), "localhost", socket.gethostname(), socket.getfqdn()}
    away = tuple(host for host in executor_hosts(spark) if host not in own)
    if away and away not in _told:
        _told.add(away)
        _log.warning(
            "executors run on %s, and the driver on %s: a task that is not on the host of the stores that the driver sees fails "
            "with HF_PLACEMENT; run the executors on that host alone",
            ", ".join(away), spark.conf.get("spark.driver.host", socket.gethostname()),
        )  # fmt: skip
