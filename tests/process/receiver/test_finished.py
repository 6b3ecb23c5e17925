"""Sources that are over, at receivers: read one after the other, and left (engine/receiver/finished.py,
finished_source.py, leaving.py)."""

from __future__ import annotations

import errno
import gc
import os
import time
from typing import TYPE_CHECKING, Any

import pytest
from support.receiving import SESSION, SHORT, options, send, take, until
from support.shelved_logs import is_shelved, open_files
from support.three_stores import everywhere

import holdfast as hf
from holdfast.engine.receiver import finished, finished_source, leaving
from holdfast.engine.store import shelf
from holdfast.events import receiver as events

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from process.conftest import ThreadStore

MANY = 5
pytestmark = pytest.mark.usefixtures("at_once")


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log is shelved as soon as it may be, and a receiver leaves as soon. Each store is waited for, however
    slow the machine is: all run."""
    monkeypatch.setattr(shelf, "IDLE_NS", 0)
    monkeypatch.setattr(shelf, "LOOK_NS", 10_000_000)
    monkeypatch.setattr(leaving, "IDLE_NS", 0)
    for module, name in ((leaving, "ANSWER_NS"), (finished_source, "STANDS_NS"), (finished, "PATIENCE_NS")):
        monkeypatch.setattr(module, name, 1 << 62)


class Told:
    """What a receiver was told."""

    def __init__(self) -> None:
        self.events: list[Any] = []

    def __call__(self, event: object) -> None:
        self.events.append(event)

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


def life(session: int, count: int = 1, topic: str = "quotes", **more: Any) -> bytes:
    """A whole life of a source; its uuid."""
    with hf.Context() as ctx, ctx.source(topic, options=options(ume_session_id=session, **more)) as src:
        everywhere(src)
        send(src, count)
        return src.uuid


def over(stores: Sequence[ThreadStore], count: int = MANY, **more: Any) -> list[bytes]:
    """Sources that are over, in the order of their first messages, which is not that of their uuids."""
    uuids = [life(each + 1, each % 2 + 1, **more) for each in range(count)]
    until("all are shelved", lambda: all(is_shelved(store, uuid) for store in stores for uuid in uuids))
    return uuids


def names(uuids: Sequence[bytes]) -> list[str]:
    """A name for each message: the source's."""
    return [f"holdfast:quotes:{uuid.hex()[:12]}" for place, uuid in enumerate(uuids) for _ in range(place % 2 + 1)]


def come(rcv: hf.Receiver, count: int) -> list[str]:
    """The sources of the next messages."""
    found: list[str] = []
    for _ in range(count):
        message = rcv.receive(timeout=SHORT)
        assert message is not None, f"only {found} came"
        with message:
            found.append(message.source)
    return found


def registered(store: ThreadStore) -> list[bytes]:
    """Receivers that the store knows."""
    return [receiver.uuid for source in store.store.state.sources for receiver in source.receivers]


def nothing_comes(rcv: hf.Receiver) -> bool:
    """No message, when all that there is has been looked at."""
    return rcv.receive(timeout=0.05) is None


def is_left(rcv: hf.Receiver) -> bool:
    """It holds no source. It leaves while it receives."""
    return nothing_comes(rcv) and not rcv._all


@pytest.mark.parametrize("stores", ["a", "abc"])
def test_without_a_session_they_are_read_from_the_files_in_order_of_time(
    run_store: Callable[..., ThreadStore], stores: str
) -> None:
    running = [run_store(name, "disk") for name in stores]
    uuids = over(running, ume_store_name=list(stores))
    opened = [len(store.store.drainer.repositories) for store in running]
    told = Told()
    with hf.Context() as ctx, ctx.receiver("quotes", on_event=told) as rcv:
        assert come(rcv, len(names(uuids))) == names(uuids)
        until("all are let go", lambda: is_left(rcv))
        assert rcv.stats().delivered == len(names(uuids))
        until("their ends are told", lambda: len(told.of(events.EndOfStream)) == MANY)
        assert [event.source for event in told.of(events.BeginOfStream)] == list(dict.fromkeys(names(uuids)))
        assert not told.of(events.RegistrationSuccess)
    assert [len(store.store.drainer.repositories) for store in running] == opened == [0] * len(running)
    assert not any(map(registered, running))


def test_batches_and_callbacks_have_the_same_order(run_store: Callable[..., ThreadStore]) -> None:
    uuids = over([run_store("a", "disk")])
    with hf.Context() as ctx:
        with ctx.receiver("quotes") as rcv:
            found: list[str] = []
            while len(found) < len(names(uuids)):
                batch = rcv.receive_batch(timeout=SHORT)
                assert batch is not None
                with batch:
                    found += [batch.source] * len(batch)
            assert found == names(uuids)
        called: list[str] = []
        with ctx.receiver("quotes", on_message=lambda message: called.append(message.source)):
            until("all have come", lambda: len(called) == len(names(uuids)))
        assert called == names(uuids)


