"""``holdfast demo``: a year of flights goes to three stores and two receivers. A receiver, the source and two
stores are killed on the way: one store comes back and finds what it missed in the others' logs, one is gone
for good.

The children are ordinary programs (demo_worker); this one only starts them, kills them, watches from outside
(engine/tools/snapshot.py), and compares at the end. Meanwhile a Spark archives the flights, and is killed too
(demo_pipeline). Everything lives in a temporary directory and a domain of its own, and is gone afterwards.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from ..engine.log.check import check_store
from ..engine.log.compare import compare_stores
from ..engine.memory.domain import Domain
from ..engine.tools import snapshot
from ..engine.tools.gc import sweep
from .demo_actor import ENDS, Actor, DemoError
from .demo_data import flights, hand_out, save
from .demo_pipeline import Archiving, archive_is_good, audits_are_good, missing, report_is_good
from .demo_proof import Proof, digests_of, prove
from .demo_screen import Screen
from .demo_worker import RECORD, STORES, TOPIC
from .lines import say

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.table import Table

__all__ = ["run_demo"]

TICK_S = 0.05
PLAY_S = 17.0
"""How long sending takes when no rate is given."""
STALLED_S = 30.0
SPARK_STALLED_S = 180.0
"""With Spark, which takes a minute to start on a machine that has much else to do."""
SESSIONS = {"receiver 1": 0x51, "receiver 2": 0x52}
FOR_GOOD = "store c"
KILLS = (("receiver 1", 0.15, 0.2), ("store b", 0.3, 0.48), ("source", 0.6, 0.0), (FOR_GOOD, 0.75, 1.0))
"""Who is killed when which part of the records is sent, and which part must be before it comes back."""
AWAY_S = 1.0
"""It stays away so long at least."""
COME_IN = 0.7
"""This part of the records comes in before the source is killed, the rest after it. So it is not yet done,
however fast it is, or slow the machine."""


class Play:
    """One run of the demo in ``folder``; with Spark, or without."""

    def __init__(self, folder: Path, domain: Domain, count: int, rate: float, *, spark: bool) -> None:
        self.count = count
        self.folder = folder
        self._domain = domain
        names = {name: folder / f"{name.replace(' ', '-')}.seen" for name in SESSIONS}
        self.seen = names
        self.stores = {f"store {name}": folder / name for name in STORES}
        actors = [Actor(name, folder, "store", path.name, path) for name, path in self.stores.items()]
        actors += [Actor(name, folder, "receiver", count, SESSIONS[name], path) for name, path in names.items()]
        self._records = folder / "records"
        actors.append(Actor("source", folder, "source", self._records, rate))
        self.actors = {actor.name: actor for actor in actors}
        self.archive = Archiving(folder, count) if spark else None
        archive = ("archive",) if spark else ()
        self.positions = dict.fromkeys(("sent", "stable", *SESSIONS, *self.stores, *archive), 0)
        self.states: dict[str, str] = {}
        """What each store is to the source."""
        self.sending_s = 0.0
        self._first_sent = 0.0

    def look(self) -> None:
        """Reads where everything stands: the source from shared memory, the receivers from what they wrote
        down."""
        sources = [row for row in snapshot.take(self._domain).sources if row.topic == TOPIC]
        if sources:
            self._see("sent", sources[0].next)
            self._see("stable", sources[0].stable + 1)
            for at in sources[0].stores:
                self._see(f"store {at.name}", at.stable + 1 if at.stable is not None else 0)
                self.states[f"store {at.name}"] = at.state
        for name, path in self.seen.items():
            self._see(name, _last_number(path) + 1)
        if self.archive is not None:
            self._see("archive", self.archive.position)
        now = time.monotonic()
        self._first_sent = self._first_sent or (now if self.positions["sent"] else 0.0)
        if self.positions["sent"] < self.count and self._first_sent:
            self.sending_s = now - self._first_sent

    def _see(self, name: str, position: int) -> None:
        """A receiver that reads again what it had before has not lost any of it."""
        self.positions[name] = max(self.positions[name], position)

    def run(self, screen: Screen) -> None:
        """Plays it. Raises DemoError when a process fails or nothing moves any more."""
        plans = [self._plan(screen)]
        if self.archive is not None:
            plans.append(self.archive.plan(screen, self._is_published))
        hand_out(int(COME_IN * self.count), self._records)
        for actor in self.actors.values():
            actor.start()
        moved, before = time.monotonic(), dict(self.positions)
        patience = STALLED_S if self.archive is None else SPARK_STALLED_S
        while plans or not all(actor.done for actor in self.actors.values() if not actor.is_store):
            time.sleep(TICK_S)
            self.look()
            screen.update(self.positions)
            for actor in self.actors.values():
                actor.check()
            plans = [plan for plan in plans if next(plan, False) is None]
            if self.positions != before:
                moved, before = time.monotonic(), dict(self.positions)
            elif time.monotonic() - moved > patience:
                told = "; ".join(f"{name}: {actor.told()}" for name, actor in self.actors.items())
                raise DemoError(f"nothing has moved for {patience:.0f} s ({told})")
        for name in self.stores:
            if name != FOR_GOOD:
                self.actors[name].stop()
        self.look()
        screen.update(self.positions)

    def _is_published(self) -> bool:
        return self.positions["stable"] >= self.count

    def _plan(self, screen: Screen) -> Iterator[None]:
        """The kills: one step per look. Nobody is killed while a store is still away, or has not caught
        up."""
        for name, part, until in KILLS:
            while self.positions["sent"] < part * self.count:
                yield
            actor = self.actors[name]
            bar = "sent" if name == "source" else name
            at, stable = self.positions[bar], self.positions["stable"]
            screen.say(
                f"kill -9 {name} (pid {actor.pid}) at record {at:,}" + (": for good" if name == FOR_GOOD else "")
            )
            screen.mark(bar, f"killed at {at:,}")
            actor.kill()
            if name == "source":
                hand_out(self.count, self._records)
            if name == FOR_GOOD:
                return
            back = time.monotonic() + AWAY_S
            while time.monotonic() < back or self.positions["sent"] < until * self.count:
                yield
            missed = self.positions["stable"] - stable
            actor.start()
            screen.say(f"{name} started again (pid {actor.pid})")
            if actor.is_store:
                screen.say(f"{missed:,} records became stable without {name}: it reads them from the others' logs")
                while self.states.get(name) != "active" or self.positions[name] < at + missed:
                    yield
                screen.say(f"{name} has caught up with the others, and counts again")

    def end(self) -> None:
        """Kills what runs."""
        for actor in self.actors.values():
            actor.end()
        if self.archive is not None:
            self.archive.end()


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


def run_demo(count: int | None, rate: float | None, *, pipeline: bool) -> int:
    """Plays the demo with the first ``count`` flights at ``rate`` per second (0: unlimited). Returns 0 if
    nothing was lost.

    ``pipeline``: with Spark, if that is here.
    """
    without = missing() if pipeline else "--no-pipeline"
    if without:
        say(f"without the pipeline on Spark: {without}")
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
        play = Play(folder, domain, len(records), rate, spark=not without)
        stack.callback(play.end)
        stack.callback(_only_once)
        with Screen(len(records), play.positions) as screen:
            play.run(screen)
        proofs = {name: prove(path, digests) for name, path in play.seen.items()}
        _print_table(screen, play, rate, proofs)
        for name, proof in proofs.items():
            say(f"{name}: {_verdict(proof, len(records))}")
        good = all(proof.good for proof in proofs.values()) and _stores_are_good(play)
        if play.archive is not None:
            play.archive.report.start()
            good = archive_is_good(play.archive, digests) and good
            living = [path for name, path in play.stores.items() if name != FOR_GOOD]
            good = audits_are_good(living, records) and good
            good = report_is_good(play.archive) and good
        good = good and play.positions["sent"] == play.positions["stable"] == len(records)
        say("nothing was lost" if good else "MESSAGES WERE LOST")
    return 0 if good else 1


def _stores_are_good(play: Play) -> bool:
    """What each of them has; that those which live are the same, and the dead one is their beginning."""
    good = True
    for name, path in play.stores.items():
        report = check_store(path)
        held = report.logs[0].messages if report.logs else 0
        good = good and not report.damaged and (held == play.count or name == FOR_GOOD)
        say(f"{name}: {held:,} records, {'DAMAGED' if report.damaged else 'every CRC is right'}")
    every = list(play.stores.values())
    living = [path for name, path in play.stores.items() if name != FOR_GOOD]
    for paths, whose in ((living, "the logs of the stores that live"), (every, "and what the dead one had")):
        (compared,) = compare_stores(paths)
        same = compared.difference is None
        good = good and same
        say(
            f"{whose}: {'identical' if same else 'NOT IDENTICAL'} over records {compared.first:,} to {compared.next - 1:,}"
        )
    return good


def _only_once() -> None:
    """Cleaning up must not be cut short by a second ^C."""
    for number in ENDS:
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
    for name in ("source", *(name.removeprefix("store ") for name in play.stores), *proofs):
        table.add_column(name if name in play.actors else f"store {name}", justify="right")
    kills = [play.actors[name].kills for name in ("source", *play.stores, *proofs)]
    sent = play.positions["sent"] / play.sending_s if play.sending_s else 0.0
    pace = f" of {rate:,.0f}/s" if rate else "/s"
    stores = [f"{play.positions[name]:,}" for name in play.stores]
    table.add_row("killed -9", *(f"{kill} x" if kill else "-" for kill in kills))
    table.add_row("sent", f"{play.positions['sent']:,}")
    table.add_row("stable on disk", f"{play.positions['stable']:,}", *stores)
    _row(table, "delivered", proofs, lambda proof: f"{proof.delivered:,}")
    _row(table, "of them recovered", proofs, lambda proof: f"{proof.recovered:,}")
    _row(table, "redelivered", proofs, lambda proof: f"{proof.redelivered:,}")
    _row(table, "lost", proofs, lambda proof: f"{proof.lost:,}")
    rates = (f"{proof.rate:,.0f}/s" for proof in proofs.values())
    table.add_row("rate", f"{sent:,.0f}{pace}", *("" for _ in stores), *rates)
    _row(table, "latency p50, live", proofs, lambda proof: f"{proof.p50_us:,.0f} µs")
    _row(table, "latency p99, live", proofs, lambda proof: f"{proof.p99_us:,.0f} µs")
    if not screen.console.is_terminal:
        screen.console.width = 120  # a pipe has no width
    screen.console.print(table)


def _row(table: Table, label: str, proofs: dict[str, Proof], cell: Callable[[Proof], str]) -> None:
    table.add_row(label, "", *("" for _ in STORES), *(cell(proof) for proof in proofs.values()))
