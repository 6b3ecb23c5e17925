"""Stores that have forgotten what they may have had: the program of a source is told what may be gone
(docs/semantics.md B.1)."""

from __future__ import annotations

from support.registering import INTERVAL, OURS, THEIRS, source

from holdfast.engine.events.source import RegistrationError
from holdfast.engine.rules.registration import Forgot, Grant, Open
from holdfast.engine.source.registration_events import source_event

KNOWS = Grant(7, THEIRS, 50, True, 4, name="c")
TOLD = (
    "numbering goes on at 50; a, b may have had more and cannot know it any more: messages from 50 on that were stable "
    "only there are gone"
)


def wiped(name: str) -> Grant:
    return Grant(7, OURS, 0, False, name=name)


def test_it_is_told_once_and_only_where_it_may_be_so() -> None:
    machine = source(3)
    for store in range(3):
        machine.connected(store, 0)
    machine.granted(0, wiped("a"), 1)
    machine.granted(1, wiped("b"), 1)
    opens = machine.granted(2, KNOWS, 1)
    assert opens[-2:] == [Forgot(("a", "b"), 50), Open(5, 50)]
    assert machine.tick(1 + INTERVAL)[-1:] == [Open(5, 50)], "the same is not told twice"
    assert source_event(opens[-2], ["a", "b", "c"]) == RegistrationError(TOLD, "a")
    machine.disconnected(1, 2 + INTERVAL)
    machine.connected(1, 2 + INTERVAL)
    found = machine.granted(1, Grant(7, THEIRS, 40, True, 4, name="b"), 3 + INTERVAL)
    found += machine.tick(3 + 2 * INTERVAL)
    assert [each for each in found if isinstance(each, (Forgot, Open))] == [Open(5, 50)], "two of three know by now"