def test_a_session_registers_with_one_after_the_other_and_stays_with_none(
    run_store: Callable[..., ThreadStore],
) -> None:
    store = run_store("a", "disk")
    uuids = over([store])
    told = Told()
    with hf.Context(session_id=SESSION) as ctx, ctx.receiver("quotes", on_event=told) as rcv:
        assert come(rcv, len(names(uuids))) == names(uuids)
        until("it has left them all", lambda: is_left(rcv))
        until("they are closed again", lambda: all(is_shelved(store, uuid) for uuid in uuids))
        assert len(told.of(events.RegistrationComplete)) == MANY
    assert {receiver.ack for source in store.store.state.sources for receiver in source.receivers} == {1, 2}
    again = Told()
    with hf.Context(session_id=SESSION) as ctx:
        ctx.receiver("nothing")  # then the context knows the store before it looks for sources of the topic
        until("the store is known", lambda: ctx.stats().stores == {"a": True})
        rcv = ctx.receiver("quotes", on_event=again)
        until("the store has told of them", lambda: rcv.finished)
        assert nothing_comes(rcv)
        assert not rcv._all
        assert not again.of(events.RegistrationComplete)
        assert not again.of(events.NoSource)
        assert all(is_shelved(store, uuid) for uuid in uuids), "nobody has asked for their logs"


@pytest.mark.parametrize("whose", ["the store's", "its own"])
def test_no_lifetime_of_a_session_runs_while_a_receiver_of_it_lives(
    run_store: Callable[..., ThreadStore], whose: str
) -> None:
    """It has left what is over, and these rest. One that is made anew, and has nothing to read there, is not
    even registered."""
    given = {"receiver-activity-timeout": 100, "source-check-interval": 20}
    more = {"receiver-state-lifetime": 100} if whose == "the store's" else {}
    own = {} if more else {"ume_state_lifetime": 100}
    store = run_store("a", "disk", **given, **more)
    uuids = over([store], 2)
    expiry, parts = store.store._expiry, store.store.holdings.registry.parts
    known = store.store.state.sources

    def stays() -> None:
        until("they are at rest", lambda: all(parts.rests(uuid) and is_shelved(store, uuid) for uuid in uuids))
        began = time.monotonic()
        until("the lifetime is over", lambda: expiry.due_s > began + 1)
        assert [len(source.receivers) for source in known] == [1, 1]

    with hf.Context(session_id=SESSION) as ctx:
        with ctx.receiver("quotes", options=own) as rcv:
            assert come(rcv, 3) == names(uuids)
            until("it has left them", lambda: is_left(rcv))
            stays()
        with ctx.receiver("quotes", options=own) as rcv:
            until("the store has told of them", lambda: rcv.finished)
            stays()
            assert not rcv._all
        until("it is forgotten", lambda: not any(source.receivers for source in known))


def test_one_that_names_itself_stays_where_it_would_be_forgotten(run_store: Callable[..., ThreadStore]) -> None:
    """No session says of what it has left that it lives."""
    store = run_store("a", "disk", **{"receiver-state-lifetime": 100, "source-check-interval": 20})
    uuids = over([store], 2)
    own = {"ume_registration_extended_function": lambda _: 7}
    with hf.Context() as ctx, ctx.receiver("quotes", options=own) as rcv:
        assert come(rcv, 3) == names(uuids)
        began = time.monotonic()
        until("a second is over", lambda: nothing_comes(rcv) and time.monotonic() > began + 1)
        assert [len(source.receivers) for source in store.store.state.sources] == [1, 1]
    until("it is forgotten", lambda: not any(source.receivers for source in store.store.state.sources))


@pytest.mark.parametrize("session", [0, SESSION])
def test_a_source_that_comes_back_goes_on_where_the_receiver_is(
    run_store: Callable[..., ThreadStore], session: int
) -> None:
    store = run_store("a", "disk")
    uuids = over([store])
    told = Told()
    with hf.Context(session_id=session or None) as ctx, ctx.receiver("quotes", on_event=told) as rcv:
        come(rcv, len(names(uuids)))
        until("it has left them all", lambda: is_left(rcv))
        with hf.Context() as other, other.source("quotes", options=options(ume_session_id=2)) as src:
            src.wait_registered(SHORT)
            assert src.uuid == uuids[1]
            send(src, 3)
            assert take(rcv, 3) == [2, 3, 4]
        until("it has left that, too", lambda: is_left(rcv))
        until("it is closed again", lambda: is_shelved(store, uuids[1]))
        assert life(2, 2) == uuids[1], "a life that nobody has seen"
        assert take(rcv, 2) == [5, 6]
        assert nothing_comes(rcv)
        assert not told.of(events.UnrecoverableLoss)


