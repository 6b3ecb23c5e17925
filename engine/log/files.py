"""What the files in the directory of a log take."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from ..native.runtime import os

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["taken_bytes"]

BLOCK_BYTES = 512
"""In which stat counts, whatever the file system's own are."""


def taken_bytes(log: str | Path) -> int:
    """Bytes of blocks that the files of a log take: one that was not written to its end has holes. Files come
    and go meanwhile.

    Raises OSError: the directory cannot be read; FileNotFoundError where there is no log.
    """
    taken = 0
    with os.scandir(log) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):
                taken += entry.stat(follow_symlinks=False).st_blocks * BLOCK_BYTES
    return taken
