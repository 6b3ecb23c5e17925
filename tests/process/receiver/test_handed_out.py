"""What a program does with what it was handed, messages, their data and batches: a natural form of use is
never a trap."""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING

import numpy as np
import pytest

import holdfast as hf
from holdfast.engine.native.core import ffi

if TYPE_CHECKING:
    from collections.abc import Callable

SOURCE: dict[str, object] = {"ume_store_name": ["a:0:0"], "ring_size": 1 << 20}
SHORT = 90.0


@pytest.fixture
def src(ctx: hf.Context) -> hf.Source:
    source = ctx.source("quotes", options=SOURCE)
    source.wait_registered(SHORT)
    return source


def take(receiver: hf.Receiver) -> hf.Message:
    message = receiver.receive(timeout=SHORT)
    assert message is not None, "no message came"
    return message


def batch_of(receiver: hf.Receiver) -> hf.Batch:
    batch = receiver.receive_batch(timeout=SHORT)
    assert batch is not None, "no batch came"
    return batch


# An empty message -------------------------------------------------------------------------------------------


def test_a_loop_that_asks_whether_there_is_a_message_does_not_stop_at_an_empty_one(
    ctx: hf.Context, src: hf.Source
) -> None:
    receiver = ctx.receiver("quotes")
    for payload in (b"one", b"", b"three"):
        src.send(payload)
    seen: list[bytes] = []
    while len(seen) < 3 and (message := receiver.receive(timeout=SHORT)):
        seen.append(bytes(message))
        message.release()
    assert seen == [b"one", b"", b"three"]
    receiver.acknowledge(0)
    assert list(receiver.stats().acknowledged.values()) == [2]


def test_a_released_message_is_true_too(ctx: hf.Context, src: hf.Source) -> None:
    receiver = ctx.receiver("quotes")
    src.send(b"")
    message = take(receiver)
    message.release()
    assert bool(message) is True


# Data -------------------------------------------------------------------------------------------------------


def test_data_may_be_used_in_a_with_block_and_asked_for_again(ctx: hf.Context, src: hf.Source) -> None:
    receiver = ctx.receiver("quotes")
    src.send(b"payload")
    message = take(receiver)
    for _ in range(3):
        with message.data as view:
            assert bytes(view) == b"payload"
    assert message.data is message.data
    assert bytes(message.data) == b"payload"
    message.release()
    assert receiver.stats().pool_kept_views == 0


def test_data_that_was_ended_while_a_view_of_it_is_left_still_keeps_the_buffer(ctx: hf.Context, src: hf.Source) -> None:
    receiver = ctx.receiver("quotes")
    src.send(b"first")
    message = take(receiver)
    with message.data as view:
        kept = memoryview(view)
    with message.data as view:
        assert bytes(view) == b"first"
    message.release()
    del message
    for _ in range(5):
        src.send(b"other")
        take(receiver).release()
    assert bytes(kept) == b"first"
    assert receiver.stats().pool_kept_views == 1


def test_a_message_that_is_used_again_takes_no_weak_reference(ctx: hf.Context, src: hf.Source) -> None:
    receiver = ctx.receiver("quotes")
    src.send_batch(np.zeros((2, 1), np.uint8))
    message = take(receiver)
    with pytest.raises(TypeError, match="weak reference"):
        weakref.ref(message)
    for received in receiver:
        with pytest.raises(TypeError, match="weak reference"):
            weakref.ref(received)
        break


# Batches ----------------------------------------------------------------------------------------------------


def test_nothing_of_a_batch_can_be_made_writable(ctx: hf.Context, src: hf.Source) -> None:
    src.send_batch(np.zeros((20, 16), np.uint8))
    receiver = ctx.receiver("quotes", options={"ume_session_id": 7})
    for name in ("the ring's", "a log's"):
        if name == "a log's":
            src.close()
            receiver = ctx.receiver("quotes", options={"ume_session_id": 8})
        with batch_of(receiver) as batch:
            frames = batch.frames
            for array in (frames, frames["offset"], batch.memory, batch.memory[:10], np.asarray(batch.payload(0))):
                with pytest.raises(ValueError, match="WRITEABLE"):
                    array.flags.writeable = True
            assert batch.payload(0).readonly, name


