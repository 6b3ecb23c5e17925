"""The roles of the C-level torture, each run in a process that was forked and will be killed: source, store,
receiver.

They are the engine's loops at their barest: C calls, the board, and nothing that talks over a socket. What
the engine says in messages they find in shared memory: a store takes up the newest stream and writes into
``words`` whose BEGIN it has made durable; a receiver asks the engine's own Feed. A role that sees something
impossible raises, and its exit code tells the parent. None of them judges content: that is the parent's
(oracle.py).
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
import time
import traceback
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from support.handmade_feed import payload
from support.oracle import ROW, Content, Finding

from holdfast.engine.errors import EvictedError
from holdfast.engine.log.columns import entries_array, new_entries
from holdfast.engine.log.reader import Logs
from holdfast.engine.memory.discovery import Discovery
from holdfast.engine.memory.domain import Domain, open_object
from holdfast.engine.memory.mapping import Bells, Mapping, UnpublishedError, attach_stream, own_board
from holdfast.engine.memory.message_slot import Slot
from holdfast.engine.native.core import CData, Gate, ffi, lib
from holdfast.engine.native.status import check
from holdfast.engine.receiver.feed import Feed
from holdfast.engine.rules.start_and_gap import Gap

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

SENT, BEGUN, LIMIT = range(3)
"""Words of the control page: number behind the last send that returned (source); incarnation whose BEGIN is
durable (store); number that the source must not reach (parent)."""
STORE_UUID = b"the store's uuid"
RECEIVER_UUID = b"the receiver's u"
FINDING_EXIT = 70
ACK_EVERY = 16
BATCH = 64
"""Messages that a receiver may have processed and not acknowledged: what a kill may redeliver."""
STAGING = 32 * 1024
WAIT_NS = 50_000_000


@dataclass
class World:
    """What the roles of one source share; plain values and inherited memory, nothing of C."""

    content: Content
    domain: str
    uuid: bytes
    log: Path
    disk: bool
    ring_bytes: int
    retain_bytes: int
    segment_bytes: int
    flight: int
    pin_timeout_ms: int
    rows: int
    """Descriptor of the pipe that takes what the receiver has processed."""
    words: NDArray[np.uint64]
    parent: int = field(default_factory=os.getpid)

    def orphaned(self) -> bool:
        """The torture itself is gone."""
        return os.getppid() != self.parent


def fork(role: Callable[..., None], failpoints: str, *args: Any) -> int:
    """Runs ``role(*args)`` in a child with these failpoints armed; returns its pid."""
    pid = os.fork()
    if pid:
        return pid
    code = FINDING_EXIT
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        lib.hf_failpoint_arm(failpoints.encode())
        role(*args)
        code = 0
    except BaseException:
        sys.stderr.write(f"{role.__name__} {args[1:]}:\n{traceback.format_exc()}")
    finally:
        os._exit(code)


class Joined:
    """A child's own view: domain, board, bells, streams."""

    def __init__(self, world: World) -> None:
        self.domain = Domain(world.domain)
        self.bells = Bells.of(self.domain)
        with self.domain.exclusive():
            self.board = own_board(self.domain, world.uuid)
        self.streams = Discovery(self.domain)
        lib.hf_wait_setup()

    def claim(self, uuid: bytes, role: int, level: int = 0) -> int:
        """Own line on the board; one of an earlier life is taken over."""
        who = ffi.new("struct hf_identity *")
        ffi.memmove(who.uuid, uuid, 16)
        who.role, who.level, who.bell, who.incarnation = role, level, self.bells.index, os.getpid()
        while (line := lib.hf_board_claim(self.board.handle, self.domain.fd, who, ffi.NULL)) == lib.HF_AGAIN:
            pass
        check(line, what="board line")
        lib.hf_line_range(lib.hf_board_line_at(self.board.handle, line), 0, 2**64 - 1)
        return int(line)

    def ack(self, line: int, number: int) -> None:
        """Moves the own line."""
        lib.hf_board_ack(self.board.handle, self.bells.handle, line, number, number)


