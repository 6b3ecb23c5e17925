"""A process that has lost the lock that proves that it lives: others may take it for dead, so it fences
itself (docs/design.md 12)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.command_line import SHORT
from support.workers import Traces, Worker, until

import holdfast as hf
from holdfast.engine.memory.domain import Domain
from holdfast.engine.native.core import lib

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from process.conftest import ThreadStore

PROGRAM = Path(__file__).resolve().parents[2] / "support" / "reads_its_domain.py"
STORE = PROGRAM.with_name("store_reads_its_directory.py")
SESSION = 0x2A
OPTIONS: dict[str, Any] = {"ume_store_name": ["a:0:0"], "ring_size": 1 << 17, "fragment_size": 4096}


class Talker:
    """One run of reads_its_domain.py."""

    def __init__(self, *, planted: bool = False) -> None:
        asked = json.dumps({"session": SESSION, "options": OPTIONS, "planted": planted})
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAM), asked], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def said(self, word: str) -> Any:
        """What stands behind this word, which its next line begins with."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.split()[:1] == [word], line
        rest = line.removeprefix(word).strip()
        return json.loads(rest) if rest else None

    def go_on(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()


@pytest.fixture
def talker() -> Iterator[Callable[..., Talker]]:
    started: list[Talker] = []

    def start(*, planted: bool = False) -> Talker:
        started.append(Talker(planted=planted))
        return started[-1]

    yield start
    for each in started:
        each.process.kill()
        each.process.communicate()


def test_a_process_that_reads_its_domain_directory_fences_itself(
    run_store: Callable[..., ThreadStore], talker: Callable[..., Talker], own_domain: str
) -> None:
    run_store("a")
    victim = talker()
    victim.said("ready")
    victim.go_on()
    victim.said("read")
    traces = Traces(own_domain)
    with hf.Context(session_id=SESSION) as ctx:  # the proof of its death is there: this one is granted beside it
        heir = ctx.source("quotes", options=OPTIONS)
        heir.wait_registered(SHORT)
        victim.go_on()
        for name in ("source", "mate", "claim", "receiver", "context"):
            found = fenced(victim, name)
            assert str(ctx.domain.path) in found["text"]
            assert "a process of its own" in found["text"]
        assert sum("lost its lock" in text for text in victim.said("events")) == 3
        victim.said("released")
        acks = [int(line.ack) for line in lines(traces, heir, lib.HF_ROLE_RECEIVER)]
        assert acks == [0], "no acknowledgement came from a process that others take for dead"
        victim.go_on()
        victim.said("closed")
        heir.send(b"z")
        heir.wait_stable(timeout=SHORT)
    traces.close()


def fenced(victim: Talker, name: str) -> dict[str, Any]:
    """The error that one of its objects met."""
    found: dict[str, Any] | None = victim.said(name)
    assert found is not None, f"the {name} went on"
    assert (found["type"], found["code"], found["retriable"]) == ("FencedError", "HF_FENCED", False)
    return found


def test_a_process_that_does_not_look_at_its_lock_is_caught(
    run_store: Callable[..., ThreadStore], talker: Callable[..., Talker]
) -> None:
    run_store("a")
    victim = talker(planted=True)
    victim.said("ready")
    victim.go_on()
    victim.said("read")
    victim.go_on()
    with pytest.raises(AssertionError, match="the source went on"):
        fenced(victim, "source")


def lines(traces: Traces, source: hf.Source, role: int) -> list[Any]:
    uuid = source._session.machine.uuid
    return [line for line in traces._lines(uuid) if line.role == role]


def test_what_it_had_published_is_kept_and_numbers_go_on(
    run_store: Callable[..., ThreadStore], talker: Callable[..., Talker]
) -> None:
    run_store("a")
    victim = talker()
    victim.said("ready")
    victim.go_on()
    victim.said("read")
    victim.go_on()
    victim.said("source")
    with hf.Context(session_id=SESSION) as ctx:
        heir = ctx.source("quotes", options=OPTIONS)
        heir.wait_registered(SHORT)
        assert heir.next_sequence_number >= 3


@pytest.mark.parametrize("what", ["domain", "store"])
def test_a_store_that_lost_a_lock_stops_and_ends_with_an_error(what: str, tmp_path: Path, own_domain: str) -> None:
    domain = Domain()
    where = tmp_path / "store-a"
    read = {"domain": domain.path, "store": where}[what]
    command = [sys.executable, str(STORE), str(read), "a", str(where)]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    again = Worker("store", tmp_path, directory=str(where), kind="memory", domain=own_domain)
    try:
        with hf.Context(session_id=SESSION) as ctx:
            source = ctx.source("quotes", options=OPTIONS)
            source.wait_registered(SHORT)
            source.send(b"before")
            source.wait_stable(timeout=SHORT)
            out, err = process.communicate("\n", timeout=SHORT)
            assert out.split()[-2:] == ["ended", "1"], "read is said, too, if it has not ended by then"
            assert f"HF_FENCED: this process has lost its lock in {read}" in err
            until("the source misses its store", lambda: not send(source))
            again.start().wait_ready()  # nothing of the directory is held, and nothing is damaged
            source.wait_registered(SHORT)
            source.send(b"after")
            source.wait_stable(timeout=SHORT)
    finally:
        again.discard()
        process.kill()
        process.communicate()
        domain.close()


def send(source: hf.Source) -> bool:
    try:
        source.send(b"meanwhile", timeout=0)
    except hf.NotRegisteredError:
        return False
    except hf.WouldBlockError:
        return True
    return True
