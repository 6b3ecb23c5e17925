"""Bits that flip on disk: every one of a store's state, and some of its logs, which are mended from another
store's.

Every bit of a log's segment and head flips in tests/c (torture_flips.c, test_log_damage.c): it is told, and
costs one record. Here the record comes back from the store that still has it.
"""

from __future__ import annotations

import random
import secrets
import shutil
from typing import TYPE_CHECKING

from support.handmade_feed import Log

from holdfast.engine.errors import CorruptionError
from holdfast.engine.log import state_file
from holdfast.engine.log.check import check_log
from holdfast.engine.log.info_file import log_reader
from holdfast.engine.log.repair import LogRepair
from holdfast.engine.log.state_file import ReceiverState, SourceState, State, StateFile
from holdfast.engine.native.core import ffi, lib
from torture_lab.lab import Lab, Outcome

if TYPE_CHECKING:
    from pathlib import Path

MESSAGES = 400
PAYLOAD = 96
DATA = 8192
"""Of a segment file: where its first frame lies (base/layout.h)."""


def run(lab: Lab) -> Outcome:
    """State files with all of their bits; logs with as many as the figures say."""
    outcome = Outcome()
    flip_state(lab, outcome)
    flip_logs(lab, outcome, lab.figure(20, 500, 20_000))
    blind = Outcome()
    checksum = state_file._checksum
    state_file._checksum = lambda *_: 0  # planted: a sum that sums up nothing
    try:
        flip_state(lab, blind, tell=False)
    finally:
        state_file._checksum = checksum
    outcome.plant(caught=bool(blind.findings))
    return outcome


# State ------------------------------------------------------------------------------------------------------


def some_state(life: int) -> State:
    """A store's, of three sources with two receivers each."""
    receivers = [ReceiverState(bytes([i] * 16), 10 + i, 100 + i, 1000 * life + i) for i in range(2)]
    sources = [SourceState(bytes([i] * 16), f"topic {i}", 1 + i, 0, life, 7, receivers=receivers) for i in range(3)]
    return State("store", bytes(16), life, 20, sources, lives=[1, life])


def flip_state(lab: Lab, outcome: Outcome, *, tell: bool = True) -> None:
    """Whatever bit flips, in whichever slot: what is read is a whole state, and the newest unless its own
    slot is hit."""
    where = lab.root / "state"
    where.mkdir()
    file = StateFile(where)
    states = [some_state(1), some_state(2)]
    for state in states:
        file.save(state)
    for slot in range(2):
        path = where / f"state.{slot}"
        data = path.read_bytes()
        own = states[1] if slot == 0 else states[0]  # generation 1 lies in state.1, generation 2 in state.0
        other = states[0] if slot == 0 else states[1]
        for bit in range(0, 8 * len(data), lab.figure(17, 1, 1)):
            path.write_bytes(flipped(data, bit))
            try:
                found = StateFile(where).load()
            except CorruptionError:
                found = None
            outcome.count("bits of state")
            if found != other and not (found == states[1] == own):
                what = f"bit {bit % 8} of byte {bit // 8} of state.{slot}: life {found.opened if found else 'none'} is read"
                if tell:
                    outcome.found(what)
                else:
                    outcome.findings.append(what)
                    break
        path.write_bytes(data)
    shutil.rmtree(where)


def flipped(data: bytes, bit: int) -> bytes:
    """The same with one bit changed."""
    return data[: bit // 8] + bytes([data[bit // 8] ^ 1 << bit % 8]) + data[bit // 8 + 1 :]


# Logs -------------------------------------------------------------------------------------------------------


def flip_logs(lab: Lab, outcome: Outcome, times: int) -> None:
    """A bit of what one of two stores has: found, and mended from the other one; no message is lost or
    changed."""
    pick = random.Random(lab.seed)
    uuid = secrets.token_bytes(16)
    where = lab.root / "logs"
    paths = [where / name for name in ("a", "b", "kept")]
    where.mkdir()
    for path in paths[:2]:
        log = Log(path, uuid, first_segment_bytes=1 << 16, max_segment_bytes=1 << 16)
        log.begin(1, 0)
        for number in range(MESSAGES):
            log.append(number, [bytes([number % 256]) * PAYLOAD])
        log.close()
    shutil.copytree(paths[0], paths[2])
    wanted = content(paths[1])
    segments = sorted(path.name for path in paths[0].glob("seg-*"))
    for _ in range(times):
        hurt = paths[0] / pick.choice(segments)
        data = hurt.read_bytes()
        bit = pick.randrange(8 * DATA, 8 * len(data.rstrip(b"\0")))
        hurt.write_bytes(flipped(data, bit))
        outcome.count("bits of logs")
        what = f"bit {bit % 8} of byte {bit // 8} of {hurt.name}"
        if not check_log(paths[0]).findings:
            outcome.found(f"{what}: nobody notices")
        with LogRepair(paths[0], [paths[1]]) as repair:
            repair.run()
            outcome.count("mended", sum(last - first for first, last in repair.filled))
        if content(paths[0]) != wanted:
            outcome.found(f"{what}: the log does not hold what it held")
        shutil.rmtree(paths[0])
        shutil.copytree(paths[2], paths[0])


def content(path: Path) -> list[bytes]:
    """What a reader gets, block by block, without positions and sums."""
    found: list[bytes] = []
    number, behind = 0, ffi.new("uint64_t *")
    block = ffi.new("uint8_t[]", 1 << 20)
    with log_reader(path) as log:
        assert log is not None
        while number < MESSAGES:
            size = lib.hf_logr_read(log, number, block, 1 << 20, behind)
            if size <= 0:
                return [*found, b"%d" % size]
            lib.hf_frames_plain(block, size)
            found.append(bytes(ffi.buffer(block, size)))
            number = int(behind[0])
    return [b"".join(found)]
