"""Iterating, and what may happen beside it: other sources, an early end; callbacks and batches of several
sources."""

from __future__ import annotations

import contextlib
import itertools
import threading

import pytest
from support.receiving import SHORT, send, source, take, until

import holdfast as hf


def acknowledged(rcv: hf.Receiver) -> list[int]:
    """Of each source, as the timer would do it now."""
    rcv.acknowledge(0)
    return list(rcv.stats().acknowledged.values())


def test_a_source_that_appears_during_an_iteration_is_heard(ctx: hf.Context) -> None:
    first = source(ctx)
    rcv = ctx.receiver("quotes")
    until("registered", lambda: rcv.stats().sources == 1)
    seen: list[bytes] = []

    def iterate() -> None:
        with contextlib.suppress(hf.ClosedError):
            seen.extend(bytes(message) for message in rcv)

    reader = threading.Thread(target=iterate)
    reader.start()
    first.send(b"of the first")
    until("the ring is being read", lambda: seen)
    second = source(ctx)
    second.send(b"of the second")
    try:
        until("both are heard", lambda: seen == [b"of the first", b"of the second"])
    finally:
        rcv.close()
        reader.join()


def test_callbacks_take_sources_in_turn(ctx: hf.Context) -> None:
    sources = [source(ctx) for _ in range(2)]
    seen: list[str] = []
    with hf.Context(options={"operational_mode": "sequential"}) as far:
        rcv = far.receiver("quotes", on_message=lambda message: seen.append(message.source))
        until("registered", lambda: rcv.stats().sources == 2, far)
        for src in sources:
            send(src, 100)
        until("all came", lambda: len(seen) == 200, far)
    assert all(one != other for one, other in itertools.pairwise(seen))


def test_batches_take_sources_in_turn(ctx: hf.Context) -> None:
    for _ in range(2):
        source(ctx, 20)
    rcv = ctx.receiver("quotes")
    until("registered", lambda: rcv.stats().sources == 2)
    seen = []
    for _ in range(4):
        batch = rcv.receive_batch(5, SHORT)
        assert batch is not None
        seen.append(batch.source)
        batch.release()
    assert seen[0] != seen[1]
    assert seen[:2] == seen[2:]


def test_a_closed_receiver_gives_nothing_and_its_messages_are_released(ctx: hf.Context) -> None:
    source(ctx, 3)
    rcv = ctx.receiver("quotes")
    assert take(rcv) == [0]
    held = rcv.receive(SHORT)
    assert held is not None
    assert not held.released
    rcv.close()
    assert held.released
    for receive in (
        lambda: rcv.receive(0),
        lambda: rcv.receive(SHORT),
        lambda: rcv.receive_batch(),
        lambda: next(iter(rcv)),
    ):
        with pytest.raises(hf.ClosedError):
            receive()
