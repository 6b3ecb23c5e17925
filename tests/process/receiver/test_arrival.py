"""Delivery in order of arrival (docs/semantics.md F.6): live messages beside recovery, and acks that stay a
prefix of the numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.handmade_feed import Ring, Stage, numbers, payload
from support.receiving import SESSION, SHORT, Told, send, source, until

import holdfast as hf
from holdfast.engine.events import receiver as events
from holdfast.engine.log.columns import new_entries
from holdfast.engine.receiver.ack_window import AckWindow, ExplicitWindow
from holdfast.engine.receiver.arrival_order import ArrivalFeed, ArrivalWindow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from process.conftest import ThreadStore

ARRIVAL = {"ordered_delivery": -1}


@pytest.fixture
def stage(tmp_path: Path, domain: str) -> Iterator[Stage]:
    made = Stage(tmp_path, domain)
    yield made
    made.close()


def both(stage: Stage, start: int, split: int) -> ArrivalFeed:
    """Recovery of [start, split) from the logs and the ring, live from there on."""
    return ArrivalFeed(
        lambda listener: (
            stage.open(start, line=-1, stop=split, listener=listener),
            stage.open(split, listener=listener),
        ),
        stage,
    )


def drain(stage: Stage, feed: ArrivalFeed) -> list[object]:
    stage.told.clear()
    while feed.receive(stage.slot):
        stage.told.append(payload(stage.slot))
    return list(stage.told)


def test_live_messages_come_while_recovery_waits_for_a_store(stage: Stage) -> None:
    ring = Ring(stage, 1, 0)
    ring.send(500, pad=1000)
    log = stage.log("a")
    log.begin(1, 0)
    log.plain(0, 9)
    feed = both(stage, 0, 500)
    assert drain(stage, feed) == numbers(0, 9), "10 is neither in the ring nor in the log"
    ring.send(2)
    assert drain(stage, feed) == numbers(500, 501)
    assert feed.next == 10
    log.plain(10, 499)
    ring.send(1)
    found = drain(stage, feed)
    assert sorted(found, key=lambda data: int(data)) == numbers(10, 499) + numbers(502, 502)  # type: ignore[call-overload]
    assert found != sorted(found, key=lambda data: int(data)), "the live one did not wait for the end"  # type: ignore[call-overload]
    assert feed.next == 503


@pytest.mark.parametrize("logged", [True, False], ids=["from the log", "from the ring"])
def test_recovery_ends_exactly_where_the_live_part_begins(stage: Stage, logged: bool) -> None:
    ring = Ring(stage, 1, 0)
    ring.send(20)
    log = stage.log("a")
    log.begin(1, 0)
    if logged:
        log.plain(0, 19)
    feed = both(stage, 0, 10)
    assert sorted(drain(stage, feed), key=str) == sorted(numbers(0, 19), key=str)


def test_batches_of_both_parts_end_where_the_live_part_begins(stage: Stage) -> None:
    ring = Ring(stage, 1, 0)
    ring.send(20)
    log = stage.log("a")
    log.begin(1, 0)
    log.plain(0, 19)
    feed = both(stage, 0, 10)
    spans = []
    while (view := feed.batch(new_entries(64), 64, 1 << 20)) is not None:
        spans.append((int(view.entries[0].sequence_number), int(view.entries[view.count - 1].sequence_number)))
        view.release()
    assert sorted(spans) == [(0, 9), (10, 19)]


def test_loss_in_what_is_recovered_ends_there(stage: Stage) -> None:
    Ring(stage, 1, 0).send(500, pad=1000)
    log = stage.log("a")
    log.begin(1, 0)
    log.lost(0, 499)
    feed = both(stage, 0, 300)
    found = drain(stage, feed)
    old, live = sorted(told for told in found if isinstance(told, tuple))
    assert old == ("lost", 0, 299)
    assert live[:2] == ("lost", 300)
    assert [data.rstrip() for data in found if isinstance(data, bytes)] == numbers(live[2] + 1, 499)


def test_the_end_of_the_live_part_is_told_when_everything_is_recovered(stage: Stage) -> None:
    ring = Ring(stage, 1, 0)
    ring.send(500, pad=1000)
    log = stage.log("a")
    log.begin(1, 0)
    feed = both(stage, 0, 500)
    ring.end()
    assert drain(stage, feed) == []
    log.plain(0, 499)
    assert drain(stage, feed) == [*numbers(0, 499), "ended"]


def test_a_new_incarnation_below_the_live_part_ends_recovery_there(stage: Stage) -> None:
    old = Ring(stage, 1, 0)
    old.send(20)
    log = stage.log("a")
    log.begin(1, 0)
    feed = both(stage, 0, 10)
    before = []
    for _ in range(4):
        assert feed.receive(stage.slot)
        before.append(payload(stage.slot))
    assert sorted(before) == [b"0", b"1", b"10", b"11"], "2 to 9 are in a block"
    log.plain(0, 4)
    new = Ring(stage, 2, 5)
    log.begin(2, 5)
    new.send(3)
    feed.live.newer = True  # as the context's thread says when it sees the new ring
    found = drain(stage, feed)
    after = found[found.index(("begun", 2, 5)) :]
    assert [data for data in after if data in numbers(5, 19)] == numbers(5, 7)
    assert sorted(data for data in found if data in numbers(2, 4)) == numbers(2, 4)
    assert feed.next == 8


def test_a_ring_that_has_begun_nowhere_ends_neither_part(stage: Stage) -> None:
    ring = Ring(stage, 1, 0)
    ring.send(20)
    log = stage.log("a")
    log.begin(1, 0)
    feed = both(stage, 0, 10)
    assert feed.receive(stage.slot)
    Ring(stage, 2, 5, began=False)
    ring.send(2)
    feed.live.newer = True
    found = drain(stage, feed)
    assert sorted(found, key=str) == sorted(numbers(1, 21), key=str)
    log.plain(0, 21)
    ring.end()
    assert drain(stage, feed) == ["ended"]


def test_a_batch_of_the_recovered_part_ends_where_a_new_incarnation_begins(stage: Stage) -> None:
    old = Ring(stage, 1, 0)
    old.send(20)
    log = stage.log("a")
    log.begin(1, 0)
    log.plain(0, 4)
    feed = both(stage, 0, 10)
    while stage.slot.entry.sequence_number != 1:
        assert feed.receive(stage.slot)
    Ring(stage, 2, 5)
    feed.rebased(2, 5, 5)  # as the live part says when it finds the ring
    spans = []
    while (view := feed.batch(new_entries(64), 64, 1 << 20)) is not None:
        spans.append((int(view.entries[0].sequence_number), int(view.entries[view.count - 1].sequence_number)))
        view.release()
    assert [span for span in spans if span[0] < 10] == [(2, 4)]


# Acknowledgements: the prefix by number ---------------------------------------------------------------------


def test_the_window_acknowledges_the_recovered_part_first() -> None:
    window = ArrivalWindow(AckWindow(0), AckWindow(10), 10)
    live = window.delivered(10, 12)
    window.consumed(live)
    assert window.advance() is None, "0 to 9 are not consumed"
    first, second = window.delivered(0, 4), window.delivered(5, 9)
    window.consumed(second)
    assert window.advance() is None
    window.consumed(first)
    assert window.advance() == 13
    assert window.settled


def test_lost_numbers_and_evicted_batches_belong_to_their_part() -> None:
    window = ArrivalWindow(AckWindow(0), AckWindow(10), 10)
    batch = window.delivered(10, 19)
    window.lost(0, 9)
    assert window.advance() == 10
    assert window.rewind(batch) == 10
    window.consumed(window.delivered(10, 10))
    assert window.advance() == 11


def test_a_new_incarnation_takes_back_what_was_acknowledged_of_the_old_one() -> None:
    window = ArrivalWindow(AckWindow(0), AckWindow(10), 10)
    window.consumed(window.delivered(10, 12))
    window.lost(0, 9)
    assert window.advance() == 13
    window.rebase(7)
    assert window.ack == 7
    held = window.delivered(7, 9)
    assert window.advance() is None
    window.consumed(held)
    assert window.advance() == 10


def test_an_explicit_ack_of_a_live_number_counts_when_the_recovered_part_is_acknowledged() -> None:
    window = ArrivalWindow(ExplicitWindow(5), ExplicitWindow(7), 7)
    old, live = window.delivered(5, 5), window.delivered(7, 7)
    assert window.valid(live, 9) is None
    assert window.ack == 5
    assert window.valid(old, 6) == 6
    window.told(6)
    assert window.valid(old, 7) == 9, "the last one that was recovered, and the live one that was acknowledged before"
    window.told(9)
    assert window.ack == 9
    assert window.valid(live, 10) == 10


# Through the public names -----------------------------------------------------------------------------------


def receive(rcv: hf.Receiver, count: int) -> list[hf.Message]:
    found = []
    for _ in range(count):
        message = rcv.receive(SHORT)
        assert message is not None
        found.append(message)
    return found


@pytest.fixture
def store(run_store: Callable[..., ThreadStore]) -> ThreadStore:
    return run_store()


def test_every_message_comes_once_and_acks_follow_the_numbers(store: object) -> None:
    told = Told()
    with hf.Context() as ctx, hf.Context(session_id=SESSION) as other:
        src = source(ctx, 100)
        rcv = other.receiver("quotes", options=ARRIVAL, on_event=told)
        assert told.wait(events.RegistrationComplete).sequence_number == 0
        send(src, 100)
        messages = receive(rcv, 200)
        assert sorted(message.sequence_number for message in messages) == list(range(200))
        assert {message.sequence_number for message in messages if message.is_retransmit} == set(range(100))
        held = next(message for message in messages if message.sequence_number == 50)
        for message in messages:
            if message is not held:
                message.release()
        until("the prefix is acknowledged", lambda: list(rcv.stats().acknowledged.values()) == [49])
        held.release()
        until("all is acknowledged", lambda: list(rcv.stats().acknowledged.values()) == [199])
        send(src, 1)
        (last,) = receive(rcv, 1)
        assert (last.sequence_number, last.is_retransmit) == (200, False)


def test_an_immediate_ack_does_not_acknowledge_what_is_still_to_be_recovered(store: object) -> None:
    choice = {**ARRIVAL, "ume_use_ack_batching": 0}
    with hf.Context() as ctx, hf.Context(session_id=SESSION) as other:
        src = source(ctx, 10)
        rcv = other.receiver("quotes", options=choice)
        until("registered", lambda: rcv.controllers)
        send(src, 10)
        messages = receive(rcv, 20)
        for message in messages:
            if message.sequence_number >= 10:
                message.release()
        rcv.close()
        again = other.receiver("quotes", options=choice)
        (first,) = receive(again, 1)
        assert first.sequence_number in {0, 20}
        assert min(message.sequence_number for message in [first, *receive(again, 19)]) == 0


@pytest.mark.parametrize("how", [{}, {"ume_use_ack_batching": 0}, {"ume_explicit_ack_only": 1}], ids=str)
def test_a_live_message_acknowledges_nothing_that_the_start_has_skipped_or_that_is_held(
    store: object, how: dict[str, int]
) -> None:
    def low(info: hf.events.RecoverySequenceNumberInfo) -> None:
        info.low_sequence_number = 5

    choice = {**ARRIVAL, **how, "ume_recovery_sequence_number_info_function": low}
    with hf.Context() as ctx, hf.Context(session_id=SESSION) as other:
        src = source(ctx, 7)
        with other.receiver("quotes") as rcv:
            receive(rcv, 1)[0].release()
        with other.receiver("quotes", options=choice) as rcv:
            until("registered", lambda: rcv.controllers)
            send(src, 2)
            held = {message.sequence_number: message for message in receive(rcv, 4)}
            assert sorted(held) == [5, 6, 7, 8], "1 to 4 are skipped"
            if "ume_explicit_ack_only" in how:
                held[8].send_explicit_ack()
            held[8].release()
            held[7].release()
        rcv = other.receiver("quotes")
        assert [message.sequence_number for message in receive(rcv, 8)] == list(range(1, 9))


def test_batches_and_iteration_in_order_of_arrival(store: object) -> None:
    with hf.Context() as ctx, hf.Context(session_id=SESSION) as other:
        src = source(ctx, 100)
        rcv = other.receiver("quotes", options=ARRIVAL)
        until("registered", lambda: rcv.controllers)
        send(src, 100)
        seen: list[int] = []
        while len(seen) < 150:
            batch = rcv.receive_batch(7, timeout=SHORT)
            assert batch is not None
            seen += batch.frames["sequence_number"].tolist()
            batch.release()
        for message in rcv:
            seen.append(message.sequence_number)
            if len(seen) == 200:
                break
        assert sorted(seen) == list(range(200))
        send(src, 1)
        assert [message.sequence_number for message in receive(rcv, 1)] == [200]


def test_in_order_of_arrival_is_in_order_where_there_is_nothing_to_recover(store: object) -> None:
    with hf.Context() as ctx:
        rcv = ctx.receiver("quotes", options=ARRIVAL)
        src = source(ctx, 0)
        until("registered", lambda: rcv.controllers)
        send(src, 50)
        assert [message.sequence_number for message in receive(rcv, 50)] == list(range(50))
