"""Whether this host has what a daemon's configuration names: directories that can be used or made, and its
user."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from ..engine.errors import ConfigError

if TYPE_CHECKING:
    from .config import DaemonConfig

__all__ = ["preflight"]


def preflight(config: DaemonConfig) -> list[ConfigError]:
    """All that is wrong, looked at as this user; nothing is made."""
    found: list[ConfigError] = []
    for what, file in (("log file", config.log.path), ("pidfile", config.pidfile)):
        if file is not None and not _may_write(Path(file).absolute().parent):
            found.append(ConfigError(f"{what} {file}: its directory does not exist, or cannot be written"))
    for store in config.stores:
        for place in {store.directory, store.cache} - {None}:
            path = Path(place).absolute()  # type: ignore[arg-type]  # None is taken out
            nearest = next(each for each in (path, *path.parents) if each.exists())
            if not nearest.is_dir() or not _may_write(nearest):
                hint = f"{nearest} is no directory that uid {os.geteuid()} may write to"
                found.append(ConfigError(f"directory {path} of store {store.name} cannot be used", hint=hint))
    others = (config.uid not in (None, os.geteuid())) or (config.gid not in (None, os.getegid()))
    if others and os.geteuid() != 0:
        found.append(ConfigError(f"uid {config.uid}, gid {config.gid}: only root can become another user"))
    return found


def _may_write(directory: Path) -> bool:
    return directory.is_dir() and os.access(directory, os.W_OK | os.X_OK)
