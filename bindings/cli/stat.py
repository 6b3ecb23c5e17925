"""``holdfast stat``: who is in a domain, and how far each has come. Read from shared memory and files; nobody
is asked."""

from __future__ import annotations

import sys
import time
from collections import Counter
from typing import TYPE_CHECKING

from ..engine.memory.domain import Domain
from ..engine.printable import printable
from ..engine.tools import snapshot
from .all_domains import each_domain, exclude, heading
from .lines import say_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import Console, RenderableType

    from ..engine.control.waits import Wait

__all__ = ["show", "table"]

FINISHED_MAX = 10
"""Sources of a topic that are over, in a table for people."""


def show(json: bool, watch: float | None, name: str | None, all_domains: bool) -> int:
    """One picture, or one every ``watch`` seconds until a signal."""
    if all_domains:
        exclude(name)
        return _show_all(json, watch)
    domain = Domain(name, join=False, make=name is None)
    try:
        if json:
            _show_json(domain, watch)
        else:
            _show_tables(domain, watch)
    finally:
        domain.close()
    return 0


def _show_all(json: bool, watch: float | None) -> int:
    """With JSON: a list of objects, with ``domain`` (its path) and ``stat``, or ``error``."""
    while True:
        seen = list(each_domain(snapshot.take))
        if json:
            told = [
                {"domain": path, "error": why} if picture is None else {"domain": path, "stat": picture}
                for path, picture, why, _ in seen
            ]
            say_json(told, indent=not watch)
        else:
            _show_each(seen)
        sys.stdout.flush()
        if watch is None:
            return max((code for *_, code in seen), default=0)
        time.sleep(watch)


def _show_each(seen: list[tuple[str, snapshot.Snapshot | None, str, int]]) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    for path, picture, why, _ in seen:
        heading(path, why)
        if picture is not None:
            _print(console, picture)


def _pictures(domain: Domain, watch: float | None) -> Iterator[snapshot.Snapshot]:
    while True:
        yield snapshot.take(domain)
        if watch is None:
            return
        time.sleep(watch)


def _show_json(domain: Domain, watch: float | None) -> None:
    for picture in _pictures(domain, watch):
        say_json(picture, indent=not watch)
        sys.stdout.flush()


def _show_tables(domain: Domain, watch: float | None) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    if watch is None or not console.is_terminal:
        for picture in _pictures(domain, watch):
            _print(console, picture)
        return
    from rich.live import Live

    with Live(console=console, auto_refresh=False) as live:
        for picture in _pictures(domain, watch):
            live.update(_group(picture), refresh=True)


def _print(console: Console, picture: snapshot.Snapshot) -> None:
    if not console.is_terminal:
        console.width = 250  # a pipe has no width: cut nothing
    console.print(_group(picture))


def _group(picture: snapshot.Snapshot) -> RenderableType:
    from rich.console import Group

    if not picture.sources and not picture.stores and not picture.waiting:
        return f"domain {picture.domain}: nothing is here"
    shown = [row for row in picture.receivers if row.alive or row.session_id or not row.known]
    gone = len(picture.receivers) - len(shown)
    columns = "topic|state|session|regids|>next|>stable|>unstable|store (behind)|>pid"
    sources, more = _folded(picture.sources)
    more += [
        f"the board of {printable(row.topic)!r} ({row.uuid[:12]}) cannot be read: {printable(row.board_error)}"
        for row in sources
        if row.board_error
    ]
    parts: list[RenderableType] = [
        table("sources", columns, map(_source, sources)),
        *more,
        table("receivers", "topic|state|session|>ack|>lag|>delivered|>redelivered|>lapped|>pid", map(_receiver, shown)),
        table("stores", "name|state|type|>sources|>pid|directory", map(_store, picture.stores)),
    ]
    if picture.waiting:
        parts.insert(-1, table("receivers that wait", "topic|session|>pid|why", map(_waiting, picture.waiting)))
    if gone:
        parts.insert(-1, f"and {gone} receivers that are gone and had no session ID")
    return Group(*parts)


def _folded(rows: Sequence[snapshot.SourceRow]) -> tuple[list[snapshot.SourceRow], list[str]]:
    """The rows that are shown, and a line for those of each topic that are not: of sources that are over and
    whole, FINISHED_MAX are enough."""
    shown, counts = [], Counter[str]()
    for row in rows:
        whole = row.state == "stored" and not row.unstable and not row.board_error
        if whole and all(at.state == "active" for at in row.stores):
            counts[row.topic] += 1
            if counts[row.topic] > FINISHED_MAX:
                continue
        shown.append(row)
    more = {topic: count - FINISHED_MAX for topic, count in counts.items() if count > FINISHED_MAX}
    return shown, [
        f"and {count:,} more of {printable(topic)!r} that are over, and whole: --json has them"
        for topic, count in more.items()
    ]


def _source(row: snapshot.SourceRow) -> Sequence[str]:
    stores = ", ".join(f"{at.name} ({', '.join(_remarks(at))})" for at in row.stores)
    state = f"{row.state}, its board cannot be read" if row.board_error else row.state
    return (
        row.topic, state, _session(row.session_id), ", ".join(f"{k}:{v}" for k, v in row.registration_ids.items()),
        str(row.next), str(row.stable), str(row.unstable), stores, _pid(row.pid, row.alive),
    )  # fmt: skip


def _receiver(row: snapshot.ReceiverRow) -> Sequence[str]:
    state = "live" if row.alive else "gone" if row.known else "gone, no store knows it"
    return (
        row.topic, state, _session(row.session_id), str(row.ack), str(row.lag),
        str(row.delivered), str(row.redelivered), str(row.lapped), _pid(row.pid, row.alive),
    )  # fmt: skip


def _waiting(wait: Wait) -> Sequence[str]:
    return wait.topic, _session(wait.session_id), str(wait.pid), wait.why


def _store(row: snapshot.StoreRow) -> Sequence[str]:
    kept = str(row.sources) if row.sources >= 0 else "?"
    state = f"{row.state}, read-only" if row.read_only else row.state
    if row.near:
        state = f"{state}, close to a limit: {'; '.join(row.near)}"
    return (row.name, state, row.type, kept, _pid(row.pid, row.state == "running"), row.directory)


def _remarks(at: snapshot.StorePosition) -> Iterator[str]:
    """How far it is behind, where that is known, and what is not as usual."""
    if at.lag is not None:
        yield str(at.lag)
    if at.state != "active":
        yield at.state.replace("_", " ")
    if at.proxy:
        yield "proxy"


def _session(number: int) -> str:
    return f"{number:#x}" if number else "-"


def _pid(pid: int, alive: bool) -> str:
    return str(pid) if alive else "-"


def table(title: str, columns: str, rows: Iterator[Sequence[str]]) -> RenderableType:
    """``columns``: headings with bars between; those that begin with ``>`` are aligned to the right."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for column in columns.split("|"):
        table.add_column(column.removeprefix(">"), justify="right" if column.startswith(">") else "left", style=None)
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    return table
