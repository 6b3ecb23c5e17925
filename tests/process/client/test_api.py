"""The contract's small print, through the public names: what a message, a view, an ack and a wait may be
relied on for."""

from __future__ import annotations

import gc
import threading
import time
import tracemalloc
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

import holdfast as hf
from holdfast.engine.native import kernels

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[3]
OPTIONS = {"ume_store_name": ["a:0:0"], "ume_flight_size": 100_000, "ring_size": 1 << 20}
SHORT = 90.0


@pytest.fixture
def store(run_store: Callable[..., object]) -> object:
    return run_store()


@pytest.fixture
def pair(store: object) -> Any:
    """(source, receiver): registered, and the receiver has seen the source."""
    with hf.Context() as ctx:
        src = ctx.source("quotes", options=OPTIONS)
        src.wait_registered(SHORT)
        rcv = ctx.receiver("quotes")
        src.send(b"hello")
        take(rcv).release()
        yield src, rcv


def take(rcv: hf.Receiver) -> hf.Message:
    message = rcv.receive(timeout=SHORT)
    assert message is not None, "no message came"
    return message


def until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + SHORT
    while not true():
        assert time.monotonic() < deadline, "the time is over"
        time.sleep(0.002)


def acked(rcv: hf.Receiver) -> int:
    (number,) = rcv.stats().acknowledged.values()
    return number


# Messages and their memory ----------------------------------------------------------------------------------


def test_a_view_that_is_kept_over_the_release_is_never_overwritten(pair: tuple[hf.Source, hf.Receiver]) -> None:
    src, rcv = pair
    src.send(b"A" * 100)
    message = take(rcv)
    kept = np.frombuffer(message.data, np.uint8)
    message.release()
    with pytest.raises(ValueError, match="released"):
        bytes(message)
    for _ in range(200):
        src.send(b"B" * 100)
        take(rcv).release()
    assert bytes(kept) == b"A" * 100
    assert not kept.flags.writeable
    assert rcv.stats().pool_kept_views == 1


def test_messages_are_held_in_any_number_and_released_in_any_order(pair: tuple[hf.Source, hf.Receiver]) -> None:
    src, rcv = pair
    for i in range(100):
        src.send(b"%d" % i)
    held = [take(rcv) for _ in range(100)]
    assert [bytes(message) for message in held] == [b"%d" % i for i in range(100)]
    for message in held[1:][::-1]:
        message.release()
        message.release()
    assert bytes(held[0]) == b"0"
    assert acked(rcv) <= 0, "the oldest one holds the acks back"
    held[0].release()
    until(lambda: acked(rcv) == 100)


def test_retain_and_release_from_another_thread(pair: tuple[hf.Source, hf.Receiver]) -> None:
    src, rcv = pair
    for i in range(50):
        src.send(b"%d" % i)
    held = [take(rcv).retain() for _ in range(50)]
    seen: list[bytes] = []

    def work() -> None:
        for message in held:
            seen.append(bytes(message))
            message.release()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [b"%d" % i for i in range(50)]
    until(lambda: acked(rcv) == 50)


def steady(pair: tuple[hf.Source, hf.Receiver], messages: int) -> None:
    src, rcv = pair
    for _ in range(messages):
        src.send(b"sixteen bytes....")
        message = rcv.receive(timeout=SHORT)
        assert message is not None
        assert len(message.data) == 17
        message.release()


def growth(pair: tuple[hf.Source, hf.Receiver]) -> int:
    """Bytes that 10,000 messages leave allocated; or that the context's thread holds just then, when it lists
    /dev/shm."""
    steady(pair, 100)
    before, _ = tracemalloc.get_traced_memory()
    steady(pair, 10_000)
    after, _ = tracemalloc.get_traced_memory()
    return after - before


def test_steady_state_allocates_nothing_per_message(pair: tuple[hf.Source, hf.Receiver]) -> None:
    kernels.jit()  # else they are loaded in the background, some time after a few thousand messages
    steady(pair, 1000)
    allocated = pair[1].stats().pool_allocated
    gc.collect()
    objects = len(gc.get_objects())
    tracemalloc.start()
    try:
        grown = [growth(pair) for _ in range(3)]
    finally:
        tracemalloc.stop()
    gc.collect()
    assert pair[1].stats().pool_allocated == allocated, "messages and their buffers are used again"
    assert min(grown) < 10_000, "less than one byte per message"
    assert len(gc.get_objects()) - objects < 200


