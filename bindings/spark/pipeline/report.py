"""The report of the demo's flights: how late they were, by carrier, origin and hour; counted by Spark, as a
table and a chart.

A flight is a message with one JSON record, as ``holdfast demo`` sends it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ...engine.errors import ConfigError, CorruptionError
from .progress import Progress, Tell, silent

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Delay", "Report", "report"]

FLIGHT = "carrier STRING, origin STRING, hour INT, dep_delay DOUBLE, arr_delay DOUBLE"
"""The fields that are read. A flight that was cancelled has no delay."""
LATE_MIN = 15
"""A flight that leaves later than this is late: the airlines' own measure."""
By = Literal["carrier", "origin", "hour"]
GROUPS: tuple[By, ...] = ("carrier", "origin", "hour")


@dataclass(frozen=True, slots=True)
class Delay:
    """The flights of one carrier, from one airport, or of one hour of the day."""

    by: By
    key: str
    flights: int
    departure_min: float | None
    """Mean delay in minutes, of those that flew; early ones count as negative. None: none did."""
    arrival_min: float | None
    late: float
    """Part of those that flew which left more than 15 minutes late; 0 when none flew."""


@dataclass(frozen=True, slots=True)
class Report:
    """What :func:`report` has counted."""

    flights: int
    cancelled: int
    """Of them; they have no delay."""
    delays: list[Delay]
    """By carrier, then by origin, then by hour; in the order of the keys."""


def report(
    spark: SparkSession,
    topic: str | None = None,
    *,
    archive: str | os.PathLike[str] | None = None,
    options: Mapping[str, str] | None = None,
    picture: str | os.PathLike[str] | None = None,
    progress: Tell = silent,
) -> Report:
    """Counts the flights of a topic, or of the archive of one.

    Args:
        topic: read from its stores; with ``options`` of the data source.
        archive: a directory that :func:`holdfast.spark.pipeline.archive.archive` has made. Give this or
            ``topic``.
        picture: where a chart is drawn: PNG, or what else matplotlib makes of the file's name.
        progress: told how many of two steps are done.

    Raises:
        ConfigError: not one of ``topic`` and ``archive`` is given; the archive has no payloads; matplotlib is
            missing.
        CorruptionError: a message is no flight.
    """
    if (topic is None) == (archive is None):
        raise ConfigError("a report reads a topic or an archive", hint="give one of them")
    if picture is not None:
        _figure()  # before the work, not after it
    frame = (
        _topic(spark, topic, options or {}) if topic is not None else _archived(spark, Path(os.fspath(archive or "")))
    )
    progress(Progress("reporting", 0, 2, "steps"))
    found = _counted(frame)
    progress(Progress("reporting", 1, 2, "steps"))
    if picture is not None:
        _draw(found, Path(picture))
    progress(Progress("reporting", 2, 2, "steps"))
    return found


def _topic(spark: SparkSession, topic: str, options: Mapping[str, str]) -> DataFrame:
    given = {name.lower(): text for name, text in options.items()} | {"topic": topic, "columns": "value"}
    if not given.keys() & {"domain", "directory"} and (domain := os.environ.get("HOLDFAST_DOMAIN")):
        given["domain"] = domain
    return spark.read.format("holdfast").options(**given).load()


def _archived(spark: SparkSession, path: Path) -> DataFrame:
    """Spark, too, looks at nothing that begins with ``_``."""
    if not any(path.glob("*/")):
        raise ConfigError(f"{path} is no archive", hint="holdfast pipeline archive makes one")
    frame = spark.read.parquet(f"file://{path.absolute()}")
    if "value" not in frame.columns:
        raise ConfigError(f"{path} has no column value, only {', '.join(frame.columns)}", hint="archive the payloads")
    return frame


def _counted(frame: DataFrame) -> Report:
    """One pass over the flights: all three groupings at once."""
    from pyspark.sql import functions as f

    flight = frame.select(f.from_json(f.col("value").cast("string"), FLIGHT).alias("flight")).select("flight.*")
    left_late = f.when(f.col("dep_delay") > LATE_MIN, 1).otherwise(0)
    rows = (
        flight.groupingSets([[name] for name in GROUPS], *GROUPS)
        .agg(
            f.count(f.lit(1)).alias("flights"),
            f.count("dep_delay").alias("flown"),
            f.avg("dep_delay").alias("departure"),
            f.avg("arr_delay").alias("arrival"),
            f.sum(left_late).alias("late"),
            f.grouping_id().alias("grouping"),
        )
        .collect()
    )
    delays, flights, cancelled = [], 0, 0
    for row in rows:
        by = GROUPS[{0b011: 0, 0b101: 1, 0b110: 2}[row["grouping"]]]
        if row[by] is None:
            raise CorruptionError(
                f"{row['flights']} messages are no flights: they have no {by}", hint="name another topic"
            )
        if by == "origin":
            flights += row["flights"]
            cancelled += row["flights"] - row["flown"]
        key = f"{row[by]:02}" if by == "hour" else str(row[by])
        late = row["late"] / row["flown"] if row["flown"] else 0.0
        delays.append(Delay(by, key, row["flights"], row["departure"], row["arrival"], late))
    return Report(flights, cancelled, sorted(delays, key=lambda each: (GROUPS.index(each.by), each.key)))


def _figure() -> type:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ConfigError("matplotlib is not installed: no chart", hint="pip install 'holdfast[plot]'") from None
    return Figure


def _draw(found: Report, path: Path) -> None:
    """A panel for each grouping: bars of the mean delays, and the part that left late as dots."""
    figure = _figure()(figsize=(12, 4.5), layout="constrained")
    panels = figure.subplots(1, len(GROUPS), width_ratios=[3, 1, 4])
    for panel, by in zip(panels, GROUPS, strict=True):
        rows = [each for each in found.delays if each.by == by]
        places = range(len(rows))
        panel.bar([at - 0.2 for at in places], [row.departure_min or 0 for row in rows], 0.4, label="departure")
        panel.bar([at + 0.2 for at in places], [row.arrival_min or 0 for row in rows], 0.4, label="arrival")
        panel.set_xticks(list(places), [row.key for row in rows], fontsize=8)
        panel.set_title(f"by {by}")
        panel.axhline(0, color="black", linewidth=0.5)
        share = panel.twinx()
        share.plot(list(places), [100 * row.late for row in rows], "k.", label="late")
        share.set_ylim(0, 100)
        if by == GROUPS[0]:
            panel.set_ylabel("mean delay, minutes")
            panel.legend(loc="upper left", fontsize=8)
        if by == GROUPS[-1]:
            share.set_ylabel(f"left more than {LATE_MIN} minutes late, % (dots)")
    figure.suptitle(f"{found.flights:,} flights, {found.cancelled:,} of them cancelled")
    figure.savefig(path, dpi=120)
