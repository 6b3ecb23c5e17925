"""Why a registration failed is never empty, and names the store (docs/semantics.md B.4)."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.engine.control import wire
from holdfast.engine.control.refusals import refusal_error, refusal_of
from holdfast.engine.rules.quorum import Groups
from holdfast.engine.rules.registration import Grant
from holdfast.engine.rules.source_registration import SourceRegistration


def said(text: str, store: str = "a", code: str = "busy") -> str:
    return refusal_of(wire.Refused(1, code, text), store).text


@pytest.mark.parametrize("text", ["", "  ", "\n"])
def test_a_store_that_says_nothing_is_named_with_its_code(text: str) -> None:
    assert said(text) == "refused without a reason, code busy (store a)"
    assert "store a" in str(refusal_error(refusal_of(wire.Refused(1, "usage", text), "a")))


def test_no_store_sends_a_refusal_without_a_reason() -> None:
    for text in ("", " \n"):
        with pytest.raises(AssertionError, match="without a reason"):
            wire.encode(wire.Refused(1, "failed", text))


def test_a_refusal_without_a_reason_of_an_older_store_is_read_and_said_so() -> None:
    packet = msgspec.msgpack.encode(wire.Refused(1, "", ""))
    answer = wire.decode_answer(packet)
    assert isinstance(answer, wire.Refused)
    assert refusal_of(answer, "a").text == "refused without a reason, code none (store a)"


def test_a_text_that_names_its_store_stays_as_it_is() -> None:
    for text in ("RegID 5 is in use at store a (pid 7)", "at store a", "store a: no"):
        assert said(text) == text
    assert said("in use at store ab", "a") == "in use at store ab (store a)"
    assert said("no such topic", "127.0.0.1:14567") == "no such topic (store 127.0.0.1:14567)"


def test_a_machine_that_nobody_holds_up_any_more_says_so() -> None:
    """It may complete between the look that found it waiting and the question why."""
    machine = SourceRegistration(Groups((1,), (0,)), 10**9, "majority", bytes(16))
    machine.connected(0, 0)
    machine.granted(0, Grant(7, bytes(16), 0, old=False), 1)
    assert machine.why("a") == "a has answered"
    machine.opened(1, 0, 2)
    assert machine.why("a") == "waiting for a"
    machine.begun(0, 0, 3)
    assert machine.may_send
    assert machine.why("a") == "a has answered"


def test_a_machine_that_waits_always_says_for_whom() -> None:
    for groups in (Groups((3,), (0, 0, 0)), Groups((1,), (0, 0)), Groups((1, 1), (0, 1))):
        machine = SourceRegistration(groups, 1, "majority", bytes(16))
        assert machine.why("abc").removeprefix("waiting for ")


@pytest.mark.parametrize(
    ("code", "lasts"),
    [("reg_id_in_use", True), ("session_mismatch", True), ("deregistered", True), ("other_source", True)]
    + [
        (code, False)
        for code in ("failed", "busy", "read_only", "unusable_log", "unknown_source", "of a later version")
    ],
)
def test_what_asking_again_does_not_change(code: str, lasts: bool) -> None:
    assert refusal_of(wire.Refused(1, code, "no"), "a").lasts is lasts