# Acknowledgements -------------------------------------------------------------------------------------------


def explicit(ctx: hf.Context) -> hf.Receiver:
    return ctx.receiver("quotes", options={"ume_explicit_ack_only": 1, "ume_session_id": 5})


def test_explicit_acks_are_cumulative_and_never_go_back(store: object) -> None:
    with hf.Context() as ctx:
        src = ctx.source("quotes", options=OPTIONS)
        src.wait_registered(SHORT)
        for i in range(10):
            src.send(b"%d" % i)
        rcv = explicit(ctx)
        messages = [take(rcv) for _ in range(10)]
        messages[4].send_explicit_ack()
        messages[2].send_explicit_ack()  # covered already
        for message in messages:
            message.release()  # means nothing here
        rcv.close()
        again = explicit(ctx)
        assert take(again).sequence_number == 5


def test_an_extracted_ack_outlives_its_message(store: object) -> None:
    with hf.Context() as ctx:
        src = ctx.source("quotes", options=OPTIONS)
        src.wait_registered(SHORT)
        for i in range(10):
            src.send(b"%d" % i)
        rcv = explicit(ctx)
        acks = []
        for _ in range(5):
            message = take(rcv)
            acks.append(message.extract_ack())
            message.release()
        assert acks[4].sequence_number == 4
        acks[3].send()
        acks[4].close()
        with pytest.raises(hf.ClosedError):
            acks[4].send()
        rcv.close()
        with pytest.raises(hf.ClosedError):
            acks[0].send()
        assert take(explicit(ctx)).sequence_number == 4


def test_immediate_mode_acknowledges_each_message(store: object) -> None:
    with hf.Context(options={"ume_ack_batching_interval": 3_600_000}) as ctx:  # no batch would ever be sent
        src = ctx.source("quotes", options=OPTIONS)
        src.wait_registered(SHORT)
        for i in range(5):
            src.send(b"%d" % i)
        options = {"ume_use_ack_batching": 0, "ume_session_id": 6}
        rcv = ctx.receiver("quotes", options=options)
        for _ in range(3):
            take(rcv).release()
        rcv.close()
        assert take(ctx.receiver("quotes", options=options)).sequence_number == 3


# Where a receiver starts ------------------------------------------------------------------------------------


@pytest.fixture
def ten(store: object) -> Any:
    """A context with a source that has sent ten messages."""
    with hf.Context() as ctx:
        src = ctx.source("quotes", options=OPTIONS)
        src.wait_registered(SHORT)
        for i in range(10):
            src.send(b"%d" % i)
        src.wait_stable(timeout=SHORT)
        yield ctx, src


def test_the_program_may_choose_where_recovery_starts(ten: tuple[hf.Context, hf.Source]) -> None:
    ctx, _ = ten
    told: list[Any] = []

    def choose(info: Any) -> None:
        told.append((info.low_sequence_number, info.high_sequence_number))
        info.low_sequence_number = 7

    rcv = ctx.receiver("quotes", options={"ume_recovery_sequence_number_info_function": choose})
    assert [take(rcv).sequence_number for _ in range(3)] == [7, 8, 9]
    assert told == [(0, 9)]


def test_a_callback_that_raises_fails_the_registration(ten: tuple[hf.Context, hf.Source]) -> None:
    def fail(_: Any) -> None:
        raise ZeroDivisionError("planted")

    rcv = ten[0].receiver("quotes", options={"ume_recovery_sequence_number_info_function": fail})
    with pytest.raises(hf.RegistrationError, match="planted"):
        rcv.receive(timeout=SHORT)


def test_retransmit_request_maximum_limits_recovery(ten: tuple[hf.Context, hf.Source]) -> None:
    rcv = ten[0].receiver("quotes", options={"retransmit_request_maximum": 3})
    assert take(rcv).sequence_number == 6  # high - N (docs/semantics.md F.1)


def test_without_late_join_only_live_messages_come(ten: tuple[hf.Context, hf.Source]) -> None:
    ctx, src = ten
    joined = threading.Event()
    rcv = ctx.receiver("quotes", options={"use_late_join": 0}, on_event=lambda _: joined.set())
    assert joined.wait(SHORT)
    until(lambda: rcv.stats().sources == 1)
    src.send(b"live")
    message = take(rcv)
    assert (bytes(message), message.sequence_number, message.is_retransmit) == (b"live", 10, False)


