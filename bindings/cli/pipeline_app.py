"""The verbs of ``holdfast pipeline`` and their arguments. What they do is in pipeline.py, imported when one
runs."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["pipeline_app"]

pipeline_app = typer.Typer(
    help="What is done with whole topics: archive, audit, replay, report; on Spark.", no_args_is_help=True
)

Domain = Annotated[
    str | None, typer.Option("--domain", "-d", metavar="NAME", help="Domain (default: $HOLDFAST_DOMAIN)")
]
Json = Annotated[bool, typer.Option("--json", help="JSON instead of text")]
Master = Annotated[str, typer.Option("--master", metavar="URL", help="Of Spark, such as local[4]")]
Read = Annotated[
    list[str] | None,
    typer.Option("--option", "-o", metavar="NAME=VALUE", help="An option of the data source; repeatable"),
]
Picture = Annotated[str | None, typer.Option("--picture", "-p", metavar="FILE", help="Draw it, too (png, svg, pdf)")]


@pipeline_app.command()
def archive(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    path: Annotated[str, typer.Argument(metavar="DIR", help="Where the Parquet files go; made if missing")],
    by: Annotated[
        str, typer.Option("--by", metavar="date,topic|batch", help="What directories there are")
    ] = "date,topic",
    session: Annotated[
        str | None, typer.Option("--session", metavar="N", help="Session ID: stores keep what is not archived yet")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="End when everything that is there is archived")] = False,
    every: Annotated[float, typer.Option("--every", metavar="S", min=0, help="Seconds between micro-batches")] = 10.0,
    checkpoint: Annotated[
        str | None, typer.Option("--checkpoint", metavar="DIR", help="Spark's (default: DIR/_checkpoint)")
    ] = None,
    master: Master = "local[*]",
    options: Read = None,
    json: Json = False,
    domain: Domain = None,
) -> int:
    """Write a topic to Parquet, each message exactly once, also over kills: until a signal, or with --once
    what is there now."""
    from .pipeline import ArchiveArguments, archive_topic

    return archive_topic(
        ArchiveArguments(topic, path, by, session, once, every, checkpoint, master, options or [], json, domain)
    )


@pipeline_app.command()
def audit(
    topics: Annotated[list[str] | None, typer.Argument(metavar="[TOPIC...]", help="Default: all")] = None,
    directories: Annotated[
        list[str] | None,
        typer.Option("--directory", metavar="DIR", help="Of a store, instead of the domain's stores; repeatable"),
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option("--checkpoint", metavar="FILE", help="Go on behind what was in order at the last audit with it"),
    ] = None,
    max_lag: Annotated[
        int, typer.Option("--max-lag", metavar="N", min=0, help="How many numbers a store or a receiver may be behind")
    ] = 0,
    patience: Annotated[
        float, typer.Option("--patience", metavar="S", min=0, help="Seconds that those that live get to catch up")
    ] = 5.0,
    picture: Picture = None,
    master: Annotated[
        str | None,
        typer.Option("--master", metavar="URL", help="Let a Spark read, such as local[4] (default: read here)"),
    ] = None,
    json: Json = False,
    domain: Domain = None,
) -> int:
    """Check that all stores have every message, and the same ones, and that everybody has got them;
    read-only, beside stores that run. Exits with 1 if something is found: gaps, damage, duplicates,
    divergence, stores or receivers that are behind."""
    from .pipeline import AuditArguments, audit_topics

    return audit_topics(
        AuditArguments(topics or [], directories or [], checkpoint, max_lag, patience, picture, master, json, domain)
    )


@pipeline_app.command()
def replay(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Where it is published")],
    archive: Annotated[
        str | None, typer.Option("--archive", metavar="DIR", help="Parquet files that pipeline archive wrote")
    ] = None,
    of: Annotated[
        str | None,
        typer.Option("--of", metavar="TOPIC", help="The topic that was recorded; of the archive, or of the logs"),
    ] = None,
    at: Annotated[
        str | None, typer.Option("--at", metavar="STORE", help="Without --archive: only this store's log")
    ] = None,
    speed: Annotated[
        float,
        typer.Option("--speed", metavar="X", min=0, help="1 = as recorded, 10 = ten times, 0 = as fast as it goes"),
    ] = 1.0,
    checkpoint: Annotated[
        str | None,
        typer.Option("--checkpoint", metavar="FILE", help="Go on there after a kill, without gap or duplicate"),
    ] = None,
    stores: Annotated[
        list[str] | None,
        typer.Option("--store", "-s", metavar="NAME", help="Of the new topic; repeatable (default: all that run)"),
    ] = None,
    read: Annotated[
        list[str] | None,
        typer.Option(
            "--read", metavar="NAME=VALUE", help="Without --archive: an option of a batch read, such as startingOffsets"
        ),
    ] = None,
    options: Annotated[
        list[str] | None,
        typer.Option("--option", "-o", metavar="NAME=VALUE", help="An option of the source; repeatable"),
    ] = None,
    json: Json = False,
    domain: Domain = None,
) -> int:
    """Publish again what was recorded, from an archive or from stores' logs, with the pauses that there
    were."""
    from .pipeline import ReplayArguments, replay_recording

    return replay_recording(
        ReplayArguments(
            topic, archive, of, at, speed, checkpoint, stores or [], read or [], options or [], json, domain
        )
    )


@pipeline_app.command()
def report(
    topic: Annotated[str | None, typer.Argument(metavar="[TOPIC]", help="Of flights, as the demo sends them")] = None,
    archive: Annotated[
        str | None, typer.Option("--archive", metavar="DIR", help="From an archive of it instead")
    ] = None,
    picture: Picture = None,
    master: Master = "local[*]",
    options: Read = None,
    json: Json = False,
    domain: Domain = None,
) -> int:
    """Say how late flights were, by carrier, by origin and by hour."""
    from .pipeline import ReportArguments, report_flights

    return report_flights(ReportArguments(topic, archive, picture, master, options or [], json, domain))
