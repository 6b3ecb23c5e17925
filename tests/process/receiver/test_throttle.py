"""ume_application_outstanding_maximum: delivery waits for consumption, in every form of receiving
(docs/semantics.md F.2)."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from support.workers import until

import holdfast as hf

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SOURCE: dict[str, object] = {"ume_store_name": ["a:0:0"], "ume_flight_size": 100_000, "ring_size": 1 << 20}
MAXIMUM: dict[str, object] = {"ume_application_outstanding_maximum": 3}
EXPLICIT: dict[str, object] = {**MAXIMUM, "ume_explicit_ack_only": 1, "ume_session_id": 9}
SHORT = 90.0


@pytest.fixture
def src(run_store: Callable[..., Any]) -> Iterator[hf.Source]:
    run_store()
    with hf.Context(name="sender") as ctx:
        source = ctx.source("quotes", options=SOURCE)
        source.wait_registered(SHORT)
        yield source


@pytest.fixture
def ctx() -> Iterator[hf.Context]:
    with hf.Context(options={"ume_ack_batching_interval": 5}) as made:
        yield made


def send(source: hf.Source, count: int) -> None:
    first = source.next_sequence_number
    for number in range(first, first + count):
        source.send(b"%d" % number)


def take(receiver: hf.Receiver) -> hf.Message:
    message = receiver.receive(timeout=SHORT)
    assert message is not None, "no message came"
    return message


@pytest.mark.parametrize("form", ["receive", "receive_batch"])
def test_who_may_not_receive_waits_asleep_though_there_is_more(
    src: hf.Source, ctx: hf.Context, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    receiver = ctx.receiver("quotes", options=MAXIMUM)
    send(src, 6)
    held = [take(receiver) for _ in range(3)]
    looks, look = 0, hf.Receiver._may_wait

    def counted(rcv: hf.Receiver, called_ns: int, timeout: float | None) -> int:
        nonlocal looks
        looks += 1
        return look(rcv, called_ns, timeout)

    monkeypatch.setattr(hf.Receiver, "_may_wait", counted)
    assert getattr(receiver, form)(timeout=0.5) is None
    assert looks < 100
    del held


def test_receive_returns_none_while_so_many_are_held_and_goes_on_when_one_is_released(
    src: hf.Source, ctx: hf.Context
) -> None:
    receiver = ctx.receiver("quotes", options=MAXIMUM)
    send(src, 6)
    held = [take(receiver) for _ in range(3)]
    assert receiver.receive(timeout=0) is None
    assert receiver.receive(timeout=0.01) is None
    assert receiver.stats().outstanding == 3
    held[1].release()
    held[1].release()
    assert take(receiver).sequence_number == 3
    assert receiver.receive(timeout=0) is None, "one release lets one message in"


def test_a_release_from_another_thread_wakes_a_receive_that_waits(src: hf.Source, ctx: hf.Context) -> None:
    receiver = ctx.receiver("quotes", options=MAXIMUM)
    send(src, 4)
    held = [take(receiver) for _ in range(3)]
    got: list[int] = []
    waiting = threading.Thread(target=lambda: got.append(take(receiver).sequence_number))
    waiting.start()
    until("it waits", lambda: receiver.receiving)
    rings = count_rings(ctx)
    until("the pause is noticed", lambda: receiver._outstanding._paused)  # type: ignore[attr-defined]
    held[0].release()
    assert rings, "somebody waits: the bell is rung"
    waiting.join()
    assert got == [3]


def count_rings(ctx: hf.Context) -> list[None]:
    """Grows with each ring of the context's bell."""
    rings: list[None] = []
    ring = ctx.bells.ring

    class Bells:
        def __getattr__(self, name: str) -> object:
            return getattr(bells, name)

        def ring(self) -> None:
            rings.append(None)
            ring()

    bells = ctx.bells
    ctx.bells = Bells()  # type: ignore[assignment]
    return rings


def test_a_release_while_nobody_waits_rings_no_bell(src: hf.Source, ctx: hf.Context) -> None:
    receiver = ctx.receiver("quotes", options=MAXIMUM)
    send(src, 2)
    held = [take(receiver) for _ in range(2)]
    rings = count_rings(ctx)
    held[0].release()
    assert rings == []


def test_batches_take_no_more_than_there_is_room_for(src: hf.Source, ctx: hf.Context) -> None:
    send(src, 10)
    src.wait_stable(timeout=SHORT)
    receiver = ctx.receiver("quotes", options=MAXIMUM)
    first = take(receiver)
    batch = receiver.receive_batch(100, timeout=SHORT)
    assert batch is not None
    assert len(batch) == 2
    assert receiver.receive_batch(100, timeout=0) is None
    assert receiver.receive(timeout=0) is None
    batch.release()
    again = receiver.receive_batch(100, timeout=SHORT)
    assert again is not None
    assert len(again) == 2
    first.release()


