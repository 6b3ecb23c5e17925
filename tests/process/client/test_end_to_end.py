"""One source, one store, one receiver: the path that every message takes, through the public names."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING

import numpy as np
import pytest
from support.workers import until

import holdfast as hf

if TYPE_CHECKING:
    from collections.abc import Callable

OPTIONS = {"ume_store_name": ["a:0:0"], "ume_flight_size": 100_000, "ring_size": 1 << 20}
SHORT = 90.0
"""Seconds that no wait here needs; a test that gets there has failed."""


@pytest.fixture(params=["memory", "disk"])
def store(request: pytest.FixtureRequest, run_store: Callable[..., object]) -> object:
    return run_store(kind=request.param)


def payloads(receiver: hf.Receiver, count: int) -> list[bytes]:
    found: list[bytes] = []
    for _ in range(count):
        message = receiver.receive(timeout=SHORT)
        assert message is not None, f"only {len(found)} of {count} messages came"
        found.append(bytes(message))
        message.release()
    return found


def send_for_ever(src: hf.Source) -> None:
    while True:
        src.send(b"until it is noticed", timeout=SHORT)


def test_what_is_sent_is_received_and_becomes_stable(store: object) -> None:
    with hf.Context() as ctx:
        src = ctx.source("quotes", options=OPTIONS)
        src.wait_registered(SHORT)
        rcv = ctx.receiver("quotes")
        sent = [b"message %d" % i for i in range(1000)]
        numbers = [src.send(data) for data in sent]
        assert numbers == list(range(1000))
        src.wait_stable(timeout=SHORT)
        assert src.stable_sequence_number == 999
        assert src.in_flight == (0, 0)
        assert payloads(rcv, 1000) == sent


def test_a_late_receiver_gets_everything_flagged_and_live_messages_not(store: object) -> None:
    with hf.Context() as ctx:
        src = ctx.source("quotes", options=OPTIONS)
        src.wait_registered(SHORT)
        for i in range(100):
            src.send(b"%d" % i)
        src.wait_stable(timeout=SHORT)
        rcv = ctx.receiver("quotes")
        for i in range(100):
            message = rcv.receive(timeout=SHORT)
            assert message is not None
            assert (bytes(message), message.sequence_number, message.is_retransmit) == (b"%d" % i, i, True)
            message.release()
        src.send(b"live")
        live = rcv.receive(timeout=SHORT)
        assert live is not None
        assert bytes(live) == b"live"
        assert not live.is_retransmit


def test_a_receiver_with_a_session_goes_on_behind_its_ack(store: object) -> None:
    with hf.Context() as ctx:
        src = ctx.source("quotes", options=OPTIONS)
        src.wait_registered(SHORT)
        for i in range(10):
            src.send(b"%d" % i)
        with hf.Context(session_id=7) as other:
            rcv = other.receiver("quotes")
            assert payloads(rcv, 4) == [b"0", b"1", b"2", b"3"]
            held = rcv.receive(timeout=SHORT)  # delivered, never released
            assert held is not None
            rcv.close()
            with pytest.raises(ValueError, match="released"):
                bytes(held)
            again = other.receiver("quotes")
            message = again.receive(timeout=SHORT)
            assert message is not None
            assert message.sequence_number == 4
            assert message.is_retransmit


def test_a_receiver_reads_a_closed_source_from_the_store(store: object) -> None:
    with hf.Context() as ctx:
        with ctx.source("quotes", options=OPTIONS) as src:
            src.wait_registered(SHORT)
            src.send(b"one")
            src.send(b"two")
        rcv = ctx.receiver("quotes")
        assert payloads(rcv, 2) == [b"one", b"two"]


def test_a_source_object_that_comes_again_continues_the_numbers(store: object) -> None:
    session = {**OPTIONS, "ume_session_id": 9}
    with hf.Context() as ctx:
        rcv = ctx.receiver("quotes")
        for life in range(3):
            with ctx.source("quotes", options=session) as src:
                src.wait_registered(SHORT)
                assert src.next_sequence_number == 2 * life
                assert src.send(b"a%d" % life) == 2 * life
                assert src.send(b"b%d" % life) == 2 * life + 1
        assert payloads(rcv, 6) == [b"a0", b"b0", b"a1", b"b1", b"a2", b"b2"]


def test_a_large_message_is_fragmented_and_comes_whole(store: object) -> None:
    data = np.random.default_rng(1).integers(0, 256, 200_000, np.uint8).tobytes()
    with hf.Context() as ctx:
        src = ctx.source("quotes", options={**OPTIONS, "fragment_size": 1000})
        src.wait_registered(SHORT)
        rcv = ctx.receiver("quotes")
        assert src.send(data) == 199
        message = rcv.receive(timeout=SHORT)
        assert message is not None
        assert bytes(message) == data
        assert (message.first_sequence_number, message.sequence_number) == (0, 199)
        src.wait_stable(timeout=SHORT)
        with pytest.raises(hf.MessageTooLargeError):
            src.send(b"x" * (1 << 20))
        assert src.next_sequence_number == 200


def test_a_message_of_a_quarter_of_the_ring_passes_through_store_and_log(store: object) -> None:
    data = np.random.default_rng(2).integers(0, 256, 8_000_000, np.uint8).tobytes()
    with hf.Context() as ctx:
        src = ctx.source("quotes", options={"ume_store_name": ["a:0:0"]})
        src.wait_registered(SHORT)
        for _ in range(3):
            src.send(data)
        src.wait_stable(timeout=SHORT)
        src.close()
        rcv = ctx.receiver("quotes")
        assert payloads(rcv, 3) == [data] * 3


def test_a_receiver_that_was_overtaken_continues_from_the_store(store: object) -> None:
    with hf.Context() as ctx:
        src = ctx.source("quotes", options=OPTIONS)
        src.wait_registered(SHORT)
        rcv = ctx.receiver("quotes")
        src.send(b"first")
        assert payloads(rcv, 1) == [b"first"]
        sent = [bytes([i % 256]) * 900 for i in range(5000)]  # several times the ring
        for data in sent:
            src.send(data)
        assert payloads(rcv, 5000) == sent
        assert rcv.stats().lapped >= 1


def test_batches_are_views_and_count_as_one(store: object) -> None:
    rows = np.arange(1000 * 16, dtype=np.uint16).view(np.uint8).reshape(1000, 32)
    with hf.Context() as ctx:
        src = ctx.source("quotes", options=OPTIONS)
        src.wait_registered(SHORT)
        rcv = ctx.receiver("quotes", options={"ume_session_id": 3})
        src.send_batch(rows[:1])
        assert rcv.receive(timeout=SHORT) is not None
        assert src.send_batch(rows) == (1, 1000)
        seen = 0
        while seen < 1000:
            batch = rcv.receive_batch(300, timeout=SHORT)
            assert batch is not None
            for i in range(len(batch)):
                assert bytes(batch.payload(i)) == rows[seen + i].tobytes()
            assert list(batch.frames["sequence_number"]) == list(range(seen + 1, seen + 1 + len(batch)))
            seen += len(batch)
            batch.release()
            with pytest.raises(ValueError, match="released"):
                batch.payload(0)


def test_claim_commits_on_exit_and_aborts_on_an_exception(store: object) -> None:
    with hf.Context() as ctx:
        src = ctx.source("quotes", options=OPTIONS)
        src.wait_registered(SHORT)
        claim = src.claim(5)
        with claim as view:
            view[:] = b"hello"
            with pytest.raises(hf.UsageError):
                src.send(b"in between")
        assert claim.sequence_number == 0
        with pytest.raises(ZeroDivisionError), src.claim(5) as view:
            view[0] = 1 // 0
        with pytest.raises(hf.UsageError, match="view"), src.claim(5) as view:
            kept = view[1:]
        del kept
        assert src.send(b"next") == 1
        assert payloads(ctx.receiver("quotes"), 2) == [b"hello", b"next"]


def test_iterating_reuses_two_messages(store: object) -> None:
    with hf.Context() as ctx:
        src = ctx.source("quotes", options=OPTIONS)
        src.wait_registered(SHORT)
        rcv = ctx.receiver("quotes")
        for i in range(3000):
            src.send(b"%d" % i)
        kept = []
        for i, message in enumerate(rcv):
            assert bytes(message) == b"%d" % i
            if i % 1000 == 500:
                kept.append(message.retain())
            if i == 2999:
                break
        assert [bytes(message) for message in kept] == [b"500", b"1500", b"2500"]
        assert rcv.stats().pool_allocated <= 2 + len(kept)


def test_the_callback_form_consumes_when_it_returns(store: object) -> None:
    got: list[bytes] = []
    kept: list[hf.Message] = []
    done = threading.Event()

    def on_message(message: hf.Message) -> None:
        got.append(bytes(message))
        if len(got) == 1:
            kept.append(message.retain())
        if len(got) == 50:
            done.set()

    with hf.Context() as ctx:
        src = ctx.source("quotes", options=OPTIONS)
        src.wait_registered(SHORT)
        rcv = ctx.receiver("quotes", on_message=on_message)
        for i in range(50):
            src.send(b"%d" % i)
        assert done.wait(SHORT)
        assert got == [b"%d" % i for i in range(50)]
        assert bytes(kept[0]) == b"0", "a retained message keeps its own buffer"
        assert list(rcv.stats().acknowledged.values()) == [-1]
        kept[0].release()


def test_asyncio_receives_and_a_cancelled_receive_loses_nothing(store: object) -> None:
    async def run(ctx: hf.Context, src: hf.Source) -> list[bytes]:
        rcv = ctx.receiver("quotes")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(rcv.receive_async(), 0.05)
        for i in range(20):
            src.send(b"%d" % i)
        got = []
        async for message in rcv:
            got.append(bytes(message))
            if len(got) == 20:
                break
        return got

    with hf.Context() as ctx:
        src = ctx.source("quotes", options=OPTIONS)
        src.wait_registered(SHORT)
        assert asyncio.run(asyncio.wait_for(run(ctx, src), SHORT)) == [b"%d" % i for i in range(20)]


def test_an_async_iterator_goes_on_after_a_cancelled_wait(store: object) -> None:
    async def run(rcv: hf.Receiver, src: hf.Source) -> list[bytes]:
        messages = aiter(rcv)
        got = []
        for number in range(3):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(messages), 0.02)
            src.send(b"%d" % number)
            got.append(bytes(await anext(messages)))
        rcv.close()
        with pytest.raises(StopAsyncIteration):
            await anext(messages)
        return got

    with hf.Context() as ctx:
        src = ctx.source("quotes", options=OPTIONS)
        src.wait_registered(SHORT)
        assert asyncio.run(run(ctx.receiver("quotes"), src)) == [b"0", b"1", b"2"]


def test_an_infinite_timeout_is_none(store: object) -> None:
    for_ever = float("inf")
    with hf.Context() as ctx:
        src = ctx.source("quotes", options={**OPTIONS, "ume_flight_size": 1})
        src.wait_registered(for_ever)
        src.send(b"0", timeout=for_ever)
        src.wait_stable(src.send(b"1", timeout=for_ever), timeout=for_ever)
        message = ctx.receiver("quotes").receive(for_ever)
        assert message is not None
        assert bytes(message) == b"0"


def test_a_second_live_claimant_is_refused_and_named(store: object) -> None:
    session = {**OPTIONS, "ume_session_id": 9}
    with hf.Context() as ctx, hf.Context() as other:
        src = ctx.source("quotes", options=session)
        src.wait_registered(SHORT)
        second = other.source("quotes", options=session)
        with pytest.raises(hf.RegIdInUseError) as refused:
            second.wait_registered(SHORT)
        assert refused.value.pid > 0
        src.close()

        def has_it() -> bool:
            with contextlib.suppress(hf.RegIdInUseError):
                second.wait_registered(SHORT)
                return True
            return False

        until("the second one has it", has_it)
        assert second.send(b"mine now") == 0


def test_flight_size_blocks_until_stable(store: object) -> None:
    with hf.Context() as ctx:
        src = ctx.source("quotes", options={**OPTIONS, "ume_flight_size": 1})
        src.wait_registered(SHORT)
        assert [src.send(b"x") for _ in range(20)] == list(range(20)), "each waits for the one before to be stable"


def test_a_store_that_goes_and_returns(run_store: Callable[..., object]) -> None:
    store = run_store(kind="disk")
    with hf.Context() as ctx:
        # A flight that fits into the ring: nothing is reclaimed by force before the loss of the store is
        # noticed.
        src = ctx.source("quotes", options={**OPTIONS, "ume_flight_size": 1000})
        src.wait_registered(SHORT)
        src.send(b"before")
        store.stop()  # type: ignore[attr-defined]
        with pytest.raises(hf.QuorumLostError):
            send_for_ever(src)
        sent = src.next_sequence_number
        run_store(kind="disk")
        src.wait_registered(SHORT)
        assert src.send(b"after") == sent
        src.wait_stable(timeout=SHORT)
        got = payloads(ctx.receiver("quotes"), sent + 1)
        assert (got[0], got[-1]) == (b"before", b"after")


def test_events_come_in_order_with_client_data(store: object) -> None:
    events: list[object] = []
    with hf.Context() as ctx:
        src = ctx.source("quotes", options=OPTIONS, on_event=events.append)
        src.wait_registered(SHORT)
        src.send(b"x", client_data="mine")
        src.wait_stable(timeout=SHORT)
    kinds = [type(event).__name__ for event in events]
    assert kinds[:2] == ["RegistrationSuccess", "RegistrationComplete"]
    stable = next(event for event in events if isinstance(event, hf.events.MessageStable))
    assert (stable.first_sequence_number, stable.sequence_number, stable.client_data) == (0, 0, "mine")
    assert "MessageReclaimed" in kinds


def test_without_stores_a_source_streams() -> None:
    with hf.Context() as ctx:
        rcv = ctx.receiver("ticks")
        src = ctx.source("ticks", options={"ring_size": 1 << 20})
        src.wait_registered(SHORT)
        for i in range(10):
            src.send(b"%d" % i)
        assert payloads(rcv, 10) == [b"%d" % i for i in range(10)]


def test_sequential_mode_does_its_work_in_poll(store: object) -> None:
    with hf.Context(options={"operational_mode": "sequential"}) as ctx:
        src = ctx.source("quotes", options=OPTIONS)
        src.wait_registered(SHORT)
        src.send(b"x")
        assert payloads(ctx.receiver("quotes"), 1) == [b"x"]
