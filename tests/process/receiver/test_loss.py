"""Loss at a persistent receiver (docs/semantics.md F.4), through the public names. Where each number is
looked for: test_feed.py."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest
from support.handmade_feed import Log
from support.receiving import SESSION, SHORT, Told, source, take, until, until_no_ring

import holdfast as hf
from holdfast.engine.events import receiver as events

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from process.conftest import ThreadStore


def holed(path: Path, run_store: Callable[..., ThreadStore], lost: tuple[int, int]) -> None:
    """A closed source 0..29 at store a, whose log says that ``lost`` will never be had."""
    store = run_store("a", "disk")
    with hf.Context() as ctx:
        source(ctx, 30).close()
        until_no_ring(ctx.domain)
    store.stop()
    (where,) = (path / "store-a" / "logs").iterdir()
    uuid = bytes.fromhex(where.name)
    shutil.rmtree(where)
    log = Log(where, uuid)
    where.chmod(0o700)
    log.begin(1, 0)
    first, last = lost
    if first:
        log.plain(0, first - 1)
    log.lost(first, last)
    log.plain(last + 1, 29)
    log.close()
    run_store("a", "disk")


def losses(told: Told) -> list[tuple[str, int]]:
    kinds = (events.UnrecoverableLoss, events.UnrecoverableLossBurst)
    return [(type(event).__name__, event.sequence_number) for event in told if isinstance(event, kinds)]


@pytest.mark.parametrize(
    ("burst", "expected"),
    [
        ({}, [("UnrecoverableLoss", number) for number in range(10, 15)]),
        ({"delivery_control_maximum_burst_loss": 5}, [("UnrecoverableLoss", number) for number in range(10, 15)]),
        ({"delivery_control_maximum_burst_loss": 4}, [("UnrecoverableLossBurst", 14)]),
    ],
    ids=["one per number", "a gap of the limit", "a longer gap is a burst: its high end"],
)
def test_a_gap_is_told_and_delivery_continues_behind_it(
    tmp_path: Path, run_store: Callable[..., ThreadStore], burst: dict[str, Any], expected: list[tuple[str, int]]
) -> None:
    holed(tmp_path, run_store, (10, 14))
    told = Told()
    with hf.Context(session_id=SESSION) as ctx:
        rcv = ctx.receiver("quotes", options=burst, on_event=told)
        assert take(rcv, 25) == [*range(10), *range(15, 30)]
        until("losses were told", lambda: len(losses(told)) >= len(expected))
        assert losses(told) == expected
        until("lost numbers hold no ack back", lambda: list(rcv.stats().acknowledged.values()) == [29])


def test_leading_loss_is_told(tmp_path: Path, run_store: Callable[..., ThreadStore]) -> None:
    holed(tmp_path, run_store, (0, 4))
    told = Told()
    with hf.Context() as ctx:
        choose = {"ume_recovery_sequence_number_info_function": lambda info: setattr(info, "low_sequence_number", 0)}
        rcv = ctx.receiver("quotes", options=choose, on_event=told)
        assert take(rcv, 25) == list(range(5, 30))
        until("losses were told", lambda: len(losses(told)) >= 5)
        assert losses(told) == [("UnrecoverableLoss", number) for number in range(5)]


def test_loss_is_told_between_the_messages_of_the_callback_form(
    tmp_path: Path, run_store: Callable[..., ThreadStore]
) -> None:
    holed(tmp_path, run_store, (10, 11))
    order: list[object] = []
    with hf.Context() as ctx:
        ctx.receiver(
            "quotes", on_message=lambda message: order.append(message.sequence_number),
            on_event=lambda event: order.append(f"lost {event.sequence_number}")
            if isinstance(event, events.UnrecoverableLoss) else None,
        )  # fmt: skip
        until("everything came", lambda: 29 in order)
    assert order == [*range(10), "lost 10", "lost 11", *range(12, 30)]


def test_an_iteration_that_is_interrupted_by_a_loss_acknowledges_nothing_too_early(own_domain: str) -> None:
    """The message of the iteration is still held while a receive() inside it steps over what the ring has
    overwritten."""
    with hf.Context() as ctx:
        src = ctx.source("quotes", options={"ring_size": 1 << 16})
        src.wait_registered(SHORT)
        rcv = ctx.receiver("quotes")
        until("registered", lambda: rcv.controllers)
        src.send(b"first")
        src.send(b"held")
        for message in rcv:
            if message.sequence_number == 0:
                continue
            for _ in range(500):
                src.send(b"x" * 1000)
            inner = rcv.receive(SHORT)
            assert inner is not None
            assert inner.sequence_number > 2
            inner.release()
            rcv.acknowledge(0)
            assert list(rcv.stats().acknowledged.values()) == [0]
            break
        rcv.acknowledge(0)
        assert list(rcv.stats().acknowledged.values()) == [0], "the loop was left: its message is not consumed"
