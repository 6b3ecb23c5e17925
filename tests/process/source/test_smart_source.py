"""A smart source as a program meets it: what it can, and each of its restrictions (docs/semantics.md J.3)."""

from __future__ import annotations

import gc
import threading
import tracemalloc
from typing import TYPE_CHECKING

import numpy as np
import pytest
from support.workers import until

import holdfast as hf

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from process.conftest import ThreadStore

SHORT = 90.0
STORED = {"ume_store_name": ["a:0:0"]}
LONGEST = 368
events = hf.events.source


@pytest.fixture
def ctx() -> Iterator[hf.Context]:
    with hf.Context(session_id=5) as made:
        yield made


@pytest.fixture
def src(ctx: hf.Context) -> hf.SmartSource:
    """It streams, so it needs no store."""
    source = ctx.smart_source("ticks")
    source.wait_registered(SHORT)
    return source


def put(source: hf.SmartSource, data: bytes, client_data: object = None, timeout: float | None = SHORT) -> int:
    claim = source.claim(len(data), client_data=client_data, timeout=timeout)
    with claim as view:
        view[:] = data
    assert claim.sequence_number is not None
    return claim.sequence_number


def received(receiver: hf.Receiver, count: int) -> list[bytes]:
    found = []
    for _ in range(count):
        message = receiver.receive(SHORT)
        assert message is not None
        found.append(bytes(message.data))
        message.release()
    return found


# What it can ------------------------------------------------------------------------------------------------


def test_what_is_claimed_is_received_stable_and_told_with_its_data(
    ctx: hf.Context, run_store: Callable[..., ThreadStore]
) -> None:
    run_store()
    told: list[object] = []
    options = {**STORED, "ume_message_stability_notification": 2}
    source = ctx.smart_source("ticks", options=options, on_event=told.append)
    source.wait_registered(SHORT)
    assert isinstance(source, hf.Source)
    receiver = ctx.receiver("ticks")
    assert [put(source, b"message %d" % i, client_data=i) for i in range(3)] == [0, 1, 2]
    assert received(receiver, 3) == [b"message %d" % i for i in range(3)]
    source.wait_stable(timeout=SHORT)
    until("all is told", lambda: sum(isinstance(event, events.MessageStable) for event in told) == 3)
    assert [event.client_data for event in told if isinstance(event, events.MessageStable)] == [0, 1, 2]
    assert [type(event) for event in told[:2]] == [events.RegistrationSuccess, events.RegistrationComplete]


def test_its_next_life_goes_on_behind_its_last_number(run_store: Callable[..., ThreadStore]) -> None:
    run_store(kind="disk")
    for life in range(3):
        with hf.Context(session_id=5) as ctx:
            source = ctx.smart_source("ticks", options=STORED)
            source.wait_registered(SHORT)
            assert put(source, b"life %d" % life) == life
    with hf.Context(session_id=6) as ctx:
        assert received(ctx.receiver("ticks"), 3) == [b"life 0", b"life 1", b"life 2"]


def test_it_deregisters(ctx: hf.Context, run_store: Callable[..., ThreadStore]) -> None:
    run_store()
    told: list[object] = []
    source = ctx.smart_source("ticks", options=STORED, on_event=told.append)
    source.wait_registered(SHORT)
    put(source, b"the last")
    source.deregister()
    until("it is told", lambda: any(isinstance(event, events.DeregistrationComplete) for event in told))
    with pytest.raises(hf.NotRegisteredError, match="deregistered"):
        put(source, b"too late")


def test_a_closed_one_says_so(src: hf.SmartSource) -> None:
    src.close()
    with pytest.raises(hf.ClosedError):
        put(src, b"too late")


def test_an_exception_in_the_block_leaves_no_trace(ctx: hf.Context, src: hf.SmartSource) -> None:
    receiver = ctx.receiver("ticks")
    with pytest.raises(ValueError, match="lvalue"), src.claim(8) as view:
        view[:4], view[4:] = b"half", b"too long"
    assert src.next_sequence_number == 0
    assert put(src, b"the first") == 0
    assert received(receiver, 1) == [b"the first"]