def test_a_receiver_leaves_a_source_that_has_ended_while_it_was_there(run_store: Callable[..., ThreadStore]) -> None:
    store = run_store("a", "disk")
    with hf.Context(session_id=SESSION) as ctx, ctx.receiver("quotes") as rcv:
        with hf.Context() as other, other.source("quotes", options=options(ume_session_id=1)) as src:
            src.wait_registered(SHORT)
            send(src, 3)
            first = [rcv.receive(timeout=SHORT) for _ in range(3)]
        live = rcv.controllers[0].live
        until("the end has come", lambda: nothing_comes(rcv) and live is not None and live.ended)
        assert len(rcv.controllers) == 1, "what was not released is not acknowledged"
        for message in first:
            assert message is not None
            message.release()
        until("it has left", lambda: is_left(rcv))
        until("it is closed", lambda: is_shelved(store, store.store.state.sources[0].uuid))
        assert [each.ack for each in store.store.state.sources[0].receivers] == [3]
        assert rcv.stats().delivered == 3


@pytest.mark.parametrize("life", [1, 2])
def test_deregister_covers_what_it_is_not_registered_with(run_store: Callable[..., ThreadStore], life: int) -> None:
    """It has left all of them, or its session had before."""
    store = run_store("a", "disk")
    uuids = over([store])
    told = Told()
    with hf.Context(session_id=SESSION) as ctx, ctx.receiver("quotes", on_event=told) as rcv:
        assert come(rcv, len(names(uuids))) == names(uuids)
        until("it has left them all", lambda: is_left(rcv))
        if life == 1:
            forgotten_by_all(rcv, told)
    if life == 2:
        with hf.Context(session_id=SESSION) as ctx, ctx.receiver("quotes", on_event=told) as rcv:
            until("the store has told of them", lambda: rcv.finished)
            assert not rcv._all
            forgotten_by_all(rcv, told)
    assert not registered(store)
    with hf.Context(session_id=SESSION) as ctx, ctx.receiver("quotes") as rcv:
        assert come(rcv, len(names(uuids))) == names(uuids)


def forgotten_by_all(rcv: hf.Receiver, told: Told) -> None:
    rcv.deregister()
    until("all have forgotten it", lambda: len(told.of(events.DeregistrationComplete)) == MANY)
    assert sorted(event.sequence_number for event in told.of(events.DeregistrationSuccess)) == [0, 0, 0, 1, 1]


def test_late_join_0_reads_nothing_of_them(run_store: Callable[..., ThreadStore]) -> None:
    over([run_store("a", "disk")])
    with hf.Context() as ctx, ctx.receiver("quotes", options={"use_late_join": 0}) as rcv:
        until("the store has told of them", lambda: rcv.finished)
        assert nothing_comes(rcv)
        assert not rcv._all


def test_what_is_acknowledged_later_counts(run_store: Callable[..., ThreadStore]) -> None:
    """Explicit acknowledgements: a receiver stays until it has said all of them."""
    store = run_store("a", "disk")
    uuids = over([store])
    with hf.Context(session_id=SESSION) as ctx, ctx.receiver("quotes", options={"ume_explicit_ack_only": 1}) as rcv:
        acks = []
        for _ in names(uuids):
            message = rcv.receive(timeout=SHORT)
            assert message is not None
            with message:
                acks.append(message.extract_ack())
        for _ in range(10):
            assert nothing_comes(rcv)
        assert len(rcv._all) == MANY
        for ack in acks:
            ack.send()
        until("it has left them all", lambda: is_left(rcv))
    assert {receiver.ack for source in store.store.state.sources for receiver in source.receivers} == {1, 2}


def test_nothing_is_begun_after_deregister(run_store: Callable[..., ThreadStore]) -> None:
    store = run_store("a", "disk")
    over([store])
    told = Told()
    with hf.Context(session_id=SESSION) as ctx, ctx.receiver("quotes", on_event=told) as rcv:
        come(rcv, 1)
        rcv.deregister()
        until("it is forgotten", lambda: told.of(events.DeregistrationComplete) and not registered(store))
        for _ in range(10):
            nothing_comes(rcv)
        assert not registered(store)
        assert len(rcv._all) <= 1
    assert not registered(store)


