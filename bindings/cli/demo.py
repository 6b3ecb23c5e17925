"""``holdfast demo``: a year of flights goes to two receivers; a receiver, the store and the source are killed on the way.

The children are ordinary programs (demo_worker); this one only starts them, kills them, watches from outside (engine/survey),
and compares at the end. Everything lives in a temporary directory and a domain of its own, and is gone afterwards.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from ..engine import survey
from ..engine.check import check_store
from ..engine.domain import Domain
from ..engine.errors import Error
from ..engine.sweep import sweep
from .demo_data import flights, save
from .demo_proof import Proof, digests_of, prove
from .demo_screen import Screen
from .demo_worker import RECORD, STORE, TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.table import Table

__all__ = ["run_demo"]

TICK_S = 0.05
AWAY_S = 1.0
"""How long a killed process stays away."""
PLAY_S = 17.0
"""How long sending takes when no rate is given."""
STALLED_S = 30.0
SESSIONS = {"receiver 1": 0x51, "receiver 2": 0x52}
KILLS = (("receiver 1", 0.25), ("store", 0.5), ("source", 0.75))
"""Who is killed when which part of the records is sent."""
SHOWN_BY = {"store": "stable", "source": "sent"}


class DemoError(Error):
    """The demo could not be played to its end."""

    code = "HF_DEMO"


class Actor:
    """One child process that can be killed and started again. Its errors go to a file."""

    def __init__(self, name: str, folder: Path, *arguments: object) -> None:
        self.name = name
        self.kills = 0
        self.done = False
        self._errors = folder / f"{name}.err"
        self._command = [sys.executable, "-m", f"{__package__}.demo_worker", str(os.getpid()), *map(str, arguments)]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """A fresh interpreter, in a session of its own: ^C is for us, and we see to the children."""
        with self._errors.open("ab") as errors:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors, start_new_session=True
            )

    @property
    def pid(self) -> int:
        """0 when it does not run."""
        return self._process.pid if self._process is not None else 0

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        self.kills += 1
        self.end()

    def end(self) -> None:
        """Kills it if it runs."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def stop(self) -> None:
        """SIGTERM; raises DemoError if that is not a clean end."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            raise DemoError(f"{self.name} does not stop") from None
        self._process = None
        if code:
            raise DemoError(f"{self.name} ended with {code}: {self.told()}")

    def check(self) -> None:
        """Notices an end. Raises DemoError if it is not a good one."""
        if self._process is None or (code := self._process.poll()) is None:
            return
        self._process = None
        if code or self.name == "store":
            raise DemoError(f"{self.name} ended with {code}: {self.told()}")
        self.done = True

    def told(self) -> str:
        """The last line that it wrote."""
        lines = self._errors.read_text(errors="replace").split("\n") if self._errors.exists() else []
        return next((line for line in reversed(lines) if line.strip()), "it said nothing")


class Play:
    """One run of the demo in ``folder``."""

    def __init__(self, folder: Path, domain: Domain, count: int, rate: float) -> None:
        self.count = count
        self.folder = folder
        self._domain = domain
        names = {name: folder / f"{name.replace(' ', '-')}.seen" for name in SESSIONS}
        self.seen = names
        self.actors = {
            "store": Actor("store", folder, "store", folder / "store"),
            "source": Actor("source", folder, "source", folder / "records", rate),
        } | {name: Actor(name, folder, "receiver", count, SESSIONS[name], path) for name, path in names.items()}
        self.positions = dict.fromkeys(("sent", "stable", *SESSIONS), 0)
        self.sending_s = 0.0
        self._first_sent = 0.0

    def look(self) -> None:
        """Reads where everything stands: the source from shared memory, the receivers from what they wrote down."""
        sources = [row for row in survey.take(self._domain).sources if row.topic == TOPIC]
        if sources:
            self._see("sent", sources[0].next)
            self._see("stable", sources[0].stable + 1)
        for name, path in self.seen.items():
            self._see(name, _last_number(path) + 1)
        now = time.monotonic()
        self._first_sent = self._first_sent or (now if self.positions["sent"] else 0.0)
        if self.positions["sent"] < self.count and self._first_sent:
            self.sending_s = now - self._first_sent

    def _see(self, name: str, position: int) -> None:
        """A receiver that reads again what it had before has not lost any of it."""
        self.positions[name] = max(self.positions[name], position)

    def run(self, screen: Screen) -> None:
        """Plays it. Raises DemoError when a process fails or nothing moves any more."""
        self.actors["store"].start()
        for name in (*SESSIONS, "source"):
            self.actors[name].start()
        plan = self._plan(screen)
        moved, before = time.monotonic(), dict(self.positions)
        while not all(actor.done for name, actor in self.actors.items() if name != "store"):
            time.sleep(TICK_S)
            self.look()
            screen.update(self.positions)
            for actor in self.actors.values():
                actor.check()
            next(plan, None)
            if self.positions != before:
                moved, before = time.monotonic(), dict(self.positions)
            elif time.monotonic() - moved > STALLED_S:
                told = "; ".join(f"{name}: {actor.told()}" for name, actor in self.actors.items())
                raise DemoError(f"nothing has moved for {STALLED_S:.0f} s ({told})")
        self.actors["store"].stop()
        self.look()
        screen.update(self.positions)

    def _plan(self, screen: Screen) -> Iterator[None]:
        """The kills: one step per look."""
        for name, part in KILLS:
            while self.positions["sent"] < part * self.count:
                yield
            actor = self.actors[name]
            bar = SHOWN_BY.get(name, name)
            screen.say(f"kill -9 {name} (pid {actor.pid}) at record {self.positions[bar]:,}")
            screen.mark(bar, f"killed at {self.positions[bar]:,}")
            actor.kill()
            back = time.monotonic() + AWAY_S
            while time.monotonic() < back:
                yield
            actor.start()
            screen.say(f"{name} started again (pid {actor.pid})")

    def end(self) -> None:
        """Kills what runs."""
        for actor in self.actors.values():
            actor.end()


def _last_number(path: Path) -> int:
    """Of the last whole row of a receiver's file, -1 for none."""
    try:
        with path.open("rb") as file:
            rows = os.fstat(file.fileno()).st_size // RECORD.size
            if not rows:
                return -1
            file.seek((rows - 1) * RECORD.size)
            return int(RECORD.unpack(file.read(RECORD.size))[0])
    except FileNotFoundError:
        return -1


