"""What a source retains, gives up and tells (docs/semantics.md C, D.1 to D.4, L.1), with a store that is
stopped."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from support.stalled_store import OPTIONS, RING, SHORT, Events, Scene, refused, take, until

import holdfast as hf
from holdfast.engine.events import (
    DeliveryConfirmation,
    ForceReclaimInfo,
    MessageNotStable,
    MessageReclaimed,
    MessageStable,
    SequenceNumberInfo,
    Wakeup,
)
from holdfast.engine.events.info import NoFlags
from holdfast.engine.events.source import ConfirmationFlags, NotStableFlags, ReclaimedFlags, StableFlags
from holdfast.engine.source import settlement as settlement_module

if TYPE_CHECKING:
    from collections.abc import Callable

GROUP = StableFlags.INTRAGROUP_STABLE | StableFlags.INTERGROUP_STABLE | StableFlags.STABLE


# D.1: what is retained --------------------------------------------------------------------------------------


def test_d1_nothing_is_released_below_the_size_threshold(scene: Scene) -> None:
    source = scene.source(retransmit_retention_size_threshold=1280, ume_flight_size=4)
    for i in range(10):  # frames of 128 bytes
        source.send(bytes(96), client_data=i, timeout=SHORT)
    source.wait_stable(timeout=SHORT)
    assert source.in_flight == (0, 0), "flight and retention are two things"
    assert source.stats().retained_bytes == 1280
    assert scene.events.of(MessageReclaimed) == []
    source.send(bytes(96))
    source.wait_stable(timeout=SHORT)
    (event,) = scene.events.wait(MessageReclaimed)
    assert (event.flags, event.sequence_number, event.client_data) == (ReclaimedFlags(0), 0, 0)
    assert source.stats().retained_bytes == 1280


def test_d1_nothing_younger_than_the_age_threshold_is_released(scene: Scene) -> None:
    source = scene.source(retransmit_retention_age_threshold=1, ume_store_check_interval=20)
    began = time.monotonic()
    source.send(bytes(96))
    source.wait_stable(timeout=SHORT)
    assert source.stats().retained_bytes == 128 or time.monotonic() - began >= 1.0
    scene.events.wait(MessageReclaimed)
    assert time.monotonic() - began >= 1.0
    assert source.stats().retained_bytes == 0


def test_d1_an_ack_of_another_incarnation_counts_for_nothing(scene: Scene) -> None:
    source = scene.source()
    settlement = source._session.settlement
    assert settlement is not None
    settlement._incarnation += 1  # as if the store's line were still of the one before
    number = source.send(b"x")
    until(lambda: settlement._watched[0].at.ack == number + 1)
    assert source.in_flight.messages == 1
    settlement._incarnation -= 1
    source.wait_stable(number, timeout=SHORT)


def test_the_last_ack_of_a_store_that_is_closed_counts(scene: Scene) -> None:
    source = scene.source()
    settlement = source._session.settlement
    assert settlement is not None
    line = settlement._watched[0].at
    with settlement.lock:  # nobody looks at the board meanwhile
        number = source.send(b"x")
        until(lambda: line.ack == number + 1)
        scene.store.stop()
        assert line.owner == 0, "its line is free, and still says what it said"
    source.wait_stable(number, timeout=SHORT)


def test_a_store_that_comes_back_counts_again(scene: Scene) -> None:
    source = scene.source()
    source.send(b"x")
    source.wait_stable(timeout=SHORT)
    scene.store.strike()
    scene.store.wait_died()
    scene.events.wait(hf.events.StoreUnresponsive)
    scene.store.start()
    source.wait_registered(SHORT)
    for _ in range(3):
        source.send(b"y", timeout=SHORT)
    source.wait_stable(timeout=SHORT)
    assert source.stats().forced_reclaims == 0


# D.2: force -------------------------------------------------------------------------------------------------

UNLIMITED = {"ume_flight_size": 1 << 30, "ume_flight_size_bytes": 0}
LIMIT = 8192
FITTING = LIMIT // 128


@pytest.mark.parametrize("extended", [1, 0])
def test_d2_the_retention_limit_reclaims_the_oldest_by_force(scene: Scene, extended: int) -> None:
    told: list[ForceReclaimInfo] = []
    source = scene.source(
        retransmit_retention_size_limit=LIMIT, use_extended_reclaim_notifications=extended,
        ume_force_reclaim_function=told.append, **UNLIMITED,
    )  # fmt: skip
    scene.stand_still()
    for i in range(FITTING):
        source.send(bytes(96), client_data=i)
    assert source.stats().forced_reclaims == 0
    source.send(bytes(96 + 128), client_data="double", timeout=0)
    assert source.stats().forced_reclaims == 2, "enough that the new one fits"
    events = scene.events.wait(MessageReclaimed)
    flags = ReclaimedFlags.FORCED if extended else None
    assert [(e.flags, e.first_sequence_number, e.sequence_number, e.client_data) for e in events] == [(flags, 0, 1, 1)]
    until(lambda: len(told) == 2)
    assert told == [ForceReclaimInfo("quotes", 0, 0), ForceReclaimInfo("quotes", 1, 1)]
    assert source.in_flight.messages == FITTING - 1, "what was reclaimed has left the flight"
    assert source.stats().retained_bytes <= LIMIT


def test_d2_waiting_for_what_was_reclaimed_fails_at_once_unless_a_store_has_it(scene: Scene) -> None:
    source = scene.source(retransmit_retention_size_limit=LIMIT, **UNLIMITED)
    scene.stand_still()
    for _ in range(FITTING + 3):
        source.send(bytes(96))
    for number in (0, 2, None):
        with pytest.raises(hf.StabilityTimeout, match="reclaimed by force before it was stable") as error:
            source.wait_stable(number, timeout=None)
        assert error.value.reclaimed
        assert not error.value.retriable
    with pytest.raises(hf.StabilityTimeout, match="not stable yet"):
        source.wait_stable(3, timeout=0)
    assert source.stable_sequence_number == -1
    scene.go_on()  # the ring is larger than the limit: the store still finds them there
    source.wait_stable(FITTING + 2, timeout=SHORT)
    source.wait_stable(0, timeout=0)
    source.wait_stable(timeout=0)


def test_l1_row_33_what_the_store_never_had_is_lost_there(scene: Scene) -> None:
    source = scene.source(retransmit_retention_size_limit=LIMIT, **UNLIMITED)
    scene.stand_still()
    for _ in range(3 * RING // 128):  # three laps of the ring
        source.send(bytes(96))
    scene.go_on()
    source.wait_stable(source.next_sequence_number - 1, timeout=SHORT)
    flags = NotStableFlags.LOSS | NotStableFlags.STORE
    lost = scene.events.wait(MessageNotStable)
    assert {(event.flags, event.store, event.store_index) for event in lost} == {(flags, "a", 0)}
    assert lost[0].first_sequence_number == 0
    for number in (0, lost[-1].sequence_number):
        with pytest.raises(hf.StabilityTimeout, match="reclaimed by force"):
            source.wait_stable(number, timeout=SHORT)
    source.wait_stable(lost[-1].sequence_number + 1, timeout=0)


def test_d2_the_lifetime_gives_up_what_is_not_stable(scene: Scene) -> None:
    source = scene.source(
        ume_message_stability_lifetime=200, ume_store_check_interval=20, ume_message_stability_notification=2,
        ume_flight_size=2,
    )  # fmt: skip
    scene.stand_still()
    source.send(bytes(2000), client_data="old")
    (event,) = scene.events.wait(MessageNotStable)
    assert (event.flags, event.first_sequence_number, event.sequence_number) == (NotStableFlags.TIMEOUT, 0, 1)
    (gone,) = scene.events.wait(MessageReclaimed)
    assert (gone.flags, gone.client_data) == (ReclaimedFlags.FORCED, "old")
    assert source.in_flight == (0, 0)
    assert source.stats().forced_reclaims == 2
    source.send(b"there is room", timeout=0)


def test_d2_a_turn_that_was_held_up_ages_nothing(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its process stood still for five hours, between the look at the clock and the look at what was sent."""
    source = scene.source(ume_message_stability_lifetime=3_600_000, ume_store_check_interval=3_600_000)
    scene.stand_still()
    settlement = source._session.settlement
    assert settlement is not None
    before, now = (time.monotonic_ns() + hours * 3600 * 10**9 for hours in (5, 10))
    with settlement.lock:  # the context's own turns come later
        monkeypatch.setattr(settlement_module, "time", SimpleNamespace(monotonic_ns=lambda: now))
        source.send(b"just now")
        for began in (before, now):
            settlement._check_ns = 0
            settlement.turn(began)
        assert settlement.retention.forced == 0
        monkeypatch.undo()


