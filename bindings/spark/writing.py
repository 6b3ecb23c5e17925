"""What a task does with the rows of a DataFrame: checks them, and stages or publishes them by topic."""

from __future__ import annotations

import json
import os
import re
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import BinaryType, DataType, StringType

from ..engine.errors import UsageError
from ..engine.memory.domain import SHM_DIR, Domain, domain_directory
from ..engine.native.private_directory import private_directory
from .place import place_of_write
from .publishing import Publisher, slot
from .staging import StagedFile, entered, stage
from .written_place import stores_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.types import StructType

    from .options import Options
    from .place import Place

__all__ = [
    "Staging",
    "WritePlan",
    "Written",
    "make_place",
    "plan_of",
    "publish_rows",
    "spark_directory",
    "stage_rows",
    "staging_of",
    "writer_directory",
]

KINDS: dict[str, tuple[type[DataType], ...]] = {"value": (BinaryType, StringType), "topic": (StringType,)}
"""Columns that a write takes, and their types."""
LOCAL = re.compile("(?:file:(?://)?)?(/.*)", re.DOTALL)
"""A checkpoint's location that can be in a file system of this host, as Hadoop's Path reads it: % and # mean
themselves."""
ELSEWHERE = (
    "a writer keeps its record of what is published there; for another place, from the first batch on: stagingDirectory"
)


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What one task has done. ``directory``, ``who``: of its writer; ``file``: None if there is nothing left
    to publish."""

    directory: str = ""
    who: str = ""
    file: StagedFile | None = None


@dataclass(frozen=True)
class WritePlan:
    """A write whose options and columns are checked. ``topic``: index of that column, None where the option
    names the topic.

    Resolved once, where Spark plans: the options name the domain by its path, and ``staging`` is not looked
    for again.
    """

    options: Options
    value: int
    topic: int | None
    staging: Staging
    place: Place


@dataclass(frozen=True)
class Staging:
    """Where writers keep their record and their rows: one whose query is ``query`` in that query's
    checkpoint, the others below ``base``, by name."""

    base: str
    checkpoint: str = ""
    query: str = ""

    def directory(self, who: str) -> Path:
        """Of one writer."""
        return Path(self.checkpoint) / "holdfast" if self.checkpoint and who == self.query else Path(self.base) / who


def plan_of(options: Options, schema: StructType, *, overwrite: bool) -> WritePlan:
    """Checks what is known before the first row, and finds the place.

    Raises:
        UsageError: the mode, or columns that cannot be written; a checkpoint that cannot be used.
        ConfigError, ForeignOwnerError: there can be no such domain, or rows cannot wait in such a directory.
    """
    if overwrite:
        raise UsageError(
            "a topic cannot be overwritten: what was published stays until the stores' retention lets it go",
            hint='write with mode("append"), or outputMode("append")',
        )
    fields = {field.name.lower(): field.dataType for field in schema.fields}
    if extra := [name for name in fields if name not in KINDS]:
        raise UsageError(
            f"column{'s' * (len(extra) > 1)} {', '.join(extra)} cannot be written: a message has value and topic",
            hint='select them away, or put them into value: to_json(struct("*")).alias("value")',
        )
    if "value" not in fields:
        raise UsageError("the column value is missing", hint="binary or string, a message per row")
    for name, kind in fields.items():
        if not isinstance(kind, KINDS[name]):
            wanted = " or ".join(each.typeName() for each in KINDS[name])
            raise UsageError(f"column {name} is {kind.simpleString()}, not {wanted}", hint=f"cast({name} AS string)")
    if not options.topic and "topic" not in fields:
        raise UsageError("neither an option topic nor a column topic", hint='option("topic", "orders")')
    names = list(fields)
    value, topic = names.index("value"), None if options.topic else names.index("topic")
    options = replace(options, domain=str(domain_directory(options.domain).absolute()))
    staging = staging_of(options)
    place = place_of_write(str(options.domain), _needed(options, staging), stores_of(options))
    return WritePlan(options, value, topic, staging, place)


def _needed(options: Options, staging: Staging) -> Iterator[str]:
    """The directories in which tasks write: those that a source of the domain has, or where rows are
    staged."""
    assert options.domain is not None
    if options.delivery == "at_least_once":
        yield options.domain
        yield str(SHM_DIR)
        return
    if staging.checkpoint:
        yield staging.checkpoint
    elif options.staging_directory:
        private_directory(staging.base, links=True)
        yield staging.base
    else:
        private_directory(staging.base)
        yield options.domain


def rows(plan: WritePlan, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[str, Any]]:
    """(topic, pyarrow binary array without nulls) over the rows of a task; rows of one topic stay in order.

    Raises:
        UsageError: a row without value or topic.
    """
    for batch in batches:
        if not batch.num_rows:
            continue
        values = batch.column(plan.value)
        if values.null_count:
            raise UsageError(f"value is null in {values.null_count} rows", hint='na.drop(subset=["value"])')
        values = values.cast(pa.binary())
        if plan.topic is None:
            yield plan.options.topic, values
            continue
        topics = batch.column(plan.topic)
        if topics.null_count:
            raise UsageError(
                f"topic is null in {topics.null_count} rows", hint='na.drop(subset=["topic"]), or option topic'
            )
        names = pc.unique(topics).to_pylist()
        for name in names:
            yield name, values if len(names) == 1 else values.filter(pc.equal(topics, name))


def stage_rows(
    plan: WritePlan, who: str, batch: int, partition: int, batches: Iterator[pa.RecordBatch], *, make: bool = False
) -> Written:
    """The rows of a task wait in the writer's directory for the commit. ``make``: it is made where it is
    missing.

    Raises:
        PlacementError: this task runs elsewhere. Nothing was staged.
        ForeignOwnerError, ConfigError: that directory is not ours alone to write.
        UsageError: it is gone.
    """
    directory = plan.staging.directory(who)
    plan.place.check(f"rows for domain {plan.place.domain} are staged in {directory}")
    with entered(directory, make=make) as place:
        return Written(str(directory), who, stage(place, batch, partition, rows(plan, batches)))


def publish_rows(plan: WritePlan, batches: Iterator[pa.RecordBatch]) -> int:
    """The rows of a task are published, and stable, when this returns: how many. A task that is repeated
    publishes them again.

    Raises:
        PlacementError: this task runs elsewhere. Nothing was published.
    """
    plan.place.check(f"domain {plan.place.domain}, which is written to, is")
    count = 0
    with ExitStack() as stack:
        publisher: Publisher | None = None
        for topic, values in rows(plan, batches):
            if publisher is None:
                who = stack.enter_context(slot(spark_directory(plan.options)))
                publisher = stack.enter_context(Publisher(plan.options, who))
            publisher.open([topic])
            publisher.send(topic, values)
            count += len(values)
        if publisher is not None:
            publisher.wait_stable()
    return count


# Places -----------------------------------------------------------------------------------------------------


def make_place(directory: Path) -> None:
    """Where a writer's rows are staged."""
    with entered(directory, make=True):
        pass