@pytest.mark.parametrize("keep", [lambda view: view[2:], lambda view: np.frombuffer(view, np.uint8)])
def test_a_view_that_survives_the_block_aborts_it(src: hf.SmartSource, keep: Callable[[memoryview], object]) -> None:
    kept: list[object] = []
    with pytest.raises(hf.UsageError, match="still in use"), src.claim(8) as view:
        kept.append(keep(view))
    assert src.next_sequence_number == 0
    kept.clear()
    assert put(src, b"next") == 0


def test_a_claim_ends_once_and_only_one_is_open(src: hf.SmartSource) -> None:
    claim = src.claim(4)
    with claim as view:
        with pytest.raises(hf.UsageError, match="a claim is open"):
            src.claim(4)
        view[:] = b"data"
    with pytest.raises(hf.UsageError, match="ended already"), claim:
        pass
    assert (claim.sequence_number, src.next_sequence_number) == (0, 1)


def test_a_claim_that_nobody_ends_is_aborted(src: hf.SmartSource) -> None:
    src.claim(1)
    assert put(src, b"the first message") == 0


def test_a_claim_is_used_again_unless_somebody_keeps_it(src: hf.SmartSource) -> None:
    def made() -> int:
        with src.claim(1) as view:
            view[:] = b"x"
            return id(src._recycled)

    assert len({made() for _ in range(5)}) == 1
    kept = src.claim(1)
    with kept as view:
        view[:] = b"y"
    put(src, b"z")
    assert kept.sequence_number == 5, "not the next one's"
    assert src._recycled is not kept


def test_steady_state_allocates_nothing_that_stays(src: hf.SmartSource) -> None:
    data = b"sixteen bytes..."

    def claims(count: int) -> None:
        for _ in range(count):
            with src.claim(16) as view:
                view[:] = data

    def growth() -> int:
        claims(100)
        before, _ = tracemalloc.get_traced_memory()
        claims(10_000)
        after, _ = tracemalloc.get_traced_memory()
        return after - before

    claims(1000)
    gc.collect()
    tracemalloc.start()
    try:
        grown = [growth() for _ in range(3)]
    finally:
        tracemalloc.stop()
    # the least: the context's thread may hold something for an instant
    assert min(grown) < 10_000, "less than one byte per message"


# What it refuses --------------------------------------------------------------------------------------------


def test_every_other_way_to_send_names_claim(src: hf.SmartSource) -> None:
    with pytest.raises(hf.UsageError, match=r"send\(\).*claim"):
        src.send(b"data")
    with pytest.raises(hf.UsageError, match=r"send_batch\(\).*claim"):
        src.send_batch([b"data"])
    with pytest.raises(hf.UsageError, match=r"send_stable\(\).*claim"):
        src.send_stable(b"data")
    assert src.next_sequence_number == 0


@pytest.mark.parametrize("longest", [1, 31, LONGEST, 5000])
def test_a_message_is_at_most_as_long_as_the_option_says(ctx: hf.Context, longest: int) -> None:
    source = ctx.smart_source("ticks", options={"smart_src_max_message_length": longest})
    source.wait_registered(SHORT)
    assert put(source, bytes(longest)) == 0
    with pytest.raises(hf.MessageTooLargeError, match=rf"{longest + 1}.*{longest}.*smart_src_max_message_length"):
        source.claim(longest + 1)
    assert put(source, bytes(longest)) == 1


def test_a_second_thread_is_refused_and_both_are_named(src: hf.SmartSource) -> None:
    put(src, b"here")
    failed: list[hf.UsageError] = []

    def other() -> None:
        try:
            put(src, b"there")
        except hf.UsageError as error:
            failed.append(error)

    thread = threading.Thread(target=other, name="the-other-one")
    thread.start()
    thread.join()
    assert len(failed) == 1
    assert "the-other-one" in str(failed[0])
    assert threading.current_thread().name in str(failed[0])
    assert put(src, b"here again") == 1


