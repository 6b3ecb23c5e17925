"""The verbs of the command ``holdfast`` and their arguments. What a verb does is in its own module, imported
when it runs."""

from __future__ import annotations

from typing import Annotated

import typer

from .pipeline_app import pipeline_app

__all__ = ["app"]

app = typer.Typer(
    help="Persistent messaging for processes on one host.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
store_app = typer.Typer(help="Run and examine stores.", no_args_is_help=True)
app.add_typer(store_app, name="store")
app.add_typer(pipeline_app, name="pipeline")

Domain = Annotated[
    str | None, typer.Option("--domain", "-d", metavar="NAME", help="Domain (default: $HOLDFAST_DOMAIN)")
]
AllDomains = Annotated[bool, typer.Option("--all-domains", help="Each domain of this user, under a heading")]
Json = Annotated[bool, typer.Option("--json", help="JSON instead of a table")]
Options = Annotated[
    list[str] | None, typer.Option("--option", "-o", metavar="NAME=VALUE", help="An option; repeatable")
]
Session = Annotated[str | None, typer.Option("--session", metavar="N", help="Session ID: go on where it left off")]
SendSession = Annotated[
    str | None,
    typer.Option(
        "--session", metavar="N", help="Session ID to go on as; 0 = none (default: one of this user and the topic)"
    ),
]
Topic = Annotated[str, typer.Argument(metavar="TOPIC")]
Timeout = Annotated[float, typer.Option("--timeout", metavar="S", min=0, help="Seconds to wait for a store to answer")]
SourceId = Annotated[
    int, typer.Option("--source", metavar="REGID", min=1, max=2**32 - 1, help="The source's RegID at this store")
]
Config = Annotated[str | None, typer.Option("--config", metavar="FILE", help="UM's configuration file, flat or XML")]
Application = Annotated[
    str | None, typer.Option("--application", metavar="NAME", help="Which application of an XML file it is")
]


def _version(wanted: bool) -> None:
    if wanted:
        from ..version import __version__

        print(f"holdfast {__version__}")
        raise typer.Exit


@app.callback()
def _holdfast(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Version, and exit")
    ] = False,
) -> None:
    """Persistent messaging for processes on one host."""


@store_app.command("run")
def store_run(
    config: Annotated[
        str | None, typer.Argument(metavar="CONFIG", help="UM's XML file, with any number of stores")
    ] = None,
    name: Annotated[str | None, typer.Option("--name", "-n", metavar="NAME", help="What sources call it")] = None,
    directory: Annotated[
        str | None, typer.Option("--directory", "--dir", metavar="DIR", help="Its own directory; made if missing")
    ] = None,
    kind: Annotated[str, typer.Option("--type", metavar="disk|memory|no-cache", help="Where its logs lie")] = "disk",
    port: Annotated[int | None, typer.Option("--port", metavar="N", help="It also answers to 127.0.0.1:N")] = None,
    domain: Domain = None,
    options: Options = None,
    validate: Annotated[
        bool, typer.Option("--validate", "-v", help="Only say everything that is wrong in CONFIG")
    ] = False,
    dump_schema: Annotated[bool, typer.Option("--dump-schema", help="Print the schema of CONFIG (RELAX NG)")] = False,
    detach: Annotated[bool, typer.Option("--detach", "-f", help="Go on in the background when all is ready")] = False,
    utc: Annotated[bool, typer.Option("--utc", "-u", help="Times in the log are UTC")] = False,
    affinity: Annotated[
        str | None, typer.Option("--affinity", "-a", metavar="CPU[,...]", help="One for the rest, then four per store")
    ] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="With --name: log who comes and goes, too, as a CONFIG does")
    ] = False,
) -> int:
    """Run stores until SIGINT or SIGTERM: they drain, sync and exit with 0. A second one ends at once;
    SIGUSR1 rolls the log."""
    from .store_run import RunArguments, run_store

    return run_store(
        RunArguments(
            config,
            name,
            directory,
            kind,
            port,
            domain,
            options or [],
            validate,
            dump_schema,
            detach,
            utc,
            affinity,
            verbose,
        )
    )


@store_app.command("check")
def store_check(
    directories: Annotated[list[str], typer.Argument(metavar="DIR...", help="Directories of stores, running or not")],
    compare: Annotated[
        bool, typer.Option("--compare", help="Whether all have the same messages; exits with 1 if not")
    ] = False,
    json: Json = False,
) -> int:
    """Verify every message in the logs of stores, read-only and beside stores that run; exits with 5 if
    something is damaged."""
    from .store_check import check_stores, compare_logs

    return compare_logs(directories, json) if compare else check_stores(directories, json)


