"""A receiver while its source begins anew at a lower number (docs/design.md 13): acks of void messages never
count for the new ones.

A store never lets a living receiver see that; lost stores do. The rings are made by hand, without stores.

And beside claimants of its source that die, or are refused, before their BEGIN is durable: they have not
been.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from support.handmade_feed import Ring, Stage
from support.receiving import SESSION, SHORT, Told, send, source, take, until

import holdfast as hf
from holdfast.engine.events import receiver as events
from holdfast.engine.memory.domain import SHM_DIR
from holdfast.engine.native.core import lib

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def stage(tmp_path: Path, domain: str) -> Iterator[Stage]:
    made = Stage(tmp_path, domain)
    yield made
    made.close()


def own_line(rcv: hf.Receiver) -> Any:
    """The receiver's own line on its only source's board, as it is at each look."""
    (controller,) = rcv.controllers
    assert controller.board is not None
    return lib.hf_board_line_at(controller.board.handle, controller.line)


def _begun_twice(stage: Stage) -> list[bytes]:
    """A log in which 2 begins at 5, and 3 at 7, with two messages each; returns those of 2."""
    log = stage.log("a")
    log.begin(1, 0)
    log.plain(0, 4)
    log.begin(2, 5)
    log.append(5, [b"new5"], [b"new6"])
    log.begin(3, 7)
    return [b"new5", b"new6"]


def test_a_receiver_that_missed_two_begins_goes_back_to_the_first(stage: Stage) -> None:
    """What the first one has made void is sent again under it, below where the second one begins."""
    told = Told()
    with hf.Context() as ctx:
        first = Ring(stage, 1, 0)
        rcv = ctx.receiver("t", on_event=told)
        first.send(10)
        assert take(rcv, 10) == list(range(10))
        line = own_line(rcv)
        until("the acks are on the board", lambda: (line.ack, line.ack_stream) == (10, 1))
        between = _begun_twice(stage)
        (controller,) = rcv.controllers
        assert controller.feed is not None
        controller.feed.use_logs([str(stage.logs[-1].path)])
        first.end()
        Ring(stage, 3, 7).send(2)
        found = [rcv.receive(SHORT) for _ in range(4)]
        assert [bytes(each.data).rstrip() for each in found[:2] if each is not None] == between
        numbers = [each.sequence_number for each in found if each is not None]
        assert numbers == [5, 6, 7, 8]
        for each in found[1:]:
            assert each is not None
            each.release()
        rcv.acknowledge(0)
        until("the acks went back", lambda: line.ack_stream == 3)
        assert line.ack == 5, "5 is held"
        assert found[0] is not None
        found[0].release()
        until("all is acknowledged", lambda: line.ack == 9)


def test_two_begins_that_only_a_log_tells_void_what_the_first_one_voids(stage: Stage) -> None:
    behind = stage.log("behind")
    behind.begin(1, 0)
    behind.append(0, *([b"old%d" % number] for number in range(10)))
    feed = stage.open(0, paths=[str(behind.path)])
    assert stage.drain()[:10] == [b"old%d" % number for number in range(10)]
    between = _begun_twice(stage)
    stage.logs[-1].append(7, [b"new7"])
    feed.use_logs([str(log.path) for log in stage.logs])
    assert stage.drain()[:5] == [("begun", 3, 7), "began", *between, b"new7"]
    assert stage.voids[-1] == 5


def test_an_acknowledgement_goes_back_to_the_lowest_begin_since_the_last_one(stage: Stage) -> None:
    """The receiver sees both, one after the other, and acknowledges nothing in between."""
    with hf.Context(options={"ume_ack_batching_interval": 60_000}) as ctx:
        first = Ring(stage, 1, 0)
        rcv = ctx.receiver("t")
        first.send(10)
        assert take(rcv, 10) == list(range(10))
        rcv.acknowledge(0)
        line = own_line(rcv)
        assert (line.ack, line.ack_stream) == (10, 1)
        first.end()
        second = Ring(stage, 2, 5)
        second.send(2)
        held = rcv.receive(SHORT)
        assert held is not None
        assert held.sequence_number == 5
        second.end()
        Ring(stage, 3, 7).send(2)
        assert take(rcv, 3) == [6, 7, 8]
        rcv.acknowledge(0)
        assert (line.ack, line.ack_stream) == (5, 3), "5 is held"
        held.release()
        rcv.acknowledge(0)
        assert line.ack == 9


def test_a_receiver_goes_back_and_so_does_its_acknowledgement(stage: Stage) -> None:
    told = Told()
    with hf.Context() as ctx:
        first = Ring(stage, 1, 0)
        rcv = ctx.receiver("t", on_event=told)
        first.send(10)
        assert take(rcv, 9) == list(range(9))
        held = rcv.receive(SHORT)
        assert held is not None
        line = own_line(rcv)
        until("the acks are on the board", lambda: (line.ack, line.ack_stream) == (9, 1))
        first.end()
        assert rcv.receive(timeout=0.05) is None
        second = Ring(stage, 2, 7)
        second.send(2)
        again = rcv.receive(SHORT)
        assert again is not None
        assert again.sequence_number == 7
        until("the acks went back", lambda: (line.ack, line.ack_stream) == (7, 2))
        held.release()  # number 9 of the old incarnation: void
        rcv.acknowledge(0)
        assert line.ack == 7
        again.release()
        assert take(rcv) == [8]
        until("the acks go on", lambda: line.ack == 9)
        told.wait(events.BeginOfStream, 2)
        story = [name for name in told.names() if name.endswith("OfStream")]
        assert story == ["BeginOfStream", "EndOfStream", "BeginOfStream"]
        assert not told.of(events.UnrecoverableLoss)


def test_a_batch_of_the_old_incarnation_acknowledges_nothing_of_the_new_one(stage: Stage) -> None:
    with hf.Context() as ctx:
        first = Ring(stage, 1, 0)
        first.send(10)
        rcv = ctx.receiver("t")
        batch = rcv.receive_batch(timeout=SHORT)
        assert batch is not None
        assert len(batch) == 10
        second = Ring(stage, 2, 4)
        second.send(3)
        message = rcv.receive(SHORT)
        assert message is not None
        assert message.sequence_number == 4
        batch.release()
        rcv.acknowledge(0)
        assert max(rcv.stats().acknowledged.values()) <= 3
        message.release()
        assert take(rcv, 2) == [5, 6]
        until("all is acknowledged", lambda: list(rcv.stats().acknowledged.values()) == [6])


@pytest.mark.parametrize("form", ["message", "batch"])
def test_at_once_what_is_void_acknowledges_nothing_of_the_new_one(stage: Stage, form: str) -> None:
    with hf.Context() as ctx:
        first = Ring(stage, 1, 0)
        first.send(10)
        rcv = ctx.receiver("t", options={"ume_use_ack_batching": 0})
        receive = rcv.receive_batch if form == "batch" else rcv.receive
        held = [receive(timeout=SHORT) for _ in range(1 if form == "batch" else 10)]
        second = Ring(stage, 2, 4)
        second.send(3)
        message = rcv.receive(SHORT)
        assert message is not None
        assert message.sequence_number == 4
        for each in held:
            assert each is not None
            each.release()
        assert list(rcv.stats().acknowledged.values()) == [3]
        message.release()
        assert list(rcv.stats().acknowledged.values()) == [4]


@pytest.mark.parametrize("form", ["receive", "extracted", "iterated", "batch"])
def test_an_explicit_ack_of_the_old_incarnation_ends_where_the_new_one_begins(stage: Stage, form: str) -> None:
    with hf.Context() as ctx:
        first = Ring(stage, 1, 0)
        first.send(10)
        rcv = ctx.receiver("t", options={"ume_explicit_ack_only": 1})
        if form == "batch":
            batch = rcv.receive_batch(timeout=SHORT)
            assert batch is not None
            ack = batch.extract_ack()
        else:
            assert take(rcv, 9) == list(range(9))
            messages = iter(rcv)  # one that is not left: else the next request consumes what is in hand
            held = next(messages) if form == "iterated" else rcv.receive(SHORT)
            assert held is not None
            if form == "extracted":
                ack = held.extract_ack()
        second = Ring(stage, 2, 4)
        second.send(6)
        assert take(rcv) == [4]
        if form in {"receive", "iterated"}:
            assert held is not None
            ack = held.extract_ack()
        ack.send()
        assert list(rcv.stats().acknowledged.values()) == [3]
        message = next(iter(rcv)) if form == "iterated" else rcv.receive(SHORT)
        assert message is not None
        message.extract_ack().send(8)
        assert list(rcv.stats().acknowledged.values()) == [8]


# Claimants that never began ---------------------------------------------------------------------------------

DYING = """
import os, signal
import holdfast as hf
from holdfast.engine.control import wire
from holdfast.engine.source.session import SourceSession

