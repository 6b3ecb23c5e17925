"""Receive buffers are used again: a steady state allocates nothing, and nothing that a program still looks at
changes.

Three counters must stand still while tens of thousands of messages pass: holdfast's own (stats: messages,
buffers, arrays for batches), CPython's (sys.getallocatedblocks: every object that lives), and the C library's
(mallinfo2, read through ctypes: bytes in use in all arenas, and bytes in mappings of their own). The bounds
do not depend on the number of messages.
"""

from __future__ import annotations

import ctypes
import gc
import logging
import sys
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.workers import until

import holdfast as hf
from holdfast.engine.native import kernels

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SOURCE: dict[str, object] = {"ume_store_name": ["a:0:0"], "ume_flight_size": 100_000, "ring_size": 1 << 21}
SHORT = 90.0
ROUND = 2000
ROUNDS = 10
BLOCKS = 500
"""Objects that may appear by the way, other threads' included, however many messages pass: 20 000 do."""
C_BYTES = 256 * 1024
"""One block of malloc's smallest size for each message would be more than twice as much."""


@pytest.fixture
def ctx(run_store: Callable[..., Any]) -> Iterator[hf.Context]:
    run_store()
    kernels.jit()  # else they are loaded in the background, some time after a few thousand messages
    with hf.Context() as made:
        yield made


@pytest.fixture
def src(ctx: hf.Context) -> hf.Source:
    source = ctx.source("quotes", options=SOURCE)
    source.wait_registered(SHORT)
    return source


def take(receiver: hf.Receiver) -> hf.Message:
    message = receiver.receive(timeout=SHORT)
    assert message is not None, "no message came"
    return message


# man 3 mallinfo2
_FIELDS = ["arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"]


class _MallInfo(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in _FIELDS]


_mallinfo2 = ctypes.CDLL(None).mallinfo2
_mallinfo2.restype = _MallInfo


def c_bytes() -> int:
    """Bytes that C's malloc has given out."""
    info = _mallinfo2()
    return int(info.uordblks + info.hblkhd)


def own(receiver: hf.Receiver) -> tuple[int, ...]:
    """What holdfast made for this receiver so far."""
    stats = receiver.stats()
    return stats.pool_allocated, stats.pool_buffers, stats.pool_batches, stats.pool_most_in_use


def assert_steady(receiver: hf.Receiver, work: Callable[[int], None]) -> None:
    """``work(n)`` passes n messages. Nothing may be left of ten rounds that was not there after two."""
    work(ROUND)
    work(ROUND)
    gc.collect()
    before = own(receiver), sys.getallocatedblocks(), c_bytes()
    gc.disable()
    try:
        for _ in range(ROUNDS):
            work(ROUND)
        garbage = gc.collect()
        after = own(receiver), sys.getallocatedblocks(), c_bytes()
    finally:
        gc.enable()
    assert after[0] == before[0]
    assert garbage < BLOCKS, "Python objects in cycles"
    assert after[1] - before[1] < BLOCKS, "Python objects are left"
    assert after[2] - before[2] < C_BYTES, "C memory is left"


# Steady state -----------------------------------------------------------------------------------------------


def test_receive_allocates_nothing(ctx: hf.Context, src: hf.Source) -> None:
    receiver = ctx.receiver("quotes")

    def work(count: int) -> None:
        for _ in range(count):
            src.send(b"sixteen bytes...")
            message = take(receiver)
            assert len(message.data) == 16
            message.release()

    assert_steady(receiver, work)
    assert receiver.stats().pool_allocated <= 3


