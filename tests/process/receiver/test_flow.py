"""The loop of an iteration, which is in C (csrc/python/flow.c), and the objects that it shares with
Python."""

from __future__ import annotations

import gc
import signal
import sys
import threading
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.receiving import SHORT, acknowledged, send, source, until
from support.timed import Calls, median_ns, timed

import holdfast as hf
from holdfast.engine.native.core import Block, Counts, Flow, Gate, Lane, Pool, Served
from holdfast.engine.native.core import Slot as Cells
from holdfast.engine.native.waiting import STRATEGIES
from holdfast.engine.receiver.ring_reader import RingReader

if TYPE_CHECKING:
    from collections.abc import Iterator


def flowing(src: hf.Source, rcv: hf.Receiver) -> Iterator[hf.Message]:
    """An iteration whose next message comes by a flow: the ring serves."""
    messages = iter(rcv)
    send(src, 2)
    assert [next(messages).sequence_number for _ in range(2)] == [0, 1]
    assert rcv.has_lane()
    return messages


def interrupting(rcv: hf.Receiver, number: signal.Signals) -> None:
    """As soon as the main thread waits for a message."""

    def interrupt() -> None:
        until("it waits", lambda: rcv.receiving)
        signal.pthread_kill(threading.main_thread().ident or 0, number)

    threading.Thread(target=interrupt).start()


# What the acknowledgement may pass --------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["released first", "held", "retained", "explicitly released later"])
def test_what_is_received_within_an_iteration_holds_its_ack_back(src: hf.Source, rcv: hf.Receiver, how: str) -> None:
    """However the loop's own message ends."""
    messages = flowing(src, rcv)
    send(src, 10)
    mine = next(messages)
    if how == "released first":
        mine.release()
    if how == "retained":
        mine.retain()
    held = rcv.receive(SHORT)
    assert held is not None
    if how == "explicitly released later":
        mine.release()
    assert [message.sequence_number for message in islice(messages, 5)] == [4, 5, 6, 7, 8]
    assert acknowledged(rcv) == (1 if how == "retained" else 2)
    mine.release()
    assert acknowledged(rcv) == 2
    held.release()
    assert acknowledged(rcv) == 7, "the next one is the loop's still"
    assert next(messages).sequence_number == 9
    assert acknowledged(rcv) == 8


def test_a_batch_within_an_iteration_holds_its_ack_back(src: hf.Source, rcv: hf.Receiver) -> None:
    messages = flowing(src, rcv)
    send(src, 10)
    next(messages).release()
    batch = rcv.receive_batch(3, SHORT)
    assert batch is not None
    assert [next(messages).sequence_number for _ in range(2)] == [6, 7]
    assert acknowledged(rcv) == 2
    batch.release()
    assert acknowledged(rcv) == 6


