"""What a query with ``failOnDataLoss=false`` has left out: a ledger of ranges in the domain's directory,
``spark/losses``.

A log line is easily missed, and Spark keeps no metric of a Python source. So each number that a query should
have read, and that no store has, is in the ledger once per query, whoever finds it: the planning process, or
a task, or both of them again after a crash. One small file, replaced as a whole (whole_file.py). Written in
turns (``losses.lock``).
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from ..engine.errors import CorruptionError, Error
from ..engine.memory.domain import domain_directory
from ..engine.memory.turn import take_turn
from ..engine.native.private_directory import open_private, open_regular, read_regular
from ..engine.rules.intervals import Spans
from .errors import DataLossError, StoresAwayError
from .selection import stores_of
from .whole_file import WholeFile

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from pathlib import Path

    from ..engine.log.sight import Away
    from .options import Options

__all__ = ["Loss", "Losses", "check_away", "losses_in", "query_of", "record", "skip"]

_log = logging.getLogger("holdfast")
_writing = threading.Lock()
"""A turn is one process's, not one thread's."""

VERSION = 1
KEPT = 4096
"""Entries; of more the oldest go."""
LEDGER_MAX = 1 << 24
"""Bytes of a ledger that is believed."""


class Loss(msgspec.Struct, frozen=True):
    """Numbers ``first`` .. ``last`` of a source, which ``query`` has left out; ``at``: when that was found,
    UTC."""

    at: str
    query: str
    topic: str
    source: str
    first: int
    last: int
    why: str


class _Ledger(msgspec.Struct):
    version: int = VERSION
    losses: list[Loss] = msgspec.field(default_factory=list)


def query_of(options: Options, identity: str = "") -> str:
    """What the ledger calls a query: the reader's option queryName, its session, or the id in its offsets
    (offsets.Lineage). Batch reads without a name are one."""
    by_id = f"query {identity}" if identity else ""
    return options.query_name or (f"session {options.session:#x}" if options.session is not None else by_id)


def check_away(loss: DataLossError, away: Iterable[Away], only: Collection[str] = ()) -> None:
    """Returns where nobody can have what a query misses. ``only``: the stores that it reads; none for all.

    Raises:
        StoresAwayError: one of these stores may have it.
    """
    may_have = [each for each in away if loss.first < each.below and (not only or each.store in only)]
    if may_have:
        what = f"topic {loss.topic}, source {loss.key}: numbers {loss.first}..{loss.last} are at no store in sight"
        raise StoresAwayError(what, may_have)


def skip(options: Options, loss: DataLossError, away: Iterable[Away]) -> None:
    """Raises ``loss`` where it is to end the query; else says it in the log and in the ledger.

    ``away``: stores on record that could not be read. Raises StoresAwayError where one of them may have it.
    """
    check_away(loss, away, stores_of(options))
    if options.fail_on_data_loss:
        raise loss
    _log.warning("%s", loss)
    if not options.directory:
        record(domain_directory(options.domain), query_of(options), loss)


class Losses:
    """What the process that plans a query has found to be lost: each number is told once, and written down
    when that can be."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._told: dict[tuple[str, str], Spans] = {}
        self._unwritten: list[tuple[str, DataLossError]] = []

    def tell(self, query: str, loss: DataLossError, away: Iterable[Away]) -> None:
        """Says of a loss what was not said yet.

        Raises:
            DataLossError: it ends the query.
            StoresAwayError: it may be none.
        """
        told = self._told.setdefault((loss.topic, loss.key), Spans())
        for first, stop in list(told.gaps(loss.first, loss.last + 1)):
            new = DataLossError(loss.topic, loss.key, first, stop - 1, loss.why)
            check_away(new, away, stores_of(self._options))
            if self._options.fail_on_data_loss:
                raise new
            _log.warning("%s", new)
            if not record(domain_directory(self._options.domain), query, new):
                self._unwritten.append((query, new))
            told.add(first, stop)

    def write(self) -> None:
        """Tries again to write what the ledger did not take."""
        domain = domain_directory(self._options.domain)
        with contextlib.suppress(OSError, Error):
            while self._unwritten:
                _write(domain, *self._unwritten[0])
                del self._unwritten[0]

    def counts(self) -> dict[tuple[str, str], int]:
        """How many numbers were told, by topic and source."""
        return {name: sum(stop - first for first, stop in spans) for name, spans in self._told.items() if spans}


def record(domain: Path, query: str, loss: DataLossError) -> bool:
    """Adds what of a loss is not in the ledger of this domain yet. False: it cannot be written. Never ends a
    query: the log has the loss."""
    try:
        _write(domain, query, loss)
    except (OSError, Error):
        _log.exception("the ledger of losses in %s could not be written", domain / "spark")
        return False
    return True


def _write(domain: Path, query: str, loss: DataLossError) -> None:
    os.stat(domain)  # reading makes no domain
    with _writing:
        _add(domain / "spark", query, loss)


def losses_in(domain: Path) -> list[Loss]:
    """What is in the ledger of a domain, oldest first.

    Raises:
        CorruptionError: it is no such ledger.
    """
    path = domain / "spark" / "losses"
    try:
        return _decoded(path, read_regular(path, LEDGER_MAX + 1)).losses
    except FileNotFoundError:
        return []


def _decoded(path: Path, data: bytes) -> _Ledger:
    try:
        if len(data) > LEDGER_MAX:
            raise ValueError(f"it has more than {LEDGER_MAX} bytes")
        found = msgspec.json.decode(data, type=_Ledger)
        if found.version != VERSION:
            raise ValueError(f"its version is {found.version}, not {VERSION}")
    except (ValueError, msgspec.MsgspecError) as error:
        raise CorruptionError(f"{path} cannot be read: {error}", hint="move it away: a new one is begun") from None
    return found


def _add(directory: Path, query: str, loss: DataLossError) -> None:
    path = directory / "losses"
    with contextlib.ExitStack() as stack:
        at = open_private(directory)
        stack.callback(os.close, at)
        lock = open_regular(directory / "losses.lock", os.O_RDWR | os.O_CREAT, at=at)
        stack.callback(os.close, lock)
        take_turn(lock, f"to write {path}")
        file = WholeFile(path, at)
        try:
            ledger = _decoded(path, file.read())
        except FileNotFoundError:
            ledger = _Ledger()
        known = Spans()
        for each in ledger.losses:
            if (each.query, each.topic, each.source) == (query, loss.topic, loss.key):
                known.add(each.first, each.last + 1)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        new = [
            Loss(now, query, loss.topic, loss.key, first, stop - 1, loss.why)
            for first, stop in known.gaps(loss.first, loss.last + 1)
        ]
        if new:
            ledger.losses = [*ledger.losses, *new][-KEPT:]
            file.write(msgspec.json.format(msgspec.json.encode(ledger)))
