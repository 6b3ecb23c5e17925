"""The demo's pipeline: ``holdfast pipeline archive`` writes the flights to Parquet while they are published,
and is killed in the middle; then the stores are audited, as they are and with one byte flipped in one of
them, which the others mend; and ``holdfast pipeline report`` says how late the archived flights were.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from ..engine.errors import ConfigError
from ..engine.tools.store_repair import repair_stores
from .demo_actor import Actor, DemoError
from .demo_worker import TOPIC
from .lines import say

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

    from ..spark.pipeline.findings import Audit
    from .demo_screen import Screen

__all__ = ["Archiving", "archive_is_good", "audits_are_good", "missing", "report_is_good"]

SESSION = 0x53
KILLED_AT = 0.25
"""Which part must be archived when the archive is killed."""
BATCHES = 16
"""Micro-batches that the whole is, at least."""
NEEDED = ("pyspark", "pyarrow", "pandas")
CHART = "holdfast-demo-delays.png"
REPORT_S = 180.0
"""A Spark starts and reads an archive in that time, also on a machine that has much else to do."""


def missing() -> str:
    """What Spark lacks here, and how to get it; "" for nothing."""
    absent = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if absent:
        return f"{', '.join(absent)} is not installed: pip install 'holdfast[spark]'"
    try:
        importlib.import_module("holdfast.spark")
    except ConfigError as error:
        return f"{error.args[0]}; {error.hint}"
    return ""


class Archiving:
    """The archive, in ``folder``; its driver is ``actor``, a program of its own, and the receiver of a
    session."""

    def __init__(self, folder: Path, count: int) -> None:
        self.table = folder / "archive"
        self.count = count
        command = ["pipeline", "archive", TOPIC, self.table, "--session", SESSION, "--master", "local[2]"]
        command += ["--every", 0.5, "-o", f"maxRecordsPerTrigger={max(1, count // BATCHES)}"]
        self.actor = Actor("archive", folder, "command", *command)
        self._drain = Actor("archive", folder, "command", *command, "--once")
        self.chart = Path(tempfile.gettempdir()) / CHART if importlib.util.find_spec("matplotlib") else None
        picture = ["--picture", self.chart] if self.chart is not None else []
        self.reported = folder / "report.json"
        command = ["pipeline", "report", "--archive", self.table, "--master", "local[2]", "--json", *picture]
        self.report = Actor("report", folder, "command", *command, out=self.reported)

    @property
    def position(self) -> int:
        """Records that are archived for good."""
        from ..spark.pipeline.committed import committed

        done = committed(self.table / "_checkpoint")
        return sum(done[1].values()) if done is not None else 0

    def plan(self, screen: Screen, is_published: Callable[[], bool]) -> Iterator[None]:
        """Its life: one step per look."""
        self.actor.start()
        yield from self._until(lambda: self.position >= KILLED_AT * self.count)
        at = self.position
        screen.say(f"kill -9 archive (pid {self.actor.pid}) at record {at:,}: Spark's driver")
        screen.mark("archive", f"killed at {at:,}")
        self.actor.kill()
        yield from self._until(is_published)
        self._drain.kills = self.actor.kills
        self.actor = self._drain
        self.actor.start()
        screen.say(f"everything is published; archive started again, to the end of that (pid {self.actor.pid})")
        yield from self._until(lambda: self.actor.done)

    def end(self) -> None:
        """Kills what runs."""
        self.actor.end()
        self.report.end()

    def _until(self, true: Callable[[], bool]) -> Iterator[None]:
        """Notices its end meanwhile, as those of the others are noticed."""
        while not true():
            self.actor.check()
            if self.actor.done and self.actor is not self._drain:
                raise DemoError(f"{self.actor.name} has ended: {self.actor.told()}")
            yield


def archive_is_good(archive: Archiving, digests: Any) -> bool:
    """Compares the Parquet files with the input, record by record. ``digests``: of the input, (n, 32)
    uint8."""
    import numpy as np
    import pyarrow.dataset as ds

    table = ds.dataset(archive.table, format="parquet", partitioning="hive").to_table(["sequence_number", "value"])
    numbers = table.column("sequence_number").to_numpy()
    order = np.argsort(numbers, kind="stable")
    joined = b"".join(hashlib.sha256(value.as_buffer()).digest() for value in table.column("value"))
    found = np.frombuffer(joined, np.uint8).reshape(-1, 32)[order]
    good = np.array_equal(numbers[order], np.arange(len(digests))) and np.array_equal(found, digests)
    files = len(list(archive.table.rglob("part-*.parquet")))
    what = "once each, every SHA-256 as in the input" if good else "NOT THE INPUT"
    say(f"archive, killed -9 {archive.actor.kills} x: {len(numbers):,} records in {files} Parquet files, {what}")
    return bool(good)


def report_is_good(archive: Archiving) -> bool:
    """Waits for ``archive.report``, and shows what it says of the carriers."""
    import msgspec

    from ..spark.pipeline.report import Report
    from .pipeline import show_report

    deadline = time.monotonic() + REPORT_S
    while not archive.report.done:
        archive.report.check()
        if time.monotonic() > deadline:
            raise DemoError(f"the report takes longer than {REPORT_S:.0f} s: {archive.report.told()}")
        time.sleep(0.05)
    found = msgspec.json.decode(archive.reported.read_bytes(), type=Report)
    show_report(found, ["carrier"])
    if archive.chart is not None:
        say(f"a chart of it, and by origin and hour: {archive.chart}")
    return found.flights == archive.count


def audits_are_good(stores: Sequence[Path], records: Sequence[bytes]) -> bool:
    """Audits the stores in these directories, which do not run: clean; then with a byte flipped; then
    mended."""
    good = _is_clean("audit of the stores that live", _audit(stores))
    number = len(records) // 2
    _flip(stores[-1], records[number])
    found = _audit(stores).findings
    hit = [each for each in found if stores[-1].name in each.store.split(",") and each.first <= number < each.next]
    say(f"one byte of record {number:,} flipped at store {stores[-1].name}; the audit: {len(found)} found")
    for each in found:
        say(f"  {each.kind}: {each.text}")
    (mended,) = [each for each in repair_stores(list(stores)) if each.directory == str(stores[-1])]
    say(f"store repair: {sum(log.filled for log in mended.logs):,} records copied from the others")
    return good and bool(hit) and len(hit) == len(found) and _is_clean("audit after the repair", _audit(stores))


def _audit(stores: Sequence[Path]) -> Audit:
    from ..spark.pipeline.audit import audit

    return audit([TOPIC], directories=stores)


def _is_clean(what: str, found: Audit) -> bool:
    say(f"{what}: {found.messages:,} messages read, {len(found.findings) or 'nothing'} found")
    for each in found.findings:
        say(f"  {each.kind}: {each.text}")
    return not found.findings


def _flip(store: Path, record: bytes) -> None:
    """One bit in the middle of this record, in the file where it lies."""
    for path in sorted((store / "logs").rglob("*")):
        data = path.read_bytes() if path.is_file() else b""
        at = data.find(record)
        if at >= 0:
            with path.open("r+b") as file:
                file.seek(at + len(record) // 2)
                file.write(bytes([data[at + len(record) // 2] ^ 1]))
            return
    raise DemoError(f"record {record[:40]!r} is in no file of {store}")