def test_a_batch_of_any_number_takes_memory_for_what_can_be_there(
    ctx: hf.Context, src: hf.Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    new = ffi.new

    class Counting:
        def __getattr__(self, name: str) -> object:
            return getattr(ffi, name)

        def new(self, kind: str, *rest: int) -> object:
            if kind == "struct hf_entry[]":
                made.append(int(rest[0]))
            return new(kind, *rest)

    monkeypatch.setattr("holdfast.engine.log.columns.ffi", Counting())
    receiver = ctx.receiver("quotes")
    src.send_batch(np.zeros((500, 0), np.uint8))
    for maximum in (2**31, 2**70):
        src.send(b"x")
        batch = receiver.receive_batch(maximum, timeout=SHORT)
        assert batch is not None
        batch.release()
    assert made
    assert max(made) <= 4 << 20 >> 5, "entries: more do not fit into the 4 MiB that a batch spans"


def test_a_batch_of_many_messages_without_bytes_is_whole(ctx: hf.Context) -> None:
    """The smallest frames: as many in one batch as there can be."""
    source = ctx.source(
        "ticks", options={"ume_store_name": ["a:0:0"], "ring_size": 1 << 24, "ume_flight_size": 1 << 20}
    )
    source.wait_registered(SHORT)
    receiver = ctx.receiver("ticks")
    source.send(b"")
    take(receiver).release()
    count = 100_000
    for _ in range(count // 1000):
        source.send_batch(np.zeros((1000, 1), np.uint8))
    seen = 0
    while seen < count:
        batch = receiver.receive_batch(2**31, timeout=SHORT)
        assert batch is not None
        assert int(batch.frames["sequence_number"][0]) == seen + 1
        seen += len(batch)
        batch.release()
    assert seen == count


# close() on another thread ----------------------------------------------------------------------------------


FORMS: dict[str, Callable[[hf.Receiver], object]] = {
    "receive": lambda receiver: receiver.receive(),
    "receive at once": lambda receiver: receiver.receive(timeout=0),
    "receive_batch": lambda receiver: receiver.receive_batch(),
    "iterate": lambda receiver: next(iter(receiver)),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_who_receives_while_another_thread_closes_is_told_that_it_is_closed(
    ctx: hf.Context, form: Callable[[hf.Receiver], object]
) -> None:
    """Asked while the close is at work: it holds the receiver for itself then, and another thread's claim
    looks the same."""
    receiver = ctx.receiver("quotes")
    inside, go_on = threading.Event(), threading.Event()
    wait = receiver.not_receiving

    def close_slowly() -> None:
        with wait():
            inside.set()
            assert go_on.wait(SHORT)

    receiver.closed = True
    closer = threading.Thread(target=close_slowly)
    closer.start()
    try:
        assert inside.wait(SHORT)
        with pytest.raises(hf.ClosedError):
            form(receiver)
    finally:
        go_on.set()
        closer.join(SHORT)
        receiver.closed = False


def test_an_iteration_on_the_ring_that_goes_on_while_another_thread_closes_is_told_so(
    ctx: hf.Context, src: hf.Source
) -> None:
    receiver = ctx.receiver("quotes")
    for _ in range(3):
        src.send(b"x")
    messages = iter(receiver)
    next(messages)
    next(messages)
    inside, go_on = threading.Event(), threading.Event()

    def close_slowly() -> None:
        with receiver.not_receiving():
            inside.set()
            assert go_on.wait(SHORT)

    closer = threading.Thread(target=close_slowly)
    closer.start()
    try:
        assert inside.wait(SHORT)
        receiver.closed = True
        with pytest.raises(hf.ClosedError):
            next(messages)
    finally:
        go_on.set()
        closer.join(SHORT)
        receiver.closed = False


def receive_for_ever(receiver: hf.Receiver, some: threading.Event, ended: list[BaseException]) -> None:
    try:
        while True:
            message = receiver.receive(timeout=0.01)
            some.set()
            if message is not None:
                message.release()
    except BaseException as error:
        ended.append(error)


def test_a_thread_that_receives_for_ever_ends_with_closed(ctx: hf.Context, src: hf.Source) -> None:
    for _ in range(10):
        receiver = ctx.receiver("quotes")
        ended: list[BaseException] = []
        some = threading.Event()

        thread = threading.Thread(target=receive_for_ever, args=(receiver, some, ended))
        thread.start()
        assert some.wait(SHORT)
        receiver.close()
        thread.join(SHORT)
        assert [type(error) for error in ended] == [hf.ClosedError]