def test_a_full_retention_buffer_never_blocks_a_send_though_the_store_stands_still(scene: Scene) -> None:
    source = scene.source(**UNLIMITED)
    scene.stand_still()
    rows = np.zeros((100, 500), np.uint8)
    for _ in range(20):
        source.send(bytes(5000), timeout=0)
        source.send_batch(rows, timeout=0)
        with source.claim(700, timeout=0) as view:
            view[:] = bytes(700)
    assert source.stats().forced_reclaims > 1000
    assert source.stats().retained_bytes <= RING * 4 // 5


# D.3, D.4: who has it ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "told"),
    [
        (0, []),
        (1, [(n, StableFlags.STORE | GROUP, "a") for n in range(3)]),
        (2, [(2, GROUP, None)]),
        (3, [(n, StableFlags.STORE | GROUP | (StableFlags(0x10) if n == 2 else 0), "a") for n in range(3)]),
    ],
)
def test_d3_one_message_of_three_fragments(scene: Scene, mode: int, told: list[Any]) -> None:
    source = scene.source(ume_message_stability_notification=mode)
    assert source.send(bytes(3000), client_data=mode) == 2
    source.wait_stable(timeout=SHORT)
    source.close()
    events = scene.events.of(MessageStable)
    assert [(event.sequence_number, event.flags, event.store) for event in events] == told
    assert {event.client_data for event in events} <= {mode}


