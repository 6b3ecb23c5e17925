"""Sources that are over, at a receiver that only acknowledges (engine/receiver/visits.py): it registers with
those that it owes something, few at a time, and leaves them where everything is acknowledged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support import paced_source
from support.receiving import SESSION, Told, options, send, until
from support.shelved_logs import is_shelved, kept, over, shelve_at_once, shelved
from support.three_stores import everywhere

import holdfast as hf
from holdfast.engine.control.link import StoreLink
from holdfast.engine.events import receiver as events
from holdfast.engine.memory.domain import Domain
from holdfast.engine.receiver import ack_only, finished, finished_source, leaving, visits
from holdfast.engine.receiver.ack_only import AckOnlyReceiver
from holdfast.engine.receiver.registrar import Registrar
from holdfast.engine.tools.finished import candidates

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from process.conftest import ThreadStore

MANY = 3
FEW = 2
"""With more than these it leaves."""
FOR_EVER = 1 << 62


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log is shelved as soon as it may be, and a source is left as soon. Stores are waited for."""
    shelve_at_once(monkeypatch)
    monkeypatch.setattr(leaving, "IDLE_NS", 0)
    for module, name in ((leaving, "ANSWER_NS"), (finished_source, "STANDS_NS"), (finished, "PATIENCE_NS")):
        monkeypatch.setattr(module, name, FOR_EVER)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A receiver is registered with few at a time."""
    monkeypatch.setattr(leaving, "IDLE_MAX", FEW)
    monkeypatch.setattr(visits.Visits, "at_once", 2 * FEW)


@pytest.fixture
def session(own_domain: str) -> Iterator[Callable[..., AckOnlyReceiver]]:
    """Makes ack-only receivers, each in a context of its own; closed at the end."""
    made: list[hf.Context] = []

    def make(**more: Any) -> AckOnlyReceiver:
        made.append(hf.Context(session_id=SESSION, name="query"))
        return AckOnlyReceiver(made[-1], "quotes", **more)

    yield make
    for ctx in made:
        ctx.close()


@pytest.fixture
def ctx(own_domain: str) -> Iterator[hf.Context]:
    with hf.Context() as context:
        yield context


def all_over(ctx: hf.Context, stores: Sequence[ThreadStore], count: int = MANY) -> list[bytes]:
    """Sources with three messages each, which are over."""
    uuids = [
        over(ctx, each + 1, stores="".join(store.store.holdings.name for store in stores)) for each in range(count)
    ]
    for store in stores:
        shelved(store, *uuids)
    return uuids


def registered(rcv: AckOnlyReceiver) -> set[bytes]:
    """The sources that it is registered with."""
    with rcv.context.turning():
        return {controller.uuid for controller in rcv.controllers}


def has_left(rcv: AckOnlyReceiver, *uuids: bytes) -> bool:
    return not rcv._all.keys() & {*uuids} and not rcv.pending


def positions(store: ThreadStore, uuids: Sequence[bytes]) -> list[list[int]]:
    """What the session has acknowledged of each, by the state of a store."""
    return [[each.ack for each in kept(store, uuid).receivers if each.session_id == SESSION] for uuid in uuids]


def owed() -> list[tuple[str, ...]]:
    """What ``holdfast store deregister --finished`` says that receivers still have to get; of what goes: that
    nobody has."""
    domain = Domain(None, join=False)
    try:
        found = candidates(domain, 0, None, force=False)
        assert all(bool(each.owed) == bool(each.keep) for each in found), [each.keep for each in found]
        return [each.owed for each in found]
    finally:
        domain.close()


def acknowledge(rcv: AckOnlyReceiver, uuids: Sequence[bytes], number: int = 3) -> None:
    for uuid in uuids:
        rcv.acknowledge_below(uuid, number)


@pytest.mark.parametrize("names", ["a", "abc"])
def test_it_stays_until_everything_is_acknowledged_and_leaves_then(
    run_store: Callable[..., ThreadStore], ctx: hf.Context, session: Callable[..., AckOnlyReceiver], names: str
) -> None:
    stores = [run_store(name, "disk") for name in names]
    uuids = all_over(ctx, stores)
    told = Told()
    rcv = session(on_event=told)
    until("registered", lambda: registered(rcv) == {*uuids})
    assert rcv.acknowledged() == dict.fromkeys(uuids, 0)
    assert owed() == [(f"session {SESSION:#x} lacks 3 numbers",)] * MANY
    acknowledge(rcv, uuids, 2)
    for _ in range(20):
        rcv.context.wake()
        assert registered(rcv) == {*uuids}, "something is not acknowledged"
    assert owed() == [(f"session {SESSION:#x} lacks 1 numbers",)] * MANY
    acknowledge(rcv, uuids)
    until("it has left", lambda: has_left(rcv, *uuids))
    for store in stores:
        shelved(store, *uuids)
        assert positions(store, uuids) == [[3]] * MANY
    assert owed() == [()] * MANY
    assert rcv.acknowledged() == dict.fromkeys(uuids, 3)
    assert len(told.of(events.RegistrationComplete)) == MANY


def test_the_next_life_leaves_alone_what_is_acknowledged(
    run_store: Callable[..., ThreadStore], ctx: hf.Context, session: Callable[..., AckOnlyReceiver]
) -> None:
    store = run_store("a", "disk")
    uuids = all_over(ctx, [store])
    rcv = session()
    acknowledge(rcv, uuids[1:])
    until("two are left", lambda: has_left(rcv, *uuids[1:]) and registered(rcv) == {uuids[0]})
    rcv.context.close()  # type: ignore[attr-defined]
    shelved(store, *uuids)
    told = Told()
    again = session(on_event=told)
    until("the other is registered with", lambda: registered(again) == {uuids[0]})
    assert again.acknowledged() == {uuids[0]: 0, uuids[1]: 3, uuids[2]: 3}
    acknowledge(again, uuids)
    until("it has left that, too", lambda: has_left(again, *uuids))
    assert len(told.of(events.RegistrationComplete)) == 1
    assert positions(store, uuids) == [[3]] * MANY


@pytest.mark.usefixtures("few")
def test_of_many_it_is_registered_with_few_at_a_time_and_has_a_position_with_each(
    run_store: Callable[..., ThreadStore],
    ctx: hf.Context,
    session: Callable[..., AckOnlyReceiver],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, count = run_store("a", "disk", **{"holdfast-scrub-interval": 0}), 20
    uuids = all_over(ctx, [store], count)
    open_, opens, most = store.store.holdings.drainer.repositories, store.store.holdings._open_again, [0]

    def open_again(source: Any, asked: bool) -> Any:
        found = opens(source, asked)
        held = {key.source for client in store.store._clients for key in client.holds}
        most[0] = max(most[0], len(held & {*open_}))
        return found

    monkeypatch.setattr(store.store.holdings, "_open_again", open_again)
    rcv = session(chosen=uuids)
    until("it has a position with each", lambda: rcv.acknowledged() == dict.fromkeys(uuids, 0))
    until("it has left most", lambda: len(rcv._all) <= FEW and not rcv.pending)
    assert positions(store, uuids) == [[0]] * count
    assert owed() == [(f"session {SESSION:#x} lacks 3 numbers",)] * count
    acknowledge(rcv, uuids, 1)
    until("it is acknowledged", lambda: positions(store, uuids) == [[1]] * count or not rcv.pending)
    until("it is in the state", lambda: [max(each) for each in positions(store, uuids)].count(1) >= count - FEW)
    assert owed() == [(f"session {SESSION:#x} lacks 2 numbers",)] * count
    acknowledge(rcv, uuids)
    until("it has left all", lambda: has_left(rcv, *uuids))
    shelved(store, *uuids)
    assert positions(store, uuids) == [[3]] * count
    assert owed() == [()] * count
    assert 0 < most[0] <= 3 * FEW, "a log is open while its source is registered with, or was a moment ago"


def test_sources_that_are_chosen_later(
    run_store: Callable[..., ThreadStore], ctx: hf.Context, session: Callable[..., AckOnlyReceiver]
) -> None:
    """A store tells of each once: of one that lives, of one that is over, and of one that was over and lived
    when it was told of."""
    store = run_store("a", "disk")
    first, second = all_over(ctx, [store], 2)
    with ctx.source("quotes", options=options(ume_session_id=9)) as src:
        everywhere(src)
        send(src, 3)
        rcv = session(chosen=())
        until("all are told of", lambda: len(rcv.finished._said) == 2 and len(rcv._passed) == 1)
        assert not rcv._all
        rcv.choose([src.uuid, second])
        until("both are registered with", lambda: registered(rcv) == {src.uuid, second})
    assert rcv.acknowledged() == {src.uuid: 0, second: 0}
    rcv.acknowledge_below(first, 3)
    assert first not in rcv.acknowledged()
    rcv.choose([first, second])
    until("it is acknowledged, and left", lambda: rcv.acknowledged().get(first) == 3 and has_left(rcv, first))
    assert positions(store, [first]) == [[3]]


def test_one_that_ends_while_it_is_there_is_left_when_all_is_acknowledged(
    run_store: Callable[..., ThreadStore], ctx: hf.Context, session: Callable[..., AckOnlyReceiver]
) -> None:
    store = run_store("a", "disk")
    rcv = session()
    uuid = over(ctx, 7)
    until("registered", lambda: rcv.acknowledged() == {uuid: 0})
    rcv.acknowledge_below(uuid, 2)
    for _ in range(20):
        rcv.context.wake()
        assert registered(rcv) == {uuid}
    assert not is_shelved(store, uuid), "its receiver holds it"
    rcv.acknowledge_below(uuid, 3)
    until("it has left", lambda: has_left(rcv, uuid))
    shelved(store, uuid)
    assert positions(store, [uuid]) == [[3]]


@pytest.mark.parametrize("seen", [True, False])
def test_a_source_that_comes_back_is_acknowledged_on(
    run_store: Callable[..., ThreadStore], ctx: hf.Context, session: Callable[..., AckOnlyReceiver], seen: bool
) -> None:
    """Also where nobody has seen its next life, or what was sent in it is acknowledged before a store tells
    of that."""
    store = run_store("a", "disk")
    (uuid,) = all_over(ctx, [store], 1)
    rcv = session()
    rcv.acknowledge_below(uuid, 3)
    until("it has left", lambda: has_left(rcv, uuid))
    shelved(store, uuid)
    with ctx.source("quotes", options=options(ume_session_id=1)) as src:
        everywhere(src)
        assert (src.uuid, src.next_sequence_number) == (uuid, 3)
        if seen:
            until("it is registered with again", lambda: registered(rcv) == {uuid})
        send(src, 2)
        rcv.acknowledge_below(uuid, 4)
        if seen:
            until("it is acknowledged", lambda: rcv.acknowledged() == {uuid: 4})
            until("it is in the state", lambda: positions(store, [uuid]) == [[4]])
    rcv.acknowledge_below(uuid, 5)
    until("it has left again", lambda: rcv.acknowledged() == {uuid: 5} and has_left(rcv, uuid))
    shelved(store, uuid)
    assert positions(store, [uuid]) == [[5]]
    assert owed() == [()]


@pytest.fixture
def unaware(
    run_store: Callable[..., ThreadStore],
    ctx: hf.Context,
    session: Callable[..., AckOnlyReceiver],
    monkeypatch: pytest.MonkeyPatch,
) -> tuple[AckOnlyReceiver, list[bytes], dict[str, ThreadStore]]:
    """What is acknowledged, as a and b know, and c, which is away, has never heard of: receiver, sources and
    stores."""
    monkeypatch.setattr(finished, "PATIENCE_NS", 0)
    stores = {name: run_store(name, "disk") for name in "abc"}
    uuids = all_over(ctx, list(stores.values()))
    stores["c"].stop()
    rcv = session()
    acknowledge(rcv, uuids)
    until("it has left", lambda: rcv.acknowledged() == dict.fromkeys(uuids, 3) and has_left(rcv, *uuids))
    return rcv, uuids, stores


def test_a_store_that_was_away_is_told_when_it_is_back(
    unaware: tuple[AckOnlyReceiver, list[bytes], dict[str, ThreadStore]], run_store: Callable[..., ThreadStore]
) -> None:
    rcv, uuids, stores = unaware
    stores["c"] = run_store("c", "disk")
    for store in stores.values():
        until("it is in the state of each", lambda store=store: positions(store, uuids) == [[3]] * MANY)  # type: ignore[misc]
        shelved(store, *uuids)
    until("it has left again", lambda: has_left(rcv, *uuids))


class Late:
    """Requests to a store that do not get there yet."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.store = ""
        self._held: list[tuple[Registrar, int]] = []
        self._ask = Registrar._ask
        monkeypatch.setattr(Registrar, "_ask", lambda registrar, index: self._asks(registrar, index))

    def _asks(self, registrar: Registrar, index: int) -> None:
        if registrar.stores[index].name == self.store:
            self._held.append((registrar, index))
        else:
            self._ask(registrar, index)

    def come(self, rcv: AckOnlyReceiver) -> None:
        """They get there."""
        self.store = ""
        with rcv.context.turning():
            for registrar, index in self._held:
                self._ask(registrar, index)


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> Late:
    return Late(monkeypatch)


