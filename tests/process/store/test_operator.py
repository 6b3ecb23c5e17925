"""What an operator does to a running store: `holdfast store deregister` and `mark` (docs/semantics.md F.7,
I.4, I.8, N 29)."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

import pytest
from support.claimant_process import Claimant
from support.receiving import SHORT, send, source, take, until_no_ring
from support.recorded_events import Events
from support.workers import until

import holdfast as hf
from holdfast.cli.operate import deregister, mark, numbers
from holdfast.engine.control import wire
from holdfast.engine.control.request import FIRST, ask
from holdfast.engine.log.state_file import ReceiverState, StateFile

if TYPE_CHECKING:
    from collections.abc import Callable

    from process.conftest import ThreadStore

FAST: dict[str, Any] = {"ring_size": 1 << 17, "fragment_size": 4096}


def regid(src: hf.Source, store: str = "a") -> int:
    return src.registration_ids[store]


def recovered() -> list[int]:
    """What a new receiver gets from the stores, in this process; the source must be closed, so that nothing
    comes from a ring."""
    with hf.Context() as ctx:
        until_no_ring(ctx.domain)
        events = Events()
        rcv = ctx.receiver("quotes", on_event=events)
        found = []
        while not events.of("EndOfStream"):
            message = rcv.receive(timeout=0.05)
            if message is not None:
                found.append(message.sequence_number)
                message.release()
        return found


def refused(src: hf.Source) -> bool:
    """A send says that there is no quorum."""
    try:
        src.send(b"more", timeout=SHORT)
    except hf.QuorumLostError:
        return True
    return False


# Deregistration ---------------------------------------------------------------------------------------------


def test_a_source_that_nobody_holds_is_forgotten_with_its_messages(
    run_store: Callable[..., ThreadStore], capsys: pytest.CaptureFixture[str]
) -> None:
    store = run_store()
    with hf.Context(session_id=5) as ctx:
        src = source(ctx, 10)
        identity = regid(src)
    assert deregister("a", identity, 0, False, SHORT, None) == 0
    assert "up to number 9" in capsys.readouterr().out
    assert store.store.state.sources == []
    assert list(store.store.logs.iterdir()) == []
    with hf.Context(session_id=5) as ctx:
        assert source(ctx).next_sequence_number == 0


def test_a_source_that_a_living_process_holds_is_not_taken_from_it_and_the_process_is_named(
    run_store: Callable[..., ThreadStore],
) -> None:
    run_store()
    claimant = Claimant(session=42, ume_store_name=["a"], **FAST)
    try:
        identity = int(claimant.expect("granted")[1])
        with pytest.raises(hf.RegIdInUseError) as refused:
            deregister("a", identity, 0, False, SHORT, None)
        assert refused.value.pid == claimant.process.pid
        assert "--force" in refused.value.hint
        claimant.kill()
        assert deregister("a", identity, 0, False, SHORT, None) == 0
    finally:
        claimant.discard()


def test_a_source_that_is_taken_from_a_living_process_by_force_is_told_why(
    run_store: Callable[..., ThreadStore],
) -> None:
    store = run_store()
    claimant = Claimant(session=42, ume_store_name=["a"], **FAST)
    try:
        identity = int(claimant.expect("granted")[1])
        assert deregister("a", identity, 0, True, SHORT, None) == 0
        assert "deregistered at store a by its operator" in claimant.expect("refused")[3]
        assert store.store.state.sources == []
    finally:
        claimant.discard()


def test_other_sources_of_the_same_context_go_on_when_one_is_taken_by_force(
    run_store: Callable[..., ThreadStore],
) -> None:
    run_store()
    with hf.Context() as ctx:
        events = Events()
        src = source(ctx, 3)
        other = ctx.source("trades", options={"ume_store_name": ["a"], **FAST}, on_event=events)
        other.wait_registered(SHORT)
        before = len(events.of("StoreUnresponsive"))  # of a store that was slow to answer
        deregister("a", regid(src), 0, True, SHORT, None)
        until("it has heard of it", lambda: refused(src))
        with pytest.raises(hf.RegistrationError, match="deregistered at store a by its operator"):
            src.wait_registered(SHORT)
        other.send(b"fine")
        other.wait_stable(timeout=SHORT)
        assert len(events.of("StoreUnresponsive")) == before


def test_n29_a_receiver_that_is_taken_by_force_is_told_and_keeps_what_is_live(
    run_store: Callable[..., ThreadStore],
) -> None:
    store = run_store()
    with hf.Context(session_id=7) as ctx, hf.Context() as sending:
        src, events = source(sending, 5), Events()
        rcv = ctx.receiver("quotes", on_event=events)
        assert take(rcv, 5) == [0, 1, 2, 3, 4]
        kept = store.store.state.sources[0].receivers
        identity = kept[0].registration_id
        with pytest.raises(hf.RegIdInUseError):
            deregister("a", regid(src), identity, False, SHORT, None)
        assert deregister("a", regid(src), identity, True, SHORT, None) == 0
        assert "deregistered at store a by its operator" in events.wait("RegistrationError").text
        send(src, 1)
        assert take(rcv) == [5]
        assert kept == []


def test_a_receiver_that_is_gone_starts_anew_after_its_deregistration(run_store: Callable[..., ThreadStore]) -> None:
    store = run_store()
    with hf.Context() as ctx:
        src = source(ctx, 5)
        with hf.Context(session_id=7) as receiving:
            take(receiving.receiver("quotes"), 5)
        identity = store.store.state.sources[0].receivers[0].registration_id
        assert deregister("a", regid(src), identity, False, SHORT, None) == 0
        with hf.Context(session_id=8) as receiving:  # the line of session 7 may still say what it acknowledged
            assert take(receiving.receiver("quotes"), 5) == [0, 1, 2, 3, 4]


def test_what_the_operator_asks_for_must_be_there(run_store: Callable[..., ThreadStore]) -> None:
    run_store()
    with hf.Context() as ctx:
        src = source(ctx, 3)
        with pytest.raises(hf.UsageError, match=f"RegID 1 is no source at store a; its sources: {regid(src)}"):
            deregister("a", 1, 0, False, SHORT, None)
        with pytest.raises(hf.UsageError, match="RegID 1 is no receiver of RegID"):
            deregister("a", regid(src), 1, False, SHORT, None)
        with pytest.raises(hf.UsageError, match=r"has messages of RegID \d+ below 3"):
            mark("a", regid(src), "2-3", SHORT, None)
    with pytest.raises(hf.NotRegisteredError, match="store b does not run"):
        deregister("b", 1, 0, False, SHORT, None)


def test_what_the_disk_has_no_room_for_changes_nothing(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deregistration by force barred the object for good, and an exclusion was believed, though both were
    refused."""

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    store = run_store()
    domain = store.store.domain
    with hf.Context() as ctx:
        src = source(ctx, 3)
        assert take(ctx.receiver("quotes"), 3) == [0, 1, 2]
        (kept,) = store.store.state.sources
        requests: list[wire.Request] = [
            wire.OperatorDeregister(FIRST, kept.registration_id, force=True),
            wire.OperatorDeregister(FIRST, kept.registration_id, kept.receivers[0].registration_id, force=True),
            wire.Exclude(FIRST, "b", 1),
        ]
        with monkeypatch.context() as patch:
            patch.setattr(StateFile, "save", full)
            for request in requests:
                with pytest.raises(hf.Error, match="is full: no space"):
                    ask(domain, "a", request, SHORT)
        assert store.store.state.excluded == {}
        assert store.store.state.sources == [kept]
        assert len(kept.receivers) == 1
        machine = src._session.machine
        assert store.store._clients.expelled((machine.uuid, machine.incarnation)) is None
        send(src, 1)
        src.wait_stable(timeout=SHORT)
        for request in requests[1:]:
            ask(domain, "a", request, SHORT)
        assert kept.receivers == []
        assert store.store.state.excluded == {"b": 1}


