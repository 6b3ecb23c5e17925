"""No two claimants begin one number, also where their quorums share no store (docs/design.md 13)."""

from __future__ import annotations

from support.registering import OURS, source

from holdfast.engine.rules.election import Written
from holdfast.engine.rules.registration import Ask, GiveUp, Grant, Open


def test_what_the_register_has_is_to_be_promised_by_each_store() -> None:
    machine = source(2)
    machine.register = {OURS: Written((), incarnation=6)}
    for store in (0, 1):
        machine.connected(store, 0)
    machine.granted(0, Grant(7, OURS, 5, True, incarnation=2, promised=3), 1)
    asked = machine.granted(1, Grant(7, OURS, 5, True, incarnation=2, promised=9), 1)
    assert asked[-2:] == [GiveUp(0, OURS), Ask(0)]
    assert machine.least == 9, "the greatest"
    machine.register = {OURS: Written((), incarnation=9)}
    asked = machine.granted(0, Grant(7, OURS, 5, True, incarnation=2, promised=9), 2)
    assert [each for each in asked if isinstance(each, Ask)] == [Ask(0), Ask(1)]
    assert machine.least == 10
    for store in (0, 1):
        opens = machine.granted(store, Grant(7, OURS, 5, True, incarnation=2, promised=10), 3)
    assert opens[-1] == Open(10, 5)