def spark_directory(options: Options) -> Path:
    """Where writers of this domain keep what has no other place."""
    domain = Domain(options.domain, join=False)
    try:
        return domain.path / "spark"
    finally:
        domain.close()


def writer_directory(options: Options, who: str) -> Path:
    """Where a writer's record and its staged rows lie, as :func:`staging_of` finds it."""
    return staging_of(options).directory(who)


def staging_of(options: Options) -> Staging:
    """In ``stagingDirectory`` if given, else in the query's checkpoint if that is a directory of this host,
    else with the domain.

    A domain directory may not outlive the boot. If it is lost between a crash and the repeated commit, that
    batch is published from its beginning once more. A query that has begun with its record there stays there:
    0.1.0 did not see every checkpoint.

    Raises:
        UsageError: the checkpoint is there, and nothing can be read or written in it. With a record in
            another place, what was published from this one would be published again.
    """
    if options.staging_directory:
        return Staging(options.staging_directory)
    base = domain_directory(options.domain).absolute() / "spark"
    found = _checkpoint(options.checkpoint_location)
    if found is None:
        return Staging(str(base))
    path, query = found
    if (base / query / "ledger").exists() and not (path / "holdfast" / "ledger").exists():
        return Staging(str(base))
    return Staging(str(base), str(path), query)


def _checkpoint(location: str) -> tuple[Path, str] | None:
    """A checkpoint directory of this host, and the query whose it is: what Spark wrote there names it."""
    parts = LOCAL.fullmatch(location)
    if parts is None:
        return None
    path = Path(parts[1])
    try:
        found = json.loads((path / "metadata").read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise UsageError(f"checkpoint {path}: {error}", hint=ELSEWHERE) from error
    if not isinstance(found, dict) or not isinstance(found.get("id"), str):
        return None
    if not os.access(path, os.W_OK):
        raise UsageError(f"checkpoint {path} is not ours to write", hint=ELSEWHERE)
    return path, found["id"]