def line_of(board: CData, domain_fd: int, uuid: bytes) -> CData | None:
    """A copy of a participant's ``struct hf_line_view``."""
    views = ffi.new("struct hf_line_view[]", lib.HF_BOARD_LINES)
    for i in range(lib.hf_board_read(board, domain_fd, 0, views, lib.HF_BOARD_LINES)):
        if bytes(ffi.buffer(views[i].line.uuid)) == uuid:
            out = ffi.new("struct hf_line_view *")
            ffi.memmove(out, views + i, ffi.sizeof("struct hf_line_view"))
            return out
    return None


# Source -----------------------------------------------------------------------------------------------------


def source(world: World, incarnation: int, start: int) -> None:
    """Sends from ``start`` on, in all forms, as fast as the store lets it."""
    me = Joined(world)
    handle = _create_stream(world, me, incarnation, start)
    while world.words[BEGUN] < incarnation and not world.orphaned():
        time.sleep(0.0002)
    lib.hf_source_sri(handle, ffi.new("struct hf_sri_store *"), 1, ffi.new("struct hf_sri_groups *"))
    sender = _Sender(world, me, handle, incarnation)
    while not world.orphaned():
        sender.step()


def _create_stream(world: World, me: Joined, incarnation: int, start: int) -> CData:
    config = ffi.new("struct hf_stream_config *")
    ffi.memmove(config.uuid, world.uuid, 16)
    config.incarnation, config.start_sqn, config.ring_bytes = incarnation, start, world.ring_bytes
    config.fragment_bytes, config.pin_timeout_ms = world.content.fragment, world.pin_timeout_ms
    config.start_position = (incarnation * 2**61 - 2**16) % 2**64  # in some lives positions cross 2^63, or wrap
    ffi.memmove(config.topic, b"torture", 7)
    out = ffi.new("struct hf_source **")
    fd = open_object(me.domain.stream_name(world.uuid, incarnation), create=True)
    check(lib.hf_source_create(fd, config, me.board.handle, me.bells.handle, out), what="stream")
    os.close(fd)
    lib.hf_source_limits(out[0], world.flight, 0, 0)
    made: CData = out[0]
    return made


class _Sender:
    def __init__(self, world: World, me: Joined, handle: CData, key: int) -> None:
        self.world, self.me, self.handle, self.key = world, me, handle, key
        self.random = random.Random(int(world.content.seed) * 1000 + key)
        self.line: CData | None = None

    def step(self) -> None:
        """One message, or one batch of equal ones; or a wait for room."""
        world, content = self.world, self.world.content
        number = int(lib.hf_source_next(self.handle))
        if number >= world.words[LIMIT]:
            time.sleep(0.0002)
            return
        rows = content.payloads(number, self.key, min(content.uniform(number), self.random.choice((1, 7, 64))))
        status = self._send(rows)
        if status < 0:
            self._wait_for_room(status)
        else:
            world.words[SENT] = lib.hf_source_next(self.handle)

    def _send(self, rows: NDArray[np.uint8]) -> int:
        count, width = rows.shape
        data = ffi.from_buffer("uint8_t[]", rows)
        if count > 1:
            return int(lib.hf_source_send_rows(self.handle, data, width, width, count))
        if width > self.world.content.fragment or self.random.random() < 0.7:
            return int(lib.hf_source_send(self.handle, data, width))
        status = ffi.new("int64_t *")
        view = lib.hf_source_claim(self.handle, width, status)
        if not view:
            return int(status[0])
        if self.random.random() < 0.1:
            ffi.buffer(view, width)[:] = bytes(width)
            check(lib.hf_source_abort(self.handle))
            return 0
        ffi.memmove(view, data, width)
        return int(lib.hf_source_commit(self.handle))

    def _wait_for_room(self, status: int) -> None:
        """Releases what the store holds; waits for the board when that is nothing new."""
        if status not in {lib.HF_FLIGHT_SIZE, lib.HF_RETENTION, lib.HF_PINNED}:
            check(status, what="send")
        if self._release() or status == lib.HF_PINNED:
            return
        bells, board = self.me.bells, self.me.board.handle
        glance, rung = lib.hf_board_glance(board), lib.hf_bell_read(bells.handle, bells.index)
        if not self._release():
            strategy = self.random.choice((lib.HF_WAIT_BUSY_SPIN, lib.HF_WAIT_BACKOFF, lib.HF_WAIT_BLOCK))
            lib.hf_board_wait(board, bells.handle, bells.index, glance, rung, strategy, WAIT_NS)

    def _release(self) -> bool:
        if self.line is None:
            view = line_of(self.me.board.handle, self.me.domain.fd, STORE_UUID)
            if view is None:
                return False
            self.line = lib.hf_board_line_at(self.me.board.handle, view.index)
        return bool(check(lib.hf_source_release(self.handle, self.line.ack)) > 0)


