"""One source, a group of stores, and receivers, each a process; and a judge beside them who sees what each
death leaves.

What one store alone may show is less than with a single store (kill_scene.py): it may lack what the others
have, until it has caught up. So the judge asks of them together what was promised: what the source was told
is stable lies in a quorum of the logs; a new life of the source goes on exactly behind its last ring;
receivers get everything once, in order, with the content of the life that owns the number; and in the end all
logs hold the same.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from support.oracle import ROW, Content, Finding, Lives
from support.worker import LIMIT, SENT, STABLE, START
from support.workers import Rows, Traces, Worker, kill, until
from torture_lab.core_kills import Log

from holdfast.engine.log.compare import compare_stores
from holdfast.engine.native.core import lib

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

NAMES = ("a", "b", "c")
WINDOW = 400
"""Numbers that the source may be ahead of a quorum's logs, and of a receiver that uses views; of the other
receiver ten times as many. A store that is away, or stands still, is overtaken: it finds what it missed in
the others' logs."""


class _Kept:
    """The rows of a log, judged by the lives of the source."""

    def __init__(self, lives: Lives) -> None:
        self._lives = lives
        self.rows: list[NDArray[Any]] = []

    def check(self, rows: NDArray[Any], what: str) -> None:
        """As oracle.Lives.check."""
        self._lives.check(rows, what)
        self.rows.append(rows.copy())