def run_demo(count: int | None, rate: float | None) -> int:
    """Plays the demo with the first ``count`` flights at ``rate`` per second (0: unlimited). Returns 0 if nothing was lost."""
    print("reading the flights ...", flush=True)
    records = flights(count)
    digests = digests_of(records)
    rate = len(records) / PLAY_S if rate is None else rate
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="hf-demo-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        os.environ["HOLDFAST_DIR"] = str(folder / "run")
        os.environ["HOLDFAST_DOMAIN"] = "demo"
        domain = Domain(join=False)
        stack.callback(domain.close)
        stack.callback(sweep, domain, everything=True)
        save(records, folder / "records")
        play = Play(folder, domain, len(records), rate)
        stack.callback(play.end)
        stack.callback(_only_once)
        with Screen(len(records)) as screen:
            play.run(screen)
        report = check_store(folder / "store")
        proofs = {name: prove(path, digests) for name, path in play.seen.items()}
        _print_table(screen, play, rate, proofs)
        stored = (
            f"the store's log holds {report.logs[0].messages:,} messages, " if report.logs else "the store has no log, "
        )
        print(stored + ("and is DAMAGED" if report.damaged else "every CRC is right"))
        for name, proof in proofs.items():
            print(f"{name}: {_verdict(proof, len(records))}")
        good = all(proof.good for proof in proofs.values()) and not report.damaged
        good = good and play.positions["sent"] == play.positions["stable"] == len(records)
        print("nothing was lost" if good else "MESSAGES WERE LOST")
    return 0 if good else 1


def _only_once() -> None:
    """Cleaning up must not be cut short by a second ^C."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def _verdict(proof: Proof, count: int) -> str:
    if proof.good:
        again = f"; {proof.redelivered:,} of them twice" if proof.redelivered else ""
        return f"all {count:,} records, in order, every SHA-256 as in the input{again}"
    order = "in order" if proof.in_order else "NOT in order"
    return f"{proof.delivered:,} of {count:,} records {order}, {proof.lost:,} lost, {proof.wrong:,} changed"


def _print_table(screen: Screen, play: Play, rate: float, proofs: dict[str, Proof]) -> None:
    from rich.table import Table

    table = Table(
        title="a year of flights" if play.count > 300_000 else f"{play.count:,} flights", title_justify="left"
    )
    table.add_column("")
    for name in ("source", f"store {STORE}", *proofs):
        table.add_column(name, justify="right")
    kills = [play.actors[name].kills for name in ("source", "store", *proofs)]
    sent = play.positions["sent"] / play.sending_s if play.sending_s else 0.0
    pace = f" of {rate:,.0f}/s" if rate else "/s"
    table.add_row("killed -9", *(f"{kill} x" if kill else "-" for kill in kills))
    table.add_row("sent", f"{play.positions['sent']:,}", "", "", "")
    table.add_row("stable on disk", "", f"{play.positions['stable']:,}", "", "")
    _row(table, "delivered", proofs, lambda proof: f"{proof.delivered:,}")
    _row(table, "of them recovered", proofs, lambda proof: f"{proof.recovered:,}")
    _row(table, "redelivered", proofs, lambda proof: f"{proof.redelivered:,}")
    _row(table, "lost", proofs, lambda proof: f"{proof.lost:,}")
    table.add_row("rate", f"{sent:,.0f}{pace}", "", *(f"{proof.rate:,.0f}/s" for proof in proofs.values()))
    _row(table, "latency p50, live", proofs, lambda proof: f"{proof.p50_us:,.0f} µs")
    _row(table, "latency p99, live", proofs, lambda proof: f"{proof.p99_us:,.0f} µs")
    screen.console.print(table)


def _row(table: Table, label: str, proofs: dict[str, Proof], cell: Callable[[Proof], str]) -> None:
    table.add_row(label, "", "", *(cell(proof) for proof in proofs.values()))
