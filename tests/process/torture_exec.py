"""Kills of real processes that use the public names: a source, a store, two receivers, each with a session, all at once.

Every process has a clock of its own: it is killed when it has got on, or at a random moment of its start, and started again at
once, while the others do the same. Judged are the store's word (its line against its log), the source's (what it was told is
stable; where it continues), every message that a receiver has processed, and in the end that both receivers and the log have
the same messages.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from process.oracle import ROW, Content, Finding
from process.spawn import Rows, Traces, Worker, until
from process.torture_core import STUCK_S, Log, Tally
from process.worker import LIMIT, SENT, STABLE, START

from holdfast.engine.core import lib

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

RING_BYTES = 1 << 18
WINDOW = 400
"""Numbers that the source may be ahead of the log and of the receiver that uses views: no view is ever evicted."""
PROGRESS_S = 5.0


class _Seen:
    """The rows of the log; keys (lives of the source) never go back."""

    def __init__(self) -> None:
        self.rows: list[NDArray[Any]] = []
        self._key = 0

    def check(self, rows: NDArray[Any], what: str) -> None:
        """As Lives.check."""
        keys = np.concatenate((np.array([self._key], np.uint64), rows["key"]))
        if (keys[1:] < keys[:-1]).any():
            raise Finding(f"{what}: a message of an earlier life behind one of a later")
        self._key = int(keys[-1])
        self.rows.append(rows.copy())


class Victim:
    """One role, and when it is to be killed next."""

    def __init__(self, role: str, pick: random.Random, where: Path, /, **settings: Any) -> None:
        self.random = pick
        self.worker = Worker(role, where, **settings)
        self.role, self.session = role, self.worker.settings.session
        self._at = 0.0
        self._goal = 0
        self._in_start = False

    def start(self, progress: int) -> None:
        """Its next life, and the plan for its end."""
        self.worker.start()
        self._in_start = self.random.random() < 0.25
        self._goal = progress + self.random.randint(1, 400)
        self._at = time.monotonic() + (self.random.random() * 0.4 if self._in_start else STUCK_S)

    def due(self, progress: int) -> bool:
        """Its time has come. Raises Finding if it ended, or if the system does not get on."""
        self.worker.check_alive()
        if self._in_start:
            return time.monotonic() >= self._at
        if self.worker.ready and progress >= self._goal:
            return True
        if time.monotonic() > self._at:
            raise Finding(f"nothing moves: {progress} are processed, the {self.role} waits for {self._goal} to be")
        return False


class Processes:
    """See the module. ``with``: whatever happens, the processes end."""

    def __init__(self, seed: int, root: Path, tally: Tally) -> None:
        self.tally = tally
        self.content = Content(seed ^ 0x5EED)
        directory = root / "exec"
        directory.mkdir()
        pick = random.Random(seed)
        common = {"domain": "exec", "seed": int(self.content.seed)}
        ring = {"ring_size": RING_BYTES, "ume_flight_size": 300}
        rows = [str(directory / f"rows-{i}") for i in range(2)]
        self.source = Victim("source", pick, directory, session=1, options=ring, **common)
        self.store = Victim("store", pick, directory, directory=str(directory / "store"), **common)
        self.receivers = [
            Victim("receiver", pick, directory, session=2 + i, rows=rows[i], form=("receive", "batch")[i], **common)
            for i in range(2)
        ]
        self.victims = [self.store, self.source, *self.receivers]
        self.rows = [Rows(path, self.content) for path in rows]
        self.seen = _Seen()
        self.traces: Traces | None = None
        self.logs = directory / "store" / "logs"
        self.log: Log | None = None
        self.end = 0

    def __enter__(self) -> Self:
        self.traces = Traces("exec")
        return self

    def __exit__(self, *_: object) -> None:
        for victim in self.victims:
            victim.worker.discard()
        if self.log is not None:
            self.log.reopen()
        assert self.traces is not None
        self.traces.close()

    def run(self, kills: int, tell: Callable[[], None]) -> None:
        """Kills so often, lets it come to an end, and compares."""
        until_total = self.tally.total + kills
        told = time.monotonic()
        for victim in self.victims:
            victim.start(0)
        while self.tally.total < until_total:
            self._look()
            for victim in self.victims:
                if victim.due(self._progress()) and self.tally.total < until_total:
                    victim.worker.kill()
                    self.tally.kills[victim.role] += 1
                    self._died(victim)
                    victim.start(self._progress())
            if time.monotonic() - told > PROGRESS_S:
                told = time.monotonic()
                tell()
            time.sleep(0.001)
        self._finish()

    def _progress(self) -> int:
        return min(rows.high for rows in self.rows)

    def _look(self) -> None:
        for rows in self.rows:
            rows.look()
        assert self.traces is not None
        if self.log is None:
            path = self.traces.log(self.logs)
            if not path.exists():
                self.source.worker.words[LIMIT] = WINDOW
                return
            self.log = Log(path, self.content, self.seen)
        self.log.verify()
        self.source.worker.words[LIMIT] = min(self.log.verified, self.rows[1].delivered) + WINDOW
        source = self.source.worker
        if source.ready and source.words[START] != self.end:
            raise Finding(f"the source continues at {int(source.words[START])}, its last ring ended at {self.end}")

    def _died(self, victim: Victim) -> None:
        assert self.traces is not None
        if victim.role == "receiver":
            rows = self.rows[self.receivers.index(victim)]
            rows.died(self.traces.ack(lib.HF_ROLE_RECEIVER, victim.session))
            self.tally.repeated += rows.repeated
            rows.repeated = 0
            return
        source = self.source.worker.words
        if victim.role == "source":
            self.end = max(self.end, self.traces.end())
            if source[SENT] > self.end:
                raise Finding(f"sent {int(source[SENT])}, but the ring ends at {self.end}")
            return
        stable = max(self.traces.ack(lib.HF_ROLE_STORE), int(source[STABLE]))
        published = self.log.range()[1] if self.log is not None else 0
        if published < stable:
            raise Finding(f"everything below {stable} was called stable, the log ends at {published}")

    def _finish(self) -> None:
        """All come to an end; the log and both receivers have the same messages."""
        source = self.source.worker
        until("the source is registered", lambda: source.ready, self._look)
        source.words[LIMIT] = 0
        self.end = int(source.words[START])
        source.stop()
        end = int(source.words[SENT])
        if source.words[STABLE] != end:
            raise Finding(f"sent {end}, stable {int(source.words[STABLE])}")
        for rows in self.rows:
            until(f"{rows.path} gets to {end}", lambda rows=rows: rows.delivered >= end, rows.look)
        for victim in (*self.receivers, self.store):
            victim.worker.stop()
        assert self.log is not None
        self.seen.rows.clear()
        self.seen = _Seen()
        self.log.lives = self.seen
        if self.log.verify_all() != end:
            raise Finding(f"the log ends at {self.log.verified}, the source at {end}")
        stored = np.concatenate(self.seen.rows)
        for rows in self.rows:
            seen = rows.all()
            if len(seen) != len(stored) or any((seen[name] != stored[name]).any() for name in ROW.names or ()):
                raise Finding(f"{rows.path} has {len(seen)} messages, the log {len(stored)}, and they differ")
            self.tally.messages += len(seen)
