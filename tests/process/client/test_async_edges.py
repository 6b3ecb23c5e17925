"""Where tasks, callbacks and closes meet: no wait is refused for ever, no error of a callback is taken for
another one, and what is left is closed."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
from typing import TYPE_CHECKING, Any

import pytest
from support.receiving import SESSION, SHORT, send, until

import holdfast as hf
from holdfast.engine.native import event_loop
from holdfast.engine.native.event_loop import MOST
from holdfast.engine.source import awaiting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.stalled_store import Scene


@pytest.fixture
def raises() -> Iterator[hf.Context]:
    """A context that tells what callbacks raise."""
    with hf.Context(session_id=SESSION, options={"callback_errors": "raise"}) as made:
        yield made


def fail(context: hf.Context, error: BaseException) -> None:
    """A callback of it raises this."""

    def fails(_: object) -> None:
        raise error

    context.callback(fails, None)


async def waits(rcv: hf.Receiver) -> None:
    """Until a task waits for a message."""
    while rcv._task_waits is None:
        await asyncio.sleep(0)


def test_anext_with_a_default_waits_for_a_message_and_may_be_cancelled(
    src: hf.Source, rcv: hf.Receiver, run: Any
) -> None:
    """It asks for the awaitable's iterator at each of its steps."""

    async def main() -> None:
        messages = aiter(rcv)
        task = asyncio.ensure_future(_anext(messages))
        await waits(rcv)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        task = asyncio.ensure_future(_anext(messages))
        await waits(rcv)
        src.send(b"x")
        message = await task
        assert message is not None
        assert message.sequence_number == 0
        task = asyncio.ensure_future(_anext(messages))
        await waits(rcv)
        await asyncio.to_thread(rcv.close)
        assert await task is None

    run(main())


async def _anext(messages: Any) -> hf.Message | None:
    return await anext(messages, None)


@pytest.mark.parametrize("form", ["messages", "batches", "receive_async"])
@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (hf.ClosedError("another object"), hf.ClosedError),
        (StopIteration(), RuntimeError),
        (StopAsyncIteration(), RuntimeError),
    ],
)
def test_what_a_callback_raised_is_not_taken_for_the_end(
    ctx: hf.Context, src: hf.Source, raises: hf.Context, run: Any, form: str, error: Exception, kind: type[Exception]
) -> None:
    del ctx
    rcv = raises.receiver("quotes")
    until("registered", lambda: rcv.stats().sources == 1)

    async def one() -> object:
        if form == "receive_async":
            return await rcv.receive_async()
        async for each in rcv if form == "messages" else rcv.batches():
            return each
        return None

    async def main() -> None:
        task = asyncio.ensure_future(one())
        await waits(rcv)
        fail(raises, error)
        with pytest.raises(kind):
            await task
        assert not rcv.closed
        src.send(b"x")
        assert await one() is not None

    run(main())


class BareError(hf.Error):
    """Of a program's own, without a text and without room for a number."""

    code = "BARE"

    def __init__(self) -> None:
        Exception.__init__(self)

    @property
    def sequence_number(self) -> int:  # type: ignore[override]
        return 7


@pytest.mark.parametrize("when", ["before", "meanwhile"])
@pytest.mark.parametrize("error", [hf.StabilityTimeout(5, 4), BareError()], ids=["timeout", "bare"])
def test_send_stable_leaves_the_error_of_a_callback_as_it_is(scene: Scene, when: str, error: hf.Error) -> None:
    """But the number, which is that of this call: None, nothing was published."""
    src, callbacks = scene.source(), scene.context._callbacks
    before = repr(error.args), error.retriable, getattr(error, "hint", "")
    error.__dict__.pop("sequence_number", None)
    scene.stand_still()

    def published() -> None:
        until("it is published", lambda: src.next_sequence_number == 1)
        callbacks._kept = error

    raising = threading.Thread(target=published)
    if when == "before":
        callbacks._kept = error
    else:
        raising.start()
    with pytest.raises(type(error)) as caught:
        src.send_stable(b"x", SHORT)
    if when == "meanwhile":
        raising.join()
    assert src.next_sequence_number == (0 if when == "before" else 1)
    assert caught.value is error
    assert (repr(error.args), error.retriable, getattr(error, "hint", "")) == before
    if not isinstance(error, BareError):
        assert vars(error)["sequence_number"] == (None if when == "before" else 0)


