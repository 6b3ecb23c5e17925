"""A loop over messages that was left: what is in hand is consumed by the next request, in whatever form it
comes."""

from __future__ import annotations

import asyncio
import gc
import warnings
from typing import TYPE_CHECKING, Any

import pytest
from support.receiving import MODES, SESSION, SHORT, Told, send, source, until

import holdfast as hf
from holdfast.engine.events import receiver as events
from holdfast.engine.receiver.ack_window import AckWindow
from holdfast.message import Message

if TYPE_CHECKING:
    from collections.abc import Callable

COUNT, AT = 30, 3


def numbers_until(rcv: hf.Receiver, last: int) -> list[int]:
    found = []
    for message in rcv:
        found.append(message.sequence_number)
        if found[-1] == last:
            break
    return found


async def numbers_awaited(rcv: hf.Receiver, last: int) -> list[int]:
    found = []
    async for message in rcv:
        found.append(message.sequence_number)
        if found[-1] == last:
            break
    return found


# Ways of leaving at number AT -------------------------------------------------------------------------------


async def by_break(rcv: hf.Receiver) -> list[int]:
    return numbers_until(rcv, AT)


async def by_an_exception(rcv: hf.Receiver) -> list[int]:
    found: list[int] = []

    def look() -> None:
        for message in rcv:
            found.append(message.sequence_number)
            if found[-1] == AT:
                raise KeyError

    with pytest.raises(KeyError):
        look()
    return found


async def by_dropping(rcv: hf.Receiver) -> list[int]:
    iterator = iter(rcv)
    found = [next(iterator).sequence_number for _ in range(AT + 1)]
    del iterator
    return found


async def by_an_awaited_break(rcv: hf.Receiver) -> list[int]:
    return await numbers_awaited(rcv, AT)


async def by_an_awaited_exception(rcv: hf.Receiver) -> list[int]:
    found: list[int] = []

    async def look() -> None:
        async for message in rcv:
            found.append(message.sequence_number)
            if found[-1] == AT:
                raise KeyError

    with pytest.raises(KeyError):
        await look()
    return found


# Forms of going on to the last ------------------------------------------------------------------------------


async def by_receive(rcv: hf.Receiver) -> list[int]:
    found = []
    for _ in range(AT + 1, COUNT):
        message = rcv.receive(SHORT)
        assert message is not None
        with message:
            found.append(message.sequence_number)
    return found


async def by_batches(rcv: hf.Receiver) -> list[int]:
    found: list[int] = []
    while not found or found[-1] < COUNT - 1:
        batch = rcv.receive_batch(7, SHORT)
        assert batch is not None
        found += batch.frames["sequence_number"].tolist()
        batch.release()
    return found


async def by_for(rcv: hf.Receiver) -> list[int]:
    return numbers_until(rcv, COUNT - 1)


async def by_async_for(rcv: hf.Receiver) -> list[int]:
    return await numbers_awaited(rcv, COUNT - 1)


async def by_receive_async(rcv: hf.Receiver) -> list[int]:
    found = []
    for _ in range(AT + 1, COUNT):
        message = await rcv.receive_async(SHORT)
        assert message is not None
        with message:
            found.append(message.sequence_number)
    return found


LEAVES = [by_break, by_an_exception, by_dropping, by_an_awaited_break, by_an_awaited_exception]
FORMS = [by_receive, by_batches, by_for, by_async_for, by_receive_async]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("leave", LEAVES)
def test_the_message_in_hand_is_consumed_by_the_next_request(
    ctx: hf.Context, leave: Callable[..., Any], form: Callable[..., Any], mode: str
) -> None:
    src = source(ctx)
    with hf.Context(session_id=SESSION) as other:
        rcv = other.receiver("quotes", options=MODES[mode])
        until("registered", lambda: rcv.controllers)
        send(src, COUNT)

        async def play() -> tuple[list[int], list[int], list[int]]:
            before = await leave(rcv)
            rcv.acknowledge(0)
            acked = list(rcv.stats().acknowledged.values())
            return before, acked, await form(rcv)

        before, acked, after = asyncio.run(play())
        assert before == list(range(AT + 1))
        assert acked == [AT - 1], "in hand is not consumed"
        assert after == list(range(AT + 1, COUNT))
        assert rcv.receive(0) is None  # a request that finds nothing is one
        rcv.close()
        told = Told()
        other.receiver("quotes", on_event=told)
        assert told.wait(events.RegistrationComplete).sequence_number == COUNT


@pytest.mark.parametrize("sources", [1, 2])
def test_what_is_in_hand_is_consumed_by_a_request_that_finds_nothing(ctx: hf.Context, sources: int) -> None:
    several = [source(ctx) for _ in range(sources)]
    rcv = ctx.receiver("quotes")
    until("registered", lambda: len(rcv.controllers) == sources)
    send(several[0], AT + 1)
    assert numbers_until(rcv, AT) == list(range(AT + 1))
    assert rcv.receive(0) is None
    rcv.acknowledge(0)
    assert max(rcv.stats().acknowledged.values()) == AT