def test_iterating_allocates_nothing(ctx: hf.Context, src: hf.Source) -> None:
    receiver = ctx.receiver("quotes")
    messages = iter(receiver)
    rows = np.zeros((100, 16), np.uint8)

    def work(count: int) -> None:
        for _ in range(count // len(rows)):
            src.send_batch(rows)
            for message in islice(messages, len(rows)):
                assert len(bytes(message)) == 16

    assert_steady(receiver, work)
    assert receiver.stats().pool_allocated <= 3


def test_callbacks_allocate_nothing(ctx: hf.Context, src: hf.Source) -> None:
    seen = [0]

    def count_one(message: hf.Message) -> None:
        seen[0] += len(message.data) == 16

    receiver = ctx.receiver("quotes", on_message=count_one)
    rows = np.zeros((100, 16), np.uint8)
    sent = [0]

    def work(count: int) -> None:
        for _ in range(count // len(rows)):
            src.send_batch(rows)
            sent[0] += len(rows)
            until("they are received", lambda: seen[0] == sent[0])

    assert_steady(receiver, work)
    assert receiver.stats().pool_allocated <= 3


def test_batches_allocate_nothing(ctx: hf.Context, src: hf.Source) -> None:
    receiver = ctx.receiver("quotes")
    rows = np.zeros((100, 16), np.uint8)

    def work(count: int) -> None:
        for _ in range(count // len(rows)):
            src.send_batch(rows)
            left = len(rows)
            while left:
                with batch_of(receiver) as batch:
                    left -= len(batch)
                    assert batch.memory[int(batch.frames["offset"][-1])] == 0

    assert_steady(receiver, work)
    assert receiver.stats().pool_batches <= 3


def batch_of(receiver: hf.Receiver) -> hf.Batch:
    batch = receiver.receive_batch(4096, timeout=SHORT)
    assert batch is not None, "no batch came"
    return batch


def test_extracted_acks_and_acks_of_batches_allocate_nothing(ctx: hf.Context, src: hf.Source) -> None:
    receiver = ctx.receiver("quotes", options={"ume_explicit_ack_only": 1})
    src.send(b"first")
    ack = take(receiver).extract_ack()
    rows = np.zeros((100, 16), np.uint8)

    def work(count: int) -> None:
        for _ in range(count // len(rows)):
            src.send_batch(rows)
            left = len(rows)
            while left:
                message = take(receiver)
                mine = message.extract_ack()
                message.release()
                mine.send()
                mine.close()
                with batch_of(receiver) as batch:
                    left -= len(batch) + 1
                    ack.send(int(batch.frames["sequence_number"][-1]))

    def both(count: int) -> None:
        work(count)
        assert list(receiver.stats().acknowledged.values()) == [src.next_sequence_number - 1]

    assert_steady(receiver, both)


def test_a_mix_of_sizes_and_fragments_settles(ctx: hf.Context) -> None:
    source = ctx.source("quotes", options={**SOURCE, "fragment_size": 4096})
    source.wait_registered(SHORT)
    receiver = ctx.receiver("quotes")
    sizes = [10, 8192, 8193, 100_000, 16, 5000, 60_000]
    payloads = [bytes([i]) * size for i, size in enumerate(sizes)]

    def work(count: int) -> None:
        for i in range(count // 10):
            payload = payloads[i % len(payloads)]
            source.send(payload)
            message = take(receiver)
            assert bytes(message) == payload
            message.release()

    assert_steady(receiver, work)
    stats = receiver.stats()
    assert stats.pool_bytes == stats.pool_messages * (1 << 17), "each has grown to the next power of two once"
    assert stats.pool_buffers <= stats.pool_allocated * len(sizes)


def test_stats_tell_what_the_pool_has_and_had_at_most(ctx: hf.Context, src: hf.Source) -> None:
    receiver = ctx.receiver("quotes")
    for _ in range(40):
        src.send(b"x")
    held = [take(receiver) for _ in range(20)]
    assert receiver.stats().pool_messages == 0
    for message in held:
        message.release()
    del held, message
    stats = receiver.stats()
    assert (stats.pool_most_in_use, stats.pool_messages, stats.pool_bytes) == (20, 20, 20 * 8192)
    for _ in range(20):
        take(receiver).release()
    stats = receiver.stats()
    assert (stats.pool_most_in_use, stats.pool_allocated, stats.pool_buffers) == (20, 20, 20)
    assert "pool_most_in_use=20" in repr(stats)


def test_messages_that_are_dropped_unreleased_are_not_in_use(ctx: hf.Context, src: hf.Source) -> None:
    receiver = ctx.receiver("quotes", options={"ume_explicit_ack_only": 1})
    for _ in range(100):
        src.send(b"x")
    for _ in range(100):
        take(receiver)
    assert receiver.stats().pool_most_in_use <= 2


# What a program keeps ---------------------------------------------------------------------------------------

VIEWS: dict[str, Callable[[memoryview], Any]] = {
    "np.frombuffer": lambda data: np.frombuffer(data, np.uint8),
    "slice": lambda data: data[10:90],
    "cast": lambda data: data.cast("I"),
    "slice of a cast": lambda data: data.cast("Q")[1:3],
    "view of an array": lambda data: np.frombuffer(data, np.uint8)[::2],
    "memoryview of it": memoryview,
}


@pytest.mark.parametrize("form", ["receive", "iterate", "callback"])
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_a_view_that_is_kept_keeps_its_content(
    ctx: hf.Context, src: hf.Source, view: Callable[[memoryview], Any], form: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "holdfast")
    kept: list[Any] = []
    seen: list[int] = []

    def look(message: hf.Message) -> None:
        if bytes(message)[:1] == b"A":
            kept.append(view(message.data))
        seen.append(len(message))

    receiver = ctx.receiver("quotes", on_message=look if form == "callback" else None)
    payloads = [b"A" * 120, b"A" * 120, *[b"B" * 120] * 3000]
    if form == "iterate":
        messages = warmed_up(receiver, src)
        for payload in payloads:
            src.send(payload)
        for message in islice(messages, len(payloads)):
            look(message)
    else:
        for payload in payloads:
            src.send(payload)
    if form == "receive":
        for _ in payloads:
            with take(receiver) as message:
                look(message)
    until("all are seen", lambda: len(seen) == len(payloads))
    assert len(kept) == 2
    assert all(set(bytes(one)) == {ord("A")} for one in kept)
    stats = receiver.stats()
    assert stats.pool_kept_views == 2
    assert stats.pool_buffers == stats.pool_allocated + 2
    (warning,) = [record.getMessage() for record in caplog.records if "view" in record.getMessage()]
    assert "bytes(msg)" in warning
    assert "retain()" in warning
    assert "quotes" in warning


def warmed_up(receiver: hf.Receiver, src: hf.Source) -> Iterator[hf.Message]:
    """An iteration in the receiver's lane: the shortest way that there is."""
    messages = iter(receiver)
    for _ in range(3):
        src.send(b"warm up")
        next(messages)
    assert receiver.has_lane()
    return messages


def test_data_itself_ends_with_its_message(ctx: hf.Context, src: hf.Source) -> None:
    receiver = ctx.receiver("quotes")
    src.send(b"payload")
    message = take(receiver)
    data = message.data
    message.release()
    with pytest.raises(ValueError, match="released"):
        data[0]
    assert receiver.stats().pool_kept_views == 0


TOUCHES: dict[str, Callable[[hf.Message], object]] = {
    name: lambda message, name=name: getattr(message, name)  # type: ignore[misc]
    for name in (
        "data",
        "sequence_number",
        "first_sequence_number",
        "fragments",
        "timestamp_ns",
        "topic",
        "source",
        "is_retransmit",
        "flags",
        "can_send_explicit_ack",
    )
}
TOUCHES |= {
    "bytes": bytes,
    "len": len,
    "retain": lambda message: message.retain(),
    "send_explicit_ack": lambda message: message.send_explicit_ack(),
    "extract_ack": lambda message: message.extract_ack(),
}


@pytest.mark.parametrize("touch", TOUCHES.values(), ids=TOUCHES)
def test_touching_a_message_after_release_or_close_is_a_value_error(
    ctx: hf.Context, src: hf.Source, touch: Callable[[hf.Message], object]
) -> None:
    receiver = ctx.receiver("quotes", options={"ume_explicit_ack_only": 1})
    src.send(b"payload")
    src.send(b"payload")
    released, held = take(receiver), take(receiver)
    touch(released)
    released.release()
    with pytest.raises(ValueError, match="released"):
        touch(released)
    receiver.close()
    with pytest.raises(ValueError, match="released"):
        touch(held)
    assert repr(released) == repr(held) == "<Message released>"


def test_frames_that_are_kept_over_the_release_of_their_batch_stay_as_they_were(
    ctx: hf.Context, src: hf.Source
) -> None:
    receiver = ctx.receiver("quotes")
    kept = []
    for _ in range(50):
        src.send_batch(np.zeros((20, 16), np.uint8))
        with batch_of(receiver) as batch:
            numbers = batch.frames["sequence_number"]
            kept.append((numbers, numbers.tolist()))
    assert all(numbers.tolist() == copy for numbers, copy in kept)
    assert not kept[0][0].flags.writeable


def test_a_message_that_is_still_referred_to_is_not_used_again(ctx: hf.Context, src: hf.Source) -> None:
    receiver = ctx.receiver("quotes")
    for _ in range(20):
        src.send(b"x")
    old = [take(receiver) for _ in range(5)]
    for message in old:
        message.release()
    fresh = [take(receiver) for _ in range(5)]
    assert not {id(message) for message in old} & {id(message) for message in fresh}
    assert all(message.released for message in old)


def test_a_released_message_that_is_kept_for_ever_costs_one_other(ctx: hf.Context, src: hf.Source) -> None:
    receiver = ctx.receiver("quotes")
    src.send(b"kept")
    kept = take(receiver)
    kept.release()
    for _ in range(500):
        src.send(b"x")
        take(receiver).release()
    assert receiver.stats().pool_allocated <= 3
    assert kept.released


def test_a_message_that_two_threads_released_at_once_is_not_handed_out_twice(ctx: hf.Context, src: hf.Source) -> None:
    receiver = ctx.receiver("quotes")
    for _ in range(30):
        src.send(b"x")
    messages = [take(receiver) for _ in range(10)]
    for message in messages:
        message.release()
        message.forget()  # what the other thread does that found it unreleased, too
    del messages, message
    held = [take(receiver) for _ in range(20)]
    assert len({id(message) for message in held}) == len(held)


# Eviction ---------------------------------------------------------------------------------------------------


@pytest.fixture
def fast(ctx: hf.Context) -> hf.Source:
    """It waits for nobody's view."""
    source = ctx.source("quotes", options={**SOURCE, "ring_size": 1 << 16, "receiver_pin_timeout": 0})
    source.wait_registered(SHORT)
    return source


def overtake(source: hf.Source) -> None:
    """More than the ring holds, no faster than the store reads it."""
    for number in range(3000):
        source.send(bytes(100))
        if number % 100 == 0:
            source.wait_stable(timeout=SHORT)


@pytest.mark.parametrize("explicit", [0, 1], ids=["batched", "explicit"])
def test_an_evicted_batch_is_not_acknowledged_and_comes_again(ctx: hf.Context, fast: hf.Source, explicit: int) -> None:
    receiver = ctx.receiver("quotes", options={"ume_explicit_ack_only": explicit, "ume_session_id": 7})
    for _ in range(50):
        fast.send(b"early")
    first = take(receiver)
    batch = batch_of(receiver)
    overtake(fast)
    if explicit:
        with pytest.raises(hf.EvictedError):
            batch.send_explicit_ack()
    with pytest.raises(hf.EvictedError):
        batch.to_arrow()
    with pytest.raises(hf.EvictedError):
        batch.release()
    batch.release()
    if not explicit:
        first.release()
    numbers: list[int] = []
    while not numbers or numbers[-1] < 3049:
        with take(receiver) as message:
            numbers.append(message.sequence_number)
            if numbers[-1] < 50:
                assert message.is_retransmit
                assert bytes(message) == b"early"
    assert numbers == list(range(1, 3050))
    if explicit:
        assert list(receiver.stats().acknowledged.values()) == [-1]
    else:
        until("all is acknowledged", lambda: list(receiver.stats().acknowledged.values()) == [3049])


def test_after_an_eviction_and_a_crash_the_whole_batch_comes_again(ctx: hf.Context, fast: hf.Source) -> None:
    options = {"ume_session_id": 7}
    with ctx.receiver("quotes", options=options) as receiver:
        for _ in range(50):
            fast.send(b"early")
        take(receiver).release()
        batch = batch_of(receiver)
        overtake(fast)
        with pytest.raises(hf.EvictedError):
            batch.release()
    again = ctx.receiver("quotes", options=options)
    assert take(again).sequence_number == 1


def test_a_with_block_over_an_evicted_batch_ends_with_the_error(ctx: hf.Context, fast: hf.Source) -> None:
    receiver = ctx.receiver("quotes")
    for _ in range(10):
        fast.send(b"early")
    batch = batch_of(receiver)
    with pytest.raises(hf.EvictedError), batch:
        overtake(fast)
    assert list(receiver.stats().acknowledged.values()) == [-1]
    assert take(receiver).sequence_number == 0
