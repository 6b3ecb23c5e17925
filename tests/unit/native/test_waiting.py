"""Timeouts: seconds, a number from 0 on, or None. Anything else is refused by every call that waits, with or
without need."""

from __future__ import annotations

import asyncio
import math
import sys
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import holdfast as hf
from holdfast.channel import ShmChannel
from holdfast.engine.native.waiting import check_timeout, deadline_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SHORT = 90.0

WRONG: list[Any] = [
    -1,
    -0.001,
    math.nan,
    -math.inf,
    "5",
    "",
    b"5",
    [5],
    {},
    1j,
    np.float64("nan"),
    np.array([1.0, 2.0]),
]
RIGHT: list[Any] = [None, 0, 0.0, 1, 2.5, math.inf, 10**400, True, np.float32(1), np.int64(3), Fraction(1, 3)]


def refused(call: Callable[[], object], value: object) -> None:
    with pytest.raises(hf.UsageError) as error:
        call()
    text = str(error.value)
    assert "timeout" in text
    assert repr(value) in text
    assert "None" in text, "what to do about it"


@pytest.mark.parametrize("value", WRONG, ids=repr)
def test_what_is_no_time_is_named(value: Any) -> None:
    refused(lambda: check_timeout(value), value)
    refused(lambda: deadline_of(value), value)


@pytest.mark.parametrize("value", RIGHT, ids=lambda value: type(value).__name__)
def test_any_number_from_0_on_is_a_time(value: Any) -> None:
    check_timeout(value)
    assert value is None or deadline_of(value) is not None


@pytest.fixture
def ctx(domain: str) -> Iterator[hf.Context]:
    with hf.Context(domain) as made:
        yield made


CALLS: dict[str, Callable[[hf.Context, hf.Source, hf.Receiver, Any], object]] = {
    "send": lambda _, src, __, t: src.send(b"x", timeout=t),
    "send with client data": lambda _, src, __, t: src.send(b"x", client_data=1, timeout=t),
    "send of parts": lambda _, src, __, t: src.send([b"x"], timeout=t),
    "send_batch": lambda _, src, __, t: src.send_batch(np.zeros((1, 1), np.uint8), timeout=t),
    "claim": lambda _, src, __, t: src.claim(1, timeout=t),
    "wait_stable": lambda _, src, __, t: src.wait_stable(timeout=t),
    "wait_registered": lambda _, src, __, t: src.wait_registered(timeout=t),
    "receive": lambda _, __, rcv, t: rcv.receive(timeout=t),
    "receive_batch": lambda _, __, rcv, t: rcv.receive_batch(timeout=t),
    "receive_async": lambda _, __, rcv, t: asyncio.run(rcv.receive_async(timeout=t)),
    "source close": lambda _, src, __, t: src.close(timeout=t),
    "receiver close": lambda _, __, rcv, t: rcv.close(timeout=t),
    "context close": lambda ctx, _, __, t: ctx.close(timeout=t),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_call_that_need_not_wait_refuses_it_too_and_does_nothing(
    ctx: hf.Context, call: Callable[[hf.Context, hf.Source, hf.Receiver, Any], object]
) -> None:
    src = ctx.source("ticks", options={"ring_size": 1 << 16})
    src.wait_registered(SHORT)
    rcv = ctx.receiver("ticks")
    src.send(b"first")
    with rcv.receive(timeout=SHORT) as message:  # type: ignore[union-attr]
        assert bytes(message) == b"first"
    src.send(b"one")
    for value in (-1, math.nan, "5"):
        refused(lambda value=value: call(ctx, src, rcv, value), value)  # type: ignore[misc]
    assert src.next_sequence_number == 2
    with rcv.receive(timeout=SHORT) as message:  # type: ignore[union-attr]
        assert bytes(message) == b"one"


def test_poll_and_smart_sources_refuse_it(domain: str) -> None:
    with hf.Context(domain, options={"operational_mode": "sequential"}) as ctx:
        refused(lambda: ctx.poll(-1), -1)
        src = ctx.smart_source("ticks")
        src.wait_registered(SHORT)
        refused(lambda: src.claim(1, timeout=math.nan), math.nan)


def test_a_batch_that_uses_its_time_up_within_the_call_is_not_told_of_a_wrong_one(ctx: hf.Context) -> None:
    src = ctx.source("ticks", options={"ring_size": 1 << 16})
    src.wait_registered(SHORT)
    assert src.send_batch(np.zeros((20_000, 8), np.uint8), timeout=0) == (0, 19_999)


def test_channels_refuse_it(domain: str) -> None:
    pa = pytest.importorskip("pyarrow")
    batch = pa.record_batch({"a": [1]})
    with ShmChannel("c", domain) as channel:
        refused(lambda: channel.write(batch, timeout=-1), -1)
        channel.write(batch)
        refused(lambda: channel.finish(timeout="x"), "x")  # type: ignore[arg-type]
        with ShmChannel("c", domain) as other:
            refused(lambda: other.read(timeout=math.nan), math.nan)
            assert other.read(timeout=SHORT) is not None
            other.remove()


def test_store_processes_refuse_it(domain: str, tmp_path: Path) -> None:
    config = hf.StoreConfig("a", tmp_path / "a", domain=domain, type="memory")
    refused(lambda: hf.spawn_store(config, timeout=-1), -1)
    with hf.spawn_store(config) as store:
        refused(lambda: store.wait(timeout=math.nan), math.nan)
        refused(lambda: store.stop(timeout="x"), "x")  # type: ignore[arg-type]


def test_a_very_long_time_is_one(ctx: hf.Context) -> None:
    src = ctx.source("ticks", options={"ring_size": 1 << 16})
    src.wait_registered(math.inf)
    rcv = ctx.receiver("ticks")
    src.send(b"x", timeout=sys.float_info.max)
    message = rcv.receive(timeout=math.inf)
    assert message is not None