@pytest.mark.parametrize("strategy", ["block", "busy_spin"])
def test_a_batch_is_awaited_as_the_strategy_says(
    src: hf.Source, strategy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the one ring that there is, in C, by one call, as a message is."""
    waits: Calls = []

    def has_waited() -> bool:
        assert receiver.receive_batch(1, timeout=0.02) is None
        return bool(waits) and median_ns(waits) > 1_000_000  # it waits there, and does not only look

    monkeypatch.setattr(RingReader, "wait", timed(RingReader.wait, waits))
    with hf.Context(options={"wait_strategy": strategy}) as context:
        receiver = context.receiver("quotes")
        until("registered", lambda: receiver.stats().sources == 1)
        send(src, 1)
        first = receiver.receive_batch(1, SHORT)  # the ring serves
        assert first is not None
        first.release()
        waits.clear()
        until("it has waited", has_waited)
        assert {how for (how, _), _ in waits} == {STRATEGIES[strategy]}
        sending = threading.Timer(0.01, send, (src, 1))
        sending.start()
        batch = receiver.receive_batch(5, SHORT)
        assert batch is not None
        assert len(batch) == 1
        batch.release()
        sending.join()


def test_what_a_signal_handler_receives_during_a_wait_holds_its_ack_back(src: hf.Source, rcv: hf.Receiver) -> None:
    messages = flowing(src, rcv)
    held: list[hf.Message | None] = []

    def receive(*_: object) -> None:
        send(src, 1)
        held.append(rcv.receive(SHORT))
        send(src, 4)

    before = signal.signal(signal.SIGUSR1, receive)
    try:
        interrupting(rcv, signal.SIGUSR1)
        assert [next(messages).sequence_number for _ in range(4)] == [3, 4, 5, 6]
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert acknowledged(rcv) == 1
    (message,) = held
    assert message is not None
    message.release()
    assert acknowledged(rcv) == 5


def test_a_message_that_a_loop_within_a_loop_was_left_at_is_consumed_by_the_outer_one(
    src: hf.Source, rcv: hf.Receiver
) -> None:
    messages = flowing(src, rcv)
    send(src, 6)
    assert next(messages).sequence_number == 2
    left = next(iter(rcv))
    assert left.sequence_number == 3
    assert acknowledged(rcv) == 1
    assert [next(messages).sequence_number for _ in range(3)] == [4, 5, 6]
    assert left.released
    assert acknowledged(rcv) == 5


def test_what_comes_again_after_an_eviction_is_not_passed_by_what_was_delivered_behind_it(
    src: hf.Source, rcv: hf.Receiver
) -> None:
    messages = flowing(src, rcv)
    send(src, 8)
    batch = rcv.receive_batch(3, SHORT)
    assert batch is not None
    mine = next(messages)
    assert mine.sequence_number == 5
    (controller,) = rcv.controllers
    rcv.batch_evicted(controller, batch._ack_slot)
    again = rcv.receive(SHORT)
    assert again is not None
    assert again.sequence_number == 2
    mine.release()
    assert [next(messages).sequence_number for _ in range(4)] == [3, 4, 5, 6]
    assert acknowledged(rcv) == 1
    again.release()
    assert acknowledged(rcv) == 5


# Whose memory it is -----------------------------------------------------------------------------------------


def test_messages_that_a_program_keeps_are_not_used_again(src: hf.Source, rcv: hf.Receiver) -> None:
    messages = flowing(src, rcv)
    send(src, 20)
    kept = list(islice(messages, 20))
    assert len({id(message) for message in kept}) == 20
    assert [message.released for message in kept] == [True] * 19 + [False]
    send(src, 20)
    more = list(islice(messages, 20))
    assert not {id(message) for message in kept} & {id(message) for message in more}


def test_iterations_that_are_left_and_begun_again_make_no_messages(src: hf.Source, rcv: hf.Receiver) -> None:

    def some() -> None:
        send(src, 10)
        for _ in range(5):
            for message in islice(rcv, 2):
                message.release()

    some()
    before = rcv.stats().pool_allocated
    for _ in range(50):
        some()
    assert rcv.stats().pool_allocated == before


def test_a_view_of_a_view_keeps_the_memory(src: hf.Source, rcv: hf.Receiver) -> None:
    messages = flowing(src, rcv)
    views: list[Any] = []
    for number in range(6):
        src.send(b"number %d" % number)
        data = next(messages).data
        views.append([data[7:], np.frombuffer(data, np.uint8)[7:], memoryview(data).cast("b")[7:]][number % 3])
        del data
    assert [bytes(view) for view in views] == [b"%d" % number for number in range(6)]
    assert rcv.stats().pool_kept_views == 5
    del views


def test_a_view_of_the_ring_outlives_its_batch_and_the_context(ctx: hf.Context) -> None:
    with hf.Context() as context:
        sender, receiver = source(context, topic="other"), context.receiver("other")
        sender.send(b"first")
        batch = receiver.receive_batch(timeout=SHORT)
        assert batch is not None
        payload, memory, start = batch.payload(0), batch.memory, int(batch.frames["offset"][0])
        batch.release()
    del context, sender, receiver, batch
    gc.collect()
    assert bytes(payload) == b"first"  # nobody has written there since
    assert bytes(memory[start : start + 5]) == b"first"


def test_a_view_that_outlives_its_message_says_so(src: hf.Source, rcv: hf.Receiver) -> None:
    messages = flowing(src, rcv)
    src.send(b"first")
    data = next(messages).data
    src.send(b"other")
    assert bytes(next(messages)) == b"other"
    with pytest.raises(ValueError, match="released"):
        bytes(data)


def test_a_message_grows_where_one_is_larger(src: hf.Source, rcv: hf.Receiver) -> None:
    messages = flowing(src, rcv)
    sizes = [1, 8192, 8193, 20, 100_000, 0, 70_000]
    for size in sizes:
        src.send(b"x" * size)
    assert [len(bytes(message)) for message in islice(messages, len(sizes))] == sizes


def test_a_large_message_makes_one_buffer_grow(src: hf.Source, rcv: hf.Receiver) -> None:
    messages = flowing(src, rcv)
    send(src, 50)
    kept = list(islice(messages, 50))  # the pool has as many then
    del kept
    send(src, 50)
    assert len(list(islice(messages, 50))) == 50
    before = rcv.stats().pool_buffers
    src.send(b"x" * 100_000)
    assert len(next(messages)) == 100_000
    assert rcv.stats().pool_buffers == before + 1


# What ends it -----------------------------------------------------------------------------------------------


def test_a_signal_ends_a_wait_and_the_receiver_goes_on(src: hf.Source, rcv: hf.Receiver) -> None:
    messages = flowing(src, rcv)
    interrupting(rcv, signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        next(messages)
    send(src, 1)
    message = rcv.receive(SHORT)
    assert message is not None
    assert message.sequence_number == 2


def test_two_threads_cannot_iterate(rcv: hf.Receiver) -> None:
    def iterate() -> None:
        with pytest.raises(hf.ClosedError):
            next(iter(rcv))

    other = threading.Thread(target=iterate)
    other.start()
    until("it waits", lambda: rcv.receiving)
    with pytest.raises(hf.UsageError, match="another thread"):
        next(iter(rcv))
    rcv.close()
    other.join()


def test_a_flow_keeps_nothing_alive(src: hf.Source, rcv: hf.Receiver) -> None:
    send(src, 400)

    def counted() -> int:
        for _ in range(200):
            next(iter(rcv)).release()
        gc.collect()
        return sys.getrefcount(rcv)

    before = counted()  # the messages in the pool refer to it, too, and the context's thread now and then
    assert counted() < before + 50


# What C looks into ------------------------------------------------------------------------------------------


def test_objects_of_another_type_are_refused() -> None:
    with pytest.raises(TypeError):
        Cells(object())  # type: ignore[arg-type]
    slot = Cells(Gate())
    for name, value in (("block", b"bytes"), ("block", None), ("_controller", object()), ("_controller", None)):
        with pytest.raises(TypeError, match=name):
            setattr(slot, name, value)
    for size in (0, -1):
        with pytest.raises(ValueError, match="block of"):
            Block(size)


def test_a_slot_without_memory_is_not_read() -> None:
    slot = Cells(Gate())
    slot._live = True
    for look in (lambda: slot.data, lambda: bytes(slot), lambda: len(slot), lambda: slot.sequence_number):
        with pytest.raises(ValueError, match="released"):
            look()


def test_no_more_is_read_than_the_memory_has(src: hf.Source, rcv: hf.Receiver) -> None:
    messages = flowing(src, rcv)
    src.send(b"x" * 100)
    message = next(messages)
    message.block = Block(99)
    for look in (lambda: message.data, lambda: bytes(message), lambda: len(message)):
        with pytest.raises(ValueError, match="released"):
            look()


def test_a_lane_of_nothing_is_refused() -> None:
    controller, feed = Counts(), Served()
    with pytest.raises(ValueError, match="address"):
        Lane((), controller, feed, (1, 1, 0), 0, 0)
    with pytest.raises(TypeError):
        Lane((), controller, object(), (1, 1, 1), 0, 0)  # type: ignore[arg-type]
    gate = Gate()
    for lane in (None, object()):
        gate.lane = lane  # type: ignore[assignment]
        with pytest.raises(ValueError, match="no lane"):
            Flow(gate, 0)
    gate.lane = Lane((), controller, feed, (1, 1, 1), 0, 0)
    assert not gate.has_lane(), "nothing serves there"
    assert gate.lane is None


def test_a_message_of_a_source_that_has_not_begun_is_refused() -> None:
    taken: list[object] = []

    class Receiver(Gate):
        def take_back(self, *what: object) -> None:
            taken.append(what)

    gate, controller = Receiver(), Counts()
    slot = Cells(gate)
    with pytest.raises(RuntimeError, match="not begun"):
        gate.arrived(controller, 0, slot)
    assert taken == [(controller, slot)]


def test_a_pool_gives_messages_only() -> None:
    class Odd(Pool):
        def make(self) -> object:
            return object()

    with pytest.raises(TypeError, match="something else than a message"):
        Odd().take()
    with pytest.raises(TypeError, match="takes a message"):
        Odd().give(object())


def test_a_block_counts_the_views_of_it() -> None:
    block = Block(10)
    view: memoryview | None = memoryview(block)
    assert view is not None
    assert view.readonly
    other: memoryview | None = view[2:4]
    view = None
    assert block.views == 1
    assert len(bytes(other or b"")) == 2
    other = None
    assert block.views == 0