# Store ------------------------------------------------------------------------------------------------------


def store(world: World) -> None:
    """Opens the log (which repairs it), takes part, and drains whatever stream there is."""
    me = Joined(world)
    log = open_log(world)
    info = ffi.new("struct hf_log_info *")
    lib.hf_log_info(log, info)
    level = lib.HF_LEVEL_DISK if world.disk else lib.HF_LEVEL_MEMORY
    line = me.claim(STORE_UUID, lib.HF_ROLE_STORE, level)
    me.ack(line, int(info.next_sqn))
    item = ffi.new("struct hf_drain_item *")
    item.log, item.board, item.bells = log, me.board.handle, me.bells.handle
    item.line_index, item.level, item.status = line, level, lib.HF_OK
    staging, kick = ffi.new("uint8_t[]", STAGING), ffi.new("uint32_t *")
    stream: Mapping | None = None
    while not world.orphaned():
        check(lib.hf_log_prepare(log), what="spare")
        rings = [(each.incarnation, each.name) for each in me.domain.objects(world.uuid) if each.kind == "stream"]
        if rings and (stream is None or rings[-1][1] != stream.name):
            with contextlib.suppress(FileNotFoundError, UnpublishedError):
                stream = _take_up(world, me, item, info, *rings[-1])
        if stream is None:
            time.sleep(0.0005)
            continue
        items = ffi.new("struct hf_drain_item *[]", [item])
        if lib.hf_drain(items, 1, staging, STAGING, 4 * STAGING, kick, me.bells.handle, me.bells.index,
                        lib.HF_WAIT_BACKOFF, 5_000_000, 0):  # fmt: skip
            if item.status == lib.HF_LAPPED:
                raise Finding("the ring went over what the store had not yet called stable")
            check(item.status, what="drain")


def open_log(world: World) -> CData:
    """The log as the store opens it."""
    config = ffi.new("struct hf_log_config *")
    ffi.memmove(config.uuid, world.uuid, 16)
    config.first_segment_bytes = config.max_segment_bytes = world.segment_bytes
    config.retain_bytes = world.retain_bytes
    config.level = lib.HF_LEVEL_DISK if world.disk else lib.HF_LEVEL_MEMORY
    out = ffi.new("struct hf_log **")
    fd = os.open(world.log, os.O_RDONLY | os.O_DIRECTORY)
    check(lib.hf_log_open(fd, config, out), what=str(world.log))
    os.close(fd)
    opened: CData = out[0]
    return opened


def _take_up(world: World, me: Joined, item: CData, info: CData, incarnation: int, name: str) -> Mapping:
    """BEGIN, unless this incarnation has begun here before; then its stream, behind what the log has."""
    stream = attach_stream(name)
    lib.hf_log_info(item.log, info)
    if info.incarnation < incarnation:
        check(lib.hf_log_begin(item.log, incarnation, stream.stream.start_sqn), what="BEGIN")
        lib.hf_log_info(item.log, info)
    lib.hf_board_rebase(me.board.handle, item.line_index, incarnation, stream.stream.start_sqn)
    if item.reader:
        lib.hf_reader_close(item.reader)
    out = ffi.new("struct hf_reader **")
    check(lib.hf_reader_open(stream.handle, me.board.handle, me.bells.handle, item.line_index, out), what=name)
    item.reader = out[0]
    if lib.hf_reader_seek(item.reader, info.appended_sqn) == lib.HF_LAPPED:
        ring = f"ring {incarnation} began at {stream.stream.start_sqn}, next {stream.stream.next_sqn}"
        raise Finding(f"number {info.appended_sqn} was overwritten before the store had it ({ring})")
    world.words[BEGUN] = incarnation
    return stream


