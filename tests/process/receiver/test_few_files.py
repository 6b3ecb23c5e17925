"""How many files and mappings a receiver, a process of its own, has open that reads many sources which are
over: those of the one that it reads, whatever it keeps, acknowledges, or comes back to."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from support.shelved_logs import shelve_at_once, shelved
from support.three_stores import SHORT

import holdfast as hf
from holdfast.engine.native.core import lib

if TYPE_CHECKING:
    from collections.abc import Callable

    from process.conftest import ThreadStore

SOURCES = 40
EACH = 3
FILES = 2 * int(lib.HF_LOG_FILES)
"""Of the one that is read, and of the next one."""
MAPPED = 3
"""Of each source whose messages are not acknowledged: its board, and what Python needs to keep them."""

READER = """
import os, sys
import holdfast as hf

session, keeps = int(sys.argv[1]), sys.argv[2] == "keeps"

def target(link):
    try:
        return os.readlink(link)
    except FileNotFoundError:  # another thread has closed it since it was listed
        return ""

def logs():
    return sum("/logs/" in target(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd"))

def mappings():
    with open("/proc/self/maps") as maps:
        return sum(1 for _ in maps)

with hf.Context(session_id=session, options={"ume_ack_batching_interval": 5}) as ctx, ctx.receiver("quotes") as rcv:
    kept, most, got, first = [], 0, [], 0
    while len(got) < int(sys.argv[3]):
        message = rcv.receive(timeout=60)
        assert message is not None, got
        got.append(bytes(message).decode())
        if keeps:
            kept.append(message)
        else:
            message.release()
        first = first or mappings()
        most = max(most, logs())
    while rcv.receive(timeout=0) is not None:
        pass
    rest = logs()
    print(most, rest, mappings() - first, flush=True)
    print("go on", flush=True)
    sys.stdin.readline()
    for message in kept:
        message.release()
    message = rcv.receive(timeout=60)
    print(bytes(message).decode(), flush=True)
"""


@pytest.mark.parametrize("session", [0, 7])
@pytest.mark.parametrize("keeps", ["keeps", "releases"])
def test_a_receiver_has_the_files_of_one_source_open(
    run_store: Callable[..., ThreadStore], monkeypatch: pytest.MonkeyPatch, session: int, keeps: str
) -> None:
    shelve_at_once(monkeypatch)
    store = run_store("a", "disk")
    uuids = []
    options = {"ume_store_name": ["a"], "ring_size": 1 << 16}
    with hf.Context() as ctx:
        for number in range(SOURCES):
            with ctx.source("quotes", options={**options, "ume_session_id": 1000 + number}) as src:
                src.wait_registered(SHORT)
                for part in range(EACH):
                    src.send(b"%d.%d" % (number, part), timeout=SHORT)
                src.wait_stable(timeout=SHORT)
                uuids.append(src.uuid)
        shelved(store, *uuids)
        command = [sys.executable, "-c", READER, str(session), keeps, str(SOURCES * EACH)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as reader:
            assert reader.stdout is not None
            most, rest, mapped = map(int, reader.stdout.readline().split())
            assert reader.stdout.readline() == "go on\n"
            with ctx.source("quotes", options={**options, "ume_session_id": 1000}) as src:  # the oldest comes back
                src.wait_registered(SHORT)
                src.send(b"back", timeout=SHORT)
                src.wait_stable(timeout=SHORT)
                out, _ = reader.communicate("\n", timeout=SHORT)
    assert out == "back\n"
    assert most <= FILES, "while it reads"
    assert rest <= FILES, "when it has read all"
    assert mapped <= MAPPED * SOURCES + 100