@pytest.mark.parametrize(
    "options",
    [
        {"ume_message_stability_notification": 1},
        {"ume_message_stability_notification": 3},
        {"ume_confirmed_delivery_notification": 1},
        {"ume_retention_unique_confirmations": 1},
        {"smart_src_retention_buffer_count": 1000},
        {"smart_src_max_message_length": 0},
    ],
)
def test_what_it_has_not_got_is_refused_when_it_is_made(ctx: hf.Context, options: dict[str, int]) -> None:
    (name,) = options
    with pytest.raises(hf.ConfigError, match=name):
        ctx.smart_source("ticks", options=options)
    assert ctx.source("ticks", options=options if not name.startswith("smart") else {})


def test_it_takes_no_part_in_liveness_detection(src: hf.SmartSource) -> None:
    assert src._session.liveness_board is None


# Retention --------------------------------------------------------------------------------------------------


@pytest.fixture
def idle_store(run_store: Callable[..., ThreadStore]) -> Iterator[Callable[[], None]]:
    """A store that stores nothing from the call on, until the end of the test."""
    store = run_store().store
    stopped, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        stopped.set()
        go_on.wait()

    thread = threading.Thread(target=lambda: store.drainer.call(hold))

    def stop() -> None:
        thread.start()
        assert stopped.wait(SHORT)

    yield stop
    go_on.set()
    if thread.ident is not None:
        thread.join()


def test_at_the_flight_size_a_claim_would_block(ctx: hf.Context, idle_store: Callable[[], None]) -> None:
    options = {**STORED, "ume_flight_size": 40, "smart_src_retention_buffer_count": 64}
    source = ctx.smart_source("ticks", options=options)
    source.wait_registered(SHORT)
    idle_store()
    for i in range(40):
        assert put(source, bytes(LONGEST), timeout=0) == i
    with pytest.raises(hf.WouldBlockError) as error:
        put(source, b"one more", timeout=0)
    assert error.value.reason == "flight_size"
    assert source.stats().forced_reclaims == 0


@pytest.mark.parametrize("size", [0, 1, LONGEST])
def test_so_many_messages_are_retained_and_no_more_however_long_they_are(
    ctx: hf.Context, idle_store: Callable[[], None], size: int
) -> None:
    options = {**STORED, "ume_flight_size": 1000, "smart_src_retention_buffer_count": 64}
    source = ctx.smart_source("ticks", options=options)
    source.wait_registered(SHORT)
    idle_store()
    forced = []
    for _ in range(74):
        put(source, bytes(size), timeout=0)
        forced.append(source.stats().forced_reclaims)
    assert forced == [*[0] * 64, *range(1, 11)]


def test_what_is_stable_makes_room_without_force(ctx: hf.Context, run_store: Callable[..., ThreadStore]) -> None:
    run_store()
    options = {**STORED, "smart_src_retention_buffer_count": 64, "ume_flight_size": 32}
    source = ctx.smart_source("ticks", options=options)
    source.wait_registered(SHORT)
    for _ in range(1000):
        put(source, b"x")
    source.wait_stable(timeout=SHORT)
    assert source.stats().forced_reclaims == 0


def test_an_unstable_message_is_pushed_out_of_a_ring_that_is_too_small(
    ctx: hf.Context, idle_store: Callable[[], None]
) -> None:
    told: list[object] = []
    options = {**STORED, "ume_flight_size": 1000, "smart_src_retention_buffer_count": 64}
    source = ctx.smart_source("ticks", options=options, on_event=told.append)
    source.wait_registered(SHORT)
    idle_store()
    for i in range(64):
        put(source, bytes(LONGEST), client_data=i, timeout=0)
    assert source.stats().forced_reclaims == 0, "this many are retained at least"
    for i in range(64, 74):
        put(source, bytes(LONGEST), client_data=i, timeout=0)
    until("it is told", lambda: any(isinstance(event, events.MessageReclaimed) for event in told))
    first = next(event for event in told if isinstance(event, events.MessageReclaimed))
    assert first.flags == events.ReclaimedFlags.FORCED
    assert first.first_sequence_number == 0
    assert source.stats().forced_reclaims >= 10