# Receiver ---------------------------------------------------------------------------------------------------


def receiver(world: World) -> None:
    """Reads from the ring or the log, reports what it processed, then acknowledges it."""
    me = Joined(world)
    line = me.claim(RECEIVER_UUID, lib.HF_ROLE_RECEIVER)
    start = int(lib.hf_board_line_at(me.board.handle, line).ack)
    logs = Logs([str(world.log)])
    logs.learn()
    begun = logs.begun
    feed = Feed(
        world.uuid, me.board, me.bells, line, me.streams, logs, start, 0, begun, _Told(), Gap(2**62), time.monotonic_ns
    )
    slot, entries = Slot(Gate()), new_entries(BATCH)
    singly = os.getpid() % 2 == 0
    told = 0
    while not world.orphaned():
        rows = _one(world, feed, slot) if singly else _some(world, feed, entries)
        if rows is not None:
            os.write(world.rows, rows.tobytes())
            told += len(rows)
        if told >= ACK_EVERY or (rows is None and told):
            told = 0
            me.ack(line, feed.next)
        if rows is not None:
            continue
        ring = feed.ring
        newest = max((incarnation for incarnation, _ in me.streams.streams(world.uuid)), default=0)
        feed.newer = ring is not None and newest != ring.incarnation  # also when its name is gone: then the log goes on
        if ring is not None and not feed.newer:
            lib.hf_reader_wait(ring.handle, lib.HF_WAIT_BACKOFF, 2_000_000)
        else:
            time.sleep(0.0005)


class _Told:
    """What a feed tells."""

    def lost(self, first: int, last: int) -> None:
        raise Finding(f"a receiver was told that {first}..{last} are lost")

    def resumed(self) -> None:
        return

    def ended(self) -> None:
        return

    def parted(self) -> None:
        return

    def rebased(self, incarnation: int, start: int, void: int) -> None:
        return


def _one(world: World, feed: Feed, slot: Slot) -> NDArray[Any] | None:
    if not feed.receive(slot):
        return None
    entry = slot.entry
    words = np.frombuffer(payload(slot), np.uint64, entry.length // 8)
    digest = world.content.digests(words, [0], [entry.length])[0]
    row = (entry.first_sequence_number, entry.sequence_number, words[0], entry.length, digest)
    return np.array([row], ROW)


def _some(world: World, feed: Feed, entries: CData) -> NDArray[Any] | None:
    start = feed.next
    view = feed.batch(entries, BATCH, 1 << 16)
    if view is None:
        return None
    rows = None
    with contextlib.suppress(EvictedError):  # by gather; release says the same
        rows = rows_of(world.content, entries_array(entries, view.count), view.memory, view.gather)
    if view.release():
        return rows
    feed.seek(start)  # the ring went over it while it was read: nothing of it counts
    return _some(world, feed, entries)


def rows_of(content: Content, entries: NDArray[Any], memory: Any, gather: Callable[[int], bytes]) -> NDArray[Any]:
    """What a batch shows: ``memory`` holds the payloads, ``gather`` puts a fragmented one together."""
    words = np.frombuffer(memory, np.uint64, len(memory) // 8)
    starts = entries["offset"] // 8
    rows = np.empty(len(entries), ROW)
    rows["first"], rows["last"] = entries["first_sequence_number"], entries["sequence_number"]
    rows["length"] = entries["length"]
    rows["key"] = words[starts]
    whole = entries["fragments"] == 1
    if whole.any():
        rows["digest"][whole] = content.digests(words, starts[whole], entries["length"][whole])
    for i in np.flatnonzero(~whole):
        data = np.frombuffer(gather(int(i)), np.uint64)
        rows["digest"][i] = content.digests(data, [0], [len(data) * 8])[0]
    return rows
