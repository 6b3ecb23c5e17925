"""What a source may forget, and what it says about it: pure policy over numbers.

A number moves from sent to stable to released. The driver tells what was sent (`sent`), what the stores have
(`advance`) and what it released in the ring (`released`); it gets the events to deliver, and takes from
`release_below` and `limits` what to tell the C core. Numbers are 64-bit, one per fragment; `stable` and `..._below`
are exclusive.

`sent` runs on the sending thread, the rest on the context's thread. Between them are only deques (appended at one end,
taken from the other) and `next`, which is moved last: events never run ahead of what the sender has recorded, because
a store may acknowledge a message before the send call has returned.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from .events.source import MessageReclaimed, MessageStable, ReclaimedFlags, StableFlags

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_STABLE = StableFlags.INTRAGROUP_STABLE | StableFlags.INTERGROUP_STABLE | StableFlags.STABLE
_Unit = Literal["fragment", "message", "range"]


@dataclass(frozen=True, slots=True)
class RetentionConfig:
    """Limits of one source; 0 = no limit. Messages are counted in fragments.

    stability_notification: ume_message_stability_notification, None where it was not given. events: somebody listens.
    """

    flight_messages: int
    flight_bytes: int
    retained_bytes: int
    stability_notification: int | None = None
    events: bool = True


class Limits(NamedTuple):
    """Arguments of hf_source_limits, in its order."""

    flight_messages: int
    flight_bytes: int
    retained_bytes: int


class StoreAck(NamedTuple):
    """What one store has: the numbers in [since, number)."""

    store_index: int
    store: str
    number: int
    since: int = 0


class _Sent(NamedTuple):
    """Messages first..last of `fragments` numbers each, with the same client data."""

    first: int
    last: int
    fragments: int
    client_data: object


class Retention:
    """The numbers of one source object."""

    def __init__(self, config: RetentionConfig, start: int) -> None:
        """Begin with nothing in flight; `start` is the number of the first message."""
        self._config = config
        self._mode = config.stability_notification if config.events else 0
        # Records are kept apart for the two kinds of events, because release may lag behind stability.
        self._to_stable: deque[_Sent] = deque()
        self._to_reclaim: deque[_Sent] = deque()
        self._acked: dict[int, int] = {}
        self._told = start
        self._told_released = start
        self.next = start
        self.stable = start

    @property
    def records_all(self) -> bool:
        """True: call `sent` for every send. False: only with client data; for others assigning `next` will do."""
        return self._config.events and self._config.stability_notification in (1, 2, 3)

    @property
    def pending(self) -> bool:
        """True: numbers are stable that no event told of yet; call `advance` again even if no store has moved."""
        return self._told < self.stable

    @property
    def release_below(self) -> int:
        """Every number below is to be released: in this policy, what is stable."""
        return self.stable

    def limits(self) -> Limits:
        """Return what hf_source_limits takes."""
        return Limits(self._config.flight_messages, self._config.flight_bytes, self._config.retained_bytes)

    def sent(self, first: int, last: int, client_data: object = None, fragments: int = 0) -> None:
        """Record numbers first..last: one message, or several of `fragments` numbers each (a batch)."""
        if self._config.events:
            record = _Sent(first, last, fragments or last - first + 1, client_data)
            if self._mode != 0:
                self._to_stable.append(record)
            self._to_reclaim.append(record)
        self.next = last + 1

    def advance(self, stable: int, acks: Sequence[StoreAck] = ()) -> list[MessageStable]:
        """Take in the group's stable number (never backwards) and, for modes 1 and 3, what each store has."""
        self.stable = max(self.stable, stable)
        high = min(self.stable, self.next)
        if self._mode == 0:
            self._told = max(self._told, high)
            return []
        if self._mode in (1, 3):
            return self._advance_fragments(high, acks)
        unit: _Unit = "message" if self._mode == 2 else "range"
        low, self._told = self._told, max(self._told, high)
        taken = _take(self._to_stable, low, high, unit)
        return [MessageStable(_STABLE, last, first, data) for first, last, data in taken]

    def released(self, below: int, *, forced: bool = False) -> list[MessageReclaimed]:
        """Say that the ring released every number below: per fragment in modes 1 and 3, else as one range."""
        high = min(below, self.next)
        low, self._told_released = self._told_released, max(self._told_released, high)
        if not self._config.events:
            return []
        unit: _Unit = "fragment" if self._mode in (1, 3) else "range"
        flags = ReclaimedFlags.FORCED if forced else ReclaimedFlags(0)
        taken = _take(self._to_reclaim, low, high, unit)
        return [MessageReclaimed(flags, last, first, data) for first, last, data in taken]

    def _advance_fragments(self, high: int, acks: Sequence[StoreAck]) -> list[MessageStable]:
        """Modes 1 and 3: an event per fragment and store, in order of numbers; the one that made it stable says so."""
        sent = self.next
        fresh = [(ack, max(ack.since, self._acked.get(ack.store_index, 0)), min(ack.number, sent)) for ack in acks]
        told, self._told = self._told, max(self._told, high)
        top = max([high, *(to for _, _, to in fresh)])
        events: list[MessageStable] = []
        for number, record in _walk(self._to_stable, told, top):
            data = record.client_data
            stores = [ack for ack, since, to in fresh if since <= number < to]
            flags = _STABLE if number < high else StableFlags(0)
            if self._mode == 3 and number < high and _ends(record, number):
                flags |= StableFlags.WHOLE_MESSAGE_STABLE
            also = StableFlags.STORE
            events += [MessageStable(also, number, number, data, ack.store_index, ack.store) for ack in stores[:-1]]
            if stores:
                ack = stores[-1]
                events.append(
                    MessageStable(flags | StableFlags.STORE, number, number, data, ack.store_index, ack.store)
                )
            elif number < high:
                events.append(MessageStable(flags, number, number, data))
        for ack, since, to in fresh:
            self._acked[ack.store_index] = max(since, to)
        _drop(self._to_stable, high)
        return events


def _walk(records: deque[_Sent], low: int, high: int) -> Iterator[tuple[int, _Sent]]:
    """Yield (number, its record) for the recorded numbers in [low, high). The sender may append meanwhile."""
    i = 0
    while i < len(records) and records[i].first < high:
        record = records[i]
        for number in range(max(low, record.first), min(high, record.last + 1)):
            yield number, record
        i += 1


def _ends(record: _Sent, number: int) -> bool:
    """Tell whether `number` is the last fragment of its message."""
    return (number - record.first + 1) % record.fragments == 0


def _drop(records: deque[_Sent], below: int) -> None:
    """Forget the records that lie wholly below."""
    while records and records[0].last < below:
        records.popleft()


def _take(records: deque[_Sent], low: int, high: int, unit: _Unit) -> Iterator[tuple[int, int, object]]:
    """Yield (first, last, client data) for [low, high) in the unit asked for, then forget what is behind."""
    if low >= high:
        return
    if unit == "range":
        _drop(records, high - 1)
        ends = bool(records) and records[0].first < high and _ends(records[0], high - 1)
        yield low, high - 1, records[0].client_data if ends else None
    else:
        for number, record in _walk(records, low, high):
            if unit == "fragment":
                yield number, number, record.client_data
            elif _ends(record, number):
                yield number - record.fragments + 1, number, record.client_data
    _drop(records, high)
