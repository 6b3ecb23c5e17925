"""RegIDs, sessions and their holders, with real stores and real deaths (docs/semantics.md A.2 to A.4, B.5,
B.6)."""

from __future__ import annotations

import os
import shutil
import time
from typing import TYPE_CHECKING

import pytest
from support.recorded_events import Events
from support.three_stores import everywhere
from support.workers import until

import holdfast as hf
from holdfast.engine.rules import registration

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from process.conftest import ThreadStore

SHORT = 90.0
SOURCE = {"ume_store_name": ["a:0:0"], "ring_size": 1 << 17, "fragment_size": 4096}
THREE = {**SOURCE, "ume_store_name": ["a", "b", "c"], "ume_registration_interval": 100}


def source(ctx: hf.Context, topic: str = "quotes", **options: object) -> hf.Source:
    return ctx.source(topic, options={**SOURCE, **options})


# Numbers and sessions: A.2, A.3 -----------------------------------------------------------------------------


def test_assigned_reg_ids_are_a_series_from_a_random_seed(run_store: Callable[..., ThreadStore]) -> None:
    run_store("a")
    run_store("b")
    with hf.Context() as ctx:
        sources = [source(ctx, f"t{i}", ume_store_name=["a", "b"]) for i in range(3)]
        for each in sources:
            each.wait_registered(SHORT)
        numbers = {name: sorted(each.registration_ids[name] for each in sources) for name in "ab"}
    for first, second, third in numbers.values():
        assert 0 < first < 2**32
        assert (second, third) == (first + 1, first + 2)
    assert numbers["a"] != numbers["b"], "2^-31 that two seeds are the same"


def test_sessions_survive_the_store_and_each_role_topic_and_source_has_its_own(
    run_store: Callable[..., ThreadStore],
) -> None:
    store = run_store("a", "disk")
    seen = []
    for _ in range(2):
        with hf.Context(session_id=0x2A) as ctx, hf.Context(session_id=0x2B) as other:
            found = [
                source(ctx, "quotes"), source(ctx, "trades"), source(other, "quotes"),
                source(ctx, "quotes", ume_session_id=0x2C),
            ]  # fmt: skip
            for each in found:
                each.wait_registered(SHORT)
                each.send(b"x")
            numbers = [each.registration_ids["a"] for each in found]
            for session in (0x2A, 0x2B):
                events = Events()
                ctx.receiver("quotes", options={"ume_session_id": session}, on_event=events)
                events.wait("RegistrationSuccess", 3)
                by_source = sorted(
                    (each.source_registration_id, each.receiver_registration_id)
                    for each in events.of("RegistrationSuccess")
                )
                numbers += [own for _, own in by_source]
        assert len(set(numbers)) == len(numbers) == 10
        seen.append(numbers)
        store.stop()
        store = run_store("a", "disk")
    assert seen[0] == seen[1], "the same numbers after a restart of store and clients"


def test_the_flag_old_and_the_numbers_of_each_event(run_store: Callable[..., ThreadStore]) -> None:
    """B.5, B.6: OLD, and what the sequence number of each registration event says."""
    run_store("a")
    seen = []
    for _ in range(2):
        with hf.Context(session_id=9) as ctx:
            sending, receiving = Events(), Events()
            src = ctx.source("quotes", options=SOURCE, on_event=sending)
            src.wait_registered(SHORT)
            for i in range(5):
                src.send(b"%d" % i)
            src.wait_stable(timeout=SHORT)
            rcv = ctx.receiver("quotes", on_event=receiving)
            for _ in range(3):
                message = rcv.receive(timeout=SHORT)
                assert message is not None
                message.release()
            success, complete = sending.wait("RegistrationSuccess"), sending.wait("RegistrationComplete")
            got, ready = receiving.wait("RegistrationSuccess"), receiving.wait("RegistrationComplete")
        seen.append(
            [int(success.flags), success.sequence_number, complete.sequence_number, int(got.flags), got.sequence_number,
             ready.sequence_number]
        )  # fmt: skip
        assert got.src_session_id == ready.src_session_id == 9
        assert got.source_registration_id == success.registration_id
    src_sid = int(hf.events.receiver.RegistrationSuccessFlags.SRC_SID)
    assert seen == [[0, 0, 0, src_sid, 0, 0], [1, 5, 5, src_sid | 1, 3, 3]]


