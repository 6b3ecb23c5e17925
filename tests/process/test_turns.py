"""A process that is stopped in a step that one at a time may do: others say for whom they wait, and go on when it does."""

from __future__ import annotations

import json
import signal
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from process.command import run
from process.events import Events
from process.spawn import Worker, stand_still, until

import holdfast as hf
from holdfast.engine.channel import ChannelWriter
from holdfast.engine.doctor_turns import standing_still
from holdfast.engine.domain import Domain

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
    """A receiver that a failpoint in the middle of a claim stops there. SIGSTOP takes a moment, in which the claim may end: then
    it is another one's turn to try."""
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
