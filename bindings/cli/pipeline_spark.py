"""A Spark for one command: started quietly, stopped at the end, its errors in one line."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
from typing import TYPE_CHECKING

from ..engine.errors import Error
from ..extras import needed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

__all__ = ["spark_session"]

SETTINGS: dict[str, bool | float | int | str | None] = {
    "spark.app.name": "holdfast pipeline",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class SparkError(Error):
    """Spark, or one of its tasks, has failed."""

    code = "HF_SPARK"


@contextlib.contextmanager
def spark_session(master: str) -> Iterator[SparkSession]:
    """A session with the data source, for the block.

    Raises:
        ConfigError: no PySpark, or no Java.
        SparkError: it does not start, or a task failed.
    """
    with needed():
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession

        from .. import spark as data_source
    try:
        handlers = {number: signal.getsignal(number) for number in SIGNALS}
        with _quiet():
            session = SparkSession.builder.config(
                map={**data_source.BUILDER_DEFAULTS, **SETTINGS, "spark.master": master}
            ).getOrCreate()
        for number, handler in handlers.items():  # PySpark has put its own there
            signal.signal(number, handler)
        try:
            session.sparkContext.setLogLevel("ERROR")
            data_source.register(session)
            yield session
        finally:
            session.stop()
    except PySparkException as error:
        raise SparkError(_reason(str(error)), hint="HOLDFAST_DEBUG=1 shows where") from error


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """What is started in the block has no stderr, unless HOLDFAST_DEBUG is set: Spark's Java tells there how
    it is."""
    if os.environ.get("HOLDFAST_DEBUG"):
        yield
        return
    sys.stderr.flush()
    ours, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nothing, 2)
        yield
    finally:
        os.dup2(ours, 2)
        os.close(ours)
        os.close(nothing)


def _reason(text: str) -> str:
    """Of what Spark says, the line that says why: a task's error is the last line of its traceback, before
    Java's."""
    lines = [line.strip() for line in text.partition("JVM stacktrace")[0].splitlines() if line.strip()]
    raised = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Timeout)\b.*: ", line)]
    found = (raised or lines or ["Spark has failed"])[-1]
    return re.sub(r"^(\w+\.)+(?=\w+: )", "", found)
