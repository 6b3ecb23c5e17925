"""What writers of Spark have left in a domain's directory, and what of it nobody will ever need: the part of
``holdfast gc`` that knows them.

A query whose checkpoint is a local directory keeps its record there (writing.py), and it goes with that. The
others, whose checkpoint their writer did not see, keep it with the domain. Without it a batch would be
published twice when the query starts again. Whether it can, its checkpoint alone would say, and who does not
see it does not know that it is gone: so these records stay, until an operator removes them.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from ..engine.errors import CorruptionError, ForeignOwnerError
from ..engine.tools.gc import Item
from .alive import ALIVE, over
from .batch_writer import ONCE
from .ledger import Ledger, LedgerInUseError
from .transactions import TRANSACTION

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["leftovers"]

BY_HAND = "remove it by hand when it is never started again"
AFTER_ITS_DRIVER = "remove it by hand when that has ended"


def leftovers(place: Path, *, dry_run: bool) -> list[Item]:
    """Looks, removes what may go (unless ``dry_run``), and returns what was seen; who writes just now is not
    mentioned.

    Args:
        place: where the writers of a domain keep what has no other place.

    Raises:
        OSError: something could not be removed.
    """
    found = [_seen(path, dry_run=dry_run) for path in sorted(place.iterdir()) if path.is_dir()]
    return [item for item in found if item is not None]


def _seen(path: Path, *, dry_run: bool) -> Item | None:
    size = sum(entry.stat().st_size for entry in path.rglob("*") if entry.is_file())

    def kept(why: str) -> Item:
        return Item("writer", str(path), size, False, why)

    if path.name.startswith(ONCE):
        if not (path / ALIVE).exists():
            return kept(f"whether the driver of this write lives cannot be told; {AFTER_ITS_DRIVER}")
        with over(path) as dead:
            if not dead:
                return None
            if not dry_run:
                shutil.rmtree(path)
        return Item("writer", str(path), size, True, "its driver is dead: nobody goes on with this write")
    if path.name.startswith(TRANSACTION):
        return kept("which txnVersion of a txnAppId was published last, it alone says")
    if not (path / "ledger").exists():
        return kept(f"rows that a query has staged, and not published yet; {BY_HAND}")
    try:
        with Ledger(path, 0) as ledger:
            return kept(_why(ledger, path.name))
    except LedgerInUseError:
        return None
    except (CorruptionError, ForeignOwnerError) as error:
        return kept(str(error.args[0]))


def _why(ledger: Ledger, query: str) -> str:
    record = ledger.record
    if record.intent is not None:
        return f"batch {record.intent.batch} of query {query} is half published: only with this it can be finished"
    where = record.checkpoint or "where Spark's configuration says"
    return f"query {query} can start again: its checkpoint is {where}, which only Spark can look at; {BY_HAND}"
