"""The demo's processes, each started by exec: ``python -m holdfast.cli.demo_worker PARENT ROLE ...``.

Nothing in here knows that it will be killed. A source and a receiver do what any program does that wants to
survive it: use a session ID, go on where the library says, and consume a message only when its work is done.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import signal
import struct
import sys
import time
from pathlib import Path
from typing import NoReturn

from ..context import Context
from ..engine.errors import NotRegisteredError, RegIdInUseError
from .demo_actor import ENDS
from .demo_data import Records

__all__ = ["RECORD", "SOURCE_SESSION", "STORES", "TOPIC"]

TOPIC = "flights"
STORES = ("a", "b", "c")
SOURCE_SESSION = 0x2013
OPTIONS = {
    "ume_store_name": [f"{name}:0:0" for name in STORES],
    "ume_store_group": ["0:3"],
    "ume_flight_size": 5000,
    "ring_size": 4 << 20,  # small: a store that is away for a second or two finds what it missed only at the others
    "retransmit_retention_size_limit": 3 << 20,
}
RECORD = struct.Struct("<Qqq8s32s")
"""What a receiver writes per message: sequence number, published, processed (ns), flags, SHA-256. 64 bytes: a
page holds whole ones, so that a kill in the middle of a write leaves no part of one."""
RETRANSMIT = b"R"
PACE = 16
"""Messages sent between two looks at the clock."""
PR_SET_PDEATHSIG = 1


def _die_with(parent: int) -> None:
    """This process ends with the demo, whatever kills that."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDS)


def send(records: Records, rate: float) -> None:
    """Sends each record once, in order, when it has come in. Its sequence number is its index: so the library
    knows where to go on."""
    with Context(session_id=SOURCE_SESSION) as context:
        source = context.source(TOPIC, options=OPTIONS)
        _registered(source.wait_registered)
        index = first = source.next_sequence_number
        started = time.monotonic()
        while index < len(records):
            records.wait_for(index)
            if rate and index % PACE == 0:
                time.sleep(max(0.0, started + (index - first) / rate - time.monotonic()))
            try:
                number = source.send(records[index])
            except NotRegisteredError:  # too many stores are dead; nothing was published
                _registered(source.wait_registered)
                continue
            if number != index:
                raise AssertionError(f"record {index} was sent as number {number}")
            index += 1
        source.wait_stable()


def _registered(wait: object) -> None:
    """Waits for the stores. Whoever held the session may have died a moment ago."""
    assert callable(wait)
    while True:
        try:
            wait(60)
        except RegIdInUseError:
            time.sleep(0.05)
        else:
            return


def receive(records: int, session: int, path: Path) -> None:
    """Processes messages up to the last record: digest it, write that down, and only then let go of it."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with Context(session_id=session) as context:
        receiver = context.receiver(TOPIC)
        for message in receiver:
            digest = hashlib.sha256(message.data).digest()
            number = message.sequence_number
            flags = RETRANSMIT if message.is_retransmit else b""
            os.write(file, RECORD.pack(number, message.timestamp_ns, time.time_ns(), flags, digest))
            if number == records - 1:
                message.release()
                return


def _become(argv: list[str]) -> NoReturn:
    """This process is a run of the command from now on. Who it dies with stays as it is."""
    os.execv(sys.executable, [sys.executable, "-m", "holdfast", *argv])


def work(argv: list[str]) -> int:
    """Runs one role."""
    parent, role, *rest = argv
    _die_with(int(parent))
    match role:
        case "store":
            _become(["store", "run", "--name", rest[0], "--dir", rest[1]])
        case "source":
            send(Records(Path(rest[0])), float(rest[1]))
        case "command":
            _become(rest)
        case "receiver":
            receive(int(rest[0]), int(rest[1]), Path(rest[2]))
    return 0


if __name__ == "__main__":
    sys.exit(work(sys.argv[1:]))