def test_it_stays_until_each_store_that_has_told_of_the_source_has_granted(
    run_store: Callable[..., ThreadStore], ctx: hf.Context, session: Callable[..., AckOnlyReceiver], late: Late
) -> None:
    """A quorum will do to acknowledge, and the last one would never hear of it."""
    stores = [run_store(name, "disk") for name in "abc"]
    uuids = all_over(ctx, stores)
    late.store = "c"
    rcv = session()
    acknowledge(rcv, uuids)
    until("it is acknowledged", lambda: rcv.acknowledged() == dict.fromkeys(uuids, 3))
    for _ in range(20):
        rcv.context.wake()
        assert registered(rcv) == {*uuids}
    late.come(rcv)
    until("it has left", lambda: has_left(rcv, *uuids))
    for store in stores:
        assert positions(store, uuids) == [[3]] * MANY


def test_one_that_does_not_grant_in_time_is_told_when_it_is_linked_again(
    run_store: Callable[..., ThreadStore],
    ctx: hf.Context,
    session: Callable[..., AckOnlyReceiver],
    monkeypatch: pytest.MonkeyPatch,
    late: Late,
) -> None:
    stores = {name: run_store(name, "disk") for name in "abc"}
    uuids = all_over(ctx, list(stores.values()))
    late.store = "c"
    rcv = session()
    acknowledge(rcv, uuids)
    until("it is acknowledged", lambda: rcv.acknowledged() == dict.fromkeys(uuids, 3))
    with monkeypatch.context() as patch:
        with rcv.context.turning():
            patch.setattr(finished_source, "STANDS_NS", 0)
            rcv._leaving._due.clear()  # type: ignore[attr-defined]
        until("it has left", lambda: has_left(rcv, *uuids))
    assert positions(stores["c"], uuids) == [[]] * MANY
    late.store = ""
    stores["c"].stop()
    stores["c"] = run_store("c", "disk")
    until("it is told", lambda: positions(stores["c"], uuids) == [[3]] * MANY)
    until("it has left again", lambda: has_left(rcv, *uuids))


