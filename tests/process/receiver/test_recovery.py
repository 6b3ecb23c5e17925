"""Where a receiver starts, through the public names: every row of docs/semantics.md F.1, and what B.3 says of
getting there."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest
from support.receiver_line import line_of
from support.receiving import SESSION, SHORT, Told, acked, options, send, source, take, until, until_no_ring
from support.three_stores import everywhere

import holdfast as hf
from holdfast.engine.events import RecoverySequenceNumberInfo
from holdfast.engine.events import receiver as events
from holdfast.engine.events.info import RecoveryInfoFlags
from holdfast.engine.log.state_file import StateFile
from holdfast.engine.native.core import lib
from holdfast.engine.receiver.feed import Feed

if TYPE_CHECKING:
    from collections.abc import Callable

    from process.conftest import ThreadStore

Complete = events.RegistrationCompleteFlags


@pytest.fixture
def store(run_store: Callable[..., ThreadStore]) -> ThreadStore:
    return run_store()


def chooses(number: int | None) -> Callable[[RecoverySequenceNumberInfo], None]:
    """A recovery callback that assigns ``number``; None: it leaves the value alone."""

    def choose(info: RecoverySequenceNumberInfo) -> None:
        if number is not None:
            info.low_sequence_number = number

    return choose


@pytest.mark.parametrize(
    ("ack", "maximum", "chosen", "start", "flags"),
    [
        pytest.param(0, 2, None, 4, Complete.RXREQMAX, id="seven messages, ack 0, N=2: 4, 5, 6"),
        pytest.param(0, 2, 2, 2, Complete(0), id="same, callback sets 2"),
        pytest.param(0, 2, 1, 4, Complete.RXREQMAX, id="same, callback assigns the stored position: unchanged"),
        pytest.param(0, 0, None, 1, Complete(0), id="no limit"),
        pytest.param(4, 10, None, 5, Complete(0), id="N larger than the backlog"),
        pytest.param(0, 0, 7, 7, Complete(0), id="skip all"),
        pytest.param(0, 0, 20, 7, Complete(0), id="beyond: clamped"),
        pytest.param(4, 0, 2, 2, Complete(0), id="older than stored: duplicates on purpose"),
    ],
)
def test_where_a_receiver_starts(
    store: object, ack: int, maximum: int, chosen: int | None, start: int, flags: Complete
) -> None:
    told = Told()
    with hf.Context() as ctx, hf.Context(session_id=SESSION) as other:
        src = source(ctx, 7)
        acked({}, ack)
        asked = {
            "retransmit_request_maximum": maximum,
            "ume_recovery_sequence_number_info_function": chooses(chosen),
        }
        rcv = other.receiver("quotes", options=asked, on_event=told)
        complete = told.wait(events.RegistrationComplete)
        assert (complete.sequence_number, complete.flags) == (start, flags)
        send(src, 2)
        assert take(rcv, 9 - start) == list(range(start, 9))


def test_a_start_beyond_the_newest_is_noticed_in_the_log(
    store: object, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also the row of the wiped store: what was acknowledged is beyond everything that there is."""
    explicit = {"ume_explicit_ack_only": 1}
    with hf.Context() as ctx, hf.Context(session_id=SESSION) as other, caplog.at_level(logging.WARNING, "holdfast"):
        src = source(ctx, 10)
        first = other.receiver("quotes", options=explicit)
        message = first.receive(SHORT)
        assert message is not None
        with monkeypatch.context() as patched:
            patched.setattr(
                "holdfast.engine.receiver.delivery_controller.DeliveryController.published", lambda *_: 100
            )  # or the ack would be refused
            message.extract_ack().send(99)
        first.close()
        told = Told()
        again = other.receiver("quotes", options=explicit, on_event=told)
        assert told.wait(events.RegistrationComplete).sequence_number == 10
        assert "no messages will be recovered" in caplog.text
        send(src, 1)
        assert take(again) == [10]


