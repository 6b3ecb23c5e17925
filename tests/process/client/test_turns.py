"""A process that is stopped in a step that one at a time may do: others say for whom they wait, and go on
when it does."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
from support.command_line import run
from support.recorded_events import Events
from support.workers import Worker, stand_still, until

import holdfast as hf
from holdfast.engine.channel.channel import ChannelWriter
from holdfast.engine.memory import turn
from holdfast.engine.memory.domain import Domain
from holdfast.engine.tools.doctor_turns import standing_still

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from process.conftest import ThreadStore

SHORT = 90.0
TOPIC = "quotes"
SOURCE: dict[str, Any] = {
    "ume_store_name": ["a:0:0"], "ring_size": 1 << 17, "fragment_size": 4096, "ume_registration_interval": 300
}  # fmt: skip
RECEIVER = {"ume_registration_interval": 300}


@pytest.fixture
def stopped(tmp_path: Path, own_domain: str) -> Iterator[Callable[[str], Worker]]:
    """A receiver that a failpoint in the middle of a claim stops there. SIGSTOP takes a moment, in which the
    claim may end: then it is another one's turn to try."""
    made: list[Worker] = []
    domain = Domain()

    def start(failpoint: str) -> Worker:
        for _ in range(40):
            made.append(Worker("receiver", tmp_path, domain=own_domain, topic=TOPIC, rows=str(tmp_path / "rows")))
            worker = made[-1].start(f"{failpoint}=stop@1")
            assert worker.process is not None
            pid = worker.process.pid
            until("it is stopped", partial(stands, pid))
            stand_still(pid)
            if (
                len([found for found in standing_still(domain) if found[0] == pid]) == 2
            ):  # on the board, and in the domain
                return worker
            worker.discard()
        raise AssertionError("no claimer was stopped in its turn")

    yield start
    for worker in made:
        worker.discard()
    domain.close()


def waits_for(fd: int) -> int:
    """Whom somebody waits for who wants a turn that is another one's. Raises AssertionError where that is for
    ever."""
    now = itertools.count(step=turn.PATIENCE_NS // 10)
    with (
        mock.patch("holdfast.engine.memory.turn.time.monotonic_ns", side_effect=now),
        mock.patch("holdfast.engine.memory.turn.time.sleep", side_effect=[None] * 30),
    ):
        try:
            turn.take_turn(fd, "here")
        except hf.TurnHeldError as error:
            return error.pid
        except StopIteration:
            raise AssertionError("it waits for ever") from None
    raise AssertionError("it has the turn")


def test_a_wait_for_a_turn_without_an_end_is_caught(tmp_path: Path) -> None:
    """Planted: nobody finds who holds it."""
    fd = os.open(tmp_path / "turn", os.O_RDWR | os.O_CREAT, 0o600)
    take = "import fcntl, sys; file = open(sys.argv[1], 'r+'); fcntl.lockf(file, fcntl.LOCK_EX); print(flush=True); input()"
    command = [sys.executable, "-c", take, str(tmp_path / "turn")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        assert waits_for(fd) == holder.pid
        with mock.patch.object(turn, "holder_of", return_value=None), pytest.raises(AssertionError, match="for ever"):
            waits_for(fd)
        holder.kill()
    os.close(fd)


def stands(pid: int) -> bool:
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] == "T"


def findings() -> list[dict[str, Any]]:
    found = [each for each in json.loads(run("doctor", "--json")[1]) if each["check"] == "turn"]
    assert all(isinstance(each, dict) for each in found)
    return found


def registered(source: hf.Source) -> bool:
    try:
        source.wait_registered(0)
    except (hf.TurnHeldError, hf.RegistrationTimeout, hf.RegistrationError):
        return False
    return True


def errors_of(events: Events, pid: int) -> list[Any]:
    return [event for event in events.of("RegistrationError") if event.pid == pid]


def test_a_claimer_stopped_in_its_turn_is_named_and_waited_for(
    run_store: Callable[..., ThreadStore], stopped: Callable[[str], Worker]
) -> None:
    run_store("a")
    told, refused = Events(), Events()
    with hf.Context() as ctx:
        first = ctx.source(TOPIC, options=SOURCE)
        first.wait_registered(SHORT)
        worker = stopped("board.turn")
        assert worker.process is not None
        pid = worker.process.pid
        receiver = ctx.receiver(TOPIC, options=RECEIVER, on_event=told)
        second = ctx.source("trades", options=SOURCE, on_event=refused)
        until(lambda: f"the receiver is told, not {told}", lambda: errors_of(told, pid))
        until("the source is told", lambda: errors_of(refused, pid))
        assert f"process {pid} stands still" in errors_of(told, pid)[0].text
        assert f"kill -CONT {pid}" in errors_of(told, pid)[0].text
        found = findings()
        assert found
        assert all(f"process {pid} stands still" in each["found"] for each in found)
        assert not any(each["ok"] for each in found)
        with pytest.raises(hf.TurnHeldError) as raised:  # in the foreground, too
            ChannelWriter("blocks")
        assert raised.value.pid == pid
        assert raised.value.retriable
        assert first.send(bytes(64)) == 0
        worker.send(signal.SIGCONT)
        told.wait("RegistrationComplete")
        until("the source is registered", lambda: registered(second))
        assert receiver.receive(SHORT) is not None
        worker.wait_ready()
        assert not findings()
