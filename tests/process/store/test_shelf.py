"""Logs of sources that are over are closed, and opened again for who asks (engine/store/shelf.py)."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from support.leftovers import objects_of
from support.receiving import received
from support.shelved_logs import is_shelved, kept, mapped_files, open_files, over, shelve_at_once, shelved
from support.three_stores import SHORT, SOURCE, everywhere, send
from support.workers import until

import holdfast as hf
from holdfast.engine.errors import SystemCallError
from holdfast.engine.log import stale_rings
from holdfast.engine.log.receiver_state import Acked, ReceiverState
from holdfast.engine.log.state_file import SourceState, StateFile
from holdfast.engine.memory.domain import Domain
from holdfast.engine.store import rounds, shelf
from holdfast.engine.store.holdings import Holdings

if TYPE_CHECKING:
    from collections.abc import Callable

    from process.conftest import ThreadStore

    from holdfast.engine.store.repository import Repository

ROOM_MAX = 3 * 4096
"""Bytes of disk of a log of a few short messages: its head, and of its segment the header and the frames."""


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log is shelved as soon as it may be."""
    shelve_at_once(monkeypatch)


def room(store: ThreadStore, uuid: bytes) -> int:
    log = store.store.logs / uuid.hex()
    return sum(file.stat().st_blocks * 512 for file in log.iterdir())


def boards(ctx: hf.Context) -> list[str]:
    return [name for name in objects_of(ctx.domain.path) if name.endswith(".b")]


def is_linked(ctx: hf.Context, rcv: hf.Receiver) -> None:
    """Its context has asked the store which sources there are: none."""
    assert rcv.receive(timeout=0.01) is None
    until("it is linked to the store", lambda: [link for link in ctx.store_links() if link.welcome])


def gets_the_first(rcv: hf.Receiver) -> None:
    message = rcv.receive(timeout=SHORT)
    assert message is not None
    assert bytes(message) == b"0"


@pytest.mark.parametrize("kind", ["disk", "memory"])
def test_a_source_that_is_over_costs_no_descriptor_and_little_room(
    run_store: Callable[..., ThreadStore], kind: str
) -> None:
    store = run_store("a", kind)
    with hf.Context() as ctx:
        uuids = [over(ctx, session) for session in range(1, 6)]
        shelved(store, *uuids)
        until("their boards have gone", lambda: not boards(ctx))
        assert not [path for path in [*open_files(), *mapped_files()] if any(uuid.hex() in path for uuid in uuids)]
        assert all(room(store, uuid) <= ROOM_MAX for uuid in uuids)
        assert sorted(received(ctx, "quotes", 15)) == sorted([b"0", b"1", b"2"] * 5)
        shelved(store, *uuids)


@pytest.mark.parametrize("kind", ["disk", "memory"])
def test_its_next_life_goes_on_where_it_ended(run_store: Callable[..., ThreadStore], kind: str) -> None:
    store = run_store("a", kind)
    with hf.Context() as ctx:
        uuid = over(ctx, 7)
        shelved(store, uuid)
        with ctx.source("quotes", options={**SOURCE, "ume_session_id": 7, "ume_store_name": "a"}) as src:
            everywhere(src)
            assert (src.uuid, src.next_sequence_number) == (uuid, 3)
            assert kept(store, uuid).shelved == -1
            send(src, 2)
        shelved(store, uuid)
        assert kept(store, uuid).shelved_next == 5
        assert received(ctx, "quotes", 5) == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("kind", ["disk", "memory"])
