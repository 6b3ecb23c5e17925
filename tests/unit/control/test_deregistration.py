"""The client's side of deregistration: whom it asks, again and until when (docs/semantics.md F.7)."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from holdfast.engine.control import wire
from holdfast.engine.control.deregistration import RETRY_NS, Deregistration, check_deregister
from holdfast.engine.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.engine.control.link import StoreLink

NOW = 10**12


class Link:
    """A store that answers when the test says so."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.takes: list[Callable[[wire.Answer], None]] = []

    def next_id(self) -> int:
        return len(self.asked) + 1

    def ask(self, request: wire.Deregister, take: Callable[[wire.Answer], None]) -> None:
        self.asked.append(request.id)
        self.takes.append(take)

    def done(self, next_sqn: int = 5) -> None:
        self.takes[-1](wire.Deregistered(self.asked[-1], next_sqn))

    def refuse(self, code: str) -> None:
        self.takes[-1](wire.Refused(self.asked[-1], code, "it is so"))


class Told(Deregistration):
    """What was told, in order."""

    def __init__(self, *links: Link) -> None:
        super().__init__([cast("StoreLink", link) for link in links])
        self.told: list[object] = []
        self.said: list[tuple[int, str]] = []

    def _request(self, store: int, request_id: int) -> wire.Deregister:
        return wire.Deregister(request_id, "source", b"s" * 16, b"u" * 16)

    def _forgotten(self, store: int, next_sqn: int) -> None:
        self.told.append((store, next_sqn))

    def _say(self, store: int, refused: wire.Refused) -> None:
        self.said.append((store, refused.code))

    def _refused(self, store: int, refused: wire.Refused) -> None:
        self.told.append((store, refused.code))

    def _complete(self) -> None:
        self.told.append("complete")


def test_it_is_complete_when_the_last_store_has_answered() -> None:
    a, b = Link(), Link()
    it = Told(a, b)
    it.add([0, 1])
    b.done(7)
    assert it.told == [(1, 7)]
    a.done(9)
    assert it.told == [(1, 7), (0, 9), "complete"]


def test_a_store_is_asked_once_however_often_it_is_named() -> None:
    a, b = Link(), Link()
    it = Told(a, b)
    it.add([0])
    it.add([0, 1])
    assert (len(a.asked), len(b.asked)) == (1, 1)


def test_a_grant_that_came_after_the_call_is_given_back_too() -> None:
    a, b = Link(), Link()
    it = Told(a, b)
    it.add([0])
    it.add([1])
    a.done()
    assert "complete" not in it.told
    b.done()
    assert it.told[-1] == "complete"


def test_a_store_that_comes_back_is_asked_again_unless_it_has_answered() -> None:
    a, b = Link(), Link()
    it = Told(a, b)
    it.add([0, 1])
    a.done()
    for link in (a, b):
        it.link_up(cast("StoreLink", link))
    assert (len(a.asked), len(b.asked)) == (1, 2)
    b.done()
    assert it.told[-1] == "complete"


def test_two_stores_behind_one_link_are_both_asked_again() -> None:
    """One store may have two names in a source's list."""
    link = Link()
    it = Told(link, link)
    it.add([0, 1])
    it.link_up(cast("StoreLink", link))
    assert len(link.asked) == 4


def test_a_store_that_failed_is_asked_again_after_the_pause_and_not_before() -> None:
    a = Link()
    it = Told(a)
    it.add([0])
    a.refuse("busy")
    assert it.told == []
    it.tick(NOW)  # the pause begins
    it.tick(NOW + RETRY_NS - 1)
    assert len(a.asked) == 1
    it.tick(NOW + RETRY_NS)
    it.tick(NOW + RETRY_NS + 1)
    assert len(a.asked) == 2
    a.done()
    assert it.told == [(0, 5), "complete"]


def test_a_store_that_fails_again_has_a_pause_again() -> None:
    a = Link()
    it = Told(a)
    it.add([0])
    for turn in range(3):
        a.refuse("busy")
        start = NOW + turn * 10 * RETRY_NS
        it.tick(start)
        it.tick(start + RETRY_NS)
        assert len(a.asked) == turn + 2
    assert it.told == []
    assert it.said == [(0, "busy")], "once"


def test_a_store_that_comes_back_during_the_pause_answers_once() -> None:
    """It was asked once more when the pause was over, and the program told twice that all was complete."""
    a = Link()
    it = Told(a)
    it.add([0])
    a.refuse("busy")
    it.tick(NOW)
    it.link_up(cast("StoreLink", a))
    a.done()
    it.tick(NOW + RETRY_NS)
    assert len(a.asked) == 2
    assert it.told == [(0, 5), "complete"]


def test_what_somebody_else_has_by_now_counts_as_answered() -> None:
    a, b = Link(), Link()
    it = Told(a, b)
    it.add([0, 1])
    a.refuse("other_source")
    b.done()
    assert it.told == [(0, "other_source"), (1, 5), "complete"]


@pytest.mark.parametrize(
    ("already", "stores", "text"),
    [(True, [1], "already deregistering"), (False, [], "not registered with any stores")],
)
def test_what_cannot_be_deregistered_is_a_usage_error(already: bool, stores: list[int], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        check_deregister(already, stores)


def test_the_store_of_index_zero_is_a_store() -> None:
    check_deregister(False, [0])
