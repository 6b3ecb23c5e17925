"""A store that was away while the others came to know a receiver that only acknowledges: it knows it by
another name, and is to take theirs over (engine/receiver/visits.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from process.receiver.test_visit_trouble import looks
from process.receiver.test_visits import (
    MANY,
    at_once,
    ctx,
    has_left,
    positions,
    registered,
    session,
    unaware,
)
from support.receiving import until

from holdfast.engine.control import wire
from holdfast.engine.control.link import StoreLink
from holdfast.engine.receiver import finished_source

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest
    from process.conftest import ThreadStore

    from holdfast.engine.receiver.ack_only import AckOnlyReceiver

__all__ = ["at_once", "ctx", "session", "unaware"]  # fixtures


class Renaming:
    """What store c is asked when it knows the receiver by another name than the others do."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.held: list[tuple[Any, ...]] = []
        """To take a name over: link, request, and whom to give the answer."""
        self._ask, self._come = StoreLink.ask, False
        monkeypatch.setattr(StoreLink, "ask", lambda link, *asked: self._asks(link, *asked))

    def _asks(self, link: StoreLink, request: Any, answered: Any) -> bool:
        if self._come or link.name != "c" or not (isinstance(request, wire.RegisterReceiver) and request.identity):
            return self._ask(link, request, answered)
        self.held.append((link, request, answered))
        return True

    def come(self, rcv: AckOnlyReceiver) -> None:
        """The questions get there, and their answers."""
        self._come = True
        with rcv.context.turning():
            for asked in self.held:
                self._ask(*asked)


def test_it_stays_until_a_store_knows_it_by_the_name_that_is_acknowledged(
    unaware: tuple[AckOnlyReceiver, list[bytes], dict[str, ThreadStore]],
    run_store: Callable[..., ThreadStore],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rcv, uuids, _ = unaware
    renaming = Renaming(monkeypatch)
    store = run_store("c", "disk")
    until("c is to take the name over", lambda: len(renaming.held) >= MANY and registered(rcv) == {*uuids})
    looks(rcv)
    assert registered(rcv) == {*uuids}
    renaming.come(rcv)
    until("c has heard of it", lambda: positions(store, uuids) == [[3]] * MANY)
    until("it has left again", lambda: has_left(rcv, *uuids))
    assert not rcv._leaving._due, "the next visit has its own time"  # type: ignore[attr-defined]


def test_an_answer_that_comes_while_it_leaves_is_too_late(
    unaware: tuple[AckOnlyReceiver, list[bytes], dict[str, ThreadStore]],
    run_store: Callable[..., ThreadStore],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing is asked behind it, so that store is visited again."""
    rcv, uuids, _ = unaware
    answers: dict[bytes, Any] = {}
    left, ask = set[bytes](), StoreLink.ask

    def asks(link: StoreLink, request: Any, answered: Any) -> bool:
        if link.name == "c" and isinstance(request, wire.RegisterReceiver) and request.source not in left:
            return ask(link, request, lambda answer: answers.update({request.source: (answered, answer)}))
        if link.name == "c" and isinstance(request, wire.Leave) and request.source in answers.keys() - left:
            left.add(request.source)
            late, answer = answers[request.source]
            late(answer)
        return ask(link, request, answered)

    monkeypatch.setattr(StoreLink, "ask", asks)
    store = run_store("c", "disk")
    until("c has answered", lambda: answers.keys() == {*uuids} and registered(rcv) == {*uuids})
    with monkeypatch.context() as patch:
        patch.setattr(finished_source, "STANDS_NS", 0)
        with rcv.context.turning():
            rcv._leaving._due.clear()  # type: ignore[attr-defined]
        until("it has left", lambda: left == {*uuids})
    until("c has heard of it", lambda: positions(store, uuids) == [[3]] * MANY)
