"""A receiver that cannot register says so, with what each store says, at once and again and again; the clock
is the test's."""

from __future__ import annotations

import pytest
from support.registering import INTERVAL, grant, receiver

from holdfast.engine.control.refusals import refusal_error
from holdfast.engine.rules.receiver_registration import PATIENCE_NS, REGISTERED, TOLD_AGAIN, ReceiverRegistration
from holdfast.engine.rules.registration import Complete, Refusal, Waits

UNKNOWN = Refusal("unknown_source", "the source has not registered with this store yet")
AGAIN = TOLD_AGAIN * INTERVAL


def told(machine: ReceiverRegistration, now_ns: int) -> list[dict[int, str]]:
    return [dict(action.said) for action in machine.tick(now_ns) if isinstance(action, Waits)]


def test_stores_that_do_not_know_the_source_are_told_of_as_soon_as_all_have_answered() -> None:
    machine = receiver(3)
    for store in range(3):
        machine.connected(store, 0)
    machine.refused(0, UNKNOWN)
    machine.refused(1, UNKNOWN)
    assert told(machine, 1) == [], "one has not answered yet"
    machine.refused(2, UNKNOWN)
    assert told(machine, 2) == [dict.fromkeys(range(3), UNKNOWN.text)]
    assert machine.waiting


def test_it_is_told_once_also_when_the_clock_begins() -> None:
    machine = receiver()
    machine.connected(0, 0)
    machine.refused(0, UNKNOWN)
    assert told(machine, 0) == [{0: UNKNOWN.text}]
    assert machine.waiting
    assert told(machine, 1) == []


def test_it_is_told_again_every_ten_intervals_as_long_as_it_lasts() -> None:
    machine = receiver()
    machine.connected(0, 0)
    machine.refused(0, UNKNOWN)
    assert told(machine, 1) == [{0: UNKNOWN.text}]
    assert told(machine, AGAIN) == []
    machine.refused(0, UNKNOWN)
    assert told(machine, AGAIN + 1) == [{0: UNKNOWN.text}]
    assert told(machine, 2 * AGAIN) == []
    machine.refused(0, UNKNOWN)
    assert told(machine, 2 * AGAIN + 1) == [{0: UNKNOWN.text}]
    machine.granted(0, grant(0), 2 * AGAIN + 2)
    assert told(machine, 4 * AGAIN) == []
    assert not machine.waiting


def test_a_quorum_that_is_waited_for_is_told_of_with_what_each_store_says() -> None:
    machine = receiver(3)
    machine.connected(0, 0)
    machine.connected(1, 0)
    machine.granted(0, grant(0), 1)
    assert told(machine, 2) == [], "who starts looks for the others first"
    (said,) = told(machine, 2 + PATIENCE_NS)
    assert said == {0: REGISTERED, 1: "has not answered", 2: "cannot be reached"}


def test_nothing_is_told_of_a_quorum_that_is_there() -> None:
    machine = receiver(3)
    for store in (0, 1):
        machine.connected(store, 0)
        machine.granted(store, grant(0), 1)
    assert told(machine, PATIENCE_NS) == []
    assert any(isinstance(action, Complete) for action in machine.tick(INTERVAL))
    assert told(machine, 3 * AGAIN) == []


def test_what_a_refusal_has_told_is_told_again_later_and_is_waited_for_at_once() -> None:
    machine = receiver()
    machine.connected(0, 0)
    machine.refused(0, Refusal("reg_id_in_use", "RegID 7 is in use"))
    assert told(machine, 1) == []
    assert machine.waiting
    assert machine.said() == ((0, "RegID 7 is in use"),)
    assert told(machine, AGAIN + 1) == [{0: "RegID 7 is in use"}]


def test_a_source_that_is_registered_with_nobody_is_told_of() -> None:
    machine = receiver(2)
    machine.expect((), 0)
    assert told(machine, 0) == []
    assert told(machine, PATIENCE_NS) == [{}]


def test_silence_of_all_is_told_store_by_store_first_and_together_later() -> None:
    machine = receiver(2)
    machine.connected(0, 0)
    assert told(machine, 1) == []
    assert told(machine, 2 * INTERVAL) == []
    assert told(machine, AGAIN + 1) == [{0: "has not answered", 1: "cannot be reached"}]


@pytest.mark.parametrize(("code", "text"), [("busy", ""), ("", "")])
def test_a_reason_is_never_empty(code: str, text: str) -> None:
    refusal = Refusal(code, text)
    machine = receiver()
    machine.connected(0, 0)
    machine.refused(0, refusal)
    assert refusal.reason in {"refused (busy)", "refused (no reason given)"}
    assert machine.said() == ((0, refusal.reason),)
    assert refusal.reason in str(refusal_error(refusal))
