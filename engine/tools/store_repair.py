"""Repairs the logs of stores that do not run: from each other, or from the other stores of the domain
(engine/log/repair.py)."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import msgspec

from ..errors import ConfigError, Error
from ..log.check import LogReport, StoreFiles, check_log, store_files
from ..log.info_file import Own, peer_logs
from ..log.repair import Gap, LogRepair, log_uuid
from ..log.store_directory import StoreDirectory
from ..memory.domain import Domain

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["RepairedLog", "RepairedStore", "repair_stores"]


class RepairedLog(msgspec.Struct, frozen=True):
    """One log. ``filled``: numbers that were copied into it now. ``left``: what no other log that was given
    has."""

    source: str
    topic: str
    filled: int
    bytes: int
    left: list[Gap]
    report: LogReport
    """As it is now."""
    error: str = ""


class RepairedStore(msgspec.Struct, frozen=True):
    """One directory."""

    directory: str
    name: str
    logs: list[RepairedLog]
    error: str = ""

    @property
    def damaged(self) -> bool:
        """Something is damaged for good here, or could not be read or written."""
        return bool(self.error) or any(log.error or log.report.damaged for log in self.logs)


def repair_stores(directories: Sequence[str | os.PathLike[str]], domain: str | None = None) -> list[RepairedStore]:
    """Fills what the logs in each directory lack: from the others, or, with one only, from the stores of the
    domain.

    Raises:
        ConfigError: one is no store's directory.
        DirectoryInUseError: a store runs on one. It repairs itself.
    """
    stores = [store_files(directory) for directory in directories]
    for store in stores:
        if not (store.path / "logs").is_dir():
            raise ConfigError(f"{store.path} is not a store's directory", hint="give the one that has state and logs/")
    with contextlib.ExitStack() as stack:
        for store in stores:
            stack.enter_context(StoreDirectory(store.path))
        if len(stores) > 1:
            return [_repair(store, [other for other in stores if other is not store], None) for store in stores]
        joined = Domain(domain, join=False)
        stack.callback(joined.close)
        return [_repair(stores[0], [], joined)]


def _repair(store: StoreFiles, others: list[StoreFiles], domain: Domain | None) -> RepairedStore:
    logs = []
    for log in store.logs:
        peers = [path for other in others for path in other.logs if path.name == log.name]
        if domain is not None:
            own = Own(store.state.uuid if store.state is not None else b"", store.name, log.parent)
            peers = peer_logs(domain, domain.store_names(), log_uuid(log) or b"", own)
        logs.append(_repair_log(log, store.topic(log), peers))
    return RepairedStore(str(store.path), store.name, logs, store.error)


def _repair_log(path: Path, topic: str, peers: list[Path]) -> RepairedLog:
    filled, copied, left, error = 0, 0, [], ""
    try:
        with LogRepair(path, peers) as repair:
            try:
                repair.run()
            finally:
                filled, copied = sum(done.next - done.first for done in repair.filled), repair.filled_bytes
                left = repair.left
    except (Error, OSError) as failed:
        error = str(failed)
    return RepairedLog(path.name, topic, filled, copied, left, check_log(path, topic), error)
