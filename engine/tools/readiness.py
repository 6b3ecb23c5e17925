"""What keeps a store from having a say for every source that has a ring: what `holdfast store wait` waits
for.

Values in, values out: nothing is looked at here (engine/tools/snapshot.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Collection

    from .snapshot import Snapshot, SourceRow, StorePosition

__all__ = ["WANTED", "Wanted", "missing"]

Wanted = Literal["active", "running"]
WANTED: tuple[Wanted, ...] = ("active", "running")


def missing(seen: Snapshot, store: str, names: Collection[str], wanted: Wanted) -> list[str]:
    """What is still to come, a line each; none: the store is there. ``names``: what sources call it.

    A spare store is none that is missing: others have the seats. Of a source that has ended, a store lacks
    what is in the ring only while it says so itself.
    """
    row = next((row for row in seen.stores if row.name == store), None)
    if row is None or row.state != "running":
        return [f"the store is {row.state if row is not None else 'unknown'}"]
    if wanted == "running":
        return []
    found = [(source, at) for source in seen.sources for at in source.stores if at.name in names]
    return [_lacks(source, at) for source, at in found if not _is_there(source, at)]


def _is_there(source: SourceRow, at: StorePosition) -> bool:
    if source.state == "stored" or at.spare:
        return True
    if source.state in {"closed", "dead"}:
        return at.state not in {"catching_up", "full"}
    return at.state == "active"


def _lacks(source: SourceRow, at: StorePosition) -> str:
    session = f" (session ID {source.session_id:#x})" if source.session_id else ""
    behind = "" if at.lag is None else f", {at.lag} messages behind"
    state = at.state.replace("_", " ")
    return f"it is {state} for source RegID {at.registration_id}{session} on topic {source.topic!r}{behind}"