def test_an_answer_that_no_packet_takes_is_cut(run_store: Callable[..., ThreadStore]) -> None:
    """It names all receivers of the source, and was not sent at all: the store seemed not to run."""
    store = run_store()
    with hf.Context() as ctx:
        number = regid(source(ctx, 3))
    (kept,) = store.store.state.sources
    kept.receivers += [ReceiverState(i.to_bytes(16, "big"), 10**8 + i, 0, 0) for i in range(20_000)]
    with pytest.raises(hf.UsageError, match=f"RegID 1 is no receiver of RegID {number} .*…") as refused:
        deregister("a", number, 1, False, SHORT, None)
    assert len(refused.value.args[0].encode()) <= wire.TEXT_MAX
    del kept.receivers[:]


def test_a_request_that_marks_more_ranges_than_its_answer_takes_is_refused(
    run_store: Callable[..., ThreadStore],
) -> None:
    run_store()
    with hf.Context() as ctx:
        number = regid(source(ctx, 3))
        most = [(0, 0)] * wire.RANGES_MAX
        assert isinstance(ask(ctx.domain, "a", wire.Mark(FIRST, number, most), SHORT), wire.Marked)
        with pytest.raises(hf.UsageError, match="one request takes 1000"):
            ask(ctx.domain, "a", wire.Mark(FIRST, number, [*most, (0, 0)]), SHORT)


