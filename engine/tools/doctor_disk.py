"""What the logs of a store take on disk, and what they may take when all are full."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..native.runtime import Path, os
from ..rules.log_sizes import most_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..log.state_file import SourceState

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


def disk_use(logs: Path, sources: Sequence[SourceState], limit: int) -> DiskUse:
    """Looks at the files. ``limit``: the largest one that a topic has at this store."""
    kept = [source for source in sources if source.repository == "disk"]
    taken = most = 0
    for source in kept:
        taken += _allocated(logs / source.uuid.hex())
        own = source.paced.disk_limit if source.paced is not None else 0
        most += most_bytes(own or limit, paced=source.paced is not None)
    return DiskUse(len(kept), sum(source.paced is not None for source in kept), taken, most)


def _allocated(log: Path) -> int:
    """Bytes of blocks that a directory's files take; files come and go meanwhile."""
    total = 0
    try:
        names = os.listdir(log)
    except OSError:
        return 0
    for name in names:
        try:
            total += os.lstat(log / name).st_blocks * 512
        except OSError:
            continue
    return total
