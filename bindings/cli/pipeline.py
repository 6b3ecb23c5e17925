"""``holdfast pipeline``: the functions of holdfast.spark.pipeline, with a Spark where they need one, and
results as text."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import starmap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..engine.errors import NotRegisteredError, UsageError
from ..engine.memory.domain import Domain
from ..engine.options.values import integer
from ..engine.printable import printable
from ..engine.tools.snapshot import running_stores
from ..extras import needed
from .lines import say, say_json
from .options import pairs
from .pipeline_spark import spark_session
from .stat import table

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from ..spark.pipeline.archive import Archived
    from ..spark.pipeline.findings import Audit, SourceAudit, StoreAudit
    from ..spark.pipeline.progress import Progress
    from ..spark.pipeline.recorded import Input
    from ..spark.pipeline.report import Report
    from ..spark.pipeline.table import By

__all__ = [
    "ArchiveArguments", "AuditArguments", "ReplayArguments", "ReportArguments", "archive_topic", "audit_topics",
    "replay_recording", "report_flights", "show_report",
]  # fmt: skip

FINDINGS = 1
SHOWN = 50
"""Findings in words; all of them are in the JSON."""


@dataclass(frozen=True, slots=True)
class ArchiveArguments:
    """Of ``pipeline archive``."""

    topic: str
    path: str
    by: str
    session: str | None
    once: bool
    every: float
    checkpoint: str | None
    master: str
    options: list[str]
    json: bool
    domain: str | None


@dataclass(frozen=True, slots=True)
class AuditArguments:
    """Of ``pipeline audit``."""

    topics: list[str]
    directories: list[str]
    checkpoint: str | None
    max_lag: int
    patience: float
    picture: str | None
    master: str | None
    json: bool
    domain: str | None


@dataclass(frozen=True, slots=True)
class ReplayArguments:
    """Of ``pipeline replay``."""

    topic: str
    archive: str | None
    of: str | None
    at: str | None
    speed: float
    checkpoint: str | None
    stores: list[str]
    read: list[str]
    options: list[str]
    json: bool
    domain: str | None


@dataclass(frozen=True, slots=True)
class ReportArguments:
    """Of ``pipeline report``."""

    topic: str | None
    archive: str | None
    picture: str | None
    master: str
    options: list[str]
    json: bool
    domain: str | None


def archive_topic(given: ArchiveArguments) -> int:
    """Archives until a signal comes, or once."""
    with spark_session(given.master) as spark, _bars() as tell:
        from ..spark.pipeline.archive import archive

        options = {**_texts(given.options), **_domain(given.domain)}
        done = archive(
            spark, given.topic, given.path, by=_by(given.by), checkpoint=given.checkpoint, session=_session(given.session),
            once=given.once, every_s=given.every, options=options, progress=tell,
        )  # fmt: skip
    _told(done, given.json, _archived)
    return 0


def audit_topics(given: AuditArguments) -> int:
    """Audits, here or by a Spark; 1 if something was found."""
    if given.directories and given.domain:
        raise UsageError("--directory and --domain exclude each other")
    with needed():
        from ..spark.pipeline.audit import audit

        if given.picture is not None:
            from ..spark.pipeline.chart import draw
    with contextlib.ExitStack() as stack:
        spark = stack.enter_context(spark_session(given.master)) if given.master is not None else None
        tell = stack.enter_context(_bars())
        found = audit(
            given.topics, domain=given.domain, directories=given.directories, spark=spark,
            checkpoint=_path(given.checkpoint), max_lag=given.max_lag, patience=given.patience, progress=tell,
        )  # fmt: skip
    _told(found, given.json, _audited)
    if given.picture is not None:
        _drawn(given.picture, lambda path: draw(found, path))
    return FINDINGS if found.findings else 0


def replay_recording(given: ReplayArguments) -> int:
    """Replays an archive, or logs."""
    with needed():
        from ..spark.pipeline.replay import replay
    source = _input(given)
    stores = given.stores or _running(given.domain)
    options = {f"option.{name}": value for name, value in _texts(given.options).items()}
    options |= {"stores": ",".join(stores), **_domain(given.domain)}
    with _bars() as tell:
        done = replay(
            source,
            given.topic,
            speed=given.speed,
            checkpoint=_path(given.checkpoint),
            options=options,
            progress=tell,
        )
    before = f" after {done.before:,} that were out before" if done.before else ""
    text = (
        f"published {done.messages:,} messages in {done.topic!r}{before} in {done.seconds:.3f} s; "
        f"they are numbers {done.first}..{done.next - 1} there"
    )
    _told(done, given.json, lambda _: say(text))
    return 0


def report_flights(given: ReportArguments) -> int:
    """The demo's report."""
    if (given.topic is None) == (given.archive is None):
        raise UsageError("a report is of a topic, or of an archive", hint="holdfast pipeline report flights")
    with spark_session(given.master) as spark, _bars() as tell:
        with needed():
            from ..spark.pipeline.report import report
        options = {**_texts(given.options), **_domain(given.domain)}
        found = report(
            spark, given.topic, archive=given.archive, options=options, picture=_path(given.picture), progress=tell
        )
    _told(found, given.json, show_report)
    return 0


# Arguments --------------------------------------------------------------------------------------------------