def test_an_iteration_consumes_as_it_goes_and_stops_only_for_what_is_retained(src: hf.Source, ctx: hf.Context) -> None:
    receiver = ctx.receiver("quotes", options={"ume_application_outstanding_maximum": 1})
    send(src, 20)
    for message in receiver:
        assert receiver.stats().outstanding == 1
        if message.sequence_number == 9:
            message.retain()
            break
    assert receiver.receive(timeout=0) is None
    message.release()
    assert take(receiver).sequence_number == 10


def test_callbacks_pause_for_what_is_retained_and_go_on_when_it_is_released(src: hf.Source, ctx: hf.Context) -> None:
    kept: list[hf.Message] = []
    receiver = ctx.receiver("quotes", options=MAXIMUM, on_message=lambda message: kept.append(message.retain()))
    send(src, 10)
    until("three are kept", lambda: len(kept) == 3)
    until("the pause is noticed", lambda: receiver._outstanding._paused)  # type: ignore[attr-defined]
    assert receiver._outstanding.pauses()  # type: ignore[attr-defined]
    for number in range(10):
        until("another one comes", partial(lambda number: len(kept) > number, number))
        assert len(kept) <= number + 3
        assert kept[number].sequence_number == number
        kept[number].release()


def test_awaiting_pauses_too(src: hf.Source, ctx: hf.Context) -> None:
    receiver = ctx.receiver("quotes", options=MAXIMUM)
    send(src, 4)

    async def work() -> int:
        held = [await receiver.receive_async(SHORT) for _ in range(3)]
        assert await receiver.receive_async(0.05) is None
        first = held[0]
        assert first is not None
        asyncio.get_running_loop().call_later(0.01, first.release)
        last = await receiver.receive_async(SHORT)
        assert last is not None
        return last.sequence_number

    assert asyncio.run(work()) == 3


def test_a_sequential_context_pauses_too(src: hf.Source) -> None:
    with hf.Context(options={"operational_mode": "sequential"}) as ctx:
        receiver = ctx.receiver("quotes", options=MAXIMUM)
        send(src, 4)
        held = [take(receiver) for _ in range(3)]
        assert receiver.receive(timeout=0.05) is None
        held[2].release()
        assert take(receiver).sequence_number == 3


def test_fragments_are_counted_and_a_message_goes_whole(ctx: hf.Context, run_store: Callable[..., Any]) -> None:
    run_store()
    source = ctx.source("quotes", options={**SOURCE, "fragment_size": 1000})
    source.wait_registered(SHORT)
    receiver = ctx.receiver("quotes", options=MAXIMUM)
    for size in (10, 4500, 10):
        source.send(bytes(size))
    first, large = take(receiver), take(receiver)
    assert receiver.stats().outstanding == 6, "the last one goes beyond"
    first.release()
    assert receiver.receive(timeout=0) is None
    large.release()
    assert take(receiver).sequence_number == 6


def test_explicit_releasing_lets_nothing_in_and_an_ack_does(src: hf.Source, ctx: hf.Context) -> None:
    receiver = ctx.receiver("quotes", options=EXPLICIT)
    send(src, 10)
    held = [take(receiver) for _ in range(3)]
    ack = held[2].extract_ack()
    for message in held:
        message.release()
    assert receiver.receive(timeout=0) is None
    ack.send(1)
    assert [take(receiver).sequence_number for _ in range(2)] == [3, 4]
    assert receiver.receive(timeout=0) is None


def test_mark_not_outstanding_lets_messages_in_and_acknowledges_nothing(src: hf.Source, ctx: hf.Context) -> None:
    receiver = ctx.receiver("quotes", options=EXPLICIT)
    send(src, 10)
    first, *_ = [take(receiver) for _ in range(3)]
    ack = first.extract_ack()
    ack.mark_not_outstanding()
    assert take(receiver).sequence_number == 3
    assert receiver.receive(timeout=0) is None
    ack.mark_not_outstanding(3)
    assert [take(receiver).sequence_number for _ in range(3)] == [4, 5, 6]
    assert receiver.stats().acknowledged == {next(iter(receiver.stats().acknowledged)): -1}
    receiver.close()
    assert take(ctx.receiver("quotes", options=EXPLICIT)).sequence_number == 0


def test_off_nothing_is_counted(src: hf.Source, ctx: hf.Context) -> None:
    receiver = ctx.receiver("quotes", options={"ume_application_outstanding_maximum": 0})
    assert type(receiver) is hf.Receiver
    send(src, 100)
    assert [take(receiver).sequence_number for _ in range(100)] == list(range(100))
    assert receiver.stats().outstanding == 0
