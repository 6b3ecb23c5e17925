"""A store that was away while the others came to know a receiver that only acknowledges: it knows it by
another name, and is to take theirs over (engine/receiver/visits.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from process.receiver.test_visit_trouble import looks
from process.receiver.test_visits import (
    MANY,
    acknowledge,
    all_over,
    at_once,
    ctx,
    has_left,
    positions,
    registered,
    session,
)
from support.receiving import until

from holdfast.engine.control import wire
from holdfast.engine.control.link import StoreLink
from holdfast.engine.receiver import finished, finished_source

if TYPE_CHECKING:
    from collections.abc import Callable

    from process.conftest import ThreadStore

    import holdfast as hf
    from holdfast.engine.receiver.ack_only import AckOnlyReceiver

__all__ = ["at_once", "ctx", "session"]  # fixtures


class Renaming:
    """What store c is asked when it knows the receiver by another name than the others do."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.held: list[tuple[Any, ...]] = []
        """To take a name over: link, request, and whom to give the answer."""
        self.left: list[wire.Leave] = []
        self._ask, self._come = StoreLink.ask, False
        monkeypatch.setattr(StoreLink, "ask", lambda link, *asked: self._asks(link, *asked))

    def _asks(self, link: StoreLink, request: Any, answered: Any) -> bool:
        if link.name == "c" and isinstance(request, wire.Leave):
            self.left.append(request)
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


@pytest.fixture
def unaware(
    run_store: Callable[..., ThreadStore],
    ctx: hf.Context,
    session: Callable[..., AckOnlyReceiver],
    monkeypatch: pytest.MonkeyPatch,
) -> tuple[AckOnlyReceiver, list[bytes], Callable[[], ThreadStore]]:
    """What a and b know acknowledged, and c has never heard of: receiver, sources, and what starts c."""
    monkeypatch.setattr(finished, "PATIENCE_NS", 0)
    stores = {name: run_store(name, "disk") for name in "abc"}
    uuids = all_over(ctx, list(stores.values()))
    stores["c"].stop()
    rcv = session()
    acknowledge(rcv, uuids)
    until("it has left", lambda: rcv.acknowledged() == dict.fromkeys(uuids, 3) and has_left(rcv, *uuids))
    return rcv, uuids, lambda: run_store("c", "disk")


def test_it_stays_until_a_store_knows_it_by_the_name_that_is_acknowledged(
    unaware: tuple[AckOnlyReceiver, list[bytes], Callable[[], ThreadStore]], monkeypatch: pytest.MonkeyPatch
) -> None:
    rcv, uuids, start = unaware
    renaming = Renaming(monkeypatch)
    store = start()
    until("c is to take the name over", lambda: len(renaming.held) >= MANY and registered(rcv) == {*uuids})
    looks(rcv)
    assert registered(rcv) == {*uuids}
    renaming.come(rcv)
    until("c has heard of it", lambda: positions(store, uuids) == [[3]] * MANY)
    until("it has left again", lambda: has_left(rcv, *uuids))


def test_it_leaves_a_store_by_the_name_that_it_was_to_take_over(
    unaware: tuple[AckOnlyReceiver, list[bytes], Callable[[], ThreadStore]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer may come yet: who stays registered by that name is in the way of the session's next life."""
    rcv, uuids, start = unaware
    renaming = Renaming(monkeypatch)
    monkeypatch.setattr(finished_source, "STANDS_NS", 0)
    start()
    until("it has left", lambda: len(renaming.held) >= MANY and has_left(rcv, *uuids))
    asked = {(request.source, request.identity) for _, request, _ in renaming.held}
    until("it has said so", lambda: asked <= {(each.source, each.uuid) for each in renaming.left})
