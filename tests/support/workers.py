"""Workers (worker.py) as a test sees them: started by exec, killed, started again; and what they leave
behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from support.forked_workers import Child
from support.oracle import Content, Finding, Stuck
from support.worker import LIFE, LIMIT, RECORD, STOP, WORDS, Settings, open_words

from holdfast.engine.memory.domain import Domain
from holdfast.engine.memory.mapping import UnpublishedError, attach_board, attach_stream
from holdfast.engine.native.core import ffi, lib

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

WORKER = Path(__file__).resolve().parent / "worker.py"
DEADLINE_S = 90.0
"""No step of any of these tests takes as long."""


def until(what: str | Callable[[], str], true: Callable[[], object], *also: Callable[[], object]) -> None:
    """Waits until ``true()``; ``also`` is called meanwhile. Raises Stuck, which says ``what``, when the time
    is over."""
    deadline = time.monotonic() + DEADLINE_S
    while not true():
        for call in also:
            call()
        if time.monotonic() > deadline:
            raise Stuck(f"waited {DEADLINE_S:.0f} s: {what if isinstance(what, str) else what()}")
        time.sleep(0.001)


class Worker:
    """One role through all its lives. ``settings.life`` counts them. ``forked``: started by fork
    (forked_workers.py), not by exec."""

    def __init__(self, role: str, where: Path, /, *, forked: bool = False, **settings: Any) -> None:
        words = where / f"{role}-{len(list(where.glob('*.words')))}.words"
        words.write_bytes(bytes(WORDS * 8))
        self.role = role
        self.words = open_words(str(words))
        self.words[LIMIT] = 2**62
        self.settings = Settings(str(words), 0, **settings)
        self.process: subprocess.Popen[bytes] | Child | None = None
        self._forked = forked

    def start(self, failpoints: str | None = None) -> Self:
        """The next life; ``failpoints``: a specification for the build that has them. Returns at once."""
        assert self.process is None
        self.settings = replace(self.settings, life=self.settings.life + 1)
        if self._forked:
            self.process = Child(self.role, self.settings, failpoints or "")
            return self
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(WORKER.parents[1]), os.environ.get("PYTHONPATH", "")]),
        }
        environment.pop("HOLDFAST_FAILPOINTS", None)
        if failpoints is not None:
            environment["HOLDFAST_FAILPOINTS"] = failpoints
        if self.settings.domain:
            environment["HOLDFAST_DOMAIN"] = self.settings.domain
        command = [sys.executable, str(WORKER), self.role, self.settings.encode()]
        self.process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, start_new_session=True)
        return self

    @property
    def ready(self) -> bool:
        """It has said that it is registered (open)."""
        return bool(self.words[LIFE] == self.settings.life)

    def wait_ready(self) -> Self:
        """Until it is; raises Finding when it ends before."""
        until(f"{self.role} is ready", lambda: self.ready, self.check_alive)
        return self

    def check_alive(self) -> None:
        """Raises Finding if it has ended."""
        assert self.process is not None
        if self.process.poll() is not None:
            raise Finding(f"the {self.role} ended by itself, status {self.process.returncode}")

    def send(self, number: signal.Signals) -> None:
        """A signal."""
        assert self.process is not None
        self.process.send_signal(number)

    def died(self) -> bool:
        """It was killed -9, by somebody or by itself; then it may be started again. Raises Finding for any
        other end."""
        assert self.process is not None
        status = self.process.poll()
        if status is None:
            return False
        self.process = None
        if status != -signal.SIGKILL:
            raise Finding(f"the {self.role} ended by itself, status {status}")
        return True

    def wait_died(self) -> None:
        """Until a failpoint has killed it."""
        until(f"{self.role} dies", self.died)

    def strike(self) -> None:
        """kill -9, without waiting for the end."""
        self.send(signal.SIGKILL)

    def stop(self) -> None:
        """A clean end; raises Finding if it was not."""
        if self.process is None:
            return
        if self.role == "store":  # before it is ready, SIGTERM would kill it
            self.wait_ready()
        process, self.process = self.process, None
        self.words[STOP] = 1
        if self.role == "store":
            process.terminate()
        try:
            status = process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise Stuck(f"the {self.role} does not stop") from None
        finally:
            self.words[STOP] = 0
        if status:
            raise Finding(f"the {self.role} ended with status {status}")

    def discard(self) -> None:
        """At the end of a test, whatever has happened."""
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            process.wait()


def stand_still(pid: int) -> None:
    """SIGSTOP; when this returns, every thread of the process stands."""
    os.kill(pid, signal.SIGSTOP)
    tasks = Path(f"/proc/{pid}/task")
    until(
        "it stands",
        lambda: all(stands(task) for task in tasks.iterdir()),
    )


def stands(task: Path) -> bool:
    """A thread, by its directory in /proc. One that has ended meanwhile does."""
    try:
        return (task / "stat").read_text().rpartition(")")[2].split()[0] == "T"
    except (FileNotFoundError, ProcessLookupError):
        return True


def kill(workers: Sequence[Worker], judge: Callable[[Worker], None]) -> None:
    """kill -9, all before any is looked at; then judges them."""
    for worker in workers:
        worker.strike()
    for worker in workers:
        worker.wait_died()
    for worker in workers:
        judge(worker)


class Rows:
    """What a receiver has processed, judged as it comes: one life continues at the ack of the one before."""

    def __init__(self, path: str, content: Content, start: int = 0) -> None:
        self.path, self.content = path, content
        self.delivered = self.high = start
        """``delivered``: number behind what this life has processed; ``high``: behind what any has."""
        self.repeated = 0
        self.seen: list[NDArray[Any]] = []
        self._at = 0
        self._life = 0

    def look(self) -> None:
        """Judges what has come since the last time."""
        try:
            with open(self.path, "rb") as file:
                file.seek(self._at)
                data = file.read()
        except FileNotFoundError:
            return
        rows: NDArray[Any] = np.frombuffer(data, RECORD, len(data) // RECORD.itemsize)
        self._at += len(rows) * RECORD.itemsize
        for life in np.unique(rows["life"]):
            self._take(rows[rows["life"] == life], int(life))

    def _take(self, rows: NDArray[Any], life: int) -> None:
        if life < self._life:
            raise Finding(f"{self.path}: life {life} after {self._life}")
        self._life = life
        self.delivered = self.content.check(rows, self.delivered, f"receiver {Path(self.path).name}, life {life}")
        again = rows["first"] < self.high
        if not rows["retransmit"][again].all():
            raise Finding(f"{self.path}: redelivered without the flag: {rows[again & (rows['retransmit'] == 0)][0]}")
        self.repeated += int(again.sum())
        self.seen.append(rows[~again])
        self.high = max(self.high, self.delivered)

    def died(self, ack: int) -> None:
        """The receiver is dead; its line says ``ack``. Nothing below it may come again, everything from it on
        must."""
        self.look()
        if ack > self.delivered:
            raise Finding(f"{self.path}: acknowledged {ack}, but processed only to {self.delivered}")
        self.delivered = ack

    def has(self, number: int) -> bool:
        """Everything below ``number`` is processed."""
        return self.delivered >= number

    def all(self) -> NDArray[Any]:
        """Every message once, in order."""
        return np.concatenate(self.seen) if self.seen else np.empty(0, RECORD)


class Traces:
    """What one source has in shared memory. ``domain``: by name; the source is the only one in it."""

    def __init__(self, domain: str) -> None:
        self.domain = Domain(domain, join=False)

    def close(self) -> None:
        """The directory's descriptor."""
        self.domain.close()

    def _uuid(self) -> bytes:
        """The source's. A life that ended before it had begun anywhere may have left a board of its own, with
        no store on it."""
        boards = [item.uuid for item in self.domain.objects() if item.kind == "board"]
        if len(boards) > 1:
            boards = [uuid for uuid in boards if any(line.role == lib.HF_ROLE_STORE for line in self._lines(uuid))]
        if len(boards) > 1:
            raise Finding(f"{len(boards)} sources where one was started")
        return boards[0] if boards else b""

    def boards(self) -> str:
        """What is on each board, for a finding."""
        said = [
            f"board {item.uuid.hex()}: "
            + ", ".join(
                f"role {line.role} {ffi.string(line.name).decode()!r} ack {line.ack_stream}:{line.ack} state {line.state}"
                for line in self._lines(item.uuid)
            )
            for item in self.domain.objects()
            if item.kind == "board"
        ]
        return "; ".join(said)

    def lines(self, role: int) -> list[Any]:
        """Copies of the lines of this role, ``struct hf_board_line``."""
        uuid = self._uuid()
        return [line for line in self._lines(uuid) if line.role == role] if uuid else []

    def _lines(self, uuid: bytes) -> list[Any]:
        try:
            with attach_board(self.domain, uuid, writable=False) as board:
                views = ffi.new("struct hf_line_view[]", lib.HF_BOARD_LINES)
                count = lib.hf_board_read(board.handle, self.domain.fd, 0, views, lib.HF_BOARD_LINES)
                self._views = views
                return [views[i].line for i in range(count)]
        except (FileNotFoundError, UnpublishedError):
            return []

    def ack(self, role: int, session: int = 0) -> int:
        """The ack of the participant with this role (and session)."""
        return max((int(line.ack) for line in self.lines(role) if session in {0, line.session_id}), default=0)

    def ack_of(self, store: str) -> int:
        """The ack of the store with this name."""
        lines = self.lines(lib.HF_ROLE_STORE)
        return max((int(line.ack) for line in lines if ffi.string(line.name).decode() == store), default=0)

    def end(self) -> int:
        """Number behind the last message in the newest stream whose header is there, 0 without."""
        found = 0
        for item in self.domain.objects():
            if item.kind == "stream":
                try:
                    with attach_stream(item.name) as stream:
                        words = ffi.new("uint64_t[2]")
                        status = lib.hf_stream_end(stream.handle, words, words + 1)
                        if status != lib.HF_OK:
                            raise Finding(f"{item.name}: its end cannot be found, status {status}")
                        found = max(found, int(words[1]))
                except (FileNotFoundError, UnpublishedError):
                    continue
        return found

    def log(self, store_logs: Path) -> Path:
        """The directory of the source's log, or one that is not there."""
        uuid = self._uuid()
        return store_logs / (uuid.hex() if uuid else "none")
