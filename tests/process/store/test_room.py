"""A store at a limit of its process: before it refuses anybody it closes logs that nobody needs open
(engine/store/limits.py, shelf.py)."""

from __future__ import annotations

import contextlib
import errno
from functools import partial
from typing import TYPE_CHECKING

import pytest
from support.receiving import SHORT
from support.shelved_logs import is_shelved, kept, over, shelve_at_once, shelved
from support.three_stores import SOURCE
from support.workers import until

import holdfast as hf
from holdfast.engine.control import wire
from holdfast.engine.control.request import FIRST, ask
from holdfast.engine.errors import ReadOnlyError
from holdfast.engine.native.limits import Use
from holdfast.engine.store import admission, limits, rounds, shelf
from holdfast.engine.store.holdings import Holdings
from holdfast.engine.store.limits import Owed

if TYPE_CHECKING:
    from collections.abc import Callable

    from process.conftest import ThreadStore

    from holdfast.engine.log.state_file import SourceState


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Descriptors that a store has beside one for each open log, of 100. No log is shelved for its age."""
    shelve_at_once(monkeypatch)
    monkeypatch.setattr(shelf, "IDLE_NS", 1 << 62)
    monkeypatch.setattr(shelf, "IDLE_MAX", 1 << 10)
    return [60]


def limited(store: ThreadStore, used: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    open_ = store.store.drainer.repositories
    use = partial(Use, "RLIMIT_NOFILE", "process 1", most=100, remedy="raise it")
    monkeypatch.setattr(limits, "descriptors", lambda: use(used=used[0] + len(open_)))
    monkeypatch.setattr(store.store.holdings.limits, "_owed", lambda: Owed(0, 0))


def test_a_source_for_which_there_is_no_room_is_taken_when_another_one_is_over(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch, used: list[int]
) -> None:
    store = run_store("a", "disk")
    limited(store, used, monkeypatch)
    with hf.Context() as ctx, contextlib.ExitStack() as stack:
        live = {**SOURCE, "ume_session_id": 100, "ume_store_name": ["a"]}
        lives = stack.enter_context(ctx.source("quotes", options=live))
        lives.wait_registered(SHORT)
        uuids = [over(ctx, session) for session in range(1, 9)]
        assert not any(is_shelved(store, uuid) for uuid in uuids)
        late = stack.enter_context(ctx.source("quotes", options={**live, "ume_session_id": 101}))

        def is_taken() -> bool:
            with contextlib.suppress(hf.RegistrationError, hf.RegistrationTimeout):  # none was looked through yet
                late.wait_registered(0)
                return True
            return False

        until("it is taken", is_taken)
        assert any(is_shelved(store, uuid) for uuid in uuids)
        assert not is_shelved(store, lives.uuid)
        lives.wait_stable(lives.send(b"goes on"), SHORT)


def test_a_source_waits_for_room_where_there_soon_is_some_and_nobody_waits_with_it(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch, used: list[int]
) -> None:
    monkeypatch.setattr(admission, "WAIT_NS", 1 << 62)
    store = run_store("a", "disk")
    limited(store, used, monkeypatch)
    live = {**SOURCE, "ume_store_name": ["a"]}
    with hf.Context() as ctx, ctx.source("orders", options={**live, "ume_session_id": 100}) as lives:
        lives.wait_registered(SHORT)
        with monkeypatch.context() as busy:
            busy.setattr(shelf, "_is_whole", lambda *_: False)  # as while they are looked through
            uuids = [over(ctx, session) for session in range(1, 9)]
            seen: list[object] = []
            late = ctx.source("quotes", options={**live, "ume_session_id": 101}, on_event=seen.append)
            until("it waits", lambda: bool(store.store._admission.waiting))
            lives.wait_stable(lives.send(b"goes on"), SHORT)
            with ctx.receiver("orders") as rcv:  # of the others it would hold the logs
                message = rcv.receive(timeout=SHORT)
                assert message is not None
            assert not any(is_shelved(store, uuid) for uuid in uuids)
        with late:
            late.wait_registered(SHORT)
            late.wait_stable(late.send(b"came late"), SHORT)
        assert not any(isinstance(event, hf.events.source.RegistrationError) for event in seen)
        assert store.store._admission.waiting == {}


def test_a_source_for_which_no_room_comes_is_refused_by_name_when_it_has_waited(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch, used: list[int]
) -> None:
    waited: list[bool] = []
    wait = admission.Admission.wait

    def noted(*given: object) -> bool:
        waited.append(wait(*given))  # type: ignore[arg-type]
        return waited[-1]

    monkeypatch.setattr(admission.Admission, "wait", noted)
    monkeypatch.setattr(admission, "WAIT_NS", 1)
    monkeypatch.setattr(shelf, "_is_whole", lambda *_: False)
    store = run_store("a", "disk")
    limited(store, used, monkeypatch)
    with hf.Context() as ctx:
        for session in range(1, 10):
            over(ctx, session)
        with ctx.source("quotes", options={**SOURCE, "ume_store_name": ["a"]}) as late:
            with pytest.raises(hf.RegistrationError, match="RLIMIT_NOFILE of process 1 is 100, 69 are used"):
                late.wait_registered(SHORT)
            assert waited[:2] == [True, False]


def test_a_log_for_which_there_is_no_room_is_opened_when_another_source_is_over(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch, used: list[int]
) -> None:
    store = run_store("a", "disk")
    with hf.Context() as ctx:
        with monkeypatch.context() as soon:
            soon.setattr(shelf, "IDLE_NS", 0)
            first = over(ctx, 1)
            shelved(store, first)
        limited(store, used, monkeypatch)
        uuids = [over(ctx, session) for session in range(2, 11)]
        store.store.holdings.take_down(kept(store, first))
        assert not any(is_shelved(store, uuid) for uuid in uuids), "a round, or what else nobody has asked for"
        mark = wire.Mark(FIRST, kept(store, first).registration_id, [(0, 0)])

        def is_marked() -> bool:
            with contextlib.suppress(hf.RegistrationError):  # none was looked through yet
                return isinstance(ask(ctx.domain, "a", mark, SHORT), wire.Marked)
            return False

        until("its log is opened", is_marked)
        assert not is_shelved(store, first)
        assert any(is_shelved(store, uuid) for uuid in uuids)


def test_a_client_for_which_there_is_no_room_is_let_in_when_a_source_is_over(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch, used: list[int]
) -> None:
    store = run_store("a", "disk")
    limited(store, used, monkeypatch)
    with hf.Context() as ctx:
        uuids = [over(ctx, session) for session in range(1, 9)]
        used[0] = 80
        with hf.Context() as late, late.receiver("nothing") as rcv:
            assert rcv.receive(timeout=0.01) is None
            until("it is let in", lambda: [link for link in late.store_links() if link.welcome])
        assert any(is_shelved(store, uuid) for uuid in uuids)


@pytest.mark.parametrize("error", [OSError(errno.EMFILE, "Too many open files"), ReadOnlyError("the disk of the test")])
def test_a_store_that_can_make_no_room_turns_a_client_away_and_goes_on(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch, used: list[int], error: Exception
) -> None:
    def fails(*_: object, **__: object) -> int:
        raise error

    store = run_store("a", "disk")
    with hf.Context() as ctx, ctx.source("quotes", options={**SOURCE, "ume_store_name": ["a"]}) as src:
        src.wait_registered(SHORT)
        limited(store, used, monkeypatch)
        used[0] = 85
        with monkeypatch.context() as broken, hf.Context() as late:
            broken.setattr(store.store._shelf, "_put_away", fails)
            refused = late.source("quotes", options={**SOURCE, "ume_session_id": 9, "ume_store_name": ["a"]})
            with pytest.raises(hf.RegistrationError, match="lets no client in"):
                refused.wait_registered(SHORT)
        src.wait_stable(src.send(b"goes on"), SHORT)


def test_a_round_waits_for_room(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch, used: list[int]
) -> None:
    store = run_store("a", "disk")
    with hf.Context() as ctx, monkeypatch.context() as soon:
        soon.setattr(shelf, "IDLE_NS", 0)
        uuid = over(ctx, 1)
        shelved(store, uuid)
    store.stop()
    monkeypatch.setattr(rounds, "_is_whole", lambda _: False)  # so it is to be opened
    monkeypatch.setattr(limits, "descriptors", lambda: Use("RLIMIT_NOFILE", "process 1", used[0], 100, "raise it"))
    tried: list[bool] = []
    take_down = Holdings.take_down

    def noted(holdings: Holdings, source: SourceState) -> bool:
        tried.append(take_down(holdings, source))
        return tried[-1]

    monkeypatch.setattr(Holdings, "take_down", noted)
    used[0] = 70
    again = run_store("a", "disk")
    until("it was tried twice", lambda: len(tried) >= 2)
    assert not any(tried)
    used[0] = 10
    until("it is opened", lambda: again.store.holdings.repository(uuid) is not None)
