"""What happens at the flight size: docs/semantics.md D.6, the parts that need no ring
(process/source/test_semantics.py: the rest)."""

from __future__ import annotations

import random

import pytest

from holdfast.engine.rules.flight import Flight, InFlight, Limits, Refused

LIMITS = Limits(3, 100, 1000)


def over(flight: Flight, messages: int, size: int = 0, fragments: int = 1) -> bool:
    return flight.cross(InFlight(messages, size), fragments, size)


def test_block_the_limits_stand_and_nothing_is_told() -> None:
    flight = Flight(LIMITS)
    assert flight.limits == LIMITS
    assert not over(flight, 3)
    assert not flight.under(InFlight(0, 0))
    assert flight.limits == LIMITS
    assert not flight.waits


def test_notify_over_lifts_the_limits_and_under_restores_them() -> None:
    flight = Flight(LIMITS, notify=True)
    assert over(flight, 3)
    assert flight.limits == Limits(0, 0, 1000), "the retention limit stays"
    assert not over(flight, 4), "once"
    assert not flight.under(InFlight(0, 0)), "never before OVER was delivered"
    flight.told_over()
    assert not flight.under(InFlight(3, 0)), "at the limit is not below it"
    assert flight.under(InFlight(2, 99))
    assert not flight.under(InFlight(2, 99))
    assert flight.limits == Limits(0, 0, 1000)
    assert not over(flight, 3), "never before UNDER was delivered"
    flight.told_under()
    assert flight.limits == LIMITS
    assert over(flight, 3)


def test_both_limits_exceeded_if_either_is() -> None:
    assert over(Flight(LIMITS, notify=True), 0, 60)  # 60 in flight and 60 more
    assert over(Flight(LIMITS, notify=True), 1, 0, fragments=3)
    assert not over(Flight(LIMITS, notify=True), 2, 50)
    flight = Flight(LIMITS, notify=True)
    assert over(flight, 3)
    flight.told_over()
    assert not flight.under(InFlight(0, 100))


@pytest.mark.parametrize("limits", [Limits(0, 0, 0), Limits(0, 0, 1000)])
def test_no_limit_is_never_met(limits: Limits) -> None:
    assert not over(Flight(limits, notify=True), 10**6, 10**12)


def test_over_and_under_alternate_whatever_happens() -> None:
    rand = random.Random(5)
    flight, told = Flight(LIMITS, notify=True), [""]
    owed = ""
    for _ in range(20_000):
        now = InFlight(rand.randrange(6), rand.randrange(160))
        if not owed and flight.cross(now, rand.randrange(1, 3), rand.randrange(50)):
            owed = "over"
        elif not owed and flight.under(now):
            owed = "under"
        elif owed and rand.random() < 0.5:
            assert owed != told[-1]
            told.append(owed)
            flight.told_over() if owed == "over" else flight.told_under()
            owed = ""
    assert len(told) > 100


def test_a_wakeup_comes_once_when_what_was_refused_would_go_in() -> None:
    flight = Flight(LIMITS)
    assert not flight.wakeup(InFlight(0, 0), 0, 0)
    flight.refuse(Refused(2, 50, 100, 0))
    assert flight.waits
    assert not flight.wakeup(InFlight(2, 0), 0, 0), "two more do not fit"
    assert not flight.wakeup(InFlight(1, 60), 0, 0), "nor this many bytes"
    assert not flight.wakeup(InFlight(1, 50), 950, 0), "nor this many retained"
    assert flight.wakeup(InFlight(1, 50), 900, 0)
    assert not flight.wakeup(InFlight(0, 0), 0, 0), "once"
    assert not flight.waits


def test_a_message_larger_than_the_flight_size_wakes_when_nothing_is_in_flight() -> None:
    flight = Flight(LIMITS)
    flight.refuse(Refused(7, 50, 500, 0))
    assert not flight.wakeup(InFlight(1, 0), 0, 0)
    assert flight.wakeup(InFlight(0, 0), 0, 0)


def test_a_send_that_met_a_pin_is_woken_when_the_pin_is_passed() -> None:
    flight = Flight(LIMITS)
    flight.refuse(Refused(1, 1, 64, ring_ns=1000))
    assert not flight.wakeup(InFlight(0, 0), 0, 999)
    assert flight.wakeup(InFlight(0, 0), 0, 1000)
