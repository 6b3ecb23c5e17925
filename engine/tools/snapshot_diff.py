"""What has changed in a domain between two snapshots (engine/tools/snapshot.py): who came and went, and how
far each has got.

Values in, values out: nothing is looked at here. What came and went again between two snapshots is not told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .snapshot import ReceiverRow, Snapshot, SourceRow, StoreRow

__all__ = ["Change", "changes"]


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One line of ``holdfast events``. Every line has every field; what an event does not have is empty, 0,
    or -1."""

    time_ns: int
    """CLOCK_REALTIME of the snapshot that showed it."""
    event: str
    """``store``: came or went. ``source``: came, went, or began again. ``copy``: what one store is to a
    source. ``receiver``: came or went. ``stability``: of a source. ``lag``: of a receiver that lives."""
    state: str = ""
    """store: running, stopped, dead, unknown, removed. source: live, closed, dead, stored, unknown, removed.
    copy: active, catching_up, full, down, idle. receiver: live, gone, removed."""
    name: str = ""
    """The store's (store, copy), or the one of the receiver's context."""
    topic: str = ""
    source: str = ""
    """UUID of the source, in hexadecimal."""
    registration_id: int = 0
    """Of the source at that store (copy), or of the receiver."""
    session_id: int = 0
    pid: int = 0
    number: int = -1
    """Highest number that is sent (source), stable (stability, copy) or acknowledged (receiver, lag); -1 for
    none."""
    behind: int = 0
    """Messages published and not yet there."""


def changes(before: Snapshot | None, after: Snapshot, time_ns: int) -> list[Change]:
    """In the order stores, sources, receivers; with ``before`` None, everything there is has come."""
    return [
        *_stores(before.stores if before else [], after.stores, time_ns),
        *_sources(before.sources if before else [], after.sources, time_ns),
        *_receivers(before.receivers if before else [], after.receivers, time_ns),
    ]


def _stores(before: list[StoreRow], after: list[StoreRow], now: int) -> Iterator[Change]:
    old = {row.name: row for row in before}
    for row in after:
        known = old.pop(row.name, None)
        if known is None or (known.state, known.pid) != (row.state, row.pid):
            yield Change(time_ns=now, event="store", state=row.state, name=row.name, pid=row.pid)
    for name in old:
        yield Change(time_ns=now, event="store", state="removed", name=name)


def _sources(before: list[SourceRow], after: list[SourceRow], now: int) -> Iterator[Change]:
    old = {row.uuid: row for row in before}
    for row in after:
        known = old.pop(row.uuid, None)
        if known is None or (known.state, known.pid, known.incarnation) != (row.state, row.pid, row.incarnation):
            yield _source(row, row.state, now)
        yield from _copies(known, row, now)
        if known is not None and (known.stable, known.unstable) != (row.stable, row.unstable):
            yield Change(
                time_ns=now, event="stability", topic=row.topic, source=row.uuid, session_id=row.session_id, pid=row.pid,
                number=row.stable, behind=row.unstable,
            )  # fmt: skip
    for row in old.values():
        yield _source(row, "removed", now)


def _source(row: SourceRow, state: str, now: int) -> Change:
    return Change(
        time_ns=now, event="source", state=state, topic=row.topic, source=row.uuid, session_id=row.session_id, pid=row.pid,
        number=row.next - 1, behind=row.unstable,
    )  # fmt: skip


def _copies(known: SourceRow | None, row: SourceRow, now: int) -> Iterator[Change]:
    was = {at.name: at.state for at in known.stores} if known else {}
    for at in row.stores:
        if was.get(at.name) != at.state:
            yield Change(
                time_ns=now, event="copy", state=at.state, name=at.name, topic=row.topic, source=row.uuid,
                registration_id=at.registration_id, session_id=row.session_id, number=-1 if at.stable is None else at.stable,
                behind=at.lag or 0,
            )  # fmt: skip


def _receivers(before: list[ReceiverRow], after: list[ReceiverRow], now: int) -> Iterator[Change]:
    def key(row: ReceiverRow) -> tuple[str, int, int]:
        return row.source_uuid, row.registration_id, row.session_id

    old = {key(row): row for row in before}
    for row in after:
        known = old.pop(key(row), None)
        if known is None or (known.alive, known.pid) != (row.alive, row.pid):
            yield _receiver(row, "receiver", "live" if row.alive else "gone", now)
        elif row.alive and known.lag != row.lag:
            yield _receiver(row, "lag", "", now)
    for row in old.values():
        yield _receiver(row, "receiver", "removed", now)


def _receiver(row: ReceiverRow, event: str, state: str, now: int) -> Change:
    return Change(
        time_ns=now, event=event, state=state, name=row.name, topic=row.topic, source=row.source_uuid,
        registration_id=row.registration_id, session_id=row.session_id, pid=row.pid, number=row.ack, behind=row.lag,
    )  # fmt: skip
