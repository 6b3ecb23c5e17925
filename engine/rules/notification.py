"""What a source says about its numbers: which events, in which units, with which flags. Pure; `retention`
decides when.

The sender records messages that somebody will ask for (`Records`); every method turns numbers into events and
appends them to `queue`. Units follow the notification modes (docs/semantics.md D.3, D.4): 1 and 3 are per
fragment and store (receiver), 2 per message, and without a mode, stability comes in ranges. Numbers that are
no longer recorded are told as one range, without client data.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from operator import attrgetter
from typing import TYPE_CHECKING, Literal, NamedTuple

from ..events.info import ForceReclaimInfo
from ..events.source import (
    ConfirmationFlags,
    DeliveryConfirmation,
    MessageNotStable,
    MessageReclaimed,
    MessageStable,
    NotStableFlags,
    ReclaimedFlags,
    StableFlags,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .intervals import Interval, Spans

__all__ = ["NoticeConfig", "Notices", "Receiver", "Records", "Sent", "taken"]

STABLE = StableFlags.INTRAGROUP_STABLE | StableFlags.INTERGROUP_STABLE | StableFlags.STABLE
DROP_AT = 1024
"""Records that may wait to be forgotten, so that forgetting costs nothing per message."""

Unit = Literal["fragment", "message", "range"]


class Sent(NamedTuple):
    """Messages first..last of `fragments` numbers each, with the same client data."""

    first: int
    last: int
    fragments: int
    client_data: object

    def ends(self, number: int) -> bool:
        """Tell whether `number` is the last fragment of its message."""
        return (number - self.first + 1) % self.fragments == 0


class Told(NamedTuple):
    """What one event is about: numbers first..last, whether `last` ends a message, and the message's client
    data."""

    first: int
    last: int
    ends: bool
    client_data: object


class Records:
    """Messages in the order of their numbers. The sender appends; everything else is done by one thread at a
    time."""

    def __init__(self) -> None:
        self._sent: list[Sent] = []

    def __len__(self) -> int:
        return len(self._sent)

    def append(self, record: Sent) -> None:
        """The newest."""
        self._sent.append(record)

    def drop(self, below: int) -> None:
        """Forget what lies wholly below, if it is enough to be worth it."""
        sent = self._sent
        if len(sent) > DROP_AT and sent[min(DROP_AT, len(sent) // 2)].last < below:
            del sent[: bisect_left(sent, below, key=attrgetter("last"))]

    def told(self, low: int, high: int, unit: Unit) -> Iterator[Told]:
        """Yield [low, high) in this unit, in order. A message counts where its last number lies."""
        if unit == "range":
            if low < high:
                newest = self._find(high - 1)
                ends = newest is not None and newest.ends(high - 1)
                yield Told(low, high - 1, ends, newest.client_data if newest is not None and ends else None)
            return
        for first, last, record in self._pieces(low, high):
            if record is None:
                yield Told(first, last, True, None)
            elif unit == "fragment":
                for number in range(first, last + 1):
                    yield Told(number, number, record.ends(number), record.client_data)
            else:
                size = record.fragments
                end = record.first + (first - record.first) // size * size + size - 1
                for number in range(end, last + 1, size):
                    yield Told(number - size + 1, number, True, record.client_data)

    def _find(self, number: int) -> Sent | None:
        i = bisect_right(self._sent, number, key=attrgetter("first")) - 1
        return self._sent[i] if i >= 0 and self._sent[i].last >= number else None

    def _pieces(self, low: int, high: int) -> Iterator[tuple[int, int, Sent | None]]:
        """Yield (first, last, record) that together are [low, high)."""
        i = bisect_left(self._sent, low, key=attrgetter("last"))
        while low < high:
            record = self._sent[i] if i < len(self._sent) else None
            if record is None or record.first > low:
                end = high if record is None else min(high, record.first)
                yield low, end - 1, None
            else:
                end = min(high, record.last + 1)
                yield low, end - 1, record
                i += 1
            low = end


class Receiver(NamedTuple):
    """Who confirms: the identity of a line, and what its confirmations say of it."""

    uuid: bytes
    registration_id: int
    flags: ConfirmationFlags


class NoticeConfig(NamedTuple):
    """Options of a source that decide which events it has; `topic` and `force` are for
    ume_force_reclaim_function.

    events: somebody listens. stability: ume_message_stability_notification, None where it was not given.
    confirmation: ume_confirmed_delivery_notification. extended: use_extended_reclaim_notifications.
    """

    events: bool = True
    stability: int | None = None
    confirmation: int = 0
    extended: bool = True
    force: bool = False
    topic: str = ""


class Notices:
    """The events of one source object, in `queue`."""

    def __init__(self, config: NoticeConfig, stores: tuple[str, ...] = ()) -> None:
        self.records = Records()
        self.queue: list[object] = []
        self._config = config
        self._names = stores
        self._mode = config.stability if config.events else 0
        self._confirmation = config.confirmation if config.events else 0

    @property
    def records_all(self) -> bool:
        """True: every message has to be recorded. False: only those with client data."""
        return self._mode in (1, 2, 3) or self._confirmation > 0

    @property
    def records_any(self) -> bool:
        """Somebody will ask for client data."""
        return self._config.events or self._config.force

    @property
    def per_store(self) -> bool:
        """There is an event for each store's acknowledgement."""
        return self._mode in (1, 3)

    @property
    def confirms(self) -> bool:
        """There are events for confirmations."""
        return self._confirmation > 0

    def stored(self, store: int, fresh: Iterable[Interval], in_group: Spans, stable: Spans, news: Spans) -> None:
        """Modes 1 and 3: a store has `fresh`. Numbers in `in_group` are stable in its group, those in
        `stable` as configured, over all groups; no event has said that of those in `news`."""
        name = self._names[store]
        for low, high in fresh:
            for told in self.records.told(low, high, "fragment"):
                flags = StableFlags.STORE | self._stable_flags(told, told.last in stable, told.last in news)
                if told.last not in in_group:
                    flags &= ~StableFlags.INTRAGROUP_STABLE
                elif told.last not in stable:
                    flags |= StableFlags.INTRAGROUP_STABLE
                self.queue.append(MessageStable(flags, told.last, told.first, told.client_data, store, name))

    def stable(self, low: int, high: int) -> None:
        """[low, high) became stable, and no event has said so: a range, each message, or each fragment."""
        if self._mode == 0:
            return
        unit: Unit = "fragment" if self.per_store else "message" if self._mode == 2 else "range"
        for told in self.records.told(low, high, unit):
            flags = self._stable_flags(told, True, True)
            self.queue.append(MessageStable(flags, told.last, told.first, told.client_data))

    def marked(self, number: int, *, stable: bool) -> None:
        """The program called it stable. In modes 1 and 3, the event says, too, if it became stable by
        that."""
        if self._mode == 0:
            return
        for told in self.records.told(number, number + 1, "fragment"):
            flags = self._stable_flags(told, stable, True) if self.per_store else StableFlags(0)
            self.queue.append(MessageStable(flags | StableFlags.USER, number, number, told.client_data))

    def not_stable(self, flags: NotStableFlags, intervals: Iterable[Interval], store: int = -1) -> None:
        """These numbers must be taken for not stable: a store lost them, or their lifetime is over."""
        if self._mode == 0:
            return
        unit: Unit = "fragment" if self.per_store else "message" if self._mode == 2 else "range"
        name = self._names[store] if store >= 0 else None
        for low, high in intervals:
            for told in self.records.told(low, high, unit):
                self.queue.append(MessageNotStable(flags, told.last, told.first, told.client_data, store, name))

    def confirmed(self, receiver: Receiver, fresh: Iterable[Interval], unique: list[Interval]) -> None:
        """A receiver has consumed `fresh`; of `unique`, as many have as are required."""
        if not self._confirmation:
            return
        unit: Unit = "message" if self._confirmation == 2 else "fragment"
        for low, high in fresh:
            for told in self.records.told(low, high, unit):
                flags = receiver.flags
                if any(begin <= told.first and told.last < end for begin, end in unique):
                    flags |= ConfirmationFlags.UNIQUEACKS
                if self._confirmation == 3 and told.ends:
                    flags |= ConfirmationFlags.WHOLE_MESSAGE_CONFIRMED
                event = DeliveryConfirmation(flags, told.last, told.first, receiver.registration_id, told.client_data)
                self.queue.append(event)

    def reclaimed(self, low: int, high: int, *, forced: bool) -> None:
        """[low, high) is retained no longer: per fragment in modes 1 and 3, else as one range."""
        if self._config.force and forced:
            for told in self.records.told(low, high, "fragment"):
                for number in range(told.first, told.last + 1):
                    self.queue.append(ForceReclaimInfo(self._config.topic, number, told.client_data))
        if not self._config.events:
            return
        flags = None
        if self._config.extended:
            flags = ReclaimedFlags.FORCED if forced else ReclaimedFlags(0)
        for told in self.records.told(low, high, "fragment" if self.per_store else "range"):
            self.queue.append(MessageReclaimed(flags, told.last, told.first, told.client_data))

    def _stable_flags(self, told: Told, stable: bool, news: bool) -> StableFlags:
        """What is true of it now, and, when that is new, whether it completes its message."""
        if not stable:
            return StableFlags(0)
        whole = self._mode == 3 and told.ends and news
        return STABLE | StableFlags.WHOLE_MESSAGE_STABLE if whole else STABLE


def taken(queue: list[object]) -> list[object]:
    """What is queued; others may append meanwhile."""
    found = queue[:]
    del queue[: len(found)]
    return found
