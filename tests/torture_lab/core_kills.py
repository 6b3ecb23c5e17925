"""The mass of the kills: roles at C level (forked_roles.py), forked from this process, which never held a
Context.

An episode is one source identity with its board and its log, and one process of each role. They are killed at
random moments and at failpoints, one, two or all at once, and started again. This process stands beside them
and judges by what lies in shared memory and on disk:

 - when a store is dead, its log holds everything that its board line called stable, and it never shrinks;
 - the log's numbers are consecutive, and every message is what its number and life say;
 - when a source is dead, everything that a send returned for is in its ring, and nothing half; a store drains
   exactly that, and the next life continues there;
 - a receiver processes consecutive numbers; a restarted one continues at its ack, and so repeats at most what
   it had not acknowledged.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import random
import shutil
import signal
import time
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from support import forked_roles as forked
from support.failpoints import ROLES, failpoints
from support.forked_roles import (
    ACK_EVERY,
    BATCH,
    BEGUN,
    LIMIT,
    RECEIVER_UUID,
    SENT,
    STORE_UUID,
    World,
    line_of,
    rows_of,
)
from support.oracle import ROW, Content, Finding, Lives, Stuck

from holdfast.engine.log.columns import entries_array, new_entries
from holdfast.engine.memory.domain import SHM_DIR, Domain, unlink_object
from holdfast.engine.memory.mapping import Mapping, UnpublishedError, attach_board, attach_stream
from holdfast.engine.native.core import CData, ffi, lib
from holdfast.engine.native.status import check

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

STUCK_S = 60.0
"""Nothing here takes as long; what does is a finding."""
BLOCK_BYTES = 1 << 18
ENTRIES = 8192


class Tally:
    """What the report counts."""

    def __init__(self) -> None:
        self.kills = dict.fromkeys(ROLES, 0)
        self.at_failpoints = 0
        self.stops = 0
        self.messages = 0
        self.repeated = 0

    @property
    def total(self) -> int:
        """All kills."""
        return sum(self.kills.values())


class Judge(Protocol):
    """Looks at rows in the order of their numbers."""

    def check(self, rows: NDArray[Any], what: str) -> None:
        """Raises Finding; see oracle.Lives."""


class Log:
    """A log as any other process sees it; ``verified``: number behind what was found right. ``lets_go``: of
    what is old."""

    def __init__(self, path: Path, content: Content, lives: Judge, *, lets_go: bool = False) -> None:
        self.path, self.content, self._lets_go = path, content, lets_go
        self.lives: Judge = lives
        self.verified = 0
        self._reader: CData = ffi.NULL
        self._block, self._entries = ffi.new("uint8_t[]", BLOCK_BYTES), new_entries(ENTRIES)
        self._words = ffi.new("uint64_t[2]")

    def reopen(self) -> None:
        """The next look is with a new reader."""
        reader, self._reader = self._reader, ffi.NULL
        if reader:
            lib.hf_logr_close(reader)

    def rewind(self) -> None:
        """The next look is with a new reader, at everything that is retained."""
        self.reopen()
        self.verified = self.range()[0]
        if self.verified and not self._lets_go:
            raise Finding(f"the log begins at {self.verified}, and nothing was to be let go")

    def range(self) -> tuple[int, int]:
        """Oldest and next published number."""
        if not self._reader:
            out = ffi.new("struct hf_logr **")
            fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
            status = lib.hf_logr_open(fd, out)
            os.close(fd)
            if status == lib.HF_AGAIN:
                return 0, 0
            check(status, what=str(self.path))
            self._reader = out[0]
        check(lib.hf_logr_range(self._reader, self._words, self._words + 1), what=str(self.path))
        return int(self._words[0]), int(self._words[1])

    def verify(self) -> None:
        """Judges what was published since the last time."""
        end = self.range()[1]
        if end < self.verified:
            raise Finding(f"the log ends at {end}: {self.verified} was published before; {self._said()}")
        while self._reader:
            got = lib.hf_logr_read(self._reader, self.verified, self._block, BLOCK_BYTES, self._words)
            if got == lib.HF_AGAIN:
                return
            if got <= 0:
                name = ffi.string(lib.hf_status_name(got)).decode()
                raise Finding(f"the log gives {name} for number {self.verified} (next {int(self._words[0])})")
            count = check(lib.hf_scan(self._block, got, self._entries, ENTRIES, self._words), what="scan")
            rows = rows_of(
                self.content, entries_array(self._entries, count), ffi.buffer(self._block, got), self._gather
            )
            self.verified = self.content.check(rows, self.verified, "log")
            self.lives.check(rows, "log")

    def _said(self) -> str:
        """What the log says of its end and of what has begun."""
        begins = ffi.new("struct hf_begin[]", lib.HF_INCARNATIONS)
        status = lib.hf_logr_end(self._reader, self._words)
        count = lib.hf_logr_begins(self._reader, begins)
        table = [(int(each.incarnation), int(each.start_sqn)) for each in begins[0 : max(count, 0)]]
        return f"end {int(self._words[0])} (status {status}), {count} begins, the last of them {table[-4:]}"

    def _gather(self, index: int) -> bytes:
        out = bytearray(int(self._entries[index].length))
        check(lib.hf_gather(self._block, 0, self._entries + index, ffi.from_buffer(out)), what="gather")
        return bytes(out)

    def verify_all(self) -> int:
        """Everything that is retained, once more, by a reader and by the checker. Returns the number behind
        it."""
        self.rewind()
        self.verify()
        if not self._reader:
            return 0  # no store lived long enough to make it
        summary, found = ffi.new("struct hf_check_summary *"), ffi.new("struct hf_finding[8]")
        fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        count = check(lib.hf_log_check(fd, found, 8, summary), what="check")
        os.close(fd)
        if count:
            first = found[0]
            raise Finding(
                f"check: {count} findings, the first of kind {first.kind} at {first.position}, {first.bytes} bytes"
            )
        return self.verified


class Episode:
    """One source identity and its processes. ``run`` raises Finding; ``close`` always."""

    def __init__(self, seed: int, domain: Domain, directory: Path, tally: Tally, mutant: str) -> None:
        self.random = pick = random.Random(seed)
        self.domain, self.tally, self.mutant = domain, tally, mutant
        uuid = pick.randbytes(16)
        disk, retained = pick.random() < 0.5, pick.random() < 0.5
        log = (directory if disk else domain.memory_logs("t", uuid)) / uuid.hex()
        log.mkdir(mode=0o700, parents=True)
        self._rows_read, rows_write = os.pipe()
        os.set_blocking(self._rows_read, False)
        fcntl.fcntl(rows_write, fcntl.F_SETPIPE_SZ, 1 << 18)
        self._page = mmap.mmap(-1, mmap.PAGESIZE)
        self.window = 500 if retained else 20_000
        self.world = World(
            Content(pick.getrandbits(48), fragment=pick.choice((256, 1024))), domain.name, uuid, log, disk,
            ring_bytes=pick.choice((1 << 16, 1 << 17, 1 << 18)), retain_bytes=(3 << 19) if retained else 0,
            segment_bytes=pick.choice((1 << 17, 1 << 18)), flight=pick.choice((0, 64, 1000)),
            pin_timeout_ms=pick.choice((0, 1, 100)), rows=rows_write, words=np.frombuffer(self._page, np.uint64),
        )  # fmt: skip
        self.lives = Lives()
        self.log = Log(log, self.world.content, self.lives, lets_go=retained)
        self.pids: dict[str, int] = {}
        self.armed: dict[str, str] = {}
        self.incarnation = 0
        self.start = 0
        """Number that the source's present life began at, or the next will."""
        self.drained = True
        self.delivered = 0
        self._firsts: list[int] = []
        """First numbers of the messages that were processed last."""
        self._points = failpoints()
        self._board: Mapping | None = None
        self._board_inode = 0

    # Processes ----------------------------------------------------------------------------------------------

    def raise_one(self, role: str, failpoint: str = "") -> None:
        """Starts a role, if it does not run. A source waits until the ring of its last life is drained."""
        if role in self.pids:
            return
        spec = ";".join(part for part in (failpoint, self.mutant if role == "store" else "") if part)
        self.armed[role] = failpoint
        world = self.world
        if role != "source":
            self.pids[role] = forked.fork(getattr(forked, role), spec, world)
            return
        self._drain()
        self.incarnation += 1
        self.lives.begin(self.incarnation, self.start)
        world.words[SENT] = self.start
        self.drained = False
        self.pids[role] = forked.fork(forked.source, spec, world, self.incarnation, self.start)

    def kill(self, *roles: str) -> None:
        """kill -9, all before any is looked at."""
        victims = [role for role in roles if role in self.pids]
        for role in victims:
            os.kill(self.pids[role], signal.SIGKILL)
        for role in victims:
            self._ended(role, os.waitpid(self.pids[role], 0)[1])

    def look(self) -> bool:
        """Takes in who has died at a failpoint, what was processed and published. True when somebody died."""
        died = False
        for role, pid in list(self.pids.items()):
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                if not self.armed[role]:
                    raise Finding(f"the {role} ended by itself, status {status}")
                self.tally.at_failpoints += 1
                self._ended(role, status)
                died = True
        self._pump()
        self.log.verify()
        self.world.words[LIMIT] = min(self.log.verified, self.delivered) + self.window
        return died

    def _ended(self, role: str, status: int) -> None:
        del self.pids[role]
        if not os.WIFSIGNALED(status) or os.WTERMSIG(status) != signal.SIGKILL:
            raise Finding(f"the {role} ended by itself, status {status}")
        self.tally.kills[role] += 1
        {"source": self._source_died, "store": self._store_died, "receiver": self._receiver_died}[role]()

    # What each may leave ------------------------------------------------------------------------------------

    def _ack(self, uuid: bytes) -> int:
        if self._board is None:
            try:
                self._board = attach_board(self.domain, self.world.uuid, writable=False)
                self._board_inode = self._inode()
            except (FileNotFoundError, UnpublishedError):
                return 0
        view = line_of(self._board.handle, self.domain.fd, uuid)
        return int(view.line.ack) if view is not None else 0

    def _stream_name(self) -> str:
        return self.domain.stream_name(self.world.uuid, self.incarnation)

    def _source_died(self) -> None:
        """Its ring: intact, with everything that a send returned for."""
        self.end = self.start
        with contextlib.suppress(FileNotFoundError, UnpublishedError), attach_stream(self._stream_name()) as stream:
            words = ffi.new("uint64_t[2]")
            status = lib.hf_stream_valid(stream.handle, words)
            if status != lib.HF_OK:
                raise Finding(f"the ring of a dead source is damaged at {int(words[0])}: status {status}")
            check(lib.hf_stream_end(stream.handle, words, words + 1), what="end")
            self.end = int(words[1])
        if self.end < self.world.words[SENT]:
            name = self._stream_name()
            there = "" if (SHM_DIR / name).exists() else f", because {name} is gone"
            raise Finding(f"sent {int(self.world.words[SENT])}, but the ring ends at {self.end}{there}")

    def _drain(self) -> None:
        """The store takes in what the dead source left; then the name goes, and the next life starts behind
        it."""
        deadline = time.monotonic() + STUCK_S
        while not self.drained:
            self.raise_one("store")
            self.look()
            if self.log.range()[1] >= self.end:
                break
            if time.monotonic() > deadline:
                raise Finding(
                    f"the store does not drain: the ring ends at {self.end}, the log at {self.log.range()[1]}"
                )
            time.sleep(0.0005)
        if self.log.range()[1] != self.start and self.log.range()[1] != self.end:
            raise Finding(f"the log ends at {self.log.range()[1]}, the drained ring at {self.end}")
        if not self.drained:
            unlink_object(self._stream_name())
            self.start, self.drained = self.end, True

    def _store_died(self) -> None:
        """What it called stable is in the log, seen by somebody else, before anybody repairs anything."""
        if self.random.random() < 0.5:
            self.log.reopen()
        stable = self._ack(STORE_UUID)
        if self.log.range()[1] < stable:
            raise Finding(f"the store called everything below {stable} stable, its log ends at {self.log.range()[1]}")
        self.log.verify()
        if self.log.verified < stable:
            raise Finding(f"the store called everything below {stable} stable, readable is {self.log.verified}")

    def _receiver_died(self) -> None:
        """It repeats from its ack on: at most what was processed and not yet acknowledged."""
        self._pump()
        ack = self._ack(RECEIVER_UUID)
        if ack > self.delivered:
            raise Finding(f"a receiver acknowledged {ack}, but processed only to {self.delivered}")
        again = sum(first >= ack for first in self._firsts)
        if again > BATCH + ACK_EVERY:
            raise Finding(f"a receiver acknowledged {ack} and will repeat {again} messages: more than a batch")
        self.tally.repeated += again
        self.delivered = ack
        self._firsts = [first for first in self._firsts if first < ack]

    def _pump(self) -> None:
        """Judges what the receiver has processed since the last time."""
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._rows_read, 4096 * ROW.itemsize):
                if len(data) % ROW.itemsize:
                    raise Finding("half a row: a write to a pipe was torn")
                rows: NDArray[Any] = np.frombuffer(data, ROW)
                self.delivered = self.world.content.check(rows, self.delivered, "receiver")
                self.lives.check(rows, "receiver")
                self.tally.messages += len(rows)
                self._firsts = (self._firsts + rows["first"].tolist())[-200:]

    # The plan -----------------------------------------------------------------------------------------------

    def run(self, kills: int) -> None:
        """Kills until there were ``kills`` more, then lets it come to an end and looks at everything
        again."""
        try:
            self._run(kills)
        except Exception as error:
            if self._board is not None and self._board_inode != self._inode():
                error.add_note("The board was taken out of /dev/shm: somebody else removes what lies there.")
            raise

    def _inode(self) -> int:
        try:
            return (SHM_DIR / self.domain.board_name(self.world.uuid)).stat().st_ino
        except FileNotFoundError:
            return 0

    def _run(self, kills: int) -> None:
        until = self.tally.total + kills - len(ROLES)
        while self.tally.total < until:
            down = [role for role in ROLES if role not in self.pids]
            armed = self.random.choice(down) if down and self.random.random() < 0.6 else ""
            for role in ("store", "receiver", "source"):
                self.raise_one(role, self._failpoint(role) if role == armed else "")
            if not self._let_run(armed):
                self.kill(*([armed] if armed else self._victims()))
        self._finish()

    def _failpoint(self, role: str) -> str:
        name = self.random.choice([name for name, passes in self._points if passes == role])
        return f"{name}=kill@{self.random.randint(1, self.random.choice((1, 2, 5, 60)))}"

    def _victims(self) -> list[str]:
        victims = self.random.choices(ROLES, (4, 4, 3))
        if self.random.random() < 0.2:
            victims = self.random.sample(ROLES, self.random.randint(2, 3))
        return victims

    def _let_run(self, armed: str) -> bool:
        """A moment, or until the source has got on. True when somebody died."""
        now = time.monotonic()
        pause = 0.06 if armed else self.random.choice((0.002, 0.01, STUCK_S))
        goal = int(self.world.words[SENT]) + self.random.randint(1, 1500) if pause == STUCK_S else 2**62
        deadline = now + (pause if pause == STUCK_S else self.random.random() * pause)
        while not self.look():
            if self.world.words[SENT] >= goal:
                return False
            if (now := time.monotonic()) > deadline:
                if pause == STUCK_S:
                    raise Stuck(f"nothing moves: sent {int(self.world.words[SENT])}, {self._state()}")
                return False
            time.sleep(min(0.001, deadline - now))
        return True

    def _state(self) -> str:
        return (
            f"stable {self._ack(STORE_UUID)}, log {self.log.range()[1]}, verified {self.log.verified}, delivered"
            f" {self.delivered}, limit {int(self.world.words[LIMIT])}, BEGIN {int(self.world.words[BEGUN])} of"
            f" {self.incarnation}"
        )

    def _finish(self) -> None:
        """Everything that was sent becomes stable and is processed; the log is right from end to end."""
        for role in ("store", "receiver"):
            if self.armed.get(role):
                self.kill(role)
        self.kill("source")
        self.raise_one("store")
        self.raise_one("receiver")
        self._drain()
        deadline = time.monotonic() + STUCK_S
        while self.delivered < self.start:
            self.look()
            if time.monotonic() > deadline:
                raise Stuck(f"the receiver does not get there: {self._state()}")
            time.sleep(0.0005)
        self.kill("receiver", "store")
        if self.log.verify_all() != self.start:
            raise Finding(f"the log ends at {self.log.verified}, the source at {self.start}")

    def close(self, *, keep: bool) -> None:
        """Ends the processes; removes what they shared unless it is to be looked at."""
        for pid in self.pids.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        self.pids.clear()
        os.close(self._rows_read)
        os.close(self.world.rows)
        self.log.reopen()
        if self._board is not None:
            self._board.close()
        if keep:
            return
        for item in self.domain.objects():
            if item.uuid == self.world.uuid:
                unlink_object(item.name)
        shutil.rmtree(self.world.log)
