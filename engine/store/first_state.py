"""What a store begins with: a directory in which none has run, and a state that knows nothing yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import ConfigError
from ..log.state_file import State, StateFile
from ..log.store_directory import StoreDirectory
from ..native.runtime import secrets
from ..native.sync import sync_way

if TYPE_CHECKING:
    from ..native.runtime import Path

__all__ = ["adopt_empty", "begin_in", "first_state"]


def begin_in(directory: Path, doubts: Path | None) -> None:
    """No store has run in this directory yet: a power cut must not take it once messages are stable there."""
    try:
        sync_way(directory, doubts)
    except OSError as error:
        raise ConfigError(
            f"the names that lead to {directory} may not be on disk: {error}",
            hint="see to the disk, then start the machine again; or choose a directory on another disk",
        ) from error


def first_state(name: str) -> State:
    """Of a store that knows nothing yet."""
    return State(name, secrets.token_bytes(16), 0, secrets.randbelow(2**31) + 1)


def adopt_empty(directory: Path, name: str, doubts: Path | None = None) -> State:
    """Lets the store of this directory vote as one that never had a message, from its next start to its end
    (docs/design.md 15).

    ``name``: what it is called, if it has no state at all. ``doubts``: of its domain.

    Raises:
        DirectoryInUseError: it runs.
        ConfigError: the names that lead to it may not be on disk.
        CorruptionError, OSError: its state cannot be read, or not be written.
    """
    with StoreDirectory(directory) as made:
        file = StateFile(directory)
        state = file.load()
        if state is None:
            begin_in(made.path, doubts)
            state = first_state(name)
        state.adopted = state.opened
        file.save(state)
    return state