class GroupScene:
    """See the module. ``with``: whatever happens, the processes end. ``kinds``: of each store. ``forms``: how
    each receiver receives (worker.Settings)."""

    def __init__(
        self, where: Path, domain: str, seed: int, *, kinds: Sequence[str] = ("disk",) * 3,
        forms: Sequence[str] = ("receive", "batch"), forked: bool = False, source_options: dict[str, Any] | None = None,
    ) -> None:  # fmt: skip
        where.mkdir(exist_ok=True, parents=True)
        self.content = Content(seed)
        common: dict[str, Any] = {"domain": domain, "seed": seed, "forked": forked}
        self.stores = [
            Worker("store", where, name=name, directory=str(where / name), kind=kind, **common)
            for name, kind in zip(NAMES, kinds, strict=False)
        ]
        names = [store.settings.name for store in self.stores]
        self.quorum = len(names) // 2 + 1
        options = {
            "ring_size": 1 << 18, "ume_flight_size": 300, "ume_registration_interval": 50, **(source_options or {}),
        }  # fmt: skip
        self.source = Worker("source", where, session=1, stores=names, options=options, **common)
        paths = [str(where / f"rows-{i}") for i in range(len(forms))]
        self.receivers = [
            Worker(
                "receiver", where, session=2 + i, rows=paths[i], form=form, options={"ume_registration_interval": 50},
                **common,
            )
            for i, form in enumerate(forms)
        ]  # fmt: skip
        self.workers = [*self.stores, self.source, *self.receivers]
        self.rows = [Rows(path, self.content) for path in paths]
        self.traces = Traces(domain)
        self.lives = Lives()
        self._logs: dict[Worker, Log] = {}
        self.lets_go = False
        """Its stores do, of what is old."""
        self.lead = 10 * WINDOW
        """Numbers that the source may be ahead of a receiver that copies."""
        self._known_life = 0
        self._end = 0
        self._lack = ""
        """What a log that was looked at last was short of."""
        self._judged = [0 for _ in self.rows]
        """Of each receiver, how many arrays of its rows have been judged by the lives."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.workers:
            worker.discard()
        for log in self._logs.values():
            log.reopen()
        self.traces.close()

    @property
    def processed(self) -> int:
        """Number behind what all receivers have processed."""
        return min(rows.high for rows in self.rows)

    def start(self) -> Self:
        """Starts all, one after the other without waiting."""
        for worker in self.workers:
            worker.start()
        return self

    def look(self) -> None:
        """Judges what was processed since the last time, and lets the source go on."""
        for rows in self.rows:
            rows.look()
        self._note_life()
        for i, rows in enumerate(self.rows):
            for seen in rows.seen[self._judged[i] :]:
                self.lives.check(seen, rows.path)
            self._judged[i] = len(rows.seen)
        self.source.words[LIMIT] = self.limit()

    def limit(self) -> int:
        """Number below which the source may send now."""
        ahead = {"batch": WINDOW}
        held = [
            rows.delivered + ahead.get(worker.settings.form, self.lead)
            for rows, worker in zip(self.rows, self.receivers, strict=True)
        ]
        return min(self.held_by_quorum() + WINDOW, *held)

    def _note_life(self) -> None:
        """A new life of the source goes on exactly where its last ring ended."""
        source = self.source
        if source.settings.life == self._known_life or not source.ready:
            return
        start = int(source.words[START])
        if start != self._end:
            raise Finding(f"the source continues at {start}, its last ring ended at {self._end}")
        self._known_life = source.settings.life
        self.lives.begin(self._known_life, start)

    def ends(self) -> list[int]:
        """Number behind what each store's log has published, of those that have one."""
        return [log.range()[1] for _, log in self.logs()]

    def held_by_quorum(self) -> int:
        """Number below which a quorum of the logs has published."""
        ends = sorted(self.ends(), reverse=True)
        return ends[self.quorum - 1] if len(ends) >= self.quorum else 0

    def logs(self) -> list[tuple[Worker, Log]]:
        """The stores that have a log."""
        return [(store, log) for store in self.stores if (log := self._log(store)) is not None]

    def _log(self, store: Worker) -> Log | None:
        """Where nothing is published yet, the one that was looked at before may be that of a life that never
        began."""
        known = self._logs.get(store)
        if known is not None and known.range()[1] > 0:
            return known
        path = Path(store.settings.directory) / "logs" / self._source_name
        if known is not None and known.path != path:
            self._logs.pop(store).reopen()
        if store not in self._logs and path.exists():
            self._logs[store] = Log(path, self.content, _Kept(self.lives), lets_go=self.lets_go)
        return self._logs.get(store)

    @property
    def _source_name(self) -> str:
        """What the source's logs are called. Where its names in shared memory were removed: as a log that was
        seen is. Not the other way round: a life that ended before it had begun may have left a log of a
        source that will never be."""
        uuid = self.traces.log(Path()).name
        seen = next(iter(self._logs.values()), None)
        return seen.path.name if uuid == "none" and seen is not None else uuid

    def kill(self, *workers: Worker) -> None:
        """kill -9 of these; then judges them."""
        kill(workers, self.judge)

    def judge(self, worker: Worker) -> None:
        """It is dead: is what it leaves what it has promised?"""
        if worker in self.receivers:
            self.rows[self.receivers.index(worker)].died(self.traces.ack(lib.HF_ROLE_RECEIVER, worker.settings.session))
        elif worker is self.source:
            self._note_life()
            ring = self.traces.end()  # before the logs: stores that are quick have drained the ring and taken it away
            self._end = max([self._end, ring, *self.ends()])
            if worker.words[SENT] > self._end:
                raise Finding(f"sent {int(worker.words[SENT])}, but the ring ends at {self._end}")
        else:
            log = self._log(worker)
            said = self.traces.ack_of(worker.settings.name)
            published = log.range()[1] if log is not None else 0
            if published < said:
                there = sorted(path.name for path in Path(worker.settings.directory).glob("logs/*"))
                looked = f"{log.path.name if log is not None else 'no log'} of {there}, {self.traces.boards()}"
                raise Finding(
                    f"store {worker.settings.name} called {said} stable, its log ends at {published} ({looked})"
                )
        stable = int(self.source.words[STABLE])
        if self.held_by_quorum() < stable:
            raise Finding(f"everything below {stable} was called stable, the logs end at {self.ends()}")

    def finish(self) -> int:
        """All run, and come to a clean end; every log and every receiver have the same messages. Returns how
        many."""
        source = self.source
        until("the source is registered", lambda: source.ready, self.look)
        self.look()
        source.words[LIMIT] = 0
        source.stop()
        end = int(source.words[SENT])
        if source.words[STABLE] != end:
            raise Finding(f"sent {end}, stable {int(source.words[STABLE])}")
        for rows in self.rows:
            until(f"{rows.path} gets to {end}", partial(rows.has, end), rows.look)
        for receiver in self.receivers:
            receiver.stop()
        for store in self.stores:
            until(lambda: f"a log is whole up to {end}; {self._lack}", partial(self._whole, store, end))
        for store in self.stores:
            store.stop()
        return self._compare(end)

    def _whole(self, store: Worker, end: int) -> bool:
        """Everything is there; what it missed and could not find at first, it repairs in the background."""
        log, name = self._log(store), store.settings.name
        if log is None or log.range()[1] < end:
            self._lack = f"store {name}: it ends at {log.range()[1] if log is not None else None}"
            return False
        log.reopen()
        log.verified = 0
        log.lives = _Kept(self.lives)
        try:
            log.verify()
        except Finding as found:
            if "the log gives HF_" in str(found):  # not yet
                self._lack = f"store {name}: {found}"
                return False
            raise
        return log.verified == end

    def _compare(self, end: int) -> int:
        contents = [rows.all() for rows in self.rows] + self._kept_rows(end)
        for other in contents[1:]:
            if len(other) != len(contents[0]) or any((other[n] != contents[0][n]).any() for n in ROW.names or ()):
                raise Finding(f"receivers and logs differ: {[len(each) for each in contents]} messages")
        return len(contents[0])

    def _kept_rows(self, end: int) -> list[NDArray[Any]]:
        """Of each store, what its log has."""
        found = []
        for store, log in self.logs():
            kept = log.lives = _Kept(self.lives)
            if log.verify_all() != end:
                raise Finding(f"the log of store {store.settings.name} ends at {log.verified}, the source at {end}")
            found.append(np.concatenate(kept.rows))
        directories = [store.settings.directory for store in self.stores]
        if len(directories) > 1:
            compared = {each.source: each for each in compare_stores(directories)}[self._source_name]
            if compared.difference is not None or compared.next != end:
                raise Finding(f"the logs are not the same: {compared}")
        return found
