"""What a send does at the flight size, and in which order it looks (docs/semantics.md D.6, D.7), with a store
that is stopped."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from support.stalled_store import OPTIONS, RING, SHORT, Events, Scene, refused, take, until

import holdfast as hf
from holdfast.engine.events import (
    FlightSizeNotification,
    FlightSizeState,
    MessageReclaimed,
    MessageStable,
    Wakeup,
)
from holdfast.engine.events.source import ReclaimedFlags, StableFlags
from holdfast.engine.native.core import ffi, lib

if TYPE_CHECKING:
    from collections.abc import Callable

GROUP = StableFlags.INTRAGROUP_STABLE | StableFlags.INTERGROUP_STABLE | StableFlags.STABLE


# D.6, D.7: flight size --------------------------------------------------------------------------------------


def test_d6_flight_1_the_second_send_waits_until_the_first_is_stable(scene: Scene) -> None:
    source = scene.source(ume_flight_size=1)
    scene.stand_still()
    assert source.send(b"first") == 0
    assert refused(source) == "flight_size"
    assert refused(source, timeout=0.02) == "flight_size"
    scene.go_on()
    assert source.send(b"second", timeout=SHORT) == 1


def test_d6_the_unit_is_the_fragment(scene: Scene) -> None:
    source = scene.source(ume_flight_size=5)
    scene.stand_still()
    assert source.send(bytes(3000)) == 2
    assert source.in_flight == (3, 3000)
    assert refused(source, 3000) == "flight_size"
    assert source.send(bytes(2048)) == 4
    assert source.in_flight == hf.InFlight(5, 5048)
    assert refused(source, 0) == "flight_size"


@pytest.mark.parametrize(("size", "warned"), [(1_000_000, False), (1_000_001, True)])
def test_d6_a_flight_size_above_a_million_is_worth_a_warning(
    own_domain: str, caplog: pytest.LogCaptureFixture, size: int, warned: bool
) -> None:
    with hf.Context() as context:
        context.source("quotes", options={**OPTIONS, "ume_flight_size": size})
    assert any("ume_flight_size" in record.getMessage() for record in caplog.records) is warned


def test_d6_more_fragments_than_the_flight_size_when_nothing_is_in_flight(scene: Scene) -> None:
    source = scene.source(ume_flight_size=2)
    scene.stand_still()
    assert source.send(bytes(5000)) == 4
    assert refused(source, 1) == "flight_size"


def test_d6_bytes_are_payload_and_either_limit_counts(scene: Scene) -> None:
    source = scene.source(ume_flight_size=5, ume_flight_size_bytes=3000)
    scene.stand_still()
    source.send(bytes(1000))
    source.send(bytes(1000))
    assert refused(source, 1001) == "flight_bytes"
    source.send(bytes(1000))
    source.send(b"")
    source.send(b"")
    assert refused(source, 0) == "flight_size"


def test_d6_a_payload_above_flight_size_bytes_is_an_error_before_anything_else(scene: Scene) -> None:
    source = scene.context.source(
        "quotes", options={**OPTIONS, "ume_store_name": ["nobody:0:0"], "ume_flight_size_bytes": 500}
    )
    rows = np.zeros((3, 501), np.uint8)
    arrow = pa.array([b"fits", bytes(501)])
    calls: list[Callable[[], object]] = [
        lambda: source.send(bytes(501)), lambda: source.claim(501), lambda: source.send_batch(rows),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(hf.MessageTooLargeError, match="raise ume_flight_size_bytes") as error:
            call()
        assert (error.value.code, error.value.size, error.value.limit) == ("LBM_EINVAL", 501, 500)
    with pytest.raises(hf.MessageTooLargeError, match="ring_size"):
        scene.context.source("big", options=OPTIONS).send(bytes(RING // 4))
    with pytest.raises(hf.NotRegisteredError):
        source.send(bytes(500), timeout=0)
    other = scene.source(ume_flight_size_bytes=500)
    with pytest.raises(hf.MessageTooLargeError):
        other.send(bytes(501))
    with pytest.raises(hf.MessageTooLargeError) as error:
        other.send_batch(arrow)
    assert (error.value.sent, error.value.first_sequence_number) == (1, 0)


def test_d7_not_registered_comes_before_would_block(scene: Scene) -> None:
    source = scene.source(ume_flight_size=1)
    scene.stand_still()
    source.send(b"fills the flight")
    scene.store.strike()
    scene.store.wait_died()
    scene.events.wait(hf.events.StoreUnresponsive)
    with pytest.raises(hf.QuorumLostError) as error:
        source.send(b"", timeout=0)
    assert error.value.code == "LBM_EUMENOREG"


def test_d7_a_blocked_sender_wakes_when_the_quorum_is_lost(scene: Scene) -> None:
    source = scene.source(ume_flight_size=1)
    scene.stand_still()
    source.send(b"fills the flight")
    raised: list[BaseException] = []

    def blocked() -> None:
        try:
            source.send(b"waits")
        except hf.Error as error:
            raised.append(error)

    thread = threading.Thread(target=blocked)
    thread.start()
    scene.store.strike()
    thread.join(SHORT)
    assert [type(error) for error in raised] == [hf.QuorumLostError]
    scene.store.wait_died()


def test_d7_a_view_that_holds_the_ring_is_the_reason_ring(scene: Scene) -> None:
    source = scene.source(receiver_pin_timeout=3_600_000)
    receiver = scene.context.receiver("quotes")
    source.send(bytes(1000))
    batch = receiver.receive_batch(timeout=SHORT)
    assert batch is not None
    reasons = []
    for _ in range(RING // 1000):
        try:
            source.send(bytes(1000), timeout=0)
        except hf.WouldBlockError as error:
            reasons.append(error.reason)
            break
        source.wait_stable(timeout=SHORT)
    assert reasons == ["ring"]
    with contextlib.suppress(hf.EvictedError):  # the source has announced that it will write there
        batch.release()
    source.send(bytes(1000), timeout=SHORT)


@pytest.mark.parametrize("strategy", ["busy_spin", "yield", "backoff", "block"])
def test_a_send_and_wait_stable_wait_as_the_strategy_says(scene: Scene, strategy: str) -> None:
    options = {**OPTIONS, "ume_flight_size": 1, "wait_strategy": strategy}
    source = scene.context.source("quotes", options=options)
    source.wait_registered(SHORT)
    scene.stand_still()
    source.send(b"fills the flight")
    assert source._session.board is not None
    board = ffi.cast("struct hf_board *", source._session.board.handle.base)

    def sends() -> None:
        assert refused(source, timeout=0.02) == "flight_size"

    def waits() -> None:
        with pytest.raises(hf.StabilityTimeout):
            source.wait_stable(timeout=0.02)

    def slept(call: Callable[[], None]) -> bool:
        board.source_waiting = 0  # nobody listens for events, so that the context's thread does not set it
        call()
        return bool(board.source_waiting)

    for call in (sends, waits):
        if strategy in {"backoff", "block"}:
            until(lambda call=call: slept(call))  # type: ignore[misc]
        else:
            assert not slept(call)
    scene.go_on()
    source.wait_stable(timeout=SHORT)


def test_d6_a_wakeup_follows_each_refusal_once_from_the_contexts_thread(scene: Scene) -> None:
    source = scene.source(ume_flight_size=2)
    for round_ in range(1, 4):
        scene.stand_still()
        source.send(b"")
        source.send(b"")
        refused(source)
        refused(source)
        assert len(scene.events.of(Wakeup)) == round_ - 1, "there is no room yet"
        scene.go_on()
        scene.events.wait(Wakeup, round_)
        assert source.send(b"", timeout=0) == 3 * round_ - 1
        source.wait_stable(timeout=SHORT)
    source.close()
    assert len(scene.events.of(Wakeup)) == 3
    assert threading.get_ident() not in scene.events.threads(Wakeup)


def test_d6_a_wakeup_follows_though_the_room_came_before_the_refusal(scene: Scene) -> None:
    source = scene.source(ume_store_check_interval=600_000)
    source.send(b"")
    source.wait_stable(timeout=SHORT)
    with pytest.raises(hf.WouldBlockError):
        source._publisher._refused(lib.HF_FLIGHT_SIZE, 10)
    scene.events.wait(Wakeup)


# D.6: Notify ------------------------------------------------------------------------------------------------


def states(events: Events) -> list[FlightSizeState]:
    return [event.state for event in events.of(FlightSizeNotification)]


@pytest.mark.parametrize("limits", [
    {"ume_flight_size": 3}, {"ume_flight_size": 1000, "ume_flight_size_bytes": 30},
])  # fmt: skip
def test_d6_notify_over_inside_the_send_that_crosses_and_under_from_the_context(
    scene: Scene, limits: dict[str, int]
) -> None:
    source = scene.source(ume_flight_size_behavior="notify", **limits)
    for round_ in range(3):
        scene.stand_still()
        for _ in range(3):
            source.send(bytes(10))
        assert len(states(scene.events)) == 2 * round_
        source.send(bytes(10), timeout=0)
        assert states(scene.events)[2 * round_ :] == [FlightSizeState.OVER], "told before the send returned"
        told = [thread for thread, event in scene.events.all if isinstance(event, FlightSizeNotification)]
        assert told[-1] == threading.get_ident()
        for _ in range(20):
            source.send(bytes(10), timeout=0)
        assert len(states(scene.events)) == 2 * round_ + 1
        assert source.in_flight.messages == 24
        scene.go_on()
        scene.events.wait(FlightSizeNotification, 2 * round_ + 2)
        source.wait_stable(timeout=SHORT)
    assert states(scene.events) == [FlightSizeState.OVER, FlightSizeState.UNDER] * 3


def test_d6_notify_a_payload_above_the_flight_size_bytes_goes_out(scene: Scene) -> None:
    source = scene.source(ume_flight_size_behavior="notify", ume_flight_size_bytes=500)
    assert source.send(bytes(501)) == 0
    assert states(scene.events)[0] is FlightSizeState.OVER


def test_d6_notify_alternates_under_load_from_several_threads(scene: Scene) -> None:
    # A ring that holds them all: sends do not wait here, and a store that is behind must not lose any to
    # forced reclaim.
    source = scene.source(ume_flight_size_behavior="notify", ume_flight_size=4, ring_size=1 << 20)

    def send() -> None:
        for _ in range(400):
            source.send(b"x")

    threads = [threading.Thread(target=send) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    source.wait_stable(timeout=SHORT)
    until(lambda: states(scene.events)[-1:] == [FlightSizeState.UNDER])
    told = states(scene.events)
    assert told == [FlightSizeState.OVER, FlightSizeState.UNDER] * (len(told) // 2)


# mark_stable ------------------------------------------------------------------------------------------------


def test_d6_mark_stable(scene: Scene) -> None:
    source = scene.source(ume_message_stability_notification=1, ume_flight_size=3)
    scene.stand_still()
    for i in range(3):
        source.send(b"", client_data=i)
    with pytest.raises(hf.UsageError, match="not sent yet"):
        source.mark_stable(3)
    source.mark_stable(1)
    assert source.in_flight.messages == 2, "it has left, and waits behind 0 for its release"
    assert scene.events.of(MessageReclaimed) == []
    source.wait_stable(1, timeout=0)
    source.mark_stable(0)
    assert source.in_flight.messages == 1
    source.mark_stable(0)
    events = scene.events.wait(MessageStable, 3)
    assert [(e.sequence_number, e.flags, e.client_data) for e in events] == [
        (1, StableFlags.USER, 1), (0, StableFlags.USER | GROUP, 0), (1, GROUP, 1),
    ]  # fmt: skip
    source.send(b"", timeout=0)
    scene.go_on()
    source.wait_stable(timeout=SHORT)


# D.6: behind a hole -----------------------------------------------------------------------------------------


def test_d6_what_nobody_confirms_holds_up_nothing_behind_it(scene: Scene) -> None:
    """Five messages are older than the only receiver, which joins late without late join: nobody will ever
    confirm them."""
    forced: list[tuple[int, Any]] = []
    source = scene.source(
        ume_retention_unique_confirmations=1, ume_flight_size=40,
        ume_force_reclaim_function=lambda info: forced.append((info.sequence_number, info.client_data)),
    )  # fmt: skip
    for i in range(5):
        source.send(bytes(100 + i), client_data=i)
    late = Events()
    with hf.Context() as context, context.receiver("quotes", options={"use_late_join": 0}, on_event=late) as receiver:
        late.wait(hf.events.receiver.RegistrationComplete)
        source.wait_stable(timeout=SHORT)
        for _ in range(5):  # too few to fill the ring, and many times the flight size
            for _ in range(30):
                source.send(bytes(96), timeout=SHORT)
            for _ in range(30):
                take(receiver).release()
            until(lambda: source.in_flight == (5, 510))
        assert (source.stats().forced_reclaims, scene.events.of(MessageReclaimed)) == (0, [])
        sent = 5
        while sent * 128 < 10 * RING:
            sent = source.send(bytes(96), timeout=SHORT)
            take(receiver).release()
        until(lambda: source.in_flight == (0, 0))
    until(
        lambda: (
            sum(e.sequence_number - e.first_sequence_number + 1 for e in scene.events.of(MessageReclaimed)) == sent + 1
        )
    )
    told = scene.events.of(MessageReclaimed)
    assert [e.first_sequence_number for e in told[1:]] == [e.sequence_number + 1 for e in told[:-1]], "the oldest first"
    given_up = [e for e in told if e.flags == ReclaimedFlags.FORCED]
    assert (given_up[0].first_sequence_number, given_up[-1].sequence_number) == (0, 4)
    assert forced == [(i, i) for i in range(5)]
    assert source.stats().forced_reclaims == 5


def test_d6_the_bytes_of_what_is_marked_leave_the_flight(scene: Scene) -> None:
    source = scene.source(ume_flight_size=1000, ume_flight_size_bytes=3000)
    scene.stand_still()
    for size in (1000, 1200, 800):
        source.send(bytes(size))
    assert refused(source, 1) == "flight_bytes"
    assert source.in_flight == (4, 3000), "1200 bytes are two fragments"
    source.mark_stable(3)
    assert source.in_flight == (3, 2200)
    assert source.send(bytes(800), timeout=0) == 4
    assert refused(source, 1) == "flight_bytes"
    source.mark_stable(1)
    assert source.in_flight == (3, 1976), "one fragment of two"
    scene.go_on()
    source.wait_stable(timeout=SHORT)
    assert source.in_flight == (0, 0)


def test_it_says_what_it_is(scene: Scene) -> None:
    source = scene.source()
    source.send(b"12345")
    source.wait_stable(timeout=SHORT)
    assert repr(source) == "<Source quotes next=1 stable=0 in_flight=0 (0 bytes) registered>"
    assert "forced_reclaims=0" in repr(source.stats())
    claim = source.claim(5)
    assert repr(claim) == "<Claim of 5 bytes in quotes, open>"
    with claim as view:
        view[:] = b"hello"
    assert repr(claim) == "<Claim in quotes, number 1>"