def _input(given: ReplayArguments) -> Input:
    from ..spark.pipeline.recorded import ArchiveInput, LogInput

    if given.archive is not None:
        if given.at is not None or given.read:
            raise UsageError("--at and --read are about logs, and --archive was given")
        return ArchiveInput(str(Path(given.archive).absolute()), given.of or "")
    if given.of is None:
        raise UsageError(
            "nothing says what to replay", hint="--archive DIR, or --of TOPIC for what the stores have of it"
        )
    read = {**_texts(given.read), "topic": given.of, **_domain(given.domain)}
    return LogInput(read | ({"readFrom": f"store:{given.at}"} if given.at is not None else {}))


def _by(text: str) -> By:
    for known in ("date,topic", "batch"):
        if text == known:
            return known
    raise UsageError(f"--by {text}", hint="date,topic or batch")


def _texts(given: list[str]) -> dict[str, str]:
    return {name: str(value) for name, value in pairs(given).items()}


def _domain(name: str | None) -> dict[str, str]:
    return {} if name is None else {"domain": name}


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)


def _session(text: str | None) -> int | None:
    try:
        return None if text is None else integer(text)
    except ValueError:
        raise UsageError(f"session {text!r} is no number", hint="--session 0x2a") from None


def _running(name: str | None) -> list[str]:
    domain = Domain(name, join=False, make=False)
    try:
        running = running_stores(domain)
    finally:
        domain.close()
    if not running:
        start = "start one: holdfast store run --name a --dir DIR"
        raise NotRegisteredError(f"no store runs in domain {domain.name}", hint=start)
    return running


# What is shown ----------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _bars() -> Iterator[Callable[[Progress], None]]:
    """A bar for each thing that is told, on stderr if that is a terminal; else nothing."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    bars = Bars(
        TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), MofNCompleteColumn(),
        TextColumn("{task.fields[unit]}"), TimeRemainingColumn(), console=Console(stderr=True), transient=True,
    )  # fmt: skip
    tasks: dict[str, Any] = {}

    def tell(progress: Progress) -> None:
        if progress.what not in tasks:
            tasks[progress.what] = bars.add_task(printable(progress.what), total=progress.total, unit=progress.unit)
        bars.update(tasks[progress.what], completed=progress.done, total=progress.total, unit=progress.unit)

    with bars:
        yield tell


def _told(found: Any, json: bool, show: Callable[[Any], None]) -> None:
    if json:
        say_json(found, indent=True)
    else:
        show(found)


def _drawn(picture: str, draw: Callable[[Path], None]) -> None:
    try:
        draw(Path(picture))
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot draw {picture}: {error}") from None


def _show(*parts: Any) -> None:
    """Tables, as wide as they need to be where nobody says how wide it is."""
    from rich.console import Console, Group

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 250
    console.print(Group(*parts))


def _archived(done: Archived) -> None:
    say(
        f"archived {done.rows:,} messages in {done.batches:,} micro-batches, {done.files:,} files, {done.bytes:,} bytes "
        f"to {done.path} in {done.seconds:.3f} s"
    )


def _audited(found: Audit) -> None:
    stores = ((source, store) for source in found.sources for store in source.stores)
    parts = [
        table(
            "stores",
            "topic|source|store|>oldest|sent|>next|>behind|>lacks|>read",
            starmap(_store, stores),
        )
        if found.sources
        else "no source is kept"
    ]
    if found.receivers:
        rows = (
            (
                each.topic,
                each.source,
                each.called,
                each.name or "-",
                str(each.ack),
                str(each.lag),
                "yes" if each.alive else "no",
            )
            for each in found.receivers
        )
        parts.append(table("receivers", "topic|source|receiver|context|>ack|>lag|alive", rows))
    _show(*parts)
    for each in found.findings[:SHOWN]:
        say(f"{each.kind}: topic {each.topic}, source {each.source}: {each.text}")
    if len(found.findings) > SHOWN:
        say(f"and {len(found.findings) - SHOWN:,} more: --json has all")
    some = f"{len(found.findings):,} finding" + "s" * (len(found.findings) > 1)
    say(f"{some if found.findings else 'clean'}: {found.messages:,} messages read in {found.seconds:.3f} s")


def _store(source: SourceAudit, store: StoreAudit) -> tuple[str, ...]:
    sent = "-"
    if store.oldest_sent_ns is not None:
        sent = datetime.fromtimestamp(store.oldest_sent_ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S")
    lacks = sum(following - first for first, following in store.lacks)
    return (
        source.topic, source.source, store.store, str(store.oldest), sent, str(store.next), str(store.behind), str(lacks),
        str(store.messages),
    )  # fmt: skip


def show_report(found: Report, groups: Collection[str] = ("carrier", "origin", "hour")) -> None:
    """A table for each of these groups, and how many flights there were."""
    parts = []
    for by in dict.fromkeys(each.by for each in found.delays if each.by in groups):
        rows = (
            (
                each.key,
                f"{each.flights:,}",
                _minutes(each.departure_min),
                _minutes(each.arrival_min),
                f"{each.late:.1%}",
            )
            for each in found.delays
            if each.by == by
        )
        parts.append(table(f"delays by {by}, minutes", f"{by}|>flights|>departure|>arrival|>late", rows))
    _show(*parts)
    say(f"{found.flights:,} flights, {found.cancelled:,} cancelled")


def _minutes(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"