def test_with_a_session_id_a_reg_id_is_ignored_and_the_log_says_so(
    run_store: Callable[..., ThreadStore], caplog: pytest.LogCaptureFixture
) -> None:
    run_store("a")
    caplog.set_level("INFO", logger="holdfast")
    with hf.Context(session_id=0x2A) as ctx:
        src = source(ctx, ume_store_name=["a:77"])
        src.wait_registered(SHORT)
        assert src.registration_ids["a"] != 77
        assert "session ID 0x2a is in force" in caplog.text
        caplog.clear()
        events = Events()
        ctx.receiver("quotes", options={"ume_registration_extended_function": lambda _: 78}, on_event=events)
        assert events.wait("RegistrationSuccess").receiver_registration_id != 78
        assert "session ID 0x2a is in force" in caplog.text


def test_a_given_reg_id_is_the_one_that_is_held(run_store: Callable[..., ThreadStore]) -> None:
    run_store("a")
    with hf.Context() as ctx:
        src = source(ctx, ume_store_name=["a:77"])
        src.wait_registered(SHORT)
        assert src.registration_ids == {"a": 77}
        events = Events()
        ctx.receiver("quotes", options={"ume_registration_extended_function": lambda _: 300}, on_event=events)
        assert events.wait("RegistrationSuccess").receiver_registration_id == 300


def test_the_other_roles_number_is_refused_with_its_holder(run_store: Callable[..., ThreadStore]) -> None:
    run_store("a")
    with hf.Context() as ctx:
        before = time.time()
        src = source(ctx, ume_store_name=["a:77"])
        src.wait_registered(SHORT)
        events = Events()
        ctx.receiver("quotes", options={"ume_registration_extended_function": lambda _: 77}, on_event=events)
        error = events.wait("RegistrationError")
        assert "RegID 77 is in use by a source" in error.text
        assert error.pid == os.getpid()
        assert before - 1 < error.since <= time.time()
        ctx.receiver("quotes", options={"ume_registration_extended_function": lambda _: 300}, on_event=events)
        events.wait("RegistrationSuccess")
        with pytest.raises(hf.RegIdInUseError) as raised:
            source(ctx, "trades", ume_store_name=["a:300"]).wait_registered(SHORT)
        assert raised.value.pid == os.getpid()


@pytest.mark.parametrize(("topic", "text"), [("trades", "src topic does not match"), ("quotes", "RegID mismatch")])
def test_what_contradicts_the_state_is_an_error_not_a_timeout(
    run_store: Callable[..., ThreadStore], topic: str, text: str
) -> None:
    run_store("a")
    with hf.Context() as ctx:
        src = source(ctx, ume_session_id=0x2A)
        src.wait_registered(SHORT)
        number = src.registration_ids["a"]
        src.close()
        with pytest.raises(hf.RegistrationError, match=text) as raised:
            source(ctx, topic, ume_store_name=[f"a:{number}"]).wait_registered(SHORT)
        assert not isinstance(raised.value, hf.RegIdInUseError)


@pytest.mark.parametrize("value", [-1, 2**32, "7", 2**80])
def test_a_receiver_that_asks_for_an_impossible_number_fails(
    run_store: Callable[..., ThreadStore], value: object
) -> None:
    run_store("a")
    with hf.Context() as ctx:
        source(ctx).wait_registered(SHORT)
        rcv = ctx.receiver("quotes", options={"ume_registration_extended_function": lambda _: value})
        with pytest.raises(hf.RegistrationError, match="RegID"):
            rcv.receive(timeout=SHORT)


# The store comes back ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("session", [0, 0x2A])
def test_live_objects_keep_their_registration_over_a_restart_of_the_store(
    run_store: Callable[..., ThreadStore], session: int
) -> None:
    store = run_store("a")
    with hf.Context(session_id=session) as ctx:
        sending, receiving = Events(), Events()
        src = ctx.source("quotes", options=SOURCE, on_event=sending)
        src.wait_registered(SHORT)
        rcv = ctx.receiver("quotes", on_event=receiving)
        receiving.wait("RegistrationComplete")
        store.stop()
        until("the source has noticed", lambda: not may_send(src))
        store = run_store("a")
        again, of_receiver = sending.wait("RegistrationSuccess", 2), receiving.wait("RegistrationSuccess", 2)
        assert again.registration_id == sending.of("RegistrationSuccess")[0].registration_id
        assert again.flags == hf.events.source.RegistrationSuccessFlags.OLD
        first = receiving.of("RegistrationSuccess")[0]
        assert of_receiver.receiver_registration_id == first.receiver_registration_id
        src.wait_registered(SHORT)
        src.send(b"x")
        assert rcv.receive(timeout=SHORT) is not None
    (kept,) = store.store.state.sources
    until("none is left that nobody keeps", lambda: len(kept.receivers) <= bool(session))
    assert len(kept.receivers) == bool(session), "no second state of the same object"


