"""What the logs of stores hold, for tests: read in place, as receivers and tools do, with the store alive or
dead."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from support.workers import until

from holdfast.engine.log.info_file import log_range
from holdfast.engine.log.reader import Block, Logs
from holdfast.engine.native.core import ffi

if TYPE_CHECKING:
    from process.conftest import ThreadStore

__all__ = ["kept", "log_of", "messages"]


def log_of(directory: Path) -> Path:
    """Of the one source that the store in ``directory`` keeps."""
    (log,) = (directory / "logs").iterdir()
    return log


def kept(store: ThreadStore | Path) -> list[tuple[int, bytes]]:
    """What the one log of a store holds; ``store``: itself, or its directory."""
    return messages(log_of(store if isinstance(store, Path) else store.store.directory.path))


def messages(log: Path) -> list[tuple[int, bytes]]:
    """(number, payload) of every message that can be read in a log. One that changes meanwhile, because its
    store takes in a BEGIN, is read anew."""
    found: list[tuple[int, bytes]] | None = None

    def read() -> bool:
        nonlocal found
        found = _messages(log)
        return found is not None

    until(f"{log} can be read", read)
    assert found is not None
    return found


def _messages(log: Path) -> list[tuple[int, bytes]] | None:
    numbers = log_range(log)
    if numbers is None:
        return []
    logs, block, found = Logs([str(log)]), Block(), []
    number, end = numbers
    while number < end:
        if not logs.read(number, block):
            if not logs.behind:
                logs.close()
                return None
            number = min(logs.behind)
            continue
        memory = ffi.buffer(block.memory)
        for i in range(block.index, block.count):
            entry = block.entries[i]
            found.append((int(entry.sequence_number), bytes(memory[entry.offset : entry.offset + entry.length])))
        number = found[-1][0] + 1
    logs.close()
    return found