def test_a_pattern_receives_from_every_topic_that_it_is_found_in(store: object) -> None:
    with hf.Context() as ctx, hf.Context() as second:
        sources = {
            topic: c.source(topic, options=OPTIONS)
            for topic, c in [("md.eq.A", ctx), ("md.eq.B", second), ("md.fx.A", ctx), ("xmd.eq.A", second)]
        }
        for topic, src in sources.items():
            src.wait_registered(SHORT)
            src.send(topic.encode())
        rcv = ctx.receiver(pattern=r"^md\.eq\..")
        assert sorted((m.topic, bytes(m)) for m in (take(rcv), take(rcv))) == [
            ("md.eq.A", b"md.eq.A"),
            ("md.eq.B", b"md.eq.B"),
        ]
        sources["md.fx.A"].send(b"not this")
        sources["md.eq.A"].send(b"this")
        assert bytes(take(rcv)) == b"this"


# Waiting ----------------------------------------------------------------------------------------------------


def test_two_threads_do_not_receive_at_once(pair: tuple[hf.Source, hf.Receiver]) -> None:
    src, rcv = pair
    got: list[hf.Message] = []
    waiting = threading.Thread(target=lambda: got.append(take(rcv)))
    waiting.start()
    refused: list[hf.UsageError] = []

    def second() -> bool:
        try:
            rcv.receive(timeout=0)
        except hf.UsageError as error:
            refused.append(error)
        return bool(refused)

    until(second)
    assert "another thread" in str(refused[0])
    with pytest.raises(hf.UsageError, match="another thread"):
        rcv.receive_batch(1, timeout=0)
    src.send(b"for the first")
    waiting.join()
    assert bytes(got[0]) == b"for the first"


def test_a_receiver_with_a_callback_is_not_asked(store: object) -> None:
    with hf.Context() as ctx:
        rcv = ctx.receiver("quotes", on_message=lambda _: None)
        with pytest.raises(hf.UsageError, match="callback"):
            rcv.receive(timeout=0)


def test_timeouts_zero_and_some(pair: tuple[hf.Source, hf.Receiver]) -> None:
    src, rcv = pair
    assert rcv.receive(timeout=0) is None
    assert rcv.receive(timeout=0.01) is None
    assert rcv.receive_batch(10, timeout=0) is None
    assert rcv.receive_batch(10, timeout=0.01) is None
    src.wait_stable(timeout=SHORT)
    src.wait_stable(timeout=0)
    src.wait_registered(timeout=0)


def test_timeouts_of_a_source_without_its_store() -> None:
    with hf.Context() as ctx:
        src = ctx.source("quotes", options=OPTIONS)
        for timeout in (0, 0.01):
            with pytest.raises(hf.RegistrationTimeout, match="a"):
                src.wait_registered(timeout)
        with pytest.raises(hf.NotRegisteredError) as error:
            src.send(b"x")
        assert error.value.retriable


def test_a_full_flight_is_told_by_reason_and_consumes_no_number(store: Any) -> None:
    with hf.Context() as ctx:
        src = ctx.source("quotes", options={**OPTIONS, "ume_flight_size": 3})
        src.wait_registered(SHORT)
        drain_stops(store)
        for _ in range(3):
            src.send(b"x", timeout=0)
        for timeout in (0, 0.02):
            with pytest.raises(hf.WouldBlockError) as error:
                src.send(b"x", timeout=timeout)
            assert error.value.reason == "flight_size"
        rows = np.zeros((5, 8), np.uint8)
        with pytest.raises(hf.WouldBlockError) as error:
            src.send_batch(rows, timeout=0)
        assert (error.value.sent, error.value.first_sequence_number) == (0, None)
        with pytest.raises(hf.StabilityTimeout) as late:
            src.wait_stable(timeout=0)
        assert (late.value.sqn, late.value.stable) == (2, src.stable_sequence_number) == (2, -1)
        assert src.next_sequence_number == 3
        assert src.in_flight == (3, 3)
        drain_goes_on(store)
        src.wait_stable(timeout=SHORT)
        assert src.send_batch(rows, timeout=SHORT) == (3, 7)