def test_a_store_that_starts_leaves_it_closed(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(rounds, "LOOKS_MAX", 0)
    store = run_store("a", kind)
    with hf.Context() as ctx:
        uuid = over(ctx, 7)
        shelved(store, uuid)
        store.stop()
        store = run_store("a", kind)
        assert list(store.store.drainer.repositories) == []
        assert received(ctx, "quotes", 3) == [b"0", b"1", b"2"]


def test_what_a_session_has_acknowledged_stays(run_store: Callable[..., ThreadStore]) -> None:
    store = run_store("a", "disk")
    with hf.Context() as ctx:
        uuid = over(ctx, 7, 5)
        assert received(ctx, "quotes", 2, ume_session_id=9) == [b"0", b"1"]
        shelved(store, uuid)
        assert [receiver.ack for receiver in kept(store, uuid).receivers] == [2]
        store.stop()
        run_store("a", "disk")
        assert received(ctx, "quotes", 3, ume_session_id=9) == [b"2", b"3", b"4"]


def test_a_log_that_a_receiver_holds_stays_open(run_store: Callable[..., ThreadStore]) -> None:
    store = run_store("a", "disk")
    with hf.Context() as ctx, ctx.receiver("quotes") as rcv:
        uuid = over(ctx, 7)
        first = rcv.receive(timeout=SHORT)
        assert first is not None
        other = over(ctx, 8)
        for _ in range(5):
            assert rcv.receive(timeout=SHORT) is not None
        looked = store.store._shelf._due_ns
        until("it was looked", lambda: store.store._shelf._due_ns > looked)
        assert {uuid, other} <= set(store.store.drainer.repositories)


def test_more_than_a_few_do_not_wait_for_their_time(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shelf, "IDLE_NS", 10**18)
    monkeypatch.setattr(shelf, "IDLE_MAX", 3)
    store = run_store("a", "disk")
    with hf.Context() as ctx:
        uuids = [over(ctx, session, 1) for session in range(1, 13)]
        shelved(store, *uuids[:9])
        assert not any(is_shelved(store, uuid) for uuid in uuids[9:])


def test_more_than_a_few_are_looked_at_before_it_is_time(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shelf, "LOOK_NS", 10**18)
    monkeypatch.setattr(shelf, "IDLE_MAX", 3)
    store = run_store("a", "disk")
    until("the first look is over", lambda: store.store._shelf._due_ns)
    looks: list[int] = []
    monkeypatch.setattr(store.store._shelf, "_put_away", lambda now_ns, _: looks.append(now_ns))
    with hf.Context() as ctx:
        for session in range(1, 5):
            over(ctx, session, 1)
        until("it was looked", lambda: looks)


def test_a_look_lists_shared_memory_once_and_shelves_a_few(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many logs are over at once: all drains wait for what is asked of each, and all clients for what
    is closed."""
    monkeypatch.setattr(shelf, "IDLE_NS", 10**18)
    monkeypatch.setattr(shelf, "AT_ONCE", 2)
    store = run_store("a", "disk")
    drainer, domain = store.store.drainer, store.store.domain
    with hf.Context() as ctx:
        uuids = [over(ctx, session, 1) for session in range(1, 8)]

        def settled(uuid: bytes) -> bool:
            repository = drainer.repositories[uuid]
            return drainer.call(lambda: drainer._is_settled(uuid) and shelf._is_over(repository, patient=True))

        until("all are over", lambda: all(settled(uuid) for uuid in uuids))
        until("nobody holds them", lambda: not any(client.holds for client in store.store._shelf._clients))
        listed: list[bytes] = []
        taken: list[tuple[int, int]] = []
        objects, take_out = domain.objects, drainer.take_out

        def list_objects(uuid: bytes = b"") -> list[Any]:
            listed.append(uuid)
            return objects(uuid)

        def take(*given: Any) -> list[Any]:
            before, found = len(listed), take_out(*given)
            taken.append((len(found), len(listed) - before))
            # Where a look has closed as many as it may, the next one is due. A log that just looks for rings
            # again waits for a later one.
            shelf.LOOK_NS = 10**18 if len(found) == shelf.AT_ONCE else 10_000_000
            return found

        monkeypatch.setattr(domain, "objects", list_objects)
        monkeypatch.setattr(drainer, "take_out", take)
        monkeypatch.setattr(shelf, "SOON_NS", 0)
        monkeypatch.setattr(shelf, "IDLE_NS", 0)
        shelved(store, *uuids)
        counts = [count for count, _ in taken]
        assert (sum(counts), max(counts)) == (len(uuids), shelf.AT_ONCE)
        assert {on_the_drain_thread for _, on_the_drain_thread in taken} == {0}


def test_a_store_that_was_away_finds_what_its_peers_have(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Source and store b had shelved it; the source lived once more while b was away."""
    looks = rounds.LOOKS_MAX
    stores = {name: run_store(name, "disk") for name in "abc"}
    with hf.Context() as ctx:
        uuid = over(ctx, 7, 3, "abc")
        shelved(stores["b"], uuid)
        stores["b"].stop()
        with ctx.source("quotes", options={**SOURCE, "ume_session_id": 7, "ume_store_name": list("abc")}) as src:
            src.wait_registered(SHORT)
            send(src, 4)
        for name in "ac":
            shelved(stores[name], uuid)
        monkeypatch.setattr(rounds, "LOOKS_MAX", 0)
        b = run_store("b", "disk")
        assert kept(b, uuid).is_shelved, "its state says nothing of that life"
        monkeypatch.setattr(rounds, "LOOKS_MAX", looks)
        until("b has it", lambda: b.store.holdings.held(kept(b, uuid)) == 7)
        shelved(b, uuid)
        assert kept(b, uuid).shelved_next == 7


@pytest.mark.parametrize("kind", ["disk", "memory"])
def test_a_log_that_was_removed_is_not_shelved(run_store: Callable[..., ThreadStore], kind: str) -> None:
    store = run_store("a", kind)
    with hf.Context() as ctx:
        uuid = over(ctx, 7)
        shelved(store, uuid)
        store.stop()
        shutil.rmtree((store.store.logs / uuid.hex()).resolve())
        again = run_store("a", kind)
        assert uuid in again.store.drainer.repositories
        assert kept(again, uuid).learner, "it knows that it has lost something"


def test_its_state_is_on_disk_with_what_it_says(run_store: Callable[..., ThreadStore]) -> None:
    store = run_store("a", "disk")
    with hf.Context() as ctx:
        uuid = over(ctx, 7)

        def said() -> list[tuple[bytes, bool, int]]:
            state = StateFile(store.store.directory.path).load()
            return [(each.uuid, each.is_shelved, each.shelved_next) for each in state.sources] if state else []

        until("it is on disk", lambda: said() == [(uuid, True, 3)])


def test_what_is_shelved_is_forgotten_when_it_is_told(run_store: Callable[..., ThreadStore]) -> None:
    """Its lifetime is over; or its source, or the operator, deregisters it."""
    store = run_store(
        "a", "disk", **{"source-state-lifetime": 50, "source-activity-timeout": 20, "source-check-interval": 5}
    )
    with hf.Context() as ctx:
        over(ctx, 7)
        received(ctx, "quotes", 3, ume_session_id=9)
        until("it is forgotten", lambda: store.store.state.sources == [] and not list(store.store.logs.iterdir()))


def test_a_receiver_of_a_shelved_source_is_forgotten_after_its_lifetime(run_store: Callable[..., ThreadStore]) -> None:
    store = run_store(
        "a", "disk", **{"receiver-state-lifetime": 50, "receiver-activity-timeout": 20, "source-check-interval": 5}
    )
    with hf.Context() as ctx:
        uuid = over(ctx, 7)
        received(ctx, "quotes", 1, ume_session_id=9)
        until("its receiver is forgotten", lambda: kept(store, uuid).receivers == [])
        shelved(store, uuid)


def test_a_shelved_log_that_cannot_be_opened_keeps_no_other_from_its_end(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "LOOKS_MAX", 0)
    store = run_store("a", "disk")
    with hf.Context() as ctx:
        damaged, whole = over(ctx, 7), over(ctx, 8)
        received(ctx, "quotes", 6, ume_session_id=9)
        shelved(store, damaged, whole)
        store.stop()
        head = store.store.logs / damaged.hex() / "head"
        head.unlink()
        head.mkdir()
        short = {"receiver-state-lifetime": 50, "receiver-activity-timeout": 20, "source-check-interval": 5}
        again = run_store("a", "disk", **short)
        until("the other's receiver is forgotten", lambda: kept(again, whole).receivers == [])
        assert len(kept(again, damaged).receivers) == 1


def test_a_round_waits_while_the_disk_is_full(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """To open a log takes room, and each of these lacks something. Each look tries one log, the next one
    another; then all are looked at."""
    monkeypatch.setattr(rounds, "LOOKS_MAX", 0)
    monkeypatch.setattr(rounds, "_is_whole", lambda _: False)
    store = run_store("a", "disk")
    with hf.Context() as ctx:
        uuids = [over(ctx, session) for session in (7, 8, 9)]
        shelved(store, *uuids)
        store.stop()
        tried: list[bytes] = []

        def is_full(_: Holdings, source: SourceState, _asked: bool) -> Repository:
            tried.append(source.uuid)
            raise SystemCallError("no room", errno.ENOSPC, "ENOSPC")

        with monkeypatch.context() as full:
            full.setattr(Holdings, "_open_again", is_full)
            again = run_store("a", "disk")
            monkeypatch.setattr(rounds, "LOOKS_MAX", 4)
            until("all were tried", lambda: len(tried) >= 6)
            assert tried[:3] == tried[3:6]
            assert set(tried) == set(uuids) == set(again.store.drainer.failures)
        until("all were looked at", lambda: again.store._shelf._rounds.is_over)
        shelved(again, *uuids)
        assert again.store.drainer.failures == {}
        assert all(room(again, uuid) <= ROOM_MAX for uuid in uuids)


@pytest.mark.parametrize(("joined_at", "free"), [(0, False), (5, True)])
def test_the_state_has_where_a_receiver_went_on_before_its_log_is_shelved(
    monkeypatch: pytest.MonkeyPatch, joined_at: int, free: bool
) -> None:
    """Also where that is farther back than what the state says: the board goes, and nobody else would
    know."""
    receiver = ReceiverState(b"r", 1, 9, 5)
    source = SourceState(b"s", "quotes", 1, 7, receivers=[receiver])
    log = SimpleNamespace(
        domain=SimpleNamespace(fd=-1), line=SimpleNamespace(receivers=dict), source=source,
        acks=lambda: ({b"r": Acked(joined_at, joined=True)}, 5),
    )  # fmt: skip
    assert shelf._is_free(cast("Repository", log)) is free


def test_a_receiver_hears_of_a_source_though_others_come_all_the_time(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = run_store("a", "disk")
    with hf.Context() as other, hf.Context() as ctx, ctx.receiver("quotes") as rcv:
        is_linked(ctx, rcv)

        def one_more() -> bool:
            ctx.discovery.seen += 1
            return False

        monkeypatch.setattr(ctx.discovery, "refresh", one_more)
        shelved(store, over(other, 7, 1))
        gets_the_first(rcv)


def test_a_receiver_that_has_not_seen_the_board_hears_of_the_source(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Source, ring and board come and go between two looks of its context."""
    store = run_store("a", "disk")
    with hf.Context() as other, hf.Context() as ctx, ctx.receiver("quotes") as rcv:
        is_linked(ctx, rcv)
        looks = ctx.discovery.refresh
        monkeypatch.setattr(ctx.discovery, "refresh", lambda: False)
        shelved(store, over(other, 7, 1))
        until("its board has gone", lambda: not boards(ctx))
        monkeypatch.setattr(ctx.discovery, "refresh", looks)
        gets_the_first(rcv)


def test_a_board_stays_whose_acknowledgements_another_store_has_not_taken_in(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A receiver came back while a was away; b and c were killed before they saved its acks, and have left
    the log closed. a has never heard of that receiver."""
    monkeypatch.setattr(rounds, "LOOKS_MAX", 0)
    stores = {name: run_store(name, "disk", **{"source-check-interval": 10**9}) for name in "abc"}
    with hf.Context() as ctx:
        uuid = over(ctx, 7, 5, "abc")
        for store in stores.values():
            shelved(store, uuid)
        stores["a"].stop()
        assert received(ctx, "quotes", 1, ume_session_id=9) == [b"0"]
        for name in "bc":
            shelved(stores[name], uuid)
    with monkeypatch.context() as killed, hf.Context() as ctx:
        for name in "bc":
            killed.setattr(stores[name].store._shelf, "turn", lambda: None)
            killed.setattr(stores[name].store.holdings, "save", lambda **_: None)
        assert received(ctx, "quotes", 2, ume_session_id=9) == [b"1", b"2"]
        for name in "bc":
            stores[name].stop()
    for name in "bc":
        again = run_store(name, "disk")
        assert is_shelved(again, uuid)
        assert [receiver.ack for receiver in kept(again, uuid).receivers] == [1]
        monkeypatch.setattr(again.store._shelf._rounds, "turn", lambda _: None)
    looked: list[bytes] = []
    remove = shelf.Shelf._remove_board

    def remove_board(self: shelf.Shelf, source: SourceState) -> None:
        remove(self, source)
        looked.append(source.uuid)

    monkeypatch.setattr(shelf.Shelf, "_remove_board", remove_board)
    monkeypatch.setattr(rounds, "LOOKS_MAX", 4)
    assert kept(run_store("a", "disk"), uuid).receivers == []
    until("a has looked at the board", lambda: uuid in looked)
    with hf.Context() as ctx:
        assert received(ctx, "quotes", 2, ume_session_id=9) == [b"3", b"4"]


def test_a_ring_that_a_store_may_lack_is_not_removed_with_the_board(
    own_domain: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A board alone goes; where a ring lies beside it, both stay, though nobody lives who has them."""
    monkeypatch.setattr(stale_rings, "_in_use", lambda _, item: False)
    domain = Domain(own_domain)
    try:
        uuid = bytes(range(16))
        for name in (domain.board_name(uuid), domain.stream_name(uuid, 1)):
            Path("/dev/shm", name).write_bytes(bytes(4096))
        before = domain.removals()
        stale_rings.unlink_unused(domain, uuid, kept=True)
        assert len(domain.objects(uuid)) == 2
        Path("/dev/shm", domain.stream_name(uuid, 1)).unlink()
        stale_rings.unlink_unused(domain, uuid, kept=True)
        assert (domain.objects(uuid), domain.removals()) == ([], before + 1)
    finally:
        domain.close()


def test_what_begins_later_takes_it_down_whatever_a_crash_leaves() -> None:
    """The state was saved by the BEGIN, and not again."""
    source = SourceState(bytes(16), "quotes", 7, 7, incarnation=2, shelved=2)
    assert source.is_shelved
    source.begin(3, 5)
    assert (source.shelved, source.is_shelved) == (2, False)
