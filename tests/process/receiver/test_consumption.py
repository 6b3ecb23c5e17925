"""Consumption and acknowledgement with a real store, and what a restarted receiver gets again
(docs/semantics.md G).

A receiver that must crash is a process of its own (Crashing); who restarts after it is this process, with the
same session.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest
from support.crashing_receiver import Crashing
from support.workers import until

import holdfast as hf

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SOURCE: dict[str, object] = {"ume_store_name": ["a:0:0"], "ume_flight_size": 100_000, "ring_size": 1 << 20}
SESSION = {"ume_session_id": 9}
BATCHED: dict[str, object] = {**SESSION}
IMMEDIATE: dict[str, object] = {"ume_use_ack_batching": 0, **SESSION}
EXPLICIT: dict[str, object] = {"ume_explicit_ack_only": 1, **SESSION}
FAST = {"ume_ack_batching_interval": 5}
NEVER = {"ume_ack_batching_interval": 3_600_000}
"""No timer ends in a test: what is acknowledged was acknowledged at once."""
SHORT = 90.0


@pytest.fixture
def store(run_store: Callable[..., Any]) -> Any:
    return run_store()


@pytest.fixture
def src(store: Any) -> Iterator[hf.Source]:
    with hf.Context(name="sender") as ctx:
        source = ctx.source("quotes", options=SOURCE)
        source.wait_registered(SHORT)
        yield source


def send(source: hf.Source, count: int) -> None:
    """``count`` messages; each says its number."""
    first = source.next_sequence_number
    for number in range(first, first + count):
        source.send(b"%d" % number)


def take(receiver: hf.Receiver) -> hf.Message:
    message = receiver.receive(timeout=SHORT)
    assert message is not None, "no message came"
    return message


def take_all(receiver: hf.Receiver, count: int) -> dict[int, hf.Message]:
    return {message.sequence_number: message for message in (take(receiver) for _ in range(count))}


def acked(receiver: hf.Receiver) -> int:
    (number,) = receiver.stats().acknowledged.values()
    return number


def delivered_again(options: dict[str, object], last: int) -> list[tuple[int, bool]]:
    """(number, flagged as retransmission) that a restarted receiver gets, up to number ``last``."""
    found: list[tuple[int, bool]] = []
    with hf.Context(name="again") as ctx, ctx.receiver("quotes", options=options) as receiver:
        while not found or found[-1][0] < last:
            with contextlib.suppress(hf.RegIdInUseError), take(receiver) as message:
                assert bytes(message) == b"%d" % message.sequence_number
                found.append((message.sequence_number, message.is_retransmit))
    return found


# Batched: the default ---------------------------------------------------------------------------------------


def test_batched_acks_follow_the_contiguous_prefix_row_1_2_3(src: hf.Source) -> None:
    send(src, 7)
    with Crashing(BATCHED, FAST, 7) as receiver:
        receiver.do("release", 0, 1, 5, 2, 4)
        assert receiver.do("wait", 2) == 2, "3 and 6 are held"
        receiver.do("release", 3)
        assert receiver.do("wait", 5) == 5, "6 is held"
        receiver.do("release", 6)
        assert receiver.do("wait", 6) == 6


def test_batched_acks_follow_the_contiguous_prefix_second_example(src: hf.Source) -> None:
    send(src, 11)
    with Crashing(BATCHED, FAST, 11) as receiver:
        receiver.do("release", 0, 1, 2)
        assert receiver.do("wait", 2) == 2
        receiver.do("release", 4, 5, 7, 8, 6, 10, 3)
        assert receiver.do("wait", 8) == 8, "9 is held"


def test_a_crash_after_the_first_row_redelivers_3_4_5_6(src: hf.Source) -> None:
    send(src, 7)
    with Crashing(BATCHED, FAST, 7) as receiver:
        receiver.do("release", 0, 1, 5, 2, 4)
        receiver.do("wait", 2)
        receiver.crash()
    send(src, 1)
    again = delivered_again(BATCHED, 7)
    assert [number for number, _ in again] == [3, 4, 5, 6, 7]
    assert all(flagged for _, flagged in again[:4])


def test_a_fragmented_message_counts_as_one_and_its_ack_is_its_last_fragment(store: Any) -> None:
    with hf.Context(options=FAST) as ctx:
        source = ctx.source("quotes", options={**SOURCE, "fragment_size": 1000})
        source.wait_registered(SHORT)
        receiver = ctx.receiver("quotes", options=BATCHED)
        assert [source.send(bytes(size)) for size in (10, 3500, 10)] == [0, 4, 5]
        messages = [take(receiver) for _ in range(3)]
        assert [(m.first_sequence_number, m.sequence_number, m.fragments) for m in messages] == [
            (0, 0, 1),
            (1, 4, 4),
            (5, 5, 1),
        ]
        assert repr(messages[1]).startswith("<Message quotes 1..4, 3500 bytes")
        messages[0].release()
        until("0 is acknowledged", lambda: acked(receiver) == 0)
        messages[1].release()
        until("all fragments are acknowledged", lambda: acked(receiver) == 4)


def test_by_default_a_message_is_consumed_when_its_callback_returns(src: hf.Source) -> None:
    with hf.Context(options=FAST) as ctx:
        before: list[int] = []
        receiver = ctx.receiver("quotes", options=BATCHED, on_message=lambda _: before.append(acked(receiver)))
        send(src, 3)
        until("all are acknowledged", lambda: before and acked(receiver) == 2)
        assert all(number < at for at, number in enumerate(before)), "none before its callback had returned"


def test_retained_messages_are_released_in_any_order_from_any_thread(src: hf.Source) -> None:
    kept: list[hf.Message] = []
    with hf.Context(options=FAST) as ctx:
        receiver = ctx.receiver("quotes", options=BATCHED, on_message=lambda message: kept.append(message.retain()))
        send(src, 90)
        until("90 messages are kept", lambda: len(kept) == 90)
        assert [bytes(message) for message in kept] == [b"%d" % number for number in range(90)]
        assert acked(receiver) == -1
        parts = [kept[1:][::-1][part::3] for part in range(3)]

        def release(mine: list[hf.Message]) -> None:
            for message in mine:
                message.release()

        threads = [threading.Thread(target=release, args=(part,)) for part in parts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert acked(receiver) == -1, "0 is held"
        kept[0].release()
        until("all are acknowledged", lambda: acked(receiver) == 89)


def test_what_is_held_at_close_is_not_consumed_and_what_is_released_is(src: hf.Source) -> None:
    send(src, 5)
    with hf.Context(options=NEVER) as ctx, ctx.receiver("quotes", options=BATCHED) as receiver:
        messages = take_all(receiver, 5)
        for number in (0, 1, 3):
            messages[number].release()
    with pytest.raises(ValueError, match="released"):
        messages[2].data  # noqa: B018
    assert [number for number, _ in delivered_again(BATCHED, 4)] == [2, 3, 4]


# Immediate --------------------------------------------------------------------------------------------------


def test_immediate_each_release_acks_that_number_at_once(src: hf.Source) -> None:
    send(src, 6)
    with Crashing(IMMEDIATE, NEVER, 6) as receiver:
        assert receiver.do("release", 0) == 0
        assert receiver.do("release", 1) == 1
        assert receiver.do("release", 3) == 3, "and 2 with it, as UM does"
        assert receiver.do("release", 2) == 3, "a lower ack changes nothing"
        receiver.crash()
    assert [number for number, _ in delivered_again(IMMEDIATE, 5)] == [4, 5]


# Explicit ---------------------------------------------------------------------------------------------------


def test_explicit_ack_of_n_acks_everything_up_to_n_and_releasing_means_nothing(src: hf.Source) -> None:
    send(src, 8)
    with Crashing(EXPLICIT, FAST, 8) as receiver:
        assert receiver.do("release", 0) == -1
        assert receiver.do("ack", 1, 3) == 3, "2 with it"
        assert receiver.do("release", 4, 5) == 3
        receiver.crash()
    assert [number for number, _ in delivered_again(EXPLICIT, 7)] == [4, 5, 6, 7]


def test_an_explicit_ack_of_n_confirms_the_numbers_that_it_skips_too(src: hf.Source) -> None:
    told: list[hf.events.SourceEvent] = []
    confirms = {**SOURCE, "ume_confirmed_delivery_notification": 1}
    with hf.Context() as ctx, ctx.source("confirmed", options=confirms, on_event=told.append) as source:
        source.wait_registered(SHORT)
        receiver = ctx.receiver("confirmed", options=EXPLICIT)
        send(source, 4)
        take_all(receiver, 4)[3].send_explicit_ack()
        confirmed = hf.events.source.DeliveryConfirmation
        until("3 is confirmed", lambda: any(isinstance(e, confirmed) and e.sequence_number == 3 for e in told))
        assert [e.sequence_number for e in told if isinstance(e, confirmed)] == [0, 1, 2, 3]


def test_explicit_acks_ascend_one_by_one(src: hf.Source) -> None:
    send(src, 3)
    with hf.Context(options=NEVER) as ctx, ctx.receiver("quotes", options=EXPLICIT) as receiver:
        for message in take_all(receiver, 3).values():
            assert message.can_send_explicit_ack
            message.send_explicit_ack()
            assert acked(receiver) == message.sequence_number


def test_explicit_acking_2_before_1_acks_1_too_and_1_is_lost_after_a_crash(src: hf.Source) -> None:
    send(src, 4)
    with Crashing(EXPLICIT, FAST, 4) as receiver:
        assert receiver.do("ack", 2) == 2
        assert receiver.do("ack", 1) == 2
        receiver.crash()
    assert [number for number, _ in delivered_again(EXPLICIT, 3)] == [3]


def test_an_explicit_ack_of_the_same_or_a_lower_number_has_no_effect(src: hf.Source) -> None:
    send(src, 6)
    with hf.Context() as ctx:
        with ctx.receiver("quotes", options=EXPLICIT) as receiver:
            messages = take_all(receiver, 6)
            for number in (3, 3, 1, 3):
                messages[number].send_explicit_ack()
                assert acked(receiver) == 3
        assert [number for number, _ in delivered_again(EXPLICIT, 5)] == [4, 5]


def test_an_extracted_ack_acks_any_number_of_its_stream(src: hf.Source) -> None:
    send(src, 6)
    with hf.Context() as ctx:
        with ctx.receiver("quotes", options=EXPLICIT) as receiver:
            messages = take_all(receiver, 6)
            ack = messages[0].extract_ack()
            for message in messages.values():
                message.release()
            assert repr(ack) == "<Ack quotes 0>"
            ack.send(4)
            assert acked(receiver) == 4
            ack.send()
            assert acked(receiver) == 4
        assert [number for number, _ in delivered_again(EXPLICIT, 5)] == [5]


def test_an_ack_of_a_number_that_was_published_and_not_received_counts(src: hf.Source) -> None:
    send(src, 3)
    with hf.Context() as ctx:
        with ctx.receiver("quotes", options=EXPLICIT) as receiver:
            take(receiver).extract_ack().send(2)
            assert take(receiver).sequence_number == 1, "this registration goes on"
        again = ctx.receiver("quotes", options=EXPLICIT)
        until("it is registered again", lambda: again.stats().sources == 1)
        send(src, 1)
        assert take(again).sequence_number == 3


def test_an_extracted_ack_outlives_message_and_buffer_and_fails_cleanly_after_close(src: hf.Source) -> None:
    send(src, 3)
    with hf.Context() as ctx:
        receiver = ctx.receiver("quotes", options=EXPLICIT)
        message = take(receiver)
        ack, other = message.extract_ack(), message.extract_ack()
        message.release()
        del message
        for _ in range(2):
            take(receiver).release()
        ack.send()
        assert acked(receiver) == 0
        other.close()
        other.close()
        with pytest.raises(hf.ClosedError, match="ack"):
            other.send()
        with pytest.raises(hf.ClosedError, match="ack"):
            other.mark_not_outstanding()
        assert repr(other) == "<Ack 0 closed>"
        receiver.close()
        with pytest.raises(hf.ClosedError, match="receiver"):
            ack.send()
        ack.close()
        ack.close()


@pytest.mark.parametrize("options", [BATCHED, IMMEDIATE], ids=["batched", "immediate"])
def test_an_explicit_ack_without_the_option_is_a_usage_error(src: hf.Source, options: dict[str, object]) -> None:
    send(src, 2)
    with hf.Context() as ctx, ctx.receiver("quotes", options=options) as receiver:
        message = take(receiver)
        assert not message.can_send_explicit_ack
        ack = message.extract_ack()
        batch = receiver.receive_batch(10, timeout=SHORT)
        assert batch is not None
        for call in (message.send_explicit_ack, ack.send, ack.mark_not_outstanding, batch.send_explicit_ack):
            with pytest.raises(hf.UsageError, match="ume_explicit_ack_only=1"):
                call()
        batch.release()
        message.release()
    assert bytes(message if not message.released else b"") == b""


@pytest.mark.parametrize("number", [-1, 2**63])
def test_an_ack_of_what_is_no_number_is_a_usage_error(src: hf.Source, number: int) -> None:
    send(src, 1)
    with hf.Context() as ctx, ctx.receiver("quotes", options=EXPLICIT) as receiver:
        with pytest.raises(hf.UsageError, match=str(number)):
            take(receiver).extract_ack().send(number)
        assert acked(receiver) == -1


def test_both_ack_options_as_1_are_a_config_error() -> None:
    with hf.Context() as ctx, pytest.raises(hf.ConfigError, match="exclude each other"):
        ctx.receiver("quotes", options={"ume_use_ack_batching": 1, "ume_explicit_ack_only": 1})


def test_a_batch_is_acked_explicitly_and_by_its_extracted_ack(src: hf.Source) -> None:
    send(src, 10)
    with hf.Context() as ctx, ctx.receiver("quotes", options=EXPLICIT) as receiver:
        batch = receiver.receive_batch(5, timeout=SHORT)
        assert batch is not None
        last = int(batch.frames["sequence_number"][-1])
        assert repr(batch) == f"<Batch quotes 0..{last}, {len(batch)} messages>"
        ack = batch.extract_ack()
        batch.send_explicit_ack()
        assert acked(receiver) == last
        batch.release()
        assert repr(batch) == f"<Batch of {last + 1} messages released>"
        with pytest.raises(ValueError, match="released"):
            batch.send_explicit_ack()
        ack.send(batch.frames["sequence_number"][-1])  # numpy's integers are numbers
        assert acked(receiver) == last


def test_explicit_mode_keeps_no_record_of_messages_that_are_never_released(src: hf.Source) -> None:
    """Releasing means nothing, so not releasing must not either: nothing may fill up."""
    count = 5000
    send(src, count)
    with hf.Context() as ctx, ctx.receiver("quotes", options=EXPLICIT) as receiver:
        for _ in range(count):
            message = take(receiver)
        message.send_explicit_ack()
        assert acked(receiver) == count - 1
        (controller,) = receiver.controllers
        assert not hasattr(controller.window, "slots")


def test_explicit_acks_of_several_threads_never_go_back(src: hf.Source) -> None:
    send(src, 2000)
    with hf.Context() as ctx:
        with ctx.receiver("quotes", options=EXPLICIT) as receiver:
            ack = take(receiver).extract_ack()
            for _ in range(1999):
                take(receiver).release()

            def send_acks(numbers: range) -> None:
                for number in numbers:
                    ack.send(number)

            threads = [threading.Thread(target=send_acks, args=(range(part, 1500, 4),)) for part in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert acked(receiver) == 1499
        assert delivered_again(EXPLICIT, 1999)[0][0] == 1500


@pytest.mark.parametrize("maximum", [0, 4], ids=["not throttled", "throttled"])
def test_explicit_acks_in_order_of_arrival(src: hf.Source, maximum: int) -> None:
    """Two windows stand behind one stream then, until everything is recovered."""
    send(src, 3)
    options = {**EXPLICIT, "ordered_delivery": -1, "ume_application_outstanding_maximum": maximum}
    with hf.Context() as ctx:
        with ctx.receiver("quotes", options=options) as receiver:
            messages = take_all(receiver, 3)
            messages[1].send_explicit_ack()
            send(src, 3)
            messages |= take_all(receiver, 3)
            assert acked(receiver) == 1
            messages[4].send_explicit_ack()
            assert acked(receiver) == 4
            messages[3].extract_ack().mark_not_outstanding(5)
        assert [number for number, _ in delivered_again(EXPLICIT, 5)] == [5]


FORKED = """
import os, sys
import holdfast as hf
ctx = hf.Context()
rcv = ctx.receiver("quotes", options={"ume_explicit_ack_only": 1})
message = rcv.receive(timeout=90)
ack = message.extract_ack()
child = os.fork()
if child == 0:
    try:
        ack.send()
    except hf.ForkedHandleError:
        os._exit(7)
    os._exit(1)
_, status = os.waitpid(child, 0)
ack.send()
ctx.close()
sys.exit(os.waitstatus_to_exitcode(status))
"""


def test_an_ack_in_a_forked_child_is_refused(src: hf.Source) -> None:
    send(src, 1)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKED], capture_output=True, text=True, timeout=180, check=False
    )
    assert (done.returncode, done.stderr) == (7, "")
