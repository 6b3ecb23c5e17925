"""The pool that messages come from (csrc/python/pool.c): what a program keeps is not used again, what it lets
go is, and no more is made than that takes."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import pytest
from support.receiving import one, send

if TYPE_CHECKING:
    import holdfast as hf


@pytest.fixture
def rcv(rcv: hf.Receiver, src: hf.Source) -> hf.Receiver:
    """Its lane is open."""
    send(src, 2)
    one(rcv).release()
    one(rcv).release()
    assert rcv.has_lane()
    return rcv


@pytest.mark.parametrize("kept", [0, 1, 2, 3, 10, 100])
def test_a_program_that_keeps_the_latest_messages_makes_no_more_of_them(
    src: hf.Source, rcv: hf.Receiver, kept: int
) -> None:
    """Released ones: what it keeps is not used again, and what it lets go is."""
    latest: deque[hf.Message] = deque(maxlen=kept)

    def some() -> None:
        send(src, 200)
        for _ in range(200):
            message = one(rcv)
            assert message not in latest
            latest.append(message)
            message.release()

    for _ in range(5):
        some()
    before = rcv.stats().pool_allocated
    some()
    assert rcv.stats().pool_allocated == before
    assert before <= 2 * kept + 4


def test_the_memory_that_was_used_last_is_used_next(src: hf.Source, rcv: hf.Receiver) -> None:
    """It is in the cache."""
    send(src, 100)
    held = [one(rcv) for _ in range(50)]
    for message in held:
        message.release()
    del held, message
    used = set()
    for _ in range(50):
        message = one(rcv)
        used.add(id(message))
        message.release()
    assert len(used) == 2


def test_it_keeps_no_more_than_its_size(src: hf.Source, rcv: hf.Receiver) -> None:
    rcv.pool.size = 5
    send(src, 20)
    held = [one(rcv) for _ in range(20)]
    for message in held:
        message.release()
    assert len(rcv.pool) == 5
    assert rcv.pool.bytes == 5 * 8192
