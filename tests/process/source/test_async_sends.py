"""A task waits for room and for stability, and its thread does not: send_async and stable, with a store that
is stopped. On asyncio's own loop and on uvloop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from support.stalled_store import OPTIONS, SHORT, Events, Scene

import holdfast as hf
from holdfast.engine.events import Wakeup
from holdfast.engine.native.event_loop import MOST
from holdfast.engine.source import awaiting

if TYPE_CHECKING:
    from collections.abc import Callable

AT_ONCE = 0.001


@pytest.fixture
def never_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that is not woken waits for ever: no look after a while hides that."""
    monkeypatch.setattr(awaiting, "LOOK_S", SHORT)


async def waits(source: hf.Source) -> None:
    """Until a task waits for it."""
    while not source._session.awaiting.somebody:
        await asyncio.sleep(0)


@pytest.mark.usefixtures("never_looks")
def test_a_task_that_finds_no_room_waits_and_the_loop_goes_on(scene: Scene, run: Any) -> None:
    source = scene.source(ume_flight_size=1)
    scene.stand_still()

    async def main() -> None:
        assert await source.send_async(b"first") == 0
        task = asyncio.ensure_future(source.send_async(b"second"))
        await waits(source)
        for _ in range(100):
            await asyncio.sleep(0)
        assert not task.done()
        scene.go_on()
        assert await task == 1
        await source.stable()
        assert source.stable_sequence_number == 1

    run(main())
    assert source.stats().blocked_ns > 0
    assert scene.events.of(Wakeup) == []  # nobody was refused


@pytest.mark.usefixtures("never_looks")
def test_a_task_waits_for_stability(scene: Scene, run: Any) -> None:
    source = scene.source(ume_flight_size=100)
    scene.stand_still()

    async def main() -> None:
        numbers = [source.send(b"x") for _ in range(5)]
        tasks = [asyncio.ensure_future(source.stable(number)) for number in [*numbers, None]]
        await waits(source)
        for _ in range(100):
            await asyncio.sleep(0)
        assert not any(task.done() for task in tasks)
        scene.go_on()
        await asyncio.gather(*tasks)

    run(main())


def test_a_cancelled_send_has_published_nothing(scene: Scene, run: Any) -> None:
    source = scene.source(ume_flight_size=1)
    scene.stand_still()

    async def main() -> None:
        await source.send_async(b"first")
        task = asyncio.ensure_future(source.send_async(b"second"))
        await waits(source)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not source._session.awaiting.somebody
        assert source.next_sequence_number == 1
        scene.go_on()
        assert await source.send_async(b"third") == 1

    run(main())


def test_the_time_ends(scene: Scene, run: Any) -> None:
    source = scene.source(ume_flight_size=1)
    scene.stand_still()

    async def main() -> None:
        await source.send_async(b"first")
        for timeout in (0, AT_ONCE):
            with pytest.raises(hf.WouldBlockError):
                await source.send_async(b"second", timeout=timeout)
            with pytest.raises(hf.StabilityTimeout):
                await source.stable(0, timeout)
        with pytest.raises(hf.UsageError, match="was not sent yet"):
            await source.stable(1)
        with pytest.raises(hf.UsageError):
            await source.stable(0, timeout=-1)
        with pytest.raises(TypeError, match="encode"):
            await source.send_async("text")

    run(main())
    scene.go_on()


@pytest.mark.usefixtures("never_looks")
@pytest.mark.parametrize("what", ["close", "deregister", "fence"])
def test_the_end_of_a_source_ends_its_waits(scene: Scene, run: Any, what: str) -> None:
    source = scene.source(ume_flight_size=1)
    scene.stand_still()
    ends: dict[str, tuple[Callable[[], object], type[Exception]]] = {
        "close": (source.close, hf.ClosedError),
        "deregister": (source.deregister, hf.NotRegisteredError),
        "fence": (lambda: fence(scene.context, source), hf.FencedError),
    }
    end, error = ends[what]

    async def main() -> None:
        await source.send_async(b"first")
        tasks = [asyncio.ensure_future(source.send_async(b"second")), asyncio.ensure_future(source.stable(0))]
        while len(source._session.awaiting._tasks) < 2:
            await asyncio.sleep(0)
        await asyncio.to_thread(end)
        for task in tasks:
            with pytest.raises(error):
                await task

    run(main())
    scene.go_on()


def fence(context: hf.Context, source: hf.Source) -> None:
    """As where its process has lost its lock."""
    with context.turning():
        context.fence = hf.FencedError("lost")
        source._session.fenced(context.fence)
    context.wake()


def test_a_task_that_finds_room_each_time_gives_the_loop_its_turns(scene: Scene, run: Any) -> None:
    source = scene.source(ume_flight_size=100_000)

    async def main() -> None:
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.ensure_future(others())
        for _ in range(4 * MOST):
            await source.send_async(b"x", timeout=SHORT)
        assert turns >= 4
        task.cancel()

    run(main())


def test_nobody_listens_when_nobody_waits(scene: Scene, run: Any) -> None:
    """The board's flag is what makes stores ring: a source without a listener has it down."""
    with hf.Context() as context:
        source = context.source("quiet", options={**OPTIONS, "ume_flight_size": 1})
        source.wait_registered(SHORT)
        session = source._session

        async def main() -> None:
            await source.send_async(b"first")
            await source.stable(timeout=SHORT)
            assert not session.awaiting.somebody
            assert session.prepare_sleep() == 2**62

        run(main())


def test_a_task_of_a_sequential_context_does_its_work(scene: Scene, run: Any) -> None:
    with hf.Context(options={"operational_mode": "sequential"}) as context:
        source = context.source("polled", options={**OPTIONS, "ume_flight_size": 1}, on_event=Events())

        async def main() -> None:
            while not source._session.may_send:
                context.poll(0)
                await asyncio.sleep(0)
            for number in range(5):
                assert await source.send_async(b"x", timeout=SHORT) == number
            await source.stable(timeout=SHORT)

        run(main())


def test_a_smart_source_has_claims_only(scene: Scene, run: Any) -> None:
    source = scene.context.smart_source("smart", options={"ume_store_name": ["a:0:0"]})
    with pytest.raises(hf.UsageError, match="send_async"):
        run(source.send_async(b"x"))