def stop_at_begun(self, store, answer, answered=SourceSession._answered):
    if isinstance(answer, wire.Begun):
        os.kill(os.getpid(), signal.SIGSTOP)
    answered(self, store, answer)

if BEGINS:
    SourceSession._answered = stop_at_begun
else:
    SourceSession._announce = lambda self, _: (print(self.machine.incarnation, flush=True), os.kill(os.getpid(), signal.SIGKILL))
options = {"ume_store_name": ["a:0:0"], "ring_size": 65536 * 4}
hf.Context(session_id=SESSION).source("quotes", options=options).wait_registered(90)
"""


def claimant(*, begins: bool) -> subprocess.Popen[bytes]:
    """One that dies when it has made its ring; or stands still when BEGIN is durable, and receivers are not
    told yet."""
    code = DYING.replace("SESSION", str(SESSION)).replace("BEGINS", str(begins))
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)


def test_a_claimant_that_dies_before_begin_has_not_been(run_store: Callable[..., object]) -> None:
    run_store("a")
    told = Told()
    with hf.Context(session_id=SESSION) as ctx, hf.Context() as other:
        rcv = other.receiver("quotes", on_event=told)
        with source(ctx, 3):
            assert take(rcv, 3) == [0, 1, 2]
        until("the end was told", lambda: not rcv.receive(timeout=0.02) and told.of(events.EndOfStream))
        with claimant(begins=False) as process:
            assert process.communicate(timeout=SHORT)[0] == b"2\n", "its ring was there"
            assert process.returncode == -signal.SIGKILL
        late = other.receiver("quotes")
        assert take(late, 3) == [0, 1, 2]
        assert rcv.receive(timeout=0.2) is None
        assert not told.of(events.RegistrationChange)
        with source(ctx, 1):
            assert take(rcv) == [3]
            assert take(late) == [3]
            assert told.wait(events.RegistrationChange).text.endswith("began at 3")
        until("the end was told", lambda: not rcv.receive(timeout=0.02) and len(told.of(events.EndOfStream)) == 2)
        assert len(told.of(events.RegistrationChange)) == 1
        story = [name for name in told.names() if name.endswith("OfStream")]
        assert story == ["BeginOfStream", "EndOfStream"] * 2


def test_a_claimant_that_begins_and_dies_before_it_says_so_has_been(
    stage: Stage, run_store: Callable[..., object]
) -> None:
    run_store("a")
    told = Told()
    with hf.Context(session_id=SESSION) as ctx, hf.Context() as other:
        rcv = other.receiver("quotes", on_event=told)
        with source(ctx, 3):
            assert take(rcv, 3) == [0, 1, 2]
        (controller,) = rcv.controllers
        with claimant(begins=True) as process:
            try:
                until("its BEGIN is read", lambda: not rcv.receive(timeout=0.02) and controller.watch.incarnation == 2)
                told.wait(events.EndOfStream)
                assert len(told.of(events.EndOfStream)) == 1
            finally:
                process.kill()
        until("the end was told", lambda: not rcv.receive(timeout=0.02) and len(told.of(events.EndOfStream)) == 2)
        with source(ctx, 1):
            assert take(rcv) == [3]
        until("the end was told", lambda: not rcv.receive(timeout=0.02) and len(told.of(events.EndOfStream)) == 3)
        story = [name for name in told.names() if name.endswith("OfStream")]
        assert story == ["BeginOfStream", "EndOfStream"] * 3


@pytest.mark.parametrize("stores", [True, False], ids=["persistent", "streaming"])
def test_a_claimant_that_has_not_begun_is_in_nobodys_way(
    stage: Stage, run_store: Callable[..., object], stores: bool
) -> None:
    """As one that slept on its grants, while the stores let another one begin: its ring is the newest."""
    run_store("a")
    told = Told()
    with hf.Context(session_id=SESSION) as ctx, hf.Context() as other:
        src = source(ctx, ume_store_name=["a:0:0"] if stores else [])
        rcv = other.receiver("quotes", on_event=told)
        until("it is registered", lambda: told.of(events.BeginOfStream))
        send(src, 3)
        assert take(rcv, 3) == [0, 1, 2]
        (controller,) = rcv.controllers
        stage.uuid = controller.uuid
        claimed = Ring(stage, 2, 1, began=False)
        send(src, 3)
        assert take(rcv, 3) == [3, 4, 5]
        late = other.receiver("quotes", options={"use_late_join": 0})
        until("the other one is registered", lambda: late.controllers)
        for number in range(6, 20):
            send(src, 1)
            assert take(rcv) == [number]
            assert take(late) == [number]
        assert controller.feed is not None
        assert controller.feed.ring is not None, "in place, as before"
        assert [name for name in told.names() if name not in {"RegistrationSuccess", "RegistrationComplete"}] == [
            "BeginOfStream"
        ]
        assert len(told.of(events.RegistrationComplete)) == 1
        src.close()
        until("the end was told", lambda: not rcv.receive(timeout=0.02) and told.of(events.EndOfStream))
        claimed.end()


def test_a_ring_whose_source_died_making_it_is_in_nobodys_way_later(
    stage: Stage, run_store: Callable[..., object]
) -> None:
    """A receiver took it for the newest, stayed in the ring that it read, and waited there for ever: found by
    torture."""
    run_store("a")

    def rings() -> list[int]:
        return [item.incarnation for item in stage.domain.objects() if item.kind == "stream"]

    with hf.Context(session_id=SESSION) as ctx, hf.Context() as other:
        rcv = other.receiver("quotes")
        with source(ctx, 1):
            assert take(rcv) == [0]
        with source(ctx, 1):
            assert take(rcv) == [1]
            (controller,) = rcv.controllers
            assert controller.live is not None
            assert controller.live.ring is not None
            until("the second ring is the only one", lambda: rings() == [2])
            (SHM_DIR / stage.domain.stream_name(controller.uuid, 1)).touch(mode=0o600)
        with source(ctx, 1):  # it comes and goes, and nobody receives
            pass
        until("the unfinished ring is the only one", lambda: rings() == [1])
        assert take(rcv) == [2]
        until("no ring is watched", lambda: not controller.watch.ring)