@store_app.command("repair")
def store_repair(
    directories: Annotated[list[str], typer.Argument(metavar="DIR...", help="Directories of stores that do not run")],
    json: Json = False,
    domain: Domain = None,
) -> int:
    """Copy what is damaged or missing in logs from each other's, or, with one DIR, from the other stores of
    the domain. Stores that run do this by themselves. Exits with 5 if something is damaged in all of them."""
    from .store_repair import repair

    return repair(directories, json, domain)


@store_app.command("dump")
def store_dump(
    directory: Annotated[str, typer.Argument(metavar="DIR", help="Directory of a store, running or not")],
    topic: Annotated[str | None, typer.Option("--topic", metavar="TOPIC", help="Only this one")] = None,
    numbers: Annotated[
        str | None, typer.Option("--numbers", metavar="N|N-M|N-", help="Only messages with these sequence numbers")
    ] = None,
    terse: Annotated[bool, typer.Option("--terse", "-T", help="Sources and receivers without messages")] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object per source and message")] = False,
) -> int:
    """Print what a store keeps: sources, receivers with their acknowledgements, and messages; read-only."""
    from .store_dump import dump

    return dump(directory, topic, numbers, terse, json)


@store_app.command("adopt-empty")
def store_adopt_empty(
    store: Annotated[str, typer.Argument(metavar="NAME|DIR", help="A store that does not run, or its directory")],
    domain: Domain = None,
) -> int:
    """Let a store that has lost its state vote as one that never had a message: what only it had is given up
    for good."""
    from .store_adopt import adopt

    return adopt(store, domain)


@store_app.command("exclude")
def store_exclude(
    store: Annotated[str, typer.Argument(metavar="NAME", help="A store that does not run")],
    timeout: Timeout = 30,
    force: Annotated[bool, typer.Option("--force", help="Also a store that nobody here has ever heard of")] = False,
    domain: Domain = None,
) -> int:
    """Do not wait for a store any more when sources start: what only it has is given up, and when it returns,
    it learns."""
    from .store_exclude import exclude

    return exclude(store, timeout, domain, force=force)


@store_app.command("deregister")
def store_deregister(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="A store that runs")] = None,
    source: Annotated[
        int | None,
        typer.Option("--source", metavar="REGID", min=1, max=2**32 - 1, help="The source's RegID at this store"),
    ] = None,
    receiver: Annotated[
        int | None, typer.Option("--receiver", metavar="REGID", min=1, max=2**32 - 1, help="Only this one")
    ] = None,
    receiver_uuid: Annotated[
        str | None,
        typer.Option(
            "--receiver-uuid", metavar="UUID", help="Of several receivers with that RegID, as stat --json shows"
        ),
    ] = None,
    finished: Annotated[
        bool, typer.Option("--finished", help="At all stores, every source that nobody holds; needs --older-than")
    ] = False,
    older_than: Annotated[
        str | None, typer.Option("--older-than", metavar="AGE", help="Whose last message is: 12h, 7d, 2w")
    ] = None,
    topic: Annotated[str | None, typer.Option("--topic", metavar="TOPIC", help="Of --finished, only this one")] = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Also while a living process holds it, which is told; with --finished, what is owed, too"
        ),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Of --finished, only say what would go")] = False,
    timeout: Timeout = 30,
    domain: Domain = None,
) -> int:
    """Make a store forget a source and all of its messages; with --receiver, one receiver and its
    acknowledgement; with --finished, all stores what is finished, old, and owed to nobody."""
    from .operate import Deregistration, deregister_as_asked

    wanted = Deregistration(name, source, receiver, older_than, topic, finished, force, dry_run, receiver_uuid)
    return deregister_as_asked(wanted, timeout, domain)


@store_app.command("wait")
def store_wait(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A store")],
    state: Annotated[
        str,
        typer.Option("--state", metavar="active|running", help="active: it counts for every source that has a ring"),
    ] = "active",
    timeout: Annotated[float, typer.Option("--timeout", metavar="S", min=0, help="Seconds to wait; 0 = one look")] = 60,
    domain: Domain = None,
) -> int:
    """Return when a store runs and is not behind: between two steps of a rolling restart. Exits with 4 when
    that takes longer, and says what is missing."""
    from .store_wait import wait

    return wait(name, state, timeout, domain)


@store_app.command("mark")
def store_mark(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A store that runs")],
    source: SourceId,
    numbers: Annotated[str, typer.Option("--numbers", metavar="LIST", help="Sequence numbers, such as 2,5,7-9")],
    timeout: Timeout = 30,
    domain: Domain = None,
) -> int:
    """Mark messages undeliverable, for good: this store's log keeps them, and no receiver gets them from it
    any more."""
    from .operate import mark

    return mark(name, source, numbers, timeout, domain)