# Marks ------------------------------------------------------------------------------------------------------


def test_i4_marked_numbers_are_not_delivered_from_the_log_and_told_as_lost(
    run_store: Callable[..., ThreadStore], capsys: pytest.CaptureFixture[str]
) -> None:
    store = run_store("a", "disk")
    with hf.Context(session_id=5) as ctx:
        src = source(ctx, 12)
        identity = regid(src)
        assert mark("a", identity, "2,5,7-9", SHORT, None) == 0
    assert "numbers 7..9 of source" in capsys.readouterr().out
    assert recovered() == [0, 1, 3, 4, 6, 10, 11]
    store.stop()
    run_store("a", "disk")  # UM forgets marks at a restart
    assert recovered() == [0, 1, 3, 4, 6, 10, 11]
    assert mark("a", identity, "0", SHORT, None) == 0
    assert recovered() == [1, 3, 4, 6, 10, 11]


def test_a_message_is_marked_as_a_whole(run_store: Callable[..., ThreadStore]) -> None:
    run_store()
    with hf.Context(session_id=5) as ctx:
        src = ctx.source("quotes", options={"ume_store_name": ["a"], **FAST})
        src.wait_registered(SHORT)
        src.send(b"0")
        src.send(bytes(3 * 4096))  # numbers 1 to 3
        src.send(b"4")
        src.wait_stable(timeout=SHORT)
        mark("a", regid(src), "2", SHORT, None)
    assert recovered() == [0, 4]


def test_a_number_that_is_marked_at_one_store_comes_from_another(run_store: Callable[..., ThreadStore]) -> None:
    run_store("a")
    run_store("b")
    with hf.Context(session_id=5) as ctx:
        src = source(ctx, 0, ume_store_name=["a", "b"])
        send(src, 5)
        marked = regid(src)
        other = regid(src, "b")
        mark("a", marked, "1-2", SHORT, None)
    assert recovered() == [0, 1, 2, 3, 4]
    mark("b", other, "2-3", SHORT, None)
    assert recovered() == [0, 1, 3, 4]


def test_a_damaged_file_of_marks_marks_nothing(
    run_store: Callable[..., ThreadStore], caplog: pytest.LogCaptureFixture
) -> None:
    store = run_store()
    with hf.Context(session_id=5) as ctx:
        src = source(ctx, 3)
        mark("a", regid(src), "1", SHORT, None)
    assert recovered() == [0, 2]
    (file,) = store.store.logs.glob("*/marks")
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.with_suffix(".x").write_bytes(data)
    file.with_suffix(".x").rename(file)
    assert recovered() == [0, 1, 2]
    assert "nothing counts as marked" in caplog.text


@pytest.mark.parametrize("text", ["", "1,", "a", "-1", "3-1", "1-2-3", "1--2", str(2**63), "٣"])
def test_a_list_of_numbers_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(hf.ConfigError):
        numbers(text)


def test_a_list_of_numbers_is_read() -> None:
    assert numbers("2,5, 7-9") == [(2, 2), (5, 5), (7, 9)]
    with pytest.raises(hf.ConfigError, match="1001 ranges, one command takes 1000"):
        numbers(",".join(["1"] * 1001))


def test_a_source_is_told_also_by_a_backup_that_has_no_seat(run_store: Callable[..., ThreadStore]) -> None:
    """It goes on: the stores that have one keep it."""
    stores = [run_store(name) for name in "ab"]
    options = {"ume_store_name": ["a", "b"], "ume_store_group": ["0:1"], **FAST}
    with hf.Context(session_id=5) as ctx, hf.Context() as bystander:
        events, others = Events(), Events()
        src = ctx.source("quotes", options=options, on_event=events)
        src.wait_registered(SHORT)
        bystander.source("trades", options={"ume_store_name": ["b"], **FAST}, on_event=others).wait_registered(SHORT)
        backup = stores[1].store.state
        until("the backup was asked", lambda: len(backup.sources) == 2)
        (kept,) = (each for each in backup.sources if each.topic == "quotes")
        until("the backup is left", lambda: not stores[1].store.sources.connected(kept))
        identity = kept.registration_id
        with pytest.raises(hf.RegIdInUseError):
            deregister("b", identity, 0, False, SHORT, None)
        assert deregister("b", identity, 0, True, SHORT, None) == 0
        told = events.wait("RegistrationError")
        assert (told.store, told.text) == (
            "b",
            "the source was deregistered at store b by its operator; it has no seat there now",
        )
        src.send(b"x")
        src.wait_stable(timeout=SHORT)
        assert not others.of("RegistrationError")