def drain_stops(store: Any) -> None:
    """The drain thread of a store in this process stands still until it is told to go on."""
    store.gate = threading.Event()
    inside = threading.Event()

    def stand_still() -> None:
        inside.set()
        store.gate.wait(SHORT)

    threading.Thread(target=store.store.drainer.call, args=(stand_still,)).start()
    assert inside.wait(SHORT)


def drain_goes_on(store: Any) -> None:
    store.gate.set()


# Sending ----------------------------------------------------------------------------------------------------

ROWS = np.arange(600, dtype=np.uint16).view(np.uint8).reshape(50, 24)


@pytest.mark.parametrize(
    "rows",
    [ROWS, ROWS[:1], ROWS[::3], ROWS[:, 4:9], ROWS[:, :1], ROWS[10:40, 1:]],
    ids=["all", "one", "every third", "some columns", "one column", "inner"],
)
def test_send_batch_takes_rows_with_any_stride(pair: tuple[hf.Source, hf.Receiver], rows: Any) -> None:
    src, rcv = pair
    assert src.send_batch(rows) == (1, len(rows))
    assert [bytes(take(rcv)) for _ in rows] == [row.tobytes() for row in rows]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.string(), pa.large_string()], ids=str)
def test_send_batch_takes_arrow_arrays_and_slices_of_them(pair: tuple[hf.Source, hf.Receiver], kind: Any) -> None:
    src, rcv = pair
    values = [b"", b"a", b"bc" * 50, b"", b"d" * 5000, b"end"]
    array = pa.array([value.decode() if "string" in str(kind) else value for value in values], kind)
    assert src.send_batch(array) == (1, 6)
    assert src.send_batch(array[2:5]) == (7, 9)
    assert [bytes(take(rcv)) for _ in range(9)] == [*values, *values[2:5]]


@pytest.mark.parametrize(
    ("array", "word"),
    [(pa.array([1, 2]), "int64"), (pa.array([b"a", None]), "nulls"), (pa.array([], pa.binary()), "no rows")],
)
def test_other_arrow_arrays_are_refused(pair: tuple[hf.Source, hf.Receiver], array: Any, word: str) -> None:
    with pytest.raises(hf.UsageError, match=word):
        pair[0].send_batch(array)


def test_a_batch_becomes_an_arrow_array(pair: tuple[hf.Source, hf.Receiver]) -> None:
    src, rcv = pair
    values = [b"", b"a", b"bc" * 50, bytes(200_000)]
    for value in values:
        src.send(value)
    got: list[bytes] = []
    while len(got) < len(values):
        batch = rcv.receive_batch(timeout=SHORT)
        assert batch is not None
        got += batch.to_arrow().to_pylist()
        batch.release()
    assert got == values


def test_threads_that_send_at_once_get_numbers_that_are_unique_and_contiguous(
    pair: tuple[hf.Source, hf.Receiver],
) -> None:
    src, rcv = pair
    numbers: list[list[int]] = [[] for _ in range(4)]

    def work(thread: int) -> None:
        for i in range(300):
            data = b"%d %d" % (thread, i)
            numbers[thread].append(src.send(data, client_data=data if i % 2 else None))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(chain.from_iterable(numbers)) == list(range(1, 1201))
    assert all(one == sorted(one) for one in numbers)
    received = {message.sequence_number: bytes(message) for message in (take(rcv) for _ in range(1200))}
    assert received == {number: b"%d %d" % (t, i) for t in range(4) for i, number in enumerate(numbers[t])}


def test_contexts_of_one_process_are_independent(store: object) -> None:
    with hf.Context(name="one") as one, hf.Context(name="two") as two:
        sources = [ctx.source(f"topic-{i}", options=OPTIONS) for i, ctx in enumerate((one, two))]
        receivers = [ctx.receiver(f"topic-{1 - i}") for i, ctx in enumerate((one, two))]
        for src in sources:
            src.wait_registered(SHORT)
            src.send(src.topic.encode())
        assert [bytes(take(rcv)) for rcv in receivers] == [b"topic-1", b"topic-0"]
        one.close()
        sources[1].send(b"still here")
        third = two.receiver("topic-1")
        assert [bytes(take(third)) for _ in range(2)] == [b"topic-1", b"still here"]
