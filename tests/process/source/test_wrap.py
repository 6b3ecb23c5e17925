"""Sequence numbers cross 2^32 without a blink (docs/semantics.md C, "Wrap"; docs/design.md 16): fragments,
acks, recovery, restarts."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import pytest
from support.receiving import SESSION, SHORT, Told, options, take, until

import holdfast as hf
from holdfast.engine.events import receiver as events
from holdfast.engine.log.state_file import SourceState, State, StateFile

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from process.conftest import ThreadStore

WRAP = 2**32
START = WRAP - 5
SOURCE_SESSION = 9


@pytest.fixture(params=["memory", "disk"])
def store(request: pytest.FixtureRequest, tmp_path: Path, run_store: Callable[..., ThreadStore]) -> ThreadStore:
    """A store that remembers a source which got as far as START - 1, and whose messages it no longer has."""
    directory = tmp_path / "store-a"
    directory.mkdir(mode=0o700)
    uuid = secrets.token_bytes(16)
    known = SourceState(uuid, "quotes", 5, SOURCE_SESSION, 1, START, [(1, START)], ["a"])
    StateFile(directory).save(State("a", secrets.token_bytes(16), 1, 100, [known]))
    return run_store("a", request.param)


def begin(ctx: hf.Context) -> hf.Source:
    src = ctx.source("quotes", options=options(ume_session_id=SOURCE_SESSION, fragment_size=100))
    src.wait_registered(SHORT)
    return src


def test_numbers_fragments_and_acks_cross_the_wrap(store: object) -> None:
    with hf.Context() as ctx, hf.Context(session_id=SESSION) as other:
        src = begin(ctx)
        rcv = other.receiver("quotes")
        assert [src.send(b"x"), src.send(b"x")] == [START, START + 1]
        assert src.send(b"f" * 550) == WRAP + 2, "six fragments, three on each side"
        assert src.send(b"x") == WRAP + 3
        src.wait_stable(timeout=SHORT)
        assert src.stable_sequence_number == WRAP + 3
        assert take(rcv, 2) == [START, START + 1]
        message = rcv.receive(SHORT)
        assert message is not None
        assert (message.first_sequence_number, message.sequence_number) == (WRAP - 3, WRAP + 2)
        assert bytes(message) == b"f" * 550
        message.release()
        assert take(rcv) == [WRAP + 3]
        until("all is acknowledged", lambda: list(rcv.stats().acknowledged.values()) == [WRAP + 3])


@pytest.mark.parametrize("consumed", [1, 4, 5, 6, 9], ids=lambda count: f"at wrap{count - 5:+d}")
def test_a_receiver_restarts_around_the_wrap(store: object, consumed: int) -> None:
    with hf.Context() as ctx, hf.Context(session_id=SESSION) as other:
        src = begin(ctx)
        for _ in range(10):
            src.send(b"x")
        src.wait_stable(timeout=SHORT)
        with other.receiver("quotes") as first:
            assert take(first, consumed)[-1] == START + consumed - 1
        told = Told()
        with other.receiver("quotes", on_event=told) as again:
            assert told.wait(events.RegistrationComplete).sequence_number == START + consumed
            assert take(again, 10 - consumed) == list(range(START + consumed, START + 10))


def test_source_and_receiver_come_again_beyond_the_wrap(store: ThreadStore, run_store: Callable[..., object]) -> None:
    kind = store.store.config.type
    with hf.Context() as ctx:
        src = begin(ctx)
        for _ in range(8):
            src.send(b"x")
        src.wait_stable(timeout=SHORT)
    store.stop()
    run_store("a", kind)
    with hf.Context() as ctx:
        late = ctx.receiver("quotes")
        assert take(late, 8) == list(range(START, WRAP + 3)), "recovered from the log alone"
        src = begin(ctx)
        assert src.next_sequence_number == WRAP + 3
        src.send(b"x")
        assert take(late) == [WRAP + 3]


def test_batches_and_the_start_limit_across_the_wrap(store: object) -> None:
    with hf.Context() as ctx:
        src = begin(ctx)
        for _ in range(10):
            src.send(b"x")
        src.wait_stable(timeout=SHORT)
        told = Told()
        rcv = ctx.receiver("quotes", options={"retransmit_request_maximum": 6}, on_event=told)
        assert told.wait(events.RegistrationComplete).sequence_number == WRAP - 2
        seen: list[int] = []
        while len(seen) < 7:
            batch = rcv.receive_batch(timeout=SHORT)
            assert batch is not None
            seen += batch.frames["sequence_number"].tolist()
            batch.release()
        assert seen == list(range(WRAP - 2, WRAP + 5))
        until("all is acknowledged", lambda: list(rcv.stats().acknowledged.values()) == [WRAP + 4])
