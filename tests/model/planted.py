"""Bugs that the model test must catch, one for each promise. Planted by replacing a function, for the time of
a ``with``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from unittest import mock

from holdfast.engine.native import kernels
from holdfast.engine.rules import intervals, notification, start_and_gap
from holdfast.engine.store.registry import Registry

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Callable, Iterator


def ack_beyond_a_gap() -> contextlib.AbstractContextManager[Any]:
    """The prefix goes on over a message that is not consumed, if the one behind it is."""

    def prefix(records: Any, head: int, tail: int) -> tuple[int, int]:
        last, end = 0, head
        for slot in range(head, tail):
            record = records[slot & (len(records) - 1)]
            if record["tag"] == 2 * slot + 1:
                last, end = int(record["last"]), slot + 1
        return end, last

    return mock.patch.object(kernels, "contiguous_prefix", prefix)


def release_before_confirmation() -> contextlib.AbstractContextManager[Any]:
    """One confirmation too few will do."""
    real = intervals.first_missing

    def fewer(floor: int, needed: int, members: Any) -> int:
        return real(floor, max(1, needed - 1), members) if needed > 1 else 2**40

    return mock.patch("holdfast.engine.rules.retention.first_missing", fewer)


def recovery_starts_one_late() -> contextlib.AbstractContextManager[Any]:
    """Off by one at the seam: behind the first message that was not acknowledged."""
    real = start_and_gap.start_number

    def late(low: int, high: int, maximum: int, chosen: int) -> start_and_gap.Start:
        start = real(low, high, maximum, chosen)
        return start_and_gap.Start(min(start.sequence_number + 1, high + 1), start.limited, start.clamped)

    return mock.patch.object(start_and_gap, "start_number", late)


def client_data_lost_on_fragment_two() -> contextlib.AbstractContextManager[Any]:
    """Only the first fragment's events bring it back."""
    real = notification.Records.told

    def told(self: notification.Records, low: int, high: int, unit: notification.Unit) -> Iterator[notification.Told]:
        for each in real(self, low, high, unit):
            record = self._find(each.last)
            second = unit == "fragment" and record is not None and (each.last - record.first) % record.fragments
            yield each._replace(client_data=None) if second else each

    return mock.patch.object(notification.Records, "told", told)


def reg_id_handed_to_two() -> contextlib.AbstractContextManager[Any]:
    """The store gives a number out and does not move on."""

    def same(self: Registry) -> int:
        return self.state.next_registration_id

    return mock.patch.object(Registry, "_next", same)


PLANTED: dict[str, Callable[[], contextlib.AbstractContextManager[Any]]] = {
    "ack_beyond_a_gap": ack_beyond_a_gap,
    "release_before_confirmation": release_before_confirmation,
    "recovery_starts_one_late": recovery_starts_one_late,
    "client_data_lost_on_fragment_two": client_data_lost_on_fragment_two,
    "reg_id_handed_to_two": reg_id_handed_to_two,
}


def plant(bug: str) -> contextlib.AbstractContextManager[Any]:
    """The bug is there inside the ``with``."""
    return PLANTED[bug]()