def test_one_that_was_left_alone_goes_on_where_it_was(run_store: Callable[..., ThreadStore]) -> None:
    """A receiver that wants nothing of the past misses nothing of what comes."""
    over([run_store("a", "disk")])
    with hf.Context() as ctx, ctx.receiver("quotes", options={"use_late_join": 0}) as rcv:
        until("the store has told of them", lambda: len(rcv.finished.left) == MANY)
        life(2, 3)
        assert take(rcv, 3) == [2, 3, 4]


def test_earliest_is_the_beginning_of_what_is_kept_also_of_one_that_is_over(
    run_store: Callable[..., ThreadStore],
) -> None:
    """Neither the receiver's maximum nor the store's limit for new receivers counts (docs/semantics.md
    F.1)."""
    store = run_store("a", "disk", **{"receiver-new-registration-rollback": 1})
    uuid = life(1, 5)
    until("it is shelved", lambda: is_shelved(store, uuid))
    few = {"retransmit_request_maximum": 1}
    with hf.Context() as ctx, ctx.receiver("quotes", options=few, start="earliest") as rcv:
        assert come(rcv, 5) == [f"holdfast:quotes:{uuid.hex()[:12]}"] * 5


@pytest.mark.parametrize("session", [0, SESSION])
def test_what_was_read_keeps_no_descriptor(run_store: Callable[..., ThreadStore], session: int) -> None:
    """Nor is it left to the next collection of garbage."""
    store = run_store("a", "disk", **{"holdfast-scrub-interval": 0})
    uuids = over([store], 2 * MANY)
    gc.collect()
    gc.disable()
    try:
        with hf.Context() as ctx, ctx.receiver("quotes", options={"ume_session_id": session}) as rcv:
            assert come(rcv, len(names(uuids))) == names(uuids)
            until("all are let go", lambda: is_left(rcv))
            until("the store has closed theirs, too", lambda: all(is_shelved(store, uuid) for uuid in uuids))
            # A leave that comes late has the store open one once more.
            until(
                "none is open", lambda: not [path for path in open_files() if any(uuid.hex() in path for uuid in uuids)]
            )
    finally:
        gc.enable()


def test_a_context_is_not_woken_for_each_of_them(run_store: Callable[..., ThreadStore]) -> None:
    """Nobody hears of an acknowledgement."""
    uuids = over([run_store("a", "disk")])
    with hf.Context() as ctx, ctx.receiver("quotes") as rcv:
        until("all lie ready", lambda: len(rcv.controllers) == MANY)
        rcv.deadline()
        assert [controller.dozing for controller in rcv.controllers] == [False] * MANY
        assert come(rcv, len(names(uuids))) == names(uuids)


@pytest.mark.parametrize(
    "error",
    [
        hf.LimitReachedError("RLIMIT_NOFILE is 3", 24, "EMFILE", limit="RLIMIT_NOFILE", value=3, used=3),
        OSError(errno.EMFILE, os.strerror(errno.EMFILE)),
        hf.SystemCallError("no thread can be started", errno.EAGAIN, "EAGAIN"),
        MemoryError(),
    ],
    ids=repr,
)
def test_what_the_process_lacks_is_said_once_and_tried_again(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
    error: Exception,
) -> None:  # fmt: skip
    uuids, told, times = over([run_store("a", "disk")]), Told(), []

    def lacking(*_: object) -> None:
        times.append(1)
        raise error

    with hf.Context() as ctx:
        with monkeypatch.context() as limited:
            limited.setattr(finished_source, "Logs", lacking)
            rcv = ctx.receiver("quotes", on_event=told, options={"ume_registration_interval": 20})
            until("it was tried again", lambda: len(times) > MANY)
            with pytest.raises(hf.RegistrationError, match=r"RLIMIT_NOFILE|no thread|no memory|open files"):
                rcv.receive(SHORT)
        assert come(rcv, len(names(uuids))) == names(uuids)
        until("all are let go", lambda: is_left(rcv))
    assert len(told.of(events.RegistrationError)) == 1, told.events
    assert [record.levelname for record in caplog.records if record.name == "holdfast"] == ["ERROR"]


def test_one_that_lives_again_before_there_was_room_is_registered_with(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    over([run_store("a", "disk")], 1)
    times: list[int] = []

    def lacking(*_: object) -> None:
        times.append(1)
        raise MemoryError

    monkeypatch.setattr(finished_source, "Logs", lacking)
    with hf.Context() as ctx:
        rcv = ctx.receiver("quotes")
        until("it was tried", lambda: times)
        with ctx.source("quotes", options=options(ume_session_id=1)) as src:
            everywhere(src)
            send(src, 1)
            until("it is registered with", lambda: rcv.controllers)
            assert take(rcv, 2) == [0, 1]
