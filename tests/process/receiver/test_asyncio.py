"""Awaiting messages: what ends the wait, and who may wait."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import pytest
from support.receiving import SHORT, source

import holdfast as hf

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from process.conftest import ThreadStore


def awaiting(run_store: Callable[..., ThreadStore], work: Callable[..., Coroutine[object, object, None]]) -> None:
    """Runs ``work(receiver, source, task)``, where the task awaits a message already."""

    async def main() -> None:
        with hf.Context() as ctx:
            src = source(ctx)
            rcv = ctx.receiver("quotes")
            task = asyncio.create_task(rcv.receive_async())
            while not (rcv.stats().sources and rcv._task_waits):
                await asyncio.sleep(0.001)
            await work(rcv, src, task)

    run_store()
    asyncio.run(main())


@pytest.mark.parametrize("where", ["another thread", "the loop"])
def test_closing_ends_the_wait_of_a_task(run_store: Callable[..., ThreadStore], where: str) -> None:
    async def work(rcv: hf.Receiver, _: hf.Source, task: asyncio.Task[object]) -> None:
        if where == "the loop":
            rcv.close()
        else:
            await asyncio.to_thread(rcv.close)
        with pytest.raises(hf.ClosedError):
            await asyncio.wait_for(task, SHORT)
        with pytest.raises(hf.ClosedError):
            rcv.fileno()
        with pytest.raises(hf.ClosedError):
            await rcv.receive_async()

    awaiting(run_store, work)


def test_a_receiver_is_woken_while_nobody_can_close_its_eventfd(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its number may be another file's a moment later."""
    alone: list[bool] = []
    write = os.eventfd_write

    async def work(rcv: hf.Receiver, _: hf.Source, task: asyncio.Task[object]) -> None:
        lock = rcv.context.turning()
        rcv.fileno()

        def eventfd_write(fd: int, value: int) -> None:
            alone.append(lock._is_owned())  # type: ignore[attr-defined]  # an RLock
            write(fd, value)

        monkeypatch.setattr(os, "eventfd_write", eventfd_write)
        await asyncio.to_thread(rcv.close)
        with pytest.raises(hf.ClosedError):
            await asyncio.wait_for(task, SHORT)

    awaiting(run_store, work)
    assert alone
    assert all(alone)


def test_a_second_task_is_refused_and_the_first_gets_the_message(run_store: Callable[..., ThreadStore]) -> None:
    async def work(rcv: hf.Receiver, src: hf.Source, task: asyncio.Task[hf.Message | None]) -> None:
        with pytest.raises(hf.UsageError, match="another task"):
            await rcv.receive_async()
        src.send(b"x")
        message = await asyncio.wait_for(task, SHORT)
        assert message is not None
        assert bytes(message) == b"x"
        message.release()
        src.send(b"y")
        message = await rcv.receive_async(SHORT)  # the first one is through
        assert message is not None
        assert bytes(message) == b"y"

    awaiting(run_store, work)
