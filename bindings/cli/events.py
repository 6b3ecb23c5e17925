"""``holdfast events``: who comes and goes in a domain, and how far each has got. Read from outside; nobody is
asked."""

from __future__ import annotations

import sys
import time
from datetime import datetime
from typing import TYPE_CHECKING

from ..engine.memory.domain import Domain
from ..engine.printable import json_text, printable
from ..engine.tools import snapshot
from ..engine.tools.snapshot_diff import Change, changes

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["show"]


def show(follow: bool, json: bool, interval: float, name: str | None) -> int:
    """What is there, as what has come; with ``follow`` then every change, one look in ``interval``
    seconds."""
    tell = _tell_json if json else _tell
    domain = Domain(name, join=False, make=name is None)
    before: snapshot.Snapshot | None = None
    try:
        while True:
            after = snapshot.take(domain)
            _tell_all(changes(before, after, time.time_ns()), tell)
            before = after
            if not follow:
                return 0
            time.sleep(interval)
    finally:
        domain.close()


def _tell_all(found: list[Change], tell: Callable[[Change], str]) -> None:
    if found:
        sys.stdout.write("".join(tell(change) + "\n" for change in found))
        sys.stdout.flush()


def _tell_json(change: Change) -> str:
    import msgspec

    return json_text(msgspec.json.encode(change))


def _tell(change: Change) -> str:
    when = datetime.fromtimestamp(change.time_ns / 1e9).astimezone().strftime("%H:%M:%S.%f")[:-3]
    session = f" session {change.session_id:#x}" if change.session_id else ""
    pid = f" (pid {change.pid})" if change.pid else ""
    at = f"{change.number}" if change.number >= 0 else "none"
    match change.event:
        case "store":
            said = f"store {change.name} {change.state}{pid}"
        case "source":
            said = f"source {change.topic!r}{session} {change.state}{pid}, sent {at}, {change.behind} unstable"
        case "copy":
            where = f"store {change.name} {change.state.replace('_', ' ')} for source {change.topic!r}{session}"
            said = f"{where}, holds {at}, {change.behind} behind"
        case "stability":
            said = f"source {change.topic!r}{session} stable {at}, {change.behind} unstable"
        case _:
            who = f"receiver {change.registration_id} of {change.topic!r}{session}"
            said = f"{who} {change.state}{pid}," if change.event == "receiver" else who
            said = f"{said} acknowledged {at}, {change.behind} behind"
    return printable(f"{when} {said}")
