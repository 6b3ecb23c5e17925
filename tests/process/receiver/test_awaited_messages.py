"""``async for`` over messages and batches: what each step costs the event loop, what a cancelled step has
taken, and what ends it. On asyncio's own loop and on uvloop."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import select
import threading
from typing import TYPE_CHECKING, Any

import pytest
from support.receiving import MODES, SESSION, SHORT, send, source, take, until

import holdfast as hf
from holdfast import aio
from holdfast.aio import AwaitedMessages
from holdfast.engine.native.event_loop import MOST, SLICE_NS, Pace
from holdfast.engine.receiver.ring_reader import View

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

COUNT = 30


@pytest.fixture
def rcv(ctx: hf.Context) -> Iterator[hf.Receiver]:
    """A receiver with a session, of a source that has sent nothing yet."""
    with hf.Context(session_id=SESSION) as other:
        yield other.receiver("quotes")


@pytest.fixture
def never_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that is not woken waits for ever: no look after a while hides that."""
    monkeypatch.setattr(aio, "LOOK_S", SHORT)


def registered(rcv: hf.Receiver) -> hf.Receiver:
    until("registered", lambda: rcv.controllers)
    return rcv


async def waits(rcv: hf.Receiver) -> None:
    """Until a task waits for a message."""
    while rcv._task_waits is None:
        await asyncio.sleep(0)


async def numbers(rcv: hf.Receiver, count: int) -> list[int]:
    found: list[int] = []
    async for message in rcv:
        found.append(message.sequence_number)
        if len(found) == count:
            break
    return found


@pytest.mark.parametrize("mode", MODES)
def test_every_message_comes_once_in_order_and_is_consumed(ctx: hf.Context, run: Any, mode: str) -> None:
    src = source(ctx)
    with hf.Context(session_id=SESSION) as other:
        rcv = registered(other.receiver("quotes", options=MODES[mode]))
        send(src, COUNT)
        assert run(numbers(rcv, COUNT)) == list(range(COUNT))
    with hf.Context(session_id=SESSION) as other:
        src.send(b"more")
        assert take(registered(other.receiver("quotes")), 2) == [COUNT - 1, COUNT]  # the last one was in hand


@pytest.mark.usefixtures("never_looks")
def test_a_message_that_comes_later_wakes_the_task(ctx: hf.Context, rcv: hf.Receiver, run: Any) -> None:
    src = source(ctx)

    async def main() -> None:
        task = asyncio.ensure_future(numbers(rcv, COUNT))
        for _ in range(COUNT):
            await waits(rcv)
            src.send(b"x")
            while rcv._task_waits is not None:
                await asyncio.sleep(0)
        assert await task == list(range(COUNT))

    registered(rcv)
    run(main())


