"""A receiver while its source begins anew at a lower number (DESIGN 13): acks of void messages never count for the new ones.

A store never lets a living receiver see that; lost stores do. The rings are made by hand, without stores.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from process.feeds import Ring, Stage
from process.receiving import SHORT, Told, take, until

import holdfast as hf
from holdfast.engine.core import ffi, lib
from holdfast.engine.events import receiver as events

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def stage(tmp_path: Path, domain: str) -> Iterator[Stage]:
    made = Stage(tmp_path, domain)
    yield made
    made.close()


def ring(stage: Stage, incarnation: int, start: int) -> Ring:
    """One that receivers find."""
    made = Ring(stage, incarnation, start)
    lib.hf_source_sri(made.handle, ffi.NULL, 0, ffi.new("struct hf_sri_groups *"))
    lib.hf_bell_ring_all(stage.bells.handle)
    return made


def test_a_receiver_goes_back_and_so_does_its_acknowledgement(stage: Stage) -> None:
    told = Told()
    with hf.Context() as ctx:
        first = ring(stage, 1, 0)
        rcv = ctx.receiver("t", on_event=told)
        first.send(10)
        assert take(rcv, 9) == list(range(9))
        held = rcv.receive(SHORT)
        assert held is not None
        (inbound,) = rcv.inbounds
        assert inbound.board is not None
        line = lib.hf_board_line_at(inbound.board.handle, inbound.line)
        until("the acks are on the board", lambda: (line.ack, line.ack_stream) == (9, 1))
        first.end()
        assert rcv.receive(timeout=0.05) is None
        second = ring(stage, 2, 7)
        second.send(2)
        again = rcv.receive(SHORT)
        assert again is not None
        assert again.sequence_number == 7
        until("the acks went back", lambda: (line.ack, line.ack_stream) == (7, 2))
        held.release()  # number 9 of the old incarnation: void
        rcv.acknowledge(0)
        assert line.ack == 7
        again.release()
        assert take(rcv) == [8]
        until("the acks go on", lambda: line.ack == 9)
        story = [name for name in told.names() if name.endswith("OfStream")]
        assert story == ["BeginOfStream", "EndOfStream", "BeginOfStream"]
        assert not told.of(events.UnrecoverableLoss)


def test_a_batch_of_the_old_incarnation_acknowledges_nothing_of_the_new_one(stage: Stage) -> None:
    with hf.Context() as ctx:
        first = ring(stage, 1, 0)
        first.send(10)
        rcv = ctx.receiver("t")
        batch = rcv.receive_batch(timeout=SHORT)
        assert batch is not None
        assert len(batch) == 10
        second = ring(stage, 2, 4)
        second.send(3)
        message = rcv.receive(SHORT)
        assert message is not None
        assert message.sequence_number == 4
        batch.release()
        rcv.acknowledge(0)
        assert max(rcv.stats().acknowledged.values()) <= 3
        message.release()
        assert take(rcv, 2) == [5, 6]
        until("all is acknowledged", lambda: list(rcv.stats().acknowledged.values()) == [6])


@pytest.mark.parametrize("form", ["message", "batch"])
def test_at_once_what_is_void_acknowledges_nothing_of_the_new_one(stage: Stage, form: str) -> None:
    with hf.Context() as ctx:
        first = ring(stage, 1, 0)
        first.send(10)
        rcv = ctx.receiver("t", options={"ume_use_ack_batching": 0})
        receive = rcv.receive_batch if form == "batch" else rcv.receive
        held = [receive(timeout=SHORT) for _ in range(1 if form == "batch" else 10)]
        second = ring(stage, 2, 4)
        second.send(3)
        message = rcv.receive(SHORT)
        assert message is not None
        assert message.sequence_number == 4
        for each in held:
            assert each is not None
            each.release()
        assert list(rcv.stats().acknowledged.values()) == [3]
        message.release()
        assert list(rcv.stats().acknowledged.values()) == [4]


@pytest.mark.parametrize("form", ["receive", "extracted", "iterated", "batch"])
def test_an_explicit_ack_of_the_old_incarnation_ends_where_the_new_one_begins(stage: Stage, form: str) -> None:
    with hf.Context() as ctx:
        first = ring(stage, 1, 0)
        first.send(10)
        rcv = ctx.receiver("t", options={"ume_explicit_ack_only": 1})
        if form == "batch":
            batch = rcv.receive_batch(timeout=SHORT)
            assert batch is not None
            ack = batch.extract_ack()
        else:
            assert take(rcv, 9) == list(range(9))
            held = next(iter(rcv)) if form == "iterated" else rcv.receive(SHORT)
            assert held is not None
            if form == "extracted":
                ack = held.extract_ack()
        second = ring(stage, 2, 4)
        second.send(6)
        assert take(rcv) == [4]
        if form in {"receive", "iterated"}:
            assert held is not None
            ack = held.extract_ack()
        ack.send()
        assert list(rcv.stats().acknowledged.values()) == [3]
        message = next(iter(rcv)) if form == "iterated" else rcv.receive(SHORT)
        assert message is not None
        message.extract_ack().send(8)
        assert list(rcv.stats().acknowledged.values()) == [8]
