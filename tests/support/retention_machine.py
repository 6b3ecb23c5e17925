"""A source's numbers without a source: retention and notices, and a driver of a few lines that releases what
it may."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.engine.events.source import ConfirmationFlags, MessageStable
from holdfast.engine.rules.notification import NoticeConfig, Notices, Receiver
from holdfast.engine.rules.quorum import Groups, Intragroup
from holdfast.engine.rules.retention import Retention, RetentionConfig

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

SECOND = 1_000_000_000
NAMES = tuple("ABCDE")


def receiver(name: str, registration_id: int = 0, flags: ConfirmationFlags | None = None) -> Receiver:
    return Receiver(name.encode().ljust(16), registration_id, flags or ConfirmationFlags(0))


class Kit:
    """``notices``: fields of NoticeConfig by name; the rest: of RetentionConfig."""

    def __init__(
        self, stores: int = 1, *, start: int = 0, notices: dict[str, Any] | None = None,
        intragroup: Intragroup = "quorum", groups: Groups | None = None, **conditions: Any,
    ) -> None:  # fmt: skip
        config = NoticeConfig(**{"topic": "quotes", **(notices or {})})
        self.notices = Notices(config, NAMES[:stores])
        if groups is None and stores:
            groups = Groups.single(stores, intragroup)
        self.retention = Retention(RetentionConfig(groups, **conditions), self.notices, start)
        self.now_ns = SECOND
        self.next = start

    def send(self, *messages: int, data: Sequence[object] = ()) -> None:
        """Messages of this many fragments each, with this client data."""
        for i, fragments in enumerate(messages):
            self.retention.sent(self.next, self.next + fragments - 1, data[i] if i < len(data) else None)
            self.next += fragments
        self.retention.next = self.next

    def registered(self, active: Iterable[int]) -> None:
        """The source is registered with these; every store has a seat."""
        stores = self.retention.config.groups.stores if self.retention.config.groups else 0
        self.retention.registered(range(stores), set(active))

    def store(self, store: int, ack: int, since: int = 0) -> list[Any]:
        """A store's line says [since, ack); the events of that."""
        self.retention.stored(store, since, ack)
        return self.go()

    def confirm(self, name: str, ack: int, since: int = 0, **fields: Any) -> list[Any]:
        """A receiver's line says [since, ack)."""
        self.retention.confirmed(receiver(name, **fields), since, ack)
        return self.go()

    def go(self) -> list[Any]:
        """What the driver does after every look at the board."""
        below = self.retention.advance(self.now_ns)
        self.retention.outlived(self.now_ns)
        self.retention.release(below)
        return self.told()

    def wait(self, seconds: float) -> list[Any]:
        """Time passes, in steps."""
        for _ in range(10):
            self.now_ns += int(seconds * SECOND / 10)
            self.retention.advance(self.now_ns)
            self.retention.outlived(self.now_ns)
        return self.go()

    def force(self, below: int) -> list[Any]:
        """The retention limit wants these gone."""
        self.retention.release(below, forced=True)
        return self.told()

    def told(self) -> list[Any]:
        """Events since the last time."""
        queued = self.notices.queue[:]
        self.notices.queue.clear()
        return queued

    @property
    def settled_released(self) -> tuple[int, int]:
        """First number in flight, first number retained."""
        return self.retention.settled, self.retention.released


def short(events: list[Any]) -> list[tuple[Any, ...]]:
    """Each event as (kind, first, last, flags, client data), with the store's name if there is one."""
    rows: list[tuple[Any, ...]] = []
    for event in events:
        row: tuple[Any, ...] = (
            type(event).__name__, event.first_sequence_number, event.sequence_number, event.flags, event.client_data,
        )  # fmt: skip
        rows.append((*row, event.store) if getattr(event, "store", None) else row)
    return rows


def stable(events: list[Any]) -> list[tuple[int, Any, str | None]]:
    """The MessageStable among them, as (last number, flags, store)."""
    return [(e.sequence_number, e.flags, e.store) for e in events if isinstance(e, MessageStable)]
