"""``receive()`` in its lane, which is in C (csrc/python/lane.c, gate.c): when it is open, when it ends, and
that nothing which goes wrong there skips a message."""

from __future__ import annotations

import _thread
import gc
import signal
import threading
from typing import TYPE_CHECKING, Any

import pytest
from support.receiving import SHORT, acknowledged, one, send, source, take, until

import holdfast as hf
from holdfast.engine.native.core import Flow
from holdfast.engine.receiver import ack_window
from holdfast.engine.receiver.ack_window import AckWindow
from holdfast.engine.receiver.feed import Feed

if TYPE_CHECKING:
    from holdfast.engine.receiver.delivery_controller import DeliveryController


class InterruptError(Exception):
    """What a signal handler raises."""


@pytest.fixture
def rcv(rcv: hf.Receiver, src: hf.Source) -> hf.Receiver:
    """Its lane is open, and numbers 0 and 1 were received."""
    opened(rcv, src)
    return rcv


def opened(receiver: hf.Receiver, src: hf.Source) -> None:
    """Its lane is open."""
    until("registered", lambda: receiver.stats().sources == 1)
    send(src, 2)
    take(receiver, 2)
    assert receiver.has_lane()


# When it is open --------------------------------------------------------------------------------------------


def test_what_is_there_is_received_without_a_call_of_python(
    src: hf.Source, rcv: hf.Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also by iterating. So it costs what C costs (perf/ measures that)."""
    send(src, 20)
    for name in ("receive_slowly", "_try_receive", "_arrived"):
        monkeypatch.setattr(hf.Receiver, name, lambda *_: pytest.fail("a call of Python"))
    monkeypatch.setattr(Feed, "receive", lambda *_: pytest.fail("a call of Python"))
    monkeypatch.setattr(AckWindow, "make_room", lambda *_: pytest.fail("a call of Python"))
    for number, timeout in enumerate((0, 1, 0.5, None, 1 << 80), 2):
        message = rcv.receive(timeout)
        assert message is not None
        assert message.sequence_number == number
        message.release()
    assert [message.sequence_number for message, _ in zip(Flow(rcv, 0), range(10), strict=False)] == [*range(7, 17)]


def test_messages_may_be_held_and_released_in_any_order(src: hf.Source, rcv: hf.Receiver) -> None:
    send(src, 6)
    held = [one(rcv) for _ in range(6)]
    for at, passed in ((3, 1), (1, 1), (0, 3), (5, 3), (2, 5), (4, 7)):
        held[at].release()
        held[at].release()
        assert acknowledged(rcv) == passed


@pytest.mark.parametrize("timeout", [(0,), -1, -0.5, float("nan"), "1", True, 1j])
def test_a_timeout_that_is_none_is_refused_also_where_a_message_waits(
    src: hf.Source, rcv: hf.Receiver, timeout: object
) -> None:
    send(src, 1)
    if timeout is True:  # as anywhere else
        one(rcv).release()
        return
    with pytest.raises((hf.UsageError, TypeError)):
        rcv.receive(timeout)  # type: ignore[arg-type]
    assert take(rcv) == [2], "it is there still"


def test_other_arguments_are_refused_by_name(rcv: hf.Receiver) -> None:
    for given, named in (((1, 2), {}), ((), {"seconds": 1}), ((1,), {"timeout": 1})):
        with pytest.raises(TypeError, match="timeout"):
            rcv.receive(*given, **named)
    assert rcv.receive(timeout=0) is None


def test_a_source_that_comes_while_it_is_opened_is_not_left_out(
    src: hf.Source, rcv: hf.Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The context's thread replaces the sources as a whole, at any moment."""
    alone = hf.Receiver._alone

    def changed(self: hf.Receiver) -> object:
        found = alone(self)
        self.controllers = (*list(self.controllers),)
        return found

    rcv.lane = None
    monkeypatch.setattr(hf.Receiver, "_alone", changed)
    assert not rcv.open_lane()
    assert not rcv.has_lane()


def test_a_descriptor_that_is_taken_while_it_is_opened_is_told_of_each_look(
    src: hf.Source, rcv: hf.Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = hf.Receiver._alone

    def taken(self: hf.Receiver) -> object:
        found = alone(self)
        self.fileno()
        return found

    rcv.lane = None
    monkeypatch.setattr(hf.Receiver, "_alone", taken)
    assert not rcv.open_lane()
    send(src, 1)
    assert take(rcv) == [2]
    assert rcv.lane is None


# When it ends -----------------------------------------------------------------------------------------------


def test_another_source_ends_it_and_messages_of_both_come(ctx: hf.Context, src: hf.Source, rcv: hf.Receiver) -> None:
    other = source(ctx)
    until("both", lambda: rcv.stats().sources == 2)
    assert not rcv.has_lane()
    send(src, 3)
    send(other, 3)
    assert sorted(take(rcv, 6)) == [0, 1, 2, 2, 3, 4]
    other.close()


def test_a_batch_that_was_evicted_comes_again_first(src: hf.Source, rcv: hf.Receiver) -> None:
    send(src, 5)
    batch = rcv.receive_batch(2, SHORT)
    assert batch is not None
    assert rcv.has_lane()
    (controller,) = rcv.controllers
    rcv.batch_evicted(controller, batch._ack_slot)
    assert not rcv.has_lane()
    assert take(rcv, 5) == [2, 3, 4, 5, 6]
    assert acknowledged(rcv) == 6


def test_who_watches_a_descriptor_is_told_of_each_look(src: hf.Source, rcv: hf.Receiver) -> None:
    assert rcv.fileno() >= 0
    assert rcv.lane is None
    send(src, 3)
    assert take(rcv, 3) == [2, 3, 4]
    assert rcv.lane is None


def test_a_receiver_that_is_closed_has_none(src: hf.Source, rcv: hf.Receiver) -> None:
    send(src, 1)
    rcv.close()
    with pytest.raises(hf.ClosedError):
        rcv.receive(0)
    assert rcv.lane is None


def test_closing_ends_a_wait_in_it(src: hf.Source, rcv: hf.Receiver) -> None:
    def receive() -> None:
        with pytest.raises(hf.ClosedError):
            rcv.receive(SHORT)

    waits = threading.Thread(target=receive)
    waits.start()
    until("it waits", lambda: rcv.receiving)
    rcv.close()
    waits.join()


def test_it_is_refused_while_another_thread_receives(src: hf.Source, rcv: hf.Receiver) -> None:
    send(src, 1)
    rcv.receiving = True
    with pytest.raises(hf.UsageError, match="another thread"):
        rcv.receive(0)
    rcv.receiving = False
    assert take(rcv) == [2]


# Nothing is skipped -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["receive", "iterate", "slowly", "callback"])
def test_a_message_that_a_signal_handler_kept_from_the_program_comes_again(
    ctx: hf.Context, src: hf.Source, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was taken from the ring and had its record; then stirring the context was interrupted."""
    seen: list[int] = []
    receiver = ctx.receiver(
        "quotes", on_message=(lambda m: seen.append(m.sequence_number)) if form == "callback" else None
    )
    until("registered", lambda: receiver.stats().sources == 1)
    if form != "callback":
        opened(receiver, src)
    (controller,) = receiver.controllers
    stir, left = type(controller).stir, [1]

    def interrupted(self: DeliveryController) -> None:
        if self is controller and left:
            left.pop()
            raise InterruptError
        stir(self)

    if form == "callback":
        with ctx.turning():  # nobody receives meanwhile
            monkeypatch.setattr(type(controller), "stir", interrupted)
            send(src, 3)
            controller.dozing = True
            with pytest.raises(InterruptError):
                receiver.dispatch()
        until("all came", lambda: len(seen) == 3)
        assert seen == [0, 1, 2]
        return
    send(src, 3)
    if form == "slowly":
        receiver.fileno()
    messages = iter(receiver)
    monkeypatch.setattr(type(controller), "stir", interrupted)
    controller.dozing = True
    with pytest.raises(InterruptError):
        next(messages) if form == "iterate" else receiver.receive(SHORT)
    assert acknowledged(receiver) == 1
    assert not receiver.receiving
    assert take(receiver) == [2]
    assert take(receiver, 2) == [3, 4]
    assert acknowledged(receiver) == 4


@pytest.mark.parametrize("listens", [False, True])
@pytest.mark.parametrize("options", [{}, {"ume_application_outstanding_maximum": 5}, {"ume_use_ack_batching": 0}])
def test_a_message_that_comes_after_a_signal_is_not_lost_where_the_handler_raises(
    ctx: hf.Context, src: hf.Source, options: dict[str, object], listens: bool
) -> None:
    """The signal comes while ``receive`` waits in C, and the message ends that wait."""
    receiver = ctx.receiver("quotes", options=options)
    until("registered", lambda: receiver.stats().sources == 1)
    send(src, 2)
    take(receiver, 2)
    if listens:
        receiver.fileno()

    def interrupt() -> None:
        until("it waits", lambda: receiver.receiving)
        _thread.interrupt_main(signal.SIGUSR1)  # at once, where the system's own may come behind the message
        send(src, 1)

    before = signal.signal(signal.SIGUSR1, raising)
    thread = threading.Thread(target=interrupt)
    try:
        thread.start()
        with pytest.raises(InterruptError):
            receiver.receive(SHORT)
    finally:
        signal.signal(signal.SIGUSR1, before)
    thread.join()
    assert not receiver.receiving
    send(src, 1)
    message = one(receiver)
    assert (message.sequence_number, message.is_retransmit) == (2, False)
    message.release()
    assert acknowledged(receiver) == 2
    assert (receiver.stats().delivered, receiver.stats().redelivered) == (3, 0)


def raising(*_: object) -> None:
    """A signal handler."""
    raise InterruptError


@pytest.mark.parametrize("form", ["receive", "batch"])
def test_what_was_taken_and_had_no_record_when_an_exception_came_is_delivered_again(
    ctx: hf.Context, src: hf.Source, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where Python takes it: here its window, or its batch, is Python's."""
    receiver = ctx.receiver("quotes", options={"ume_application_outstanding_maximum": 50})
    until("registered", lambda: receiver.stats().sources == 1)
    send(src, 4)
    take(receiver)
    (controller,) = receiver.controllers
    kind: Any = type(controller.window)
    delivered, left = kind.delivered, [1]

    def interrupted(self: AckWindow, first: int, last: int) -> int:
        if left.pop() if left else False:
            if form == "receive":
                super(kind, self).delivered(first, last)
            raise InterruptError
        return int(delivered(self, first, last))

    monkeypatch.setattr(kind, "delivered", interrupted)
    with pytest.raises(InterruptError):
        receiver.receive(SHORT) if form == "receive" else receiver.receive_batch(2, SHORT)
    assert not receiver.receiving
    assert take(receiver, 3) == [1, 2, 3]
    assert acknowledged(receiver) == 3


def test_a_look_that_is_interrupted_leaves_the_receiver_free(
    src: hf.Source, rcv: hf.Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    rcv.fileno()
    with monkeypatch.context() as patch:
        patch.setattr(rcv, "looked", raising)
        for call in (lambda: rcv.receive(0), lambda: rcv.receive_batch(1, 0)):
            with pytest.raises(InterruptError):
                call()
    send(src, 1)
    assert take(rcv) == [2]


def test_a_release_that_was_interrupted_may_be_repeated(
    ctx: hf.Context, src: hf.Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver = ctx.receiver("quotes", options={"ume_use_ack_batching": 0})
    until("registered", lambda: receiver.stats().sources == 1)
    send(src, 1)
    message = one(receiver)
    with monkeypatch.context() as patch:
        patch.setattr(type(message), "consumed_by_call", raising)
        with pytest.raises(InterruptError):
            message.release()
    assert not message.released
    message.release()
    assert acknowledged(receiver) == 0


@pytest.mark.parametrize("form", ["receive", "iterate"])
def test_a_message_that_finds_no_room_in_the_window_comes_when_there_is(
    ctx: hf.Context, src: hf.Source, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ack_window.AckWindow, "__init__", _small(ack_window.AckWindow.__init__))
    receiver = ctx.receiver("quotes")
    opened(receiver, src)
    send(src, 10)
    held = [one(receiver) for _ in range(4)]
    for _ in range(2):
        with pytest.raises(hf.UsageError, match="HF_FULL"):
            next(iter(receiver)) if form == "iterate" else receiver.receive(SHORT)
    for message in held:
        message.release()
    assert acknowledged(receiver) == 5, "what found no room is not passed"
    assert take(receiver) == [6]
    assert take(receiver) == [7]
    assert acknowledged(receiver) == 7


def _small(made: object) -> object:
    def make(self: AckWindow, start: int) -> None:
        made(self, start, slots=2, maximum=4)  # type: ignore[operator]

    return make


def test_a_message_that_needs_a_larger_buffer_than_there_is_memory_for_is_not_skipped(
    src: hf.Source, rcv: hf.Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    src.send(b"x" * 20_000, timeout=SHORT)
    send(src, 1)
    message = rcv.pool.take()
    rcv.pool.give(message)
    kind = type(message)
    del message
    with monkeypatch.context() as patch:
        patch.setattr(kind, "grow", lambda _: (_ for _ in ()).throw(MemoryError))
        with pytest.raises(MemoryError):
            rcv.receive(SHORT)
    assert len(one(rcv)) == 20_000
    assert one(rcv).sequence_number == 3


def test_what_a_finalizer_receives_while_a_message_is_made_is_refused(
    src: hf.Source, rcv: hf.Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Making one may collect garbage, whose finalizers do what they like."""
    send(src, 6)
    held = [one(rcv), one(rcv)]
    make, refused = type(rcv.pool).make, list[BaseException]()

    def receiving(pool: object) -> object:
        try:
            rcv.receive(0)
        except hf.UsageError as error:
            refused.append(error)
        return make(pool)

    monkeypatch.setattr(type(rcv.pool), "make", receiving)
    held.append(one(rcv))
    assert len(refused) == 1
    assert [message.sequence_number for message in held] == [2, 3, 4]


def test_what_a_finalizer_closes_while_a_message_is_made_is_closed(
    src: hf.Source, rcv: hf.Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(src, 6)
    held = [one(rcv), one(rcv)]
    make = type(rcv.pool).make

    def closing(pool: object) -> object:
        rcv.close()
        return make(pool)

    monkeypatch.setattr(type(rcv.pool), "make", closing)
    with pytest.raises(hf.ClosedError):
        rcv.receive(SHORT)
    assert all(message.released for message in held)


def test_an_iteration_that_is_garbage_has_left_its_message(src: hf.Source, rcv: hf.Receiver) -> None:
    """The next request consumes it, as after ``break``."""
    send(src, 3)
    loop: list[object] = []
    messages = Flow(rcv, 0)
    loop += [messages, loop]
    assert next(messages).sequence_number == 2
    del messages
    del loop
    gc.collect()
    assert acknowledged(rcv) == 1
    assert take(rcv) == [3]
    assert acknowledged(rcv) == 3