def test_a_store_that_knew_nothing_takes_over_the_identity_that_the_others_know(
    run_store: Callable[..., ThreadStore], tmp_path: Path
) -> None:
    stores = {name: run_store(name) for name in "abc"}
    for wiped in (False, True):
        if wiped:
            stores["c"].stop()
            shutil.rmtree(tmp_path / "store-c")
            stores["c"] = run_store("c")
        with hf.Context(session_id=0x2A) as ctx:
            src = ctx.source("quotes", options={**THREE, "ume_registration_interval": 1000})
            everywhere(src)
            src.send(b"x")
            src.wait_stable(timeout=SHORT)
    known = [store.store.state.sources for store in stores.values()]
    assert [len(sources) for sources in known] == [1, 1, 1]
    assert len({sources[0].uuid for sources in known}) == 1
    for store in stores.values():
        assert [path.name for path in store.store.logs.iterdir()] == [known[0][0].uuid.hex()]


def test_a_store_that_meets_a_receiver_late_takes_over_the_identity_that_the_others_know(
    run_store: Callable[..., ThreadStore],
) -> None:
    """It finds by it on the board what was acknowledged while it was away, and nothing is delivered again."""
    stores = {name: run_store(name) for name in "abc"}
    with hf.Context() as ctx:
        src = source(ctx, ume_store_name=list("abc"), ume_registration_interval=100)
        everywhere(src)
        stores["c"].stop()
        for number in range(5):
            src.send(b"%d" % number)
        src.wait_stable(timeout=SHORT)
        for away, expected in (("c", range(5)), ("a", [5])):
            stores[away].stop()
            with (
                hf.Context(session_id=0x77) as own,
                own.receiver("quotes", options={"ume_registration_interval": 100}) as rcv,
            ):
                for number in expected:
                    message = rcv.receive(timeout=SHORT)
                    assert message is not None
                    with message:
                        assert message.sequence_number == number
            if away == "c":
                stores["c"] = run_store("c")
                until("c takes part", lambda: src.stats().stores["c"].state == "active")
                src.send(b"5")
                src.wait_stable(timeout=SHORT)
        (known,), (late,) = (stores[name].store.state.sources[0].receivers for name in "bc")
        until("its ack is kept", lambda: late.ack == 6)
        assert late.uuid == known.uuid


