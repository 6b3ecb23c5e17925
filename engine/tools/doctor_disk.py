"""What the logs of a store take on disk, and what they may take when all are full."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..log.files import taken_bytes
from ..rules.log_sizes import most_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..log.state_file import SourceState
    from ..native.runtime import Path

__all__ = ["DiskUse", "disk_use"]


class DiskUse(NamedTuple):
    """Of the logs of one store that lie on disk."""

    sources: int
    paced: int
    """Number of those that are receiver-paced: their limit counts payload."""
    taken: int
    """Bytes of files now."""
    most: int
    """Bytes of files when all are full, without what the frames of receiver-paced messages take."""
    over: int = 0
    """Number of those that are shelved: they stay as they are until their source comes back."""


def disk_use(logs: Path, sources: Sequence[SourceState], limit: int) -> DiskUse:
    """Looks at the files. ``limit``: the largest one that a topic has at this store."""
    count = paced = taken = most = over = 0
    for source in sources:
        if source.repository != "disk":
            continue
        allocated = _taken(f"{logs}/{source.uuid.hex()}")
        count, taken = count + 1, taken + allocated
        if source.is_shelved:
            over, most = over + 1, most + allocated
        else:
            own = source.paced.disk_limit if source.paced is not None else 0
            most += most_bytes(own or limit, paced=source.paced is not None)
        paced += source.paced is not None
    return DiskUse(count, paced, taken, most, over)


def _taken(log: str) -> int:
    try:
        return taken_bytes(log)
    except OSError:
        return 0