def test_what_too_few_stores_can_take_keeps_no_log_open_and_is_done_when_they_are_back(
    run_store: Callable[..., ThreadStore],
    ctx: hf.Context,
    session: Callable[..., AckOnlyReceiver],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stores = {name: run_store(name, "disk") for name in "abc"}
    uuids = all_over(ctx, list(stores.values()))
    stores["b"].stop()
    stores["c"].stop()
    monkeypatch.setattr(finished_source, "STANDS_NS", 0)
    monkeypatch.setattr(finished, "PATIENCE_NS", 0)
    rcv = session()
    acknowledge(rcv, uuids)
    until("it was there", lambda: rcv.finished._visits.keys() == {*uuids} and has_left(rcv, *uuids))
    shelved(stores["a"], *uuids)
    assert rcv.acknowledged() == {}
    monkeypatch.setattr(finished_source, "STANDS_NS", FOR_EVER)
    stores["b"] = run_store("b", "disk")
    until("it is acknowledged", lambda: rcv.acknowledged() == dict.fromkeys(uuids, 3) and has_left(rcv, *uuids))
    assert positions(stores["a"], uuids) == positions(stores["b"], uuids) == [[3]] * MANY


def test_a_grant_that_comes_when_it_was_given_up_goes_astray(
    run_store: Callable[..., ThreadStore],
    ctx: hf.Context,
    session: Callable[..., AckOnlyReceiver],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A store that is linked is waited for, but not for ever."""
    store = run_store("a", "disk")
    uuids = all_over(ctx, [store])
    rcv = session(chosen=())
    until("all are told of", lambda: len(rcv.finished._said) == MANY)
    held: list[tuple[StoreLink, bytes]] = []
    with monkeypatch.context() as patch:
        takes = StoreLink._take
        patch.setattr(StoreLink, "_take", lambda link, packet: held.append((link, packet)))
        patch.setattr(finished_source, "STANDS_NS", 0)
        rcv.choose(uuids)
        until("it has granted", lambda: len(held) >= MANY)
        for _ in range(20):
            rcv.context.wake()
            assert rcv._all.keys() == {*uuids}
        patch.setattr(visits, "HANGS_NS", 0)
        until("it is given up", lambda: has_left(rcv, *uuids))
    with rcv.context.turning():
        for link, packet in held:
            takes(link, packet)
    assert rcv.acknowledged() == {}
    shelved(store, *uuids)
    acknowledge(rcv, uuids)
    until("it is acknowledged", lambda: rcv.acknowledged() == dict.fromkeys(uuids, 3))


def test_a_session_that_is_held_is_refused_also_where_the_source_is_over(
    run_store: Callable[..., ThreadStore], ctx: hf.Context, session: Callable[..., AckOnlyReceiver]
) -> None:
    """Each would acknowledge what the other has not read."""
    store = run_store("a", "disk")
    uuids = all_over(ctx, [store])
    first = session()
    until("registered", lambda: first.acknowledged() == dict.fromkeys(uuids, 0))
    second = session()
    until("refused", lambda: isinstance(second.refusal(uuids), hf.RegIdInUseError))
    assert second.acknowledged() == {}
    first.context.close()  # type: ignore[attr-defined]
    until("it has the session", lambda: second.acknowledged() == dict.fromkeys(uuids, 0))


def test_it_stays_with_a_receiver_paced_source(
    run_store: Callable[..., ThreadStore],
    ctx: hf.Context,
    session: Callable[..., AckOnlyReceiver],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ack_only, "OPTIONS", {**ack_only.OPTIONS, **paced_source.BLOCKS})
    run_store("a", "disk", **{"repository-allow-receiver-paced-persistence": 1})
    given: dict[str, Any] = {**paced_source.SOURCE, "ume_session_id": 1}
    rcv = session()
    with ctx.source("quotes", options=given) as src:
        everywhere(src)
        until("registered", lambda: rcv.acknowledged() == {src.uuid: 0})
        send(src, 3)
        rcv.acknowledge_below(src.uuid, 3)
    until("the ring is gone", lambda: not rcv.ringed)
    for _ in range(20):
        rcv.context.wake()
        assert registered(rcv) == {src.uuid}
    assert rcv.acknowledged() == {src.uuid: 3}


@pytest.mark.usefixtures("few")
def test_those_that_stay_keep_no_other_out(
    run_store: Callable[..., ThreadStore], ctx: hf.Context, session: Callable[..., AckOnlyReceiver],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """It may leave none, and registers with all."""
    for module in (visits, leaving):
        monkeypatch.setattr(module, "may_be_left", lambda _: False)
    store, count = run_store("a", "disk"), 10
    uuids = all_over(ctx, [store], count)
    rcv = session()
    until("it is registered with all", lambda: registered(rcv) == {*uuids})
    acknowledge(rcv, uuids)
    assert rcv.acknowledged() == dict.fromkeys(uuids, 3)