def test_what_is_in_hand_when_a_receiver_closes_comes_again(ctx: hf.Context) -> None:
    src = source(ctx)
    with hf.Context(session_id=SESSION) as other:
        rcv = other.receiver("quotes")
        until("registered", lambda: rcv.controllers)
        send(src, COUNT)
        numbers_until(rcv, AT)
        rcv.close()
        told = Told()
        other.receiver("quotes", on_event=told)
        assert told.wait(events.RegistrationComplete).sequence_number == AT


def test_what_was_retained_in_hand_is_not_consumed(ctx: hf.Context) -> None:
    src = source(ctx)
    rcv = ctx.receiver("quotes")
    until("registered", lambda: rcv.controllers)
    send(src, COUNT)
    for message in rcv:
        if message.sequence_number == AT:
            break
    kept = message.retain()
    assert numbers_until(rcv, COUNT - 1) == list(range(AT + 1, COUNT))
    rcv.receive(0)
    rcv.acknowledge(0)
    assert list(rcv.stats().acknowledged.values()) == [AT - 1]
    kept.release()
    rcv.acknowledge(0)
    assert list(rcv.stats().acknowledged.values()) == [COUNT - 1]


def test_a_request_inside_a_loop_leaves_the_loops_own_message_alone(ctx: hf.Context) -> None:
    """It was not left: the body is still working with it."""
    src = source(ctx)
    rcv = ctx.receiver("quotes")
    until("registered", lambda: rcv.controllers)
    send(src, COUNT)
    for message in rcv:
        inner = rcv.receive(SHORT)
        assert inner is not None
        number = inner.sequence_number
        inner.release()
        numbers_until(rcv, number + 1)
        assert not message.released
        assert bytes(message) == b"%d" % message.sequence_number
        if message.sequence_number >= COUNT - 3:
            break
        rcv.acknowledge(0)
        assert list(rcv.stats().acknowledged.values()) == [message.sequence_number - 1]
    rcv.receive(0)
    rcv.acknowledge(0)
    assert list(rcv.stats().acknowledged.values()) == [COUNT - 1]


@pytest.mark.parametrize("leave", [by_break, by_an_exception, by_dropping])
def test_a_loop_that_goes_on_is_as_quick_as_before(
    ctx: hf.Context, monkeypatch: pytest.MonkeyPatch, leave: Callable[..., Any]
) -> None:
    """Nothing of the slow path, which is a call in Python for each message, is left behind."""
    src = source(ctx)
    rcv = ctx.receiver("quotes")
    until("registered", lambda: rcv.controllers)
    send(src, AT + 1)
    asyncio.run(leave(rcv))
    calls: list[str] = []

    def count(where: type, name: str) -> None:
        real = getattr(where, name)

        def counted(*arguments: Any) -> Any:
            calls.append(name)
            return real(*arguments)

        monkeypatch.setattr(where, name, counted)

    for where, name in ((hf.Receiver, "receive_slowly"), (Message, "consumed_by_call"), (AckWindow, "make_room")):
        count(where, name)
    send(src, 1000)
    assert numbers_until(rcv, AT + 1000)[-1] == AT + 1000
    assert len(calls) < 10, calls[:20]


# Dropped ----------------------------------------------------------------------------------------------------


def collected(rcv: hf.Receiver, use: Callable[[hf.Message], object]) -> list[str]:
    """What is warned of when a message is dropped after ``use``."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        message = rcv.receive(SHORT)
        assert message is not None
        use(message)
        del message
        gc.collect()
    return [str(each.message) for each in caught if each.category is ResourceWarning]


@pytest.mark.parametrize("use", [lambda message: None, lambda message: message.retain()], ids=["received", "retained"])
def test_a_message_that_is_dropped_unreleased_is_warned_of_and_not_consumed(
    ctx: hf.Context, use: Callable[[hf.Message], object]
) -> None:
    src = source(ctx)
    rcv = ctx.receiver("quotes")
    until("registered", lambda: rcv.controllers)
    send(src, 3)
    (warned,) = collected(rcv, use)
    assert "message 0 of topic 'quotes' was collected without release" in warned
    rcv.acknowledge(0)
    assert list(rcv.stats().acknowledged.values()) == [-1]


def test_a_message_that_was_released_is_not_warned_of(ctx: hf.Context) -> None:
    src = source(ctx)
    rcv = ctx.receiver("quotes")
    until("registered", lambda: rcv.controllers)
    send(src, 3)
    assert collected(rcv, lambda message: message.release()) == []
    assert collected(rcv, lambda message: rcv.close()) == []


def test_where_releasing_means_nothing_dropping_is_not_warned_of(ctx: hf.Context) -> None:
    src = source(ctx)
    rcv = ctx.receiver("quotes", options={"ume_explicit_ack_only": 1})
    until("registered", lambda: rcv.controllers)
    send(src, 1)
    assert collected(rcv, lambda message: message.send_explicit_ack()) == []
