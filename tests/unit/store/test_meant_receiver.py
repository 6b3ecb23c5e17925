"""Which receiver an operator means: a RegID is one store's, and several receivers may have it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from holdfast.engine.log.state_file import ReceiverState, SourceState
from holdfast.engine.memory.deregistered_lines import ReceiverLine
from holdfast.engine.store import meant_receiver as module
from holdfast.engine.store.meant_receiver import meant_receiver

if TYPE_CHECKING:
    from collections.abc import Callable

A, B, C = b"a" * 16, b"b" * 16, b"c" * 16


def line(uuid: bytes, number: int, session: int = 0, **more: Any) -> ReceiverLine:
    given = {"is_dead": True, "is_marked": False, "is_ephemeral": False} | more
    return ReceiverLine(0, 1, uuid, session, number, 0, 1, **given)


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch) -> Callable[..., module.Meant]:
    """Known receivers (uuid, RegID, session), lines, and what the operator gives."""

    def made(
        known: list[tuple[bytes, int, int]], lines: list[ReceiverLine], number: int, uuid: bytes = b""
    ) -> module.Meant:
        monkeypatch.setattr(module, "receiver_lines", lambda *_: lines)
        source = SourceState(bytes(16), "t", 1, 0)
        source.receivers = [ReceiverState(each, regid, session, 0) for each, regid, session in known]
        return meant_receiver(None, source, number, uuid)  # type: ignore[arg-type]

    return made


def test_a_regid_that_one_receiver_has_names_it(ask: Callable[..., module.Meant]) -> None:
    assert ask([(A, 5, 7)], [line(A, 5, 7)], 5).receiver.uuid == A  # type: ignore[union-attr]
    assert ask([(A, 5, 7)], [line(A, 6, 7)], 5).receiver.uuid == A  # type: ignore[union-attr]
    lost = line(B, 6, 8)
    assert ask([(A, 5, 7)], [line(A, 5, 7), lost], 6) == (None, lost, "")
    assert ask([(A, 5, 7)], [], 6) == (None, None, "")


@pytest.mark.parametrize("other", [line(B, 5, 8), line(B, 5), line(B, 5, 8, is_dead=False)])
def test_a_regid_that_another_receiver_shows_is_refused(ask: Callable[..., module.Meant], other: ReceiverLine) -> None:
    for known in ([(A, 5, 7)], [(A, 5, 7), (B, 6, 8)]):
        meant = ask(known, [other], 5)
        assert (meant.receiver, meant.line) == (None, None)
        assert meant.why_not.startswith("2 receivers have that RegID")
        assert B.hex() in meant.why_not
    assert "3 receivers" in ask([(A, 5, 7)], [other, line(C, 5)], 5).why_not
    assert "2 receivers" in ask([], [other, line(C, 5)], 5).why_not


def test_the_regid_of_another_store_names_nobody(ask: Callable[..., module.Meant]) -> None:
    """It may as well be one that this store has given, and has forgotten."""
    meant = ask([(B, 6, 8)], [line(B, 5, 8)], 5)
    assert (meant.receiver, meant.line) == (None, None)
    assert f"another store's RegID of session ID 0x8, uuid {B.hex()} (RegID 6 here)" in meant.why_not


@pytest.mark.parametrize(
    "over",
    [
        line(B, 5, 8, is_marked=True),
        line(B, 5, is_ephemeral=True),
        line(C, 5, 7),  # an earlier life of the session that has the RegID
        line(C, 5, 9),  # ... or of one that has another
    ],
)
def test_what_is_over_has_no_regid(ask: Callable[..., module.Meant], over: ReceiverLine) -> None:
    assert ask([(A, 5, 7), (B, 6, 9)], [line(A, 5, 7), over], 5).receiver.uuid == A  # type: ignore[union-attr]


def test_the_uuid_says_which_one(ask: Callable[..., module.Meant]) -> None:
    known, lines = [(A, 5, 7), (B, 6, 8)], [line(A, 5, 7), line(C, 5, 9), line(b"d" * 16, 5, 8, is_dead=False)]
    assert ask(known, lines, 5, A).receiver.uuid == A  # type: ignore[union-attr]
    assert ask(known, lines, 5, B).receiver.uuid == B  # type: ignore[union-attr]
    assert ask(known, lines, 5, C) == (None, lines[1], "")
    assert ask(known, lines, 5, b"d" * 16).receiver.uuid == B, "its session's"  # type: ignore[union-attr]
    assert ask(known, lines, 5, b"e" * 16) == (None, None, "")
