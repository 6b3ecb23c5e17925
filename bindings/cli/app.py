"""The verbs of the command ``holdfast`` and their arguments. What a verb does is in its own module, imported when it runs."""

from __future__ import annotations

from typing import Annotated

import typer

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

Domain = Annotated[
    str | None, typer.Option("--domain", "-d", metavar="NAME", help="Domain (default: $HOLDFAST_DOMAIN)")
]
Json = Annotated[bool, typer.Option("--json", help="JSON instead of a table")]
Options = Annotated[
    list[str] | None, typer.Option("--option", "-o", metavar="NAME=VALUE", help="An option; repeatable")
]
Session = Annotated[str | None, typer.Option("--session", metavar="N", help="Session ID: go on where it left off")]
Topic = Annotated[str, typer.Argument(metavar="TOPIC")]
Config = Annotated[str | None, typer.Option("--config", metavar="FILE", help="UM's configuration file, flat or XML")]
Application = Annotated[
    str | None, typer.Option("--application", metavar="NAME", help="Which application of an XML file it is")
]


def _version(wanted: bool) -> None:
    if wanted:
        from .. import __version__

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
    name: Annotated[str, typer.Option("--name", "-n", metavar="NAME", help="What sources call it")],
    directory: Annotated[str, typer.Option("--dir", metavar="DIR", help="Its own directory; made if missing")],
    kind: Annotated[str, typer.Option("--type", metavar="disk|memory", help="Where its logs lie")] = "disk",
    domain: Domain = None,
    options: Options = None,
) -> int:
    """Run a store until SIGINT or SIGTERM; it then drains, syncs and exits with 0. A second signal ends it at once."""
    from .store import run_store

    return run_store(name, directory, kind, domain, options or [])


@store_app.command("check")
def store_check(
    directories: Annotated[list[str], typer.Argument(metavar="DIR...", help="Directories of stores")],
    json: Json = False,
) -> int:
    """Verify every message in the logs of stores, read-only, also beside a running store. Exits with 5 on damage."""
    from .store import check_stores

    return check_stores(directories, json)


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
    session: Session = None,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="S", min=0, help="Seconds to wait for a store to answer")
    ] = 30,
    domain: Domain = None,
    options: Options = None,
    config: Config = None,
    application: Application = None,
) -> int:
    """Send lines as messages, and return when all of them are stable."""
    from .options import Membership
    from .send import send_lines

    member = Membership(domain, session, config, application)
    return send_lines(topic, file, rate, stores or [], timeout, member, options or [])


@app.command()
def recv(
    topic: Topic,
    count: Annotated[
        int | None, typer.Option("--count", "-c", metavar="N", min=1, help="Exit after N messages")
    ] = None,
    exit_at_end: Annotated[
        bool, typer.Option("--exit-at-end", "-e", help="Exit when everything there is was read")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object per message")] = False,
    session: Session = None,
    domain: Domain = None,
    options: Options = None,
    config: Config = None,
    application: Application = None,
) -> int:
    """Print messages as lines: with a session ID from the first that it has not acknowledged, else from the oldest kept."""
    from .options import Membership
    from .recv import receive_lines

    member = Membership(domain, session, config, application)
    return receive_lines(topic, count, exit_at_end, json, member, options or [])


@app.command()
def stat(
    json: Json = False,
    watch: Annotated[
        float | None, typer.Option("--watch", "-w", metavar="S", min=0.1, help="Again every S seconds")
    ] = None,
    domain: Domain = None,
) -> int:
    """Show sources, receivers and stores, and where they stand; it asks nobody, so it works with all of them dead."""
    from .stat import show

    return show(json, watch, domain)


@app.command()
def gc(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed")] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Also undrained streams of the dead, and memory stores that do not run")
    ] = False,
    domain: Domain = None,
) -> int:
    """Remove what dead processes left behind and nobody needs. What lives is never touched."""
    from .gc import collect

    return collect(dry_run, everything, domain)


@app.command()
def demo(
    records: Annotated[
        int | None, typer.Option("--records", metavar="N", min=1000, help="Only the first N flights")
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option("--rate", metavar="N", min=0, help="Flights per second; 0 = unlimited (default: 17 s in all)"),
    ] = None,
) -> int:
    """Send a year of flights to two receivers, kill receiver, store and source on the way, and prove that nothing is lost."""
    from .demo import run_demo

    return run_demo(records, rate)