def test_d3_three_stores_each_report_and_the_second_makes_it_stable(run_store: Callable[..., object]) -> None:
    for name in "abc":
        run_store(name)
    events = Events()
    stores = {"ume_store_name": ["a:0:0", "b:0:0", "c:0:0"], "ume_message_stability_notification": 1}
    with hf.Context() as context, context.source("quotes", options={**OPTIONS, **stores}, on_event=events) as source:
        source.wait_registered(SHORT)
        until(lambda: [store.state for store in source.stats().stores.values()] == ["active"] * 3)
        for number in range(20):
            source.send(bytes(10), client_data=number)
        events.wait(MessageStable, 60)
    for number in range(20):
        told = [event for event in events.of(MessageStable) if event.sequence_number == number]
        assert sorted(event.store or "" for event in told) == ["a", "b", "c"]
        assert [event.store_index for event in told] == ["abc".index(event.store or "") for event in told]
        assert [event.flags for event in told] == [
            StableFlags.STORE,
            StableFlags.STORE | GROUP,
            StableFlags.STORE | GROUP,
        ]
        assert {event.client_data for event in told} == {number}, "also of what was let go when the third reported"


def test_d3_without_client_data_mode_1_tells_of_every_message_too(scene: Scene) -> None:
    source = scene.source(ume_message_stability_notification=1)
    for _ in range(50):
        source.send(b"plain")
    source.send_batch(pa.array([b"one", bytes(2000), b""]))
    source.wait_stable(timeout=SHORT)
    source.close()
    assert [event.sequence_number for event in scene.events.of(MessageStable)] == list(range(54))


def test_a_batch_of_messages_of_different_sizes_keeps_its_boundaries(scene: Scene) -> None:
    source = scene.source(ume_message_stability_notification=2)
    source.send_batch(pa.array([b"one", bytes(3000), b""]), client_data="batch")
    source.wait_stable(timeout=SHORT)
    source.close()
    assert [(e.first_sequence_number, e.sequence_number, e.client_data) for e in scene.events.of(MessageStable)] == [
        (0, 0, "batch"), (1, 3, "batch"), (4, 4, "batch"),
    ]  # fmt: skip