def test_a_store_where_the_session_began_by_itself_says_what_to_do(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes no part, says so once, and takes part when the operator has done as it says."""
    monkeypatch.setattr(registration, "TELL_AGAIN", 10**6)  # however slow: it is not yet time to tell it again
    for name in "abc":
        run_store(name)
    with hf.Context(session_id=0x2A) as ctx:
        for stores in ("a", "bc", "bc"):
            src = source(ctx, ume_store_name=list(stores))
            src.wait_registered(SHORT)
            src.send(b"x")
            src.wait_stable(timeout=SHORT)
            src.close()
        events = Events()
        src = ctx.source("quotes", options=THREE, on_event=events)
        src.wait_registered(SHORT)
        assert src.next_sequence_number == 2
        error = events.wait("RegistrationError")
        assert error.store == "a"
        assert "another source than at the other stores" in error.text
        assert "session ID 0x2a" in error.text
        assert "deregister()" in error.text
        asked = src._session.machine.entries[0]
        for _ in range(3):
            last = asked.asked_ns
            until("a is asked again", lambda: asked.asked_ns != last)  # noqa: B023
        assert len(events.of("RegistrationError")) == 1
        assert len(events.of("RegistrationSuccess")) <= 3, "each store granted once"
        with hf.Context(session_id=0x2A) as operator:
            done = Events()
            alone = operator.source("quotes", options=SOURCE, on_event=done)
            alone.wait_registered(SHORT)
            alone.deregister()
            done.wait("DeregistrationComplete")
        until("a takes part", lambda: src.stats().stores["a"].state == "active")
        assert src.next_sequence_number == 2


def test_a_store_where_a_claimant_began_that_sent_nothing_takes_part_for_the_one_that_did(
    run_store: Callable[..., ThreadStore],
) -> None:
    """What it began for is gone, and no store has ever had a message of it. One that cannot be asked may
    have."""
    stores = {name: run_store(name, "disk") for name in "abcd"}
    with hf.Context(session_id=0x2A) as ctx:
        for names in ("ad", "bc", "bc"):
            src = source(ctx, ume_store_name=list(names))
            src.wait_registered(SHORT)
            if names != "ad":
                src.send(b"x")
                src.wait_stable(timeout=SHORT)
            src.close()
        (nothing,) = stores["a"].store.state.sources
        until("its ring is gone", lambda: not stores["a"].store.domain.objects(nothing.uuid)[1:])
        directory = stores["d"].store.directory.path
        stores["d"].stop()
        away = directory.rename(directory.with_name("away"))
        events = Events()
        src = ctx.source("quotes", options=THREE, on_event=events)
        src.wait_registered(SHORT)
        assert "another source than at the other stores" in events.wait("RegistrationError").text
        asked = src._session.machine.entries[0]
        for _ in range(3):
            last = asked.asked_ns
            until("a is asked again", lambda: asked.asked_ns != last)  # noqa: B023
        assert [kept.uuid for kept in stores["a"].store.state.sources] == [nothing.uuid], "d may have had something"
        away.rename(directory)
        until("a takes part", lambda: src.stats().stores["a"].state == "active")
        assert src.next_sequence_number == 2
        assert [kept.uuid for kept in stores["a"].store.state.sources] == [src._session.machine.uuid]


def test_a_closed_source_holds_nothing_where_it_took_no_part(run_store: Callable[..., ThreadStore]) -> None:
    """It goes by another identity than it was granted, or than it proposed, there."""
    stores = {name: run_store(name) for name in "abc"}
    with hf.Context(session_id=0x2A) as ctx:
        for names in ("a", "bc", "bc", "abc"):
            src = source(ctx, ume_store_name=list(names))
            src.wait_registered(SHORT)
            src.send(b"x")
            src.close()
        clients = [client for store in stores.values() for client in store.store._clients]
        until("all holds are gone", lambda: not any(client.holds for client in clients))


def may_send(src: hf.Source) -> bool:
    try:
        src.wait_registered(0)
    except hf.Error:
        return False
    return True


# Where a new receiver starts: F.1 ---------------------------------------------------------------------------


@pytest.mark.parametrize(("rollback", "start"), [(2**31 - 1, 0), (100, 0), (10, 0), (9, 1), (3, 7), (1, 9)])
def test_f1_a_new_receiver_starts_at_most_so_far_back(
    run_store: Callable[..., ThreadStore], rollback: int, start: int
) -> None:
    run_store("a", **{"receiver-new-registration-rollback": rollback})
    with hf.Context(session_id=5) as ctx:
        src = source(ctx)
        src.wait_registered(SHORT)
        for i in range(10):
            src.send(b"%d" % i)
        src.wait_stable(timeout=SHORT)
        for expected in (start, max(start, 10 - rollback)):
            events = Events()
            rcv = ctx.receiver("quotes", on_event=events)
            assert events.wait("RegistrationSuccess").sequence_number == expected
            assert events.wait("RegistrationComplete").sequence_number == expected
            message = rcv.receive(timeout=SHORT)
            assert message is not None
            assert message.sequence_number == expected
            rcv.close()


def test_f1_the_rollback_also_caps_a_receiver_that_comes_back(run_store: Callable[..., ThreadStore]) -> None:
    store = run_store("a")
    with hf.Context(session_id=5) as ctx:
        src = source(ctx)
        src.wait_registered(SHORT)
        src.send(b"0")
        rcv = ctx.receiver("quotes")
        assert rcv.receive(timeout=SHORT) is not None
        rcv.close()
        for i in range(1, 10):
            src.send(b"%d" % i)
        src.wait_stable(timeout=SHORT)
        store.stop()
        run_store("a", **{"receiver-new-registration-rollback": 4})
        src.wait_registered(SHORT)
        events = Events()
        ctx.receiver("quotes", on_event=events)
        success = events.wait("RegistrationSuccess")
        assert success.sequence_number == 6
        assert success.flags & hf.events.receiver.RegistrationSuccessFlags.OLD
