"""Only an acknowledgement moves a position: what a start skips is there for the next one, until the program
acknowledges."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest
from support.crashing_receiver import Crashing
from support.paced_source import BLOCKS, DISK, LIMIT, SIZE
from support.paced_source import SOURCE as PACED_SOURCE
from support.receiver_line import line_of
from support.receiving import SESSION, SHORT, Told, acked, send, source, take, until

import holdfast as hf
from holdfast.engine.events import receiver as events

if TYPE_CHECKING:
    from collections.abc import Callable

    from process.conftest import ThreadStore

MINE = {"ume_session_id": SESSION}
AGAIN = {**MINE, "ume_registration_interval": 200}
"""Who held the session is just dying."""
ARRIVAL = {"ordered_delivery": -1}
IMMEDIATE = {"ume_use_ack_batching": 0}
EXPLICIT = {"ume_explicit_ack_only": 1}


def low(number: int) -> dict[str, Any]:
    """A recovery callback that says where to start."""

    def choose(info: Any) -> None:
        info.low_sequence_number = number

    return {"ume_recovery_sequence_number_info_function": choose}


SKIPS = [
    pytest.param({"retransmit_request_maximum": 2}, 4, id="at most two back"),
    pytest.param(low(5), 5, id="a callback's choice"),
    pytest.param(low(7), 7, id="a callback that skips all"),
    pytest.param({"use_late_join": 0}, 7, id="no late join"),
]


@pytest.fixture
def store(run_store: Callable[..., ThreadStore]) -> ThreadStore:
    return run_store()


def position(rcv: hf.Receiver) -> int:
    """First number that its line on the board does not acknowledge, which is what stores take in."""
    return int(line_of(cast("hf.Context", rcv.context), rcv.controllers[0].uuid).ack)


def started(ctx: hf.Context, told: Told, **options: Any) -> tuple[hf.Receiver, int]:
    """A registered receiver, and where it starts."""
    rcv = ctx.receiver("quotes", options=options, on_event=told)
    return rcv, told.wait(events.RegistrationComplete).sequence_number


@pytest.mark.parametrize(
    "form", [{}, IMMEDIATE, EXPLICIT, ARRIVAL], ids=["batched", "immediate", "explicit", "arrival"]
)
@pytest.mark.parametrize(("skip", "start"), SKIPS)
def test_a_start_acknowledges_nothing(
    store: ThreadStore, skip: dict[str, Any], start: int, form: dict[str, Any]
) -> None:
    with hf.Context() as ctx, hf.Context(session_id=SESSION) as other:
        source(ctx, 7)
        acked({}, 0)
        rcv, began = started(other, Told(), **skip, **form)
        assert began == start
        held = rcv.receive(SHORT) if start < 7 else None
        assert held is None or held.sequence_number == start
        assert list(rcv.stats().acknowledged.values()) == [0]
        rcv.close()
        again, began = started(other, Told())
        assert began == 1, "the first that was not acknowledged"
        assert take(again, 6) == [1, 2, 3, 4, 5, 6]


def test_a_kill_at_the_first_message_acknowledges_nothing(store: ThreadStore) -> None:
    with hf.Context() as ctx:
        source(ctx, 7)
        acked({}, 0)
        with Crashing({**MINE, "retransmit_request_maximum": 2}, {}, 1) as crashing:
            crashing.crash()
        told = Told()
        rcv = ctx.receiver("quotes", options=AGAIN, on_event=told)
        assert told.wait(events.RegistrationComplete).sequence_number == 1
        assert take(rcv, 6) == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("form", [{}, IMMEDIATE, ARRIVAL], ids=["batched", "immediate", "arrival"])
def test_the_first_acknowledgement_covers_what_the_start_skipped(store: ThreadStore, form: dict[str, Any]) -> None:
    with hf.Context() as ctx, hf.Context(session_id=SESSION) as other:
        source(ctx, 7)
        acked({}, 0)
        rcv, _ = started(other, Told(), **low(5), **form)
        assert take(rcv) == [5]
        rcv.close()
        assert started(other, Told())[1] == 6


def test_in_order_of_arrival_a_live_message_covers_nothing(store: ThreadStore) -> None:
    """What is recovered is held; what was acknowledged beside it came later."""
    with hf.Context() as ctx, hf.Context(session_id=SESSION) as other:
        src = source(ctx, 7)
        acked({}, 0)
        rcv, _ = started(other, Told(), **low(5), **ARRIVAL)
        send(src, 2)
        held = [rcv.receive(SHORT) for _ in range(4)]
        assert sorted(message.sequence_number for message in held if message is not None) == [5, 6, 7, 8]
        for message in held:
            if message is not None and message.sequence_number != 5:
                message.release()
        rcv.acknowledge(0)
        assert position(rcv) == 1
        for message in held:
            if message is not None:
                message.release()
        rcv.acknowledge(0)
        assert position(rcv) == 9


@pytest.mark.parametrize(("skip", "start"), SKIPS)
def test_a_new_receiver_that_skips_is_where_the_store_granted_it(
    store: ThreadStore, skip: dict[str, Any], start: int
) -> None:
    with hf.Context() as ctx, hf.Context(session_id=SESSION) as other:
        src = source(ctx, 7)
        rcv, began = started(other, Told(), **skip)
        assert (began, position(rcv)) == (start, 0)
        rcv.close()
        rcv, began = started(other, Told(), **skip)
        assert began == start
        send(src, 1)
        assert take(rcv) == [start]
        rcv.close()
        assert started(other, Told())[1] == start + 1


def confirmed(skip: dict[str, Any], before: int) -> list[int]:
    """Numbers that the source sees confirmed, when ``before`` messages were acknowledged and then one behind
    ``skip``."""
    told = Told()
    with hf.Context() as ctx, hf.Context(session_id=SESSION) as other:
        options = {"ume_store_name": ["a:0:0"], "ume_confirmed_delivery_notification": 1}
        src = ctx.source("quotes", options=options, on_event=told)
        src.wait_registered(SHORT)
        send(src, 7)
        if before:
            acked({}, before - 1)
        rcv, _ = started(other, Told(), **skip)
        (last,) = take(rcv)
        of = hf.events.source.DeliveryConfirmation
        until("the last is confirmed", lambda: any(each.sequence_number == last for each in told.of(of)))
        return [each.sequence_number for each in told.of(of)]


def test_an_acknowledgement_confirms_what_its_session_was_to_have_and_no_past_before_it(store: ThreadStore) -> None:
    assert confirmed(low(5), 2) == [0, 1, 2, 3, 4, 5]


def test_a_new_receiver_never_confirms_what_it_skipped(store: ThreadStore) -> None:
    assert confirmed(low(5), 0) == [5]


def test_what_the_rollback_limit_skips_is_not_acknowledged(run_store: Callable[..., ThreadStore]) -> None:
    store = run_store(kind="disk")
    with hf.Context() as ctx, hf.Context(session_id=SESSION) as other:
        source(ctx, 7)
        acked({}, 0)
        store.stop()
        limited = run_store(kind="disk", **{"receiver-new-registration-rollback": 3})
        rcv, began = started(other, Told())
        assert (began, position(rcv)) == (4, 1)
        rcv.close()
        limited.stop()
        run_store(kind="disk")
        assert started(other, Told())[1] == 1


def test_a_new_position_is_within_the_rollback_limit_and_durable_at_the_grant(
    run_store: Callable[..., ThreadStore],
) -> None:
    """So it stays there, however the limit is set later: what was before it is nothing that this receiver
    had."""
    store = run_store(kind="disk", **{"receiver-new-registration-rollback": 3})
    with hf.Context() as ctx, hf.Context(session_id=SESSION) as other:
        source(ctx, 7)
        rcv, began = started(other, Told())
        assert (began, position(rcv)) == (4, 4)
        rcv.close()
        store.stop()
        again = run_store(kind="disk")
        assert again.store.state.sources[0].receivers[0].ack == 4
        assert started(other, Told())[1] == 4


def send_until_refused(src: hf.Source) -> None:
    while True:
        src.send(bytes(SIZE), timeout=0.1)


# Receiver-paced ---------------------------------------------------------------------------------------------


def test_a_session_that_skipped_keeps_its_messages_and_is_named_until_it_acknowledges(
    run_store: Callable[..., ThreadStore],
) -> None:
    store = run_store("a", "disk", **DISK)
    room = LIMIT // SIZE
    told, seen = Told(), Told()
    with hf.Context(session_id=5) as ctx, hf.Context(session_id=SESSION) as other:
        src = ctx.source("quotes", options=PACED_SOURCE, on_event=told)
        src.wait_registered(SHORT)
        first, _ = started(other, Told(), **BLOCKS)
        src.send(bytes(SIZE), timeout=SHORT)
        assert take(first) == [0]
        for _ in range(room - 1):
            src.send(bytes(SIZE), timeout=SHORT)
        first.close()
        rcv, began = started(other, seen, **BLOCKS, **low(room))
        assert began == room
        assert seen.wait(events.Skipped).sequence_number == room - 1
        with pytest.raises(hf.WouldBlockError, match=rf"1\.\.{room - 1}.*session ID {SESSION:#x}") as refused:
            send_until_refused(src)
        assert refused.value.reason == "flight_bytes"
        assert "acknowledge_skipped" in refused.value.hint
        skipped = told.wait(hf.events.source.Skipped)
        assert (skipped.session_id, skipped.first_sequence_number, skipped.sequence_number) == (SESSION, 1, room - 1)
        log = next(iter(store.store.drainer.repositories.values()))
        assert int(log.info.oldest_sqn) <= 1, "nothing that it has not acknowledged went"
        assert rcv.acknowledge_skipped() == room - 1
        assert src.send(bytes(SIZE), timeout=SHORT) >= room
        assert rcv.acknowledge_skipped() == 0
