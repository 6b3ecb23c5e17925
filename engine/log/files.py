"""What the files of a log take, and which logs of a store lie elsewhere."""

from __future__ import annotations

import contextlib

from ..native.runtime import Path, os

__all__ = ["links_in", "taken_bytes"]

BLOCK_BYTES = 512
"""In which stat counts, whatever the file system's own are."""


def taken_bytes(log: str | Path) -> int:
    """Bytes of blocks that the files of a log take: one that was not written to its end has holes. Files come
    and go meanwhile.

    Raises OSError: the directory cannot be read; FileNotFoundError where there is no log.
    """
    blocks = 0
    with os.scandir(log) as entries:
        for entry in entries:
            try:  # as a context manager, suppress would cost as much as the call: there may be thousands of logs
                blocks += entry.stat(follow_symlinks=False).st_blocks
            except FileNotFoundError:
                continue
    return blocks * BLOCK_BYTES


def links_in(logs: str | Path) -> list[Path]:
    """Where the links among the logs of a store lead: those of a memory store lie elsewhere. Nothing where
    there is no such directory. The listing says which are links: no log is looked at, for there may be
    thousands.

    Raises OSError: the directory cannot be read.
    """
    if not os.path.isdir(logs):
        return []
    found = []
    with os.scandir(logs) as entries:
        for link in entries:
            if link.is_symlink():
                with contextlib.suppress(FileNotFoundError):  # it goes meanwhile
                    found.append(Path(os.readlink(link.path)))
    return found