@pytest.mark.parametrize("cancelled", [False, True])
def test_async_with_closes_also_where_all_threads_of_the_loop_wait_for_that(
    ctx: hf.Context, src: hf.Source, cancelled: bool
) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        own = hf.Context()
        receivers = [own.receiver("quotes") for _ in range(40)]
        async with own:
            calls = [loop.run_in_executor(None, _until_closed, rcv) for rcv in receivers]
            await asyncio.sleep(0)
            if cancelled:
                task = asyncio.current_task()
                assert task is not None
                loop.call_soon(task.cancel)
        await asyncio.gather(*calls)

    with pytest.raises(asyncio.CancelledError) if cancelled else contextlib.nullcontext():
        asyncio.run(main())
    until("closed", lambda: "holdfast-close" not in {thread.name for thread in threading.enumerate()})


def _until_closed(rcv: hf.Receiver) -> None:
    with pytest.raises(hf.ClosedError):
        rcv.receive(SHORT)


def test_what_closing_raises_is_raised_by_async_with(raises: hf.Context, run: Any) -> None:
    async def main() -> None:
        async with raises:
            fail(raises, KeyError("late"))

    with pytest.raises(KeyError, match="late"):
        run(main())


def test_a_claim_of_another_thread_holds_no_send_beyond_its_time(ctx: hf.Context, src: hf.Source, run: Any) -> None:
    claimed, end = threading.Event(), threading.Event()

    def claim() -> None:
        with src.claim(3, timeout=SHORT) as view:
            claimed.set()
            end.wait(SHORT)
            view[:] = b"abc"

    thread = threading.Thread(target=claim)
    thread.start()
    assert claimed.wait(SHORT)
    for timeout in (0, 0.001):
        with pytest.raises(hf.WouldBlockError) as caught:
            src.send(b"x", timeout=timeout)
        assert caught.value.reason == "claim"

    async def main() -> None:
        with pytest.raises(hf.WouldBlockError, match="claim"):
            await src.send_async(b"x", timeout=0.001)
        sending = asyncio.ensure_future(src.send_async(b"x"))
        for _ in range(10):  # the loop goes on
            await asyncio.sleep(0)
        assert not sending.done()
        end.set()
        assert await sending == 1

    run(main())
    thread.join()


def test_a_receiver_serves_another_loop_when_the_one_of_its_task_was_closed(src: hf.Source, rcv: hf.Receiver) -> None:
    async def receive() -> bytes:
        message = await rcv.receive_async(SHORT)
        assert message is not None
        with message:
            return bytes(message)

    first = asyncio.new_event_loop()
    task = first.create_task(receive())
    first.run_until_complete(waits(rcv))
    first.close()
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    del task
    gc.collect()
    src.send(b"x")
    assert asyncio.run(receive()) == b"x"


def test_a_task_whose_message_is_stable_each_time_gives_the_loop_its_turns(src: hf.Source, run: Any) -> None:
    send(src, 1)
    turns = [0]

    async def other() -> None:
        while True:
            turns[0] += 1
            await asyncio.sleep(0)

    async def main() -> None:
        task = asyncio.ensure_future(other())
        await asyncio.sleep(0)
        before = turns[0]
        for _ in range(3 * MOST):
            await src.stable(0)
        assert turns[0] - before >= 2
        task.cancel()

    run(main())


def test_many_tasks_look_no_more_often_than_a_few(src: hf.Source, monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[float] = []

    async def wait(self: event_loop.Waker, context: object, limit_s: float, crowd: int = 1) -> None:
        del self, context, crowd
        limits.append(limit_s)

    monkeypatch.setattr(event_loop.Waker, "wait", wait)
    session = src._session

    async def main() -> None:
        moment = session.awaiting.moment(session)
        for crowd in (0, 10, 400):
            session.awaiting._tasks[:] = [awaiting.Waiting(moment, event_loop.Waker()) for _ in range(crowd)]
            await session.awaiting.past(session, moment, None)
            await session.awaiting.past(session, moment, 0.01)
        session.awaiting._tasks.clear()

    asyncio.run(main())
    one = awaiting.LOOK_S
    assert limits == [one, 0.01, one, 0.01, pytest.approx(one * 401 / awaiting.CROWD), 0.01]


def test_a_second_task_in_one_iterator_of_batches_is_refused(src: hf.Source, rcv: hf.Receiver, run: Any) -> None:
    async def main() -> None:
        batches = rcv.batches()
        first = asyncio.ensure_future(_batch(batches))
        await asyncio.sleep(0)  # it gives a turn at its beginning
        with pytest.raises(hf.UsageError, match="this iterator"):
            await anext(batches)
        src.send(b"x")
        assert len(await first) == 1

    run(main())


async def _batch(batches: Any) -> hf.Batch:
    found: hf.Batch = await anext(batches)
    return found
