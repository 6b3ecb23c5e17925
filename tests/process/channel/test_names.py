"""A channel whose names are removed from /dev/shm: its ends and `doctor` say so, and nobody waits for who
cannot come."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING
from unittest import mock

import pytest
from support.command_line import run
from support.receiving import until

import holdfast as hf
from holdfast.engine.channel.channel import ChannelReader, ChannelWriter
from holdfast.engine.memory.domain import SHM_DIR, Domain
from holdfast.engine.memory.mapping import Mapping

if TYPE_CHECKING:
    from collections.abc import Iterator

WAIT = 90.0
MISSING = "holdfast.engine.channel.names.missing"
READ = """
import logging
from holdfast.engine.channel.channel import ChannelReader
logging.basicConfig(format="%(message)s")
with ChannelReader("t") as reader:
    while (block := reader.read()) is not None:
        print(block.index, flush=True)
        block.release()
"""


class Reading:
    """A reader in a process of its own: what it says, line by line."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", READ], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


@pytest.fixture
def reading() -> Iterator[list[Reading]]:
    started = [Reading()]
    yield started
    for each in started:
        each.kill()


def write(writer: ChannelWriter) -> None:
    writer.claim(8, WAIT)[:] = b"12345678"
    writer.commit()


def said_by(writer: ChannelWriter, caplog: pytest.LogCaptureFixture) -> bool:
    """Its calls have led to a warning."""
    write(writer)
    return "was removed while its writer lives" in caplog.text


def unnamed() -> Domain:
    domain = Domain()
    for item in domain.objects():
        if item.kind in {"channel", "board"}:
            os.unlink(SHM_DIR / item.name)
    return domain


def doctor() -> list[str]:
    _, out, _ = run("doctor", "--json")
    return sorted(each["found"].partition(", and")[0] for each in json.loads(out) if each["check"] == "nameless")


def test_both_ends_and_doctor_say_that_the_names_are_gone(
    reading: list[Reading], caplog: pytest.LogCaptureFixture
) -> None:
    with ChannelWriter("t", capacity=1 << 16) as writer:
        write(writer)
        reader = reading[0]
        assert reader.line() == "0"
        domain = unnamed()
        assert "was removed while its reader lives" in reader.line(), "while it waits"
        until("the writer has seen it", lambda: said_by(writer, caplog))
        assert reader.line() == "1", "what is mapped goes on"
        pid = f"process {reader.process.pid} lives, the reader of channel 't'"
        assert doctor() == sorted([f"process {os.getpid()} lives, the writer of channel 't'", pid])
        reader.kill()
        reading.append(Reading())
        said = reading[1].line()
        assert f"process {os.getpid()} is its writer, in shared memory that was removed" in said
        with pytest.raises(hf.RemovedError, match="its other end is gone"):
            write(writer)
    assert doctor() == []
    domain.close()


def judged() -> list[str]:
    """What is said of a writer whose names are gone, at its next look, whenever that is."""
    with ChannelWriter("t", capacity=1 << 16) as writer:
        unnamed().close()
        writer._names.look(2**62)
        return doctor()


def test_an_end_that_does_not_look_is_caught() -> None:
    """Planted: what removes names makes no difference to who has the object."""
    said = [f"process {os.getpid()} lives, the writer of channel 't'"]
    assert judged() == said
    with mock.patch.object(Mapping, "is_named", return_value=True), mock.patch(MISSING, return_value=False):
        assert judged() != said


def test_a_reader_whose_writer_left_behind_removed_names_does_not_wait() -> None:
    with ChannelReader("t") as reader:
        writer = ChannelWriter("t", capacity=1 << 16)
        write(writer)
        write(writer)
        first = reader.read(WAIT)
        assert first is not None
        domain = unnamed()
        writer.close()
        second = reader.read(WAIT)
        assert second is not None, "what it wrote is read all the same"
        with pytest.raises(hf.RemovedError):
            reader.read(WAIT)
        domain.close()
