"""hf.read: what its arguments may be, and what the batches are that it gives."""

from __future__ import annotations

import copy
import inspect
import subprocess
import sys
import textwrap
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pytest

import holdfast as hf
from holdfast.engine.memory.domain import Domain
from holdfast.reading import ReadBatch

NOON = datetime(2026, 1, 1, 12)
SHORT = 90.0
SENT = [b"one", b"", b"\x00\xff", b"y" * 2500]
"""Fragments are 1,000 bytes: the last one has three."""


@pytest.fixture
def made(domain: str) -> str:
    """A domain in which nobody ever was."""
    Domain(domain, join=False).close()
    return domain


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"topic": ""}, ("''", "255")),
        ({"topic": "x" * 256}, ("255",)),
        ({"topic": 7}, ("7", "string")),
        ({"start": NOON}, ("start=2026-01-01T12:00:00", "time zone", "UTC")),
        ({"end": NOON}, ("end=2026-01-01T12:00:00", "time zone", "UTC")),
        ({"start": -1}, ("start=-1", "0 to 2^63 - 1")),
        ({"end": 2**63}, ("end=9223372036854775808", "0 to 2^63 - 1")),
        ({"start": "earliest"}, ("'earliest'", "number", "datetime", "None")),
        ({"start": 1.5}, ("1.5", "number")),
        ({"end": True}, ("True", "number")),
        ({"start": 7, "end": 6}, ("start=7", "end=6", "exclusive")),
        ({"start": NOON.astimezone(UTC), "end": NOON.astimezone(UTC) - timedelta(seconds=1)}, ("is behind end=",)),
        ({"domain": "a/b"}, ("'a/b'", "64")),
    ],
)
def test_a_wrong_argument_is_named_at_once(made: str, arguments: dict[str, Any], words: tuple[str, ...]) -> None:
    with pytest.raises(hf.ConfigError) as error:
        hf.read(**{"topic": "quotes", "domain": made, **arguments})
    text = str(error.value)
    assert [word for word in words if word not in text] == [], text
    assert "\n" not in text


def test_a_domain_that_is_not_there_is_an_error_and_is_not_made(domain: str) -> None:
    with pytest.raises(hf.NoDomainError, match=f"no domain '{domain}'"):
        hf.read("quotes", domain=domain)
    with pytest.raises(hf.NoDomainError):
        hf.read("quotes", domain=domain)


def test_a_topic_that_nobody_has_sent_on_is_empty(made: str) -> None:
    assert list(hf.read("quotes", domain=made)) == []
    assert list(hf.read("quotes", 5, 5, made)) == []
    assert list(hf.read("quotes", np.int64(5), domain=made)) == []
    assert list(hf.read("quotes", NOON.replace(tzinfo=timezone(timedelta(hours=9))), domain=made)) == []


@pytest.fixture
def batch(domain: str) -> hf.Batch:
    """Of a source that streams, which is gone."""
    with hf.Context(domain) as ctx:
        src = ctx.source("ticks", options={"ring_size": 1 << 16, "fragment_size": 1000})
        src.wait_registered(SHORT)
        for data in SENT:
            src.send(data)
        (found,) = hf.read("ticks", domain=domain)
    return found


def test_a_batch_has_what_a_receivers_batch_has(batch: hf.Batch) -> None:
    assert isinstance(batch, ReadBatch)
    assert [bytes(batch.payload(i)) for i in range(len(batch))] == SENT
    assert bytes(batch.payload(-1)) == SENT[-1]
    assert batch.frames["sequence_number"].tolist() == [0, 1, 2, 5]
    assert batch.frames["first_sequence_number"].tolist() == [0, 1, 2, 3]
    assert batch.frames["fragments"].tolist() == [1, 1, 1, 3]
    assert batch.frames["length"].tolist() == [len(data) for data in SENT]
    assert batch.frames["flags"].tolist() == [0] * 4
    assert abs(batch.frames["timestamp_ns"][0] / 1e9 - datetime.now(UTC).timestamp()) < 3600
    assert (batch.memory.dtype, batch.memory.size) == (np.uint8, sum(map(len, SENT)))
    assert not batch.memory.flags.writeable
    assert not batch.frames.flags.writeable
    assert batch.to_arrow().to_pylist() == SENT
    assert repr(batch) == "<Batch ticks 0..5, 4 messages read>"
    with pytest.raises(IndexError):
        batch.payload(4)


def test_the_example_runs(made: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("HOLDFAST_DOMAIN", made)
    text = inspect.getdoc(hf.read) or ""
    lines = text.partition("::\n")[2].partition("Args:")[0]
    with hf.Context() as ctx:
        src = ctx.source("quotes")
        src.wait_registered(SHORT)
        src.send(b"one")
        exec(compile(textwrap.dedent(lines), "example", "exec"), {})
    assert capsys.readouterr().out.endswith(" [0] b'one'\n")


def test_to_release_a_batch_changes_nothing(batch: hf.Batch) -> None:
    with batch:
        batch.release()
    assert bytes(batch.payload(0)) == b"one"
    assert batch.to_arrow().to_pylist() == SENT


def test_there_is_nothing_to_acknowledge(batch: hf.Batch) -> None:
    for call in (batch.extract_ack, batch.send_explicit_ack):
        with pytest.raises(hf.UsageError, match="not registered"):
            call()
    with pytest.raises(hf.UsageError, match="pickled"):
        copy.copy(batch)  # by __reduce_ex__, as pickling does


def test_nothing_of_it_is_imported_before_it_is_asked_for() -> None:
    code = (
        "import sys, holdfast; assert 'numpy' not in sys.modules and 'holdfast.reading' not in sys.modules;"
        "holdfast.read; assert 'holdfast.reading' in sys.modules; assert callable(holdfast.read)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=SHORT)