def test_d1_d4_a_message_stays_in_flight_until_so_many_receivers_confirmed_it(scene: Scene) -> None:
    source = scene.source(
        ume_retention_unique_confirmations=2, ume_confirmed_delivery_notification=3, ume_flight_size=3,
        ume_message_stability_notification=0,
    )  # fmt: skip
    receivers = [scene.context.receiver("quotes", options={"ume_session_id": 7 + i}) for i in range(2)]
    source.send(bytes(3000), client_data="m")
    source.wait_stable(timeout=SHORT)
    assert source.in_flight == (3, 3000)
    assert refused(source) == "flight_size"
    take(receivers[0]).release()
    first = scene.events.wait(DeliveryConfirmation, 3)
    whole = ConfirmationFlags.WHOLE_MESSAGE_CONFIRMED
    assert [(event.sequence_number, event.flags, event.client_data) for event in first] == [
        (0, 0, "m"), (1, 0, "m"), (2, whole, "m"),
    ]  # fmt: skip
    assert source.in_flight == (3, 3000)
    take(receivers[1]).release()
    both = scene.events.wait(DeliveryConfirmation, 6)
    assert [event.flags for event in both[3:]] == [1, 1, 1 | whole]
    assert len({event.receiver_registration_id for event in both}) == 2
    assert source.in_flight == (0, 0)
    scene.events.wait(Wakeup)


def test_d4_what_kind_of_receiver_confirmed(scene: Scene) -> None:
    source = scene.source(ume_confirmed_delivery_notification=2, ume_message_stability_notification=0)
    explicit = {"ume_explicit_ack_only": 1, "ume_session_id": 8}
    with hf.Context(options={"ume_user_receiver_registration_id": 4711}) as context:
        receiver = context.receiver("quotes", options=explicit)
        source.send(b"x", client_data="x")
        take(receiver).send_explicit_ack()
        (event,) = scene.events.wait(DeliveryConfirmation)
    assert event.flags == ConfirmationFlags.UREGID | ConfirmationFlags.EXACK
    assert (event.receiver_registration_id, event.client_data) == (4711, "x")


def test_d4_a_receiver_may_refuse_to_confirm(scene: Scene) -> None:
    source = scene.source(ume_confirmed_delivery_notification=1, ume_message_stability_notification=0)
    quiet = scene.context.receiver("quotes", options={"ume_allow_confirmed_delivery": 0, "ume_session_id": 8})
    loud = scene.context.receiver("quotes", options={"ume_session_id": 9})
    for _ in range(2):
        source.send(b"x")
        take(quiet).release()
    until(lambda: list(quiet.stats().acknowledged.values()) == [1])
    for _ in range(2):
        take(loud).release()
    until(lambda: list(loud.stats().acknowledged.values()) == [1])
    source.close()
    assert [event.sequence_number for event in scene.events.of(DeliveryConfirmation)] == [0, 1]


def test_c_sequence_number_info_inside_the_call(scene: Scene) -> None:
    source = scene.source()
    source.send(bytes(10), client_data="a", sequence_info="fragmented")
    source.send(bytes(10), client_data="b", sequence_info="always")
    source.send(bytes(2500), client_data="c", sequence_info="fragmented")
    assert scene.events.of(SequenceNumberInfo) == [
        SequenceNumberInfo(NoFlags.NONE, 1, 1, "b"), SequenceNumberInfo(NoFlags.NONE, 2, 4, "c"),
    ]  # fmt: skip
    assert scene.events.threads(SequenceNumberInfo) == {threading.get_ident()}


def test_l1_client_data_comes_back_with_every_event_of_every_fragment(scene: Scene) -> None:
    source = scene.source(ume_message_stability_notification=3, ume_confirmed_delivery_notification=3)
    receiver = scene.context.receiver("quotes", options={"ume_session_id": 5})
    data = [object() for _ in range(3)]
    for i, each in enumerate(data):
        source.send(bytes(2500 if i == 1 else 10), client_data=each)
    for _ in data:
        take(receiver).release()
    wanted = [data[0], data[1], data[1], data[1], data[2]]
    kinds: list[type[Any]] = [MessageStable, DeliveryConfirmation, MessageReclaimed]
    for kind in kinds:
        assert [event.client_data for event in scene.events.wait(kind, 5)] == wanted
