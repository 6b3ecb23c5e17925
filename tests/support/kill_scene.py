"""One source, one store and receivers as real processes (workers.py), and a judge beside them who sees what
each death leaves."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from support.oracle import ROW, Content, Finding
from support.worker import LIMIT, SENT, STABLE, START
from support.workers import Rows, Traces, Worker, kill, until
from torture_lab.core_kills import Log

from holdfast.engine.native.core import lib

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

WINDOW = 400
"""Numbers that the source may be ahead of the log and of a receiver that uses views, so that none is evicted;
another one it may overtake by ten times as many, several rings."""


class _Stored:
    """The rows of the log; keys (lives of the source) never go back."""

    def __init__(self) -> None:
        self.rows: list[NDArray[Any]] = []
        self._key = 0

    def check(self, rows: NDArray[Any], what: str) -> None:
        """As oracle.Lives.check."""
        keys = np.concatenate((np.array([self._key], np.uint64), rows["key"]))
        if (keys[1:] < keys[:-1]).any():
            raise Finding(f"{what}: a message of an earlier life behind one of a later")
        self._key = int(keys[-1])
        self.rows.append(rows.copy())


class Scene:
    """See the module. ``with``: whatever happens, the processes end. ``forms``: how each receiver receives
    (worker.Settings)."""

    def __init__(
        self, where: Path, domain: str, seed: int, *, kind: str = "disk", forms: Sequence[str] = ("receive",),
        window: int = WINDOW, source_options: dict[str, Any] | None = None, **store: Any,
    ) -> None:  # fmt: skip
        where.mkdir(exist_ok=True)
        self.content = Content(seed)
        self.window = window
        common: dict[str, Any] = {"domain": domain, "seed": seed}
        self.store = Worker("store", where, directory=str(where / "store"), kind=kind, **common, **store)
        options = {"ring_size": 1 << 18, "ume_flight_size": 300, **(source_options or {})}
        self.source = Worker("source", where, session=1, options=options, **common)
        paths = [str(where / f"rows-{i}") for i in range(len(forms))]
        self.receivers = [
            Worker("receiver", where, session=2 + i, rows=paths[i], form=form, **common) for i, form in enumerate(forms)
        ]
        self.workers = [self.store, self.source, *self.receivers]
        self.rows = [Rows(path, self.content) for path in paths]
        self.traces = Traces(domain)
        self.logs = where / "store" / "logs"
        self.log: Log | None = None
        self.lets_go = False
        """The store does, of what is old."""
        self._stored = _Stored()
        self._end = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.workers:
            worker.discard()
        if self.log is not None:
            self.log.reopen()
        self.traces.close()

    @property
    def receiver(self) -> Worker:
        """The first one."""
        return self.receivers[0]

    @property
    def processed(self) -> int:
        """Number behind what all receivers have processed."""
        return min(rows.high for rows in self.rows)

    def start(self, *workers: Worker) -> Self:
        """Starts these (all), one after the other without waiting."""
        for worker in workers or self.workers:
            worker.start()
        return self

    def look(self) -> None:
        """Judges what was published and processed since the last time, and lets the source go on."""
        for rows in self.rows:
            rows.look()
        if self.log is None:
            path = self.traces.log(self.logs)
            if not path.exists():
                self.source.words[LIMIT] = self.window
                return
            self.log = Log(path, self.content, self._stored, lets_go=self.lets_go)
        try:
            self.log.verify()
        except Finding as finding:
            raise Finding(f"{finding}; {self._where()}") from finding
        ahead = {"batch": self.window}
        held = [
            rows.delivered + ahead.get(worker.settings.form, 10 * self.window)
            for rows, worker in zip(self.rows, self.receivers, strict=True)
        ]
        self.source.words[LIMIT] = min(self.log.verified + self.window, *held)
        if self.source.ready and self.source.words[START] != self._end:
            raise Finding(
                f"the source continues at {int(self.source.words[START])}, its last ring ended at {self._end}"
            )

    def _where(self) -> str:
        """Where the source stands, for a finding."""
        words = {"start": START, "sent": SENT, "stable": STABLE}
        said = ", ".join(f"{name} {int(self.source.words[place])}" for name, place in words.items())
        lives = ", ".join(f"{worker.role} {worker.settings.life}" for worker in self.workers)
        return f"the source's {said}; its last ring ended at {self._end}; lives: {lives}"

    def go_on(self, messages: int = 20) -> None:
        """Until every receiver has processed this many numbers more."""
        goal = self.processed + messages
        until(f"{goal} is processed", lambda: self.processed >= goal, self.look, *(w.check_alive for w in self.workers))

    def judge(self, worker: Worker) -> None:
        """It is dead: is what it leaves what it has promised?"""
        if worker in self.receivers:
            self.rows[self.receivers.index(worker)].died(self.traces.ack(lib.HF_ROLE_RECEIVER, worker.settings.session))
        elif worker is self.source:
            ring = self.traces.end()  # before the log: a store that is quick has drained the ring and taken it away
            self._end = max(self._end, ring, self.log.range()[1] if self.log is not None else 0)
            if worker.words[SENT] > self._end:
                raise Finding(f"sent {int(worker.words[SENT])}, but the ring ends at {self._end}")
        else:
            stable = max(self.traces.ack(lib.HF_ROLE_STORE), int(self.source.words[STABLE]))
            published = self.log.range()[1] if self.log is not None else 0
            if self.log is not None and published < stable:
                raise Finding(f"everything below {stable} was called stable, the log ends at {published}")

    def kill(self, *workers: Worker) -> None:
        """kill -9 of these; then judges them."""
        kill(workers, self.judge)

    def finish(self) -> int:
        """All run, and come to a clean end; the log and every receiver have the same messages. Returns how
        many."""
        source = self.source
        until("the source is registered", lambda: source.ready, self.look)
        source.words[LIMIT] = 0
        self._end = int(source.words[START])
        source.stop()
        end = int(source.words[SENT])
        if source.words[STABLE] != end:
            raise Finding(f"sent {end}, stable {int(source.words[STABLE])}")
        for rows in self.rows:
            until(f"{rows.path} gets to {end}", partial(rows.has, end), rows.look)
        for worker in (*self.receivers, self.store):
            worker.stop()
        self.look()
        assert self.log is not None
        self._stored = self.log.lives = _Stored()
        if self.log.verify_all() != end:
            raise Finding(f"the log ends at {self.log.verified}, the source at {end}")
        return self._compare()

    def _compare(self) -> int:
        stored = np.concatenate(self._stored.rows)
        for rows in self.rows:
            seen = rows.all()
            seen = seen[seen["first"] >= stored["first"][0]]  # behind what the log's retention has let go
            if len(seen) != len(stored) or any((seen[name] != stored[name]).any() for name in ROW.names or ()):
                raise Finding(f"{rows.path} has {len(seen)} messages, the log {len(stored)}, and they differ")
        return len(stored)
