"""Who has a say in where a source begins, and a receiver: stores that have forgotten something have not
(docs/design.md 13 to 15)."""

from __future__ import annotations

import itertools
import shutil
from typing import TYPE_CHECKING

import msgspec
import pytest
from support.handmade_feed import Log
from support.kept_messages import kept, log_of
from support.recorded_events import Events
from support.three_stores import SHORT, SOURCE, everywhere, hide_peers, send, waits
from support.workers import until

import holdfast as hf
from holdfast.engine.memory.domain import Domain, unlink_object
from holdfast.engine.native.core import lib
from holdfast.engine.receiver.delivery_controller import DeliveryController
from holdfast.engine.receiver.registrar import Registrar

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from process.conftest import ThreadStore


def test_what_was_acknowledged_under_a_begin_that_a_store_missed_counts_there_too(
    run_store: Callable[..., ThreadStore], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores = {name: run_store(name, "disk") for name in "abc"}
    with hf.Context(session_id=7) as ctx:
        rcv = ctx.receiver("quotes", options={"ume_registration_interval": 100})
        for count in (5, 10, 10):
            with ctx.source("quotes", options=SOURCE) as src:
                src.wait_registered(SHORT)
                if count == 5:
                    everywhere(src)  # c, too
                for number, _ in send(src, count):
                    with rcv.receive(SHORT) as message:  # type: ignore[union-attr]  # it comes
                        assert message.sequence_number == number
            if count == 5:
                stores["c"].stop()
    stores["a"].stop()
    # c cannot learn what it has missed
    hide_peers(monkeypatch, stores["c"].store.state.uuid, tmp_path / "hidden")
    stores["c"] = run_store("c", "disk")
    events = Events()
    with hf.Context(session_id=7) as ctx:
        ctx.receiver("quotes", options={"ume_registration_interval": 100}, on_event=events)
        assert events.wait("RegistrationComplete").sequence_number == 25


def test_what_a_store_took_for_the_start_of_a_receiver_counts_for_less_than_what_that_said_itself(
    run_store: Callable[..., ThreadStore],
) -> None:
    """The store heard of it late, and kept nothing below 9; it had begun with what another store kept."""
    store = run_store("a")
    with hf.Context(session_id=7) as ctx:
        src = ctx.source("quotes", options={**SOURCE, "ume_store_name": ["a"]})
        src.wait_registered(SHORT)
        send(src, 10)
        with ctx.receiver("quotes") as rcv:
            for _ in range(3):
                with rcv.receive(SHORT) as message:  # type: ignore[union-attr]  # it comes
                    last = message.sequence_number
        (receiver,) = store.store.state.sources[0].receivers
        until("its acks are in the state", lambda: receiver.ack == last + 1)
        receiver.ack = 9
        events = Events()
        ctx.receiver("quotes", on_event=events)
        assert events.wait("RegistrationComplete").sequence_number == last + 1


def rings(domain: Domain) -> list[str]:
    return [item.name for item in domain.objects() if item.kind == "stream"]


def take(rcv: hf.Receiver, count: int) -> None:
    for number in range(count):
        with rcv.receive(SHORT) as message:  # type: ignore[union-attr]  # it comes
            assert message.sequence_number == number


def test_where_a_receiver_joined_is_in_the_state_also_where_that_knew_more(
    run_store: Callable[..., ThreadStore],
) -> None:
    """The board is gone after a reboot, and with it what says so."""
    store = run_store("a")
    with hf.Context(session_id=7) as ctx:
        src = ctx.source("quotes", options={**SOURCE, "ume_store_name": ["a"]})
        src.wait_registered(SHORT)
        send(src, 10)
        with ctx.receiver("quotes") as rcv:
            take(rcv, 3)
        (receiver,) = store.store.state.sources[0].receivers
        until("its acks are in the state", lambda: receiver.ack == 3 and receiver.joined)
        receiver.ack = 9  # as if the store had heard of it late
        until("it is put right", lambda: receiver.ack == 3)


def test_what_was_granted_to_a_life_that_never_joined_decides_nothing(run_store: Callable[..., ThreadStore]) -> None:
    """b heard of it late, and kept nothing below 9; that life died before b had heard by which name a knows
    it."""
    stores = {name: run_store(name) for name in "ab"}
    with hf.Context(session_id=7) as ctx:
        src = ctx.source("quotes", options={**SOURCE, "ume_store_name": ["a", "b"]})
        src.wait_registered(SHORT)
        send(src, 10)
        with ctx.receiver("quotes") as rcv:
            take(rcv, 3)
        known = [stores[name].store.state.sources[0].receivers[0] for name in "ab"]
        until("its acks are in both states", lambda: [each.ack for each in known] == [3, 3])
        identity = known[0].uuid
        known[1].uuid, known[1].ack, known[1].joined = b"n" * 16, 9, False
        events = Events()
        ctx.receiver("quotes", options={"ume_consensus_sequence_number_behavior": "highest"}, on_event=events)
        assert events.wait("RegistrationComplete").sequence_number == 3
        assert [each.uuid for each in known] == [identity, identity]


def test_what_a_receiver_has_acknowledged_was_there_also_where_a_log_is_behind(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not beyond the newest number: the store that answers has still to read it from another one."""
    run_store("a")
    with hf.Context(session_id=7) as ctx:
        src = ctx.source("quotes", options={**SOURCE, "ume_store_name": ["a"]})
        src.wait_registered(SHORT)
        send(src, 10)
        with ctx.receiver("quotes") as rcv:
            take(rcv, 8)
        answers = Registrar.answers
        behind = lambda self: [msgspec.structs.replace(one, high_sqn=5) for one in answers(self)]  # noqa: E731
        monkeypatch.setattr(Registrar, "answers", behind)
        monkeypatch.setattr(DeliveryController, "_ring", lambda _: None)  # no ring says more
        events = Events()
        ctx.receiver("quotes", on_event=events)
        assert events.wait("RegistrationComplete").sequence_number == 8


def test_two_wiped_stores_wait_for_the_third_and_say_so(
    run_store: Callable[..., ThreadStore], wipe: Callable[[str], None]
) -> None:
    stores = {name: run_store(name, "disk") for name in "abc"}
    with hf.Context(session_id=7) as ctx:
        with ctx.source("quotes", options=SOURCE) as src:
            everywhere(src)
            sent = send(src, 50)
        for name in "abc":
            stores[name].stop()
            wipe(name)
        for name in "ab":
            stores[name] = run_store(name, "disk")
        with ctx.source("quotes", options=SOURCE) as src:
            waits(src, "a, b have no state .* c, which may have, is not there")
            wipe("c")
            stores["c"] = run_store("c", "disk")
            src.wait_registered(SHORT)
            assert src.next_sequence_number == 50
            sent += send(src, 10)
            until("all have it all", lambda: all(kept(stores[name]) == sent for name in "abc"))


@pytest.mark.parametrize("lost", ["backup", "logs", "memory"])
def test_a_store_that_lost_what_it_had_decides_nothing_and_learns(
    run_store: Callable[..., ThreadStore], wipe: Callable[[str], None], tmp_path: Path, own_domain: str, lost: str
) -> None:
    """5..9 are stable at b and c. b is then a backup from before, or has its state but no logs; c comes last.

    ``memory``: the board is gone, too, as after a reboot.
    """
    stores = {name: run_store(name, "disk") for name in "abc"}
    here, backup = tmp_path / "store-b", tmp_path / "backup"
    with hf.Context(session_id=7) as ctx:
        with ctx.source("quotes", options={**SOURCE, "ume_retention_intragroup_stability_behavior": "all"}) as src:
            src.wait_registered(SHORT)
            sent = send(src, 5)
        for name in "ab":
            stores[name].stop()
        shutil.copytree(here, backup)
        stores["b"] = run_store("b", "disk")
        with ctx.source("quotes", options=SOURCE) as src:
            src.wait_registered(SHORT)
            sent += send(src, 5)
        until("no ring is left: it would have all that c has", lambda: not rings(ctx.domain))
        for name in "bc":
            stores[name].stop()
        wipe("c")
        if lost == "backup":
            shutil.rmtree(here)
            backup.rename(here)
        else:
            shutil.rmtree(here / "logs")
        if lost == "memory":
            domain = Domain(own_domain)
            for item in domain.objects():
                unlink_object(item.name)
            domain.close()
        for name in "ab":
            stores[name] = run_store(name, "disk")
        (repository,) = stores["b"].store.drainer.repositories.values()
        until("b has what a has", lambda: repository.catch_up is None)
        assert not repository.caught_up, "c, whose files cannot be read, may have more"
        with ctx.source("quotes", options=SOURCE) as src:
            waits(src, "b has no state of it, or not all")
            wipe("c")
            stores["c"] = run_store("c", "disk")
            src.wait_registered(SHORT)
            assert src.next_sequence_number == 10
            sent += send(src, 5)
            until("all have it all", lambda: all(kept(stores[name]) == sent for name in "abc"))
        (source,) = stores["b"].store.state.sources
        until("it has a say again", lambda: not source.learner)


def test_a_backup_shows_after_a_reboot_also_where_it_is_opened_as_often_as_what_it_replaces(
    run_store: Callable[..., ThreadStore], wipe: Callable[[str], None], tmp_path: Path, own_domain: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The board, which says what the store acknowledged, is gone; its peers remember in which life they met
    it."""
    steps = itertools.count()  # its life has a greater number than that one
    monkeypatch.setattr("holdfast.engine.log.state_file.secrets.randbelow", lambda _: next(steps))
    stores = {name: run_store(name, "disk") for name in "abc"}
    here, backup = tmp_path / "store-b", tmp_path / "backup"
    with hf.Context(session_id=7) as ctx:
        with ctx.source("quotes", options=SOURCE) as src:
            everywhere(src)
            sent = send(src, 5)
            until("b has it", lambda: kept(stores["b"]) == sent)
        stores["b"].stop()
        shutil.copytree(here, backup)
        stores["b"] = run_store("b", "disk")
        # It waits for all three: a life is told by the BEGIN that follows its grant
        # (engine/log/state_file.py, lives).
        with ctx.source("quotes", options={**SOURCE, "ume_registration_interval": 60_000}) as src:
            src.wait_registered(SHORT)
            sent += send(src, 5)
            until("all have it all", lambda: all(kept(stores[name]) == sent for name in "abc"))
        for name in "abc":
            stores[name].stop()
        shutil.rmtree(here)
        backup.rename(here)
        wipe("c")
    domain = Domain(own_domain)
    for item in domain.objects():
        unlink_object(item.name)
    domain.close()
    for name in "ab":
        stores[name] = run_store(name, "disk")
    with hf.Context(session_id=7) as ctx, ctx.source("quotes", options=SOURCE) as src:
        waits(src, "b has no state of it, or not all; c, which may have")
        wipe("c")
        stores["c"] = run_store("c", "disk")
        src.wait_registered(SHORT)
        assert src.next_sequence_number == 10


def test_a_store_that_was_away_for_several_incarnations_keeps_nothing_that_they_made_void(
    run_store: Callable[..., ThreadStore], wipe: Callable[[str], None], tmp_path: Path
) -> None:
    """c alone has 45..60 of incarnation 1, and cannot be read when incarnation 2 begins at 45; 3 begins at
    80."""
    stores = {name: run_store(name, "disk") for name in "abc"}
    sent: list[tuple[int, bytes]] = []
    with hf.Context(session_id=7) as ctx:
        for count in (45, 35, 10):
            with ctx.source("quotes", options=SOURCE) as src:
                src.wait_registered(SHORT)
                if count == 45:
                    everywhere(src)  # c, too
                assert src.next_sequence_number == len(sent)
                sent += send(src, count)
            if count == 45:
                until("c has it", lambda: len(kept(stores["c"])) == 45)
                stores["c"].stop()
                path = log_of(tmp_path / "store-c")
                log = Log(path, bytes.fromhex(path.name), level=lib.HF_LEVEL_DISK)
                log.append(45, *([b"old %d" % number] for number in range(45, 61)))
                log.close()
                wipe("c")
        wipe("c")
        assert len(kept(tmp_path / "store-c")) == 61
        stores["c"] = run_store("c", "disk")
        with ctx.source("quotes", options=SOURCE) as src:
            src.wait_registered(SHORT)
            sent += send(src, 5)
            until("c has it all", lambda: kept(stores["c"]) == sent)
    (source,) = stores["c"].store.state.sources
    assert source.begins == [(1, 0), (2, 45), (3, 80), (4, 90)]
