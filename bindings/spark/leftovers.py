"""What writers of Spark have left in a domain's directory, and what of it nobody will ever need: the part of ``holdfast gc`` that
knows them.

A query whose checkpoint is a local directory keeps its record there (writing.py), and goes with it. The others keep it with the
domain. While a query may start again its record must stay: without it a batch would be published twice. So one goes only when no
batch is half published and the checkpoint was here for all to see, and is gone.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ..engine.errors import CorruptionError, UsageError
from ..engine.sweep import Item
from .batch_writer import ONCE, lives
from .ledger import Ledger, LedgerInUseError
from .writing import TRANSACTION, local_checkpoint

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["leftovers"]

BY_HAND = "remove it by hand when it is never started again"


def leftovers(place: Path, *, dry_run: bool) -> list[Item]:
    """Looks, removes what may go (unless ``dry_run``), and returns what was seen; who writes just now is not mentioned.

    Args:
        place: where the writers of a domain keep what has no other place.

    Raises:
        OSError: something could not be removed.
    """
    found = [_seen(path, dry_run=dry_run) for path in sorted(place.iterdir()) if path.is_dir()]
    return [item for item in found if item is not None]


def _seen(path: Path, *, dry_run: bool) -> Item | None:
    size = sum(entry.stat().st_size for entry in path.rglob("*") if entry.is_file())

    def item(remove: bool, why: str) -> Item:
        if remove and not dry_run:
            shutil.rmtree(path)
        return Item("writer", str(path), size, remove, why)

    if path.name.startswith(ONCE):
        if lives(path.name.removeprefix(ONCE)):
            return None
        return item(True, "its driver is dead: nobody goes on with this write")
    if path.name.startswith(TRANSACTION):
        return item(False, "which txnVersion of a txnAppId was published last, it alone says")
    if not (path / "ledger").exists():
        return item(False, f"rows that a query has staged, and not published yet; {BY_HAND}")
    try:
        with Ledger(path, 0) as ledger:
            return item(*_verdict(ledger, path.name))
    except LedgerInUseError:
        return None
    except CorruptionError as error:
        return item(False, str(error.args[0]))


def _verdict(ledger: Ledger, query: str) -> tuple[bool, str]:
    record = ledger.record
    if record.intent is not None:
        return (
            False,
            f"batch {record.intent.batch} of query {query} is half published: only with this it can be finished",
        )
    if urlsplit(record.checkpoint).scheme != "file":  # without a scheme it is Spark's configuration that says where
        where = record.checkpoint or "where Spark's configuration says"
        return False, f"the checkpoint of query {query} is {where}, which cannot be looked at from here; {BY_HAND}"
    try:
        gone = local_checkpoint(record.checkpoint, query) is None
    except UsageError as error:
        return False, str(error.args[0])
    if gone:
        return True, f"the checkpoint of query {query}, {record.checkpoint}, is gone"
    return False, f"query {query} can start again: its checkpoint is {record.checkpoint}"
