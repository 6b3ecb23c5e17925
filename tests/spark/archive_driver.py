"""A program that archives a topic, for tests that kill it: ``python archive_driver.py SETTINGS``, JSON
(:class:`Settings`)."""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Settings", "command", "session_settings"]

SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For a Java that lives for a minute: it starts at half the cost where it compiles simply and collects with
one thread."""


@dataclass(frozen=True)
class Settings:
    """One run. ``kill``: (batch, files): kill -9 in that batch when that many of its files are in place; -1
    files: when it is written and not committed."""

    topic: str
    path: str
    scratch: str
    """Where Spark keeps what it needs."""
    by: str = "date,topic"
    session: int | None = None
    once: bool = True
    master: str = "local[2]"
    kill: tuple[int, int] | None = None
    options: dict[str, str] = field(default_factory=dict)


def command(settings: Settings) -> list[str]:
    """What starts it."""
    return [sys.executable, __file__, json.dumps(asdict(settings))]


def session_settings(where: Path, master: str = "local[2]") -> dict[str, bool | float | int | str | None]:
    """Of a small Spark that keeps what it needs in ``where``."""
    import holdfast.spark as hs

    return {
        **hs.BUILDER_DEFAULTS,
        "spark.master": master,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": SHORT_LIVED,
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(where / "warehouse"),
        "spark.local.dir": str(where / "local"),
    }


def main(given: dict[str, Any]) -> None:
    """Archives; a traceback and exit code 1 where it fails."""
    settings = Settings(**given)
    faulthandler.register(signal.SIGUSR1)  # who waits for it in vain asks what it does
    from pyspark.sql import SparkSession

    import holdfast.spark as hs
    from holdfast.spark.pipeline.archive import archive

    spark = SparkSession.builder.config(map=session_settings(Path(settings.scratch), settings.master)).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    hs.register(spark)
    if settings.kill is not None:
        _arm(*settings.kill)
    archive(
        spark, settings.topic, settings.path, by=settings.by, session=settings.session, once=settings.once, every_s=0.0,  # type: ignore[arg-type]
        options=settings.options,
    )  # fmt: skip


def _arm(last: int, files: int) -> None:
    """Dies by the kernel's hand at that point of the real code."""
    from holdfast.spark.pipeline.table import ParquetTable, Published

    publish, rename = ParquetTable.publish, os.rename
    left = files

    def renamed(source: Any, target: Any, **more: Any) -> None:
        nonlocal left
        if Path(target).name.startswith(f"part-{last}-"):
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1
        rename(source, target, **more)

    def published(self: ParquetTable, batch: int, staged: Path) -> Published:
        done = publish(self, batch, staged)
        if batch == last and files < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return done

    os.rename = renamed  # type: ignore[assignment]
    ParquetTable.publish = published  # type: ignore[method-assign]


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
