"""What a domain has in shared memory, and its removal: for tests, and for the lab and the tortures beside
them."""

from __future__ import annotations

import os
import shutil

from holdfast.engine.memory.domain import SHM_DIR, Domain, unlink_object

__all__ = ["objects_of", "prefix_of", "remove_objects"]


def prefix_of(domain: str | os.PathLike[str]) -> str:
    """What names in /dev/shm of a domain begin with: its name, or the absolute path of its directory."""
    opened = Domain(os.fspath(domain), join=False)
    try:
        return opened.prefix
    finally:
        opened.close()


def objects_of(domain: str | os.PathLike[str]) -> list[str]:
    """Names in /dev/shm of a domain, as :func:`prefix_of`. Also those that are no objects of ours."""
    prefix = prefix_of(domain)
    return sorted(entry.name for entry in SHM_DIR.iterdir() if entry.name.startswith(prefix))


def remove_objects(domain: str | os.PathLike[str]) -> list[str]:
    """Unlinks them and returns their names."""
    names = objects_of(domain)
    for name in names:
        if (SHM_DIR / name).is_dir():  # the logs of a memory store
            shutil.rmtree(SHM_DIR / name)
        else:
            unlink_object(name)
    return names