@pytest.mark.parametrize(
    ("asked", "start"), [({"retransmit_request_maximum": 2}, 4), ({"use_late_join": 0}, 7)], ids=["limited", "new"]
)
def test_the_ring_of_a_dead_source_moves_no_start(
    store: object, monkeypatch: pytest.MonkeyPatch, asked: dict[str, object], start: int
) -> None:
    """Its numbers are void since a BEGIN below them: who started behind these would skip what is sent now."""
    told = Told()
    with hf.Context() as ctx, hf.Context(session_id=SESSION) as other:
        src = source(ctx, 7)
        void_ring(other, src, 60, monkeypatch)
        rcv = other.receiver("quotes", options=asked, on_event=told)
        assert told.wait(events.RegistrationComplete).sequence_number == start
        send(src, 1)
        assert take(rcv, 8 - start) == list(range(start, 8))


def void_ring(ctx: hf.Context, of: hf.Source, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What ``ctx`` finds is a ring that goes on to ``number``, of an incarnation before the newest."""
    header = ctx.discovery.header(of.uuid)
    assert header is not None
    header.pre.incarnation, header.next_sqn = 0, number
    monkeypatch.setattr(ctx.discovery, "header", lambda _: header)


@pytest.mark.parametrize("ring", [False, True], ids=["no ring", "a dead one"])
def test_what_was_acknowledged_is_not_beyond_what_a_store_that_is_behind_has(
    run_store: Callable[..., ThreadStore], wipe: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, ring: bool
) -> None:
    """It would come again after a clean close."""
    a, b = run_store("a", "disk"), run_store("b", "disk")
    told = Told()
    lists = {"ume_store_name": ["a:0:0", "b:0:1"], "ume_store_group": ["0:1", "1:1"]}
    with hf.Context() as ctx:
        src = ctx.source("quotes", options=options(**lists))
        everywhere(src)
        send(src, 50)
        acked({}, 20)
        until("b has them, too", lambda: all(each.next_sqn == 50 for each in b.store.drainer.repositories.values()))
        b.stop()
        send(src, 10)
        with hf.Context(session_id=SESSION) as first:
            assert take(first.receiver("quotes"), 37) == list(range(21, 58))
        with hf.Context(session_id=SESSION) as other:
            if ring:
                void_ring(other, src, 70, monkeypatch)
            src.close()
            until_no_ring(ctx.domain)
            a.stop()
            wipe("a")
            run_store("b", "disk")
            rcv = other.receiver("quotes", on_event=told)
            assert told.wait(events.RegistrationComplete).sequence_number == 58
            wipe("a")
            run_store("a", "disk")
            assert take(rcv, 2) == [58, 59]


def test_what_a_begin_has_made_void_cannot_be_acknowledged(store: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/semantics.md G.4: it was not published. What is sent under these numbers now would be skipped."""
    with hf.Context() as ctx, hf.Context(session_id=SESSION) as other:
        src = source(ctx, 7)
        void_ring(other, src, 60, monkeypatch)
        rcv = other.receiver("quotes", options={"ume_explicit_ack_only": 1})
        message = rcv.receive(SHORT)
        assert message is not None
        with pytest.raises(hf.UsageError, match="49"):
            message.extract_ack().send(49)
        assert [each.lag() for each in rcv.controllers] == [0]


def test_a_new_receiver_starts_at_the_oldest_and_its_callback_is_called(store: object) -> None:
    seen: list[Any] = []

    def look(info: RecoverySequenceNumberInfo) -> None:
        seen.append((info.flags, info.low_sequence_number, info.low_rxreq_max_sequence_number,
                     info.high_sequence_number, info.source, info.source_clientd, info.src_session_id))  # fmt: skip

    with hf.Context() as ctx:
        source(ctx, 7, ume_session_id=5)
        asked = {
            "ume_recovery_sequence_number_info_function": look,
            "source_notification_function": (lambda info: f"mine of {info.topic}", lambda info: None),
            "retransmit_request_maximum": 3,
        }
        rcv = ctx.receiver("quotes", options=asked)
        message = rcv.receive(SHORT)
        assert message is not None
        assert message.sequence_number == 3, "6 - 3"
        assert seen == [(RecoveryInfoFlags.SRC_SID, 0, 3, 6, message.source, "mine of quotes", 5)]


def test_a_source_without_a_session_says_so_in_the_callback(store: object) -> None:
    seen: list[Any] = []
    with hf.Context() as ctx:
        source(ctx, 1)
        call = {"ume_recovery_sequence_number_info_function": lambda i: seen.append((int(i.flags), i.src_session_id))}
        assert take(ctx.receiver("quotes", options=call)) == [0]
    assert seen == [(0, 0)]


@pytest.mark.parametrize("error", [
    LookupError("no such table"), MemoryError("no such table"),
    hf.LimitReachedError("no such table", 24, "EMFILE", limit="RLIMIT_NOFILE", value=1, used=1),
], ids=["lookup", "memory", "limit"])  # fmt: skip
def test_a_recovery_callback_that_raises_fails_the_registration(store: object, error: Exception) -> None:
    """Also where it names a limit: that is the program's, and nothing that passes."""

    def wrong(info: object) -> None:
        raise error

    told = Told()
    with hf.Context() as ctx:
        source(ctx, 1)
        options = {"ume_recovery_sequence_number_info_function": wrong, "ume_registration_interval": 90_000}
        rcv = ctx.receiver("quotes", options=options, on_event=told)
        with pytest.raises(hf.RegistrationError, match="no such table"):
            rcv.receive(SHORT)
        assert [each.failure for each in rcv._all.values()] == [error]
        ctx.receiver("quotes", options=options, on_event=told, on_message=print)  # nobody calls: the event says it
        failed = told.wait(events.RegistrationError, 2)
        assert "no such table" in failed.text
        assert (failed.topic, failed.store) == ("quotes", "")


@pytest.mark.parametrize("who", ["receiver", "source"])
@pytest.mark.parametrize("known", [False, True], ids=["new", "old"])
def test_without_late_join_nothing_is_recovered(store: object, who: str, known: bool) -> None:
    told = Told()
    with hf.Context() as ctx, hf.Context(session_id=SESSION) as other:
        src = source(ctx, 7, late_join=int(who != "source"))
        asked = {"use_late_join": 0} if who == "receiver" else {}
        if known:
            first = other.receiver("quotes", options=asked)
            until("registered", lambda: first.controllers)
            send(src, 1)
            assert take(first) == [7]
            first.close()
            send(src, 2)
        rcv = other.receiver("quotes", options=asked, on_event=told)
        newest = src.next_sequence_number
        if who == "receiver" and known:
            assert told.wait(events.RegistrationSuccess).sequence_number == 8, "the store knows better"
        assert told.wait(events.RegistrationComplete).sequence_number == newest
        send(src, 1)
        message = rcv.receive(SHORT)
        assert message is not None
        assert (message.sequence_number, message.is_retransmit) == (newest, False)


def test_a_closed_source_without_late_join_is_not_recovered_either(run_store: Callable[..., ThreadStore]) -> None:
    """Only the store knows it any more, and remembers that it wanted no recovery; also when it has been
    restarted."""
    store = run_store(kind="disk")
    told = Told()
    with hf.Context() as ctx:
        source(ctx, 7, late_join=0).close()
        until("its ring is gone", lambda: not ctx.discovery.sources())
    store.stop()
    run_store(kind="disk")
    with hf.Context() as ctx:
        rcv = ctx.receiver("quotes", on_event=told)
        assert told.wait(events.RegistrationComplete).sequence_number == 7
        assert rcv.receive(timeout=0.1) is None


def test_a_receiver_that_uses_no_store_streams(store: ThreadStore) -> None:
    told = Told()
    with hf.Context() as ctx, hf.Context(session_id=SESSION) as other:
        src = source(ctx, 7)
        rcv = other.receiver("quotes", options={"ume_use_store": 0}, on_event=told)
        assert told.wait(events.RegistrationComplete).sequence_number == 7
        assert not told.of(events.RegistrationSuccess)
        send(src, 2)
        assert take(rcv, 2) == [7, 8]
        assert all(not kept.receivers for kept in store.store.state.sources)


def test_a_receiver_that_uses_no_store_does_not_know_a_closed_source(store: object) -> None:
    told = Told()
    with hf.Context() as ctx, hf.Context() as other:
        source(ctx, 7).close()
        until("its ring is gone", lambda: not ctx.discovery.sources())
        other.receiver("quotes", options={"ume_use_store": 0}, on_event=told)
        told.wait(events.NoSource)


def test_a_source_whose_stores_are_not_known_is_not_one_without_stores(run_store: Callable[..., ThreadStore]) -> None:
    """A memory store has lost its directory, and its log outlived that; a source has asked it since, and died
    before its BEGIN. So it knows an incarnation, and of no list."""
    first = run_store()
    with hf.Context(session_id=SESSION) as ctx:
        source(ctx, 3).close()
        until("its ring is gone", lambda: not ctx.discovery.sources())
    first.stop()
    file = StateFile(first.store.directory.path)
    state = file.load()
    assert state is not None
    (known,) = state.sources
    assert known.incarnation
    known.stores, known.sizes, known.groups, known.declared = [], [], [], 0
    file.save(state)
    run_store()
    told = Told()
    with hf.Context(session_id=78) as reader, hf.Context(session_id=SESSION) as ctx:
        rcv = reader.receiver("quotes", on_event=told)
        until("it has looked", lambda: told.of(events.NoSource) or told.of(events.RegistrationComplete))
        assert not told.of(events.RegistrationComplete)
        source(ctx, 2)
        assert take(rcv, 5) == [0, 1, 2, 3, 4]


# Getting there (B.3) ----------------------------------------------------------------------------------------


def test_registration_completes_with_all_stores_at_once(run_store: Callable[..., ThreadStore]) -> None:
    for name in "abc":
        run_store(name)
    told = Told()
    with hf.Context() as ctx:
        everywhere(source(ctx, 1, ume_store_name=["a", "b", "c"]))
        ctx.receiver("quotes", options={"ume_registration_interval": 3_600_000}, on_event=told)
        complete = told.wait(events.RegistrationComplete)
        assert complete.flags == Complete(0)
        assert sorted(each.store for each in told.of(events.RegistrationSuccess)) == ["a", "b", "c"]


def test_registration_completes_with_a_quorum_after_the_interval(run_store: Callable[..., ThreadStore]) -> None:
    stores = {name: run_store(name) for name in "abc"}
    told = Told()
    with hf.Context() as ctx:
        source(ctx, 1, ume_store_name=["a", "b", "c"])
        stores["c"].stop()
        rcv = ctx.receiver("quotes", options={"ume_registration_interval": 50}, on_event=told)
        assert told.wait(events.RegistrationComplete).flags == Complete.QUORUM
        assert take(rcv) == [0]
        run_store("c")
        told.wait(events.RegistrationSuccess, 3)
        assert len(told.of(events.RegistrationComplete)) == 1


def test_only_a_receiver_without_a_past_may_start_behind_what_was_let_go(run_store: Callable[..., ThreadStore]) -> None:
    """What one with a past has not acknowledged, and the stores let go, is a loss."""
    run_store("a")
    with hf.Context() as ctx:
        src = source(ctx, 1)
        for options, new in (({}, True), ({"ume_session_id": 7}, True), ({"ume_session_id": 7}, False)):
            with ctx.receiver("quotes", options=options) as rcv:
                until("it is registered", lambda rcv=rcv: rcv.controllers)  # type: ignore[misc]
                (controller,) = rcv.controllers
                assert controller.live is not None
                assert (controller.live.skipped is not None) is new
        assert src.next_sequence_number == 1


def test_a_store_that_was_missing_from_the_start_is_none_of_all(run_store: Callable[..., ThreadStore]) -> None:
    for name in "ab":
        run_store(name)
    told = Told()
    with hf.Context() as ctx:
        source(ctx, 1, ume_store_name=["a", "b", "c"])
        ctx.receiver("quotes", options={"ume_registration_interval": 3_600_000}, on_event=told)
        assert told.wait(events.RegistrationComplete).flags == Complete.QUORUM


def test_a_store_that_comes_for_the_first_time_later_is_read_too(run_store: Callable[..., ThreadStore]) -> None:
    for name in "ab":
        run_store(name)
    told = Told()
    with hf.Context() as ctx:
        source(ctx, 1, ume_store_name=["a", "b"], ume_session_id=SESSION).close()
        src = source(ctx, 0, ume_store_name=["a", "b", "c"], ume_session_id=SESSION, ume_registration_interval=50)
        rcv = ctx.receiver("quotes", options={"ume_registration_interval": 50}, on_event=told)
        assert take(rcv) == [0]
        feed = rcv.controllers[0].feed
        assert isinstance(feed, Feed)
        assert sorted(map(bool, feed.logs.paths)) == [False, True, True]
        run_store("c")
        told.wait(events.RegistrationSuccess, 3)
        assert all(feed.logs.paths)
        send(src, 1)
        assert take(rcv) == [1]


def test_registration_says_what_each_store_granted(store: object) -> None:
    told = Told()
    with hf.Context() as ctx, hf.Context(session_id=SESSION) as other:
        src = source(ctx, 7, ume_session_id=5)
        acked({}, 3)
        other.receiver("quotes", on_event=told)
        complete = told.wait(events.RegistrationComplete)
        (success,) = told.of(events.RegistrationSuccess)
        flags = events.RegistrationSuccessFlags
        assert (success.flags, success.sequence_number) == (flags.OLD | flags.SRC_SID, 4)
        assert (success.store_index, success.store, success.src_session_id) == (0, "a", 5)
        assert success.source_registration_id == src.registration_ids["a"]
        assert success.receiver_registration_id != success.source_registration_id
        assert (complete.flags, complete.src_session_id) == (Complete.SRC_SID, 5)


@pytest.mark.parametrize(
    ("given", "flags"),
    [
        ({}, lib.HF_LINE_CONFIRMS),
        ({"ume_allow_confirmed_delivery": 0}, 0),
        ({"ordered_delivery": -1}, lib.HF_LINE_CONFIRMS | lib.HF_LINE_OUT_OF_ORDER),
        ({"ume_explicit_ack_only": 1}, lib.HF_LINE_CONFIRMS | lib.HF_LINE_EXPLICIT),
        ({"ume_use_store": 0}, 0),
    ],
)
def test_the_line_says_what_this_receivers_acks_mean(store: object, given: dict[str, Any], flags: int) -> None:
    with hf.Context() as ctx, hf.Context(options={"ume_user_receiver_registration_id": 4321}) as other:
        source(ctx, 1)
        rcv = other.receiver("quotes", options=given)
        until("registered", lambda: rcv.controllers)
        line = line_of(other, rcv.controllers[0].uuid)
        assert (line.flags, line.user_registration_id) == (flags | lib.HF_LINE_EPHEMERAL, 4321)


def test_a_line_counts_for_what_the_receiver_had_in_an_earlier_life_too(store: object) -> None:
    """A participant counts for n only if from <= n < ack: what it has consumed before stays covered
    (docs/design.md 8)."""
    with hf.Context() as ctx, hf.Context(session_id=SESSION) as other:
        source(ctx, 7)
        acked({}, 3)
        again = other.receiver("quotes")
        until("registered", lambda: again.controllers)
        line = line_of(other, again.controllers[0].uuid)
        assert (line.from_sqn, line.ack) == (0, 4)


def test_a_line_counts_for_what_the_receiver_skipped_once_it_acknowledges(store: object) -> None:
    """The start moves nothing: whoever dies there must find again what it never acknowledged (docs/design.md
    30)."""
    with hf.Context(options={"ume_ack_batching_interval": 5}) as ctx, hf.Context(session_id=SESSION) as other:
        source(ctx, 7)
        acked({}, 3)
        again = other.receiver("quotes", options={"ume_recovery_sequence_number_info_function": chooses(6)})
        until("registered", lambda: again.controllers)
        uuid = again.controllers[0].uuid
        line = line_of(other, uuid)
        assert (line.from_sqn, line.ack, line.position) == (0, 4, 6)
        assert take(again) == [6]
        until("it is acknowledged", lambda: line_of(other, uuid).ack == 7)
        assert line_of(other, uuid).from_sqn == 0