def test_a_step_that_finds_a_message_yields_only_when_it_is_due(ctx: hf.Context, rcv: hf.Receiver) -> None:
    """By the count, and by a clock that moves half a slice with each look; driven by hand."""
    src = source(ctx)
    registered(rcv)
    send(src, COUNT)

    def yields(messages: AwaitedMessages, count: int) -> list[int]:
        """After how many messages it has yielded."""
        found: list[int] = []

        async def main() -> None:
            for _ in range(count):
                await anext(messages)
                taken.append(1)

        taken: list[int] = []
        step = main()
        try:
            while True:
                step.send(None)
                found.append(len(taken))
        except StopIteration:
            return found

    assert yields(AwaitedMessages(rcv, 4, clock=lambda: 0), 12) == [0, 4, 8]
    ticks = iter(range(0, 10**12, SLICE_NS // 2))
    assert yields(AwaitedMessages(rcv, 10**6, clock=lambda: next(ticks)), 8) == [0, 1, 2, 3, 4, 5, 6, 7]


def test_a_pace_yields_after_so_many_steps_or_so_much_time() -> None:
    now = 0
    pace = Pace(3, lambda: now)

    def yields() -> bool:
        due = pace.due()
        if due:
            pace.waited()
        return due

    assert [yields() for _ in range(9)] == [True, False, False, False, True, False, False, False, True]
    now += SLICE_NS
    assert yields()
    assert MOST >= 64


def counted(name: str, function: Callable[..., Any], calls: list[str]) -> Callable[..., Any]:
    def call(*given: Any, **more: Any) -> Any:
        calls.append(name)
        return function(*given, **more)

    return call


def test_no_reader_and_no_object_for_a_message_that_is_there(
    ctx: hf.Context, rcv: hf.Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    src = source(ctx)
    registered(rcv)
    send(src, COUNT)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        calls: list[str] = []
        for name in ("add_reader", "remove_reader", "call_soon", "create_future"):
            monkeypatch.setattr(loop, name, counted(name, getattr(loop, name), calls))
        messages = AwaitedMessages(rcv, COUNT, clock=lambda: 0)
        await anext(messages)  # its first step gives the loop a turn
        calls.clear()
        for number in range(1, COUNT):
            step = anext(messages)
            assert step is messages
            assert (await step).sequence_number == number
        assert calls == []

    asyncio.run(main())


@pytest.mark.parametrize("form", ["async for", "receive_async", "batches"])
def test_a_step_that_is_cancelled_has_taken_nothing(ctx: hf.Context, rcv: hf.Receiver, run: Any, form: str) -> None:
    """At each point where it can be: after any number of turns of the event loop, with messages coming all
    the time."""
    src = source(ctx)
    registered(rcv)

    async def main() -> None:
        found: list[int] = []
        messages, batches = aiter(rcv), rcv.batches(3)

        async def step() -> None:
            if form == "async for":
                found.append((await anext(messages)).sequence_number)
            elif form == "batches":
                found.extend((await anext(batches)).frames["sequence_number"].tolist())
            else:
                message = await rcv.receive_async()
                assert message is not None
                with message:
                    found.append(message.sequence_number)

        for turns in range(COUNT):
            task = asyncio.ensure_future(step())
            for _ in range(turns % 7):
                await asyncio.sleep(0)
            src.send(b"x")
            for _ in range(turns // 7):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        while not found or found[-1] < COUNT - 1:
            await step()
        assert found == list(range(COUNT))

    run(main())


@pytest.mark.usefixtures("never_looks")
@pytest.mark.parametrize("where", ["another thread", "the loop"])
@pytest.mark.parametrize("form", ["messages", "batches"])
def test_closing_ends_the_iteration(ctx: hf.Context, rcv: hf.Receiver, run: Any, where: str, form: str) -> None:
    source(ctx, sent=3)

    async def main() -> None:
        async def all_of_them() -> None:
            async for _ in rcv if form == "messages" else rcv.batches():
                pass

        task = asyncio.ensure_future(all_of_them())
        await waits(rcv)
        if where == "the loop":
            rcv.close()
        else:
            await asyncio.to_thread(rcv.close)
        await task
        await all_of_them()  # and of one that is closed, nothing

    registered(rcv)
    run(main())


def test_the_context_sleeps_while_its_slow_task_does_not_wait(ctx: hf.Context, rcv: hf.Receiver, run: Any) -> None:
    """The task handles a message, and more have come: nobody looks for it meanwhile."""
    src = source(ctx)
    registered(rcv)

    async def main() -> None:
        messages = aiter(rcv)
        task = asyncio.ensure_future(anext(messages))
        await waits(rcv)
        assert rcv.wants_messages()
        src.send(b"x")
        await task
        src.send(b"y")
        assert not rcv.wants_messages()
        assert (await anext(messages)).sequence_number == 1

    run(main())


def test_who_waits_at_the_eventfd_is_told_once_until_he_has_looked(ctx: hf.Context, rcv: hf.Receiver) -> None:
    src = source(ctx)
    registered(rcv)
    fd = rcv.fileno()
    signal = select.poll()
    signal.register(fd, select.POLLIN)
    for _ in range(3):
        src.send(b"x")
    for number in range(3):  # one message for each time: there is more, so it stays readable
        assert signal.poll(SHORT * 1000)
        os.eventfd_read(fd)
        message = rcv.receive(timeout=0)
        assert message is not None
        assert message.sequence_number == number
        message.release()
    while rcv.receive(timeout=0) is not None or signal.poll(0):
        os.eventfd_read(fd)
    until("it listens again", rcv.wants_messages)
    src.send(b"x")
    assert signal.poll(SHORT * 1000)
    until("told once", lambda: not rcv.wants_messages())


def test_a_second_task_is_refused_by_an_iterator(ctx: hf.Context, rcv: hf.Receiver, run: Any) -> None:
    src = source(ctx)
    registered(rcv)

    async def main() -> None:
        messages = aiter(rcv)
        first = asyncio.ensure_future(anext(messages))
        await waits(rcv)
        with pytest.raises(hf.UsageError, match="another task"):
            await anext(messages)
        with pytest.raises(hf.UsageError, match="another task"):
            await anext(aiter(rcv))
        src.send(b"x")
        assert (await first).sequence_number == 0

    run(main())


def test_what_a_callback_raised_ends_the_wait(ctx: hf.Context, run: Any) -> None:
    def fails(_: object) -> None:
        raise KeyError("from the callback")

    src = source(ctx)
    with hf.Context(session_id=SESSION, options={"callback_errors": "raise"}) as other:
        rcv = registered(other.receiver("quotes"))

        async def main() -> None:
            task = asyncio.ensure_future(numbers(rcv, 1))
            await waits(rcv)
            other.callback(fails, None)
            with pytest.raises(KeyError, match="from the callback"):
                await task
            src.send(b"x")
            assert await numbers(rcv, 1) == [0]

        run(main())


def test_batches_are_released_when_the_next_is_asked_for(ctx: hf.Context, rcv: hf.Receiver, run: Any) -> None:
    src = source(ctx)
    registered(rcv)
    send(src, COUNT)

    async def main() -> None:
        seen: list[hf.Batch] = []
        async for batch in rcv.batches(7):
            assert all(each._live is False for each in seen)
            seen.append(batch)
            if int(batch.frames["sequence_number"][-1]) == COUNT - 1:
                break
        assert seen[-1]._live
        gc.collect()
        assert rcv.receive(timeout=0) is None  # which releases what the loop was left at
        assert not seen[-1]._live

    run(main())


def test_a_batch_that_was_overwritten_raises_and_comes_again(
    ctx: hf.Context, rcv: hf.Receiver, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    src = source(ctx)
    registered(rcv)
    send(src, 3)
    end = View.release

    async def main() -> None:
        batches = rcv.batches()
        assert len(await anext(batches)) == 3
        monkeypatch.setattr(View, "release", lambda view: end(view) and False)  # as where the ring has gone over it
        with pytest.raises(hf.EvictedError):
            await anext(batches)
        monkeypatch.setattr(View, "release", end)
        again = await anext(batches)
        assert again.frames["sequence_number"].tolist() == [0, 1, 2]

    run(main())


def test_a_batch_has_at_least_one_message(rcv: hf.Receiver) -> None:
    with pytest.raises(hf.UsageError, match="batches of 0 messages"):
        rcv.batches(0)


def test_async_with_closes_on_another_thread(ctx: hf.Context, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []
    close = hf.Receiver._close

    def closes(self: hf.Receiver, timeout: float | None) -> None:
        threads.append(threading.get_ident())
        close(self, timeout)

    monkeypatch.setattr(hf.Receiver, "_close", closes)

    async def main() -> None:
        async with hf.Context() as own, own.source("other", options={}) as src, own.receiver("quotes") as rcv:
            assert not rcv.closed
        assert rcv.closed
        assert own.close() is None
        assert "closed" in repr(src)

    run(main())
    assert threads
    assert threading.get_ident() not in threads


def test_a_task_of_a_sequential_context_does_its_work(ctx: hf.Context, run: Any) -> None:
    src = source(ctx)
    with hf.Context(session_id=SESSION, options={"operational_mode": "sequential"}) as other:
        rcv = other.receiver("quotes")
        until("registered", lambda: rcv.controllers, other)

        async def main() -> None:
            task = asyncio.ensure_future(numbers(rcv, 2))
            await waits(rcv)
            src.send(b"x")
            src.send(b"y")
            assert await task == [0, 1]

        run(main())


def test_who_is_cancelled_at_once_each_time_gets_what_is_there(ctx: hf.Context, rcv: hf.Receiver, run: Any) -> None:
    src = source(ctx)
    registered(rcv)
    send(src, 2)

    async def main() -> None:
        messages, found = aiter(rcv), list[int]()
        while len(found) < 2:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0):
                    found.append((await anext(messages)).sequence_number)
        assert found == [0, 1]

    run(main())


def test_a_step_inside_a_step_is_refused(ctx: hf.Context, rcv: hf.Receiver) -> None:
    src = source(ctx)
    registered(rcv)
    send(src, 1)
    refused: list[str] = []

    def clock() -> int:
        for again in (lambda: next(messages), lambda: messages.throw(KeyError), messages.close):  # type: ignore[call-overload]
            with pytest.raises(RuntimeError, match="inside a step") as error:
                again()
            refused.append(str(error.value))
        return 0

    messages = AwaitedMessages(rcv, 100, clock=clock)

    async def main() -> None:
        assert (await anext(messages)).sequence_number == 0

    asyncio.run(main())
    assert len(refused) >= 3