@app.command()
def send(
    topic: Topic,
    file: Annotated[
        str | None, typer.Option("--file", "-f", metavar="FILE", help="Lines of this file (default: stdin)")
    ] = None,
    rate: Annotated[
        float, typer.Option("--rate", metavar="N", min=0, help="Messages per second; 0 = as fast as it goes")
    ] = 0,
    stores: Annotated[
        list[str] | None,
        typer.Option(
            "--store",
            "-s",
            metavar="NAME",
            help="A store; repeatable (default: those of -o or --config, else all that run)",
        ),
    ] = None,
    session: SendSession = None,
    exclusive: Annotated[
        bool, typer.Option("--exclusive", help="Refuse while another process sends as this one would")
    ] = False,
    timeout: Timeout = 30,
    domain: Domain = None,
    options: Options = None,
    config: Config = None,
    application: Application = None,
) -> int:
    """Send lines as messages, and return when all of them are stable. What one user sends to a topic, also in
    several runs, keeps its order."""
    from .options import Membership
    from .send import send_lines

    member = Membership(domain, session, config, application)
    return send_lines(topic, file, rate, stores or [], timeout, member, options or [], exclusive)


@app.command()
def recv(
    topic: Topic,
    count: Annotated[
        int | None, typer.Option("--count", "-c", metavar="N", min=1, help="Exit after N messages")
    ] = None,
    exit_at_end: Annotated[
        bool, typer.Option("--exit-at-end", "-e", help="Exit when everything that was there was read")
    ] = False,
    ephemeral: Annotated[
        bool, typer.Option("--ephemeral", help="Print what is kept, without registering: nobody needs to run")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object per message")] = False,
    session: Session = None,
    domain: Domain = None,
    options: Options = None,
    config: Config = None,
    application: Application = None,
) -> int:
    """Print messages as lines: with a session ID from the first that it has not acknowledged, else from the
    oldest kept."""
    from .options import Membership
    from .recv import print_kept, receive_lines

    if ephemeral:
        given = {"--session": session, "--option": options, "--config": config, "--application": application}
        if wrong := [name for name, value in given.items() if value]:
            raise typer.BadParameter(f"who does not register has no {wrong[0]}", param_hint="--ephemeral")
        return print_kept(topic, count, json, domain)
    member = Membership(domain, session, config, application)
    return receive_lines(topic, count, exit_at_end, json, member, options or [])


@app.command()
def stat(
    json: Json = False,
    watch: Annotated[
        float | None, typer.Option("--watch", "-w", metavar="S", min=0.1, help="Again every S seconds")
    ] = None,
    domain: Domain = None,
    all_domains: AllDomains = False,
) -> int:
    """Show sources, receivers and stores, and where they stand; it asks nobody, so it works with all of them
    dead."""
    from .stat import show

    return show(json, watch, domain, all_domains)


@app.command()
def events(
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until a signal")] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object per event")] = False,
    interval: Annotated[float, typer.Option("--interval", metavar="S", min=0.05, help="Seconds between looks")] = 0.5,
    domain: Domain = None,
) -> int:
    """Say who is here, and with -f who comes and goes, and how stability and lag move; it asks nobody."""
    from .events import show

    return show(follow, json, interval, domain)


@app.command()
def doctor(json: Json = False, domain: Domain = None, all_domains: AllDomains = False) -> int:
    """Check the machine and the domain: shared memory, limits, file systems, logind, versions, what the dead
    left, what no domain claims. Exits with 1 if something needs attention, and says what to do about it."""
    from .doctor import diagnose

    return diagnose(json, domain, all_domains)


@app.command()
def gc(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed")] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Also undrained rings of the dead, and memory stores that do not run")
    ] = False,
    domain: Domain = None,
    all_domains: AllDomains = False,
    orphans: Annotated[
        bool, typer.Option("--orphans", help="List what is in shared memory of domains whose directory is gone")
    ] = False,
    remove: Annotated[bool, typer.Option("--remove", help="With --orphans: remove it")] = False,
    older_than: Annotated[
        str | None,
        typer.Option(
            "--older-than", metavar="AGE", help="With --orphans: what is that old, of unknown domains too: 7d"
        ),
    ] = None,
) -> int:
    """Remove what dead processes left behind and nobody needs. What lives is never touched."""
    from .gc import Collection, collect

    return collect(Collection(dry_run, everything, domain, all_domains, orphans, remove, older_than))


@app.command()
def demo(
    records: Annotated[
        int | None, typer.Option("--records", metavar="N", min=1000, help="Only the first N flights")
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option("--rate", metavar="N", min=0, help="Flights per second; 0 = unlimited (default: 17 s in all)"),
    ] = None,
    pipeline: Annotated[
        bool, typer.Option("--pipeline/--no-pipeline", help="Archive the flights by Spark, and audit the stores")
    ] = True,
) -> int:
    """Send a year of flights to two receivers, kill receiver, store and source on the way, and prove that
    nothing is lost."""
    from .demo import run_demo

    return run_demo(records, rate, pipeline=pipeline)
